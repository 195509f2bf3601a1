"""``web_fetch`` as a model meets it in ``agent run``: who says no, and that nobody is reached."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chat import Chat, leave
from tests.e2e.one_shot import check_sessions, one_shot, result_of
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import call
from tests.support.web_server import WebServer, answer
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled


@pytest.fixture
def canary() -> Iterator[WebServer]:
    """A server on this machine that must not be reached."""
    with WebServer({"/": answer("reached")}) as server:
        yield server
    assert server.connections == 0


@pytest.mark.spec("TOOL-12", "SEC-11", "CLI-7")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_without_a_rule_and_a_person_a_fetch_is_a_permission_denial(
    model_server: ModelServer, canary: WebServer, tmp_path: Path, protocol: str
) -> None:
    url = f"http://127.0.0.1:{canary.port}/"
    model_server.add(call("web_fetch", {"url": url}, id="one"), "I see.")
    done = one_shot(model_server, "-o", "json", "go", protocol=protocol, cwd=tmp_path)
    (denial,) = result_of(done)["permission_denials"]
    assert denial["tool_name"] == "web_fetch" and denial["tool_input"] == {"url": url}
    check_sessions()


@pytest.mark.spec("TOOL-12", "SEC-11")
@pytest.mark.parametrize("how", [["--allow-tool", "web_fetch"], ["--yolo"]], ids=" ".join)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_whatever_is_allowed_this_machine_is_not_reached_and_the_model_is_told_why(
    model_server: ModelServer, canary: WebServer, tmp_path: Path, host: str, how: list[str]
) -> None:
    url = f"http://{host}:{canary.port}/"
    model_server.add(call("web_fetch", {"url": url}, id="one"), "I see.")
    done = one_shot(model_server, *how, "-o", "json", "go", cwd=tmp_path)
    assert done.code == 0 and result_of(done)["permission_denials"] == []
    facts = facts_of(model_server.requests[1])
    assert "not a public address" in facts.results["one"] and "one" in facts.errors


@pytest.mark.spec("SEC-11", "SEC-3")
def test_a_rule_for_a_host_is_no_rule_for_another(
    model_server: ModelServer, canary: WebServer, tmp_path: Path
) -> None:
    url = f"http://notexample.localhost:{canary.port}/"
    model_server.add(call("web_fetch", {"url": url}, id="one"), "I see.")
    rule = "web_fetch(example.localhost)"
    done = one_shot(model_server, "--allow-tool", rule, "-o", "json", "go", cwd=tmp_path)
    assert [d["tool_name"] for d in result_of(done)["permission_denials"]] == ["web_fetch"]


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-6", "SEC-11")
def test_a_person_is_shown_the_very_url_and_says_yes_to_the_host(
    model_server: ModelServer, canary: WebServer, chat: Chat
) -> None:
    base = f"http://127.0.0.1:{canary.port}"
    model_server.add(
        call("web_fetch", {"url": f"{base}/first?q=\u202ex"}, id="one"),
        call("web_fetch", {"url": f"{base}/second"}, id="two"),
        call("web_fetch", {"url": "http://localhost:1/third"}, id="three"),
        "Done.",
    )
    terminal = chat()
    terminal.line("look")
    terminal.wait_for(f"{base}/first?q=%E2%80%AEx")
    terminal.confirm("s")
    terminal.wait_for("localhost:1/third")
    terminal.confirm("n")
    terminal.wait_for("Done.")
    results = facts_of(model_server.requests[-1]).results
    assert all("not a public address" in results[each] for each in ("one", "two"))
    leave(terminal)
