"""Read-only uses of programs whose words have a language of their own: ``find``, ``sed``, ``jq``…

Law: each function knows every word that it lets pass; the rest is not read-only (SEC-4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# may the file at this path be read unasked?
Readable = Callable[[str], bool]

_FIND_ALONE = frozenset(
    {
        "-print", "-print0", "-ls", "-prune", "-not", "-a", "-and", "-o", "-or", "!", "(", ")",
        ",", "-empty", "-true", "-false", "-depth", "-d", "-xdev", "-mount", "-daystart",
        "-noleaf", "-executable", "-readable", "-writable", "-nouser", "-nogroup", "-quit",
        "-ignore_readdir_race", "-noignore_readdir_race", "-nowarn", "-warn",
    }
)  # fmt: skip
_FIND_WITH_TEXT = frozenset(
    {
        "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex",
        "-regextype", "-type", "-xtype", "-size", "-mtime", "-atime", "-ctime", "-mmin", "-amin",
        "-cmin", "-maxdepth", "-mindepth", "-perm", "-user", "-group", "-uid", "-gid", "-links",
        "-inum", "-printf", "-lname", "-ilname", "-used", "-fstype", "-newermt", "-newerat",
        "-newerct",
    }
)  # fmt: skip
_FIND_WITH_FILE = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})
_FIND_FIRST = frozenset({"-H", "-P", "-O0", "-O1", "-O2", "-O3"})
_SED_ADDRESS = r"(?:[0-9]+|\$|/[\w .:=^$*@#,-]+/)"
_SED_COMMAND = rf"(?:{_SED_ADDRESS}(?:,(?:\+?[0-9]+|{_SED_ADDRESS}))?)?p"
_SED_SCRIPT = re.compile(rf"{_SED_COMMAND}(?:; *{_SED_COMMAND})*;?", re.ASCII)
_SED_FLAGS = frozenset({"-n", "--quiet", "--silent", "-E", "-r", "-nE", "-nr", "-En", "-rn"})
_JQ_FLAGS = frozenset(
    {
        "--raw-output", "--compact-output", "--slurp", "--null-input", "--exit-status",
        "--join-output", "--ascii-output", "--sort-keys", "--monochrome-output", "--color-output",
        "--raw-input", "--tab",
    }
)  # fmt: skip
_JQ_LETTERS = re.compile(r"-[rcsnejaSMCR]+")
_JQ_UNSAFE = re.compile(r"env|ENV|import|include|modulemeta|input_filename|\$__|getpath/0")
_DATE_FLAGS = re.compile(
    r"-[uR]+|-I(date|hours|minutes|seconds|ns)?|--utc|--universal|--rfc-email"
    r"|--iso-8601(=\w+)?|--rfc-3339=\w+|--date=.*|--help|--version",
    re.DOTALL,
)


def find(words: Sequence[str], may_read: Readable) -> bool:
    """``find``: tests and printing; nothing that writes, runs, deletes or follows links."""
    at = 1
    while at < len(words) and words[at] in _FIND_FIRST:
        at += 1
    while at < len(words) and not words[at].startswith(("-", "(", ")", "!", ",")):
        if not may_read(words[at]):
            return False
        at += 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in _FIND_ALONE:
            continue
        if word not in _FIND_WITH_TEXT and word not in _FIND_WITH_FILE:
            return False
        if at >= len(words) or (word in _FIND_WITH_FILE and not may_read(words[at])):
            return False
        at += 1
    return True


def sed(words: Sequence[str], may_read: Readable) -> bool:
    """``sed -n`` with scripts that only print lines, such as ``1,5p``."""
    scripts: list[str] = []
    operands: list[str] = []
    quiet, at = False, 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in _SED_FLAGS:
            quiet = quiet or word not in {"-E", "-r"}
        elif word in {"-e", "--expression", "-ne"}:
            quiet = quiet or word == "-ne"
            scripts += words[at : at + 1]
            at += 1
        elif word == "--":
            operands += words[at:]
            break
        elif word.startswith("-") and word != "-":
            return False
        else:
            operands.append(word)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    if not quiet or not scripts:
        return False
    return all(map(_SED_SCRIPT.fullmatch, scripts)) and all(map(may_read, operands))


def jq(words: Sequence[str], may_read: Readable) -> bool:
    """``jq`` with a filter that reads neither the environment nor other files."""
    operands: list[str] = []
    at = 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in {"--arg", "--argjson"}:
            at += 2
        elif word == "--indent":
            at += 1
        elif word in _JQ_FLAGS or _JQ_LETTERS.fullmatch(word):
            continue
        elif word.startswith("-"):
            return False
        else:
            operands.append(word)
    if not operands or _JQ_UNSAFE.search(operands[0]):
        return False
    return all(map(may_read, operands[1:]))


def date(words: Sequence[str], may_read: Readable) -> bool:
    """``date`` shows a time; a word without ``+`` would set the clock."""
    at = 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in {"-d", "--date"}:
            at += 1
        elif word == "-r":
            if at >= len(words) or not may_read(words[at]):
                return False
            at += 1
        elif not word.startswith("+") and not _DATE_FLAGS.fullmatch(word):
            return False
    return True


def test(words: Sequence[str], may_read: Readable) -> bool:
    """``test`` and ``[``: every word that may be a path is one that may be read."""
    rest = list(words[1:])
    if words[0] == "[" and (not rest or rest.pop() != "]"):
        return False
    if "-v" in rest or "-R" in rest:
        return False
    return all(may_read(word) for word in rest if not word.startswith("-"))


def command(words: Sequence[str], may_read: Readable) -> bool:
    """``command -v NAME`` looks a name up."""
    del may_read
    return len(words) > 1 and words[1] in {"-v", "-V"}


SPECIAL: dict[str, Callable[[Sequence[str], Readable], bool]] = {
    "find": find,
    "sed": sed,
    "jq": jq,
    "date": date,
    "test": test,
    "[": test,
    "command": command,
}
