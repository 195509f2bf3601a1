"""A tool call on its way from the model's message to its result, and what the policy says of it.

Law: what hooks have said counts for no more than the user's own word. A hook's "allow" is worth
one yes: it passes no deny rule, no ask rule, no protected place and not plan mode (SEC-3).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.domain.messages import ResultStatus, TextPart, ToolCall
from agentcli.domain.ports import ApprovalRequest, GrantOffer, PermissionMode
from agentcli.domain.sandbox import Access
from agentcli.domain.tools import Asks, OutputKind, Tool, ToolOutput, Workspace
from agentcli.domain.values import frozen, mutable
from agentcli.policy.decision import Answer, CallFacts, CallPlace, Effect

if TYPE_CHECKING:
    from agentcli.domain.extensions.hooks import HookVerdict
    from agentcli.domain.tool_ports import SessionState
    from agentcli.engine.background.launch import Launch
    from agentcli.policy.decision import Decision, Policy, Rule


_WORD = r"[^\s;|&<>()'\"=`$*?{}\[\]]+"
# where git and jq find their settings; git writes to the files that some of these name
_OBEYED = re.compile(r"HOME|XDG_CONFIG_HOME|GIT_.*").fullmatch
SHELL = "shell"
"""The key under which the session keeps what its shells have left."""


@frozen
class ShellPlaces:
    """Where a command would run, ``inside`` the sandbox and ``outside``: two shells (SEC-15)."""

    inside: CallPlace
    outside: CallPlace

    @classmethod
    def seen(
        cls, stored: object, workspace: Workspace, policy: Policy, *, is_beside: bool = False
    ) -> ShellPlaces:
        """Where the shells are that left ``stored`` behind: own directories and PATH (TOOL-11)."""
        known = stored if isinstance(stored, dict) else {}

        def place(shell: object) -> CallPlace:
            left = shell if isinstance(shell, dict) else {}
            variables, cwd = left.get("set"), left.get("cwd")
            named = variables if isinstance(variables, dict) else {}
            path = named.get("PATH")
            place = workspace
            if cwd is not None:
                place = replace(workspace, cwd=Path(cwd if isinstance(cwd, str) else "/"))
            search_path = path if isinstance(path, str | None) else ""
            obeys = any(map(_OBEYED, named))
            return CallPlace(place, policy, search_path, obeys=obeys, is_beside=is_beside)

        outside = place(known.get("outside"))
        inside = replace(place(known.get("inside")), outside=outside.workspace.cwd)
        return cls(inside, outside)

    def place(self, arguments: Mapping[str, Any]) -> CallPlace:
        """That of a command with these arguments."""
        is_inside = self.inside.policy.has_boundary and arguments.get("access") != "outside"
        return self.inside if is_inside else self.outside


class ShellAt:
    """The state of the session, with what its shells had ``left``; satisfies ``SessionState``.

    A run of its own goes where it was judged, whatever commands do since, and moves no shell.
    """

    def __init__(self, state: SessionState, left: object) -> None:
        self._state = state
        self._left = left

    async def get(self, key: str) -> Any:
        """The value, or ``None``."""
        return self._left if key == SHELL else await self._state.get(key)

    async def set(self, key: str, value: Any) -> None:
        """Store ``value``, unless it is the shell's."""
        if key != SHELL:
            await self._state.set(key, value)


def planned_shells(left: object, cwd: str, access: object) -> Mapping[str, Any]:
    """What shells have ``left``, for a command that was approved in ``cwd``.

    What was approved in one directory is not done in another (BG-8), and what may leave the sandbox
    by its ``access`` has no variables that commands inside have set since (SEC-15).
    """
    known = left if isinstance(left, dict) else {}
    foreign = "inside" if access is Access.NETWORK else ""
    fresh: dict[str, Any] = {"set": {}, "unset": []}
    return {
        domain: {**fresh, **(known.get(domain, {}) if domain != foreign else {}), "cwd": cwd}
        for domain in ("inside", "outside")
    }


