"""Questions beside the conversation: bounded, all at once, and no key goes astray."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from agentcli.domain.errors import AgentError, ConfigError, ErrorKind, ProviderError
from agentcli.domain.ports import ProviderConfig
from agentcli.providers.models.ask import ServerClient, ask_all
from agentcli.wire import http
from tests.security.hostile_server import endless, hostile
from tests.support.json_server import JsonServer

KEY = "sk-test-0123456789abcdefghij"


def asker(key: str = KEY, timeout_s: float = 5.0) -> ServerClient:
    return ServerClient(
        ProviderConfig("work", "openai", "http://x.invalid", "WORK_KEY", key), timeout_s
    )


def test_a_value_comes_with_the_key_and_a_body_makes_it_a_post() -> None:
    with JsonServer({"GET /a": [1], "POST /b": {"ok": True}}) as server:
        assert asker().get(f"{server.url}/a") == [1]
        assert asker().get(f"{server.url}/b", {"x-key": "k"}, body={"q": 1}) == {"ok": True}
    first, second = server.asked
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert second.body == {"q": 1}
    assert second.headers["x-key"] == "k"
    assert "authorization" not in second.headers


@pytest.mark.spec("STR-9", "SEC-9")
@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ((401, {"error": {"message": f"bad key {KEY}"}}), ErrorKind.AUTH, "WORK_KEY"),
        ((500, {}), ErrorKind.SERVER, "work at 127.0.0.1"),
        ((200, b"<html>"), ErrorKind.NETWORK, "not JSON"),
        ((200, b"[" * 100_000), ErrorKind.NETWORK, "not JSON"),
    ],
    ids=["401", "500", "html", "deep"],
)
def test_a_failure_is_one_typed_line_without_the_key(
    answer: tuple[int, Any], kind: ErrorKind, text: str
) -> None:
    with JsonServer({"GET /a": lambda _: answer}) as server, pytest.raises(ProviderError) as caught:
        asker().get(f"{server.url}/a")
    assert caught.value.kind is kind
    assert text in str(caught.value)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.spec("SEC-1")
def test_no_redirect_is_followed_with_a_key() -> None:
    with JsonServer({"GET /a": lambda _: (302, {}), "GET /elsewhere": []}) as server:
        with pytest.raises(ProviderError):
            asker().get(f"{server.url}/a")
        assert [asked.path for asked in server.asked] == ["/a"]


@pytest.mark.spec("SEC-13")
def test_an_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 1_000)
    with JsonServer({"GET /a": b" " * 5_000}) as server, pytest.raises(ProviderError, match="8 MB"):
        asker().get(f"{server.url}/a")


@pytest.mark.spec("SEC-13")
def test_a_head_that_never_ends_is_given_up_however_fast_it_comes() -> None:
    with hostile(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")) as server:
        server.head = b""
        with pytest.raises(ProviderError, match="in time"):
            asker(timeout_s=0.2).get(f"{server.url}/a")


@pytest.mark.spec("FAIL-6")
def test_nobody_there_silence_and_an_unusable_key_are_typed_errors() -> None:
    with pytest.raises(ProviderError, match="refused"):
        asker().get("http://127.0.0.1:9/a")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a"
        with pytest.raises(ProviderError, match="in time"):
            asker(timeout_s=0.05).get(url)
    with pytest.raises(ProviderError, match="not a usable key"):
        asker("k\u00e9y").get("http://127.0.0.1:9/a")
    with pytest.raises((ConfigError, ProviderError)):
        asker().get("nonsense://x/a")


def test_all_are_asked_at_once_and_a_straggler_is_left_behind() -> None:
    together, never = threading.Barrier(2), threading.Event()

    def meet() -> str:
        together.wait(10)
        return "here"

    def fail() -> str:
        raise AgentError("no luck")

    def crash() -> str:
        raise KeyError("oops")

    def hang() -> str:
        never.wait(10)
        return "late"

    try:
        questions = {"a": meet, "b": meet, "c": fail, "d": crash}
        found, failed = ask_all(questions, 10.0)
        assert list(found.items()) == [("a", "here"), ("b", "here")]
        assert list(failed) == ["c", "d"]
        assert str(failed["c"]) == "no luck"
        assert "d gave an unreadable answer" in str(failed["d"])
        late = ask_all({"hang": hang}, 0.05)
        assert late.found == {}
        assert "within 0.05 s" in str(late.failed["hang"])
        assert ask_all({}, 1.0) == ({}, {})
    finally:
        never.set()
