"""Reading the ``*** Begin Patch`` format; unified diffs go to ``_patch_unified``.

::

    *** Begin Patch
    *** Add File: PATH            every following line begins with +
    *** Delete File: PATH
    *** Update File: PATH
    *** Move to: PATH             optional
    @@ a line of the file         optional, several narrow the place down
     context, -removed, +added
    *** End of File               optional: the lines above are the file's last
    *** End Patch

A here-document or a code fence around the patch and blanks around its marker lines are
overlooked; a patch without its end marker was cut and is refused.
"""

from __future__ import annotations

import re

from agentcli.tools.files.patch_model import (
    AddFile,
    DeleteFile,
    Hunk,
    Operation,
    Patch,
    PatchLine,
    PatchProblem,
    UpdateFile,
)
from agentcli.tools.files.patch_unified import looks_unified, parse_unified

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_ADD = "*** Add File:"
_DELETE = "*** Delete File:"
_UPDATE = "*** Update File:"
_MOVE = "*** Move to:"
_EOF = "*** End of File"
_HEREDOC = re.compile(r"(?:(?:apply_patch|applypatch|cat)\s+)?<<-?\s*(['\"]?)(\w+)\1\s*")
_FENCE = re.compile(r"(`{3,}|~{3,})\s*\w*\s*")
_NUMBERED_HEADER = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*")
_FORMS = f"'{_ADD} PATH', '{_DELETE} PATH' and '{_UPDATE} PATH'"


def parse_patch(text: str) -> Patch:
    """The patch that ``text`` is, in either format; raises ``PatchProblem``."""
    lines = _unwrapped(_bare([line.removesuffix("\r") for line in text.split("\n")]))
    if not lines:
        raise PatchProblem("The patch is empty.")
    if lines[0].strip() == _BEGIN:
        if lines[-1].strip() != _END:
            raise PatchProblem(f"The last line of the patch must be '{_END}'. Was it cut?")
        inner = lines[1:-1]
        if looks_unified(inner):
            return parse_unified(inner, first_number=2)
        return Patch(tuple(_Reader(inner).operations()))
    if looks_unified(lines):
        return parse_unified(lines)
    raise PatchProblem(
        f"The first line of the patch must be '{_BEGIN}' and the last '{_END}' "
        "(a unified diff with '---' and '+++' lines is understood too)."
    )


def _unwrapped(lines: list[str]) -> list[str]:
    if len(lines) > 2:  # noqa: PLR2004 - a wrapper is two lines around something
        heredoc = _HEREDOC.fullmatch(lines[0])
        if heredoc and lines[-1].strip() == heredoc[2]:
            return _unwrapped(_bare(lines[1:-1]))
        fence = _FENCE.fullmatch(lines[0])
        if fence and lines[-1].strip() == fence[1]:
            return _unwrapped(_bare(lines[1:-1]))
    return lines


def _bare(lines: list[str]) -> list[str]:
    """``lines`` without the blank ones at both ends; one of blanks may be context at the end."""
    start, end = 0, len(lines)
    while start < end and not lines[start].strip():
        start += 1
    may_be_context = looks_unified(lines)
    while end > start and not lines[end - 1].strip() and not (lines[end - 1] and may_be_context):
        end -= 1
    return lines[start:end]


class _Reader:
    """Walks over the lines between the markers; the first of them is line 2 of the patch."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def operations(self) -> list[Operation]:
        found: list[Operation] = []
        while self._skip_blank():
            found.append(self._operation())
        return found

    @property
    def _line(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    @property
    def _number(self) -> int:
        return self._at + 2

    def _skip_blank(self) -> bool:
        while self._line is not None and not self._line.strip():
            self._at += 1
        return self._line is not None

    def _operation(self) -> Operation:
        number, header = self._number, (self._line or "").strip()
        self._at += 1
        for marker in (_ADD, _DELETE, _UPDATE):
            if header.startswith(marker):
                path = header.removeprefix(marker).strip()
                if not path:
                    raise PatchProblem(f"Line {number}: '{header}' names no file.")
                if marker == _ADD:
                    return self._added(path)
                return DeleteFile(path) if marker == _DELETE else self._updated(path, number)
        raise PatchProblem(
            f"Line {number}: '{header[:200]}' is not a valid header. Valid are {_FORMS}; "
            "a line of a new file begins with '+'."
        )

    def _added(self, path: str) -> AddFile:
        content = []
        while self._line is not None and self._line.startswith("+"):
            content.append(self._line[1:] + "\n")
            self._at += 1
        return AddFile(path, "".join(content))

    def _updated(self, path: str, number: int) -> UpdateFile:
        new_path = None
        if self._line is not None and self._line.startswith(_MOVE):
            new_path = self._line.removeprefix(_MOVE).strip()
            if not new_path:
                raise PatchProblem(f"Line {self._number}: '{_MOVE}' names no file.")
            self._at += 1
        hunks: list[Hunk] = []
        while self._skip_blank() and not (self._line or "").startswith("*"):
            hunks.append(self._hunk(is_first=not hunks))
        if not hunks and new_path is None:
            raise PatchProblem(f"Line {number}: the update of {path} is empty: it has no hunk.")
        return UpdateFile(path, tuple(hunks), new_path)

    def _hunk(self, *, is_first: bool) -> Hunk:
        number = self._number
        anchors = self._anchors()
        if anchors is None and not is_first:
            raise PatchProblem(
                f"Line {number}: a further hunk begins with '@@', not with '{self._line}'."
            )
        lines: list[PatchLine] = []
        at_end = False
        while self._line is not None:
            line = self._line
            if line.rstrip() == _EOF and lines:
                at_end = True
                self._at += 1
                break
            if line and line[0] not in " +-":
                break
            lines.append(PatchLine(line[0], line[1:]) if line else PatchLine(" ", ""))
            self._at += 1
        if not lines:
            raise PatchProblem(
                f"Line {self._number}: a hunk has no lines here. Each begins with ' ' (context), "
                f"'-' (removed) or '+' (added){f', not {self._line!r}' if self._line else ''}."
            )
        return Hunk(tuple(lines), number, tuple(anchors or ()), at_end)

    def _anchors(self) -> list[str] | None:
        """The ``@@`` lines here; ``None`` when there is none. A bare one narrows nothing."""
        anchors: list[str] | None = None
        while self._line is not None and (self._line.rstrip() == "@@" or self._line[:3] == "@@ "):
            anchor = self._line[3:]
            anchors = anchors or []
            if anchor.strip() and not _NUMBERED_HEADER.fullmatch(anchor.strip()):
                anchors.append(anchor)
            self._at += 1
        return anchors
