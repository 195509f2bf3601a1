"""A patch as values: what is to happen to which file, hunk by hunk."""

from __future__ import annotations

from dataclasses import dataclass, field


class PatchProblem(Exception):
    """The patch cannot be read or does not fit; the message is for the model."""


@dataclass(frozen=True, slots=True)
class PatchLine:
    """``sign`` is a blank (context), ``-`` or ``+``. ``ended``: a line end follows it."""

    sign: str
    text: str
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Hunk:
    """A piece of change.

    ``anchors`` are lines to find first, one after another. ``at_end``: its old lines are the
    last of the file. ``old_start`` is the line number (from 1) that a unified diff gives.
    ``number`` is its line in the patch, for messages.
    """

    lines: tuple[PatchLine, ...]
    number: int
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    old_start: int | None = None

    @property
    def old(self) -> list[str]:
        """The lines that it expects."""
        return [line.text for line in self.lines if line.sign != "+"]


@dataclass(frozen=True, slots=True)
class AddFile:
    """A new file. ``overwrite``: one that exists is replaced, else it is an error."""

    path: str
    content: str
    overwrite: bool = True
    executable: bool = False


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The file goes; ``hunks``, where given, must account for all of its lines."""

    path: str
    hunks: tuple[Hunk, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateFile:
    """Changes to a file, which may move, or be copied, to ``new_path`` at the same time.

    ``strict_end``: the hunks say themselves whether the last line has a line end (unified
    diffs); without it an updated file always ends with one.
    """

    path: str
    hunks: tuple[Hunk, ...] = ()
    new_path: str | None = None
    is_copy: bool = False
    strict_end: bool = False
    overwrite: bool = True
    mode: int | None = None


Operation = AddFile | DeleteFile | UpdateFile


@dataclass(frozen=True, slots=True)
class Patch:
    """The operations, in order."""

    operations: tuple[Operation, ...] = field(default=())

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that is named, move targets included, each once."""
        names: list[str] = []
        for operation in self.operations:
            names.append(operation.path)
            if isinstance(operation, UpdateFile) and operation.new_path:
                names.append(operation.new_path)
        return tuple(dict.fromkeys(names))
