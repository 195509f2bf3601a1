"""What the map of a project tells: where names are defined and used (MEM-3)."""

from __future__ import annotations

from agentcli.domain.values import frozen


@frozen
class Symbol:
    """Something that a file defines. Lines count from 1; ``path`` is relative to the project."""

    name: str
    kind: str
    path: str
    line: int
    end: int
    container: str = ""
    rank: float = 0.0

    @property
    def title(self) -> str:
        """The name, with what it is inside of."""
        return f"{self.container}.{self.name}" if self.container else self.name


@frozen
class UsedIn:
    """The lines of one file that use a name."""

    path: str
    lines: tuple[int, ...]


@frozen
class SymbolUses:
    """Who uses ``symbol``, and who ``may``: nothing tells these from uses of another of its name.

    ``alike`` counts the other definitions of its name.
    """

    symbol: Symbol
    uses: tuple[UsedIn, ...]
    alike: int = 0
    may: tuple[UsedIn, ...] = ()


@frozen
class MapState:
    """What the map covers. ``waiting`` files are not read yet, ``partly`` were not read whole.

    ``untold`` were left out: too large, minified, no text. ``missing`` names the languages that
    were read as text since their grammar is not installed.
    """

    files: int = 0
    symbols: int = 0
    waiting: int = 0
    partly: int = 0
    untold: int = 0
    missing: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of an answer of the map should know of it."""
        found = []
        if self.waiting:
            found.append(f"{self.waiting:,} files are not in the map yet: ask again for more")
        if self.partly or self.untold:
            count = self.partly + self.untold
            found.append(f"{count:,} files left out or cut: too large, minified or no text")
        if self.missing:
            from agentcli.domain.extensions.extras import install_command

            languages = ", ".join(self.missing)
            found.append(f"{languages} read as text: {install_command('map')}")
        return tuple(found)


@frozen
class FileLink:
    """The file ``user`` uses what ``used`` defines, so much."""

    user: str
    used: str
    weight: float


@frozen
class MappedFile:
    """A file of the map, with what it defines that is used most, in its order."""

    path: str
    rank: float
    symbols: tuple[Symbol, ...]


@frozen
class MapPicture:
    """The files that are used most, the first most, and who of them uses whom."""

    files: tuple[MappedFile, ...]
    links: tuple[FileLink, ...]
