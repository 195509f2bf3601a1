"""One session that an editor has open: its prompts, its modes and options, what it asks.

Laws: each prompt is answered once, in order, after everything that its turn had to tell; a prompt
that comes while a turn runs steers that turn, as a line typed in the chat does, and is answered
with it; a cancel answers all that were sent before it with ``cancelled`` (ACP-1). Only what the
client has offered is asked of it; only an option that was offered is a yes (UI-7); a client that
has gone has said no.
https://agentclientprotocol.com/protocol/v1/tool-calls#requesting-permission
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from agentcli.acp.content import (
    Json,
    PromptContent,
    bad_params,
    bounded,
    changes_and_rest,
    diff_content,
    exact,
    read_prompt,
    text_content,
)
from agentcli.acp.updates import BASH, EDITS, SessionUpdates, locations_of, title_of, tool_kind
from agentcli.app.files.attachments import attach
from agentcli.app.session import Session
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.clean import as_object, one_line, reveal
from agentcli.domain.errors import AgentError, ConfigError, ErrorKind, ProviderError, TurnCancelled
from agentcli.domain.events import (
    AgentEvent,
    Cancelled,
    Done,
    Failed,
    Outcome,
    Prompt,
    TerminalEvent,
    TurnSummary,
)
from agentcli.domain.messages import StopReason, TextPart, UserMessage
from agentcli.domain.ports import (
    ApprovalAnswer,
    ApprovalRequest,
    Effort,
    ModelInfo,
    PermissionMode,
    QueueKind,
    Verdict,
)
from agentcli.domain.values import mutable
from agentcli.rpc.connection import ConnectionClosed
from agentcli.rpc.messages import INTERNAL_ERROR, RequestId, RpcError

AUTH_REQUIRED = -32000
CANCELLED = "cancelled"
MAX_PROMPTS = 100
READ_S = 5.0
MAX_OPEN_BYTES = 2_000_000
_MODES = {
    PermissionMode.DEFAULT: ("Default", "What changes something asks first"),
    PermissionMode.ACCEPT_EDITS: ("Accept edits", "Edits in the workspace run without asking"),
    PermissionMode.AUTO: ("Auto", "What the sandbox contains runs without asking"),
    PermissionMode.PLAN: ("Plan", "Reads only, and ends with a plan to approve"),
    PermissionMode.YOLO: ("Yolo", "Only protected places ask; no boundary but a named sandbox"),
}
_MODEL_DEFAULT = "default"
MAX_RULE = 200
_MAX_NAME = 250
_CUT_NOTE = 25
_WAIT, _STOP = "Wait, then go on by itself", "Stop here"
_GONE = "It needs an approval, and the editor that gives them has left."
_OTHER = "other"
_STOPS = {
    Outcome.MAX_STEPS: "max_turn_requests",
    Outcome.MAX_TOKENS: "max_tokens",
    Outcome.CANCELLED: CANCELLED,
}


@mutable
class _Waiting:
    """A prompt that is not answered yet; ``row`` holds it in the session's queue."""

    request: RequestId
    token: CancelToken = field(default_factory=CancelToken)
    row: int | None = None
    has_own_turn: bool = False


def rpc_error(error: AgentError) -> RpcError:
    """An error of ours as the protocol's."""
    needs_login = isinstance(error, ProviderError) and error.kind is ErrorKind.AUTH
    code = AUTH_REQUIRED if needs_login or _lacks_key(error) else INTERNAL_ERROR
    return RpcError(code, " ".join(str(error).split()))


def _lacks_key(error: AgentError) -> bool:
    return isinstance(error, ConfigError) and "auth login" in error.advice


