"""What a person sees of the calls about background runs: lines, where the model gets JSON (UI-2)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcli.app.session import Session
from agentcli.domain.events import Prompt, ToolFinished
from agentcli.domain.messages import user_text
from agentcli.tools.background import moment
from tests.app.background import ended, in_session, options, shell
from tests.support.model_server import ModelServer
from tests.support.replies import Call, Reply


@pytest.mark.spec("BG-1", "UI-2")
def test_the_model_gets_json_and_the_person_lines_and_a_long_title_is_cut(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        seen: list[ToolFinished] = []
        session.add_listener(lambda e: seen.append(e) if isinstance(e, ToolFinished) else None)
        first = await shell(session, "exit 3", title="the tests", signals=False)
        await ended(session, first.run_id)
        arguments = {"tool": "bash", "args": {"command": "sleep 60"}, "title": "long\n" * 99}
        server.add(Reply(blocks=(Call("spawn_background", arguments),)))
        server.add(Reply(blocks=(Call("list_tasks", {}),)), "done")
        await session.run(Prompt(user_text("go")))
        started, listed = seen
        run_id = json.loads(started.result.text)["run_id"]
        assert started.display == "/tail 2 shows its output"
        active, over = listed.display.splitlines()
        assert active.startswith("running     long long long") and len(active) < 80
        assert over == "failed      the tests"
        rows = json.loads(listed.result.text)
        assert [row["run_id"] for row in rows["active"]] == [run_id]
        server.add(Reply(blocks=(Call("task_cancel", {"run_id": run_id}),)), "done", "done")
        await session.run(Prompt(user_text("stop it")))
        assert seen[2].display.startswith("canceled    long long")

    with ModelServer() as server:
        in_session(server, options(tmp_path), body)


@pytest.mark.spec("BG-1")
def test_a_time_that_is_none_is_left_out() -> None:
    assert moment(0.0) == "1970-01-01T00:00:00Z"
    assert [moment(at) for at in (None, float("inf"), float("nan"), -1e300)] == [None] * 4
