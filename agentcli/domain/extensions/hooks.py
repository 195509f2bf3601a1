"""Hooks: programs of the user that are told what happens and may have a say in it.

Law: a hook never weakens a rule of the user's policy and never fails a turn: what it does wrong
is a line for the user. The shape (event names, JSON on stdin, exit code 2, the JSON answer) is
the one of https://code.claude.com/docs/en/hooks, https://developers.openai.com/codex/hooks and
https://moonshotai.github.io/kimi-cli/en/customization/hooks.html.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from agentcli.domain.cancel import CancelToken
from agentcli.domain.extensions.claude_calls import PATHS
from agentcli.domain.messages import ToolCall, ToolResult
from agentcli.domain.tools import RunIdentity
from agentcli.domain.values import frozen

DEFAULT_TIMEOUT_S = 60.0
CLAUDE_TIMEOUT_S = 600.0
"""The same for hooks that were written for Claude Code: as there."""
END_TIMEOUT_S = 5.0
"""Seconds for a ``SessionEnd`` hook that sets no time-out: somebody waits to leave."""


class HookEvent(StrEnum):
    """The moments at which hooks are called."""

    SESSION_START = "SessionStart"
    USER_PROMPT_SUBMIT = "UserPromptSubmit"
    PRE_TOOL_USE = "PreToolUse"
    POST_TOOL_USE = "PostToolUse"
    PRE_COMPACT = "PreCompact"
    STOP = "Stop"
    SESSION_END = "SessionEnd"
    NOTIFICATION = "Notification"
    PERMISSION_REQUEST = "PermissionRequest"
    POST_TOOL_USE_FAILURE = "PostToolUseFailure"
    SUBAGENT_START = "SubagentStart"
    SUBAGENT_STOP = "SubagentStop"
    STOP_FAILURE = "StopFailure"
    POST_COMPACT = "PostCompact"


HookFunction = Callable[
    [Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None
]


@frozen
class HookConfig:
    """One hook: a ``command``, or a function of the embedding program that is told the same.

    ``matcher`` is a name, ``a|b`` or a regular expression. ``call`` gets what a command gets as
    JSON on standard input, in a thread unless it is a coroutine function, and returns what a
    command answers as JSON on standard output, or ``None``. ``contained``: its command runs in
    the sandbox, as those of a project do (SEC-17); ``may_allow``: its word frees a call, which that
    of a directory's own programs does only once the user trusts it (SEC-1), and never where it
    ``obeys_files`` that are edited unasked. ``of_project``: it is in the directory, or its script.
    ``variables`` are added to its environment.
    ``is_claude``: it was written for Claude Code and is told of calls as that makes them;
    ``condition`` is its ``if``. Nobody waits for one that is ``unawaited``.
    """

    event: HookEvent
    command: str = ""
    matcher: str = ""
    timeout_s: float | None = None
    source: str = ""
    call: HookFunction | None = None
    contained: bool = False
    may_allow: bool = True
    obeys_files: bool = False
    of_project: bool = False
    variables: tuple[tuple[str, str], ...] = ()
    is_claude: bool = False
    condition: str = ""
    unawaited: bool = False

    @property
    def limit_s(self) -> float:
        """Seconds after which it is stopped.

        At the end of a session the ending is decided and no key stops it any more: its hooks
        are the only ones whose own time is bounded by ours.
        """
        usual_s = CLAUDE_TIMEOUT_S if self.is_claude else DEFAULT_TIMEOUT_S
        wanted_s = usual_s if self.timeout_s is None else self.timeout_s
        return min(wanted_s, END_TIMEOUT_S) if self.event is HookEvent.SESSION_END else wanted_s


class Permission(StrEnum):
    """What a hook says of a call that it does not refuse."""

    ALLOW = "allow"
    ASK = "ask"


@frozen
class HookVerdict:
    """What all hooks of one moment have said, made one.

    ``blocked`` is why the moment is refused, ``stopped`` why the turn should end; both are empty
    where nobody says so. ``context`` is for the model, ``notices`` are lines for the user.
    ``updated_input`` replaces the arguments of a call; ``reason`` belongs to ``permission``.
    """

    blocked: str = ""
    stopped: str = ""
    context: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    permission: Permission | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None


SILENT = HookVerdict()
_AFTER_TOOL = frozenset({HookEvent.POST_TOOL_USE, HookEvent.POST_TOOL_USE_FAILURE})
_IN_PATCH = re.compile(
    r"(?m)^(?:\*\*\* [A-Z][A-Za-z ]{1,20}: |(?:\+\+\+|---) (?:[ab]/)?)([^\n\t]+)"
)
_MOVED = (
    "hooks that are told of a file ran in the sandbox: what was left running there could have the "
    "file's name lead elsewhere"
)


def merged(verdicts: Sequence[HookVerdict]) -> HookVerdict:
    """All verdicts as one: a refusal wins, then asking; the last changed arguments count."""
    if not verdicts:
        return SILENT
    asking = [v for v in verdicts if v.permission is Permission.ASK]
    allowing = [v for v in verdicts if v.permission is Permission.ALLOW]
    chosen = next(iter((*asking, *allowing)), SILENT)
    updates = [v.updated_input for v in verdicts if v.updated_input is not None]
    return HookVerdict(
        blocked="\n".join(v.blocked for v in verdicts if v.blocked),
        stopped=next((v.stopped for v in verdicts if v.stopped), ""),
        context=tuple(text for v in verdicts for text in v.context),
        notices=tuple(text for v in verdicts for text in v.notices),
        permission=chosen.permission,
        reason=chosen.reason,
        updated_input=updates[-1] if updates else None,
    )


def of_several(verdicts: Sequence[HookVerdict]) -> HookVerdict:
    """What several hooks have said; a yes is none to the arguments that another has changed."""
    changing = [said for said in verdicts if said.updated_input is not None]
    if not changing or changing[-1].permission is not None:
        return merged(verdicts)
    return merged([allowing_nothing(said) for said in verdicts])


def allowing_nothing(said: HookVerdict) -> HookVerdict:
    """What it has said but for a yes."""
    return replace(said, permission=None) if said.permission is Permission.ALLOW else said


def inside_with_files(
    hooks: Sequence[HookConfig],
    event: HookEvent,
    about: Mapping[str, Any],
    are_steady: Callable[[Iterable[str]], bool],
    cwd: str = "",
) -> tuple[Sequence[HookConfig], str]:
    """``hooks`` as they run on a call ``about`` a file in ``cwd`` that has run; why not outside.

    Where something in the sandbox may write, or has, the name may lead elsewhere by the time that
    they open it (SEC-5). Those before a call run where they can: their refusal counts.
    """
    names = [about[key] for key in PATHS if isinstance(about.get(key), str)]
    names += _IN_PATCH.findall(str(about.get("patch", "")))
    names = [f"{cwd}/{name}" if cwd and name[:1] != "/" else name for name in names]
    is_about_files = event in _AFTER_TOOL and not {*PATHS, "patch"}.isdisjoint(about)
    if not is_about_files or all(hook.contained for hook in hooks) or are_steady(names):
        return hooks, ""
    return [replace(hook, contained=True, may_allow=False) for hook in hooks], _MOVED


class Hooks(Protocol):
    """The user's hooks, as the engine calls them.

    Each call returns when every matching hook has ended; nothing raises but a cancellation of the
    calling task. When ``cancel`` is set the hooks are stopped with everything they started.
    """

    async def prompt_submitted(self, prompt: str, cancel: CancelToken) -> HookVerdict:
        """Before a prompt is recorded; ``context`` goes with it, that of SessionStart too."""

    async def before_tool(self, call: ToolCall, cwd: Path, cancel: CancelToken) -> HookVerdict:
        """Before a call is judged by the policy; ``cwd`` is where it would run."""

    async def permission_requested(
        self, call: ToolCall, cwd: Path, cancel: CancelToken
    ) -> HookVerdict:
        """Before the user is asked about a call: a hook may answer in their place."""

    async def after_tool(
        self, call: ToolCall, cwd: Path, result: ToolResult, cancel: CancelToken
    ) -> HookVerdict:
        """After a call has run and its result is durable."""

    async def before_compaction(
        self, trigger: str, instructions: str, cancel: CancelToken
    ) -> HookVerdict:
        """Before the history is summarised: ``manual`` or ``auto``."""

    async def stopping(self, answer: str, cancel: CancelToken, *, active: bool) -> HookVerdict:
        """Before a turn ends by itself; ``active`` when a hook has already kept it going."""

    def listens(self, event: HookEvent) -> bool:
        """Whether there is any hook for ``event``."""

    def of_run(self, run: RunIdentity) -> Hooks:
        """The same hooks, told that what happens belongs to ``run`` (CTRL-9)."""

    def of_agent(self, name: str, session_id: str, transcript: Path) -> Hooks:
        """The same hooks for a sub-agent: its start and its stop are those of an agent."""
