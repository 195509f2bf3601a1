"""What a crash has cut is found, ended, started again or given up, each with its reason (BG-7)."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.session import Session
from agentcli.config.seal import HomeSeal
from agentcli.domain.background import BackgroundSink, BackgroundTask, TaskState
from agentcli.domain.cancel import CancelToken
from agentcli.domain.ports import PermissionMode
from agentcli.domain.tools import (
    Asks,
    Tool,
    ToolContext,
    ToolDefinition,
    ToolHints,
    ToolOutput,
    Workspace,
)
from agentcli.process.leftovers import start_time
from agentcli.store.disk import runs_directory
from agentcli.store.files import SessionFiles
from agentcli.store.sqlite import SqliteStore
from agentcli.store.tasks import read_registry
from tests.app.background import ended, in_session, options, settings_for
from tests.support.model_server import ModelServer
from tests.support.replies import say
from tests.support.sandboxes import BOTH, needs

PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}}


class Noting(Tool):
    """Writes down each time it is run; ``waits`` until the file ``go`` is there."""

    def __init__(self, name: str, asks: Asks = Asks.NOTHING, *, able: bool = True) -> None:
        hints = ToolHints(idempotent=asks is not Asks.NOTHING, background=able)
        self._definition = ToolDefinition(name, name, "Note.", PARAMETERS, asks, "own", hints)

    @property
    def definition(self) -> ToolDefinition:
        return self._definition

    def parse(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments

    def summary(self, args: Any) -> str:
        return self.definition.name

    def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
        return ()

    async def preview(self, args: Any, ctx: ToolContext) -> str:
        return ""

    async def run(self, args: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.text("in the foreground")

    async def run_background(self, args: Any, ctx: ToolContext, sink: BackgroundSink) -> ToolOutput:
        sink.output(f"noted {args.get('text')}\n")
        while args.get("text") == "for ever":
            await ctx.cancel.wait()
            return ToolOutput.cancelled("")
        return ToolOutput.text("noted")


OWN = (
    Noting("note"),
    Noting("change", Asks.EDIT),
    Noting("send", Asks.ANYTHING),
    Noting("front", able=False),
)


def cut(tool: str, number: int = 0, **more: Any) -> BackgroundTask:
    """The row of a run that was active when its process died."""
    run_id = f"bg_{number}"
    task = BackgroundTask(
        run_id,
        f"task_{number}",
        tool,
        {"text": "again"},
        f"the {tool or 'thing'}",
        TaskState.RUNNING,
        10.0 + number,
        10.0,
        is_repeatable=True,
    )
    return replace(task, **more)


def crashed(server: ModelServer, cwd: Path, tasks: Sequence[BackgroundTask]) -> Path:
    """A session file whose last process has left ``tasks``."""

    async def begin(session: Session) -> str:
        return session.id

    name = in_session(server, options(cwd), begin)
    paths = settings_for(server).paths
    path = paths.sessions_dir / f"{name}.db"

    async def leave() -> None:
        store = await SqliteStore.open(path, seal=HomeSeal(paths.seal_file))
        for task in tasks:
            place = runs_directory(path) / task.run_id
            log_path, result_path = str(place / "output.log"), str(place / "result.json")
            await store.tasks.add(replace(task, log_path=log_path, result_path=result_path))
        await store.aclose()

    asyncio.run(leave())
    return path


def reopened(
    server: ModelServer, cwd: Path, path: Path, **more: Any
) -> tuple[Sequence[str], Sequence[BackgroundTask], str]:
    """Notices, the rows when all is over, and what waits for the model."""

    async def body(session: Session) -> tuple[Sequence[str], Sequence[BackgroundTask], str]:
        assert session.background is not None
        for task in session.background.tasks():
            if task.arguments.get("text") != "for ever":
                await ended(session, task.run_id)
        waiting = "\n".join(item.text for item in session.queued())
        return session.notices, session.background.tasks(), waiting

    wanted = options(cwd, new=False, resume=path.stem, own_tools=OWN, **more)
    found: tuple[Sequence[str], Sequence[BackgroundTask], str]
    found = in_session(server, wanted, body)
    return found


@pytest.mark.spec("BG-7", "BG-3")
@pytest.mark.parametrize("tool", ["note", "change"])
def test_what_reads_or_is_idempotent_is_started_again(tmp_path: Path, tool: str) -> None:
    with ModelServer() as server:
        path = crashed(server, tmp_path, [cut(tool)])
        notices, (task,), waiting = reopened(server, tmp_path, path)
    assert (task.state, task.attempt) == (TaskState.SUCCEEDED, 2)
    assert f'the background run "the {tool}" was started again (attempt 2)' in notices
    text = Path(task.log_path).read_text()
    assert text == "[system] started again after a crash (attempt 2)\nnoted again\n"
    assert 'status="succeeded"' in waiting
    (row,) = read_registry(path)[0]
    assert (row.state, row.attempt, row.finished_at) == (task.state, 2, task.finished_at)


@pytest.mark.spec("BG-7")
@pytest.mark.parametrize(
    ("task", "mode", "says"),
    [
        (cut(""), PermissionMode.YOLO, "its row does not say which tool it ran"),
        (cut("gone"), PermissionMode.YOLO, "There is no tool 'gone'"),
        (cut("front"), PermissionMode.YOLO, "front cannot run in the background"),
        (
            cut("bash", arguments={"command": "ls"}),
            PermissionMode.YOLO,
            "what bash does is not done a second time by itself",
        ),
        (
            cut("note", is_repeatable=False),
            PermissionMode.YOLO,
            "its arguments are not stored as they were given",
        ),
        (cut("change"), PermissionMode.DEFAULT, "it would need an approval again"),
        (cut("change"), PermissionMode.PLAN, "it would need an approval again"),
    ],
)
def test_what_is_not_is_interrupted_with_the_reason(
    tmp_path: Path, task: BackgroundTask, mode: PermissionMode, says: str
) -> None:
    with ModelServer() as server:
        path = crashed(server, tmp_path, [task])
        notices, (found,), waiting = reopened(server, tmp_path, path, mode=mode)
    assert (found.state, found.attempt) == (TaskState.INTERRUPTED, 1)
    assert found.error_message.startswith("agentcli was stopped while it ran")
    assert says in found.error_message
    assert any(says in notice for notice in notices)
    assert found.run_id in waiting and 'status="interrupted"' in waiting
    assert not Path(found.log_path).read_text().startswith("noted")


@pytest.mark.spec("BG-7", "SEC-3")
def test_a_rule_about_what_starts_runs_holds_for_what_is_started_again(tmp_path: Path) -> None:
    with ModelServer() as server:
        path = crashed(server, tmp_path, [cut("note")])
        _, (found,), _ = reopened(server, tmp_path, path, deny=("spawn_background",))
    assert (found.state, found.attempt) == (TaskState.INTERRUPTED, 1)
    assert "the rule spawn_background" in found.error_message


@pytest.mark.spec("BG-7", "SEC-3")
@pytest.mark.parametrize("kind", BOTH)
def test_what_a_named_sandbox_refuses_in_yolo_mode_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    needs(kind)
    work = tmp_path / "work"
    work.mkdir()
    with ModelServer() as server:
        path = crashed(server, work, [cut("send")])
        held = replace(settings_for(server), sandbox=kind)
        monkeypatch.setattr("tests.app.background.settings_for", lambda _: held)
        _, (found,), _ = reopened(server, work, path)
    assert (found.state, found.attempt) == (TaskState.INTERRUPTED, 1)
    assert "what send does is not contained" in found.error_message


@pytest.mark.spec("BG-7", "TOOL-5")
def test_nothing_is_started_again_where_background_runs_are_switched_off(tmp_path: Path) -> None:
    with ModelServer() as server:
        path = crashed(server, tmp_path, [cut("note")])
        _, (found,), _ = reopened(server, tmp_path, path, tools=("shell",))
    assert found.state is TaskState.INTERRUPTED
    assert "background runs are switched off" in found.error_message


@pytest.mark.spec("BG-7", "BG-2")
def test_what_finds_no_place_is_interrupted_with_that_reason(tmp_path: Path) -> None:
    tasks = [cut("note", number, arguments={"text": "for ever"}) for number in range(5)]
    with ModelServer() as server:
        path = crashed(server, tmp_path, [*tasks, cut("note", 5)])
        _, found, _ = reopened(server, tmp_path, path)
    assert [task.state for task in found] == [TaskState.RUNNING] * 5 + [TaskState.INTERRUPTED]
    assert "5 background runs are active" in found[5].error_message
    assert {task.state for task in read_registry(path)[0]} == {TaskState.INTERRUPTED}


@pytest.mark.spec("BG-7", "REC-8")
@pytest.mark.parametrize("is_its_own", [True, False])
def test_a_survivor_is_ended_and_no_other_process_of_its_number(
    tmp_path: Path, is_its_own: bool
) -> None:
    with (
        subprocess.Popen(["sleep", "60"], start_new_session=True) as process,
        ModelServer() as server,
    ):
        started = start_time(process.pid) if is_its_own else "1"
        path = crashed(server, tmp_path, [cut("bash", pid=process.pid, pid_started=started)])
        notices, _, _ = reopened(server, tmp_path, path)
        if is_its_own:
            assert process.wait(9) == -9
        else:
            assert process.poll() is None
            process.kill()
    assert any("still ran and was ended" in notice for notice in notices) is is_its_own


@pytest.mark.spec("BG-7", "REC-6")
def test_a_copy_leaves_the_runs_to_the_original_and_tells_its_model(tmp_path: Path) -> None:
    with ModelServer() as server:
        path = crashed(server, tmp_path, [cut("note")])
        before = read_registry(path)
        server.add(say("ok"))

        async def body(session: Session) -> str:
            assert session.id != path.stem
            (waiting,) = session.queued()
            assert session.background is not None
            assert not session.background.tasks()[0].is_active
            return waiting.text

        wanted = options(tmp_path, new=False, resume=path.stem, fork=True, own_tools=OWN)
        text = in_session(server, wanted, body)
        assert read_registry(path) == before
        files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")
        (copy,) = {entry for entry in path.parent.glob("*.db")} - {path}
        assert read_registry(copy)[0][0].announced_at is not None
        assert files.directory == path.parent
    assert "it goes on in the session that this one is a copy of" in text


@pytest.mark.spec("SEC-3", "SEC-5", "BG-4")
@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.SUCCEEDED])
def test_a_file_of_somebody_elses_does_not_say_where_runs_write_and_read(
    tmp_path: Path, state: TaskState
) -> None:
    mine, private = tmp_path / "home/.bashrc", tmp_path / "home/private/key"
    private.parent.mkdir(parents=True)
    mine.write_text("mine")
    private.write_text("PRIVATE")
    modes = {each: each.stat().st_mode for each in (tmp_path, private.parent, private, mine)}
    with ModelServer() as server:
        path = crashed(server, tmp_path, [])

        async def plant() -> None:
            store = await SqliteStore.open(path)
            planted = replace(
                cut("bash"), state=state, log_path=str(private), result_path=str(mine)
            )
            await store.tasks.add(planted)
            await store.aclose()

        asyncio.run(plant())

        async def body(session: Session) -> str:
            assert session.background is not None
            (task,) = session.background.tasks()
            page = await session.background.output(task.run_id, 0, 1000, 0.0, CancelToken())
            return page.text

        text = in_session(server, options(tmp_path, new=False, resume=path.stem), body)
    assert "PRIVATE" not in text
    assert mine.read_text() == "mine" and private.read_text() == "PRIVATE"
    assert {each: each.stat().st_mode for each in modes} == modes
