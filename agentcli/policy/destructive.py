"""Commands that would destroy what cannot be brought back, or touch a protected place.

SEC-14: on the workspace root, home, ``/`` or ``.git``; SEC-3: written by redirections and by
programs. Laws: a file that is named is found, as far as its name is written out; a command whose
target cannot be told is taken to destroy the worst it could.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace
from itertools import product
from pathlib import Path

from agentcli.domain.files import homes_of_users
from agentcli.domain.sandbox import plain_name, says_versions
from agentcli.domain.tools import Workspace, real_path
from agentcli.domain.values import frozen, mutable
from agentcli.policy.bash_command import GIVE_WORDS, ParsedCommand, SimpleCommand
from agentcli.policy.bash_syntax import MAX_CHARS, parse_bash, unquoted, written_names
from agentcli.policy.decision import CallPlace
from agentcli.policy.git_operands import git_operands
from agentcli.policy.operands import KILLERS, Operands, above_of, program_operands
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
    moves,
    names_of_own,
    places_of,
    protected_beside,
    seen_words,
    starts_of,
    without_sets,
)
from agentcli.policy.strict_reads import below

_ALL_OF_IT = re.compile(r"[.!^\[\]]*[*?][*?.!^\[\]]*")
_GOES_BACK = re.compile(r"[^*?\]]*[*?\]].*/\.\.(?:/|\Z)", re.DOTALL)
_HARMLESS_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|tty|stdin|stdout|stderr|fd(?:/.*)?|shm(?:/.*)?|pts(?:/.*)?)"
)
_ONLY_THERE = re.compile(
    r"\s*cd +([\w./+-]+) +&&(?:(?!\|\||[;\n]|(?<!&)&(?!&)).)*", re.ASCII | re.DOTALL
)
# "{rm,-rf,..}" is a command
_MADE_BY_BRACES = re.compile(r"(?<![^\s;&|(`])\{([^{},\s]*+,[^{}\s]*+)\}")
_GITS = "git's own directory"
_PRIVATE = "/tmp"  # noqa: S108 - commands in a sandbox have one of their own
_TEXT = re.compile(r"[\s'\"()]")
_DESTROYER = re.compile(r"\b(?:rm|shred|mkfs|dd|find|chmod|chown|mv|git|rsync)\b")
_TELLS = re.compile(r"(?:\$\(|`)\s*find\b|\bfind\b[^;&\n]*\|\s*while\b")
_MOST_PATHS = 5_000
_RUNS = {"find": "-exec", "gfind": "-exec", "fd": "-x", "fdfind": "-x"}


@frozen
class Danger:
    """What a command would do, in words, and which of the commands it is.

    ``is_destructive``: SEC-14; else it writes a protected place (SEC-3). ``is_kept``: in the
    sandbox it would fail, or be undone.
    """

    what: str
    part: str
    is_destructive: bool
    is_kept: bool = False


def dangers_of(text: str, place: CallPlace, *, contained: bool = False) -> Iterator[Danger]:
    """What of ``text`` is destructive or writes a protected place, in its order.

    ``contained``: a sandbox limits it to the workspace.
    """
    if len(text) > MAX_CHARS:
        if not contained or _DESTROYER.search(text):
            what = "it is too long to tell what it writes or destroys"
            yield Danger(what, "", is_destructive=contained)
        return
    parsed = parse_bash(text)
    commands = parsed.commands
    if not parsed.understood:
        if len(text) <= LONGEST_LOOSE:
            apart = _MADE_BY_BRACES.sub(lambda found: found[1].replace(",", " "), text)
            texts = dict.fromkeys((text, apart))
            commands = (*commands, *(each for one in texts for each in loose_commands(one)))
        elif _DESTROYER.search(text):
            what = "the command is too long to tell what it destroys"
            yield Danger(what, "", is_destructive=True)
    workspace = place.workspace
    variables = Variables()
    variables.learn(commands, parsed.loops)
    search = _Search(
        starts=_starts(text, parsed, commands, workspace),
        roots=tuple(real for _, real in workspace.led),
        own=names_of_own(place.policy.own_directories),
        run_by_others=place.policy.run_by_others,
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
        forms = [form for source in sources for form in variables.forms(source)]
        sure = {form for form in forms if parsed.understood and OPEN not in form}
        yield from search.written(tuple(map(_as_pattern, forms)), text, sure)
    if search.left < 0:
        yield Danger("it names too many files to check", "", is_destructive=True)


def _starts(
    text: str, parsed: ParsedCommand, commands: Sequence[SimpleCommand], workspace: Workspace
) -> Starts:
    """Where the commands may be; behind ``cd DIRECTORY &&`` nowhere else, if it is there now."""
    moved = _ONLY_THERE.fullmatch(text) if parsed.understood else None
    there = below(moved[1], workspace) if moved and commands[0].words[:1] == ("cd",) else None
    may_move = moves(commands[1:]) or any(each.program in {".", "source"} for each in commands)
    if there is None or may_move:
        return starts_of(commands, workspace.cwd)
    return starts_of(commands[1:], there.cwd)


def _if_known(form: str | None) -> str | None:
    return None if form and OPEN in form else form


def _as_pattern(form: str, rest: str = "*") -> str | None:
    """With ``rest`` for what only the shell will know; ``None``: nothing of it is known."""
    pattern = re.sub(r"\*+", "*", form.replace(OPEN, rest))
    return pattern if pattern.strip("*/") else None


def _hands_to_killer(commands: Sequence[SimpleCommand], text: str) -> bool:
    """Whether one of ``commands`` removes what another one, such as ``find``, tells it."""
    killers = (each for each in commands if each.program in KILLERS)
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
    ``own`` are our own directories; ``is_protected_here``, once it is known: all of the workspace.
    """

    starts: Starts
    roots: tuple[Path, ...]
    own: Sequence[tuple[str, ...]]
    run_by_others: Callable[[Path], str]
    contained: bool
    has_all: bool
    hands_on: bool
    moves_home: bool
    variables: Variables
    left: int = _MOST_PATHS
    finder: GlobFinder = field(default_factory=GlobFinder)
    is_protected_here: bool | None = None

    def dangers(self, command: SimpleCommand) -> Iterator[Danger]:
        """What ``command`` would destroy, and what protected place it would write."""
        words = seen_words(command)
        if self.hands_on and (runs := _RUNS.get(replace(command, words=words).program)):
            words = (*words, runs, "rm")
        operands = operands_of(words)
        lost: set[str | None] = set()
        yield from self._destroyed(operands, command, lost)
        if None in words:
            for reading in self.variables.readings(command):
                known = operands_of(tuple(map(_if_known, reading)))
                yield from self._destroyed(known, command, lost)
        kept = operands.kept if self.contained else ()
        names = (*(each for each in operands.written if each not in lost), *kept)
        sure = frozenset(names)
        perhaps = operands.perhaps
        if None in (*operands.written, *perhaps):
            readings = product(self.variables.readings(command), ("*", ""))  # it may be empty
            for reading, rest in readings:
                more = operands_of(tuple(word and _as_pattern(word, rest) for word in reading))
                names = (*names, *(each for each in more.written if each not in lost))
                perhaps = (*perhaps, *more.perhaps)
        yield from self.written((*names, *self._likely(perhaps)), command.text, sure)
        redirected = tuple(each.target for each in command.redirections if each.writes)
        yield from self.written(redirected, "", redirected)  # it may be another's in a list
        yield from self._made(operands.made, command.text)

    def _made(self, names: Words, part: str) -> Iterator[Danger]:
        """What a command makes out of the sandbox's reach, and fails half-way."""
        for name in names if self.contained else ():
            is_sure = name and (name.startswith(("/", "~")) or self.starts.is_sure)
            if name and is_sure and all(map(self._is_beyond, self._places(name))):
                what = f"{os.path.normpath(name)} is outside of the workspace"
                yield Danger(what, part, is_destructive=False, is_kept=True)

    def _is_beyond(self, path: Path) -> bool:
        real = real_path(path)
        if any(real.is_relative_to(root) for root in self.roots):
            return False
        is_homes = any(real.is_relative_to(home) for home in _homes())
        return is_homes or not real.is_relative_to(_PRIVATE)

    def _likely(self, names: Words) -> Words:
        """Those that are no text, but in a place where everything is protected."""
        if not names:
            return ()
        if self.is_protected_here is None:
            self.is_protected_here = bool(protected_beside(self.roots[:1], self.own))
        if self.is_protected_here:
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
                is_kept = what == _GITS and self._is_kept(name, tuple(self._places(name)))
                what = f"it would destroy {what}"
                yield Danger(what, part, is_destructive=True, is_kept=is_kept)

    def _lost_with(self, path: Path) -> str | None:
        """What would be lost with ``path`` (which may be a pattern) and all that is in it."""
        if _GOES_BACK.match(str(path)):
            return "what lies above what a pattern finds"
        # as it is written, and where the links in front of its first pattern lead
        both = dict.fromkeys((Path(os.path.normpath(path)), _led(path)))
        return next(filter(None, map(self._lost_at, both)), None)

    def _lost_at(self, path: Path) -> str | None:
        place = path
        while place.name and _ALL_OF_IT.fullmatch(place.name):
            place = place.parent
        if not is_pattern(str(place)):
            each = dict.fromkeys((place, real_path(place), real_path(path)))
            return next(filter(None, map(self._named, each)), None)
        names = [*(root / ".git" for root in self.roots), *_with_parents(self.roots)]
        if not self.contained:
            names += _with_parents(_homes())
        pattern = without_sets(str(place))
        hit = next((name for name in names if fnmatch.fnmatchcase(str(name), pattern)), None)
        return str(hit) if hit is not None else None

    def _named(self, path: Path) -> str | None:
        is_inside = any(path.is_relative_to(root) for root in self.roots)
        if ".git" in map(plain_name, path.parts) and (is_inside or not self.contained):
            return _GITS
        if path in self.roots:
            return "the workspace itself"
        if any(root.is_relative_to(path) for root in self.roots):
            return f"{path} with the workspace in it"
        if self.contained:
            return None
        for home in _homes():
            if home.is_relative_to(path):
                what = f"the home directory {home}"
                return what if path == home else f"{path} with {what} in it"
        return f"the system's {path}" if path.parent == Path("/") else None

    def written(
        self, names: Sequence[str | None], part: str, sure: Collection[str | None] = ()
    ) -> Iterator[Danger]:
        """SEC-3, and devices. ``sure`` are those that are written for certain."""
        for name in filter(None, dict.fromkeys(names)):
            paths = tuple(self._matches(name))
            if device := next(filter(None, map(_device, paths)), None):
                if not self.contained:
                    yield Danger(f"it would write to {device}", part, is_destructive=True)
            elif place := self._protected(paths, is_sure=name in sure):
                is_kept = name in sure and self._is_kept(name, paths)
                what = f"{place} is protected"
                yield Danger(what, part, is_destructive=False, is_kept=is_kept)

    def _protected(self, paths: Sequence[Path], *, is_sure: bool) -> str | None:
        named = [path for path in paths if not (self.contained and self._says_versions(path))]
        place = protected_beside(named, self.own, contained=self.contained)
        if place or not is_sure:
            return place
        obeyed = ((path.name, self.run_by_others(path)) for path in paths)
        return next((f"{name} ({why})" for name, why in obeyed if why), None)

    def _says_versions(self, path: Path) -> bool:
        """Whether it is judged by what it says once it is written, as the sandbox does (SEC-17)."""
        both = (path, real_path(path))
        if not all(says_versions(plain_name(each.name)) for each in both):
            return False
        is_inside = any(map(both[1].is_relative_to, self._reached(_homes())))
        beside = [each.with_name("version") for each in both]
        return is_inside and not protected_beside(beside, self.own, contained=True)

    def _reached(self, homes: Sequence[Path]) -> list[Path]:
        """The roots that are no home directory and hold none."""
        return [r for r in self.roots if not any(home.is_relative_to(r) for home in homes)]

    def _is_kept(self, name: str, paths: Sequence[Path]) -> bool:
        """Whether the sandbox keeps them as they are: others obey them, or it is out of reach."""
        if not self.contained or not (name.startswith(("/", "~")) or self.starts.is_sure):
            return False
        homes, own = _homes(), self.own
        reached = self._reached(homes)

        def is_kept(path: Path) -> bool:
            real = real_path(path)
            if not any(real.is_relative_to(root) for root in reached):
                is_homes = any(real.is_relative_to(home) for home in homes)
                return is_homes or not real.is_relative_to(_PRIVATE)
            obeyed = protected_beside((path,), own, contained=True, obeyed=True)
            return bool(obeyed or self.run_by_others(path))

        return all(map(is_kept, paths))

    def _matches(self, name: str) -> Iterator[Path]:
        for path in self._places(name):
            matches = found_by(path, self.finder)
            self.left -= _MOST_PATHS if matches is None else len(matches) - 1
            yield from matches or ()

    def _places(self, name: str) -> Iterator[Path]:
        if "\0" in name:
            return  # it names no file
        above, slash, last = name.rpartition("/")
        names = dict.fromkeys((name, f"{above_of(above)}{slash}{last}"))
        directories = self.starts.directories
        for path in (path for each in names for path in places_of(each, directories)):
            self.left -= 1
            if self.left < 0:
                return
            yield path


def _led(path: Path) -> Path:
    """Where ``path`` leads up to its first pattern, links followed; the rest as it is written."""
    at = next((at for at, part in enumerate(path.parts) if is_pattern(part)), len(path.parts))
    return Path(real_path(Path(*path.parts[:at])), *path.parts[at:])


def _homes() -> tuple[Path, ...]:
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib's raises without a home
    return tuple(real_path(Path(each)) for each in homes_of_users(home))


def _with_parents(paths: Sequence[Path]) -> list[Path]:
    return [each for path in paths for each in (path, *path.parents)]


def _device(path: Path) -> str | None:
    name = os.path.normpath(path)
    if not name.startswith("/dev/") or _HARMLESS_DEVICES.fullmatch(name):
        return None
    return name


def operands_of(words: Words) -> Operands:
    """What the command made of ``words`` would change and destroy."""
    is_git = bool(words) and (words[0] or "").rpartition("/")[2] == "git"
    return git_operands(words[1:]) if is_git else program_operands(words)
