"""The todo list is stored whole and counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agentcli.domain.errors import InvalidArguments
from agentcli.domain.tools import Asks
from agentcli.tools.write_todos import TOOL
from tests.support.tool_context import MemoryState, text_of, tool_context


def todo(content: str, status: str) -> dict[str, str]:
    return {"content": content, "status": status}


@pytest.mark.spec("TOOL-5")
def test_the_list_is_kept_in_the_session_and_counted(tmp_path: Path) -> None:
    state = MemoryState()
    todos = [todo("read", "completed"), todo("write", "in_progress"), todo("test", "pending")]
    args = TOOL.parse({"todos": todos})
    output = asyncio.run(TOOL.run(args, tool_context(tmp_path, state=state)))
    assert json.loads(state.values["todos"]) == todos
    assert text_of(output) == "3 todos: 1 completed, 1 in progress, 1 pending."
    assert output.display == "[x] read\n[>] write\n[ ] test"
    assert TOOL.summary(args) == "Plan 1/3 done"
    assert TOOL.definition.asks is Asks.NOTHING


def test_two_in_progress_are_taken_with_advice(tmp_path: Path) -> None:
    args = TOOL.parse({"todos": [todo("a", "in_progress"), todo("b", "in_progress")]})
    assert "one at a time" in text_of(asyncio.run(TOOL.run(args, tool_context(tmp_path))))


@pytest.mark.spec("TOOL-5")
def test_an_empty_list_clears_it(tmp_path: Path) -> None:
    state = MemoryState({"todos": "[1]"})
    asyncio.run(TOOL.run(TOOL.parse({"todos": []}), tool_context(tmp_path, state=state)))
    assert state.values["todos"] == "[]"


@pytest.mark.parametrize(
    "todos",
    [[todo("a", "done")], [todo("", "pending")], [{"content": "a"}], [todo("a", "pending")] * 101],
)
def test_other_shapes_are_refused(todos: object) -> None:
    with pytest.raises(InvalidArguments, match="todos"):
        TOOL.parse({"todos": todos})
