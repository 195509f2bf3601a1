"""Commands that would destroy what cannot be brought back, or touch a protected place.

SEC-14: on the workspace root, home, ``/`` or ``.git``; SEC-3: written by redirections and by
programs. Laws: a file that is named is found, as far as its name is written out; a command whose
target cannot be told is taken to destroy the worst it could; a program writes what it names, unless
a table says what it writes, or that it only reads.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from itertools import pairwise, product
from pathlib import Path

from agentcli.domain.tools import real_path
from agentcli.domain.values import frozen, mutable
from agentcli.policy.bash_command import GIVE_WORDS, ParsedCommand, SimpleCommand
from agentcli.policy.bash_syntax import parse_bash, unquoted, written_names
from agentcli.policy.bash_wrappers import look_through
from agentcli.policy.decision import CallPlace
from agentcli.policy.places import (
    LONGEST_LOOSE,
    OPEN,
    GlobFinder,
    Starts,
    Variables,
    Words,
    found_by,
    is_pattern,
    loose_commands,
    places_of,
    plain_name,
    protected_place,
    seen_words,
    starts_of,
    without_sets,
)
from agentcli.policy.read_only_programs import only_reads
from agentcli.policy.read_only_table import HARMLESS_WITH_ANY_OPTION, UNKNOWN

_ALL_OF_IT = re.compile(r"[.!^\[\]]*[*?][*?.!^\[\]]*")
_GOES_BACK = re.compile(r"[^*?\]]*[*?\]].*/\.\.(?:/|\Z)", re.DOTALL)
_HARMLESS_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|tty|stdin|stdout|stderr|fd(?:/.*)?|shm(?:/.*)?|pts(?:/.*)?)"
)
_TEXT = re.compile(r"[\s'\"()]")
_DESTROYER = re.compile(r"\b(?:rm|shred|mkfs|dd|find|chmod|chown|mv|git|rsync)\b")
_TELLS = re.compile(r"(?:\$\(|`)\s*find\b|\bfind\b[^;&\n]*\|\s*while\b")
_MOST_PATHS = 5_000
_MOST_RUN = 100


@frozen
class Danger:
    """What a command would do, in words, and which of the commands it is.

    ``is_destructive``: SEC-14; else it writes a protected place (SEC-3).
    """

    what: str
    part: str
    is_destructive: bool


def dangers_of(text: str, place: CallPlace, *, contained: bool = False) -> Iterator[Danger]:
    """What of ``text`` is destructive or writes a protected place, in its order.

    ``contained``: a sandbox limits it to the workspace.
    """
    parsed = parse_bash(text)
    commands = parsed.commands
    if not parsed.understood:
        if len(text) <= LONGEST_LOOSE:
            commands = (*commands, *loose_commands(text))
        elif _DESTROYER.search(text):
            what = "the command is too long to tell what it destroys"
            yield Danger(what, "", is_destructive=True)
    workspace = place.workspace
    variables = Variables()
    variables.learn(commands, parsed.loops)
    search = _Search(
        starts=starts_of(commands, workspace.cwd),
        roots=tuple(map(real_path, (workspace.root, *workspace.extra))),
        own_directories=place.policy.own_directories,
        contained=contained,
        has_all=parsed.understood,
        hands_on=_hands_to_killer(commands, text),
        moves_home=re.search(r"\bHOME\+?=", text) is not None,
        variables=variables,
    )
    if re.search(r"\b(?:PWD|CDPATH)\+?=", text):
        search.starts = replace(search.starts, is_sure=False)
    for command in dict.fromkeys(commands):
        yield from search.dangers(command)
    if _has_unseen_target(parsed):
        # bash may take quotes off twice: ">&FILE\\'"
        sources = (each for name in written_names(text) for each in (name, unquoted(name)))
        forms = (form for source in sources for form in variables.forms(source))
        yield from search.written(tuple(map(_as_pattern, forms)), text)
    if search.left < 0:
        yield Danger("it names too many files to check", "", is_destructive=True)


def _if_known(form: str | None) -> str | None:
    return None if form and OPEN in form else form


def _as_pattern(form: str, rest: str = "*") -> str | None:
    """With ``rest`` for what only the shell will know; ``None``: nothing of it is known."""
    pattern = re.sub(r"\*+", "*", form.replace(OPEN, rest))
    return pattern if pattern.strip("*/") else None


def _hands_to_killer(commands: Sequence[SimpleCommand], text: str) -> bool:
    """Whether one of ``commands`` removes what another one, such as ``find``, tells it."""
    killers = (each for each in commands if each.program in _KILLERS)
    return any(
        not GIVE_WORDS.isdisjoint(each.wrappers) or (None in each.words and _TELLS.search(text))
        for each in killers
    )


def _has_unseen_target(parsed: ParsedCommand) -> bool:
    return not parsed.understood or any(
        redirection.writes and redirection.target is None
        for command in parsed.commands
        for redirection in command.redirections
    )


@mutable
class _Search:
    """Looks where operands lead; ``left`` is how many paths may still be looked at.

    ``roots`` are the directories of the workspace, links followed. ``has_all``: every operand is
    known to be one. A text that is not understood may fall apart between a program and its
    operands. ``hands_on``: what is found is removed. ``moves_home``: ``~`` may be another place.
    """

    starts: Starts
    roots: tuple[Path, ...]
    own_directories: tuple[Path, ...]
    contained: bool
    has_all: bool
    hands_on: bool
    moves_home: bool
    variables: Variables
    left: int = _MOST_PATHS
    finder: GlobFinder = field(default_factory=GlobFinder)

    def dangers(self, command: SimpleCommand) -> Iterator[Danger]:
        """What ``command`` would destroy, and what protected place it would write."""
        words = seen_words(command)
        if self.hands_on and replace(command, words=words).program == "find":
            words = (*words, "-exec", "rm")
        operands = operands_of(words)
        lost: set[str | None] = set()
        yield from self._destroyed(operands, command, lost)
        if None in words:
            for reading in self.variables.readings(command):
                known = operands_of(tuple(map(_if_known, reading)))
                yield from self._destroyed(known, command, lost)
        redirected = tuple(each.target for each in command.redirections if each.writes)
        names = (*(each for each in operands.written if each not in lost), *redirected)
        perhaps = operands.perhaps
        if None in (*operands.written, *perhaps):
            readings = product(self.variables.readings(command), ("*", ""))  # it may be empty
            for reading, rest in readings:
                more = operands_of(tuple(word and _as_pattern(word, rest) for word in reading))
                names = (*names, *(each for each in more.written if each not in lost))
                perhaps = (*perhaps, *more.perhaps)
        yield from self.written((*names, *self._likely(perhaps)), command.text)

    def _likely(self, names: Words) -> Words:
        """Those that are no text, but in a place where everything is protected."""
        if not names or protected_place(self.roots[:1], self.own_directories):
            return ()
        return tuple(
            name
            for name in names
            if name
            and (not _TEXT.search(name) or any(path.parent.is_dir() for path in self._places(name)))
        )

    def _destroyed(
        self, operands: Operands, command: SimpleCommand, told: set[str | None]
    ) -> Iterator[Danger]:
        """SEC-14; ``told`` takes the operands whose loss is one."""
        part = command.text
        from_elsewhere = not GIVE_WORDS.isdisjoint(command.wrappers)
        # the parser knows no pattern such as "!(x)"
        is_torn = not self.has_all and (
            not operands.destroyed or any(name and name[-1] in "!@+" for name in operands.destroyed)
        )
        is_unseen = None in operands.destroyed or from_elsewhere or is_torn
        if operands.is_recursive and is_unseen:
            yield Danger("what it would destroy is not known", part, is_destructive=True)
        for name in dict.fromkeys(operands.destroyed):
            if name is None:
                continue
            is_unsure = not (name.startswith(("/", "~")) or self.starts.is_sure)
            is_unsure = is_unsure or (name.startswith("~") and self.moves_home)
            if operands.is_recursive and is_unsure:
                yield Danger("where it would destroy files is not known", part, is_destructive=True)
            lost = map(self._lost_with, self._places(name))
            if what := next(filter(None, lost), None):
                told.add(name)
                yield Danger(f"it would destroy {what}", part, is_destructive=True)

    def _lost_with(self, path: Path) -> str | None:
        """What would be lost with ``path`` (which may be a pattern) and all that is in it."""
        if _GOES_BACK.match(str(path)):
            return "what lies above what a pattern finds"
        lexical = Path(os.path.normpath(path))
        while lexical.name and _ALL_OF_IT.fullmatch(lexical.name):
            lexical = lexical.parent
        if not is_pattern(str(lexical)):
            both = dict.fromkeys((lexical, real_path(lexical), real_path(path)))
            return next(filter(None, map(self._named, both)), None)
        names = [*(root / ".git" for root in self.roots), *_with_parents(self.roots)]
        if not self.contained:
            names += _with_parents((_home(),))
        pattern = without_sets(str(lexical))
        hit = next((name for name in names if fnmatch.fnmatchcase(str(name), pattern)), None)
        return str(hit) if hit is not None else None

    def _named(self, path: Path) -> str | None:
        is_inside = any(path.is_relative_to(root) for root in self.roots)
        if ".git" in map(plain_name, path.parts) and (is_inside or not self.contained):
            return "git's own directory"
        if path in self.roots:
            return "the workspace itself"
        if any(root.is_relative_to(path) for root in self.roots):
            return f"{path} with the workspace in it"
        if self.contained:
            return None
        home = _home()
        if home.is_relative_to(path):
            is_home = path == home
            return "your home directory" if is_home else f"{path} with your home directory in it"
        return f"the system's {path}" if path.parent == Path("/") else None

    def written(self, names: Sequence[str | None], part: str) -> Iterator[Danger]:
        """SEC-3, and devices."""
        for name in filter(None, dict.fromkeys(names)):
            paths = tuple(self._matches(name))
            if device := next(filter(None, map(_device, paths)), None):
                if not self.contained:
                    yield Danger(f"it would write to {device}", part, is_destructive=True)
            elif place := protected_place(paths, self.own_directories, contained=self.contained):
                yield Danger(f"{place} is protected", part, is_destructive=False)

    def _matches(self, name: str) -> Iterator[Path]:
        for path in self._places(name):
            matches = found_by(path, self.finder)
            self.left -= _MOST_PATHS if matches is None else len(matches) - 1
            yield from matches or ()

    def _places(self, name: str) -> Iterator[Path]:
        if "\0" in name:
            return  # it names no file
        for path in places_of(name, self.starts.directories):
            self.left -= 1
            if self.left < 0:
                return
            yield path


def _home() -> Path:
    return real_path(Path(os.path.expanduser("~")))  # noqa: PTH111 - pathlib's raises without a home


def _with_parents(paths: Sequence[Path]) -> list[Path]:
    return [each for path in paths for each in (path, *path.parents)]


def _device(path: Path) -> str | None:
    name = os.path.normpath(path)
    if not name.startswith("/dev/") or _HARMLESS_DEVICES.fullmatch(name):
        return None
    return name


# --- which files a command would change or destroy ------------------------------------------


@frozen
class Operands:
    """``written``: files that would be changed; ``destroyed``: whole trees that would be lost.

    ``is_recursive``: what is destroyed may be a directory with all that is in it. ``perhaps``:
    what a call names that is not known to only read it.
    """

    written: Words = ()
    destroyed: Words = ()
    is_recursive: bool = False
    perhaps: Words = ()


def operands_of(words: Words) -> Operands:
    """What the command made of ``words`` would change and destroy."""
    if not words or words[0] is None:
        return _unknown_program(words[1:])
    program = words[0].rpartition("/")[2]
    if program.startswith(("mkfs", "mke2fs")):
        program = "mkfs"
    special = _SPECIAL.get(program)
    if special is not None:
        return special(words[1:])
    if program in _ALL:
        return Operands(_plain(words[1:], _ALL[program]))
    return Operands(_outputs(words[1:]), perhaps=_perhaps(words))


# they write nothing whatever their options are
_NEVER_WRITE = HARMLESS_WITH_ANY_OPTION | {
    "basename", "cd", "dirname", "echo", "printf", "pushd", "popd", "readlink", "realpath", "which",
    "type", "source", ".", "export", "declare", "local", "readonly", "typeset", "unset", "set",
    "alias", "kill", "wait", "read", "tail", "less", "more", "bat", "batcat", "tac", "nl", "cut",
    "fold", "strings", "od", "hexdump", "cmp", "comm", "join", "shellcheck", "open", "xdg-open",
}  # fmt: skip
_TAKES_SCRIPT = re.compile(r"(?:bash|[dz]?sh|ksh|python[\d.]*|node|deno|bun|ruby|perl|php|lua)")
# options that name what is left alone, or what variables are read from
_LEAVE = re.compile(r"-[xXIEei]|--?[\w-]*(?:exclude|ignore|skip|env-?file|dotenv)[\w-]*")


_GLUED = re.compile(r"-[A-Za-z0-9]+?([./~].*)", re.DOTALL)  # "-sD.git/config"


def _perhaps(words: Words) -> Words:
    """Whatever may be a file that the call writes."""
    program = (words[0] or "").rpartition("/")[2]
    known = tuple(word or UNKNOWN for word in words)
    if program in _NEVER_WRITE or only_reads((program, *known[1:])):
        return ()
    looked = look_through(words)
    inner = () if looked.why_not else looked.inner
    rest = words[1 : inner[0].start] if inner and inner[0].script is None else words[1:]
    if _TAKES_SCRIPT.fullmatch(program):
        rest = _without_script(rest)
    found: list[str | None] = []
    left = ""
    for word in rest:
        text = word or ""
        option, _, value = text.partition("=")
        if text.startswith("-"):
            is_left = _LEAVE.fullmatch(option)
            left = option if is_left and not value else ""
            glued = _GLUED.match(text)
            found += [] if is_left else [value or text[2:], glued[1] if glued else ""]
        elif left:
            left = left if left == "-x" else ""  # of zip: whatever comes
        else:
            found += [word, value.lstrip("@")]
    return tuple(each for each in found if each != "" and "://" not in (each or ""))


def _without_script(words: Words) -> Words:
    """The words for a script: neither it nor code is written."""
    at = next((at for at, word in enumerate(words) if (word or "-")[0] != "-"), len(words))
    if words[at - 1 : at + 1] == ("-m", "json.tool"):
        at += 1
    return words[at + 1 :]


def _plain(words: Words, takes_value: str = "") -> Words:
    """The operands; ``takes_value`` lists the options whose value is the next word."""
    values = takes_value.split()
    found: list[str | None] = []
    is_value = False
    for at, word in enumerate(words):
        if is_value:
            is_value = False
        elif word == "--":
            return (*found, *words[at + 1 :])
        elif word is None or not word.startswith("-") or word == "-":
            found.append(word)
        else:
            is_value = word in values
    return tuple(found)


def _has(words: Words, short: str, *long: str) -> bool:
    """Whether an option is given, alone or in a cluster such as ``-rf``."""
    for word in words:
        if word == "--":
            return False
        if word is None or not word.startswith("-"):
            continue
        name = word.partition("=")[0]
        if len(name) > len("--x") and any(option.startswith(name) for option in long):
            return True  # options may be shortened
        if not word.startswith("--") and not set(short).isdisjoint(word[1:]):
            return True
    return False


def _values_of(words: Words, *options: str) -> Words:
    """What may be values of ``options``, as ``values_of`` has them.

    Also behind other letters (``-so x``), and of a long name that is cut short (``--out=x``).
    """
    found: list[str | None] = []
    letters = "".join(option[1:] for option in options if len(option) == len("-o"))
    for at, word in enumerate(words):
        if word is None or not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        values = [value] if equals else []
        is_meant = word in options
        if not word.startswith("--"):
            values = [word[place + 1 :] for place, each in enumerate(word) if each in letters]
            is_meant = is_meant or "" in values
        elif len(name) > len("--o"):
            is_meant = any(option.startswith(name) for option in options)
            values = values if is_meant else []
        found += filter(None, values)
        found += words[at + 1 : at + 2] if is_meant and not equals else ()
    return tuple(dict.fromkeys(found))


def _outputs(words: Words) -> Words:
    return _values_of(words, "-o", "--output")


# --- programs --------------------------------------------------------------------------------


def _unknown_program(words: Words) -> Operands:
    """``$cmd -rf x``: as ``rm`` would take it."""
    return _rm(words) if _has(words, "rR", "--recursive") else Operands(perhaps=words)


def _rm(words: Words) -> Operands:
    files = _plain(words)
    recursive = _has(words, "rR", "--recursive")
    return Operands(files, files if recursive or _has(words, "f", "--force") else (), recursive)


def _shred(words: Words) -> Operands:
    files = _plain(words, "-n -s --iterations --size --random-source")
    return Operands(files, files)


def _change_mode(words: Words) -> Operands:
    """chmod, chown, chgrp: the first operand is a mode or an owner."""
    files = _plain(words, "--reference")
    files = files if _values_of(words, "--reference") else files[1:]
    recursive = _has(words, "R", "--recursive")
    return Operands(files, files if recursive else (), recursive)


def _copy(words: Words) -> Operands:
    """cp, install, ln: into the last operand, or the value of ``-t``."""
    takes = "-m -o -g -S -t --mode --owner --group --suffix --target-directory"
    return _into(_plain(words, takes), _values_of(words, "-t", "--target-directory"))


def _into(files: Words, targets: Words = ()) -> Operands:
    sources = files
    if not targets:
        targets, sources = files[-1:], files[:-1]
    inside = [
        os.path.join(target, os.path.basename(source.rstrip("/")))  # noqa: PTH118, PTH119 - text as typed
        for target in targets
        if target is not None
        for source in sources
        if source is not None
    ]
    return Operands((*targets, *inside))


def _mirror(words: Words) -> Operands:
    files = _plain(words, "-e -f --rsh --filter --exclude --include --exclude-from")
    copied = _into(files)
    deletes = any(word is not None and word.startswith("--del") for word in words)
    lost = copied.written[:1] if deletes else ()
    if "--remove-source-files" in words:
        lost = (*lost, *files[:-1])
    return Operands(copied.written, lost, bool(lost))


def _move(words: Words) -> Operands:
    moved = _copy(words)
    sources = _plain(words, "-S -t --suffix --target-directory")
    if not _values_of(words, "-t", "--target-directory"):
        sources = sources[:-1]
    known = tuple(source for source in sources if source is not None)
    return Operands((*moved.written, *sources), known)


def _disk_dump(words: Words) -> Operands:
    return Operands(tuple(word[3:] for word in words if word is not None and word[:3] == "of="))


def _in_place(words: Words) -> Operands:
    """sed, perl, ruby: their files are written only with ``-i``."""
    is_edit = any(word is not None and re.match(r"-[a-zA-Z0-9]*i|--i", word) for word in words)
    return Operands(_plain(words, "-e -f --expression --file") if is_edit else ())


_UNPACKS_TO = ("--directory", "--file", "--one-top-level", "--index-file")


def _unpack(words: Words) -> Operands:
    """Tar and its kind: the directory that it is unpacked in, and what is packed."""
    lost = _plain(words[1:], "-f --file -C") if _has(words, "", "--remove-files") else ()
    if words and words[0] and words[0][0] != "-":  # "cf x.tar"
        words = (f"-{words[0]}", *words[1:])
    written = _values_of(words, "-C", "-d", "-f", "-D", "-o", *_UNPACKS_TO)
    members = _plain(words) if _has(words, "x", "--extract", "--get") else ()
    return Operands(written, lost, bool(lost), perhaps=members)


def _make_file_system(words: Words) -> Operands:
    files = tuple(word for word in _plain(words) if word is None or "/" in word)
    return Operands(files, files, is_recursive=True)


_PATTERN_TESTS = frozenset({"-name", "-iname", "-path", "-ipath", "-wholename", "-regex"})
_WIDENS = frozenset({"!", "-not", "-o", "-or", ","})
_ONLY_WILD = re.compile(r"[*?.]*")
_KILLERS = frozenset({"rm", "shred", "unlink", "mv", "chmod", "chown", "truncate"})


def _find(words: Words) -> Operands:
    """``find`` destroys below its starts, unless a pattern narrows what is found there."""
    starts: list[str | None] = []
    for word in words:
        if word is not None and word.startswith(("-", "(", "!")):
            break
        starts.append(word)
    tests = words[len(starts) :]
    written = _values_of(tests, "-fprint", "-fprintf", "-fls")
    run = [each.words for each in look_through(("find", *words)).inner]
    for block in run:  # "sudo rm"
        run += (each.words for each in look_through(block).inner if len(run) < _MOST_RUN)
    runs = {(block[0] or "").rpartition("/")[2] for block in run if block}
    if "-delete" not in tests and _KILLERS.isdisjoint(runs):
        return Operands(written)
    narrowed = _WIDENS.isdisjoint(tests) and any(
        word in _PATTERN_TESTS and after is not None and not _ONLY_WILD.fullmatch(after)
        for word, after in pairwise(tests)
    )
    lost = [
        start
        for start in starts or ["."]
        if not narrowed or start is None or start.startswith(("/", "~", ".."))
    ]
    if ("-prune", "-o") not in pairwise(tests) and any(
        before not in {"!", "-not"} and _finds_git(test, after)
        for before, test, after in zip((None, *tests), tests, tests[1:], strict=False)
    ):
        lost += [start and f"{start}/.git" for start in starts or ["."]]
    return Operands(written, tuple(lost), is_recursive=True)


def _finds_git(test: str | None, pattern: str | None) -> bool:
    """Whether a test of ``find`` lets git's own directory, or what is in it, pass."""
    if test not in _PATTERN_TESTS or pattern is None or _ONLY_WILD.fullmatch(pattern):
        return False
    plain = pattern.casefold()
    name = ".git" if test in {"-name", "-iname"} else "./.git"
    is_named = ".git" in plain.replace("\\", "").split("/")
    return is_named or fnmatch.fnmatchcase(name, without_sets(plain))


