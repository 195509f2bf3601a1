"""What has bricked sessions: images, texts and calls that some provider refuses; and a second opinion."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from PIL import Image

from agentcli.domain.messages import ImagePart
from tests.support.histories import PNG, png


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def jpeg(width: int = 40, height: int = 30) -> bytes:
    return saved(Image.effect_noise((width, height), 60).convert("RGB"), "JPEG")


def moving(kind: str) -> bytes:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "green", "blue")]
    return saved(frames[0], kind, save_all=True, append_images=frames[1:])


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><circle r="4"/></svg>'
_MADE: dict[str, Callable[[], ImagePart]] = {
    "10,000 px wide": lambda: ImagePart("image/png", png(10_000, 30)),
    "10,000 px square": lambda: ImagePart(
        "image/png", saved(Image.new("L", (10_000, 10_000)), "PNG")
    ),
    "photo of 108 megapixels": lambda: ImagePart(
        "image/jpeg", saved(Image.new("RGB", (12_000, 9_000)), "JPEG")
    ),
    "5.7 MB": lambda: ImagePart("image/png", png(1_900, 3_000, noise=True)),
    "bomb": lambda: ImagePart("image/png", png(60_000, 4_000)),
    "text": lambda: ImagePart("image/png", b"not an image at all"),
    "svg": lambda: ImagePart("image/png", SVG),
    "web page": lambda: ImagePart("image/jpeg", b"<!DOCTYPE html><html>404</html>"),
    "empty": lambda: ImagePart("image/png", b""),
    "one byte": lambda: ImagePart("image/png", b"\x89"),
    "signature only": lambda: ImagePart("image/png", PNG[:8]),
    "header only": lambda: ImagePart("image/png", PNG[:33]),
    "cut PNG": lambda: ImagePart("image/png", png(50, 50, noise=True)[:-600]),
    "damaged PNG": lambda: ImagePart(
        "image/png", png(50, 50, noise=True).replace(b"IDAT\x78", b"IDAT\x00")
    ),
    "cut JPEG": lambda: ImagePart("image/jpeg", jpeg(400, 300)[:-4_000]),
    "JPEG as PNG": lambda: ImagePart("image/png", jpeg()),
    "PNG as JPEG": lambda: ImagePart("image/jpeg", PNG),
    "WebP as PNG": lambda: ImagePart("image/png", saved(Image.new("RGB", (9, 9)), "WEBP")),
    "moving GIF": lambda: ImagePart("image/gif", moving("GIF")),
    "still GIF": lambda: ImagePart("image/gif", saved(Image.new("P", (9, 9)), "GIF")),
    "moving WebP": lambda: ImagePart("image/webp", moving("WEBP")),
    "BMP": lambda: ImagePart("image/bmp", saved(Image.new("RGB", (9, 9)), "BMP")),
    "TIFF": lambda: ImagePart("image/tiff", saved(Image.new("RGB", (9, 9)), "TIFF")),
    "odd type": lambda: ImagePart('x"\n\ud800', b"GARBAGE"),
}


class _Images(Mapping[str, ImagePart]):
    """Images by name, each made when it is first used: every worker reads this, few use it."""

    def __init__(self) -> None:
        self._images: dict[str, ImagePart] = {}

    def __getitem__(self, name: str) -> ImagePart:
        if name not in self._images:
            self._images[name] = _MADE[name]()
        return self._images[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MADE)

    def __len__(self) -> int:
        return len(_MADE)


IMAGES = _Images()
# of these nothing can be shown
HOPELESS = {
    "bomb", "text", "svg", "web page", "empty", "one byte", "signature only", "header only",
    "cut PNG", "damaged PNG", "cut JPEG", "odd type",
}  # fmt: skip
TEXTS = {
    "NUL": "a\0b",
    "lone surrogate": "smile \ud83d!",
    "surrogates in the wrong order": "\ude00\ud83d",
    "only NUL": "\0",
    "controls": "\x01\x02\x1b[31m\x7f\x9b",
    "not a character": "\uffff \ufdd0",
    "byte order mark": "\ufeffx",
    "chat marks": "<|im_start|>system<|endoftext|>",
}


def images_in(value: Any) -> Iterator[tuple[str, bytes]]:
    """(media type, bytes) of every image in a request's body, whatever the protocol."""
    if isinstance(value, list):
        for item in value:
            yield from images_in(item)
    elif isinstance(value, dict):
        if "data" not in value:  # arguments may hold any name
            yield from images_in(list(value.values()))
        elif value.get("type") == "base64":
            yield value["media_type"], base64.b64decode(value["data"])
        elif "mimeType" in value:
            yield value["mimeType"], base64.b64decode(value["data"])
        else:
            yield from images_in(list(value.values()))
    elif isinstance(value, str) and value.startswith("data:image/"):
        head, _, data = value.partition(",")
        yield head[5:].removesuffix(";base64"), base64.b64decode(data)


def refused_images(body: Any) -> list[str]:
    """What a provider would say of the images in ``body``: they are decoded, measured, weighed."""
    found = list(images_in(body))
    problems = ["too many images"] if len(found) > 100 else []
    for media_type, data in found:
        if len(data) * 4 / 3 > 5 * 1024 * 1024:
            problems.append(f"{len(data)} bytes")
        try:
            with Image.open(io.BytesIO(data)) as picture:
                picture.load()
                if Image.MIME[picture.format or ""] != media_type:
                    problems.append(f"{media_type} is {picture.format}")
                if max(picture.size) > 2_000:
                    problems.append(f"{picture.size} px")
                if getattr(picture, "is_animated", False):
                    problems.append("it moves")
        except (OSError, SyntaxError, ValueError) as error:
            problems.append(f"could not process image: {error}")
    return problems
