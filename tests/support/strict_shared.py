"""What both checks share: a complaint with its place, and a look at images."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Self

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


class Problem(str):  # noqa: SLOT000 - it carries attributes
    """A complaint. ``param`` and ``code`` are the fields that OpenAI adds to the message."""

    param: str | None
    code: str | None

    def __new__(cls, message: str, param: str | None = None, code: str | None = None) -> Self:
        self = super().__new__(cls, message)
        self.param = param
        self.code = code
        return self


def sniff_image(data: bytes) -> str | None:
    """The media type that the first bytes show."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def decode_base64(text: Any) -> bytes | None:
    """The bytes, or ``None`` when ``text`` is not base64 of at least one byte."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
