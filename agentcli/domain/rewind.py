"""Going back in time: what files were before a tool changed them, and what is taken back (TT-1, 2).

Law: nothing is deleted. What is taken back is hidden and can be brought back as long as nothing
new was said since.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from agentcli.domain.values import frozen


class FileKind(StrEnum):
    """What stands at a path. ``UNKEPT``: something whose content was not kept."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    UNKEPT = "unkept"


@frozen
class FileState:
    """A path at one moment; ``data`` is the content or a link's target, ``why`` it is unkept."""

    kind: FileKind
    data: bytes = b""
    mode: int = 0
    why: str = ""


ABSENT = FileState(FileKind.ABSENT)


@frozen
class FileChange:
    """What a call did to a path; ``after`` is ``None`` when nobody was left to look."""

    id: int
    seq: int
    path: Path
    before: FileState
    after: FileState | None


@frozen
class RewindPoint:
    """A message of the user that can be gone back to: to before it was said.

    ``files`` is how many changes of files came after it, up to the next one.
    """

    seq: int
    text: str
    created_at: float
    files: int = 0


class RewindScope(StrEnum):
    """What is taken back."""

    BOTH = "both"
    CHAT = "chat"
    FILES = "files"


@frozen
class Rewound:
    """What was done. ``text`` is the prompt that was taken back, to be edited and said again."""

    messages: int
    files: Sequence[Path]
    text: str = ""


@frozen
class RewindRecord:
    """A rewind as the file has it: what it did to messages, the changes that it undid.

    ``moves``: a message's ``seq``, what hid it before and what has since (itself: taken back).
    """

    id: int
    moves: tuple[tuple[int, int | None, int | None], ...]
    changes: tuple[FileChange, ...]
    text: str

    @property
    def messages(self) -> int:
        """How many messages it took back."""
        return sum(seq == after for seq, _, after in self.moves)
