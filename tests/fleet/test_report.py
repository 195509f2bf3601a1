"""The page of a batch, and its lines: hostile texts stay texts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from agentcli.fleet.batch import BatchPlan
from agentcli.fleet.report import BatchProgress, write_report
from agentcli.fleet.results import REPORT, Journal, TaskStanding
from agentcli.fleet.tasks import BatchTask, TasksFile, read_tasks
from agentcli.ui.batch_table import LiveTable
from agentcli.ui.rows import plain

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e"


@pytest.fixture
def task(tmp_path: Path) -> BatchTask:
    row = '{"id": "a<b>", "prompt": "<img src=x onerror=alert(1)>\\u001b]0;x\\u0007"}'
    return read_tasks(TasksFile(row.encode(), "t.jsonl", tmp_path))[0]


@pytest.mark.spec("SCALE-2")
def test_the_page_shows_hostile_texts_and_links_to_sessions(
    tmp_path: Path, task: BatchTask
) -> None:
    journal = Journal.open(tmp_path / "out")
    known = journal.begin(task.id, task.content)
    journal.end(task.id, {"state": "failed", "result": HOSTILE})
    write_report(journal, [task], lambda name: f"<p>{name}</p>", lambda text: text)
    journal.close()
    page = (tmp_path / "out" / REPORT).read_text()
    assert "<script>" not in page and "<img" not in page and "\x1b" not in page
    assert "&lt;script&gt;alert(1)" in page and "a&lt;b&gt;" in page
    assert f'href="sessions/{known.session_id}.html"' in page
    assert (tmp_path / "out/sessions" / f"{known.session_id}.html").exists()


def test_lines_and_the_table_have_no_sequences_of_a_task(task: BatchTask) -> None:
    lines: list[str] = []
    shown = BatchProgress(BatchPlan([task], 1), lines.append)
    stream = io.StringIO()
    with shown.drawn_on(stream, {"TERM": "dumb"}):
        shown.started(task, TaskStanding())
        shown.ended(task, TaskStanding(), HOSTILE)
        shown.says(HOSTILE)
    assert stream.getvalue() == "" and lines and all(line.isprintable() for line in lines)
    with LiveTable(stream, 1, {"NO_COLOR": "1"}) as table:
        table.started(task.id, task.prompt)
        table.refresh()
        table.ended(task.id, "failed", None)
        table.says(HOSTILE)
    assert "\x1b]0" not in stream.getvalue() and "\x1b[2J" not in stream.getvalue()


def table_in(window: str, total: int, monkeypatch: pytest.MonkeyPatch) -> tuple[LiveTable, Any]:
    """A table in a window of so many columns and lines, and what it writes to."""
    columns, lines = window.split("x")
    for name, value in {"COLUMNS": columns, "LINES": lines, "TTY_COMPATIBLE": "1"}.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    return LiveTable(stream, total, {"NO_COLOR": "1"}), stream


@pytest.mark.spec("UI-1", "SCALE-2")
def test_in_a_narrow_window_the_table_shows_whole_names_and_the_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, stream = table_in("40x20", 8, monkeypatch)
    with table:
        table.counts = {"done": 3, "running": 3, "pending": 2}
        table.spent_usd = 12.5
        table.started("fix-module-number-1", "say what it does")
        table.refresh()
    shown = plain(stream.getvalue())
    assert "fix-module-number-1 " in shown and "$12.50" in shown and "…" not in shown
    assert "8 tasks: 3 done, 3 running, 2 pending;\n" in shown


@pytest.mark.spec("UI-1", "SCALE-5")
def test_the_table_names_what_waits_below_what_runs_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, stream = table_in("70x8", 1, monkeypatch)
    with table:
        table.started("find-1", "look for it")
        table.waiting = [(f"step{n}", "after find\x1b[2J") for n in range(6)]
        table.refresh()
        shown = stream.getvalue()
    first, *rows, last = [line.split() for line in shown[shown.index("running") :].splitlines()]
    assert first[:2] == ["running", "find-1"]
    assert rows == [["waiting", f"step{n}", "after", "find"] for n in range(3)]
    assert last[-4:] == ["and", "3", "more", "waiting"]
