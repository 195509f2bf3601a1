"""Knocking at an address: reached, refused, unknown, silent, and a resolver that hangs."""

from __future__ import annotations

import socket
import threading

import pytest

from agentcli.cli.endpoint_check import proxy_for, reach


@pytest.mark.spec("OPS-3")
def test_an_address_answers_or_says_why_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach("127.0.0.1", port, 5)
    with pytest.raises(ConnectionRefusedError):
        reach("127.0.0.1", port, 5)
    with pytest.raises(OSError, match="valid name"):
        reach("a" * 70 + ".example", port, 5)
    with pytest.raises(socket.gaierror):
        reach("nobody.invalid", port, 5)


@pytest.mark.spec("OPS-3", "OPS-1")
def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: answer.wait() and [])
    with pytest.raises(TimeoutError, match="name"):
        reach("slow.example", 443, 0.1)
    answer.set()


@pytest.mark.spec("OPS-3")
def test_the_proxy_is_what_is_knocked_at() -> None:
    env = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost,.corp.example"}
    assert proxy_for("https://api.example/v1", env) == "http://proxy:3128"
    assert proxy_for("https://models.corp.example/v1", env) == ""
    assert proxy_for("http://api.example/v1", env) == ""
