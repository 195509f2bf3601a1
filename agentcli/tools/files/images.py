"""Re-encoding of images that no provider takes as they are (HIS-8): the only place that decodes.

Law: Pillow is imported when the first image really needs it; what decoding may cost is judged
from the header first (SEC-13), so a decompression bomb is never unpacked, and a process of its own
holds what a header does not say; a file that cannot be decoded is ``None``, never an exception.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from typing import Any

from agentcli.domain.extensions.extras import has_extra, install_command
from agentcli.domain.images import MAX_EDGE_PX, MAX_IMAGE_BYTES
from agentcli.domain.messages import ImagePart
from agentcli.process.worker import answer_of

MAX_DECODED_BYTES = 160_000_000
MEMORY_BYTES = 270_000_000
LIMIT_S = 30.0
# what decoders hold per pixel, by Pillow's mode; 4 for all others
_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "ICO", "AVIF")
_PLUGINS = {"WEBP": "WebP"}
_QUALITY = 85
log = logging.getLogger(__name__)


async def reencode_image(image: ImagePart) -> ImagePart | str:
    """A copy of ``image`` that every provider takes: still, small, sound; or what would help."""
    if not has_extra("images"):
        return f"to have it made to fit: {install_command('images')}"
    out = await answer_of("agentcli.tools.files.images", "PIL", image.data, LIMIT_S)
    kind, _, data = out.partition(b"\n")
    return ImagePart(kind.decode(), data) if data else ""


def main() -> None:
    """Answer for the image on standard input."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(LIMIT_S), int(LIMIT_S)))
    better = reencoded(ImagePart("image/*", sys.stdin.buffer.read()))
    if better is not None:
        sys.stdout.buffer.write(better.media_type.encode() + b"\n" + better.data)


def reencoded(image: ImagePart) -> ImagePart | None:
    """The same, at once."""
    try:
        return _reencoded_or_none(image)
    except Exception:  # a decoder may raise anything on hostile bytes
        log.info("an image could not be re-encoded", exc_info=True)
        return None


def _reencoded_or_none(image: ImagePart) -> ImagePart | None:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # judged here, by bytes, before anything is decoded
    with Image.open(io.BytesIO(image.data), formats=_available(Image)) as opened:
        is_photo = opened.format in {"JPEG", "AVIF", "WEBP"} and opened.mode != "RGBA"
        cost = _held_bytes(opened)
        if opened.format == "JPEG":
            opened.draft(None, (MAX_EDGE_PX, MAX_EDGE_PX))
        if max(cost, _decoded_bytes(opened)) > MAX_DECODED_BYTES:
            return None
        return _encoded(_upright(_reduced(opened)), is_photo=is_photo)


def _decoded_bytes(opened: Any) -> int:
    width, height = opened.size
    return int(width * height * _PIXEL_BYTES.get(opened.mode, 4))


def _held_bytes(opened: Any) -> int:
    """What is held whatever the size that is asked for: all coefficients of a progressive JPEG."""
    if not opened.info.get("progressive"):
        return 0
    width, height = opened.size
    return int(width * height * len(opened.getbands()) * 2)


def _available(pillow: Any) -> tuple[str, ...]:
    """The formats that this build of Pillow reads."""
    from importlib import import_module

    for name in _FORMATS:
        with contextlib.suppress(ImportError):
            import_module(f"PIL.{_PLUGINS.get(name, name.title())}ImagePlugin")
    return tuple(name for name in _FORMATS if name in pillow.OPEN)


def _reduced(opened: Any) -> Any:
    """The first frame with no edge too long, in a mode that can be written."""
    picture = opened
    longest = max(picture.size)
    if longest > 2 * MAX_EDGE_PX and picture.mode in {"P", "1"}:
        # colours of a table cannot be mixed: points are left out before the conversion
        picture = picture.resize(_scaled(picture.size, 2 * MAX_EDGE_PX), resample=0)
    elif (factor := longest // (2 * MAX_EDGE_PX)) > 1:
        picture = picture.reduce(factor)
    if picture.mode.startswith("I"):
        picture = picture.point(lambda value: value * (1 / 256)).convert("L")
    elif picture.mode not in {"L", "RGB", "RGBA"}:
        has_alpha = "A" in picture.mode or "a" in picture.mode or "transparency" in picture.info
        picture = picture.convert("RGBA" if has_alpha else "RGB")
    if max(picture.size) > MAX_EDGE_PX:
        picture = picture.resize(_scaled(picture.size, MAX_EDGE_PX), reducing_gap=2.0)
    return picture


def _scaled(size: tuple[int, int], longest: int) -> tuple[int, int]:
    factor = longest / max(size)
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def _upright(picture: Any) -> Any:
    """Turned as the camera says, since the copy says nothing."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(picture)


def _encoded(picture: Any, *, is_photo: bool) -> ImagePart:
    """PNG, or JPEG for a photo and for what is too large as PNG; smaller until it fits."""
    while True:
        if not is_photo and len(data := _saved(picture, "PNG")) <= MAX_IMAGE_BYTES:
            return ImagePart("image/png", data)
        if len(data := _saved(_opaque(picture), "JPEG", quality=_QUALITY)) <= MAX_IMAGE_BYTES:
            return ImagePart("image/jpeg", data)
        picture = picture.resize(_scaled(picture.size, max(picture.size) // 2))


def _saved(picture: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def _opaque(picture: Any) -> Any:
    """On white, where it is transparent."""
    if picture.mode != "RGBA":
        return picture
    from PIL import Image

    white = Image.new("RGB", picture.size, "white")
    white.paste(picture, mask=picture.getchannel("A"))
    return white
