"""The hooks of one session, with real programs: who is told what, and what is left of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import (
    ApprovalWaiting,
    Compacted,
    CompactionTrigger,
    Done,
    Outcome,
    ToolStarted,
    TurnSummary,
)
from agentcli.domain.extensions.hooks import SILENT, HookConfig, HookEvent
from agentcli.domain.messages import (
    ImagePart,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
)
from agentcli.domain.ports import PermissionMode
from agentcli.extensions.hooks import (
    MOST_NOTIFICATIONS,
    HookFacts,
    SessionHooks,
    matches,
    matching,
)
from agentcli.process.program import Program, ProgramResult, run_program
from agentcli.process.run import end_processes
from tests.support.processes import alive, until

CALL = ToolCall("c1", "bash", {"command": "ls \udcff"})


class Room:
    """A session's hooks that note what they are told in files of ``path``."""

    def __init__(self, path: Path, *configs: HookConfig, run: Any = run_program) -> None:
        self.path = path
        self.mode = PermissionMode.DEFAULT
        facts = HookFacts("s1", path / "s1.db", path, lambda: self.mode)
        self.hooks = SessionHooks(configs, facts, run)

    def told(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / name).read_text())
        return found

    def run(self, body: Callable[[], Awaitable[None]]) -> None:
        """Run ``body``, then end the session and all that is left of it."""

        async def whole() -> None:
            try:
                await body()
            finally:
                await self.hooks.aclose()
                await end_processes("s1", grace_s=0.1)

        asyncio.run(whole())


def hook(event: HookEvent, command: str, matcher: str = "", timeout_s: float = 20) -> HookConfig:
    return HookConfig(event, command, matcher, timeout_s)


def notes(event: HookEvent, name: str, matcher: str = "", *, then: str = "true") -> HookConfig:
    return hook(event, f"cat > {name}.part && mv {name}.part {name}; {then}", matcher)


def test_a_result_is_told_with_its_status_and_its_images(tmp_path: Path) -> None:
    room = Room(tmp_path, notes(HookEvent.POST_TOOL_USE, "post"))

    async def body() -> None:
        parts = (TextPart("a"), ImagePart("image/png", b"x"), TextPart("b"))
        result = ToolResult("c1", "bash", parts, ResultStatus.ERROR)
        assert await room.hooks.after_tool(CALL, tmp_path, result, CancelToken()) == SILENT

    room.run(body)
    told = room.told("post")
    assert told["tool_response"] == {"content": "a\nb", "is_error": True, "images": 1}
    assert told["tool_input"] == CALL.arguments


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (PermissionMode.DEFAULT, "default"),
        (PermissionMode.ACCEPT_EDITS, "acceptEdits"),
        (PermissionMode.PLAN, "plan"),
        (PermissionMode.YOLO, "bypassPermissions"),
    ],
)
def test_the_mode_is_that_of_the_moment(tmp_path: Path, mode: PermissionMode, told: str) -> None:
    room = Room(tmp_path, notes(HookEvent.PRE_COMPACT, "compact"))

    async def body() -> None:
        room.mode = mode
        await room.hooks.before_compaction("manual", "the tests", CancelToken())

    room.run(body)
    found = room.told("compact")
    assert found["permission_mode"] == told
    assert (found["trigger"], found["custom_instructions"]) == ("manual", "the tests")


def test_what_start_has_said_goes_with_the_next_prompt_once_and_again_after_a_compaction(
    tmp_path: Path,
) -> None:
    start = 'case "$(cat)" in *compact*) echo again;; *) echo first;; esac'
    room = Room(tmp_path, hook(HookEvent.SESSION_START, start))

    async def body() -> None:
        async def context() -> tuple[str, ...]:
            return (await room.hooks.prompt_submitted("x", CancelToken())).context

        assert await context() == ()
        room.hooks.start("startup")
        assert await context() == ("first",)
        assert await context() == ()
        room.hooks.start("resume")
        room.hooks.on_event(Compacted(CompactionTrigger.WINDOW, 9, 1, 9, 1, "", ""))
        assert await context() == ("first", "again")

    room.run(body)