def _git(words: Words) -> Operands:
    """``git config`` writes, ``git clean`` and ``git rm -r`` destroy."""
    rest = list(words)
    directory, tree = ".", _values_of(words, "--work-tree")
    forced: Words = ()
    while rest and (rest[0] is None or rest[0].startswith("-")):
        option = rest.pop(0)
        if option in {"-C", "-c", "--git-dir", "--work-tree"} and rest:
            value = rest.pop(0)
            if option == "-c" and "requireforce" in (value or "").casefold():
                forced = ("-f",)
            if option == "-C" and value is not None:
                directory = os.path.join(directory, value)  # noqa: PTH118 - text as typed
    command = _GIT_COMMANDS.get(rest[0] or "") if rest else None
    after = (*forced, *rest[1:])
    if command:
        found = command(after, directory)
        return replace(found, written=(*found.written, *tree))
    known = tuple(word or UNKNOWN for word in rest)
    if not rest or rest[0] in _GIT_KEEPS or only_reads(("git", *known)):
        return Operands((*_below(directory, _outputs(after)), *tree))
    return Operands(tree, perhaps=_below(directory, _perhaps((None, *after))))


# they leave what they name in the working tree as it is
_GIT_KEEPS = frozenset(
    {
        "add", "am", "apply", "branch", "cherry-pick", "commit", "diff", "fetch", "gc",
        "hash-object", "lfs", "log", "ls-remote", "merge", "pull", "push", "rebase", "remote",
        "reset", "revert", "stash", "status", "switch", "tag", "update-index", "update-ref",
    }
)  # fmt: skip


