"""Reading patches: the ``*** Begin Patch`` format and unified diffs, git's and plain ones.

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
overlooked. The two outer markers may be left out together; a patch with only the first was cut and
is refused. In a unified diff the line
counts of ``@@`` lines are believed only as far as the lines themselves agree; a hunk without
numbers is placed by its context alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_RANGE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")
_NULL = "/dev/null"
_NO_NEWLINE = "\\"
_NO_FILES = {"120000": "symbolic links are not patched.", "160000": "submodules are not patched."}
_VERSION = re.compile(r"\d+\.\d+")
_OLD_PREFIXES, _NEW_PREFIXES = ("a/", "i/", "c/", "o/"), ("b/", "w/", "i/")
_OCTAL = re.compile(rb"\\([0-7]{3})|\\(.)")
_C_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f"}
_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_ADD = "*** Add File:"
_DELETE = "*** Delete File:"
_UPDATE = "*** Update File:"
_MOVE = "*** Move to:"
_EOF = "*** End of File"
_HEREDOC = re.compile(
    r"(?:\$ )?(?:(?:apply_patch|applypatch|cat|git apply|patch -p1)\s+)?(?:-\s+)?"
    r"<<-?\s*(['\"]?)(\w+)\1\s*(?:\|\s*(?:apply_patch|applypatch|git apply|patch -p1)(?: -)?\s*)?"
)
_MOST_WRAPPERS = 8
_MAX_LINES = 250_000
_FENCE = re.compile(r"(`{3,}|~{3,})\s*+\w*+\s*")
_NUMBERED_HEADER = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*")
_FORMS = f"'{_ADD} PATH', '{_DELETE} PATH' and '{_UPDATE} PATH'"


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


def parse_patch(text: str) -> Patch:
    """The patch that ``text`` is, in either format; raises ``PatchProblem``."""
    if text.count("\n") > _MAX_LINES:
        raise PatchProblem(
            f"The patch has more than {_MAX_LINES:,} lines: make several smaller ones."
        )
    lines = _unwrapped(_bare([line.removesuffix("\r") for line in text.split("\n")]))
    if not lines:
        raise PatchProblem("The patch is empty.")
    if lines[0].strip() == _BEGIN:
        if lines[-1].strip() != _END:
            raise PatchProblem(f"The last line of the patch must be '{_END}'. Was it cut?")
        inner, first_number = lines[1:-1], 2
    elif lines[0].strip().startswith((_ADD, _DELETE, _UPDATE)):
        inner, first_number = lines[:-1] if lines[-1].strip() == _END else lines, 1
    else:
        inner, first_number = [], 0
    if first_number:
        if looks_unified(inner):
            return parse_unified(inner, first_number)
        return Patch(tuple(_PatchReader(inner, first_number).operations()))
    if looks_unified(lines):
        return parse_unified(lines)
    raise PatchProblem(
        f"The first line of the patch must be '{_BEGIN}' and the last '{_END}' "
        "(a unified diff with '---' and '+++' lines is understood too)."
    )


def _unwrapped(lines: list[str]) -> list[str]:
    for _ in range(_MOST_WRAPPERS):
        if len(lines) <= 2:  # noqa: PLR2004 - a wrapper is two lines around something
            break
        heredoc, fence = _HEREDOC.fullmatch(lines[0]), _FENCE.fullmatch(lines[0])
        closer = heredoc[2] if heredoc else fence[1] if fence else None
        if lines[-1].strip() != closer:
            break
        lines = _bare(lines[1:-1])
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


# --- the format of our own ---


class _PatchReader:
    """Walks over the lines between the markers; ``first_number`` is the first one's."""

    def __init__(self, lines: list[str], first_number: int) -> None:
        self._lines = lines
        self._first = first_number
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
        return self._at + self._first

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
        if not self._lines[self._at - 1]:
            lines = _without_gap(lines)
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


def _without_gap(lines: list[PatchLine]) -> list[PatchLine]:
    """Additions only, without the empty lines after them: those set off what follows."""
    end = len(lines)
    while end and lines[end - 1] == PatchLine(" ", ""):
        end -= 1
    return lines[:end] if all(line.sign == "+" for line in lines[:end]) else lines


# --- unified diffs ---


def looks_unified(lines: Sequence[str]) -> bool:
    """Whether ``lines`` begin like a unified diff, after any words before it."""
    for at, line in enumerate(lines):
        if line.startswith("*** "):
            return False
        if line.startswith("diff --git ") or _is_header(lines, at):
            return True
    return False


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


class _DiffReader:
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
            if word in {"new file mode", "new mode"} and rest not in _NO_FILES:
                section.is_new = section.is_new or word == "new file mode"
                section.mode = _mode(rest)
            elif word == "deleted file mode" and rest not in _NO_FILES:
                section.is_deleted = True
            elif line.startswith(("rename from ", "copy from ")):
                source = _unquoted(line.split(" ", 2)[2])
            elif line.startswith(("rename to ", "copy to ")):
                section.is_copy = line.startswith("copy")
                section.renamed = (source, _unquoted(line.split(" ", 2)[2]))
            elif rest in _NO_FILES and word.startswith(("new ", "old ", "deleted ", "index ")):
                raise PatchProblem(f"{self._where()}: {_NO_FILES[rest]} Use bash for it.")
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
        if line.rstrip() == "--" and not counted:  # git format-patch signs with its version
            follows = self._lines[self._at + 1 : self._at + 2]
            return bool(follows and _VERSION.match(follows[0]))
        return line[0] not in " +-"


def parse_unified(lines: Sequence[str], first_number: int = 1) -> Patch:
    """The patch; ``first_number`` is the number of the first line. Raises ``PatchProblem``."""
    return Patch(tuple(_DiffReader(lines, first_number).operations()))


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