@pytest.mark.spec("CAN-9")
def test_a_cancelled_wait_for_start_leaves_what_it_says_for_the_next_prompt(
    tmp_path: Path,
) -> None:
    wait = "while ! test -e go; do sleep 0.02; done; echo late"
    room = Room(tmp_path, hook(HookEvent.SESSION_START, wait))

    async def body() -> None:
        room.hooks.start("startup")
        waiting = asyncio.create_task(room.hooks.prompt_submitted("x", CancelToken()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (tmp_path / "go").touch()
        said = await room.hooks.prompt_submitted("y", CancelToken())
        assert said.context == ("late",)

    room.run(body)


@pytest.mark.spec("UI-6")
def test_the_person_is_called_for_approvals_questions_and_the_end_of_long_turns(
    tmp_path: Path,
) -> None:
    kinds = ("permission_prompt", "elicitation_dialog", "idle_prompt")
    room = Room(tmp_path, *(notes(HookEvent.NOTIFICATION, kind, kind) for kind in kinds))
    question = ToolCall("q", "ask_user", {"question": "?"})

    async def body() -> None:
        for event in (
            ApprovalWaiting(CALL, "Run `ls`", "it runs a command"),
            ToolStarted(question, "Ask"),
            ToolStarted(CALL, "Run `ls`"),
            Done(TurnSummary(Outcome.DONE, duration_s=3.0)),
        ):
            room.hooks.on_event(event)
        await until(lambda: (tmp_path / kinds[1]).exists(), "no notification")
        assert not (tmp_path / kinds[2]).exists()
        room.hooks.on_event(Done(TurnSummary(Outcome.DONE, duration_s=30.0)))

    room.run(body)
    told = [room.told(kind) for kind in kinds]
    assert [each["notification_type"] for each in told] == list(kinds)
    assert told[0]["message"] == "agentcli needs your permission: Run `ls`"


@pytest.mark.spec("SEC-13")
def test_notifications_are_bounded_and_what_they_complain_of_is_told_with_the_next_prompt(
    tmp_path: Path,
) -> None:
    begun: list[Program] = []
    go = asyncio.Event()

    async def run(program: Program, cancel: CancelToken) -> ProgramResult:
        begun.append(program)
        await go.wait()
        return ProgramResult(1, stderr=b"no display")

    room = Room(tmp_path, hook(HookEvent.NOTIFICATION, "notify"), run=run)

    async def body() -> None:
        for _ in range(3 * MOST_NOTIFICATIONS):
            room.hooks.on_event(ApprovalWaiting(CALL, "Run", "why"))
        await until(lambda: len(begun) == MOST_NOTIFICATIONS, "not all were told")
        go.set()
        heard: list[str] = []
        while len(heard) < MOST_NOTIFICATIONS:
            heard += (await room.hooks.prompt_submitted("x", CancelToken())).notices
            await asyncio.sleep(0)
        assert len(begun) == len(heard) and "no display" in heard[0]

    room.run(body)


def test_a_runner_that_fails_is_a_notice(tmp_path: Path) -> None:
    async def run(program: Program, cancel: CancelToken) -> ProgramResult:
        raise OSError("no more processes")

    room = Room(tmp_path, hook(HookEvent.PRE_TOOL_USE, "check"), run=run)

    async def body() -> None:
        said = await room.hooks.before_tool(CALL, tmp_path, CancelToken())
        assert not said.blocked and "no more processes" in said.notices[0]

    room.run(body)


def test_the_end_is_told_once_and_nothing_is_told_after_it(tmp_path: Path) -> None:
    count = "cat > end; echo x >> ends"
    room = Room(
        tmp_path,
        hook(HookEvent.SESSION_END, count),
        notes(HookEvent.SESSION_START, "start"),
        notes(HookEvent.NOTIFICATION, "call"),
    )

    async def body() -> None:
        await room.hooks.aclose("clear")
        await room.hooks.aclose()
        room.hooks.start("startup")
        room.hooks.on_event(ApprovalWaiting(CALL, "Run", "why"))

    room.run(body)
    assert room.told("end")["reason"] == "clear"
    assert (tmp_path / "ends").read_text() == "x\n"
    assert not (tmp_path / "start").exists() and not (tmp_path / "call").exists()


@pytest.mark.spec("CAN-10")
def test_what_still_runs_when_the_session_ends_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.extensions.hooks.CLOSE_S", 0.2)
    wait = "(trap '' TERM; sleep 300) & echo $! > pid; sleep 300"
    room = Room(tmp_path, hook(HookEvent.SESSION_START, wait, timeout_s=300))

    async def body() -> None:
        room.hooks.start("startup")
        await until(lambda: (tmp_path / "pid").exists(), "it never ran")

    room.run(body)
    assert not alive(int((tmp_path / "pid").read_text()))


PRE = HookEvent.PRE_TOOL_USE


@pytest.mark.parametrize(
    ("matcher", "name", "expected"),
    [
        ("", "bash", True),
        ("*", "bash", True),
        ("bash", "bash", True),
        ("bash|edit_file", "edit_file", True),
        ("bash, edit_file", "edit_file", True),
        ("edit", "edit_file", False),
        ("bash", "mcp__x__bash", False),
        ("mcp__.*", "mcp__x__bash", True),
        ("^edit", "edit_file", True),
        (".*_file$", "edit_file", True),
        ("mcp__x__.*", "bash", False),
        ("mcp__my-server__bash", "mcp__my-server__bash", True),
        # hooks that were written for another agent
        ("Bash", "bash", True),
        ("^Bash$", "bash", True),
        ("Edit|Write", "write_file", True),
        ("Edit|Write", "edit_file", True),
        ("Edit|Write", "apply_patch", True),
        ("Edit|Write", "read_file", False),
        ("BASH", "bash", False),
    ],
)
def test_a_matcher_is_a_name_names_or_a_regular_expression(
    matcher: str, name: str, expected: bool
) -> None:
    assert matches(matcher, name) is expected


def test_hooks_are_called_in_their_order_and_the_same_command_once() -> None:
    configs = [hook(PRE, "b"), hook(PRE, "a", "bash"), hook(PRE, "b", "bash"), hook(PRE, "c")]
    found = matching(configs, HookEvent.PRE_TOOL_USE, "bash")
    assert [config.command for config in found] == ["b", "a", "c"]


def test_hooks_of_other_events_are_not_called() -> None:
    configs = [hook(HookEvent.STOP, "a"), hook(HookEvent.SESSION_START, "b", "resume")]
    assert matching(configs, HookEvent.PRE_TOOL_USE, "bash") == []
    assert matching(configs, HookEvent.SESSION_START, "startup") == []
    assert [c.command for c in matching(configs, HookEvent.SESSION_START, "resume")] == ["b"]


@pytest.mark.parametrize("event", [HookEvent.STOP, HookEvent.USER_PROMPT_SUBMIT])
def test_events_without_a_subject_ignore_the_matcher(event: HookEvent) -> None:
    assert matching([hook(event, "a", "anything")], event, "") != []
