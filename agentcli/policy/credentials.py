"""Credentials that a command would show: named, made by the shell, or come across (SEC-3).

A name is judged in every form that loops, variables, braces and patterns give it. Laws: what cannot
be followed to definite names, in a command that shows what is in files, may be any credential of
the workspace whose name ends as what is written; ``grep -r`` and its kind ask where, as far as a
bounded look tells, a credential is below that their own choice of names (``--include``, ``-g``,
``-name``) does not leave out; a choice that is not certain leaves out none.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from pathlib import Path

from agentcli.domain.tools import Workspace
from agentcli.domain.values import frozen
from agentcli.policy.bash_command import GIVE_WORDS, ParsedCommand, SimpleCommand
from agentcli.policy.bash_syntax import parse_bash, unquoted
from agentcli.policy.decision import CallPlace
from agentcli.policy.places import (
    CREDENTIAL_NAMES,
    LISTED,
    LONGEST_LOOSE,
    OPEN,
    GlobFinder,
    Variables,
    closed,
    credential_place,
    credentials_below,
    found_by,
    is_pattern,
    loose_commands,
    places_of,
    seen_words,
    starts_of,
    values_of,
    without_braces,
    without_sets,
)
from agentcli.policy.read_only_table import (
    PATTERN_GIVEN,
    SPECS,
    Reading,
    UnknownOptionError,
    spec_of,
)

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
_LEAVES_OUT = frozenset({"--exclude", "--exclude-dir"})
_IS_NOT = re.compile(r"(?:!|-not)-(?:i?name|i?path|wholename)")  # of find
_HANDS_ON = GIVE_WORDS | {"read", "mapfile", "readarray"}
_RUNS_CODE = re.compile(r"\b(?:python[\d.]*|node|ruby|perl|php|deno|bun|lua|[gmn]?awk|sed)\b")
_MOST_BEFORE_CODE = 4  # "uv run python -c"
_IN_CODE = re.compile(r"""[^\s'"`(){};,<>|&]+""")
_SHOWS_HIDDEN = re.compile(r"dotglob|GLOBIGNORE")
_HERE_STRING = re.compile(r"<<<\s*([^\s;&|()<>]+)")
_FED_BY = re.compile(r"""(?<![<&])<(?![<&(])[ \t]*((?:"[^"\n]*"|'[^'\n]*'|[^\s;&|()<>"'])+)""")
_MOST_PATHS = 5_000


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
        if name in seen or OPEN in name or LISTED in name:
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
    fed = (
        form for each in _FED_BY.finditer(text[:LONGEST_LOOSE]) for form in variables.forms(each[1])
    )
    texts = (*_HERE_STRING.findall(text), *(fed for each in commands for fed in each.fed))
    given = (unquoted(name) for each in texts if is_given for name in each.split())
    kept = (each.partition("=")[2] for command in commands for each in command.assignments)
    pieces = (piece for each in kept for piece in (each, *each.strip("()").split()))
    held = (form for piece in pieces for form in variables.forms(piece))
    more = _in_code(commands, starts) if _RUNS_CODE.search(text) else ()
    yield from ((name, "") for name in chain(fed, given, held))
    yield from more


def _names_credential(text: str) -> bool:
    names = "|".join(map(re.escape, CREDENTIAL_NAMES))
    return re.search(rf"(?<!\w)(?:{names})(?!\w)", text, re.IGNORECASE) is not None


def _in_code(
    commands: Sequence[SimpleCommand], starts: Sequence[Path]
) -> Iterator[tuple[str, str]]:
    """Files that are there and that a line of Python, sed and their kind names."""
    for command in commands:
        first = ((word or "").rpartition("/")[2] for word in command.words[:_MOST_BEFORE_CODE])
        if not any(map(_RUNS_CODE.fullmatch, first)):
            continue
        for code in (*filter(None, command.words[1:]), *command.fed):
            for name in dict.fromkeys(_IN_CODE.findall(code)):
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
    skips = program in _PATTERN_FIRST and not {"-e", "-f", "--regexp", "--file"} & set(words)
    for at, word in enumerate(words[1:]):
        is_left = words[at] in _LEAVES_OUT or _IS_NOT.fullmatch(f"{words[at - 1]}{words[at]}")
        if word is None or is_left:
            continue
        if program == "git" and ":" in word:  # "<rev>:<path>", "-L1,5:<path>", ":(icase)<path>"
            yield _GIT_MAGIC.sub("", word.rpartition(":")[2])
        if word.startswith("-"):
            option, _, value = word.partition("=")
            yield "" if option in _LEAVES_OUT else (value or word[2:]).lstrip("@")
        elif skips:
            skips = False
        else:
            yield word
            yield word.rpartition("=")[2].lstrip("@")  # "dd if=FILE", "curl -F x=@FILE"


# --- names that cannot be followed ----------------------------------------------------------------

# they tell about files, or names, and show no lines
_TELL = frozenset(
    {
        *_NAMES_ONLY, "wc", "du", "df", "file", "sum", "cksum", "md5sum", "sha1sum", "sha224sum",
        "sha256sum", "sha384sum", "sha512sum", "b2sum", "tree", "fd", "fdfind", "cmp", "pwd",
        "true", "false", ":", "seq", "expr", "git", "tr",
    }
)  # fmt: skip
# their options whose value is the next word; their first operand is no file
_SCRIPTED = {
    "sed": "-e -f -l", "awk": "-F -v -f", "gawk": "-F -v -f", "mawk": "-F -v -f",
    "ag": "-A -B -C -m", "jq": "--arg --argjson --indent",
}  # fmt: skip
_EXTENDED = re.compile(r"[?*+@!]\(")
_TOKEN = re.compile(r"(?:[^\s;&<>()|]|\([^()\s]*+\))++")
_POSITIONAL = re.compile(r'"?\$\{?[\d@*]\}?"?')
# what comes of them are names of what is there, or a choice of what they are given
_LIST = re.compile(
    r"(?:find|fd|fdfind|ls|pwd|which|type|readlink|realpath|cd|seq [0-9]+|command -v|mktemp)"
    r"(?: .*)?|(?:rg|grep|egrep|ag) (?:.* )?(?:--files.*|-[a-km-zA-Z]*+l[a-zA-Z]*+(?: .*)?)"
    r"|git (?:-C \S+ )?(?:ls-files|ls-tree|rev-parse|diff(?: .*)? --name-only|grep -l)(?: .*)?",
    re.DOTALL,
)
_CHOOSE = frozenset({"grep", "egrep", "fgrep", "head", "tail", "sort", "uniq", "shuf"})
_CUTS = re.compile(r"-[abd-np-z]*[oc].*|--(?:only|bytes|count).*")
_FORMATS = re.compile(r"-(?:f?printf0?|-format.*|-pretty.*|f)")


def _lists(commands: Sequence[SimpleCommand]) -> bool:
    """Whether what ``commands`` write are names of what is there, however they go on."""
    return bool(commands) and all(map(_is_list, commands))


def _is_list(command: SimpleCommand) -> bool:
    words = [word or OPEN for word in command.words]
    if not words or any(each.operator[:1] == "<" for each in command.redirections):
        return False
    if command.upstream and words[0] in _CHOOSE:
        spec = spec_of(words[0])
        try:
            operands = Reading.of(words, spec).operands if spec else words
        except UnknownOptionError:
            return False
        is_whole = not any(map(_CUTS.fullmatch, words[1:]))
        return is_whole and len(operands) <= (words[0].endswith("grep"))
    is_bare = command.wrappers or not any(map(_FORMATS.fullmatch, words))
    return bool(is_bare and _LIST.fullmatch(" ".join(words)))


def is_given_list(command: SimpleCommand, commands: Sequence[SimpleCommand]) -> bool:
    """Whether ``xargs`` or ``read`` gets names of what is there, each of them whole."""
    words = [word or OPEN for word in command.words]
    if any(word.startswith(("-a", "--arg-f")) for word in words[1:2]):
        return False
    for mark in filter(None, (*values_of(tuple(words), "-I", "-J", "--replace"), "{}")):
        ends = {mark, f"/{mark}", f"I{mark}"}
        if any(mark in word and word[-1 - len(mark) :] not in ends for word in words):
            return False
    if fed := [each.operator for each in command.redirections if each.operator[:1] == "<"]:
        return all(operator[:2] == "<<" for operator in fed)  # these texts are looked at
    before = command.upstream or ()
    return _lists([each for each in commands if before and before[0] <= each.at < command.at])


def _open_names(text: str, parsed: ParsedCommand) -> Iterator[str]:
    """The names, with ``OPEN`` for what is not known, whose lines a command of it would show."""
    commands = parsed.commands
    lists = functools.cache(lambda script: _lists(parse_bash(script).commands))
    variables = Variables(lists, lambda command: is_given_list(command, commands))
    variables.learn(commands, parsed.loops)
    if any(
        each.operator == "<" and each.target is None for c in commands for each in c.redirections
    ):
        for found in _FED_BY.finditer(text):
            yield from variables.forms(found[1])
    if not parsed.understood:
        for word in filter(_EXTENDED.search, _TOKEN.findall(text[:LONGEST_LOOSE])):
            yield from variables.forms(word)
    gives = (each for each in commands if each.words and each.words[0] in GIVE_WORDS)
    is_given = any(not is_given_list(each, commands) for each in gives)
    for command in commands:
        program = command.program
        if None not in command.words or not _shows(program):
            continue
        if GIVE_WORDS.isdisjoint(command.wrappers):
            yield from (form for each in _operands_of(command) for form in variables.forms(each))
        elif is_given:
            yield OPEN


def _shows(program: str) -> bool:
    return program in _SHOW or (program in SPECS and program not in _TELL)


def _operands_of(command: SimpleCommand) -> Iterator[str]:
    """How the operands are written that only the shell will know."""
    program = command.program
    sources = command.sources if len(command.sources) == len(command.words) else ()
    # a number is no option, and the value of any
    numbers = {str(at + 10**9): source for at, source in enumerate(sources)}
    words = [word or mark for word, mark in zip(command.words, numbers, strict=False)]
    spec = spec_of(program)
    operands = words[1:]
    if spec is not None:
        with contextlib.suppress(UnknownOptionError):
            reading = Reading.of(words, spec)
            is_first = spec.operands == "pattern" and PATTERN_GIVEN.isdisjoint(reading.options)
            operands = reading.operands[is_first:] + reading.files
    elif program in _SCRIPTED:
        takes = _SCRIPTED[program].split()
        found = [
            word for before, word in pairwise(words) if word[0:1] != "-" and before not in takes
        ]
        operands = found if {"-e", "-f"} & {*words} else found[1:]
    for each in operands:
        source = numbers.get(each, "")
        if source and source[0] != "-" and source[:2] != "<(" and not _POSITIONAL.fullmatch(source):
            yield source.removeprefix("if=")


def _met_by(
    form: str, starts: Sequence[Path], below: Callable[[Path], Sequence[Path]]
) -> Path | None:
    """The credential that a name of such a form may be."""
    if form[-1:] == LISTED and form[-2:-1] in {"", "/"} and not {OPEN, LISTED} & {*form[:-1]}:
        return None  # what lists it is looked at
    form = form.replace(LISTED, OPEN)
    head, is_open, _ = form.partition(OPEN)
    if not is_open:
        return None
    ends = without_sets(f"*{form.rpartition(OPEN)[2]}")
    folder, _, start = head.rpartition("/")
    begins = without_sets(f"{start}*")
    named = places_of(f"{folder}/", starts) if head else ()
    for place in dict.fromkeys((*starts, *(each for each in named if each.is_dir()))):
        for found in below(place):
            held = islice(os.walk(found), 1) if found.is_dir() else [("", [], [str(found)])]
            for path in (os.path.join(top, name) for top, _, names in held for name in names):  # noqa: PTH118 - texts
                is_like = not start or any(
                    fnmatch.fnmatchcase(part, begins) for part in path.split("/")
                )
                if is_like and fnmatch.fnmatchcase(path, ends):
                    return found
    return None


# --- what searches come across ------------------------------------------------------------------

_GREP = ("grep", "egrep", "fgrep", "rgrep", "zgrep", "bzgrep", "xzgrep", "zstdgrep")
# they show what is in the files that others name
_SHOW = frozenset(
    {
        *_GREP, "rg", "ag", "ack", "cat", "tac", "nl", "head", "tail", "less", "more", "bat",
        "batcat", "awk", "gawk", "mawk", "sed", "strings", "od", "xxd", "hexdump", "base64",
        "base32", "sort", "uniq", "cut", "paste", "tr", "fold", "fmt", "pr", "jq", "yq", "diff",
        "dd",
    }
)  # fmt: skip
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
        leaves = tuple(map(closed, self.leaves))
        if any(fnmatch.fnmatchcase(name, each) for each in leaves for name in parts):
            return False
        if any("/" in each and fnmatch.fnmatchcase(str(path), each) for each in leaves):
            return False
        is_open = not self.takes or path.is_dir()
        return is_open or any("/" in each or _takes(each, path.name) for each in self.takes)


def _takes(pattern: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), closed(pattern.lower()))


def credential_met(text: str, cwd: Path) -> str:
    """Which credential the command ``text``, started in ``cwd``, may come across; empty: none."""
    parsed = parse_bash(text)
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
                return _relative(found, cwd)
    for form in dict.fromkeys(_open_names(text, parsed)):
        if found := _met_by(form, starts, below):
            return _relative(found, cwd)
    return ""


def _relative(path: Path, cwd: Path) -> str:
    return os.path.relpath(path, cwd) if path.is_relative_to(cwd) else str(path)


def _after_cd(commands: Sequence[SimpleCommand], cwd: Path) -> Path:
    """Where ``cd DIRECTORY && …`` goes on, if that is there."""
    first = commands[0] if commands else None
    if first is None or first.words[:1] != ("cd",) or first.upstream is not None:
        return cwd
    there = (place for name in first.words[1:2] for place in places_of(name or "", (cwd,)))
    return next((place for place in there if len(first.words) == 2 and _is_directory(place)), cwd)  # noqa: PLR2004 - cd and a directory


def _shows_what_is_given(command: SimpleCommand) -> bool:
    program = command.program
    return program in _SHOW and (
        None in command.words or not GIVE_WORDS.isdisjoint(command.wrappers)
    )


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
