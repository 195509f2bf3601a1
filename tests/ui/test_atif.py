"""A session as an ATIF trajectory: what others' tools read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcli.domain.accounts import Ledger, UsageRow
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus, StoredMessage
from agentcli.ui.atif import export_atif
from agentcli.ui.export import json_pieces
from tests.support.histories import PNG

AT = 1_767_323_041.0


def stored(seq: int, message: Any, hidden_by: int | None = None) -> StoredMessage:
    return StoredMessage(seq, AT + seq, message, hidden_by)


def info(session_id: str, **more: Any) -> SessionInfo:
    return SessionInfo(
        session_id, "t", "/w", AT, AT, SessionStatus.DONE, 1, "anthropic/m", **more
    )  # fmt: skip


def reply(*parts: Any) -> AssistantMessage:
    return AssistantMessage(parts, "anthropic", "m")


def exported(session: LoadedSession, ledger: Ledger = Ledger(), **agents: LoadedSession) -> Any:
    """The trajectory as JSON; ``agents`` are its sub-agents by the calls that began them."""
    begun = {call_id: [agent.info] for call_id, agent in agents.items()}
    children = (export_atif(agent, Ledger(), {}, iter(())) for agent in agents.values())
    return json.loads("".join(json_pieces(export_atif(session, ledger, begun, children))))


AGENT = LoadedSession(
    info("child", agent="explore", parent_id="whole"),
    (stored(1, UserMessage((TextPart("look"),))), stored(2, reply(TextPart("seen")))),
)
EMPTY = LoadedSession(info("empty"), ())
LEDGER = Ledger((), (UsageRow("step", AT, "anthropic/m", Usage(10, 5, 40, 2, 1), 0.1, 2),))
WHOLE = LoadedSession(
    info("whole", usage=Usage(100, 20, 50), cost_usd=0.5),
    (
        stored(1, UserMessage((TextPart("go"), ImagePart("image/png", PNG))), 6),
        stored(
            2,
            reply(
                ThinkingPart("hm", "signature"),
                TextPart("I look."),
                ToolCall("c1", "bash", {"command": "ls"}),
                ToolCall("c2", "task", {}, "{broken"),
            ),
        ),
        stored(3, ToolResult("c1", "bash", (TextPart("a"), ImagePart("image/bmp", b"BM")))),
        stored(4, ToolResult("c2", "task", (TextPart("seen"),), ResultStatus.ERROR)),
        stored(5, UserMessage((TextPart("no"),)), 5),
        stored(6, UserMessage((TextPart("what was"),), is_summary=True)),
        stored(7, UserMessage((DocumentPart("application/pdf", b"%", "a.pdf", "its text"),))),
        stored(8, reply(TextPart("Done."))),
    ),
)


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = exported(WHOLE, LEDGER, c2=AGENT)["steps"]
    return found


@pytest.mark.spec("CLI-8")
def test_steps_are_numbered_and_calls_stand_with_their_results() -> None:
    assert [(step["step_id"], step["source"]) for step in steps()] == [
        (1, "user"),
        (2, "agent"),
        (3, "system"),
        (4, "user"),
        (5, "agent"),
    ]
    asked = steps()[1]
    assert asked["reasoning_content"] == "hm"
    assert asked["model_name"] == "anthropic/m"
    assert [call["tool_call_id"] for call in asked["tool_calls"]] == ["c1", "c2"]
    first, second = asked["observation"]["results"]
    assert first["content"][1] == {"type": "text", "text": "(attachment: image/bmp, 2 bytes)"}
    assert second["extra"] == {"is_error": True, "status": "error"}
    assert second["subagent_trajectory_ref"] == [{"trajectory_id": "child", "session_id": "whole"}]
    assert asked["metrics"] == {
        "prompt_tokens": 52,
        "completion_tokens": 5,
        "cached_tokens": 40,
        "cost_usd": 0.1,
        "extra": {"cache_write_tokens": 2, "reasoning_tokens": 1},
    }
    assert steps()[3]["message"] == [{"type": "text", "text": "its text"}]


@pytest.mark.spec("CLI-8")
def test_sub_agents_are_trajectories_of_their_own() -> None:
    whole = exported(WHOLE, LEDGER, c2=AGENT)
    (agent,) = whole["subagent_trajectories"]
    assert (agent["trajectory_id"], agent["session_id"]) == ("child", "whole")
    assert agent["agent"]["name"] == "explore"
    assert whole["final_metrics"] == {
        "total_steps": 5,
        "total_prompt_tokens": 150,
        "total_completion_tokens": 20,
        "total_cached_tokens": 50,
        "total_cost_usd": 0.5,
    }


def test_a_session_without_a_word_has_a_step() -> None:
    empty = exported(EMPTY)
    assert [step["step_id"] for step in empty["steps"]] == [1]


@pytest.mark.spec("CLI-8")
def test_harbor_reads_it() -> None:
    models = pytest.importorskip("harbor.models.trajectories")  # needs Python 3.12
    for document in (exported(WHOLE, LEDGER, c2=AGENT), exported(AGENT), exported(EMPTY)):
        models.Trajectory.model_validate(document)
