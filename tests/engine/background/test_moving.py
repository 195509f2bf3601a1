"""A running command goes on as a background run, with real processes (UI-3, Ctrl-B)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.session import Session
from agentcli.domain.background import TaskState
from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import Notice, Prompt, ToolProgress
from agentcli.domain.messages import ResultStatus, ToolResult, user_text
from tests.app.background import ended, in_session, options, printed, shell, task_of
from tests.support.model_server import ModelServer
from tests.support.processes import alive, until
from tests.support.replies import Call, Reply

LOOP = "echo $$ > pid; echo begun; until [ -e go ]; do sleep 0.02; done; echo done; cd /; exit 3"


class Mover:
    """Presses the key once ``text`` is printed."""

    def __init__(self, session: Session, text: str = "begun") -> None:
        self.session, self.text = session, text
        self.printed = ""
        self.was_moved = False
        session.add_listener(self._on_event)

    def _on_event(self, event: Any) -> None:
        if isinstance(event, ToolProgress):
            self.printed += event.text
            if self.text in self.printed:
                self.press()

    def press(self) -> None:
        """The key."""
        if not self.was_moved:
            self.was_moved = self.session.move_to_background()
        if not self.was_moved:  # it has printed before it was known to run
            asyncio.get_running_loop().call_later(0.01, self.press)


def ask(server: ModelServer, command: str, **arguments: Any) -> None:
    call = Call("bash", {"command": command, **arguments})
    server.add(Reply(blocks=(call,)), "so it is")


async def moved(session: Session, server: ModelServer, command: str, **arguments: Any) -> str:
    """The text of the result of ``command``, which the user has moved."""
    mover = Mover(session)
    ask(server, command, **arguments)
    await session.run(Prompt(user_text("go")))
    assert mover.was_moved
    result = [m for m in session.history.messages if isinstance(m, ToolResult)][-1]
    assert result.status is ResultStatus.OK
    return result.text


def play(server: ModelServer, tmp_path: Path, body: Callable[[Session], Awaitable[None]]) -> None:
    in_session(server, options(tmp_path), body)


@pytest.mark.spec("UI-3", "BG-4", "BG-5")
def test_a_moved_command_goes_on_with_all_of_its_output(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        text = await moved(session, model_server, LOOP)
        assert session.background is not None
        (task,) = session.background.tasks()
        assert task.is_active and task.tool == "bash" and task.title.startswith("echo $$")
        assert task.run_id in text and task.log_path in text and "begun" in text
        pid = int((tmp_path / "pid").read_text())
        assert alive(pid)
        assert "begun" in await printed(session, task.run_id, "begun")
        (tmp_path / "go").touch()
        over = await ended(session, task.run_id)
        assert over.state is TaskState.FAILED and "exit 3" in over.summary
        assert Path(over.log_path).read_text() == "begun\ndone\n"
        assert json.loads(Path(over.result_path).read_text())["status"] == "failed"
        assert not alive(pid)
        (waiting,) = session.queued()
        assert task.run_id in waiting.text
        # what it did to its shell is not the session's
        ask(model_server, "pwd")
        await session.run_queued()
        ask(model_server, "pwd")
        await session.run(Prompt(user_text("where")))
        result = [m for m in session.history.messages if isinstance(m, ToolResult)][-1]
        assert result.text.startswith(str(tmp_path.resolve()))

    play(model_server, tmp_path, body)


@pytest.mark.spec("UI-3", "BG-6")
def test_a_moved_command_outlives_its_turn_and_ends_when_it_is_asked_to(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        await moved(session, model_server, LOOP)
        assert session.background is not None
        (task,) = session.background.tasks()
        session.interrupt(force=True)
        pid = int((tmp_path / "pid").read_text())
        assert alive(pid) and task_of(session, task.run_id).is_active
        await session.background.cancel(task.run_id)
        over = task_of(session, task.run_id)
        assert over.state is TaskState.CANCELLED and not alive(pid)
        assert Path(over.log_path).read_text() == "begun\nCanceled by request."

    play(model_server, tmp_path, body)


@pytest.mark.spec("UI-3")
def test_the_time_limit_of_a_call_ends_when_it_is_moved(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        command = "trap 'echo killed' TERM; echo begun; sleep 1.5; echo $((40 + 2))"
        await moved(session, model_server, command, timeout_s=1)
        assert session.background is not None
        (task,) = session.background.tasks()
        over = await ended(session, task.run_id)
        assert over.state is TaskState.SUCCEEDED
        assert Path(over.log_path).read_text() == "begun\n42\n"

    play(model_server, tmp_path, body)


@pytest.mark.spec("UI-3", "BG-2")
def test_without_a_place_the_command_goes_on_where_it_is(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        busy = [(await shell(session, "sleep 60")).run_id for _ in range(5)]
        notices: list[str] = []
        session.add_listener(
            lambda event: notices.append(event.text) if isinstance(event, Notice) else None
        )
        mover = Mover(session)
        ask(model_server, "echo begun; sleep 0.3; echo done")
        await session.run(Prompt(user_text("go")))
        assert mover.was_moved
        result = [m for m in session.history.messages if isinstance(m, ToolResult)][-1]
        assert result.text.startswith("begun\ndone\n")
        assert notices and "not moved to the background: the limit of active runs" in notices[0]
        assert "/tasks cancel" in notices[0]
        assert session.background is not None
        await asyncio.gather(*(session.background.cancel(run_id) for run_id in busy))

    play(model_server, tmp_path, body)


@pytest.mark.spec("UI-3", "BG-4")
def test_the_log_of_a_command_that_ends_while_it_is_moved_holds_what_it_printed(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        moves = session._conversation.parts.moves
        assert moves is not None
        adopt = moves.adopt

        async def late(wish: Any, work: Any) -> Any:
            (tmp_path / "go").touch()
            await until(lambda: not moves.offered, "the end of the command")
            return await adopt(wish, work)

        moves.adopt = late
        mover = Mover(session)
        ask(model_server, LOOP)
        model_server.add("and it has ended")
        await session.run(Prompt(user_text("go")))
        assert mover.was_moved and session.background is not None
        (task,) = session.background.tasks()
        over = await ended(session, task.run_id)
        assert Path(over.log_path).read_text().startswith("begun\ndone\n")

    play(model_server, tmp_path, body)


@pytest.mark.spec("UI-3")
def test_a_key_that_is_pressed_twice_moves_once_and_both_count(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        mover = Mover(session)
        both: list[bool] = []
        press = session.move_to_background

        def twice() -> bool:
            is_moved = press()
            if is_moved:
                both.extend((is_moved, press()))
            return is_moved

        session.move_to_background = twice  # type: ignore[method-assign] # two presses at once
        ask(model_server, LOOP)
        await session.run(Prompt(user_text("go")))
        assert mover.was_moved and both == [True, True]
        assert session.background is not None
        (task,) = session.background.tasks()
        (tmp_path / "go").touch()
        await ended(session, task.run_id)

    play(model_server, tmp_path, body)


def stop(session: Session) -> None:
    session.interrupt()


@pytest.mark.spec("UI-3", "CAN-1")
def test_a_call_that_could_be_moved_is_cancelled_like_any_other(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        ask(model_server, LOOP)
        session.add_listener(
            lambda event: stop(session) if isinstance(event, ToolProgress) else None
        )
        await session.run(Prompt(user_text("go")))
        pid = int((tmp_path / "pid").read_text())
        await until(lambda: not alive(pid), "it has ended")
        assert session.background is not None and not session.background.tasks()
        assert not session.move_to_background()

    play(model_server, tmp_path, body)


@pytest.mark.spec("UI-3")
def test_nothing_can_be_moved_where_nothing_runs(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        assert not session.move_to_background()

    play(model_server, tmp_path, body)


@pytest.mark.spec("UI-3", "UI-4")
def test_what_the_person_runs_themselves_can_be_moved(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        pieces: list[str] = []

        def heard(text: str) -> None:
            pieces.append(text)
            if "begun" in "".join(pieces):
                Mover(session).press()

        output = await session.run_command("echo begun; sleep 0.4; echo done", CancelToken(), heard)
        assert session.background is not None
        (task,) = session.background.tasks()
        assert task.run_id in str(output.parts[0])
        over = await ended(session, task.run_id)
        assert Path(over.log_path).read_text() == "begun\ndone\n"

    play(model_server, tmp_path, body)


@pytest.mark.spec("UI-3", "REC-8")
def test_a_moved_command_ends_with_the_session(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        await moved(session, model_server, LOOP)

    play(model_server, tmp_path, body)
    assert not alive(int((tmp_path / "pid").read_text()))