class EditorSession:
    """See the module. ``models`` can be chosen, the ready ones of ``app``."""

    def __init__(
        self,
        session: Session,
        updates: SessionUpdates,
        send: Callable[[Json], None],
        models: Sequence[ModelInfo],
    ) -> None:
        self.session = session
        self.updates = updates
        self._send = send
        self._models = models
        self._prompts: list[_Waiting] = []
        self._turns = asyncio.Lock()
        self._terminal: TerminalEvent | None = None
        self._last: str | RpcError = "end_turn"
        self._next_model: str | None = None
        self._told_mode = session.mode
        self._told_model = session.model.id
        session.add_listener(self._on_event)

    # --- prompts ---------------------------------------------------------------------------------

    async def prompt(self, request: RequestId, blocks: object) -> Json:
        """Run what the user says; the protocol's answer. Raises ``RpcError``."""
        content = read_prompt(blocks)
        if len(self._prompts) >= MAX_PROMPTS:
            raise bad_params(f"{MAX_PROMPTS} prompts wait already; wait for one of them")
        waiting = _Waiting(request)
        self._prompts.append(waiting)
        try:
            return {"stopReason": await self._answer(waiting, content)}
        finally:
            self._prompts.remove(waiting)

    def cancel(self, request: RequestId | None = None) -> bool:
        """Cancel all prompts, or that of ``request``; the second time nothing is waited for."""
        found = [each for each in self._prompts if request in {None, each.request}]
        for waiting in found:
            waiting.token.cancel(CancelReason.USER, force=waiting.token.cancelled)
        return bool(found)

    async def _answer(self, waiting: _Waiting, content: PromptContent) -> str:
        await self._steer(waiting, content)
        async with self._turns:
            if waiting.token.cancelled:
                if waiting.row is not None:
                    await self.session.drop_queued(waiting.row)
                return CANCELLED
            if waiting.row is not None and waiting.row not in self._queued():
                return self._ended()  # the turn that has just ended took it up
            try:
                self._last = await self._turn(waiting, content)
            except RpcError as error:
                self._last = error
            return self._ended()

    def _ended(self) -> str:
        """How the last turn ended, for each of its prompts."""
        if isinstance(self._last, RpcError):
            raise RpcError(self._last.code, self._last.message)
        return self._last

    async def _steer(self, waiting: _Waiting, content: PromptContent) -> None:
        """Let plain words reach the turn that runs, unless something else has to come first."""
        before = self._prompts[: self._prompts.index(waiting)]
        is_plain = not content.parts and not content.text.lstrip().startswith("/")
        runs = self.session.is_running and bool(before)
        if not (runs and is_plain and not any(each.has_own_turn for each in before[1:])):
            waiting.has_own_turn = True
            return
        try:
            waiting.row = (await self.session.enqueue(content.text, QueueKind.STEERING)).id
        except AgentError:  # its turn will meet the same fault, and say so
            waiting.has_own_turn = True

    def _queued(self) -> set[int]:
        rows = self.session.queued()
        return {row for item in rows for row in item.ids}

    async def _turn(self, waiting: _Waiting, content: PromptContent) -> str:
        self._terminal = None
        rows = () if waiting.row is None else (waiting.row,)
        try:
            await self._switch_model()
            summary = await self._run(waiting.token, content, rows)
        except TurnCancelled:
            return CANCELLED
        except AgentError as error:
            for row in rows:
                await self.session.drop_queued(row)
            if waiting.token.cancelled:
                return CANCELLED
            raise rpc_error(error) from error
        finally:
            self.updates.end_turn(time.time())
        if waiting.token.cancelled and summary.outcome is not Outcome.DONE:
            return CANCELLED
        if isinstance(self._terminal, Failed):
            raise rpc_error(self._terminal.error)
        if summary.stop_reason == StopReason.REFUSAL:
            return "refusal"
        return _STOPS.get(summary.outcome, "end_turn")

    async def _run(
        self, token: CancelToken, content: PromptContent, rows: Sequence[int]
    ) -> TurnSummary:
        """A turn of the prompt, or of the command or skill that it calls (CLI-14)."""
        session = self.session
        cwd = session.workspace.cwd
        if content.text.lstrip().startswith("/"):
            from agentcli.app.extensions.calling import find_called, in_force, message_of

            found = find_called(session, content.text)
            if found is not None:
                async with in_force(session, *found):
                    called = await message_of(session, cwd, *found, token)
                    self.updates.begin_turn()
                    return await session.run(Prompt(content.message(called)), token, queued=rows)
        typed = UserMessage((TextPart(content.text),))
        if "@" in content.text:
            typed = await attach(content.text, session.workspace, session.notify)
            typed = await session.with_resources(typed, content.text, token)
        self.updates.begin_turn()
        return await session.run(Prompt(content.message(typed)), token, queued=rows)

    def _on_event(self, event: AgentEvent) -> None:
        if isinstance(event, Done | Cancelled | Failed):
            self._terminal = event
        self.updates.on_event(event)
        self._tell_choices()

    # --- modes and options -----------------------------------------------------------------------

    def modes(self) -> Json:
        """The permission modes, for clients that know no options."""
        available = [
            {"id": str(mode), "name": name, "description": what}
            for mode, (name, what) in _MODES.items()
        ]
        return {"currentModeId": str(self.session.mode), "availableModes": available}

    def options(self) -> list[Json]:
        """Everything that can be chosen, as it is now."""
        session = self.session
        model = self._next_model or session.model.id
        ids = dict.fromkeys((model, session.model.id, *(info.id for info in self._models)))
        efforts = (_MODEL_DEFAULT, *map(str, Effort))
        return [
            _select(
                ("mode", "Mode", "mode"),
                str(session.mode),
                [(str(mode), name, what) for mode, (name, what) in _MODES.items()],
            ),
            _select(("model", "Model", "model"), model, [(each, each, "") for each in ids]),
            _select(
                ("effort", "Effort", "thought_level"),
                str(session.effort or _MODEL_DEFAULT),
                [(each, each.capitalize(), "") for each in efforts],
            ),
        ]

    def set_mode(self, name: str) -> None:
        """Switch the permission mode; raises ``RpcError``."""
        try:
            self.session.set_mode(PermissionMode(name))
        except ValueError:
            known = ", ".join(PermissionMode)
            raise bad_params(f"{name!r} is no mode; one of: {known}") from None
        self._tell_choices()

    async def set_option(self, name: str, value: object) -> Json:
        """Set an option; the protocol's answer. Raises ``RpcError``."""
        known = {option["id"]: option for option in self.options()}
        if name not in known:
            raise bad_params(f"{name!r} is no option; one of: {', '.join(known)}")
        values = [each["value"] for each in known[name]["options"]]
        if value not in values:
            raise bad_params(f"{value!r} is no {name}; one of: {', '.join(values[:20])}")
        if name == "mode":
            self.set_mode(str(value))
        elif name == "effort":
            self.session.set_effort(None if value == _MODEL_DEFAULT else Effort(str(value)))
        else:
            self._next_model = str(value)
            if not self._turns.locked():
                async with self._turns:
                    try:
                        await self._switch_model()
                    except AgentError as error:
                        raise bad_params(" ".join(str(error).split())) from error
        return {"configOptions": self.options()}

    async def _switch_model(self) -> None:
        """To what was chosen, also while a turn ran."""
        name, self._next_model = self._next_model, None
        if name is not None and name != self.session.model.id:
            await self.session.switch_model(name)
        self._told_model = self.session.model.id

    def _tell_choices(self) -> None:
        """What has changed without the client, or in a way that only half of it has seen."""
        session = self.session
        if session.mode is not self._told_mode:
            self._told_mode = session.mode
            mode = {"sessionUpdate": "current_mode_update", "currentModeId": str(session.mode)}
            self._send(mode)
        elif session.model.id == self._told_model:
            return
        self._told_model = session.model.id
        self._send({"sessionUpdate": "config_option_update", "configOptions": self.options()})

    async def aclose(self) -> None:
        """Cancel what runs, wait for its end, close the session."""
        self.cancel()
        async with self._turns:
            pass
        await self.session.aclose()


