"""A chat and an editor's session: what they report, and that a dead collector shows nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.acp_client import Editor
from tests.support.model_server import ModelServer
from tests.support.replies import Call, calls, say

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is missing")
from tests.support.collector import Collector

pytestmark = [pytest.mark.slow, pytest.mark.spec("SCALE-7")]


def test_a_cancelled_turn_of_a_chat_is_reported_as_cancelled(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add(say("Half an answer", piece=20, stall_at="text"), "A whole one.")
    with Collector() as collector:
        terminal = chat(**collector.env())
        terminal.line("first")
        terminal.wait_for("Half an answer")
        terminal.key("ctrl-c")
        terminal.wait_for("Cancelled")
        terminal.wait_for(IDLE)
        assert model_server.wait_until_finished().client_left
        terminal.line("second")
        terminal.wait_for("A whole one.")
        terminal.line("/new")
        leave(terminal)
        spans = collector.spans()
    assert [(span.name, span.error) for span in spans] == [
        ("invoke_agent agentcli", "cancelled"),
        ("chat claude-sonnet-4-5", "cancelled"),
        ("invoke_agent agentcli", None),
        ("chat claude-sonnet-4-5", None),
    ]


def test_a_collector_that_refuses_is_not_seen_in_the_chat(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add(calls(Call("list_directory", {})), "The answer.", "Another.")
    with Collector() as collector:
        env = collector.env()
    env |= {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_BSP_EXPORT_TIMEOUT": "300"}
    terminal = chat(**env)
    terminal.line("first")
    terminal.wait_for("The answer.")
    terminal.line("second")
    terminal.wait_for("Another.")
    terminal.wait_for(IDLE)
    seen = terminal.text()
    leave(terminal)
    assert not re.search("otlp|export|refused|urllib|retry", seen + terminal.text(), re.IGNORECASE)


def test_each_session_of_an_editor_is_a_trace_of_its_own(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add("one", "two")
    with Collector() as collector:
        with Editor(model_server, work, **collector.env()) as editor:
            ids = [editor.new(), editor.new()]
            for session_id in ids:
                editor.prompt(session_id, "hi")
            assert editor.leave() == 0
        spans = collector.spans()
    turns = [span for span in spans if span.name == "invoke_agent agentcli"]
    assert [span.attributes["gen_ai.conversation.id"] for span in turns] == ids
    assert len({span.trace for span in spans}) == 2
