"""What kind of content an answer has, and its text in the character set that it is written in.

Law: pure; takes time in proportion to the size; a server's word about the kind counts, unless the
bytes show that it cannot be true.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum

from agentcli.tools.files.kinds import binary_kind, image_type

_HEAD_BYTES = 4_096
_CHARACTER_BYTES = 4
_CHARSET_NAME = re.compile(r"[A-Za-z0-9_:.-]{1,40}")
_META_CHARSET = re.compile(
    rb"""<meta[^<>]{0,200}?charset\s{0,8}=\s{0,8}["']?([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE
)
_PARAMETER = re.compile(r"""charset\s*=\s*["']?([^\s"';]+)""", re.IGNORECASE)
# https://encoding.spec.whatwg.org: what these names mean on the web
_AS_ON_THE_WEB = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-9": "cp1254",
}
_NOT_CHARACTER_SETS = frozenset(
    {
        "idna",
        "punycode",
        "unicode_escape",
        "raw_unicode_escape",
        "undefined",
        "utf_7",
        "mbcs",
        "oem",
    }
)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/.*|.*\+(json|xml|yaml)|application/(json|json5|ndjson|jsonl|x-ndjson|xml|yaml|x-yaml|toml"
    r"|x-toml|javascript|ecmascript|x-javascript|typescript|x-sh|x-shellscript|sql|graphql|rtf"
    r"|x-tex|x-latex|x-www-form-urlencoded|x-httpd-php|x-python-code|manifest|xml-dtd|x-subrip)"
)
_LOOKS_LIKE_HTML = re.compile(rb"\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Kind(Enum):
    """How a body is shown."""

    HTML = "html"
    TEXT = "text"
    IMAGE = "image"
    BINARY = "binary"


def media_type(content_type: str) -> str:
    """``text/html; charset=utf-8`` without its parameters, lower case; empty when it is none."""
    media = content_type.partition(";")[0].strip().lower()
    return media if re.fullmatch(r"[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}", media) else ""


def kind_of(content_type: str, body: bytes) -> Kind:
    """What the body is, by what the server says and what the bytes show."""
    media, head = media_type(content_type), body[:_HEAD_BYTES]
    if image_type(head):
        return Kind.IMAGE
    if not body:
        return Kind.TEXT
    if binary_kind(head) or (b"\0" in head and not _is_utf16(content_type, head)):
        return Kind.BINARY
    if media in _HTML or (not media and _LOOKS_LIKE_HTML.match(head)):
        return Kind.HTML
    if _TEXT.fullmatch(media):
        return Kind.TEXT
    return Kind.TEXT if _is_utf8(head) else Kind.BINARY


def text_of(content_type: str, body: bytes, *, is_cut: bool = False) -> str:
    """The body as text; what cannot be read becomes U+FFFD."""
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return body.decode(codec, "replace")
    declared = _PARAMETER.search(content_type)
    found = _META_CHARSET.search(body[:_HEAD_BYTES])
    names = [declared[1]] if declared else []
    names += [found[1].decode("ascii")] if found else []
    for name in names:
        if codec := _codec(name):
            return body.decode(codec, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        # one that was cut in the middle of a character is still UTF-8
        is_utf8 = is_cut and len(body) - error.start < _CHARACTER_BYTES
        return body.decode("utf-8" if is_utf8 else "cp1252", "replace")


def _codec(name: str) -> str:
    """The Python codec for a name of the web; empty when it is no character set."""
    if not _CHARSET_NAME.fullmatch(name):
        return ""
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        return ""
    if info.name.replace("-", "_") in _NOT_CHARACTER_SETS or not getattr(
        info, "_is_text_encoding", True
    ):
        return ""
    return _AS_ON_THE_WEB.get(info.name, info.name)


def _is_utf16(content_type: str, head: bytes) -> bool:
    return "utf-16" in content_type.lower() or head[:2] in {
        codecs.BOM_UTF16_LE,
        codecs.BOM_UTF16_BE,
    }


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
