"""The tool's own part: its line, its result, and runs without sub-agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import InvalidArguments
from agentcli.domain.tool_ports import SubTask, SubTaskReport
from agentcli.domain.tools import OutputKind, PortMissing, ToolOutput, context_for
from agentcli.tools.task import TOOL
from tests.support.tool_context import text_of, tool_context

ARGUMENTS = {"description": "look\naround", "prompt": "find it"}


class Agents:
    """Reports what it was told to."""

    def __init__(self, report: SubTaskReport) -> None:
        self.report = report
        self.tasks: list[SubTask] = []

    async def run(
        self, task: SubTask, call_id: str, cancel: CancelToken, progress: Callable[[str], None]
    ) -> SubTaskReport:
        assert call_id == "call_1"
        self.tasks.append(task)
        return self.report


def run(tmp_path: Path, report: SubTaskReport | None) -> ToolOutput:
    ctx = tool_context(tmp_path)
    ctx.agents = None if report is None else Agents(report)
    return asyncio.run(TOOL.run(TOOL.parse(ARGUMENTS), ctx))


@pytest.mark.spec("TOOL-1")
def test_the_line_of_a_call_is_one_line() -> None:
    line = TOOL.summary(TOOL.parse({**ARGUMENTS, "agent": "scout\x1b"}))
    assert line.startswith("Task (scout")
    assert line.isprintable()


@pytest.mark.parametrize("missing", ["description", "prompt"])
def test_a_task_needs_words(missing: str) -> None:
    with pytest.raises(InvalidArguments):
        TOOL.parse({**ARGUMENTS, missing: "  "})


@pytest.mark.spec("TOOL-2")
def test_the_answer_comes_first_and_then_where_the_transcript_is(tmp_path: Path) -> None:
    output = run(tmp_path, SubTaskReport(text="found", session_id="s1", steps=1))
    assert output.kind is OutputKind.SUCCESS
    assert text_of(output) == "found\n[transcript: agent sessions show s1]"
    assert output.summary == "done in 1 step"


@pytest.mark.spec("TOOL-2")
def test_a_problem_is_an_error_with_the_last_words(tmp_path: Path) -> None:
    report = SubTaskReport(text="so far", problem="It broke.", session_id="s1")
    output = run(tmp_path, report)
    assert output.kind is OutputKind.TOOL_ERROR
    assert text_of(output).splitlines()[:2] == ["It broke.", "Its last words were: so far"]


@pytest.mark.spec("CAN-6")
def test_a_cancel_is_told_as_one(tmp_path: Path) -> None:
    output = run(tmp_path, SubTaskReport(session_id="s1", is_cancelled=True))
    assert output.kind is OutputKind.CANCELLED
    assert "s1" in text_of(output)


def test_where_there_are_no_sub_agents_the_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(PortMissing, match="Do it yourself"):
        context_for(TOOL, tool_context(tmp_path), lambda _: None)
