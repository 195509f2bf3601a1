"""Commands that would destroy what cannot be brought back, or write a protected place.

SEC-14: on the workspace root, home, ``/`` or ``.git``; SEC-3: by redirections and by well-known
programs. Law: one whose target cannot be told is taken to destroy the worst it could.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcli.domain.tools import Workspace, real_path
from agentcli.domain.values import frozen, mutable
from agentcli.policy.bash_command import ParsedCommand, SimpleCommand
from agentcli.policy.command_texts import word_lists, written_names
from agentcli.policy.protected import plain_name, protected_place
from agentcli.policy.shell_operands import Operands, operands_of
from agentcli.policy.shell_places import (
    Starts,
    expanded,
    is_pattern,
    places_of,
    seen_words,
    starts_of,
)

_ALL_OF_IT = re.compile(r"[*?.!^\[\]]*[*?][*?.!^\[\]]*")
_GIVE_WORDS = frozenset({"xargs", "parallel"})
_HARMLESS_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|tty|stdin|stdout|stderr|fd(?:/.*)?|shm(?:/.*)?|pts(?:/.*)?)"
)
_DESTROYER = re.compile(r"\b(?:rm|shred|mkfs|dd|find|chmod|chown|mv|git|rsync)\b")
_LONGEST_LOOSE = 20_000
_MOST_LOOSE_WORDS = 500
_MOST_PATHS = 2_000


@frozen
class Danger:
    """What a command would do, in words, and which of the commands it is.

    ``is_destructive``: SEC-14; else it writes a protected place (SEC-3).
    """

    what: str
    part: str
    is_destructive: bool


@frozen
class Ground:
    """What a session stands on. ``contained``: a sandbox limits the command to the workspace."""

    workspace: Workspace
    own_directories: tuple[Path, ...] = ()
    contained: bool = False

    @property
    def roots(self) -> tuple[Path, ...]:
        """The directories of the workspace, links followed."""
        return tuple(map(real_path, (self.workspace.root, *self.workspace.extra)))


def dangers_of(text: str, parsed: ParsedCommand, ground: Ground) -> Iterator[Danger]:
    """What of ``text`` is destructive or writes a protected place, in its order."""
    commands = parsed.commands
    if not parsed.understood:
        if len(text) <= _LONGEST_LOOSE:
            commands = (*commands, *_loose_commands(text))
        elif _DESTROYER.search(text):
            what = "the command is too long to tell what it destroys"
            yield Danger(what, "", is_destructive=True)
    search = _Search(starts_of(commands, ground.workspace.cwd), ground, parsed.understood)
    for command in dict.fromkeys(commands):
        yield from search.dangers(command)
    if _has_unseen_target(parsed):
        names = tuple(map(expanded, written_names(text)))
        yield from search.written(names, text)
    if search.left < 0:
        yield Danger("it names too many files to check", "", is_destructive=True)


def _loose_commands(text: str) -> Iterator[SimpleCommand]:
    for words in word_lists(text):
        some = words[:_MOST_LOOSE_WORDS]
        yield SimpleCommand(tuple(map(expanded, some)), " ".join(some))


def _has_unseen_target(parsed: ParsedCommand) -> bool:
    return not parsed.understood or any(
        redirection.writes and redirection.target is None
        for command in parsed.commands
        for redirection in command.redirections
    )


@mutable
class _Search:
    """Looks where operands lead; ``left`` is how many paths may still be looked at.

    ``has_all``: every operand is known to be one. A text that is not understood may fall apart
    between a program and its operands.
    """

    starts: Starts
    ground: Ground
    has_all: bool = True
    left: int = _MOST_PATHS

    def dangers(self, command: SimpleCommand) -> Iterator[Danger]:
        """What ``command`` would destroy, and what protected place it would write."""
        operands = operands_of(seen_words(command))
        yield from self._destroyed(operands, command)
        redirected = tuple(each.target for each in command.redirections if each.writes)
        yield from self.written((*operands.written, *redirected), command.text)

    def _destroyed(self, operands: Operands, command: SimpleCommand) -> Iterator[Danger]:
        """SEC-14."""
        part = command.text
        from_elsewhere = not _GIVE_WORDS.isdisjoint(command.wrappers)
        is_torn = not self.has_all and not operands.destroyed
        is_unseen = None in operands.destroyed or from_elsewhere or is_torn
        if operands.is_recursive and is_unseen:
            yield Danger("it cannot be told what it would destroy", part, is_destructive=True)
        for name in dict.fromkeys(operands.destroyed):
            if name is None:
                continue
            is_relative = not name.startswith(("/", "~"))
            if operands.is_recursive and is_relative and not self.starts.is_sure:
                yield Danger("it cannot be told where it would destroy", part, is_destructive=True)
            lost = (_lost_with(path, self.ground) for path in self._places(name))
            if what := next(filter(None, lost), None):
                yield Danger(f"it would destroy {what}", part, is_destructive=True)

    def written(self, names: Sequence[str | None], part: str) -> Iterator[Danger]:
        """SEC-3, and devices."""
        for name in dict.fromkeys(names):
            paths = () if name is None else tuple(self._places(name))
            if device := next(filter(None, map(_device, paths)), None):
                if not self.ground.contained:
                    yield Danger(f"it would write to {device}", part, is_destructive=True)
            elif place := protected_place(paths, self.ground.own_directories):
                yield Danger(f"{place} is protected", part, is_destructive=False)

    def _places(self, name: str) -> Iterator[Path]:
        for path in places_of(name, self.starts.directories):
            self.left -= 1
            if self.left < 0:
                return
            yield path


def _lost_with(path: Path, ground: Ground) -> str | None:
    """What would be lost with ``path`` (which may be a pattern) and all that is in it."""
    lexical = Path(os.path.normpath(path))
    while lexical.name and _ALL_OF_IT.fullmatch(lexical.name):
        lexical = lexical.parent
    roots = ground.roots
    if is_pattern(str(lexical)):
        names = [*(root / ".git" for root in roots), *_with_parents(roots)]
        if not ground.contained:
            names += _with_parents((_home(),))
        hit = next((name for name in names if fnmatch.fnmatchcase(str(name), str(lexical))), None)
        return str(hit) if hit is not None else None
    return next(filter(None, (_named(each, roots, ground) for each in _both(lexical))), None)


def _home() -> Path:
    return real_path(Path(os.path.expanduser("~")))  # noqa: PTH111 - pathlib's raises without a home


def _both(path: Path) -> tuple[Path, ...]:
    return tuple(dict.fromkeys((path, real_path(path))))


def _with_parents(paths: Sequence[Path]) -> list[Path]:
    return [each for path in paths for each in (path, *path.parents)]


def _named(path: Path, roots: Sequence[Path], ground: Ground) -> str | None:
    is_inside = any(path.is_relative_to(root) for root in roots)
    if ".git" in map(plain_name, path.parts) and (is_inside or not ground.contained):
        return "git's own directory"
    if path in roots:
        return "the workspace itself"
    if any(root.is_relative_to(path) for root in roots):
        return f"{path} with the workspace in it"
    if ground.contained:
        return None
    home = _home()
    if home.is_relative_to(path):
        return "your home directory" if path == home else f"{path} with your home directory in it"
    return f"the system's {path}" if path.parent == Path("/") else None


def _device(path: Path) -> str | None:
    name = os.path.normpath(path)
    if not name.startswith("/dev/") or _HARMLESS_DEVICES.fullmatch(name):
        return None
    return name
