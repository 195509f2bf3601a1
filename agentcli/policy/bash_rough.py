"""How a shell text may fall apart into commands, told generously and without a parser.

The net below ``bash_syntax``: for deny rules and for what the parser does not understand. Law: a
command that bash would run is among the parts, as far as it is written out; parts that bash
would not run may be among them too.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

MAX_JUDGED = 100_000
_SEPARATORS = re.compile(r"[;&|\n\r(){}`]|\$\(")
_REDIRECTION = re.compile(r"[0-9]*(?:<<<|<<-?|>>|<>|>\||[<>])&?[ \t]*[^ \t<>]*")
_WRITTEN = re.compile(r"(?:>>|<>|>\||>)&?[ \t]*((?:\"[^\"\n]*\"|'[^'\n]*'|\\.|[^\s<>;&|()\"'])+)")
_QUOTING = re.compile(r"\\\n|\$(?=['\"])|['\"\\]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=.*", re.DOTALL)
_KEYWORDS = frozenset(
    {
        "if", "then", "elif", "else", "while", "until", "do", "!", "time", "coproc", "function",
        "in", "case", "for", "select",
    }
)  # fmt: skip
_RUNS_OTHERS = frozenset(
    {
        "bash", "builtin", "busybox", "chroot", "command", "dash", "doas", "env", "eval", "exec",
        "find", "flock", "ionice", "ksh", "nice", "nohup", "nsenter", "parallel", "script",
        "setsid", "sh", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset",
        "timeout", "unshare", "watch", "xargs", "zsh",
    }
)  # fmt: skip
_MAX_INNER = 100


def unquoted(text: str) -> str:
    """``text`` without quotes, backslashes and joined lines."""
    return _QUOTING.sub("", text)


def parts_of(text: str) -> Iterator[str]:
    """The text and whatever in it may be run as a command, without quotes, spaces made one."""
    yield text
    for source in dict.fromkeys((text, unquoted(text))):
        for piece in dict.fromkeys(_SEPARATORS.split(source)):
            yield piece.strip()
            for words in _commands_in(_REDIRECTION.sub(" ", unquoted(piece)).split()):
                yield " ".join(words)


def word_lists(text: str) -> Iterator[list[str]]:
    """The commands of ``parts_of`` as words."""
    for source in dict.fromkeys((text, unquoted(text))):
        for piece in dict.fromkeys(_SEPARATORS.split(source)):
            yield from _commands_in(_REDIRECTION.sub(" ", unquoted(piece)).split())


def written_names(text: str) -> Iterator[str]:
    """Whatever stands behind a redirection that writes, as it is written."""
    for found in _WRITTEN.finditer(text[:MAX_JUDGED]):
        yield unquoted(found[1])


def matches_pattern(text: str, pattern: str) -> bool:
    """Whether ``pattern`` covers ``text``: ``*`` is any text, a final `` *`` also none."""
    if text == pattern:
        return True
    if pattern.endswith(" *") and text == pattern[:-2]:
        return True
    return "*" in pattern and fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def names_command_of(pattern: str, text: str) -> bool:
    """Whether ``text`` holds the first word of ``pattern`` at all, quoted or not."""
    start = re.split(r"[*?]", pattern, maxsplit=1)[0].split()
    return not start or start[0] in text or start[0] in unquoted(text)


def _commands_in(words: list[str]) -> Iterator[list[str]]:
    start = 0
    while start < len(words) and (
        words[start] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[start]) is not None
    ):
        start += 1
    if start == len(words):
        return
    yield from _named(words[start:])
    if words[start].rpartition("/")[2] in _RUNS_OTHERS:
        for inner in range(start + 1, min(len(words), start + _MAX_INNER)):
            yield from _named(words[inner:])


def _named(words: list[str]) -> Iterator[list[str]]:
    """A command as written, and by its program's bare name."""
    yield words
    yield [words[0].rpartition("/")[2], *words[1:]]
