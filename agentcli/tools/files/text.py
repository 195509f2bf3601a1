"""Text files as bytes and back: encodings, byte-order marks, line ends; what is no text.

Law: ``Encoding.encode(decode(data).text) == data`` for every file that ``decode`` accepts, so
what an edit does not touch stays as it is, byte for byte (TOOL-8). What cannot make that
round trip is binary.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

_SAMPLE = 65_536
_MAX_COMPARED_LINES = 5_000
_MAX_CONTROL_SHARE = 0.05
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffe\uffff]")
_MIN_NUL_SHARE = 0.3
_MAX_STRAY_NUL_SHARE = 0.02
_BOMS = (  # the longer ones first: UTF-32 LE begins like UTF-16 LE
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_KEEP_BAD = "surrogateescape"
_LABELS = {"latin-1": "Latin-1", "cp1252": "Windows-1252"}
HEAD_BYTES = 65_536
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_BINARIES = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or an office document, a wheel, a jar)"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x7fELF", "an ELF executable or library"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O executable"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O executable"),
    (b"\x00asm", "a WebAssembly module"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"ID3", "an MP3 file"),
    (b"OggS", "an Ogg file"),
    (b"fLaC", "a FLAC file"),
    (b"\x1a\x45\xdf\xa3", "a Matroska or WebM video"),
    (b"wOFF", "a WOFF font"),
    (b"wOF2", "a WOFF2 font"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document"),
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file's text is written. ``errors`` is the codec's handler that keeps odd bytes.

    ``line_end`` is a carriage return where the file has no other, as on old Macs: such a text has
    line feeds like any other.
    """

    codec: str = "utf-8"
    bom: bytes = b""
    errors: str = "strict"
    line_end: str = "\n"

    @property
    def label(self) -> str:
        """The name for the user, empty for plain UTF-8."""
        if (self.codec, self.bom, self.errors) == ("utf-8", b"", "strict"):
            return ""
        name = _LABELS.get(self.codec, self.codec.upper())
        if self.errors == _KEEP_BAD:
            return f"{name} with invalid bytes"
        return f"{name} with BOM" if self.codec == "utf-8" else name

    def encode(self, text: str) -> bytes:
        """Raises ``UnicodeEncodeError`` where the encoding lacks a character."""
        if self.line_end != "\n":
            text = text.replace("\r\n", "\n").replace("\n", self.line_end)
        return self.bom + text.encode(self.codec, self.errors)


UTF_8 = Encoding()


@dataclass(frozen=True, slots=True)
class Text:
    """A decoded file; line ends as they are or as ``encoding`` says, where also the mark is."""

    text: str
    encoding: Encoding


def decode(data: bytes) -> Text | None:
    """``data`` as text, or ``None`` when it is binary."""
    for encoding in _candidates(data):
        try:
            text = data[len(encoding.bom) :].decode(encoding.codec, encoding.errors)
        except UnicodeDecodeError:
            continue
        if "\0" not in text and encoding.encode(text) == data:
            if "\r" in text and "\n" not in text:
                return Text(text.replace("\r", "\n"), replace(encoding, line_end="\r"))
            return Text(text, encoding)
    return None


def detect_head(head: bytes) -> Encoding | None:
    """The encoding of a file whose first bytes are ``head``; ``None`` when it is binary.

    For files too large to be decoded whole: a character cut at the end of ``head`` is no fault.
    """
    tries = [found for spare in range(4) if (found := decode(head[: len(head) - spare]))]
    clean = [t for t in tries if t.encoding.errors != _KEEP_BAD and t.encoding.codec not in _LABELS]
    best = next(iter(clean or tries), None)
    return best.encoding if best else None


def readable(text: str) -> str:
    """``text`` without NUL and the stand-ins for undecodable bytes, which providers refuse."""
    if text.isascii() and "\0" not in text:
        return text
    try:
        clean = text.encode("utf-8", _KEEP_BAD).decode("utf-8", "replace")
    except UnicodeEncodeError:
        clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\0", "\ufffd")


def _candidates(data: bytes) -> list[Encoding]:
    for bom, codec in _BOMS:
        if data.startswith(bom):
            errors = "strict" if codec == "utf-8" else "surrogatepass"
            marked = [Encoding(codec, bom, errors)]
            return [*marked, Encoding("utf-8", bom, _KEEP_BAD)] if codec == "utf-8" else marked
    if b"\0" in data:
        return _utf16_without_mark(data)
    try:
        data.decode()
    except UnicodeDecodeError:
        return _byte_encodings(data)
    return [UTF_8]


