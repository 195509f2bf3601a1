"""Reading unified diffs, git's and plain ones, as people and models write them.

Line counts in ``@@`` lines are believed only as far as the lines themselves agree; a hunk
without numbers is placed by its context alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

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

_RANGE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")
_NULL = "/dev/null"
_NO_NEWLINE = "\\"
_OLD_PREFIXES, _NEW_PREFIXES = ("a/", "i/", "c/", "o/"), ("b/", "w/", "i/")
_OCTAL = re.compile(rb"\\([0-7]{3})|\\(.)")
_C_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f"}


def looks_unified(lines: Sequence[str]) -> bool:
    """Whether ``lines`` begin like a unified diff, after any words before it."""
    for at, line in enumerate(lines):
        if line.startswith("*** "):
            return False
        if line.startswith("diff --git ") or _is_header(lines, at):
            return True
    return False


def parse_unified(lines: Sequence[str], first_number: int = 1) -> Patch:
    """The patch; ``first_number`` is the number of the first line. Raises ``PatchProblem``."""
    return Patch(tuple(_Reader(lines, first_number).operations()))


def _is_header(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


@dataclass(slots=True)
class _Section:
    """What is known of one file of the diff so far."""

    number: int
    git_names: tuple[str, str] | None = None
    old: str | None = None
    new: str | None = None
    renamed: tuple[str, str] | None = None
    is_copy: bool = False
    is_new: bool = False
    is_deleted: bool = False
    mode: int | None = None
    hunks: list[Hunk] = field(default_factory=list)


class _Reader:
    def __init__(self, lines: Sequence[str], first_number: int) -> None:
        self._lines = lines
        self._first = first_number
        self._at = 0

    def operations(self) -> list[Operation]:
        found: list[Operation] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git ") or _is_header(self._lines, self._at):
                found.append(_operation(self._section()))
            elif line.startswith("@@"):
                raise PatchProblem(f"{self._where()}: a hunk before any '---' and '+++' lines.")
            else:
                self._at += 1  # words between the files
        return found

    def _where(self) -> str:
        return f"Line {self._at + self._first}"

    def _section(self) -> _Section:
        section = _Section(self._at + self._first)
        if self._lines[self._at].startswith("diff --git "):
            section.git_names = _git_names(self._lines[self._at])
            self._at += 1
            self._extended_headers(section)
        if self._at < len(self._lines) and _is_header(self._lines, self._at):
            section.old = _header_name(self._lines[self._at][4:])
            section.new = _header_name(self._lines[self._at + 1][4:])
            self._at += 2
        while self._at < len(self._lines) and self._lines[self._at].startswith("@@"):
            section.hunks.append(self._hunk())
        return section

    def _extended_headers(self, section: _Section) -> None:
        source = ""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(("diff --git ", "@@")) or _is_header(self._lines, self._at):
                return
            word, _, rest = line.rpartition(" ")
            if word in {"new file mode", "new mode"}:
                section.is_new = section.is_new or word == "new file mode"
                section.mode = _mode(rest)
            elif word == "deleted file mode":
                section.is_deleted = True
            elif line.startswith(("rename from ", "copy from ")):
                source = _unquoted(line.split(" ", 2)[2])
            elif line.startswith(("rename to ", "copy to ")):
                section.is_copy = line.startswith("copy")
                section.renamed = (source, _unquoted(line.split(" ", 2)[2]))
            elif line.startswith(("GIT binary patch", "Binary files ")):
                raise PatchProblem(f"{self._where()}: binary patches cannot be applied.")
            self._at += 1

    def _hunk(self) -> Hunk:
        number = self._at + self._first
        match = _RANGE.fullmatch(self._lines[self._at])
        self._at += 1
        start = int(match[1]) if match else None
        old_left, new_left = (int(match[2] or 1), int(match[4] or 1)) if match else (0, 0)
        lines: list[PatchLine] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            counted = old_left > 0 or new_left > 0
            if line.startswith(_NO_NEWLINE):
                if lines:
                    lines[-1] = PatchLine(lines[-1].sign, lines[-1].text, ended=False)
            elif self._ends_hunk(line, counted=counted):
                break
            else:
                sign = line[0] if line else " "
                lines.append(PatchLine(sign, line[1:]))
                old_left -= sign != "+"
                new_left -= sign != "-"
            self._at += 1
        if not lines:
            raise PatchProblem(f"Line {number}: the hunk has no lines.")
        return Hunk(tuple(lines), number, old_start=start)

    def _ends_hunk(self, line: str, *, counted: bool) -> bool:
        """Whether ``line`` is no part of the hunk; while its counts last, more is believed."""
        if line.startswith(("@@", "diff --git ")):
            return True
        if _is_header(self._lines, self._at):
            follows = self._lines[self._at + 2 : self._at + 3]
            return not counted or bool(follows and follows[0].startswith("@@"))
        if not line:
            return not counted
        return line[0] not in " +-"


def _operation(section: _Section) -> Operation:
    old, new = _names(section)
    hunks = tuple(section.hunks)
    if section.is_new or section.old == _NULL:
        if any(line.sign != "+" for hunk in hunks for line in hunk.lines):
            raise PatchProblem(f"Line {section.number}: {new} is new, yet lines are not all added.")
        added = [line for hunk in hunks for line in hunk.lines]
        content = "".join(line.text + ("\n" if line.ended else "") for line in added)
        executable = bool(section.mode and section.mode & 0o100)
        return AddFile(new, content, overwrite=False, executable=executable)
    if section.is_deleted or section.new == _NULL:
        return DeleteFile(old, hunks)
    moved = new if new != old else None
    if not hunks and moved is None and section.mode is None:
        raise PatchProblem(f"Line {section.number}: the diff of {old} has no hunk.")
    return UpdateFile(
        old,
        hunks,
        moved,
        is_copy=section.is_copy,
        strict_end=True,
        overwrite=False,
        mode=section.mode,
    )


def _names(section: _Section) -> tuple[str, str]:
    """The two paths, without the prefixes that git puts before them."""
    if section.renamed:
        return section.renamed
    old, new = section.old, section.new
    if old is None or new is None:
        if section.git_names is None:
            raise PatchProblem(f"Line {section.number}: the names in 'diff --git' are unclear.")
        old, new = section.git_names
    if old == _NULL:
        return old, _without(new, _NEW_PREFIXES) if section.git_names else _lone(new, "b/")
    if new == _NULL:
        return _without(old, _OLD_PREFIXES) if section.git_names else _lone(old, "a/"), new
    has_prefixes = old.startswith(_OLD_PREFIXES) and new.startswith(_NEW_PREFIXES)
    if has_prefixes and old[0] != new[0]:
        return old[2:], new[2:]
    if old != new and section.git_names is None:
        return new, new  # "--- x.py.orig", "+++ x.py": the second is the file meant
    return old, new


def _without(name: str, prefixes: tuple[str, ...]) -> str:
    return name[2:] if name.startswith(prefixes) else name


def _lone(name: str, prefix: str) -> str:
    return name.removeprefix(prefix)


def _header_name(text: str) -> str:
    """The path in a ``---`` or ``+++`` line: without its time stamp, its quotes undone."""
    return _unquoted(text.split("\t", 1)[0].rstrip())


def _git_names(line: str) -> tuple[str, str] | None:
    rest = line.removeprefix("diff --git ").strip()
    quoted = re.fullmatch(r'("(?:[^"\\]|\\.)*"|\S+) ("(?:[^"\\]|\\.)*"|\S+)', rest)
    if quoted:
        return _unquoted(quoted[1]), _unquoted(quoted[2])
    middle = len(rest) // 2  # names with blanks: both halves are the same but for the prefix
    if rest[middle : middle + 1] == " " and rest[:middle][2:] == rest[middle + 1 :][2:]:
        return rest[:middle], rest[middle + 1 :]
    return None


def _unquoted(name: str) -> str:
    name = name.strip()
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):  # noqa: PLR2004 - two quotes
        return name

    def undo(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes([int(match[1], 8) & 0xFF])
        return _C_ESCAPES.get(match[2], match[2])

    raw = name[1:-1].encode("utf-8", "surrogateescape")
    return _OCTAL.sub(undo, raw).decode("utf-8", "surrogateescape")


def _mode(text: str) -> int | None:
    try:
        return int(text, 8) & 0o777
    except ValueError:
        return None