def _select(
    named: tuple[str, str, str], current: str, values: Sequence[tuple[str, str, str]]
) -> Json:
    option, name, category = named
    options = []
    for value, label, what in values:
        one: Json = {"value": value, "name": label}
        if what:
            one["description"] = what
        options.append(one)
    return {
        "id": option,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": options,
    }


# --- what a session asks its user ----------------------------------------------------------------


@mutable
class Asking:
    """How the client is asked. ``write_down`` keeps a rule for every session.

    What a session knows only when it is open is set then.
    """

    cwd: Path
    request: Callable[[str, Mapping[str, Any]], Awaitable[Any]]
    write_down: Callable[[str], Awaitable[None]]
    session_id: str = ""
    interrupt: Callable[[], object] = bool
    notify: Callable[[str], object] = bool
    tell: Callable[[Json], object] = bool


class ClientApprover:
    """Approvals by ``session/request_permission``."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """The answer: yes, yes for more than this call, or no.

        A call of a sub-agent is told of here alone, so its end is, too.
        """
        if not request.within:
            return await self._ask(request)
        end = {"sessionUpdate": "tool_call_update", "toolCallId": _id_of(request)}
        status = "failed"
        try:
            answer = await self._ask(request)
            if answer.verdict in {Verdict.ONCE, Verdict.SESSION, Verdict.AUTO}:
                status = "completed"
        finally:
            self._asking.tell({**end, "status": status})
        return answer

    async def _ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        choices = _choices(request)
        params = {
            "sessionId": self._asking.session_id,
            "toolCall": _asked(request, self._asking.cwd),
            "options": [
                {"optionId": option, "name": name[:_MAX_NAME], "kind": kind}
                for option, (name, kind, _) in choices.items()
            ],
        }
        try:
            result = await self._asking.request("session/request_permission", params)
        except ConnectionClosed:
            return ApprovalAnswer(Verdict.UNATTENDED, _GONE)
        except RpcError as error:
            said = one_line(error.message, _MAX_NAME)
            return ApprovalAnswer(Verdict.NO, f"The approval failed: {said}")
        outcome = result.get("outcome") if isinstance(result, dict) else None
        outcome = as_object(outcome)
        if outcome.get("outcome") == "cancelled":
            self._asking.interrupt()
            return ApprovalAnswer(Verdict.NO)
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        if not isinstance(chosen, str) or chosen not in choices:
            return _REFUSAL[2]
        _, _, answer = choices[chosen]
        if chosen.startswith("always"):
            return await self._written_down(answer)
        return answer

    async def _written_down(self, answer: ApprovalAnswer) -> ApprovalAnswer:
        try:
            await self._asking.write_down(answer.rule)
        except (AgentError, OSError) as error:
            self._asking.notify(f"yes, for this session; the rule could not be written: {error}")
        return answer


_Choice = tuple[str, str, ApprovalAnswer]
_REFUSAL: _Choice = ("Reject", "reject_once", ApprovalAnswer(Verdict.NO))


def _choices(request: ApprovalRequest) -> dict[str, _Choice]:
    """What can be answered, by the option's id: the offers of the chat."""
    once = ApprovalAnswer(Verdict.ONCE)
    if request.is_plan:
        found: dict[str, _Choice] = {
            "once": ("Carry it out; what changes something asks", "allow_once", once)
        }
        for offer in request.offers[:1]:
            yes = ApprovalAnswer(Verdict.SESSION, rule=offer.rule)
            found["session"] = (f"Carry it out, and {reveal(offer.rule)}", "allow_always", yes)
        found["reject"] = ("Keep planning", "reject_once", ApprovalAnswer(Verdict.NO))
        return found
    found = {
        "once": ("Allow for this session" if request.per_session else "Allow", "allow_once", once)
    }
    for number, offer in enumerate(request.offers, 1):
        yes = ApprovalAnswer(Verdict.SESSION, rule=offer.rule)
        rule = _told(offer.rule)
        if offer.session and not request.per_session:
            found[f"session-{number}"] = (f"Allow for this session: {rule}", "allow_always", yes)
        if offer.always:
            found[f"always-{number}"] = (f"Always allow: {rule}", "allow_always", yes)
    if request.offers_auto:
        what = "Allow, and do not ask for commands that stay in the sandbox"
        found["auto"] = (what, "allow_always", ApprovalAnswer(Verdict.AUTO))
    found["reject"] = _REFUSAL
    return found


