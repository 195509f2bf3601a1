"""The hooks of one session: tells the programs what happens and gathers what they say.

Laws: every program that was started here is awaited by its caller or owned until ``aclose``; hooks
of one moment run at the same time and all have their say; a hook that fails is a notice. An empty
matcher and ``*`` match everything; a matcher of plain names matches exactly one of them, in our
spelling or in that of other agents; anything else is a regular expression that may match anywhere
in the name.

Of the answers: exit code 0 with a JSON object on standard output is one; 2 refuses, with standard
error as the reason; everything else is a warning and refuses nothing. An answer of a wrong shape
is a warning too, never an exception.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.events import (
    AgentEvent,
    ApprovalWaiting,
    Compacted,
    CompactionTrigger,
    Done,
    Failed,
    ToolStarted,
)
from agentcli.domain.extensions.claude_calls import (
    ALIASES,
    as_claude,
    covers,
    from_claude,
    meets,
    response_of,
)
from agentcli.domain.extensions.hooks import (
    SILENT,
    HookConfig,
    HookEvent,
    HookFunction,
    HookVerdict,
    Permission,
    allowing_nothing,
    inside_with_files,
    merged,
    of_several,
)
from agentcli.domain.messages import ImagePart, ResultStatus, TextPart, ToolCall, ToolResult
from agentcli.domain.ports import PermissionMode
from agentcli.domain.tools import RunIdentity
from agentcli.domain.values import frozen, mutable
from agentcli.process.program import Program, ProgramResult, RunProgram

# --- what a hook has answered --------------------------------------------------------------

MAX_CHARS = 10_000
_MAX_NOTICE = 500
_MAX_COMMAND = 60
_REFUSED = 2
# plain text on standard output is for the model
_TEXT_IS_CONTEXT = frozenset({HookEvent.SESSION_START, HookEvent.USER_PROMPT_SUBMIT})
# there is nothing to refuse any more
_CANNOT_BLOCK = frozenset(
    {
        HookEvent.SESSION_START,
        HookEvent.SESSION_END,
        HookEvent.NOTIFICATION,
        HookEvent.SUBAGENT_START,
        HookEvent.STOP_FAILURE,
        HookEvent.POST_COMPACT,
    }
)
# those about a call, whose subject is its tool
_OF_TOOLS = frozenset(
    {
        HookEvent.PRE_TOOL_USE,
        HookEvent.PERMISSION_REQUEST,
        HookEvent.POST_TOOL_USE,
        HookEvent.POST_TOOL_USE_FAILURE,
    }
)
_MAY_GRANT = frozenset({HookEvent.PRE_TOOL_USE, HookEvent.PERMISSION_REQUEST})


def verdict_of(config: HookConfig, result: ProgramResult) -> HookVerdict:
    """What one hook has said."""
    if result.code is None:
        return _warning(config, result.problem or "did not run")
    error = _text(result.stderr)
    if result.code == _REFUSED:
        return _refusal(config, error)
    if result.code:
        first = error.splitlines()[0] if error else "no message"
        where = " in the sandbox" if config.contained else ""
        return _warning(config, f"failed{where} with exit code {result.code}: {first}")
    return _from_stdout(config, _text(result.stdout, cut=False))


def _from_stdout(config: HookConfig, text: str) -> HookVerdict:
    if not text:
        return SILENT
    answer = _object(text) if text.startswith("{") else None
    if answer is not None:
        return _from_answer(config, answer)
    if config.event in _TEXT_IS_CONTEXT:
        return HookVerdict(context=(_bounded(text),))
    return _warning(config, "its answer is not valid JSON") if text.startswith("{") else SILENT


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _from_answer(config: HookConfig, answer: Mapping[str, Any]) -> HookVerdict:
    """The fields that all events share, then those of this one."""
    said = [_decision(config, answer)]
    if answer.get("continue") is False:
        said.append(HookVerdict(stopped=_str(answer, "stopReason") or f"{_name(config)} said so"))
    if message := _str(answer, "systemMessage"):
        said.append(HookVerdict(notices=(message[:_MAX_NOTICE],)))
    own = answer.get("hookSpecificOutput")
    if isinstance(own, dict):
        named = own.get("hookEventName", str(config.event))
        if named == str(config.event):
            said.append(_own_output(config, own))
        else:
            said.append(_warning(config, f"answered for another event, {named}"))
    elif own is not None:
        said.append(_warning(config, "hookSpecificOutput is no object"))
    return merged(said)


def _decision(config: HookConfig, answer: Mapping[str, Any]) -> HookVerdict:
    match answer.get("decision"):
        case None:
            return SILENT
        case "block" | "deny":
            return _refusal(config, _str(answer, "reason"))
        case "approve" | "allow":
            return _granted(config, Permission.ALLOW, _str(answer, "reason"))
        case "ask":
            return _granted(config, Permission.ASK, _str(answer, "reason"))
        case other:
            return _warning(config, f"the decision {str(other)[:_MAX_COMMAND]!r} means nothing")


def _own_output(config: HookConfig, own: Mapping[str, Any]) -> HookVerdict:
    said = []
    if context := _str(own, "additionalContext"):
        said.append(HookVerdict(context=(_bounded(context),)))
    if config.event is HookEvent.PERMISSION_REQUEST:
        return merged([*said, *_granting(config, own.get("decision"))])
    if config.event is not HookEvent.PRE_TOOL_USE:
        return merged(said)
    reason = _str(own, "permissionDecisionReason")
    match own.get("permissionDecision"):
        case None | "defer":
            pass
        case "deny":
            said.append(_refusal(config, reason))
        case "allow":
            said.append(_granted(config, Permission.ALLOW, reason))
        case "ask":
            said.append(_granted(config, Permission.ASK, reason))
        case other:
            # it meant to decide something: nobody knows what, so the user decides
            said.append(_granted(config, Permission.ASK, "its decision means nothing"))
            what = f"the permissionDecision {str(other)[:_MAX_COMMAND]!r} means nothing"
            said.append(_warning(config, f"{what}: allow, deny or ask"))
    updated = own.get("updatedInput")
    if isinstance(updated, dict):
        said.append(HookVerdict(updated_input=updated))
    elif updated is not None:
        said.append(_refusal(config, "its updatedInput is no object"))
    return merged(said)


def _granting(config: HookConfig, decision: object) -> Iterator[HookVerdict]:
    """The answer of a ``PermissionRequest`` hook in the user's place."""
    if decision is None:
        return
    if not isinstance(decision, dict) or decision.get("behavior") not in {"allow", "deny"}:
        yield _warning(config, "its decision needs a behavior: allow or deny")
        return
    message = _str(decision, "message")
    if decision["behavior"] == "deny":
        yield _refusal(config, message)
        if decision.get("interrupt") is True:
            yield HookVerdict(stopped=message or f"{_name(config)} said so")
        return
    if decision.get("updatedInput") not in (None, {}):
        # what would run then is not what the rules were asked about
        yield _warning(config, "its updatedInput is not used: you are asked (use PreToolUse)")
        return
    if decision.get("updatedPermissions"):
        yield _warning(config, "its updatedPermissions are not used: it holds for this call")
    yield _granted(config, Permission.ALLOW, message)


