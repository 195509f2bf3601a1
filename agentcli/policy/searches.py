"""Searches that would show lines of credentials which nobody has named (SEC-3).

``grep -r`` and its kind read what lies below a directory, hidden files too. Law: one of them asks
where, as far as a bounded look tells, a credential is there that its own choice of names
(``--include``, ``-g``, ``-name``) does not leave out; a choice that is not certain leaves out none.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from agentcli.domain.values import frozen
from agentcli.policy.bash_command import ParsedCommand, SimpleCommand
from agentcli.policy.places import (
    GlobFinder,
    credentials_below,
    is_pattern,
    places_of,
    seen_words,
    starts_of,
    values_of,
    without_braces,
)

_GREP = ("grep", "egrep", "fgrep", "rgrep", "zgrep", "bzgrep", "xzgrep", "zstdgrep")
# they show what is in the files that others name
_SHOW = frozenset(
    {
        *_GREP, "rg", "ag", "ack", "cat", "tac", "nl", "head", "tail", "less", "more", "bat",
        "batcat", "awk", "gawk", "mawk", "sed", "strings", "od", "xxd", "hexdump", "base64",
        "base32", "sort", "uniq", "cut", "paste", "tr", "fold", "fmt", "pr", "jq", "yq", "diff",
    }
)  # fmt: skip
_GIVE = frozenset({"xargs", "parallel"})
_MOST_PLACES = 200
Words = Sequence[str]


@frozen
class _SearchScope:
    """Below which operands, and which names of files it ``takes`` (none: all) and ``leaves``.

    ``is_flat``: in the directories that it names, and not below them. ``is_loose``: git does so
    only where there is no repository. ``files``, ``links``: which of those it shows what is in.
    """

    places: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    is_flat: bool = False
    is_loose: bool = False
    files: bool = True
    links: bool = True

    def shows(self, path: Path, below: Path) -> bool:
        """Whether it shows what is in the credential ``path``, which may be a directory of them."""
        parts = path.relative_to(below).parts
        if (self.is_flat and len(parts) > 1) or not (
            self.links if path.is_symlink() else self.files
        ):
            return False
        if any(fnmatch.fnmatchcase(name, each) for each in self.leaves for name in parts):
            return False
        if any("/" in each and fnmatch.fnmatchcase(str(path), each) for each in self.leaves):
            return False
        is_open = not self.takes or path.is_dir()
        return is_open or any("/" in each or _takes(each, path.name) for each in self.takes)


def _takes(pattern: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())


def credential_met(parsed: ParsedCommand, cwd: Path) -> str:
    """Which credential one of its commands, started in ``cwd``, would come across; empty: none."""
    commands = parsed.commands
    begins = _after_cd(commands, cwd) if parsed.plain else cwd
    starts = starts_of(commands[1:] if begins != cwd else commands, begins).directories
    known_ways = _GIVING if any(map(_shows_what_is_given, commands)) else _HOW
    below = functools.cache(lambda place: tuple(credentials_below(place)))
    for command in commands:
        known = [word for word in seen_words(command) if word is not None]
        program = known[0].rpartition("/")[2] if known else ""
        how = known_ways.get(program)
        search = how([program, *known[1:]]) if how else None
        if search is None or (search.is_loose and _in_repository(cwd)):
            continue
        unsure = () if None not in command.words or search.is_flat else starts
        for place in dict.fromkeys((*_directories(search, starts), *unsure)):
            found = next((each for each in below(place) if search.shows(each, place)), None)
            if found is not None:
                return os.path.relpath(found, cwd) if found.is_relative_to(cwd) else str(found)
    return ""


def _after_cd(commands: Sequence[SimpleCommand], cwd: Path) -> Path:
    """Where ``cd DIRECTORY && …`` goes on, if that is there."""
    first = commands[0] if commands else None
    if first is None or first.words[:1] != ("cd",) or first.upstream is not None:
        return cwd
    there = (place for name in first.words[1:2] for place in places_of(name or "", (cwd,)))
    return next((place for place in there if len(first.words) == 2 and _is_directory(place)), cwd)  # noqa: PLR2004 - cd and a directory


def _shows_what_is_given(command: SimpleCommand) -> bool:
    program = (command.words[0] or "").rpartition("/")[2] if command.words else ""
    return program in _SHOW and (None in command.words or not _GIVE.isdisjoint(command.wrappers))


def _in_repository(cwd: Path) -> bool:
    return any(os.path.lexists(each / ".git") for each in (cwd, *cwd.parents))


def _directories(search: _SearchScope, starts: Sequence[Path]) -> Sequence[Path]:
    """Those that are named; where nothing is, or it is not certain, all that is here."""
    operands, found = search.places, list[Path]()
    finder = GlobFinder()
    for name in operands:
        for place in places_of(name, starts):
            text = str(place)
            matches = finder.matches(text) or () if is_pattern(text) else (text,)
            found += (Path(each) for each in matches if _is_directory(each))
    if search.is_flat:
        return found[:_MOST_PLACES]
    last = places_of(operands[-1], starts) if len(operands) > 1 else ()
    names_file = any(map(os.path.isfile, last))
    if len(found) > _MOST_PLACES:
        return (*starts, *found[:_MOST_PLACES])
    return found or (() if names_file else starts)


def _is_directory(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - never raises


# --- programs: whether it is a search, and of what ----------------------------------------------


def _letters(words: Words, with_value: str) -> str:
    """The short options; after those ``with_value`` the rest of a word is a value."""
    found = (re.match(f"-([^-{with_value}][^{with_value}]*)", word) for word in words)
    return "".join(match[1] for match in found if match)


def _operands(words: Words) -> tuple[str, ...]:
    return tuple(word for word in words[1:] if not word.startswith("-"))


def _globs(words: Words, *options: str) -> tuple[str, ...]:
    values = filter(None, values_of(tuple(words), *options))
    return tuple(each for value in values for each in without_braces(value))


def _grep(words: Words) -> _SearchScope | None:
    letters = _letters(words, "efmABCdD")
    is_deep = words[0] == "rgrep" or not {"r", "R"}.isdisjoint(letters)
    long = ("--rec", "--der")
    how = values_of(tuple(words), "-d", "--directories")
    is_deep = is_deep or any((word or "").startswith("rec") for word in how)
    if not is_deep and not any(word.startswith(long) for word in words[1:]):
        return None
    left = _globs(words, "--exclude", "--exclude-dir")
    return _SearchScope(
        _operands(words),
        _globs(words, "--include"),
        tuple(each.rstrip("/") for each in left),
        links="R" in letters or any(word.startswith("--der") for word in words),
    )


_GLOB_OF_RG = re.compile(r"-[^-ABCEMTdefgjmrt]*g(.*)", re.DOTALL)


def _rg(words: Words) -> _SearchScope | None:
    letters = _letters(words, "ABCEMTdefgjmrt")
    short = ((_GLOB_OF_RG.fullmatch(word), after) for word, after in pairwise((*words, "")))
    given = tuple(match[1] or after for match, after in short if match)
    globs = (*_globs(words, "--glob", "--iglob"), *(g for e in given for g in without_braces(e)))
    takes = tuple(each for each in globs if not each.startswith("!"))
    is_bare = letters.count("u") + words.count("--unrestricted") > 1
    # what a glob takes is searched though it is hidden
    if not (takes or is_bare or "." in letters or "--hidden" in words):
        return None
    if "--files" in words:
        return None  # it shows names
    left = tuple(each[1:] for each in globs if each.startswith("!") and "/" not in each)
    follows = "L" in letters or "--follow" in words
    places = tuple(each for each in _operands(words) if each not in given)
    return _SearchScope(places, takes, left, links=follows)


def _ag(words: Words) -> _SearchScope | None:
    shows_all = "u" in _letters(words, "ABCGgmpW") or any(
        word.startswith(("--hid", "--unr")) for word in words
    )
    return _SearchScope(_operands(words)) if shows_all or words[0] == "ack" else None


def _diff(words: Words) -> _SearchScope:
    """Of two directories it compares what lies in them."""
    is_deep = "r" in _letters(words, "CFISUWxX") or any(word.startswith("--rec") for word in words)
    named = _globs(words, "--from-file", "--to-file")
    return _SearchScope((*_operands(words), *named), is_flat=not is_deep)


def _ls(words: Words) -> _SearchScope:
    shows_all = not {"a", "A", "f"}.isdisjoint(_letters(words, "IT")) or any(
        word.startswith(("--a", "--almost")) for word in words
    )
    return _SearchScope(_operands(words) or (".",), (), () if shows_all else (".*",), is_flat=True)


def _fd(words: Words) -> _SearchScope | None:
    letters = _letters(words, "EScdeotj")
    shows_all = not {"H", "u"}.isdisjoint(letters) or any(
        word.startswith(("--hidden", "--unrestricted")) for word in words
    )
    takes = tuple(f"*.{each}" for each in _globs(words, "-e", "--extension"))
    return _SearchScope(_operands(words), takes) if shows_all else None


_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_OR = frozenset({"-o", "-or", ","})
_NAMES = frozenset({"-name", "-iname"})
_NOT = frozenset({"!", "-not"})


def _find(words: Words) -> _SearchScope | None:
    """Of several alternatives each has to choose names, or all are taken."""
    at = next((at for at, word in enumerate(words[1:], 1) if word[:1] in {"-", "(", "!"}), None)
    places, tests = words[1:at], list(words[at:] if at else ())
    tests = tests[: next((at for at, word in enumerate(tests) if word in _RUNS), None)]
    takes: list[str] = []
    leaves: list[str] = []
    is_certain, has_name, is_pruned = True, False, False
    for before, word, after in zip(["", *tests], tests, [*tests[1:], ""], strict=False):
        if before in _NOT:
            is_certain = is_certain and word != "("
            leaves += [after] if word in {*_NAMES, "-path", "-wholename"} else []
        elif word in _NAMES:
            has_name = True
            takes.append(after)
        elif word in _OR:
            is_certain = is_certain and (has_name or is_pruned)
            has_name = is_pruned = False
            leaves = []
        is_pruned = is_pruned or word == "-prune"
    if not _OR.isdisjoint(tests):
        leaves = []
    certain = is_certain and has_name
    is_file = ("-type", "f") in pairwise(tests) and _OR.isdisjoint(tests) and "-L" not in words
    return _SearchScope(
        tuple(places), tuple(takes) if certain else (), tuple(leaves), links=not is_file
    )


def _git_grep(words: Words) -> _SearchScope | None:
    is_untracked = any(word.startswith(("--no-in", "--unt")) for word in words)
    if "diff" in words or ("grep" in words and is_untracked):
        return replace(_of_git(words), is_loose=not is_untracked, links=False)
    return None


def _git_names(words: Words) -> _SearchScope | None:
    is_untracked = "o" in _letters(words, "x") or any(word.startswith("--oth") for word in words)
    if "ls-files" in words:
        return replace(_of_git(words), files=is_untracked)
    return _git_grep(words)


def _of_git(words: Words) -> _SearchScope:
    chosen = words[words.index("--") :] if "--" in words else ()
    names = tuple(each for each in chosen if is_pattern(each) and "/" not in each)
    return _SearchScope(tuple(each for each in _operands(words) if each not in names), names)


def _rg_names(words: Words) -> _SearchScope | None:
    return _rg([word for word in words if word != "--files"])


_HOW: dict[str, Callable[[Words], _SearchScope | None]] = {
    **dict.fromkeys(_GREP, _grep), "rg": _rg, "ag": _ag, "ack": _ag, "diff": _diff,
    "git": _git_grep,
}  # fmt: skip
# they name files, and another command shows what is in these
_GIVING = _HOW | {
    "rg": _rg_names, "ls": _ls, "fd": _fd, "fdfind": _fd, "find": _find, "git": _git_names,
}  # fmt: skip
