"""Sub-agents on real files, against the loopback service: what they get, what becomes of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.opening import session_files
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.events import AgentEvent, Outcome, Prompt, ToolProgress, ToolRefused
from agentcli.domain.messages import ResultStatus, ToolResult, user_text
from agentcli.domain.ports import PermissionMode, Verdict
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus
from agentcli.store.files import read_session
from tests.support.cli import agent_env, run_agent, spawn_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer, Recorded
from tests.support.replies import Call, Reply, Tokens, fails, say
from tests.support.sessions import User, in_session

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


def settings_for(server: ModelServer, protocol: str = ANTHROPIC) -> Settings:
    env = agent_env(server, protocol)
    return load_settings(Paths.from_env(env), env)


def task(prompt: str = "look", **more: str) -> Call:
    return Call("task", {"description": f"do {prompt}", "prompt": prompt, **more})


def is_child(recorded: Recorded) -> bool:
    return "You are a sub-agent" in json.dumps(recorded.body)


def names(recorded: Recorded) -> set[str]:
    return {tool.get("name") or tool["function"]["name"] for tool in recorded.body["tools"]}


def go(
    settings: Settings, cwd: Path, user: User | None = None, **options: Any
) -> tuple[Any, list[AgentEvent], list[ToolResult]]:
    """One turn: its summary, its events and the results of its calls."""
    events: list[AgentEvent] = []

    async def body(session: Session) -> Any:
        session.add_listener(events.append)
        summary = await session.run(Prompt(user_text("go")))
        results = [m for m in session.history.messages if isinstance(m, ToolResult)]
        return summary, events, results

    found: tuple[Any, list[AgentEvent], list[ToolResult]] = in_session(
        settings, SessionOptions(cwd=cwd, **options), body, user
    )
    return found


def children(settings: Settings) -> list[SessionInfo]:
    return [i for i in asyncio.run(session_files(settings).list()) if i.agent]


def load(settings: Settings, info: SessionInfo) -> LoadedSession:
    return read_session(session_files(settings).path_of(info.id))


@pytest.mark.spec("LOOP-4", "COST-1")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_task_has_its_own_history_and_file_and_its_answer_is_the_result(
    tmp_path: Path, protocol: str
) -> None:
    (tmp_path / "a.txt").write_text("content\n")
    read = Reply(blocks=(Call("read_file", {"path": "a.txt"}),))
    with ModelServer([Reply(blocks=(task(),)), read, "it says content", "thanks"]) as server:
        settings = settings_for(server, protocol)
        summary, events, (result,) = go(settings, tmp_path)
        assert not server.violations
        first, child, _, _ = server.requests
    assert summary.outcome is Outcome.DONE
    assert summary.usage.input_tokens == 400
    assert result.status is ResultStatus.OK
    info = children(settings)[0]
    parent = asyncio.run(session_files(settings).newest(9))
    assert [each.id for each in parent] == [info.parent_id]
    assert parent[0].usage.input_tokens == 400
    assert parent[0].cost_usd == pytest.approx(summary.cost_usd)
    assert (info.status, info.title, info.agent) == (SessionStatus.DONE, "do look", "task")
    assert result.text.startswith("it says content")
    assert info.id in result.text
    assert len(load(settings, info).messages) == 4
    background = {"spawn_background", "task_output", "task_cancel", "list_tasks"}
    assert names(first) - names(child) == {"task", "ask_user", "memory"} | background
    assert "go" not in [str(m.get("content")) for m in child.body["messages"]]
    live = "".join(event.text for event in events if isinstance(event, ToolProgress))
    assert live == f"session {info.id}\nRead a.txt\n"


@pytest.mark.spec("LOOP-4")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_three_tasks_of_one_batch_run_at_once_and_are_answered_in_order(
    tmp_path: Path, protocol: str
) -> None:
    all_there = threading.Event()
    arrived: list[str] = []

    def answer(recorded: Recorded) -> Reply | str:
        if not is_child(recorded):
            return "thanks"
        asked = json.dumps(recorded.body["messages"])
        word = next(word for word in ("one", "two", "three") if f"{word}!" in asked)
        arrived.append(word)
        if len(arrived) == 3:
            all_there.set()
        return say(f"{word} done", hold=all_there)  # none is answered before all have asked

    first = Reply(blocks=(task("one!"), task("two!"), task("three!")))
    with ModelServer([first], default=answer) as server:
        settings = settings_for(server, protocol)
        _, _, results = go(settings, tmp_path)
        assert not server.violations
    assert [r.text.split("\n")[0] for r in results] == ["one done", "two done", "three done"]
    assert len(children(settings)) == 3


@pytest.mark.spec("CAN-1", "CAN-6", "CAN-10")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cancel_ends_the_sub_agent_too_balanced_and_with_its_processes(
    tmp_path: Path, protocol: str
) -> None:
    slow = Reply(blocks=(Call("bash", {"command": "echo $$ > pid; sleep 60"}),))
    with ModelServer([Reply(blocks=(task(),)), slow, "still fine"]) as server:
        # a sandbox has process ids of its own
        settings = replace(settings_for(server, protocol), sandbox="off")

        async def body(session: Session) -> list[Any]:
            started = asyncio.Event()

            def heard(event: AgentEvent) -> None:
                if isinstance(event, ToolProgress) and "sleep" in event.text:
                    started.set()

            session.add_listener(heard)
            turn = asyncio.ensure_future(session.run(Prompt(user_text("go"))))
            await asyncio.wait_for(started.wait(), 8)
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                await asyncio.sleep(0.01)
            session.interrupt()
            first = await turn
            again = await session.run(Prompt(user_text("and now?")))
            return [first, again, list(session.history.messages)]

        options = SessionOptions(cwd=tmp_path, mode=PermissionMode.YOLO)
        first, again, messages = in_session(settings, options, body)
        assert not server.violations
    assert (first.outcome, again.outcome) == (Outcome.CANCELLED, Outcome.DONE)
    (result,) = [m for m in messages if isinstance(m, ToolResult)]
    assert result.status is ResultStatus.CANCELLED
    assert result.parts[0].text == "Cancelled by user"  # type: ignore[union-attr]  # always a text
    (info,) = children(settings)
    assert info.id in result.text
    assert (info.status, info.detail) == (SessionStatus.CANCELLED, "parent")
    (own,) = [m.message for m in load(settings, info).messages if isinstance(m.message, ToolResult)]
    assert own.status is ResultStatus.CANCELLED
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_goes_wrong_with_a_sub_agent_is_an_error_that_the_model_sees(
    tmp_path: Path, protocol: str
) -> None:
    wrong = (task(model="nobody/nothing"), task(agent="unheard-of"))
    script = [Reply(blocks=(task(),)), fails(401), Reply(blocks=wrong), "I see"]
    with ModelServer(script) as server:
        summary, _, results = go(settings_for(server, protocol), tmp_path)
        assert not server.violations
    assert summary.outcome is Outcome.DONE
    assert all(result.status is ResultStatus.ERROR for result in results)
    assert "The agent failed" in results[0].text
    assert "could not start" in results[1].text
    assert "nobody" in results[1].text
    assert "unheard-of" in results[2].text


@pytest.mark.spec("SEC-12")
@pytest.mark.parametrize("setting", ["fallback_models", "small_model", ""])
def test_no_call_sends_anything_to_another_provider_than_the_users_settings_do(
    tmp_path: Path, setting: str
) -> None:
    """Keys of several are in the environment of many, for other programs."""
    look = Reply(blocks=(task(model="openai/gpt-4.1"),))
    with ModelServer([look], default="it is there") as server:
        settings = settings_for(server)
        if setting:
            name = "openai/gpt-4.1"
            value: Any = (name,) if setting == "fallback_models" else name
            settings = replace(settings, **{setting: value})
        _, _, (result,) = go(settings, tmp_path)
        reached = {recorded.protocol for recorded in server.requests}
    assert reached == ({ANTHROPIC, OPENAI} if setting else {ANTHROPIC})
    assert ("not the provider that the user has chosen" in result.text) is (not setting)


@pytest.mark.spec("COST-2")
def test_the_budget_of_a_turn_is_one_for_all_its_agents(tmp_path: Path) -> None:
    dear = Tokens(input=200_000, output=10)
    look = Reply(blocks=(Call("list_directory", {}),), tokens=dear)
    script = [Reply(blocks=(task(), task("more"))), look, look, look, look]
    with ModelServer(script, default="never") as server:
        summary, _, results = go(settings_for(server), tmp_path, max_budget_usd=1.0)
        asked = len(server.requests)
    assert (summary.outcome, summary.limit) == (Outcome.MAX_STEPS, "budget")
    assert summary.cost_usd is not None
    assert summary.cost_usd <= 1.3
    assert asked == 3
    assert all("limit of budget" in result.text for result in results)


@pytest.mark.spec("SEC-3")
def test_a_sub_agent_has_the_tools_of_its_definition_and_no_others(tmp_path: Path) -> None:
    home = Path(os.environ["AGENTCLI_HOME"])
    (home / "agents").mkdir(parents=True)
    text = "---\ndescription: Finds things\ntools: Read, Grep, task, final_result\n---\nBe short."
    (home / "agents" / "scout.md").write_text(text)
    (tmp_path / ".agents" / "agents").mkdir(parents=True)
    (tmp_path / ".agents" / "agents" / "evil.md").write_text(text)
    forbidden = Reply(blocks=(Call("bash", {"command": "touch broken"}), task("deeper")))
    with ModelServer([Reply(blocks=(task(agent="Scout"),)), forbidden, "no", "ok"]) as server:
        settings = settings_for(server)
        go(settings, tmp_path, mode=PermissionMode.YOLO)
        first, child = server.requests[:2]
        assert not server.violations
    assert names(child) == {"read_file", "grep_files"}
    assert "Be short." in json.dumps(child.body["system"])
    told = next(each["description"] for each in first.body["tools"] if each["name"] == "task")
    assert told.endswith("Agents:\n- scout: Finds things")
    assert not (tmp_path / "broken").exists()
    (info,) = children(settings)
    assert info.agent == "scout"


@pytest.mark.spec("SEC-3", "CLI-7")
@pytest.mark.parametrize("verdict", [Verdict.SESSION, Verdict.UNATTENDED, Verdict.NO])
def test_what_a_sub_agent_must_ask_for_is_asked_in_the_parents_name(
    tmp_path: Path, verdict: Verdict
) -> None:
    command = {"command": "echo x >> made"}
    twice = [Reply(blocks=(Call("bash", command),)), Reply(blocks=(Call("bash", command),))]
    user = User(verdict)
    with ModelServer([Reply(blocks=(task(),)), twice[0], "tried", twice[1], "end"]) as server:
        _, events, _ = go(settings_for(server), tmp_path, user)
    refused = [event for event in events if isinstance(event, ToolRefused)]
    assert user.asked[0].summary.startswith("task (do look): ")
    if verdict is Verdict.SESSION:
        assert (tmp_path / "made").read_text() == "x\nx\n"  # the grant is the session's
        assert len(user.asked) == 1
    else:
        assert not (tmp_path / "made").exists()
        assert [event.unattended for event in refused] == [verdict is Verdict.UNATTENDED] * 2


@pytest.mark.spec("SEC-3")
def test_in_plan_mode_a_sub_agent_only_reads(tmp_path: Path) -> None:
    write = Reply(blocks=(Call("write_file", {"path": "new.txt", "content": "x"}),))
    with ModelServer([Reply(blocks=(task(),)), write, "could not", "so it is"]) as server:
        _, _, (result,) = go(settings_for(server), tmp_path, mode=PermissionMode.PLAN)
    assert result.status is ResultStatus.OK
    assert not (tmp_path / "new.txt").exists()


@pytest.mark.spec("TOOL-6")
def test_a_long_answer_is_cut_and_kept_whole(tmp_path: Path) -> None:
    with ModelServer([Reply(blocks=(task(),)), say("word " * 20_000, piece=5_000), "ok"]) as server:
        _, _, (result,) = go(settings_for(server), tmp_path)
    assert len(result.text) < 31_000
    assert "output://" in result.text


def test_without_the_tool_group_there_are_no_sub_agents(tmp_path: Path) -> None:
    with ModelServer([Reply(blocks=(task(),)), "ok"]) as server:
        settings = replace(settings_for(server), tools_off=("agents",))
        _, _, (result,) = go(settings, tmp_path)
        assert "task" not in names(server.requests[0])
    assert result.status is ResultStatus.ERROR


@pytest.mark.slow
@pytest.mark.spec("REC-1", "REC-4")
def test_a_killed_parent_leaves_a_sub_agent_that_can_be_taken_up(tmp_path: Path) -> None:
    never = threading.Event()
    script = [Reply(blocks=(task(),)), say("held", hold=never), "the child again", "the parent"]
    with ModelServer(script) as server:
        settings = settings_for(server)
        with spawn_agent("run", "go", env=agent_env(server), cwd=tmp_path) as running:
            server.wait_for_requests(2)
            running.signal(signal.SIGKILL)
            running.wait()
        (info,) = children(settings)
        assert info.status is SessionStatus.CRASHED
        child = run_agent("run", "go on", "--session", info.id, env=agent_env(server), cwd=tmp_path)
        parent = run_agent("run", "go on", "--continue", env=agent_env(server), cwd=tmp_path)
        assert not server.violations
        answered = json.dumps(server.requests[-1].body)
    assert (child.stdout, parent.stdout) == ("the child again\n", "the parent\n")
    assert "interrupted by a crash" in answered
    listed = run_agent("sessions", "list", "--format", "json", cwd=tmp_path)
    assert [each["id"] for each in json.loads(listed.stdout)] == [info.parent_id]
    listed = run_agent("sessions", "list", "--all", "--format", "json", cwd=tmp_path)
    found = {each["id"]: each.get("agent") for each in json.loads(listed.stdout)}
    assert found == {info.parent_id: None, info.id: "task"}
    assert run_agent("sessions", "delete", str(info.parent_id), cwd=tmp_path).code == 0
    assert not children(settings)


@pytest.mark.spec("CLI-5")
def test_a_stream_tells_whose_messages_are_a_sub_agents(tmp_path: Path) -> None:
    with ModelServer([Reply(blocks=(task(),)), "from below", "from above"]) as server:
        args = ("run", "go", "-o", "stream-json")
        done = run_agent(*args, env=agent_env(server), cwd=tmp_path)
    said = [line for line in done.lines if line["type"] in {"assistant", "user"}]
    call_id = said[0]["message"]["content"][0]["id"]
    assert [line["parent_tool_use_id"] for line in said] == [None, call_id, None, None]
    assert said[1]["message"]["content"][0]["text"] == "from below"