def _told(rule: str) -> str:
    """A rule in one line; one without its end would be another: of a long one what it comes to."""
    told = reveal(rule).replace("\n", "<U+000A>")
    if len(told) <= MAX_RULE and ("\n" not in rule or rule.endswith("*)")):
        return told
    if not rule.endswith("*)"):
        return f"{rule.partition('(')[0]}: this very call"
    half = MAX_RULE // 2 - _CUT_NOTE
    left_out = len(told) - 2 * half
    return f"{told[:half]}<{left_out:,} characters are not shown here>{told[-half:]}"


def _id_of(request: ApprovalRequest) -> str:
    """The call's id; that of a sub-agent's call might be one of the session's, too."""
    return f"{request.within}/{request.call.id}" if request.within else request.call.id


def _asked(request: ApprovalRequest, cwd: Path) -> Json:
    """The call as it is: what would run or change, and why it asks."""
    call = request.call
    is_edit = call.name in EDITS
    changes, rest_of_it = changes_and_rest(request.detail, cwd) if is_edit else ([], [])
    content: list[Json] = diff_content(changes)
    if request.is_plan:
        content = [text_content(reveal(request.detail))]
    elif changes and rest_of_it:
        content.append(exact("\n".join(rest_of_it)))
    elif not changes:
        command = call.arguments.get("command")
        if isinstance(command, str):
            content.append(exact(command, "sh" if call.name == BASH else ""))
        if rest := request.beside_command.strip("\n"):
            content.append(exact(rest))
    if request.reason and not request.is_plan:
        content.append(text_content(f"Why it asks: {reveal(one_line(request.reason))}"))
    asked: Json = {
        "toolCallId": _id_of(request),
        "title": "Carry out this plan?" if request.is_plan else title_of(request.summary, call),
        "kind": tool_kind(call.name),
        "status": "pending",
        "rawInput": bounded(call.arguments),
        "content": content,
    }
    if places := locations_of(call, cwd, changes):
        asked["locations"] = places
    return asked