def _granted(config: HookConfig, permission: Permission, reason: str) -> HookVerdict:
    """Only a call can be allowed or asked about; elsewhere it means "go on"."""
    if config.event not in _MAY_GRANT:
        return SILENT
    return HookVerdict(permission=permission, reason=_bounded(reason) or f"{_name(config)} said so")


def _refusal(config: HookConfig, reason: str) -> HookVerdict:
    text = _bounded(reason) or f"{_name(config)} gave no reason"
    if config.event in _CANNOT_BLOCK:
        return _warning(config, text)
    return HookVerdict(blocked=text)


def _warning(config: HookConfig, what: str) -> HookVerdict:
    return HookVerdict(notices=(f"{_name(config)}: {what}"[:_MAX_NOTICE],))


def _name(config: HookConfig) -> str:
    command = config.command or getattr(config.call, "__qualname__", "function")
    first = command.strip().splitlines()[0]
    shown = first if len(first) <= _MAX_COMMAND else f"{first[:_MAX_COMMAND]}…"
    return f"the {config.event} hook `{shown}`"


def _str(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    return value.strip() if isinstance(value, str) else ""


def _text(data: bytes, *, cut: bool = True) -> str:
    text = data.decode("utf-8", "replace").strip()
    return _bounded(text) if cut else text


def _bounded(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    return f"{text[:MAX_CHARS]}\n[cut: {len(text)} characters]"


# --- the face ------------------------------------------------------------------------------------


LONG_TURN_S = 10.0
MOST_NOTIFICATIONS = 8
CLOSE_S = 1.0
"""Seconds that what nobody waits for has to end by itself when the session ends."""
STOP_S = 3.0
log = logging.getLogger(__name__)

# as the programs know them from other agents
_MODES = {
    PermissionMode.DEFAULT: "default",
    PermissionMode.ACCEPT_EDITS: "acceptEdits",
    PermissionMode.AUTO: "auto",
    PermissionMode.PLAN: "plan",
    PermissionMode.YOLO: "bypassPermissions",
}


_NAMES = re.compile(r"[\w ,|-]+")
_SEPARATOR = re.compile(r"[|,]")
# events whose hooks are all called, whatever their matcher says
_UNMATCHED = frozenset({HookEvent.USER_PROMPT_SUBMIT, HookEvent.STOP})


@frozen
class HookFacts:
    """What every hook gets. ``transcript`` is the session's file, ``root`` the project's."""

    session_id: str
    transcript: Path
    cwd: Path
    mode: Callable[[], PermissionMode]
    root: Path | None = None
    model: Callable[[], str] = str
    is_changed: Callable[[], bool] = lambda: False  # since the user trusted it; blocks
    are_steady: Callable[[Iterable[str]], bool] = lambda _: True  # ``inside_with_files``; blocks


@mutable
class _SharedByRuns:
    """What the hooks of all runs of a session share."""

    starting: asyncio.Task[HookVerdict] | None = None
    unheard: list[str] = field(default_factory=list)
    ended: bool = False


class SessionHooks:
    """Satisfies ``domain.extensions.hooks.Hooks``. End it with ``aclose``."""

    def __init__(self, configs: Sequence[HookConfig], facts: HookFacts, run: RunProgram) -> None:
        self._configs = tuple(configs)
        self._facts = facts
        self._run = run
        self._token = CancelToken()
        self._notifying: set[asyncio.Task[HookVerdict]] = set()
        self._state = _SharedByRuns()
        self._identity = RunIdentity(facts.session_id)
        self._agent: Mapping[str, Any] = {}

    def of_run(self, run: RunIdentity) -> SessionHooks:
        """The same hooks; what they are told has the ids of ``run``."""
        mine = copy(self)
        mine._identity = run  # noqa: SLF001 - a copy of this very object
        return mine

    def of_agent(self, name: str, session_id: str, transcript: Path) -> SessionHooks:
        """The same hooks for a sub-agent; see ``domain.extensions.hooks.Hooks``."""
        mine = copy(self)
        mine._agent = {  # noqa: SLF001 - a copy of this very object
            "agent_id": session_id,
            "agent_type": name,
            "agent_transcript_path": str(transcript),
        }
        return mine

    def listens(self, event: HookEvent) -> bool:
        """Whether there is any hook for ``event``, which is another one for a sub-agent."""
        if event is HookEvent.STOP and self._agent:
            event = HookEvent.SUBAGENT_STOP
        return any(config.event is event for config in self._configs)

    # --- moments that the engine waits for -------------------------------------------------

    async def prompt_submitted(self, prompt: str, cancel: CancelToken) -> HookVerdict:
        """Before a prompt is recorded; what SessionStart has said comes first."""
        if self._agent:  # no user has submitted it
            return await self._fire(HookEvent.SUBAGENT_START, {}, self._agent["agent_type"], cancel)
        at_start = await self._start_verdict()
        said = await self._fire(HookEvent.USER_PROMPT_SUBMIT, {"prompt": prompt}, "", cancel)
        unheard, self._state.unheard = tuple(self._state.unheard), []
        return merged([at_start, HookVerdict(notices=unheard), said])

    async def before_tool(self, call: ToolCall, cwd: Path, cancel: CancelToken) -> HookVerdict:
        """Before a call is judged by the policy; ``cwd`` is where it would run."""
        return await self._fire_about(HookEvent.PRE_TOOL_USE, call, cwd, cancel)

    async def permission_requested(
        self, call: ToolCall, cwd: Path, cancel: CancelToken
    ) -> HookVerdict:
        """Before the user is asked about a call: a hook may answer in their place."""
        return await self._fire_about(HookEvent.PERMISSION_REQUEST, call, cwd, cancel)

    async def after_tool(
        self, call: ToolCall, cwd: Path, result: ToolResult, cancel: CancelToken
    ) -> HookVerdict:
        """After a call has run and its result is durable."""
        response = _response(result)
        said = await self._fire_about(HookEvent.POST_TOOL_USE, call, cwd, cancel, response)
        if not response["is_error"]:
            return said
        failed = HookEvent.POST_TOOL_USE_FAILURE
        return merged([said, await self._fire_about(failed, call, cwd, cancel, response)])

    async def before_compaction(
        self, trigger: str, instructions: str, cancel: CancelToken
    ) -> HookVerdict:
        """Before the history is summarised."""
        fields = {"trigger": trigger, "custom_instructions": instructions}
        return await self._fire(HookEvent.PRE_COMPACT, fields, trigger, cancel)

    async def stopping(self, answer: str, cancel: CancelToken, *, active: bool) -> HookVerdict:
        """Before a turn ends by itself."""
        fields = {"stop_hook_active": active, "last_assistant_message": answer}
        event = HookEvent.SUBAGENT_STOP if self._agent else HookEvent.STOP
        return await self._fire(event, fields, self._agent.get("agent_type", ""), cancel)

    # --- moments that nobody waits for -----------------------------------------------------

    def start(self, source: str) -> None:
        """The session begins (``startup``, ``resume``) or was compacted (``compact``)."""
        if self.listens(HookEvent.SESSION_START) and not self._state.ended:
            before, self._state.starting = self._state.starting, None
            self._state.starting = asyncio.create_task(self._start(source, before))

    async def _start(self, source: str, before: asyncio.Task[HookVerdict] | None) -> HookVerdict:
        fields = {"source": source, "model": self._facts.model()}
        earlier = SILENT if before is None else await before
        said = await self._fire(HookEvent.SESSION_START, fields, source, self._token)
        return merged([earlier, said])

    async def _start_verdict(self) -> HookVerdict:
        """What SessionStart has said, once; a cancelled wait leaves it for the next prompt."""
        if self._state.starting is None:
            return SILENT
        await asyncio.wait({self._state.starting})
        done, self._state.starting = self._state.starting, None
        return SILENT if done.cancelled() else done.result()

    def on_event(self, event: AgentEvent) -> None:
        """A listener of the session: what the user should be called for (UI-6)."""
        match event:
            case ApprovalWaiting():
                self._notify(
                    f"agentcli needs your permission: {event.summary}", "permission_prompt"
                )
            case ToolStarted() if event.call.name == "ask_user":
                self._notify("agentcli has a question for you", "elicitation_dialog")
            case Done() | Failed() if event.summary.duration_s >= LONG_TURN_S:
                self._notify("agentcli is waiting for your input", "idle_prompt")
            case Compacted():
                about = {"trigger": _TRIGGERS.get(event.trigger, "auto")}
                self._tell(HookEvent.POST_COMPACT, about, about["trigger"])
                self.start("compact")
        if isinstance(event, Failed):
            fault = event.error
            kind = "unknown"
            if isinstance(fault, ProviderError):
                kind = _FAULTS.get(fault.kind, kind)
            fields = {
                "error": kind,
                "error_details": fault.message,
                "last_assistant_message": event.summary.text,
            }
            self._tell(HookEvent.STOP_FAILURE, fields, kind)

    def _notify(self, message: str, kind: str) -> None:
        fields = {"message": message, "notification_type": kind, "title": "agentcli"}
        self._tell(HookEvent.NOTIFICATION, fields, kind)

    def _tell(self, event: HookEvent, fields: Mapping[str, Any], subject: str) -> None:
        """Call hooks that nobody waits for; bounded in number."""
        if self._state.ended or not self.listens(event):
            return
        self._go_on_with(self._fire(event, fields, subject, self._token), str(event))

    def _go_on_with(self, work: Coroutine[Any, Any, HookVerdict], name: str) -> None:
        if len(self._notifying) >= MOST_NOTIFICATIONS:
            work.close()
            log.warning("too many hooks at once: %s", name)
            return
        task = asyncio.create_task(work, name=name)
        self._notifying.add(task)
        task.add_done_callback(self._notified)

    def _notified(self, task: asyncio.Task[HookVerdict]) -> None:
        """Its warnings come with the next prompt: nobody is there to read them now."""
        self._notifying.discard(task)
        if not task.cancelled():
            self._state.unheard += task.result().notices

    async def aclose(self, reason: str = "other") -> None:
        """The session ends: what still runs is stopped, SessionEnd is called. Bounded."""
        if self._state.ended:
            return
        self._state.ended = True
        starting = [] if self._state.starting is None else [self._state.starting]
        if running := {*starting, *self._notifying}:
            # what has just been asked for may end by itself
            await asyncio.wait(running, timeout=CLOSE_S)
        self._token.cancel(CancelReason.PARENT, force=True)
        if left := {task for task in running if not task.done()}:
            await asyncio.wait(left, timeout=STOP_S)
        await self._fire(HookEvent.SESSION_END, {"reason": reason}, reason, CancelToken())

    # --- running them ----------------------------------------------------------------------

    async def _fire(
        self, event: HookEvent, fields: Mapping[str, Any], subject: str, cancel: CancelToken
    ) -> HookVerdict:
        hooks = matching(self._configs, event, subject)
        return await self._call_all(hooks, event, fields, cancel)

    async def _fire_about(
        self,
        event: HookEvent,
        call: ToolCall,
        cwd: Path,
        cancel: CancelToken,
        response: Mapping[str, Any] | None = None,
    ) -> HookVerdict:
        """Hooks about a call; those that were written for Claude Code know it by other names."""
        hooks = matching(self._configs, event, call.name)
        if not hooks:
            return SILENT
        ours = [hook for hook in hooks if not hook.is_claude]
        fields = _call_fields(call, cwd, event, response)
        said = [await self._call_all(ours, event, fields, cancel)]
        has_failed = event is HookEvent.POST_TOOL_USE and response and response["is_error"]
        theirs = [] if has_failed else [hook for hook in hooks if hook.is_claude]
        is_patch = call.name == "apply_patch"
        for known in as_claude(call, cwd) if theirs else ():
            wanted = [
                hook
                for hook in theirs
                if (not is_patch or matches(hook.matcher, known.name, event))
                and meets(hook.condition, known)
            ]
            answer = None if response is None else response_of(known, response)
            fields = _call_fields(known, cwd, event, answer)
            told = await self._call_all(wanted, event, fields, cancel)
            said.append(_in_our_words(told, call))
        if any(part.permission is None for part in said[1:]):  # a file that none of them allows
            said[1:] = [allowing_nothing(part) for part in said[1:]]
        return of_several(said)

    async def _call_all(
        self,
        hooks: Sequence[HookConfig],
        event: HookEvent,
        fields: Mapping[str, Any],
        cancel: CancelToken,
    ) -> HookVerdict:
        if not hooks:
            return SILENT
        facts, about = self._facts, fields.get("tool_input", {})
        asked = (hooks, event, about, facts.are_steady)
        hooks, moved = await asyncio.to_thread(inside_with_files, *asked, fields.get("cwd", ""))
        facts_and_fields = {
            "session_id": facts.session_id,
            "run_id": self._identity.run_id,
            "parent_session_id": self._identity.parent_id,
            "transcript_path": str(facts.transcript),
            "cwd": str(facts.cwd),
            "permission_mode": _MODES[facts.mode()],
            "hook_event_name": str(event),
            **self._agent,
            **fields,
        }
        data = (json.dumps(facts_and_fields, default=str) + "\n").encode()  # escaped: one line
        for hook in hooks:
            if hook.unawaited and not self._state.ended:
                self._go_on_with(self._unheard(hook, data), str(event))
        awaited = [hook for hook in hooks if not hook.unawaited or self._state.ended]
        said = await _together([self._one(hook, data, cancel) for hook in awaited])
        if moved and any(each.blocked or each.notices for each in said):
            said[0] = merged([said[0], HookVerdict(notices=(moved,))])
        return of_several(
            [
                each if covers(hook.condition, about) else allowing_nothing(each)
                for hook, each in zip(awaited, said, strict=True)
            ]
        )

    async def _unheard(self, hook: HookConfig, data: bytes) -> HookVerdict:
        """A hook whose answer comes too late to count."""
        said = await self._one(hook, data, self._token)
        return HookVerdict(notices=said.notices)

    async def _one(self, hook: HookConfig, data: bytes, cancel: CancelToken) -> HookVerdict:
        if hook.call is not None:
            return await _called(hook, hook.call, data)
        if hook.of_project and await asyncio.to_thread(self._facts.is_changed):
            hook = replace(hook, contained=True, may_allow=False)  # as one that is not trusted
        cwd, root = self._facts.cwd, str(self._facts.root or self._facts.cwd)
        own = {"AGENTCLI_PROJECT_DIR": root, "CLAUDE_PROJECT_DIR": root}
        program = Program(
            hook.command,
            cwd,
            data,
            hook.limit_s,
            own | dict(hook.variables),
            self._facts.session_id,
            hook.contained,
            not_without=not hook.may_allow,
        )
        try:
            result = await self._run(program, cancel)
        except Exception as error:
            log.exception("a hook could not be run")
            result = ProgramResult(None, problem=f"could not be run: {error}")
        log.debug("hook %s %r: %s %s", hook.event, hook.command, result.code, result.problem)
        try:
            verdict = _without_grant(hook, verdict_of(hook, result))
        except Exception:
            log.exception("the answer of a hook could not be read")
            verdict = SILENT
        for notice in verdict.notices:
            log.warning("%s", notice)
        return verdict


def _without_grant(hook: HookConfig, said: HookVerdict) -> HookVerdict:
    """A refusal always counts; that a call is fine, or has other arguments, not from everybody."""
    is_allowing = said.permission is Permission.ALLOW
    if hook.may_allow and not (hook.obeys_files and is_allowing):
        return said
    if not is_allowing and said.updated_input is None:
        return said
    whose = "files that are edited unasked" if hook.may_allow else "which is not trusted"
    why = f"it may run what this directory holds, {whose}: its allowing does not count"
    notices = (*said.notices, f"{_name(hook)}: {why}")
    permission = None if is_allowing else said.permission
    updated = said.updated_input if hook.may_allow else None
    return replace(said, permission=permission, updated_input=updated, notices=notices)


async def _called(hook: HookConfig, call: HookFunction, data: bytes) -> HookVerdict:
    """What a function of the embedding program says; a fault of it refuses nothing."""
    told = json.loads(data)
    try:
        async with asyncio.timeout(hook.limit_s):
            if inspect.iscoroutinefunction(call):
                answer = await call(told)
            else:
                answer = await asyncio.to_thread(call, told)
                if isinstance(answer, Awaitable):
                    answer = await answer
        return SILENT if answer is None else _from_answer(hook, answer)
    except TimeoutError:
        return _warning(hook, f"took longer than {hook.limit_s:g} s")
    except Exception as error:
        log.exception("a hook failed")
        return _warning(hook, f"failed: {type(error).__name__}: {error}")


async def _together(work: Sequence[Coroutine[Any, Any, HookVerdict]]) -> list[HookVerdict]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
    return [task.result() for task in tasks]


# https://code.claude.com/docs/en/hooks#stopfailure
_FAULTS = {
    ErrorKind.RATE_LIMIT: "rate_limit",
    ErrorKind.AUTH: "authentication_failed",
    ErrorKind.CONTEXT_OVERFLOW: "invalid_request",
    ErrorKind.BAD_REQUEST: "invalid_request",
    ErrorKind.SERVER: "server_error",
    ErrorKind.OVERLOADED: "server_error",
}
_TRIGGERS = {CompactionTrigger.MANUAL: "manual"}


def _call_fields(
    call: ToolCall, cwd: Path, event: HookEvent, response: Mapping[str, Any] | None
) -> dict[str, Any]:
    about = {"tool_name": call.name, "tool_input": dict(call.arguments), "tool_use_id": call.id}
    fields = {"cwd": str(cwd), **about}
    if response is None:
        return fields
    if event is HookEvent.POST_TOOL_USE_FAILURE:
        return {**fields, "error": response["content"], "is_interrupt": False}
    return {**fields, "tool_response": response}


def _in_our_words(said: HookVerdict, call: ToolCall) -> HookVerdict:
    """Changed arguments with the names that our tool has for them."""
    if said.updated_input is None:
        return said
    ours = from_claude(call, said.updated_input)
    if ours is None:
        what = f"a hook changed the arguments of {call.name}: that cannot be done"
        return replace(said, updated_input=None, blocked=said.blocked or what)
    return replace(said, updated_input=ours)


def _response(result: ToolResult) -> dict[str, Any]:
    texts = [part.text for part in result.parts if isinstance(part, TextPart)]
    images = sum(isinstance(part, ImagePart) for part in result.parts)
    response: dict[str, Any] = {
        "content": "\n".join(texts),
        "is_error": result.status is not ResultStatus.OK,
    }
    return {**response, "images": images} if images else response


def matching(configs: Sequence[HookConfig], event: HookEvent, subject: str) -> list[HookConfig]:
    """The hooks for ``event`` about ``subject``, in their order; the same command only once."""
    found = [
        config
        for config in configs
        if config.event is event
        and (event in _UNMATCHED or matches(config.matcher, subject, event))
    ]
    first: dict[object, HookConfig] = {}
    for config in found:
        origin = config.contained, config.may_allow, config.variables
        same = config.call or config.command, config.is_claude, config.condition, *origin
        first.setdefault(same, config)
    return list(first.values())


def matches(matcher: str, subject: str, event: HookEvent = HookEvent.PRE_TOOL_USE) -> bool:
    """Whether ``matcher`` is for ``subject``: a tool's name, or what the event is about."""
    if matcher.strip() in {"", "*"}:
        return True
    names = (subject, *(ALIASES.get(subject, ()) if event in _OF_TOOLS else ()))
    if _NAMES.fullmatch(matcher):
        return not {part.strip() for part in _SEPARATOR.split(matcher)}.isdisjoint(names)
    try:
        return any(re.search(matcher, name) for name in names)
    except re.error:  # refused when the settings are read
        return False
