"""The policy: may this call run, must a person be asked, or is it refused? Pure (SEC-3).

Order: deny rules, plan mode, protected places, ask rules, ``yolo``, allow rules and grants of this
session, what the mode makes free; everything else asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentcli.domain.settings import PermissionMode
from agentcli.domain.tools import Effect, ToolDefinition, Workspace, real_path
from agentcli.domain.values import frozen, mutable
from agentcli.engine.read_only_commands import is_read_only
from agentcli.engine.rules import Rule, Subject, first, host_of, parse_rule

_SHELL_FILES = frozenset(
    {
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc",
        ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login",
        ".bash_aliases", ".xprofile", ".xinitrc", ".xsessionrc", ".pam_environment", ".inputrc",
        "config.fish", ".netrc", ".npmrc", ".pypirc", ".gitconfig", ".git-credentials", ".envrc",
        ".pgpass", ".my.cnf", ".vault-token",
    }
)  # fmt: skip
_SECRET_DIRECTORIES = frozenset(
    {".ssh", ".gnupg", ".aws", ".kube", ".docker", ".agentcli", ".agents"}
)


class Answer(StrEnum):
    """What the policy says."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@frozen
class Decision:
    """An answer with its reason; ``rule`` is the rule that made it, if one did."""

    answer: Answer
    reason: str
    rule: Rule | None = None
    effect: Effect = Effect.EXEC


@mutable
class Policy:
    """The mode and rules in force. ``granted`` grows with each "for this session"."""

    mode: PermissionMode = PermissionMode.DEFAULT
    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    own_directories: tuple[Path, ...] = ()
    granted: list[Rule] = field(default_factory=list)

    @classmethod
    def from_texts(
        cls,
        mode: PermissionMode,
        allow: Sequence[str],
        deny: Sequence[str],
        ask: Sequence[str] = (),
    ) -> Policy:
        """A policy of rules as a person writes them; raises ``UsageError``."""
        allowed, denied, asked = (tuple(map(parse_rule, texts)) for texts in (allow, deny, ask))
        return cls(mode, allowed, denied, asked)


@frozen
class CallFacts:
    """What the policy knows of a call. ``paths`` are absolute, links not yet followed.

    ``search_path`` is where the session's shell looks for programs, when it was changed.
    """

    definition: ToolDefinition
    arguments: Mapping[str, Any]
    paths: tuple[Path, ...]
    workspace: Workspace
    search_path: str | None = None


def decide(facts: CallFacts, policy: Policy) -> Decision:
    """The decision for one call: the first of the checks below that has an opinion."""
    judged = _Judged(facts, policy, subject_of(facts), effect_of(facts))
    for check in _CHECKS:
        if decision := check(judged):
            return decision
    reason = "it runs a command" if judged.effect is Effect.EXEC else "it changes files"
    return judged.because(Answer.ASK, reason)


@frozen
class _Judged:
    facts: CallFacts
    policy: Policy
    subject: Subject
    effect: Effect

    def because(self, answer: Answer, reason: str, rule: Rule | None = None) -> Decision:
        return Decision(answer, reason, rule, self.effect)


def _by_deny_rule(judged: _Judged) -> Decision | None:
    rule = first(judged.policy.deny, judged.subject, whole=False)
    return judged.because(Answer.DENY, f"denied by the rule {rule}", rule) if rule else None


def _by_ask_rule(judged: _Judged) -> Decision | None:
    """Asks whatever the mode and the other rules allow, until this session was granted it."""
    rule = first(judged.policy.ask, judged.subject, whole=False)
    if rule is None or first(judged.policy.granted, judged.subject, whole=True):
        return None
    return judged.because(Answer.ASK, f"asked for by the rule {rule}", rule)


def _by_plan_mode(judged: _Judged) -> Decision | None:
    if judged.policy.mode is PermissionMode.PLAN and judged.effect is not Effect.READ:
        return judged.because(Answer.DENY, "plan mode allows reads only")
    return None


def _by_protection(judged: _Judged) -> Decision | None:
    if judged.facts.definition.always_ask:
        return judged.because(Answer.ASK, "this tool always asks")
    paths = (*judged.facts.paths, *judged.subject.paths)
    if judged.effect is Effect.WRITE and (place := _protected(paths, judged.policy)):
        return judged.because(Answer.ASK, f"{place} is protected")
    return None


def _by_yolo(judged: _Judged) -> Decision | None:
    if judged.policy.mode is PermissionMode.YOLO:
        return judged.because(Answer.ALLOW, "everything is allowed in yolo mode")
    return None


def _by_allow_rule(judged: _Judged) -> Decision | None:
    rules = (*judged.policy.allow, *judged.policy.granted)
    rule = first(rules, judged.subject, whole=True)
    return judged.because(Answer.ALLOW, f"allowed by the rule {rule}", rule) if rule else None


def _by_mode(judged: _Judged) -> Decision | None:
    facts = judged.facts
    edits_are_free = judged.policy.mode is PermissionMode.ACCEPT_EDITS and bool(facts.paths)
    if judged.effect is Effect.EXEC or (judged.effect is Effect.WRITE and not edits_are_free):
        return None
    for path in facts.paths:
        if not facts.workspace.contains(path):
            return judged.because(Answer.ASK, f"{path} is outside the workspace")
    what = "reads" if judged.effect is Effect.READ else "edits"
    return judged.because(Answer.ALLOW, f"{what} inside the workspace are free")


_CHECKS = (
    _by_deny_rule,
    _by_plan_mode,
    _by_protection,
    _by_ask_rule,
    _by_yolo,
    _by_allow_rule,
    _by_mode,
)


def effect_of(facts: CallFacts) -> Effect:
    """The effect of this very call: a command known to be read-only is a READ (LOOP-4)."""
    command = facts.arguments.get("command")
    if facts.definition.name == "bash" and isinstance(command, str):
        known = is_read_only(command, facts.workspace, facts.search_path)
        return Effect.READ if known else Effect.EXEC
    return facts.definition.effect


def subject_of(facts: CallFacts) -> Subject:
    """What rules are matched with."""
    command, url = facts.arguments.get("command"), facts.arguments.get("url")
    return Subject(
        tool=facts.definition.name,
        paths=tuple(map(real_path, facts.paths)),
        text=command if isinstance(command, str) else None,
        host=host_of(url) if isinstance(url, str) else None,
        root=real_path(facts.workspace.root),
    )


def session_rule(facts: CallFacts, policy: Policy) -> Rule:
    """What "yes, for this session" allows, and nothing beside it.

    This very command or host; this tool in the workspace; where that is not what was asked
    about (a protected or an outside place), this tool and this very path.
    """
    subject = subject_of(facts)
    name = facts.definition.name
    text = subject.host if subject.host is not None else subject.text
    if text is not None:
        return Rule(name, text, exact=True)
    if not subject.paths:
        return Rule(name)
    inside = all(facts.workspace.contains(path) for path in facts.paths)
    if inside and not _protected((*facts.paths, *subject.paths), policy):
        return Rule(name, f"{subject.root}/**", exact=True)
    return Rule(name, str(subject.paths[0]), exact=True)


def _protected(paths: Sequence[Path], policy: Policy) -> str | None:
    """Places that are never written without asking, whatever the mode."""
    for path in paths:
        parts = [part.casefold() for part in path.parts]
        if ".git" in parts:
            return "git's own directory"
        if path.name.casefold() in _SHELL_FILES or not _SECRET_DIRECTORIES.isdisjoint(parts):
            return path.name
        if any(path.is_relative_to(real_path(own)) for own in policy.own_directories):
            return "agentcli's own directory"
    return None