class ClientAsker:
    """Questions by ``elicitation/create``, for clients that offer forms."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """The user's answer; empty when there was none."""
        properties: Json = {}
        if options:
            choices = [{"const": each, "title": reveal(one_line(each))} for each in options]
            properties["answer"] = {"type": "string", "title": "Your answer", "oneOf": choices}
            properties[_OTHER] = {"type": "string", "title": "Or say something else"}
        else:
            properties["answer"] = {"type": "string", "title": "Your answer"}
        schema: Json = {"type": "object", "properties": properties}
        if not options:
            schema["required"] = ["answer"]
        params = {
            "sessionId": self._asking.session_id,
            "mode": "form",
            "message": reveal(question),
            "requestedSchema": schema,
        }
        try:
            result = await self._asking.request("elicitation/create", params)
        except (ConnectionClosed, RpcError):
            return ""
        given = result.get("content") if isinstance(result, dict) else None
        if not isinstance(given, dict) or result.get("action") != "accept":
            return ""
        said = given.get(_OTHER) or given.get("answer")
        return said.strip() if isinstance(said, str) else ""

    async def offer(self, error: ProviderError, delay_s: float) -> bool:
        """Whether to wait for a rate limit that lasts (STR-2)."""
        del delay_s
        question = f"{error.message}; {error.advice}. Wait for it?"
        return await self.ask(question, (_WAIT, _STOP)) == _WAIT


class ClientFiles:
    """Files by ``fs/read_text_file``, for clients that offer it: what is unsaved counts."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def read(self, path: Path) -> str | None:
        """The text as the editor has it; ``None`` when it does not say in time."""
        params = {"sessionId": self._asking.session_id, "path": str(path)}
        if await asyncio.to_thread(_is_large, path):
            return None
        try:
            async with asyncio.timeout(READ_S):
                result = await self._asking.request("fs/read_text_file", params)
        except (ConnectionClosed, RpcError, TimeoutError):
            return None
        content = result.get("content") if isinstance(result, dict) else None
        return content if isinstance(content, str) else None


def _is_large(path: Path) -> bool:
    try:
        return path.stat().st_size > MAX_OPEN_BYTES
    except (OSError, ValueError):
        return True