def _utf16_without_mark(data: bytes) -> list[Encoding]:
    sample = data[:_SAMPLE]
    half = len(sample) // 2
    if not half or len(data) % 2:
        return []
    even, odd = sample[0::2].count(0) / half, sample[1::2].count(0) / half
    codec = ""
    if odd >= _MIN_NUL_SHARE and even <= _MAX_STRAY_NUL_SHARE:
        codec = "utf-16-le"
    elif even >= _MIN_NUL_SHARE and odd <= _MAX_STRAY_NUL_SHARE:
        codec = "utf-16-be"
    if not codec or _UNPRINTABLE.search(sample.decode(codec, "ignore")):
        return []
    return [Encoding(codec)]


def _byte_encodings(data: bytes) -> list[Encoding]:
    """Not UTF-8 and no NUL: UTF-8 with a few bad bytes, a Windows or a Latin-1 file, or binary."""
    sample = data[:_SAMPLE]
    if len(_CONTROL.findall(sample)) > _MAX_CONTROL_SHARE * len(sample):
        return []
    text = data.decode("utf-8", _KEEP_BAD)
    broken = len(text) - len(data.decode("utf-8", "ignore"))
    whole = len(text) - len(text.encode("ascii", "ignore")) - broken
    if whole > broken:
        return [Encoding("utf-8", b"", _KEEP_BAD)]
    if re.search(rb"[\x80-\x9f]", data):
        return [Encoding("cp1252"), Encoding("latin-1")]
    return [Encoding("latin-1")]


# --- what is no text ---


def image_type(head: bytes) -> str | None:
    """The media type of an image that models accept, else ``None``."""
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _IMAGES if head.startswith(magic)), None)


def binary_kind(head: bytes) -> str | None:
    """A known kind of binary file, else ``None``."""
    if head[4:8] == b"ftyp":
        return "an MP4 or HEIF file"
    if head.startswith(b"RIFF"):
        return "a WAV or AVI file"
    return next((name for magic, name in _BINARIES if head.startswith(magic)), None)


# --- lines ---


@dataclass(frozen=True, slots=True)
class Line:
    """One line and its end: a line feed, with or without a carriage return, or nothing at EOF."""

    text: str
    end: str


def split_lines(text: str) -> list[Line]:
    """The lines of ``text``; a final line end opens no further line."""
    pieces = text.split("\n")
    lines = [
        Line(piece[:-1], "\r\n") if piece.endswith("\r") else Line(piece, "\n")
        for piece in pieces[:-1]
    ]
    return [*lines, Line(pieces[-1], "")] if pieces[-1] else lines


def count_lines(text: str) -> int:
    """How many lines ``split_lines`` would make, without making them."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def lines_at(text: str, offset: int, count: int) -> list[Line]:
    """``count`` lines at most, from the one that ``offset`` lies in."""
    start = end = text.rfind("\n", 0, offset) + 1
    for _ in range(count):
        end = text.find("\n", end) + 1 or len(text)
    return split_lines(text[start:end])


def join_lines(lines: Iterable[Line]) -> str:
    """The inverse of ``split_lines``."""
    return "".join(line.text + line.end for line in lines)


def common_end(lines: Iterable[Line], default: str = "\n") -> str:
    """The line end that most of ``lines`` have; the first of them wins a draw."""
    counted = Counter(line.end for line in lines if line.end)
    return counted.most_common(1)[0][0] if counted else default


def common_end_of(text: str) -> str:
    """The same for a text, which is not taken apart."""
    crlf = text.count("\r\n")
    plain = text.count("\n") - crlf
    if crlf == plain:
        first = text.find("\n")
        return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
    return "\r\n" if crlf > plain else "\n"


def line_end_label(text: str) -> str:
    """``CRLF`` or ``mixed`` for a file whose line ends are not plain line feeds, else empty."""
    crlf = text.count("\r\n")
    if not crlf:
        return ""
    return "CRLF" if crlf == text.count("\n") else "mixed"


def adopt_ends(old: Sequence[str], ends: Sequence[str], new: Sequence[str], default: str) -> str:
    """``new`` lines joined with the ends of the ``old`` lines that they stand for.

    ``ends[i]`` follows ``old[i]``. A line that is new takes the end of the one it replaces or
    follows, else ``default``. The last of ``new`` gets none. Very many lines stand for one
    another in their order.
    """
    chosen = [default] * len(new)
    if len(set(ends)) == 1:
        chosen = [ends[0]] * len(new)
    elif ends:
        for tag, i1, i2, j1, j2 in _opcodes(old, new):
            if tag == "delete":
                continue
            for j in range(j1, j2):
                i = min(i1 + (j - j1), i2 - 1 if i2 > i1 else i1 - 1, len(ends) - 1)
                chosen[j] = ends[max(i, 0)]
    return "".join(line + (chosen[j] if j < len(new) - 1 else "") for j, line in enumerate(new))


def _opcodes(old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    if max(len(old), len(new)) > _MAX_COMPARED_LINES:
        return [("replace", 0, len(old), 0, len(new))]
    # "autojunk" sees to it that many equal lines do not take cubic time
    return SequenceMatcher(None, old, new).get_opcodes()
