"""What is judged and what comes of it: a call, the place where it would run, the decision.

A place has the mode and the rules in force. Law: values only, and nothing heavy is imported to have
them: judging (``policy.judge``) begins with the first call of a tool (the import budget).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentcli.domain.errors import UsageError
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import PermissionMode
from agentcli.domain.sandbox import Access, SandboxState
from agentcli.domain.tools import ToolDefinition, Workspace
from agentcli.domain.values import frozen, mutable

EDIT_TOOLS = "edit"
"""The tool of a rule that means every tool that edits the files it names."""
_OPEN_PROGRAM = LazyPattern(r"[^\s:*]+:\*")  # no program's name has a colon
_RULE = LazyPattern(r"(?P<tool>[A-Za-z0-9_*?-]+)(?:\((?P<pattern>.+)\))?", re.DOTALL)


@frozen
class Rule:
    """A parsed rule. ``pattern`` of ``None`` covers every call of the tool.

    ``tool`` is a name, a pattern of names, or ``edit`` for all tools that edit files.

    ``exact`` makes the pattern this very text, in which ``*`` and ``?`` are themselves; only a
    final ``/**`` of a path then stands for all below it. ``source`` says where it was written.
    ``directory``: it holds for commands that are run there alone, as a yes to a command does;
    ``is_inside``: for those that a sandbox keeps alone, as a yes to such a command does.
    """

    tool: str
    pattern: str | None = None
    exact: bool = False
    source: str = field(default="", compare=False)
    directory: Path | None = field(default=None, compare=False)
    is_inside: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


def parse_rule(text: str, source: str = "") -> Rule:
    """``text`` as a rule; raises ``UsageError`` with an example when it is none."""
    match, said = _RULE.fullmatch(text.strip()), f"{source}: " if source else ""
    if match is None:
        raise UsageError(
            f"{said}not a permission rule: {text!r}",
            "write it like edit_file(src/**) or bash(git diff *)",
        )
    rule = Rule(match["tool"], match["pattern"], source=source)
    if (ours := _as_ours(rule)) is not None:
        raise UsageError(
            f"{said}{text.strip()!r} is a rule for another program and would cover nothing here",
            f"write it like {ours}",
        )
    return rule


def _as_ours(rule: Rule) -> Rule | None:
    """``bash(rm *)`` for ``Bash(rm:*)``; ``None``: it is no rule as other programs write them."""
    from agentcli.domain.extensions.claude_calls import ALIASES

    names = {theirs: ours for ours, others in [*ALIASES.items()][::-1] for theirs in others}
    name = names.get(rule.tool) if rule.tool[:1].isupper() else None  # "shell" may be anybody's
    if name in {"edit_file", "write_file", "edit_notebook"}:
        name = EDIT_TOOLS
    pattern = rule.pattern
    if name is None and rule.tool == "bash" and _OPEN_PROGRAM.fullmatch(pattern or ""):
        name = rule.tool
    if name is None:
        return None
    if pattern is not None:
        pattern = re.sub(r":\*\Z", " *", pattern).removeprefix("domain:")
    return Rule(name, pattern)


class Effect(StrEnum):
    """What this very call may change: nothing, the files that it names, anything."""

    READ = "read"
    WRITE = "write"
    EXEC = "exec"


class Answer(StrEnum):
    """May the call run, has the user to be asked, or is it refused?"""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@frozen
class Decision:
    """An answer with its reason; ``rule`` is the rule that made it, if one did.

    ``part`` is the command within a longer one that made it ask. ``lasts``: a "yes" may hold for
    the session; what is protected asks every time. ``access`` is where a command runs once it is
    allowed (``INSIDE`` is the sandbox where there is one); ``None`` for what is no command.
    ``auto_frees``: mode ``auto`` would not ask about it.
    """

    answer: Answer
    reason: str
    rule: Rule | None = None
    effect: Effect = Effect.EXEC
    part: str = ""
    lasts: bool = True
    access: Access | None = None
    auto_frees: bool = False

    @property
    def why(self) -> str:
        """The reason, and of a longer command the part that gave it."""
        return f"{self.reason}: {self.part}" if self.part else self.reason


@mutable
class Policy:
    """The mode and rules in force. ``granted`` grows with each "for this session".

    ``command_rules`` are what a command or skill allows while it is followed: as ``allow``, they
    take no rule of the user's away.
    ``free_to_read`` are places beside the workspace, such as what background runs have made, by
    their real paths.
    ``contained``: a sandbox keeps commands from all but the workspace; ``is_bound``: the user has
    named that sandbox, so that it stays in mode ``yolo`` (SEC-3); ``network``: commands have it
    within that, as the settings say, ``hosts``: those that they reach where they have not;
    ``yolo_twice``: the user has asked twice for no questions, so that destructive commands run as
    well (SEC-14).
    ``roots`` are what is worked in, the worktrees of sub-agents too, of which ``run_by_others``
    says how git or a shell would run or obey a file when the user calls it; empty: neither would
    (SEC-17); ``look_around``, which may take a second and is told the ``PATH`` of the shell
    outside, before a judgement has it answer at once. ``auto_offered``: mode ``auto`` has been
    offered in an approval; ``auto_told``: that nothing contains commands has been said; ``removed``
    are the texts of rules that the user has removed since it began; ``unwritten`` those added, by
    kind, that no file has.
    """

    mode: PermissionMode = PermissionMode.DEFAULT
    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    own_directories: tuple[Path, ...] = ()
    free_to_read: tuple[Path, ...] = ()
    granted: list[Rule] = field(default_factory=list)
    command_rules: list[Rule] = field(default_factory=list)
    contained: bool = False
    is_bound: bool = False
    network: bool = False
    hosts: tuple[str, ...] = ()
    yolo_twice: bool = False
    roots: list[Path] = field(default_factory=list)
    run_by_others: Callable[[Path], str] = lambda _: ""
    look_around: Callable[[str | None], None] | None = None
    auto_offered: bool = False
    auto_told: bool = False
    removed: list[str] = field(default_factory=list)
    unwritten: list[tuple[str, str]] = field(default_factory=list)

    @property
    def granted_here(self) -> tuple[Rule, ...]:
        """What was granted and holds as things are: a yes to what stays inside is none outside."""
        return tuple(rule for rule in self.granted if self.has_boundary or not rule.is_inside)

    @property
    def wants_boundary(self) -> bool:
        """Whether the mode has commands run in a sandbox, where there is one (SEC-3)."""
        return self.mode is not PermissionMode.YOLO or self.is_bound

    @property
    def is_held(self) -> bool:
        """Whether mode ``yolo`` is in force and a sandbox that was named limits every tool."""
        return self.mode is PermissionMode.YOLO and self.is_bound

    @property
    def has_boundary(self) -> bool:
        """Whether commands run in a sandbox unless they ask for more."""
        return self.contained and self.wants_boundary

    def limit_by(self, state: SandboxState) -> None:
        """Judge commands by what limits them."""
        self.contained, self.network, self.hosts = state.is_on, state.network, state.hosts

    def take_auto_notice(self) -> str:
        """What the user is told once where mode ``auto`` has no sandbox to rely on (SEC-3).

        To be asked for when it is known what limits commands.
        """
        if self.mode is not PermissionMode.AUTO or self.contained or self.auto_told:
            return ""
        self.auto_told = True
        return "no sandbox contains commands here: mode auto asks about them, as accept-edits does"

    def add_rules(self, kind: str, texts: Sequence[str], source: str = "") -> None:
        """More rules of ``kind`` ("allow", "deny" or "ask"); raises ``UsageError``."""
        for text in texts:
            rule = parse_rule(text, source)
            setattr(self, kind, (*getattr(self, kind), rule))
            self.removed[:] = [each for each in self.removed if each != str(rule)]

    def remove_rule(self, text: str) -> bool:
        """Forget every rule that reads ``text``; false when there was none."""
        known = (*self.allow, *self.deny, *self.ask, *self.granted)
        for kind in ("allow", "deny", "ask"):
            setattr(self, kind, tuple(rule for rule in getattr(self, kind) if str(rule) != text))
        self.granted[:] = [rule for rule in self.granted if str(rule) != text]
        is_known = any(str(rule) == text for rule in known)
        self.removed += [text] if is_known else []
        self.unwritten[:] = [each for each in self.unwritten if str(parse_rule(each[1])) != text]
        return is_known

    def go_on_as(self, before: Policy) -> None:
        """Take over what the user has chosen since ``before`` began."""
        self.mode = before.mode
        for text in before.removed:
            self.remove_rule(text)
        for kind, text in before.unwritten:
            self.add_rules(kind, [text], "this session")
        self.granted[:], self.unwritten[:] = before.granted, before.unwritten


@frozen
class CallFacts:
    """What is known of a call. ``paths`` are absolute, links not yet followed.

    ``via`` is the tool that was called to have this one run: its own deny and ask rules hold too.
    """

    definition: ToolDefinition
    arguments: Mapping[str, Any]
    paths: tuple[Path, ...] = ()
    via: str = ""


@frozen
class CallPlace:
    """Where a call would run: the workspace, with the mode and rules in force there.

    ``search_path`` is where the session's shell looks for programs, when it was changed; ``obeys``:
    a command has set where programs find their settings.
    ``is_vouched_for``: a hook of the user has allowed this very call. ``outside`` is the directory
    of the shell outside the sandbox, for a command that would run inside. ``is_beside``: it is no
    part of the turn that the user waits for, so what a command allows in that does not count.
    """

    workspace: Workspace
    policy: Policy
    search_path: str | None = None
    obeys: bool = False
    is_vouched_for: bool = False
    outside: Path | None = None
    is_beside: bool = False

    @property
    def trusted_path(self) -> str | None:
        """``search_path`` for what runs unasked; empty: no program is known to do as it should."""
        return "" if self.obeys else self.search_path

    @property
    def allowing(self) -> tuple[Rule, ...]:
        """Every rule by which a call runs unasked."""
        policy = self.policy
        followed = () if self.is_beside else policy.command_rules
        return (*policy.allow, *followed, *policy.granted_here)
