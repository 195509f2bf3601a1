"""What servers say when they refuse, and what becomes of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agentcli.domain.errors import ErrorKind
from agentcli.providers._errors import (
    Endpoint,
    event_error,
    missing_key,
    parse_retry_after,
    read_complaint,
    status_error,
    unusable_key,
)

KEY = "sk-ant-api03-abcdefghijklmnop"
WHERE = Endpoint(
    "anthropic",
    "https://user:pw@api.anthropic.com/v1/messages",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "claude-x",
    (KEY,),
)


def body(type_: str, message: str, code: object = None) -> bytes:
    return json.dumps({"error": {"type": type_, "message": message, "code": code}}).encode()


@pytest.mark.spec("STR-1")
@pytest.mark.parametrize(
    ("status", "data", "kind", "retryable"),
    [
        (400, body("invalid_request_error", "messages: bad"), "bad_request", False),
        (400, body("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
         "context_overflow", False),
        (400, body("invalid_request_error",
                   "This model's maximum context length is 8192 tokens.", "context_length_exceeded"),
         "context_overflow", False),
        (400, b'{"error": "the request exceeds the available context size, try increasing it"}',
         "context_overflow", False),
        (400, body("invalid_request_error", "Your credit balance is too low to access the API"),
         "auth", False),
        (401, body("authentication_error", "invalid x-api-key"), "auth", False),
        (402, b"", "auth", False),
        (403, body("permission_error", "no"), "auth", False),
        (404, body("not_found_error", "model: claude-x"), "bad_request", False),
        (408, b"", "server", True),
        (413, body("request_too_large", "Request exceeds the maximum size"),
         "context_overflow", False),
        (422, b'{"detail": [{"msg": "extra"}]}', "bad_request", False),
        (429, body("rate_limit_error", "slow down"), "rate_limit", True),
        (429, body("insufficient_quota", "You exceeded your current quota", "insufficient_quota"),
         "rate_limit", False),
        (500, body("api_error", "oops"), "server", True),
        (502, b"<html><title>502 Bad Gateway</title></html>", "server", True),
        (503, b"Service Unavailable", "server", True),
        (503, body("server_error", "The engine is currently overloaded"), "overloaded", True),
        (504, b"", "server", True),
        (529, body("overloaded_error", "Overloaded"), "overloaded", True),
        (307, b"", "other", False),
        (418, b"[]", "bad_request", False),
    ],
)  # fmt: skip
def test_a_status_and_its_body_give_the_kind(
    status: int, data: bytes, kind: str, retryable: bool
) -> None:
    error = status_error(WHERE, status, {}, data)
    assert (error.kind, error.retryable, error.status) == (ErrorKind(kind), retryable, status)
    assert error.host == "api.anthropic.com"
    assert "anthropic at api.anthropic.com" in str(error)
    assert "pw" not in str(error)
    assert error.advice


@pytest.mark.spec("STR-8")
@pytest.mark.parametrize(
    ("value", "kind", "retryable"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
         "overloaded", True),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "m"}},
         "rate_limit", True),
        ({"type": "error", "error": {"type": "api_error", "message": "m"}}, "server", True),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}},
         "bad_request", False),
        ({"type": "error", "error": {"type": "authentication_error", "message": "m"}},
         "auth", False),
        ({"error": {"code": 429, "message": "m"}}, "rate_limit", True),
        ({"error": {"code": 502, "message": "m"}}, "server", True),
        ({"error": "the context length was exceeded"}, "context_overflow", False),
        ({"error": {"message": None}}, "server", True),
        ({"object": "error", "message": "m", "code": 400}, "bad_request", False),
    ],
)  # fmt: skip
def test_an_error_object_in_a_stream_gives_the_kind(
    value: dict[str, object], kind: str, retryable: bool
) -> None:
    error = event_error(WHERE, value)
    assert (error.kind, error.retryable) == (ErrorKind(kind), retryable)


@pytest.mark.spec("SEC-9", "STR-9")
def test_no_text_holds_a_key_or_a_control_character() -> None:
    said = f"Incorrect API key {KEY} and sk-proj-zzzzzzzzzzzz and sk-ab***yz\x1b[31m\n\u202ered"
    error = status_error(WHERE, 401, {}, body("x", said))
    assert KEY not in str(error)
    assert "sk-" not in str(error)
    assert str(error).isprintable()
    assert "ANTHROPIC_API_KEY" in error.advice
    assert KEY not in repr(WHERE)


def test_a_long_page_is_cut_to_its_title() -> None:
    page = b"<html><head><title>Bad\n gateway</title><style>x</style></head>" + b"y" * 99999
    assert read_complaint(page).text == "Bad gateway"
    assert len(read_complaint(b"z" * 99999).text) < 1000


@pytest.mark.parametrize("junk", [b"", b"\xff\xfe", b"[[[", b"null", b"3", b"[" * 100_000])
def test_any_body_can_be_read(junk: bytes) -> None:
    assert status_error(WHERE, 500, {}, junk).kind is ErrorKind.SERVER


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("Please try again in 20s. Visit", 20), ("try again in 1.898s", 1.898),
        ("Please try again in 28ms.", 0.028), ("Please Try Again In 6m0s.", 360),
        ("try again in 1h2m3.5s", 3723.5), ("try again in 3 minutes", 180),
        ("please try again in 1 hour and 5 minutes", 3900), ("Try again in 30 seconds!", 30),
        ("try again in a moment", None), ("try again in 12 steps", None), ("", None),
        ("try again in 99999999999999999999h", None), ("try again in 2d", 172_800),
    ],
)  # fmt: skip
def test_a_wait_that_only_the_text_names_is_read(said: str, seconds: float | None) -> None:
    data = body("rate_limit_exceeded", said)
    found = status_error(WHERE, 429, {}, data).retry_after_s
    in_stream = event_error(WHERE, json.loads(data)).retry_after_s
    assert found == in_stream == (None if seconds is None else pytest.approx(seconds))
    assert status_error(WHERE, 429, {"retry-after": "7"}, data).retry_after_s == 7
    assert status_error(WHERE, 400, {}, body("x", said)).retry_after_s is None


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(
    ("status", "data"),
    [
        (429, body("insufficient_quota", "You exceeded your current quota", "insufficient_quota")),
        (429, body("rate_limit_error", "Your credit balance is too low")),
        (429, body("requests", "billing hard limit has been reached", "billing_hard_limit_reached")),
        (429, b'{"error": {"code": "1113", "message": "Insufficient balance, please recharge"}}'),
        (402, b'{"error": {"message": "Insufficient credits", "code": 402}}'),
        (403, body("billing_error", "Your organization has no credit")),
    ],
)  # fmt: skip
def test_a_quota_that_money_alone_renews_is_not_tried_again(status: int, data: bytes) -> None:
    error = status_error(WHERE, status, {"retry-after": "7200"}, data)
    assert not error.retryable
    assert "billing" in error.advice
    assert not event_error(WHERE, json.loads(data)).retryable


@pytest.mark.spec("STR-2", "OPS-1")
def test_retry_after_is_seconds_a_date_or_nothing() -> None:
    def wait(value: str) -> float | None:
        return parse_retry_after({"retry-after": value})

    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert wait("12") == 12
    assert wait("0.5") == 0.5
    assert wait("0") == 0
    assert 25 <= (wait(soon) or 0) <= 31
    past = ("Fri, 01 Jan 1999 00:00:00 GMT", "Friday, 01-Jan-99 00:00:00 GMT", "-3", "-1e309")
    assert [wait(value) for value in past] == [None] * len(past)  # then the usual pauses are made
    assert wait("99999999999") == 99999999999
    for absurd in ("", "soon", "nan", "inf", "1e999", "Fri, 99 Foo 1999", "\u0663", "1_0", "0x1"):
        assert wait(absurd) is None
    assert parse_retry_after({}) is None
    assert parse_retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5


def test_the_server_can_forbid_a_retry() -> None:
    assert not status_error(WHERE, 500, {"x-should-retry": "false"}, b"").retryable


@pytest.mark.spec("STR-9")
def test_a_missing_key_is_said_first() -> None:
    assert str(missing_key(WHERE)).startswith("ANTHROPIC_API_KEY is not set - ")
    assert "api.anthropic.com" in str(missing_key(WHERE))
    own = Endpoint("mine", "https://host/v1")
    assert "provider mine has no API key" in str(missing_key(own))
    assert "ANTHROPIC_API_KEY" in str(unusable_key(WHERE))


@pytest.mark.spec("SEC-11")
def test_a_redirect_is_said_not_to_be_followed() -> None:
    assert "redirect, which is not followed (307)" in status_error(WHERE, 307, {}, b"").message
