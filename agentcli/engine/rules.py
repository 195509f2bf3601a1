"""Permission rules: ``tool`` or ``tool(pattern)`` (SEC-3).

What a pattern is matched with depends on the tool: the command for ``bash``, the resolved
paths for file tools, the host for tools that fetch. Law: an allow rule covers the whole call
or nothing of it, a deny rule covers any part. ``bash(git diff *)`` does not allow
``git diff; rm -rf x``; ``bash(rm *)`` denies it, and ``sudo rm -rf x`` as well.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from agentcli.domain.errors import UsageError
from agentcli.domain.tools import real_path
from agentcli.domain.values import frozen

_RULE = re.compile(r"(?P<tool>[A-Za-z0-9_*?-]+)(?:\((?P<pattern>.+)\))?", re.DOTALL)
_PLAIN_COMMAND = re.compile(r"[A-Za-z0-9_@%+=:,./ '\"-]*")
_GLOB_CHARACTERS = re.compile(r"[*?]")

# how a shell text falls apart into commands, for deny rules; generous on purpose
_SEPARATORS = re.compile(r"[;&|\n\r(){}`]|\$\(")
_REDIRECTION = re.compile(r"[0-9]*(?:<<<|<<-?|>>|<>|>\||[<>])&?[ \t]*[^ \t<>]*")
_QUOTING = re.compile(r"\\\n|\$(?=['\"])|['\"\\]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=.*", re.DOTALL)
_MAX_JUDGED = 100_000
_LONGEST_WRITTEN = 500
_ANY_PATTERN = re.compile(r"[*?\[\]]")
_KEYWORDS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "time", "coproc"})
_RUNS_OTHERS = frozenset(
    {
        "bash", "builtin", "busybox", "chroot", "command", "dash", "doas", "env", "eval", "exec",
        "find", "flock", "ionice", "ksh", "nice", "nohup", "nsenter", "parallel", "script",
        "setsid", "sh", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset",
        "timeout", "unshare", "watch", "xargs", "zsh",
    }
)  # fmt: skip


@frozen
class Rule:
    """A parsed rule. ``pattern`` of ``None`` covers every call of the tool.

    ``exact`` makes the pattern this very text, in which ``*`` and ``?`` are themselves; only a
    final ``/**`` of a path then stands for all below it.
    """

    tool: str
    pattern: str | None = None
    exact: bool = False

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


@frozen
class Subject:
    """What a rule looks at: the tool and what the call is about.

    ``paths`` are resolved, ``text`` is a command, ``host`` comes from ``host_of``.
    """

    tool: str
    paths: tuple[Path, ...] = ()
    text: str | None = None
    host: str | None = None
    root: Path = Path("/")


def parse_rule(text: str) -> Rule:
    """``text`` as a rule; raises ``UsageError`` with an example when it is none."""
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"not a permission rule: {text!r}",
            "write it like edit_file(src/**) or bash(git diff *)",
        )
    return Rule(match["tool"], match["pattern"])


def lasting_rule(rule: Rule) -> str:
    """``rule`` as it may be written down for ever; empty where that would cover more (UI-7).

    A written rule is a pattern: one made of a text with pattern characters in it would not be
    this very text any more.
    """
    text = str(rule)
    literal = (rule.pattern or "").removesuffix("/**")
    if rule.pattern is None or not literal or not text.isprintable():
        return ""
    if _ANY_PATTERN.search(literal) or len(text) > _LONGEST_WRITTEN:
        return ""
    return text if parse_rule(text) == Rule(rule.tool, rule.pattern) else ""


def host_of(url: str) -> str:
    """The host that ``url`` names, lower case; empty where programs could read it differently."""
    if re.search(r"[\\\s\x00-\x1f]", url):
        return ""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def allows(rule: Rule, subject: Subject) -> bool:
    """Whether ``rule`` covers the whole of the call, as an allow rule must."""
    if not fnmatch.fnmatchcase(subject.tool, rule.tool):
        return False
    if rule.pattern is None:
        return True
    if subject.host is not None:
        return _matches_host(subject.host, rule)
    if subject.text is not None:
        literal = rule.exact or "*" not in rule.pattern
        covered = literal or _PLAIN_COMMAND.fullmatch(subject.text) is not None
        return covered and _matches_text(subject.text, rule)
    return bool(subject.paths) and all(
        _matches_path(path, rule, subject.root) for path in subject.paths
    )


def touches(rule: Rule, subject: Subject) -> bool:
    """Whether ``rule`` covers any part of the call, as a deny rule must."""
    if not fnmatch.fnmatchcase(subject.tool, rule.tool):
        return False
    if rule.pattern is None:
        return True
    if subject.host is not None:
        return not subject.host or _matches_host(subject.host, rule)
    if subject.text is not None:
        return _touches_command(subject.text, rule)
    return any(_matches_path(path, rule, subject.root) for path in subject.paths)


def first(rules: Sequence[Rule], subject: Subject, *, whole: bool) -> Rule | None:
    """The first rule that covers the call (``whole``) or any part of it."""
    covers = allows if whole else touches
    return next((rule for rule in rules if covers(rule, subject)), None)


# --- commands ------------------------------------------------------------------------------


def _touches_command(text: str, rule: Rule) -> bool:
    """Whether any part of ``text`` is covered; one too long to tell is, if it names the command."""
    unquoted = _QUOTING.sub("", text)
    start = re.split(r"[*?]", rule.pattern or "", maxsplit=1)[0].split()
    if start and start[0] not in unquoted and start[0] not in text:
        return False
    if len(text) > _MAX_JUDGED:
        return True
    return any(_matches_text(part, rule) for part in _parts_of(text, unquoted))


def _parts_of(text: str, unquoted: str) -> Iterator[str]:
    """The text and whatever in it may be run as a command, without quotes, spaces made one."""
    yield text
    for source in dict.fromkeys((text, unquoted)):
        for piece in dict.fromkeys(_SEPARATORS.split(source)):
            yield piece.strip()
            words = _REDIRECTION.sub(" ", _QUOTING.sub("", piece)).split()
            yield from _commands_in(words)


def _commands_in(words: list[str]) -> Iterator[str]:
    start = 0
    while start < len(words) and (
        words[start] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[start]) is not None
    ):
        start += 1
    if start == len(words):
        return
    yield from _named(words[start:])
    if words[start].rpartition("/")[2] in _RUNS_OTHERS:
        for inner in range(start + 1, min(len(words), start + 100)):
            yield from _named(words[inner:])


def _named(words: list[str]) -> Iterator[str]:
    """A command as written, and by its program's bare name."""
    yield " ".join(words)
    yield " ".join([words[0].rpartition("/")[2], *words[1:]])


def _matches_text(text: str, rule: Rule) -> bool:
    pattern = rule.pattern or ""
    if text == pattern:
        return True
    if rule.exact:
        return False
    if pattern.endswith(" *") and text == pattern[:-2]:
        return True
    return "*" in pattern and fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


# --- hosts ---------------------------------------------------------------------------------


def _matches_host(host: str, rule: Rule) -> bool:
    """Whole labels: ``python.org`` covers ``docs.python.org`` and not ``mypython.org``."""
    pattern = (rule.pattern or "").lower().rstrip(".")
    if not host or rule.exact:
        return bool(host) and host == pattern
    if "*" in pattern:
        return fnmatch.fnmatchcase(host, pattern.replace("[", "[[]"))
    return host == pattern or host.endswith(f".{pattern}")


# --- paths ---------------------------------------------------------------------------------


def _matches_path(path: Path, rule: Rule, root: Path) -> bool:
    pattern = rule.pattern or ""
    if rule.exact:
        return str(path) == pattern or (
            pattern.endswith("/**") and path.is_relative_to(pattern.removesuffix("/**"))
        )
    absolute = str(root / _expanded(pattern))
    candidates = (absolute, _with_real_start(absolute))
    return any(re.fullmatch(_glob_to_regex(glob), str(path)) for glob in candidates)


def _expanded(pattern: str) -> Path:
    try:
        return Path(pattern).expanduser()
    except RuntimeError:  # no such user
        return Path(pattern)


def _with_real_start(pattern: str) -> str:
    """``pattern`` with the links and ``..`` of its part before any ``*`` or ``?`` followed."""
    found = _GLOB_CHARACTERS.search(pattern)
    if found is None:
        return str(real_path(Path(pattern)))
    start, slash, rest = pattern[: found.start()].rpartition("/")
    real = str(real_path(Path(start + slash)))
    return f"{real.rstrip('/')}/{rest}{pattern[found.start() :]}"


def _glob_to_regex(pattern: str) -> str:
    """``**`` crosses directories, ``*`` and ``?`` do not; a final ``/**`` covers the start too."""
    special = {"/**/": "/(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    base = pattern.removesuffix("/**")
    tokens = re.findall(r"/\*\*/|\*\*|\*|\?|[^*?/]+|/", base)
    tail = "(?:/.*)?" if base != pattern else ""
    return "(?s:" + "".join(special.get(t) or re.escape(t) for t in tokens) + tail + ")"
