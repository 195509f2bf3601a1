"""``/tasks`` on a real session, with real processes (UI-5, UI-6)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agentcli.domain.background import SpawnWish
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import UsageError
from agentcli.domain.events import Prompt
from agentcli.domain.messages import user_text
from tests.repl.direct_chat import DirectChat, talk
from tests.support.model_server import ModelServer, Recorded
from tests.support.processes import until
from tests.support.replies import Reply, call, say


@pytest.mark.spec("UI-5", "UI-6", "BG-6", "BG-8")
def test_runs_and_schedules_are_shown_and_ended(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add("Hello.")

    async def body(chat: DirectChat) -> None:
        await chat.session.run(Prompt(user_text("hi")))
        assert await chat.do("/tasks") == ["No background runs and no schedules."]
        background = chat.session.background
        assert background is not None
        command = {"command": "echo first; echo last; sleep 60"}
        run = await background.spawn(SpawnWish("bash", command, "the build"))
        when = {"cron_expression": "0 3 * * *", "time_zone": "Europe/Oslo"}
        plan = await background.spawn(SpawnWish("bash", {"command": "true"}, "night", when))
        assert plan.schedule is not None
        while "last" not in (await background.output(run.run_id, 0, 1000, 5, CancelToken())).text:
            pass
        shown = "\n".join(await chat.do("/tasks"))
        assert "running" in shown and "the build" in shown and "last" in shown
        assert "03:00 (Europe/Oslo)" in shown
        shown = "\n".join(await chat.do("/tasks 1"))
        assert "first" in shown and "last" in shown and run.log_path in shown
        assert "night" in "\n".join(await chat.do(f"/tasks {plan.schedule.id[-6:]}"))
        for wrong in ("/tasks 7", "/tasks bg_none", "/tasks cancel", "/tasks 1 2"):
            with pytest.raises(UsageError):
                await chat.do(wrong)
        assert "not start again" in "\n".join(await chat.do(f"/tasks cancel {plan.schedule.id}"))
        assert not background.schedules()
        await chat.do(f"/tasks cancel {run.run_id[-6:]}")
        assert "over already: cancelled" in "\n".join(await chat.do("/tasks cancel 1"))

    talk(DirectChat(tmp_path, model_server), body)


@pytest.mark.spec("BG-9", "SEC-10")
def test_a_run_that_asks_is_answered_by_its_number(
    model_server: ModelServer, tmp_path: Path
) -> None:
    question = {"question": "Which \033[2Jport?", "options": ["80", "8080"]}

    def reply(request: Recorded) -> Reply:
        body = json.dumps(request.body)
        if "You are a sub-agent" not in body:
            return say("Hello.")
        return say("thanks") if "tool_result" in body else call("ask_user", question)

    model_server.default = reply

    async def body(chat: DirectChat) -> None:
        await chat.session.run(Prompt(user_text("hi")))
        background = chat.session.background
        assert background is not None
        task = SpawnWish("task", {"description": "d", "prompt": "p"}, "open it")
        for _ in range(2):
            await background.spawn(task)
        await until(lambda: all(each.asks for each in background.tasks()), "the questions")
        for command in ("/tasks", "/tasks 1"):
            shown = "\n".join(await chat.do(command))
            assert "needs input" in shown and "? Which port?" in shown and "- 8080" in shown
        with pytest.raises(UsageError, match="names no"):
            await chat.do("/tasks answer 3 no")
        assert await chat.do("/tasks answer 1 my own") == ["Answered: open it goes on."]
        chat.choice = 1
        assert await chat.do("/tasks answer 2") == ["Answered: open it goes on."]
        await until(lambda: not any(each.is_active for each in background.tasks()), "the ends")
        for number, said in ((1, "my own"), (2, "8080")):
            assert f"answered: {said}" in "\n".join(await chat.do(f"/tasks {number}"))
        with pytest.raises(UsageError, match="asks nothing"):
            await chat.do("/tasks answer 1 again")

    talk(DirectChat(tmp_path, model_server), body)


@pytest.mark.spec("UI-6", "SEC-10")
def test_a_tail_shows_what_comes_until_the_run_has_ended(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("Hello.")

    async def body(chat: DirectChat) -> None:
        await chat.session.run(Prompt(user_text("hi")))
        with pytest.raises(UsageError, match="no background run is active"):
            await chat.do("/tail")
        background = chat.session.background
        assert background is not None
        command = "echo first; until [ -e go ]; do sleep 0.05; done; printf 'a\\033[2Jb\\nend'"
        await background.spawn(SpawnWish("bash", {"command": command}, "the build"))
        following = asyncio.ensure_future(chat.do("/tail"))
        while "first" not in chat.shown:
            await asyncio.sleep(0)
        assert not following.done()
        (tmp_path / "go").touch()
        shown = await following
        assert shown[:3] == ["first", "ab", "end"]
        assert shown[3].startswith("the build: succeeded")
        assert (await chat.do("/tail 1"))[:3] == ["first", "ab", "end"]
        with pytest.raises(UsageError, match="names no"):
            await chat.do("/tail zz")

    talk(DirectChat(tmp_path, model_server), body)