def _git_config(words: Words, directory: str) -> Operands:
    takes = "-f --file --type --default --blob --comment"
    operands = _plain(words, takes)
    options = {*words} - {*operands, *_values_of(words, *takes.split())}
    if operands[:1] in {("get",), ("list",)} or any(
        word in {"-l", "--list"} or (word or "").startswith("--get") for word in options
    ):
        return Operands()
    is_edit = operands == ("edit",) or _has(words, "e", "--edit", "--unset-all", "--remove-section")
    if len(operands) == 1 and not is_edit:
        return Operands()
    if files := _values_of(words, "-f", "--file"):
        return Operands(files)
    if _has(words, "", "--global"):
        return Operands(("~/.gitconfig",))
    return Operands((f"{directory}/.git/config",))


def _git_clean(words: Words, directory: str) -> Operands:
    if not _has(words, "f", "--force") or _only_tells(words):
        return Operands()
    where = _plain(words, "-e --exclude") or (".",)
    return Operands(destroyed=_below(directory, where), is_recursive=True)


def _only_tells(words: Words) -> bool:
    """Whether ``git clean`` has ``-n``, and not as a part of the pattern for ``-e``."""
    is_dry = is_value = False
    for word in words:
        if word == "--":
            break
        if is_value or not word or word[0] != "-":
            is_value = False
        elif word.startswith("--"):
            is_dry = (is_dry or _has((word,), "", "--dry-run")) and not word.startswith("--no-")
            is_value = word == "--exclude"
        else:
            letters, takes, value = word[1:].partition("e")  # "-enode_modules"
            is_dry, is_value = is_dry or "n" in letters, bool(takes) and not value
    return is_dry


