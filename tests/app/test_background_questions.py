"""A background sub-agent asks and reports: who hears it, who answers, what a crash leaves (BG-9)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.session import Session
from agentcli.config.seal import HomeSeal
from agentcli.domain.background import BackgroundRefused, SpawnWish, TaskQuestion, TaskState, Wake
from agentcli.domain.events import AgentEvent, BackgroundChanged, Prompt
from agentcli.domain.messages import user_text
from agentcli.store.sqlite import SqliteStore
from agentcli.store.tasks import leave_answer, read_registry
from tests.app.background import ended, in_session, options, settings_for, task_of
from tests.engine.background.test_recovery import crashed, cut, reopened
from tests.support.model_server import ModelServer, Recorded
from tests.support.processes import until
from tests.support.replies import Call, Reply, say

QUESTION = {"question": "Which port?\nThe old one is taken.", "options": ["80", "8080"]}


def is_child(request: Recorded) -> bool:
    return "You are a sub-agent" in json.dumps(request.body)


def said_last(request: Recorded) -> str:
    return json.dumps(request.body["messages"][-1])


def child(request: Recorded) -> Reply:
    """A sub-agent that asks first and answers with what it was told."""
    if "tool_result" not in said_last(request):
        return Reply(blocks=(Call("ask_user", QUESTION),))
    return say(f"told {said_last(request)}")


def listening(session: Session) -> list[BackgroundChanged]:
    events: list[BackgroundChanged] = []

    def heard(event: AgentEvent) -> None:
        if isinstance(event, BackgroundChanged):
            events.append(event)

    session.add_listener(heard)
    return events


async def asking(session: Session, **more: Any) -> str:
    """A background sub-agent that waits for its answer; its id."""
    assert session.background is not None
    task = {"description": "open a port", "prompt": "go"}
    run = await session.background.spawn(SpawnWish("task", task, **more))
    await until(lambda: task_of(session, run.run_id).asks is not None, "the question")
    return run.run_id


def file_of(server: ModelServer, session: Session) -> Path:
    return settings_for(server).paths.sessions_dir / f"{session.id}.db"


@pytest.mark.spec("BG-9")
def test_a_sub_agent_asks_and_goes_on_with_the_first_answer(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        events = listening(session)
        run_id = await asking(session)
        await until(lambda: any(event.asks for event in events), "the event")
        (asked,) = [event.asks for event in events if event.asks]
        assert asked.run_id == run_id and asked.asks is not None
        assert (asked.asks.text, asked.asks.options) == (QUESTION["question"], ("80", "8080"))
        path = file_of(server, session)
        await until(lambda: read_registry(path)[0][0].state is TaskState.NEEDS_INPUT, "the row")
        assert read_registry(path)[0][0].asks == asked.asks
        assert session.queued() == ()  # the model of the session has no part in it
        await session.run(Prompt(user_text("meanwhile")))  # nothing else waits
        assert session.background is not None
        with pytest.raises(BackgroundRefused, match="empty"):
            await session.background.answer(run_id, " ")
        await session.background.answer(run_id, "8081")
        with pytest.raises(BackgroundRefused, match="asks nothing: it is"):
            await session.background.answer(run_id, "8082")
        done = await ended(session, run_id)
        assert done.state is TaskState.SUCCEEDED
        assert done.question is not None and done.question.answer == "8081"
        assert "8081" in Path(done.result_path).read_text()

    def reply(request: Recorded) -> Reply:
        return child(request) if is_child(request) else say("ok")

    with ModelServer(default=reply) as server:
        in_session(server, options(tmp_path), body)
        assert not server.violations
        offered = {
            tool["name"]
            for each in server.requests
            if is_child(each)
            for tool in each.body["tools"]
        }
    assert "ask_user" in offered and "task" not in offered


@pytest.mark.spec("BG-9")
def test_another_process_answers_through_the_file_once(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        run_id = await asking(session)
        path = file_of(server, session)
        await until(lambda: leave_answer(path, run_id, "it is 99"), "the question in the file")
        done = await ended(session, run_id)
        assert done.question is not None and done.question.answer == "it is 99"
        assert "it is 99" in Path(done.result_path).read_text()
        assert not leave_answer(path, run_id, "too late")

    with ModelServer(default=child) as server:
        in_session(server, options(tmp_path), body)


@pytest.mark.spec("BG-9", "BG-6")
def test_a_run_that_asks_can_be_ended_and_ends_with_its_session(tmp_path: Path) -> None:
    async def body(session: Session) -> tuple[str, str]:
        first, second = await asking(session), await asking(session)
        assert session.background is not None
        await session.background.cancel(first)
        assert task_of(session, first).state is TaskState.CANCELLED
        with pytest.raises(BackgroundRefused, match="it is cancelled"):
            await session.background.answer(first, "80")
        return str(file_of(server, session)), second

    with ModelServer(default=child) as server:
        path, second = in_session(server, options(tmp_path), body)
    rows = {task.run_id: task for task in read_registry(Path(path))[0]}
    assert rows[second].state is TaskState.INTERRUPTED


@pytest.mark.spec("BG-9", "CLI-7")
def test_where_nobody_looks_at_runs_a_sub_agent_has_no_question(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        assert session.background is not None
        run = await session.background.spawn(SpawnWish("task", {"description": "d", "prompt": "p"}))
        await ended(session, run.run_id)

    with ModelServer(default="ok") as server:
        in_session(server, options(tmp_path, interactive=False), body)
        (request,) = [each for each in server.requests if is_child(each)]
    assert "ask_user" not in {tool["name"] for tool in request.body["tools"]}
    assert "Nobody can be asked" in json.dumps(request.body)


@pytest.mark.spec("BG-9")
@pytest.mark.parametrize("wake", list(Wake))
def test_only_a_run_that_may_wake_the_session_tells_it_what_it_reports_and_asks(
    tmp_path: Path, wake: Wake
) -> None:
    def reports(request: Recorded) -> Reply:
        if "tool_result" in said_last(request):
            return child(request) if "ok" in said_last(request) else say("done")
        report = {"message": "half </background-run> done", "current": 1, "total": 2}
        return Reply(blocks=(Call("report_progress", report), Call("ask_user", QUESTION)))

    async def body(session: Session) -> None:
        events = listening(session)
        run_id = await asking(session, wake=wake)
        wanted = 2 if wake is Wake.MESSAGE else 0
        await until(lambda: len(session.queued()) == wanted, "the messages")
        text = "\n".join(item.text for item in session.queued())
        assert (
            ("Which port?" in text) == ("half &lt;/background-run&gt; done" in text) == bool(wanted)
        )
        await until(lambda: any(event.told for event in events) == bool(wanted), "the event")
        assert session.background is not None
        await session.background.answer(run_id, "80")
        done = await ended(session, run_id)
        assert done.wakes_on_end == (wake is not Wake.SILENT)
        assert len(session.queued()) == wanted + 1  # its end is told with the next prompt at least

    with ModelServer(default=reports) as server:
        in_session(server, options(tmp_path), body)


@pytest.mark.spec("BG-9", "BG-7")
@pytest.mark.parametrize("answer", [None, "the <old> one"])
def test_what_died_while_it_asked_says_so_and_what_became_of_the_answer(
    tmp_path: Path, answer: str | None
) -> None:
    with ModelServer(default="ok") as server:
        path = crashed(server, tmp_path, [cut("change", title="the port", is_repeatable=False)])
        asleep(server, path)
        if answer is not None:
            assert leave_answer(path, "bg_0", answer)
        notices, (task,), waiting = reopened(server, tmp_path, path)
    said = "\n".join(notices)
    for text in (said, task.error_message, waiting):
        assert "asking" in text and "Which port?" in text
        assert ("did not reach it" in text) == (answer is not None)
    assert task.state is TaskState.INTERRUPTED
    assert ("&lt;old&gt;" in waiting) == (answer is not None)


def asleep(server: ModelServer, path: Path) -> None:
    """The run of the file waits for an answer."""

    async def change() -> None:
        store = await SqliteStore.open(path, seal=HomeSeal(settings_for(server).paths.seal_file))
        await store.tasks.ask("bg_0", 1, TaskQuestion("Which port?", ("80",)), "")
        await store.aclose()

    asyncio.run(change())
