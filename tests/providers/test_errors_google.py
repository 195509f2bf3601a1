"""Errors as Google's services word them: kinds, waits and advice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.providers._errors import event_error, google_facts, status_error
from agentcli.wire.http import Endpoint
from tests.support.wire_gemini import error_value

GEMINI = Endpoint("gemini", "https://generativelanguage.googleapis.com/x", "GEMINI_API_KEY")
RPC = "type.googleapis.com/google.rpc."
pytestmark = pytest.mark.spec("STR-1", "STR-9")


def failure(value: Any, **headers: str) -> ProviderError:
    body = value[0] if isinstance(value, list) else value
    return status_error(GEMINI, body["error"]["code"], headers, json.dumps(value).encode())


@pytest.mark.parametrize(
    ("kind", "expected", "retryable"),
    [
        ("bad_request", ErrorKind.BAD_REQUEST, False),
        ("auth", ErrorKind.AUTH, False),
        ("key", ErrorKind.AUTH, False),
        ("no_key", ErrorKind.AUTH, False),
        ("permission", ErrorKind.AUTH, False),
        ("not_found", ErrorKind.BAD_REQUEST, False),
        ("too_large", ErrorKind.CONTEXT_OVERFLOW, False),
        ("context", ErrorKind.CONTEXT_OVERFLOW, False),
        ("rate_limit", ErrorKind.RATE_LIMIT, True),
        ("quota", ErrorKind.RATE_LIMIT, False),
        ("overloaded", ErrorKind.OVERLOADED, True),
        ("busy", ErrorKind.OVERLOADED, True),
        ("api_error", ErrorKind.SERVER, True),
    ],
)
def test_every_refusal_has_its_kind(kind: str, expected: ErrorKind, retryable: bool) -> None:
    for value in (error_value(kind), [error_value(kind)]):
        error = failure(value)
        assert (error.kind, error.retryable) == (expected, retryable)
        assert "generativelanguage.googleapis.com" in error.message
    event = event_error(GEMINI, error_value(kind))
    assert (event.kind, event.retryable) == (expected, retryable)


@pytest.mark.spec("STR-2")
def test_the_wait_that_the_body_asks_for_is_passed_on_and_a_header_wins() -> None:
    value = error_value("rate_limit")
    assert failure(value).retry_after_s == 12
    assert failure([value]).retry_after_s == 12
    assert failure(value, **{"retry-after": "3"}).retry_after_s == 3
    assert event_error(GEMINI, value).retry_after_s == 12
    assert "credit" not in failure(value).advice


def test_a_limit_of_the_day_is_not_waited_for() -> None:
    error = failure(error_value("quota"))
    assert error.retry_after_s is None
    assert "quota of the day" in error.advice


def test_an_account_without_credit_is_told_apart() -> None:
    value = {
        "error": {
            "code": 429,
            "message": "You exceeded your current quota, please check your plan and billing.",
            "status": "RESOURCE_EXHAUSTED",
        }
    }
    error = failure(value)
    assert error.retryable is False
    assert "credit" in error.advice


def test_a_wrong_key_is_advised_by_its_name() -> None:
    error = failure(error_value("key"))
    assert error.status == 400
    assert "GEMINI_API_KEY" in error.advice


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        ("12s", 12.0),
        ("58.821668433s", 58.821668433),
        ({"seconds": 7}, 7.0),
        ("soon", None),
        ("-5s", None),
        ("1e999s", None),
        ("9" * 400 + "s", None),
        (None, None),
    ],
)
def test_a_delay_is_a_duration_or_nothing(delay: Any, seconds: float | None) -> None:
    details = [{"@type": f"{RPC}RetryInfo", "retryDelay": delay}]
    facts = google_facts({"status": "RESOURCE_EXHAUSTED", "details": details})
    assert facts.retry_after_s == seconds


@pytest.mark.parametrize(
    "details",
    [
        None,
        "x",
        [],
        [None, 1, {}],
        [{"@type": 5}],
        [{"@type": f"{RPC}QuotaFailure", "violations": 3}],
    ],
)
def test_odd_details_count_as_not_there(details: Any) -> None:
    facts = google_facts({"status": "UNAVAILABLE", "details": details})
    assert (facts.type, facts.retry_after_s, facts.is_daily) == ("UNAVAILABLE", None, False)


def test_errors_of_others_are_none_of_googles() -> None:
    assert google_facts({"status": 400}) == google_facts({"status": "failed"}) == google_facts({})
