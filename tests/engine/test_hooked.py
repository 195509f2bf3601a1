"""Hooks around a turn, with everything countable: prompts, what waits, the end, cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, PromptBlocked
from agentcli.domain.events import CompactionTrigger, Notice, Outcome
from agentcli.domain.extensions.hooks import SILENT, HookEvent, HookVerdict, Permission
from agentcli.domain.messages import ToolCall, ToolResult, UserMessage, user_text
from agentcli.domain.ports import PermissionMode, QueuedInput, QueueKind, Verdict
from agentcli.domain.tools import Asks, RunIdentity, ToolContext, ToolOutput
from agentcli.engine.hooked import before_compaction
from agentcli.engine.turn import Turn
from tests.support.turns import Answers, FakeTool, PlayedProvider, World, calls, disk_full, says

Said = HookVerdict | Callable[[Any], HookVerdict]


@dataclass
class PlayedHooks:
    """Hooks that say what was prepared; one that is told to hang waits for ever."""

    prompt: Said = SILENT
    before: Said = SILENT
    after: Said = SILENT
    permission: Said = SILENT
    compact: Said = SILENT
    stop: list[HookVerdict] = field(default_factory=list)
    hang: str = ""
    asked: list[tuple[str, Any]] = field(default_factory=list)

    async def _say(self, moment: str, about: Any, said: Said) -> HookVerdict:
        self.asked.append((moment, about))
        await asyncio.sleep(0)
        if self.hang == moment:
            await asyncio.Event().wait()
        return said(about) if callable(said) else said

    async def prompt_submitted(self, prompt: str, cancel: CancelToken) -> HookVerdict:
        return await self._say("prompt", prompt, self.prompt)

    async def before_tool(self, call: ToolCall, cwd: Path, cancel: CancelToken) -> HookVerdict:
        return await self._say("before", call.id, self.before)

    async def permission_requested(
        self, call: ToolCall, cwd: Path, cancel: CancelToken
    ) -> HookVerdict:
        return await self._say("permission", call.id, self.permission)

    def of_agent(self, name: str, session_id: str, transcript: Path) -> PlayedHooks:
        return self

    async def after_tool(
        self, call: ToolCall, cwd: Path, result: ToolResult, cancel: CancelToken
    ) -> HookVerdict:
        return await self._say("after", call.id, self.after)

    async def before_compaction(
        self, trigger: str, instructions: str, cancel: CancelToken
    ) -> HookVerdict:
        return await self._say("compact", (trigger, instructions), self.compact)

    async def stopping(self, answer: str, cancel: CancelToken, *, active: bool) -> HookVerdict:
        said = self.stop.pop(0) if self.stop else SILENT
        return await self._say("stop", (answer, active), said)

    def of_run(self, run: RunIdentity) -> PlayedHooks:
        assert run.run_id
        return self

    def listens(self, event: HookEvent) -> bool:
        return event is not HookEvent.STOP or bool(self.stop) or self.hang == "stop"

    def about(self, moment: str) -> list[Any]:
        return [about for asked, about in self.asked if asked == moment]


class Queue:
    """What waits, without a file."""

    has_sources = False

    def __init__(self, *texts: str, kind: QueueKind = QueueKind.STEERING) -> None:
        self.items = [QueuedInput(n, kind, text, 0.0) for n, text in enumerate(texts, start=1)]
        self.dropped: list[int] = []

    def waiting(self, kind: QueueKind | None = None) -> Sequence[QueuedInput]:
        return [item for item in self.items if kind is None or item.kind is kind]

    def delivered(self, ids: Sequence[int]) -> None:
        self.items = [item for item in self.items if item.id not in ids]

    async def drop(self, row_id: int) -> bool:
        self.dropped.append(row_id)
        self.delivered([row_id])
        return True


def tool(name: str, effect: Asks = Asks.ANYTHING, text: str = "true result") -> FakeTool:
    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        ran.append(ctx.call_id)
        return ToolOutput.text(text)

    ran: list[str] = []
    made = FakeTool(name, work, effect)
    made.asked = ran
    return made


def world(hooks: PlayedHooks, *replies: Any, tools: Sequence[FakeTool] = ()) -> World:
    made = World(PlayedProvider(*replies), tools)
    made.set(hooks=hooks)
    return made


def notices(made: World) -> list[str]:
    return [event.text for event in made.events if isinstance(event, Notice)]


def users(made: World) -> list[str]:
    return [m.text for m in made.history.messages if isinstance(m, UserMessage)]


# --- prompts ------------------------------------------------------------------------------------


def test_a_refused_prompt_leaves_no_trace_and_no_turn() -> None:
    made = world(PlayedHooks(prompt=HookVerdict(blocked="no", notices=("look",))), says("x"))
    with pytest.raises(PromptBlocked, match="no"):
        asyncio.run(made.run("secret"))
    assert made.store.commits == [] and made.provider.requests == []
    assert made.types() == ["notice"] and made.conversation.turns == 0


@pytest.mark.spec("CAN-12")
def test_what_hooks_say_of_a_prompt_comes_after_the_start_of_the_turn() -> None:
    said = HookVerdict(context=("more",), notices=("look",))
    made = world(PlayedHooks(prompt=said), says("x"))
    asyncio.run(made.run("go"))
    assert made.types()[:2] == ["turn_start", "notice"]
    assert users(made) == ["go\n(A hook adds: more)"]


def test_a_refused_text_that_began_a_turn_waits_no_longer() -> None:
    made = world(PlayedHooks(prompt=HookVerdict(blocked="no")), says("x"))
    queue = Queue("secret")
    made.set(queue=queue)
    turn = Turn(made.conversation, made.token, made.emit)
    with pytest.raises(PromptBlocked, match="the prompt was: secret"):
        asyncio.run(turn.run(user_text("secret"), (1,)))
    assert queue.dropped == [1] and queue.items == []


@pytest.mark.spec("CTRL-1", "CTRL-3")
@pytest.mark.parametrize("kind", list(QueueKind))
@pytest.mark.parametrize("max_steps", [10, 1])
def test_what_waits_is_asked_about_when_it_is_delivered(kind: QueueKind, max_steps: int) -> None:
    def said(prompt: str) -> HookVerdict:
        return HookVerdict(blocked="no") if "secret" in prompt else SILENT

    read = calls(("a", "t", "{}"))
    made = world(PlayedHooks(prompt=said), read, says("x"), says("y"), tools=[tool("t")])
    queue = Queue(kind=kind)

    def later(event: Any) -> None:
        if event.type == "tool_started":
            queue.items = Queue("a secret", "fine", kind=kind).items

    made.on_event = later
    asyncio.run(made.run("go", queue=queue, max_steps=max_steps))
    assert [text for text in users(made) if text != "go"] == ["fine"]
    assert queue.dropped == [1] and queue.items == []
    assert any("a secret" in text and "no" in text for text in notices(made))


@pytest.mark.spec("CAN-3", "CAN-9")
@pytest.mark.parametrize("how", ["token", "task"])
def test_a_cancel_while_hooks_are_asked_about_a_prompt_still_records_it(how: str) -> None:
    hooks = PlayedHooks(hang="prompt")
    made = world(hooks, says("x"))

    async def run() -> None:
        task = asyncio.create_task(made.run("go"))
        while not hooks.asked:
            await asyncio.sleep(0)
        if how == "token":
            made.cancel(CancelReason.USER)
            assert (await task).outcome is Outcome.CANCELLED
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert users(made) == ["go"] and made.store.disk == list(made.history.messages)
    assert made.types()[0] == "turn_start" and made.types()[-1] == "cancelled"
    assert made.provider.requests == []


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.spec("CAN-9")
@pytest.mark.parametrize("moment", ["before", "after", "stop"])
@pytest.mark.parametrize("how", ["token", "task"])
def test_a_cancel_while_hooks_are_asked_leaves_a_true_and_balanced_history(
    moment: str, how: str
) -> None:
    hooks = PlayedHooks(hang=moment)
    made = world(hooks, calls(("a", "t", "{}"), ("b", "t", "{}")), says("x"), tools=[tool("t")])

    async def run() -> None:
        task = asyncio.create_task(made.run("go"))
        while not hooks.about(moment):
            await asyncio.sleep(0)
        if how == "token":
            made.cancel()
            assert (await task).outcome is Outcome.CANCELLED
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert made.types()[-1] == "cancelled" and made.types().count("cancelled") == 1
    assert made.store.disk == list(made.history.messages)
    first, second = made.results
    ran = {"before": (False, False), "after": (True, False), "stop": (True, True)}[moment]
    assert tuple(r.parts[0].text == "true result" for r in (first, second)) == ran  # type: ignore[union-attr]  # texts all


@pytest.mark.spec("CAN-7", "CAN-12")
def test_a_cancel_at_every_moment_of_a_turn_with_hooks_keeps_memory_and_disk_one() -> None:
    def play(cancel_at: int) -> tuple[World, bool]:
        hooks = PlayedHooks(
            prompt=HookVerdict(context=("c",)),
            before=HookVerdict(updated_input={"x": 1}),
            after=HookVerdict(blocked="repair it"),
            stop=[HookVerdict(blocked="go on"), SILENT],
        )
        replies = (calls(("a", "t", "{}"), ("b", "r", "{}")), says("one"), says("two"))
        made = world(hooks, *replies, tools=[tool("t"), tool("r", Asks.NOTHING)])

        async def run() -> bool:
            task = asyncio.create_task(made.run("go"))
            for _ in range(cancel_at):
                await asyncio.sleep(0)
            in_time = not task.done()
            made.cancel()
            await task
            return in_time

        return made, asyncio.run(run())

    for tick in range(400):
        made, in_time = play(tick)
        assert made.store.disk == list(made.history.messages), tick
        assert not made.history.pending and made.types()[0] == "turn_start", tick
        terminal = [t for t in made.types() if t in {"done", "cancelled", "error"}]
        assert terminal == made.types()[-1:], tick
        if not in_time:
            return
    raise AssertionError("the turn never ended")


def test_hooks_of_reads_that_stand_together_are_asked_together() -> None:
    hooks = PlayedHooks()
    made = world(
        hooks,
        calls(("a", "r", "{}"), ("b", "r", "{}"), ("c", "t", "{}")),
        says("x"),
        tools=[tool("r", Asks.NOTHING), tool("t")],
    )
    asyncio.run(made.run())
    order = [(moment, about) for moment, about in hooks.asked if moment in {"before", "after"}]
    assert order[:2] == [("before", "a"), ("before", "b")]
    assert order[-2:] == [("before", "c"), ("after", "c")]
    assert set(order[2:4]) == {("after", "a"), ("after", "b")}


@pytest.mark.spec("SEC-6")
def test_a_person_is_asked_about_the_arguments_that_will_run() -> None:
    hooks = PlayedHooks(
        before=HookVerdict(permission=Permission.ASK, reason="why", updated_input={"x": 2})
    )
    made = world(hooks, calls(("a", "t", '{"x": 1}')), says("x"), tools=[tool("t")])
    made.approver = Answers(Verdict.ONCE)
    made.set(approver=made.approver)
    asyncio.run(made.run())
    (request,) = made.approver.requests
    assert request.call.arguments == {"x": 2} and request.reason == "a hook asks: why"
    stored = [call for m in made.history.messages for call in getattr(m, "tool_calls", ())]
    assert stored[0].arguments == {"x": 1}
    assert '{"x": 2}' in users(made)[-1]


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("mode", "runs"),
    [(PermissionMode.DEFAULT, True), (PermissionMode.PLAN, False), (PermissionMode.YOLO, True)],
)
def test_allow_is_worth_yolo_and_never_plan_mode(mode: PermissionMode, *, runs: bool) -> None:
    hooks = PlayedHooks(before=HookVerdict(permission=Permission.ALLOW))
    used = tool("t", Asks.EDIT)
    made = World(PlayedProvider(calls(("a", "t", "{}")), says("x")), [used], mode=mode)
    made.set(hooks=hooks)
    asyncio.run(made.run())
    assert bool(used.asked) is runs and made.approver.requests == []
    assert made.conversation.parts.policy.mode is mode


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("said", [HookVerdict(permission=Permission.ALLOW), SILENT])
def test_plan_mode_that_comes_on_while_a_hook_answers_refuses(said: HookVerdict) -> None:
    used = tool("t", Asks.EDIT)

    def answer(_: Any) -> HookVerdict:
        made.conversation.parts.policy.mode = PermissionMode.PLAN
        return said

    hooks = PlayedHooks(permission=answer)
    made = World(
        PlayedProvider(calls(("a", "t", "{}")), says("x")), [used], mode=PermissionMode.DEFAULT
    )
    made.set(hooks=hooks)
    asyncio.run(made.run())
    assert made.approver.requests == [] and not used.asked


@pytest.mark.spec("SEC-3")
def test_a_mode_that_changes_while_a_hook_answers_leaves_the_question_as_it_is() -> None:
    used = tool("t")

    def answer(_: Any) -> HookVerdict:
        made.conversation.parts.policy.mode = PermissionMode.ACCEPT_EDITS
        return SILENT

    made = World(
        PlayedProvider(calls(("a", "t", "{}")), says("x")), [used], mode=PermissionMode.DEFAULT
    )
    made.approver = Answers(Verdict.ONCE)
    made.set(hooks=PlayedHooks(permission=answer), approver=made.approver)
    asyncio.run(made.run())
    assert len(made.approver.requests) == 1 and used.asked


def test_calls_that_are_already_answered_are_not_asked_about() -> None:
    hooks = PlayedHooks()
    made = world(hooks, calls(("a", "unknown", "{}")), says("x"), tools=[tool("t")])
    asyncio.run(made.run())
    assert hooks.about("before") == hooks.about("after") == []


@pytest.mark.spec("OPS-2")
def test_what_hooks_say_after_calls_does_not_hide_that_they_repeat() -> None:
    hooks = PlayedHooks(after=HookVerdict(blocked="repair it"))
    made = world(hooks, *[calls((f"c{n}", "t", "{}")) for n in range(20)], tools=[tool("t")])
    summary = asyncio.run(made.run())
    assert summary.outcome is Outcome.ERROR and summary.steps < 20


@pytest.mark.spec("FAIL-1")
def test_a_store_that_fails_on_what_a_hook_has_said_ends_the_turn() -> None:
    hooks = PlayedHooks(after=HookVerdict(blocked="repair it"))
    made = world(hooks, calls(("a", "t", "{}")), says("x"), tools=[tool("t")])

    def fail(event: Any) -> None:
        if event.type == "tool_finished":
            made.store.fail_on["prompt"] = disk_full()

    made.on_event = fail
    assert asyncio.run(made.run()).outcome is Outcome.ERROR
    assert made.types()[-1] == "error" and len(made.provider.requests) == 1


# --- the end ------------------------------------------------------------------------------------


@pytest.mark.spec("FAIL-5")
def test_without_a_stop_hook_an_answer_and_the_end_are_one_commit() -> None:
    made = world(PlayedHooks(), says("x"))
    asyncio.run(made.run())
    assert made.store.commits == ["prompt", "assistant"]


def test_a_stop_hook_that_objects_is_answered_and_asked_again() -> None:
    hooks = PlayedHooks(stop=[HookVerdict(blocked="tests fail"), SILENT])
    made = world(hooks, says("one"), says("two"))
    hooks.hang = "never"
    summary = asyncio.run(made.run())
    assert (summary.outcome, summary.text, summary.steps) == (Outcome.DONE, "two", 2)
    assert users(made)[-1] == "(A hook asks you to go on: tests fail)"


@pytest.mark.spec("CTRL-2")
def test_a_turn_that_a_tool_has_ended_is_not_held_back() -> None:
    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(**{**vars_of(ToolOutput.text("bye")), "ends_turn": True})

    hooks = PlayedHooks(stop=[HookVerdict(blocked="more")])
    made = world(hooks, calls(("a", "t", "{}")), tools=[FakeTool("t", work)])
    assert asyncio.run(made.run()).outcome is Outcome.DONE
    assert hooks.about("stop") == [("", False)]
    assert any("a tool has ended it: more" in text for text in notices(made))


def vars_of(output: ToolOutput) -> dict[str, Any]:
    return {name: getattr(output, name) for name in type(output).__slots__}  # type: ignore[attr-defined]  # made by ``frozen``


def test_a_stop_hook_may_end_the_turn_itself() -> None:
    hooks = PlayedHooks(stop=[HookVerdict(blocked="more", stopped="enough")])
    made = world(hooks, says("x"))
    assert asyncio.run(made.run()).outcome is Outcome.DONE
    assert "a hook ends the turn: enough" in notices(made)


# --- compaction ---------------------------------------------------------------------------------


@pytest.mark.spec("CMP-4")
def test_a_compaction_can_be_refused_and_its_instructions_added_to() -> None:
    async def ask(hooks: PlayedHooks, trigger: CompactionTrigger) -> str:
        made = world(hooks)
        return await before_compaction(
            made.conversation.parts, made.token, made.emit, trigger, "focus"
        )

    hooks = PlayedHooks(compact=HookVerdict(context=("mind the tests",)))
    assert asyncio.run(ask(hooks, CompactionTrigger.MANUAL)) == "focus\nmind the tests"
    asyncio.run(ask(hooks, CompactionTrigger.WINDOW))
    assert hooks.about("compact") == [("manual", "focus"), ("auto", "focus")]
    with pytest.raises(AgentError, match="a hook refused it: not now"):
        asyncio.run(
            ask(PlayedHooks(compact=HookVerdict(blocked="not now")), CompactionTrigger.MANUAL)
        )