def _git_remove(words: Words, directory: str) -> Operands:
    is_kept = _has(words, "", "--cached", "--dry-run")
    is_kept = is_kept and not _has(words, "", "--no-cached", "--no-dry-run")
    if is_kept or not _has(words, "r"):
        return Operands()
    return Operands(destroyed=_below(directory, _plain(words)), is_recursive=True)


def _git_files(words: Words, directory: str) -> Operands:
    return Operands(_below(directory, _plain(words, "-s --source")))


def _git_move(words: Words, directory: str) -> Operands:
    return Operands(_below(directory, _move(words).written))


def _git_checkout(words: Words, directory: str) -> Operands:
    if "--" in words:
        return _git_files(words[words.index("--") :], directory)
    return Operands(perhaps=_below(directory, _plain(words)))


def _below(directory: str, names: Words) -> Words:
    return tuple(
        # ":/" and its kind may mean any file; gitglossary(7), "pathspec"
        None if name is None or name[:1] == ":" else os.path.join(directory, name)  # noqa: PTH118 - text as typed
        for name in names
    )


_GIT_COMMANDS: dict[str, Callable[[Words, str], Operands]] = {
    "config": _git_config,
    "clean": _git_clean,
    "rm": _git_remove,
    "mv": _git_move,
    "restore": _git_files,
    "checkout": _git_checkout,
}
_SPECIAL: dict[str, Callable[[Words], Operands]] = {
    "rm": _rm, "unlink": _rm, "shred": _shred, "chmod": _change_mode, "chown": _change_mode,
    "chgrp": _change_mode, "setfacl": _change_mode, "chattr": _change_mode, "cp": _copy,
    "install": _copy, "ln": _copy, "scp": _copy, "rsync": _mirror, "mv": _move, "dd": _disk_dump,
    "sed": _in_place, "perl": _in_place, "ruby": _in_place, "mkfs": _make_file_system,
    "tar": _unpack, "bsdtar": _unpack, "unzip": _unpack,
    "wipefs": _make_file_system, "blkdiscard": _make_file_system, "find": _find, "git": _git,
}  # fmt: skip
# programs that write all their operands -> their options that take a value
_ALL = {
    "tee": "", "touch": "-d -r -t --date --reference", "mkdir": "-m --mode", "rmdir": "",
    "truncate": "-s -r --size --reference", "sponge": "", "gzip": "-S", "gunzip": "-S",
    "bzip2": "", "xz": "", "ed": "", "ex": "", "vi": "", "vim": "", "nano": "",
    "emacs": "", "mknod": "", "mkfifo": "", "split": "-b -l -n -a",
}  # fmt: skip
