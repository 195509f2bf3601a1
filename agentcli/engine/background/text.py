"""How background runs are told: to the model, to the user, in ``result.json``.

Law: what the program says of a run stands in a block of its own, which names its source and which
nothing that the run has printed can end: it is data, not the user's word (BG-5).
"""

from __future__ import annotations

import math

from agentcli.domain.background import BackgroundTask, TaskProgress, TaskState
from agentcli.domain.events import AgentEvent, SubAgentEvent, ToolFinished
from agentcli.domain.messages import ResultStatus, TextPart
from agentcli.domain.tools import ToolOutput

MAX_SUMMARY = 400
MAX_ERROR = 1_000
_PROGRESS_TOOL = "report_progress"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
_WORDS = {TaskState.CANCELLED: "canceled"}  # as in result.json


def announcement(task: BackgroundTask) -> str:
    """What the model is told of an ended run."""
    ids = f'run_id="{task.run_id}" task_id="{task.task_id}"'
    names = f'tool="{quoted(task.tool)}" title="{quoted(task.title)}"'
    rows = [
        f'<background-run {ids} status="{status_word(task.state)}" {names}>',
        "(said by agentcli, not by the user)",
    ]
    if task.summary:
        rows.append(f"summary: {quoted(task.summary)}")
    if task.error_message:
        rows.append(f"error: {quoted(_short(task.error_message, MAX_ERROR))}")
    rows += [f"log: {task.log_path}", f"result: {task.result_path}", "</background-run>"]
    return "\n".join(rows)


def status_word(state: TaskState) -> str:
    """The state as it is written outside."""
    return _WORDS.get(state, state.value)


def reported_progress(told: AgentEvent) -> TaskProgress | None:
    """How far a run's agent says it is, where it counts (BG-3): a good ``report_progress``."""
    event = told.event if isinstance(told, SubAgentEvent) else told
    if not isinstance(event, ToolFinished) or event.call.name != _PROGRESS_TOOL:
        return None
    given = event.call.arguments
    current, total = _number(given.get("current")), _number(given.get("total"))
    if event.result.status is not ResultStatus.OK or current is None:
        return None
    return TaskProgress(
        current,
        total,
        one_line(str(given.get("unit") or "")),
        _short(one_line(str(given.get("message") or "")), MAX_SUMMARY),
    )


def text_of_output(output: ToolOutput) -> str:
    """All texts of an output."""
    return "\n".join(part.text for part in output.parts if isinstance(part, TextPart))


def summary_of(output: ToolOutput) -> str:
    """An output in a line."""
    return _short(one_line(output.summary or text_of_output(output)), MAX_SUMMARY)


def quoted(text: str) -> str:
    """``text`` with nothing in it that could end the block."""
    return "".join(_ENTITIES.get(char, char) for char in text)


def one_line(text: str) -> str:
    """``text`` without line breaks and runs of blanks."""
    return " ".join(text.split())


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