@mutable
class Job:
    """One call on its way. ``output`` is set when there is an answer to record.

    ``hook`` is what the user's hooks have said of it; ``None`` before they were asked.
    ``gathered_in`` are the mode, and whether commands were contained, when ``facts`` and ``place``
    were gathered.
    ``launch`` is what the call has run in its place: it is judged as that. ``access`` is where the
    policy lets a command run; ``is_free`` from the sandbox is what the user has typed;
    ``is_approved`` is what the user was asked about and has allowed.
    """

    call: ToolCall
    tool: Tool | None = None
    args: Any = None
    summary: str = ""
    effect: Effect = Effect.READ
    is_concurrent: bool = True
    facts: CallFacts | None = None
    place: CallPlace | None = None
    gathered_in: tuple[PermissionMode, bool] | None = None
    output: ToolOutput | None = None
    status: ResultStatus | None = None
    started_at: float | None = None
    tail: str = ""
    is_heard: bool = True
    is_free: bool = False
    is_approved: bool = False
    access: Access | None = None
    hook: HookVerdict | None = None
    launch: Launch | None = None
    offers: Sequence[tuple[GrantOffer, Rule]] = ()

    @property
    def seen(self) -> ToolCall:
        """The call as hooks and the user know it: of the tool that runs, and where it does."""
        call = self.call
        if self.launch is not None and self.launch.is_direct:
            call = self.launch.call(self.call.id)
        if self.launch is None and self.is_led_out:
            call = replace(call, arguments={**call.arguments, "access": str(Access.OUTSIDE)})
        return call

    @property
    def cwd(self) -> Path:
        """Where it runs: a command in its shell's directory."""
        assert self.place is not None  # noqa: S101 - hooks are asked about calls that were read
        return self.place.workspace.cwd

    def take(self, decision: Decision) -> None:
        """Go where the policy has a command run, before the user is asked about that."""
        self.access = decision.access
        if self.is_led_out:
            self.summary += ", outside the sandbox"

    @property
    def is_led_out(self) -> bool:
        """Whether a command is to leave the sandbox although it does not ask to."""
        if self.facts is None or self.place is None or self.access is not Access.OUTSIDE:
            return False
        asks = self.facts.arguments.get("access") == Access.OUTSIDE
        return self.place.policy.has_boundary and not asks

    def acting(self, tool: Tool) -> tuple[Tool, Any, Mapping[str, Any], str]:
        """What the call is judged as: tool, arguments (both ways), the tool that it came by."""
        if self.launch is None:
            return tool, self.args, self.call.arguments, ""
        return self.launch.tool, self.launch.args, self.launch.arguments, self.call.name

    def look(self, tool: Tool, shell: ShellPlaces, workspace: Workspace) -> None:
        """Gather what the policy looks at: what the call does, and where. Runs the tool's code."""
        from agentcli.policy.judge import effect_of, moves_shell

        acting, args, arguments, via = self.acting(tool)
        definition = acting.definition
        place = shell.place(arguments)
        if definition.name != "bash":
            place = replace(place, workspace=workspace)
        self.summary = tool.summary(self.args)
        paths = acting.paths(args, place.workspace)
        if self.place is not None and self.cwd != place.workspace.cwd and self.hook is not None:
            from agentcli.domain.extensions.hooks import allowing_nothing

            self.hook = allowing_nothing(self.hook)  # its yes was about the other directory
        self.facts, self.place = CallFacts(definition, arguments, paths, via), place
        self.gathered_in = place.policy.mode, place.policy.contained
        self.effect = effect_of(self.facts, place)
        known_to_read = self.effect is Effect.READ and not definition.only_reads
        known_to_read = known_to_read and not moves_shell(self.facts)
        starts = self.launch is not None and not self.launch.is_direct
        reads_along = known_to_read and not starts  # a start is seen by what comes after
        self.is_concurrent = tool.definition.concurrent or reads_along

    def is_outdated(self, shell: ShellPlaces) -> bool:
        """Whether the mode or the sandbox was switched since, or the shell has moved."""
        if self.place is None:
            return False
        policy = self.place.policy
        return self.gathered_in != (policy.mode, policy.contained) or self.has_moved(shell)

    def has_moved(self, shell: ShellPlaces) -> bool:
        """Whether a command would run elsewhere than where it was judged (SEC-4, SEC-6)."""
        if self.facts is None or self.place is None or self.facts.definition.name != "bash":
            return False
        now, then = shell.place(self.facts.arguments), self.place
        return (now.workspace.cwd, now.search_path, now.obeys) != (
            then.workspace.cwd,
            then.search_path,
            then.obeys,
        )

    def decision(self, facts: CallFacts, place: CallPlace) -> Decision:
        """The policy's answer, with what hooks have said of the call."""
        from agentcli.policy.judge import judge

        if (said := self.hook) is None:
            return judge(facts, place)
        from agentcli.domain.extensions.hooks import Permission

        if said.permission is Permission.ALLOW:
            place = replace(place, is_vouched_for=self._leads_where_told(facts, place))
        decision = judge(facts, place)
        if said.permission is not Permission.ASK or decision.answer is not Answer.ALLOW:
            return decision
        return replace(decision, answer=Answer.ASK, reason=f"a hook asks: {said.reason}")

    def _leads_where_told(self, facts: CallFacts, place: CallPlace) -> bool:
        """Whether the files are those that hooks were told of: no link leads elsewhere (SEC-5)."""
        from agentcli.domain.extensions.claude_calls import PATHS, as_claude

        cwd = place.workspace.cwd
        call = replace(self.call, name=facts.definition.name, arguments=dict(facts.arguments))
        told = {str(each.arguments.get(name)) for each in as_claude(call, cwd) for name in PATHS}
        return all(str(path) in {*told, str(cwd)} for path in facts.paths)

    def may_be_read(self, reader: Tool | None) -> bool:
        """Whether ``reader`` could read unasked what the call names: its failure tells no more."""
        from agentcli.policy.judge import judge

        if reader is None or self.facts is None or self.place is None or not self.facts.paths:
            return False
        reads = (
            CallFacts(reader.definition, {"path": str(path)}, (path,)) for path in self.facts.paths
        )
        return all(judge(each, self.place).answer is Answer.ALLOW for each in reads)

    def question(
        self, facts: CallFacts, place: CallPlace, decision: Decision, detail: str
    ) -> ApprovalRequest:
        """What the user is asked, with the rules that they may grant."""
        from agentcli.policy.grants import offers_of

        self.offers = offers_of(facts, place, decision)
        return ApprovalRequest(
            self.seen,
            self.summary,
            detail,
            decision.why,
            tuple(offer for offer, _ in self.offers),
            offers_auto=decision.auto_frees and not place.policy.auto_offered,
            per_session=bool(self.offers) and facts.definition.asks is Asks.SESSION,
        )

    def granted(self, chosen: str) -> Rule | None:
        """The rule of the question that the user has chosen; raises ``UsageError``."""
        from agentcli.policy.grants import granted_rule

        rule = granted_rule(self.offers, chosen)
        is_inside = self.access not in {None, Access.OUTSIDE}
        return replace(rule, is_inside=is_inside) if rule is not None else None

    def touched(self) -> Sequence[Path]:
        """The files that it has named and got; of a command, words that look like paths."""
        if self.facts is None or self.output is None or self.output.kind is not OutputKind.SUCCESS:
            return ()
        command = self.facts.arguments.get("command")
        if self.place is None or self.facts.paths or not isinstance(command, str):
            return self.facts.paths
        if "/" not in command and "." not in command:
            return ()
        words = re.findall(_WORD, command)
        named = (word for word in words if "/" in word.strip("/") or "." in word)
        return [self.place.workspace.resolve(word) for word in named]

    @property
    def runs_at(self) -> Access | None:
        """Where a command of it runs; what the user has typed runs outside."""
        return Access.OUTSIDE if self.is_free else self.access

    @property
    def changes_nothing(self) -> bool:
        """Whether what comes after it finds all as it was, the shell's directory too."""
        return self.effect is Effect.READ and self.is_concurrent

    @property
    def kept_back(self) -> Callable[[Path], bool] | None:
        """Which files below those that it names a rule is about."""
        from agentcli.policy.judge import kept_back

        return kept_back(self.facts, self.place) if self.facts and self.place else None

    @property
    def elapsed_s(self) -> float:
        """Seconds since it started to run; 0 when it has not."""
        return 0.0 if self.started_at is None else time.monotonic() - self.started_at


def text_of(output: ToolOutput) -> str:
    """The first text of an output."""
    with contextlib.suppress(StopIteration):
        return next(part.text for part in output.parts if isinstance(part, TextPart))
    return ""


async def guarded(work: Callable[..., Awaitable[ToolOutput]], *arguments: Any) -> ToolOutput:
    """Do a tool's work; what it raises, or returns that is no output, is a fault of ours."""
    try:
        output: object = await work(*arguments)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the tools' border: not even an exit passes
        return ToolOutput.internal_error(error)
    if isinstance(output, ToolOutput) and output.parts:
        return output
    return ToolOutput.internal_error(TypeError(f"not a tool's output: {type(output).__name__}"))
