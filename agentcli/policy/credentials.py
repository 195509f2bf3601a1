"""Credentials that a command would show: named, made by the shell, or come across (SEC-3).

A name is judged in every form that loops, variables, braces and patterns give it. Law: what cannot
be followed to definite names, in a command that shows what is in files, may be any credential of
the workspace.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from agentcli.domain.files import homes_of_users, read_start
from agentcli.domain.sandbox import MOST_SHUT
from agentcli.domain.tools import Workspace, real_path
from agentcli.domain.worktrees import git_directories_for, leads_git_elsewhere
from agentcli.policy.bash_command import GIVE_WORDS, ParsedCommand, SimpleCommand
from agentcli.policy.bash_syntax import parse_bash, unquoted
from agentcli.policy.decision import CallPlace
from agentcli.policy.places import (
    CREDENTIAL_NAMES,
    LONGEST_LOOSE,
    OPEN,
    SETTLED_NS,
    GlobFinder,
    Starts,
    Variables,
    credential_place,
    credentials_below,
    found_by,
    loose_commands,
    places_of,
    seen_words,
    starts_of,
    values_of,
)
from agentcli.policy.read_only_programs import GIT_SHOWS
from agentcli.policy.read_only_table import SPECS, reading_of, spec_of

# they tell names at most
_NAMES_ONLY = frozenset(
    {
        "[", "[[", "basename", "cd", "dirname", "echo", "find", "ls", "dir", "printf", "readlink",
        "realpath", "stat", "test", "type", "which", "touch",
    }
)  # fmt: skip
_GIT_MAGIC = re.compile(r"\A\((?![a-z,]*exclude)[a-z,]*\)")  # gitglossary(7), "pathspec"
# of git: they leave what is in a file alone
_GIT_NAMES_ONLY = re.compile(r"\S+(?: -C \S+)? (?:check-ignore |ls-files |rm (?:.* )?--cached )")
_PATTERN_FIRST = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "awk", "gawk", "sed", "jq"})
# what gives the pattern, or the program: then the first word is a file as well
_PATTERN_TOLD = re.compile(r"-[A-Za-z0-9]*[ef]|--(?:reg|exp|sou|fil?e?(?:=|\Z))")
_PROGRAM_TOLD = re.compile(r"-[A-Za-z0-9]*f|--fr")
_LEAVES_OUT = frozenset({"--exclude", "--exclude-dir"})
_AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
_IS_NOT = re.compile(r"(?:!|-not)-(?:i?name|i?path|wholename)")  # of find
_HANDS_ON = GIVE_WORDS | {"read", "mapfile", "readarray"}
_RUNS_CODE = re.compile(
    r"\b(?:python[\d.]*|node|ruby|perl|php|deno|bun|lua|[gmn]?awk|sed|sqlite3|duckdb|psql|mysql|gdb"
    r"|R|Rscript|julia|tclsh|expect|pwsh|ed|ex|vim?|nvim|emacs|m4)\b"
)
_MOST_BEFORE_CODE = 4  # "uv run python -c"
_IN_CODE = re.compile(r"""[^\s'"`(){};,<>|&]+""")
_EDITS = re.compile(r"sed|ed|ex|n?vim?")
_GLUED = re.compile(r"(?=[rReE]([^\s;}]+))")  # "r.env" reads .env
_MOST_GLUED = 500
_BEHIND_LETTERS = re.compile(r"\A-[A-Za-z0-9]+([./~].*)")  # "-ra.env"
_SHOWS_HIDDEN = re.compile(r"dotglob|GLOBIGNORE")
_HERE_STRING = re.compile(r"<<<\s*([^\s;&|()<>]+)")
_FED_BY = re.compile(r"""(?<![<&])<>?(?![<&(])[ \t]*((?:"[^"\n]*"|'[^'\n]*'|[^\s;&|()<>"'])+)""")
_MOST_PATHS = 5_000
_LONGEST_PATH = 4_096
_RUNS_ON_FILES = re.compile(rb"filter|textconv|include|submodule", re.IGNORECASE)  # git-config(1)
_GITLINK = b"\0\0\xe0\0"  # the mode of a repository within the other: gitformat-index(5)
_LARGEST_INDEX = 64 * 1024 * 1024
_INDEXES: dict[str, tuple[tuple[int, int, int, int], bool]] = {}  # what they held, and when
_MOST_INDEXES = 1_000


def credentials_read(
    text: str, place: CallPlace, free: Workspace | None = None
) -> Iterator[tuple[str, str]]:
    """Which credentials ``text`` names as something to read (SEC-3), but an .env in ``free``.

    What is to be said of each, and the part of the command.
    """
    parsed = parse_bash(text)
    commands = parsed.commands
    if not parsed.understood and len(text) <= LONGEST_LOOSE:
        commands = (*commands, *loose_commands(text))
    elif not parsed.understood and _names_credential(text):
        yield "it is too long to tell which credentials it reads", ""
    starts = starts_of(commands, place.workspace.cwd).directories
    finder = GlobFinder(hidden=_SHOWS_HIDDEN.search(text) is not None)
    left, seen = _MOST_PATHS, {""}
    for name, part in _named(text, parsed, commands, starts):
        if name in seen or OPEN in name:
            continue
        seen.add(name)
        for path in places_of(name, starts):
            matches = found_by(path, finder)
            left -= len(matches or ())
            if matches is None or left < 0:
                yield "it names too many files to check", ""
                return
            if found := credential_place(matches, free):
                yield f"{found} holds credentials", part


def _named(
    text: str, parsed: ParsedCommand, commands: Sequence[SimpleCommand], starts: Sequence[Path]
) -> Iterator[tuple[str, str]]:
    """Each name of what may be read, and the part of the command that has it."""
    variables = Variables()
    variables.learn(commands, parsed.loops)
    is_given = any(command.words[:1] and command.words[0] in _HANDS_ON for command in commands)
    hands_on = is_given or "command_substitution" in parsed.kinds
    for command in dict.fromkeys(commands):
        for words in variables.readings(command):
            for name in _names_read(replace(command, words=words), hands_on=hands_on):
                yield name, command.text
    fed = (form for name in _fed_by(text[:LONGEST_LOOSE]) for form in variables.forms(name))
    texts = (*_HERE_STRING.findall(text), *(fed for each in commands for fed in each.fed))
    given = (unquoted(name) for each in texts if is_given for name in each.split())
    kept = (each.partition("=")[2] for command in commands for each in command.assignments)
    pieces = (piece for each in kept for piece in (each, *each.strip("()").split()))
    held = (form for piece in pieces for form in variables.forms(piece))
    more = _in_code(commands, starts) if _RUNS_CODE.search(text) else ()
    yield from ((name, "") for name in chain(fed, given, held))
    yield from more


def _fed_by(text: str) -> Iterator[str]:
    """What stands behind ``<``, also where a line goes on in the middle of it."""
    yield from (found[1] for found in _FED_BY.finditer(text))
    if "\\\n" in text:
        yield from (found[1] for found in _FED_BY.finditer(text.replace("\\\n", "")))


def _names_credential(text: str) -> bool:
    names = "|".join(map(re.escape, CREDENTIAL_NAMES))
    return re.search(rf"(?<!\w)(?:{names})(?!\w)", text, re.IGNORECASE) is not None


def _in_code(
    commands: Sequence[SimpleCommand], starts: Sequence[Path]
) -> Iterator[tuple[str, str]]:
    """Files that are there and that a line of Python, sed and their kind names."""
    for command in commands:
        first = ((word or "").rpartition("/")[2] for word in command.words[:_MOST_BEFORE_CODE])
        runs = [name for name in first if _RUNS_CODE.fullmatch(name)]
        if not runs:
            continue
        is_editor = any(map(_EDITS.fullmatch, runs))
        for code in (*filter(None, command.words[1:]), *command.fed):
            glued = islice(_GLUED.finditer(code), _MOST_GLUED) if is_editor else ()
            names = (*_IN_CODE.findall(code), *(found[1] for found in glued))
            for name in dict.fromkeys(names):
                if any(map(os.path.lexists, places_of(name, starts))):
                    yield name, command.text


def _names_read(command: SimpleCommand, *, hands_on: bool) -> Iterator[str]:
    """The words of ``command`` that may name what it reads."""
    words = command.words
    program = command.program
    yield from (each.target or "" for each in command.redirections if not each.writes)
    if program in _NAMES_ONLY and not hands_on and "-exec" not in words:
        return
    if program == "git" and _GIT_NAMES_ONLY.match(" ".join((*map(str, words), ""))):
        return
    told = _PROGRAM_TOLD if program == "jq" else _PATTERN_TOLD
    skips = program in _PATTERN_FIRST and not any(map(told.match, filter(None, words[1:])))
    leaves_out = _leaves_out(program)
    for at, word in enumerate(words[1:]):
        leaves_out = leaves_out and word != "--"
        if word is None or (leaves_out and _is_left(program, words[max(0, at - 1) : at + 1])):
            continue
        if program == "git" and ":" in word:  # "<rev>:<path>", "-L1,5:<path>", ":(icase)<path>"
            yield _GIT_MAGIC.sub("", word.rpartition(":")[2])
        if word.startswith("-"):
            option, _, value = word.partition("=")
            is_left = leaves_out and option in _LEAVES_OUT
            yield "" if is_left else (value or word[2:]).lstrip("@")
            yield from _BEHIND_LETTERS.findall(word)
        elif skips:
            skips = False
        else:
            yield word
            yield word.rpartition("=")[2].lstrip("@")  # "dd if=FILE", "curl -F x=@FILE"


def _leaves_out(program: str) -> bool:
    """Whether it may have an option that names what it leaves alone; awk's end at its program."""
    spec = spec_of(program)
    return program not in _AWKS and (spec is None or "--exclude" in spec.marks)


def _is_left(program: str, before: Sequence[str | None]) -> bool:
    """Whether the words ``before`` another one say that this is what is left alone."""
    if program in {"find", "gfind"}:
        return _IS_NOT.fullmatch("".join(map(str, before))) is not None
    return before[-1] in _LEAVES_OUT


# --- what shows files that its words do not name --------------------------------------------------

_GREP = ("grep", "egrep", "fgrep", "rgrep", "zgrep", "bzgrep", "xzgrep", "zstdgrep")
# beside the programs of the table, which show what is in files but for those that tell about them
_SHOW = frozenset(
    {
        *_GREP, "ag", "ack", "less", "more", "bat", "batcat", "awk", "gawk", "mawk", "sed", "jq",
        "yq", "dd", "pr", "eval", "source", ".", "history", "shuf", "iconv", "split", "csplit",
        "sdiff", "ptx", "gzip", "bzip2", "xz", "zstd", "openssl",
        "cp", "mv", "ln", "install",  # under another name the next command shows it
    }
)  # fmt: skip
_TELL = frozenset(
    {
        *_NAMES_ONLY, "wc", "du", "df", "file", "sum", "cksum", "md5sum", "sha1sum", "sha224sum",
        "sha256sum", "sha384sum", "sha512sum", "b2sum", "tree", "fd", "fdfind", "pwd",
        "true", "false", ":", "seq", "expr", "git", "tr",
    }
)  # fmt: skip
# an option may have these show what is in files
_OBEY = frozenset({"find", "gfind", "tar", "tree", "fd", "fdfind", "file"})
_SHELLS = frozenset({"bash", "sh", "dash", "ksh", "zsh"})
_SEARCH = frozenset({"rg", "ag", "ack", "rgrep", "diff"})


def may_search(text: str, cwd: Path) -> bool:
    """Whether a command of ``text`` may show what is in files that its words do not name.

    Where one may, its sandbox hides the workspace's credentials. Laws: a program that only the
    shell knows may be any; where the directory is not certain, no name is; of a text that is not
    understood what is quoted may be run, too.
    """
    parsed = parse_bash(text)
    if not parsed.understood and (len(text) > LONGEST_LOOSE or _GIVES.search(text)):
        return True
    if _EVALUATED.search(text) or any(map(_MADE.search, _fed_by(text))):
        return True
    loose = () if parsed.understood else loose_commands(_SUBSTITUTION.sub(" $ ;", text))
    named = (each for each in loose if each.words[0] is not None)
    starts = starts_of(parsed.commands, cwd)
    return any(_may_search(command, starts) for command in (*parsed.commands, *named))


def roots_with_homes(workspace: Workspace) -> list[Path]:
    """Those of the workspace in which a home directory lies."""
    known = homes_of_users(os.path.expanduser("~"))  # noqa: PTH111 - never raises
    homes = [real_path(Path(each)) for each in known]
    return [real for _, real in workspace.led if any(each.is_relative_to(real) for each in homes)]


def may_stay_open(roots: Sequence[Path]) -> bool:
    """Whether a search may show credentials of ``roots_with_homes`` that are too many to be hidden.

    There are some for sure, and they lie anywhere; a project is looked through as far as it goes.
    """
    return not all(map(_is_looked_through, roots))


def _is_looked_through(root: Path) -> bool:
    looking = credentials_below(root)
    for _ in range(MOST_SHUT + 1):
        try:
            next(looking)
        except StopIteration as end:
            return bool(end.value)
    return False


def shows_no_file(text: str) -> bool:
    """Whether no command of ``text`` shows what is in a file, but for what git tracks."""
    parsed = parse_bash(text)
    return parsed.understood and all(
        command.program in _TELL and all(each.writes for each in command.redirections)
        for command in parsed.commands
    )


_EVALUATED = re.compile(r"\b(?:PS4|BASH_ENV)\+?=|\bcompgen\b|@P\}")  # whose quoted texts bash runs
_MADE = re.compile(r"[$`*?\[]")
_GIVES = re.compile(r"xargs|parallel|-exec|-ok")
_IS_DEEP = re.compile(r"(?<!\S)--(?:rec|der|di[a-z]*[= ]rec)")
_SUBSTITUTION = re.compile(r"\$\(|`")


def _may_search(command: SimpleCommand, starts: Starts) -> bool:
    program, words = command.program, command.words
    is_guess = command.wrappers[-1:] and command.wrappers[-1] in _SHELLS  # "bash $x"
    if words[:1] == (None,) and not is_guess:
        return True
    is_told = None in words and program in _OBEY
    if is_told or program in _SEARCH or _is_fed_unnamed(command):
        return True
    if program in _ASKED and any(_ASKED[program](command, each) for each in starts.directories):
        return True
    given = [each or "" for each in (*words, *command.sources)]
    lists = any(each.startswith(("--fil", "-files0")) for each in given)
    lists |= _shows(program) and any(each.startswith("@") for each in given)  # "strings @list"
    is_open = None in words or not GIVE_WORDS.isdisjoint(command.wrappers)
    if is_open and program not in _TELL:  # "f cat $x": what a function runs
        return any(_shows((word or "").rpartition("/")[2]) for word in words)
    if is_open or lists:
        return lists or _reads_lists(command)
    return not starts.is_sure and _shows(program) and _has_operand(command)


def _shows(program: str) -> bool:
    return program in _SHOW or (program in SPECS and program not in _TELL)


def _reads_lists(command: SimpleCommand) -> bool:
    """Whether one that only tells about files is used in a way that the table does not know."""
    spec = spec_of(command.program) if command.program != "git" else None
    sources = command.sources or command.words
    words = [w or s or "" for w, s in zip(command.words, sources, strict=False)]
    return spec is not None and reading_of(words, spec) is None


def _has_operand(command: SimpleCommand) -> bool:
    names = [w for w in command.words[1:] if w and w[0] != "-" and not w.isdigit()]
    return len(names) > (command.program in _PATTERN_FIRST)


def _is_fed_unnamed(command: SimpleCommand) -> bool:
    return any(
        each.operator in {"<", "<>"} and each.target is None for each in command.redirections
    )


def _may_grep(command: SimpleCommand, _: Path) -> bool:
    """Whether it goes through directories: ``-r``, ``-d recurse`` and what is short for them."""
    words = [word for word in seen_words(command) if word is not None]
    found = (re.match("-([^-efmABCdD][^efmABCdD]*)", word) for word in words)
    letters = "".join(match[1] for match in found if match)
    how = values_of(tuple(words), "-d", "--directories")
    return (
        not {"r", "R"}.isdisjoint(letters)
        or any((word or "").startswith("rec") for word in how)
        or _IS_DEEP.search(" ".join(words[1:])) is not None
    )


def _may_show_untracked(command: SimpleCommand, cwd: Path) -> bool:
    """What git tracks it shows; outside of a repository, or of it, it compares any files."""
    words = command.words
    there = (*values_of(words, "-C"), "")
    if len(there) > len((".", "")) or there[0] is None or _has_filters(cwd / there[0]):
        return True
    known = {word for word in words if word}
    elsewhere = any(each.startswith(("GIT_DIR=", "GIT_CEIL")) for each in command.assignments)
    if elsewhere or not known.isdisjoint({"hash-object", "interpret-trailers"}):
        return True
    unseen = (s for w, s in zip(words, command.sources, strict=False) if w is None)
    is_made = not all(each.strip('"').startswith("$(git ") for each in unseen)
    if is_made and not known.isdisjoint(GIT_SHOWS):
        return True
    short = ("--no-in", "--git-dir", "--subm", "--u" if "grep" in known else "--unt")
    if any(word.startswith(short) for word in known) or (None in words and "config" in known):
        return True
    if "diff" in known and any(re.match(r"/|~|\.\.", word or "/") for word in words[1:]):
        names = [word for word in words[1:] if not (word or "").startswith("-")]
        if len(names) > len(("diff", "a file")):
            return True
    compares = None in words or not known.isdisjoint({"diff", "grep"})
    return compares and not any(os.path.lexists(p / ".git") for p in (cwd, *cwd.parents))


def _has_filters(directory: Path) -> bool:
    """Whether the repository there may have git run a program on files, or one within it may.

    Or have it tell what a link of its leads to.
    """
    if len(str(directory)) > _LONGEST_PATH:
        return True
    places = git_directories_for(directory)
    files = (each / name for each in places for name in ("config", "config.worktree"))
    return (
        any(_RUNS_ON_FILES.search(read_start(each)) for each in files)
        or any(os.path.lexists(each / "modules") for each in places)
        or any(_holds_repositories(str(each / "index")) for each in places)
        or any(map(leads_git_elsewhere, places))
    )


def _holds_repositories(index: str) -> bool:
    """Whether git's ``index`` names a repository, or is too large to look; read when it changed."""
    try:
        status = os.stat(index)  # noqa: PTH116 - a text
    except (OSError, ValueError):
        return False
    stamp = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
    known = _INDEXES.get(index)
    if known is not None and known[0] == stamp:
        return known[1]
    is_settled = time.time_ns() - status.st_ctime_ns > SETTLED_NS
    found = status.st_size > _LARGEST_INDEX or _GITLINK in read_start(index, _LARGEST_INDEX)
    if is_settled:
        if len(_INDEXES) >= _MOST_INDEXES:
            _INDEXES.clear()
        _INDEXES[index] = stamp, found
    return found


def _may_run_unknown(command: SimpleCommand, _: Path) -> bool:
    """A shell that runs, or shows, a script which its words do not tell."""
    words = command.words
    if None in words:
        is_made = any(source.startswith("<(") for source in command.sources)
        return is_made or any(re.match("-[a-z]*[cvx]", word or "") for word in words)
    is_bare = not any(word and word[0] != "-" and word != "/dev/stdin" for word in words[1:])
    if command.program in {"source", "."}:
        return is_bare
    return is_bare and command.upstream is not None


_ASKED: dict[str, Callable[[SimpleCommand, Path], bool]] = {
    **dict.fromkeys(_GREP, _may_grep),
    **dict.fromkeys((*_SHELLS, "source", "."), _may_run_unknown),
    "git": _may_show_untracked,
}
