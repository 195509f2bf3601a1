"""What an image is by its own bytes, and whether providers take it as it is (HIS-8).

Law: pure and cheap: headers and block lengths are read, no pixel is decoded. Only PNG, JPEG, GIF
and WebP are known; every limit here is the strictest of the providers', so that one and the same
image goes to all of them and a request's beginning never changes with what follows.
"""

from __future__ import annotations

from agentcli.domain.messages import DocumentPart, ImagePart, TextPart
from agentcli.domain.values import frozen

# https://platform.claude.com/docs/en/build-with-claude/vision: 8,000 px, but 2,000 px as soon as
# a request holds more than 20 images; 5 MB, counted in base64.
MAX_EDGE_PX = 2_000
MAX_IMAGE_BYTES = 3_750_000

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
# frame headers of JPEG (T.81, table B.1), without the tables DHT, JPG and DAC
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
_SCAN = 0xDA
_CUT = "it is cut off"
# what a decoder may make an image of; the rest is left out at once
_DECODABLE = (b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0")
_NAMES = ((b"BM", "image/bmp"), (b"II*\0", "image/tiff"), (b"MM\0*", "image/tiff"))


@frozen
class ImageFacts:
    """``media_type`` is empty for bytes that are no known image; ``fault`` says what is broken.

    Sizes in pixels; 0 where they cannot be read.
    """

    media_type: str
    width: int = 0
    height: int = 0
    is_animated: bool = False
    fault: str = ""


@frozen
class Judgement:
    """``image`` may be sent; without it ``why`` says what is wrong with the original.

    ``repairable``: a decoder may make a better image of it, or the first that can be sent.
    """

    image: ImagePart | None
    why: str = ""
    repairable: bool = False


def judge(image: ImagePart) -> Judgement:
    """Whether ``image`` can be sent as it is, perhaps under its true media type."""
    data = image.data
    if not data:
        return Judgement(None, "it is empty")
    facts = facts_of(data)
    if not facts.media_type:
        repairable = data.startswith(_DECODABLE) or data[4:8] == b"ftyp"
        return Judgement(None, _what_else(data), repairable)
    if why := _refused(facts, len(data)):
        return Judgement(None, why, repairable=True)
    if facts.media_type != image.media_type:
        image = ImagePart(facts.media_type, data)
    # the one still format that not every provider takes
    return Judgement(image, repairable=facts.media_type == "image/gif")


def _refused(facts: ImageFacts, size_bytes: int) -> str:
    """Why providers do not take such an image; empty when they do."""
    if facts.fault:
        return facts.fault
    if max(facts.width, facts.height) > MAX_EDGE_PX:
        return f"an edge is longer than {MAX_EDGE_PX:,} px"
    if size_bytes > MAX_IMAGE_BYTES:
        return f"it is larger than {_size(MAX_IMAGE_BYTES)}"
    return "it moves" if facts.is_animated else ""


def stub(image: ImagePart, why: str) -> TextPart:
    """What a model is told in the place of ``image``."""
    if isinstance(image, DocumentPart):
        return TextPart(f"[document left out: {_plain_name(image)}; {why}]")
    facts = facts_of(image.data)
    known = [facts.media_type or _named(image)]
    if facts.width and facts.height:
        known.append(f"{facts.width:,}x{facts.height:,} px")
    known.append(_size(len(image.data)))
    return TextPart(f"[image left out: {', '.join(known)}; {why}]")


def _plain_name(document: DocumentPart) -> str:
    return "".join(c for c in document.name if c.isprintable())[:200] or "a PDF"


def facts_of(data: bytes) -> ImageFacts:
    """Type, size and soundness of an image, from its headers."""
    try:
        if data.startswith(_PNG):
            return _png(data)
        if data.startswith(_JPEG):
            return _jpeg(data)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return _gif(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp(data)
    except IndexError:  # a header goes beyond the end
        return ImageFacts(_type_of(data), fault=_CUT)
    return ImageFacts("")


def _type_of(data: bytes) -> str:
    kinds = ((_PNG, "png"), (_JPEG, "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))
    return next(f"image/{name}" for magic, name in kinds if data.startswith(magic))


def _number(data: bytes, start: int, length: int, *, little: bool = False) -> int:
    if start + length > len(data):
        raise IndexError
    return int.from_bytes(data[start : start + length], "little" if little else "big")


def _png(data: bytes) -> ImageFacts:
    from zlib import crc32

    width, height = _number(data, 16, 4), _number(data, 20, 4)
    fault = "" if width and height and data[12:16] == b"IHDR" else "it is damaged"
    place, has_pixels = len(_PNG), False
    while not fault:
        length, kind = _number(data, place, 4), data[place + 4 : place + 8]
        end = place + 8 + length
        if _number(data, end, 4) != crc32(memoryview(data)[place + 4 : end]):
            fault = "it is damaged"
        elif kind == b"IEND":
            fault = "" if has_pixels else "it holds no picture"
            break
        has_pixels |= kind == b"IDAT"
        place = end + 4
    return ImageFacts("image/png", width, height, fault=fault)


def _jpeg(data: bytes) -> ImageFacts:
    width = height = 0
    place = 2
    while True:
        if data[place] != 0xFF:  # noqa: PLR2004 - every marker begins with it
            return ImageFacts("image/jpeg", width, height, fault="it is damaged")
        marker = data[place + 1]
        if marker == 0xFF:  # noqa: PLR2004 - padding
            place += 1
            continue
        if marker in _ALONE:
            place += 2
            continue
        if marker in _FRAMES:
            height, width = _number(data, place + 5, 2), _number(data, place + 7, 2)
        if marker == _SCAN:
            break
        place += 2 + max(_number(data, place + 2, 2), 2)
    fault = "" if width and height else "it is damaged"
    if data.rfind(b"\xff\xd9") < place:
        fault = _CUT
    return ImageFacts("image/jpeg", width, height, fault=fault)


def _gif(data: bytes) -> ImageFacts:
    width = _number(data, 6, 2, little=True)
    height = _number(data, 8, 2, little=True)
    place, frames, fault = 13 + _colours(data[10]), 0, ""
    while (kind := data[place]) != 0x3B:  # noqa: PLR2004 - the trailer
        if kind == 0x2C:  # noqa: PLR2004 - a picture
            frames += 1
            place += 11 + _colours(data[place + 9])
        elif kind == 0x21:  # noqa: PLR2004 - an extension
            place += 2
        else:
            fault = "it is damaged"
            break
        while data[place]:
            place += data[place] + 1
        place += 1
    fault = fault or ("" if frames and width and height else "it holds no picture")
    return ImageFacts("image/gif", width, height, is_animated=frames > 1, fault=fault)


def _colours(flags: int) -> int:
    """Bytes of the colour table that ``flags`` announce."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _webp(data: bytes) -> ImageFacts:
    kind, moves = data[12:16], False
    if kind == b"VP8X":
        moves = bool(data[20] & 0x02)
        width = _number(data, 24, 3, little=True) + 1
        height = _number(data, 27, 3, little=True) + 1
    elif kind == b"VP8L":
        bits = _number(data, 21, 4, little=True)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width = _number(data, 26, 2, little=True) & 0x3FFF
        height = _number(data, 28, 2, little=True) & 0x3FFF
    is_cut = _number(data, 4, 4, little=True) + 8 > len(data)
    fault = _CUT if is_cut else "" if width and height else "it is damaged"
    return ImageFacts("image/webp", width, height, is_animated=moves, fault=fault)


def _what_else(data: bytes) -> str:
    head = data[:1_000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<svg", b"<?xml")) and b"<svg" in head:
        return "it is an SVG drawing, which is text"
    if head.startswith((b"<!doctype html", b"<html")):
        return "it is a web page, not an image"
    return "it is not a PNG, JPEG, GIF or WebP image"


def _named(image: ImagePart) -> str:
    """The type that the bytes show, or else the one that was declared, made harmless."""
    for magic, name in _NAMES:
        if image.data.startswith(magic):
            return name
    declared = "".join(c for c in image.media_type if c.isascii() and c.isprintable())
    return declared[:50] or "of unknown type"


def _size(count: int) -> str:
    if count < 1_000:  # noqa: PLR2004 - below a kilobyte
        return f"{count} bytes"
    if count < 1_000_000:  # noqa: PLR2004 - below a megabyte
        return f"{count / 1_000:.0f} KB"
    return f"{count / 1_000_000:.1f} MB"
