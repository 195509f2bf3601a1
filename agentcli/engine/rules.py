"""Permission rules: ``tool`` or ``tool(pattern)`` (SEC-3).

What a pattern is matched with depends on the tool: the command for ``bash``, the workspace
paths for file tools, the host for ``web_fetch``. A shell pattern never reaches over an
operator: ``bash(git diff *)`` does not cover ``git diff; rm -rf x``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentcli.domain.errors import UsageError

_RULE = re.compile(r"^(?P<tool>[A-Za-z0-9_*?-]+)(?:\((?P<pattern>.*)\))?$", re.DOTALL)
_PLAIN_COMMAND = re.compile(r"^[A-Za-z0-9_@%+=:,./ '\"-]*$")


@dataclass(frozen=True, slots=True)
class Rule:
    """A parsed rule. ``pattern`` of ``None`` covers every call of the tool."""

    tool: str
    pattern: str | None = None

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a rule looks at: the tool and what the call is about.

    ``paths`` are resolved. ``texts`` are commands or hosts.
    """

    tool: str
    paths: tuple[Path, ...] = ()
    text: str | None = None
    root: Path = Path("/")


def parse_rule(text: str) -> Rule:
    """``text`` as a rule; raises ``UsageError`` with an example when it is none."""
    match = _RULE.match(text.strip())
    if match is None:
        raise UsageError(
            f"not a permission rule: {text!r}",
            "write it like edit_file(src/**) or bash(git diff *)",
        )
    return Rule(match["tool"], match["pattern"] or None)


def allows(rule: Rule, subject: Subject) -> bool:
    """Whether ``rule`` covers the whole of the call, as an allow rule must."""
    if not fnmatch.fnmatchcase(subject.tool, rule.tool):
        return False
    if rule.pattern is None:
        return True
    if subject.text is not None:
        plain = subject.text == rule.pattern or _PLAIN_COMMAND.match(subject.text) is not None
        return plain and _matches_text(subject.text, rule.pattern)
    return bool(subject.paths) and all(
        _matches_path(path, rule.pattern, subject.root) for path in subject.paths
    )


def touches(rule: Rule, subject: Subject) -> bool:
    """Whether ``rule`` covers any part of the call, as a deny rule must."""
    if not fnmatch.fnmatchcase(subject.tool, rule.tool):
        return False
    if rule.pattern is None:
        return True
    if subject.text is not None:
        pieces = [subject.text, *re.split(r"[;&|\n(){}`]|\$\(", subject.text)]
        return any(_matches_text(piece.strip(), rule.pattern) for piece in pieces)
    return any(_matches_path(path, rule.pattern, subject.root) for path in subject.paths)


def first(rules: Sequence[Rule], subject: Subject, *, whole: bool) -> Rule | None:
    """The first rule that covers the call (``whole``) or any part of it."""
    covers = allows if whole else touches
    return next((rule for rule in rules if covers(rule, subject)), None)


def _matches_text(text: str, pattern: str) -> bool:
    if text == pattern:
        return True
    if pattern.endswith(" *") and text == pattern[:-2]:
        return True
    return "*" in pattern and fnmatch.fnmatchcase(text, _escape_brackets(pattern))


def _escape_brackets(pattern: str) -> str:
    return pattern.replace("[", "[[]")


def _matches_path(path: Path, pattern: str, root: Path) -> bool:
    base = Path(pattern).expanduser()
    absolute = str(base if base.is_absolute() else root / base)
    return re.fullmatch(_glob_to_regex(absolute), str(path)) is not None


def _glob_to_regex(pattern: str) -> str:
    """``**`` crosses directories, ``*`` and ``?`` do not."""
    special = {"/**/": "/(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"/\*\*/|\*\*|\*|\?|[^*?/]+|/", pattern)
    return "".join(special.get(token) or re.escape(token) for token in tokens)
