"""What an answer of the web is, and its text: HTML as Markdown, from a process of its own (SEC-13).

Law: a server's word about the kind of content counts, unless the bytes show that it cannot be
true. A conversion ends within ``LIMIT_S`` and ``MEMORY_BYTES``, whatever the HTML; where the
converter fails at it, the bare text is shown instead. The page is never rendered, nothing that it
names is loaded.
"""

from __future__ import annotations

import codecs
import contextlib
import html
import json
import re
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentcli.domain.extensions.extras import has_extra, install_command
from agentcli.process.worker import answer_of
from agentcli.tools.files.text import binary_kind, image_type

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
LIMIT_S = 10.0
MEMORY_BYTES = 300 * 1000 * 1000
MAX_MARKDOWN_CHARS = 2_000_000
_MAX_TITLE_CHARS = 300
# less than this is not the page, but what is left of one that consists of navigation
_LITTLE_CHARS = 200
_SKIPPED = ("script", "style", "noscript", "template", "svg")
_BREAKS = re.compile(
    r"/?(p|div|br|li|tr|h[1-6]|ul|ol|table|section|article|pre|blockquote|dt|dd|title)\b", re.ASCII
)
_TAG_HEAD_CHARS = 40
_FAILED = "the page could not be made Markdown; this is its bare text"
_UNREADABLE = "[This page's HTML could not be read.]"
# unlike lower(), it keeps every character's place
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class PageKind(Enum):
    """How a body is shown."""

    HTML = "html"
    TEXT = "text"
    IMAGE = "image"
    BINARY = "binary"


def media_type(content_type: str) -> str:
    """``text/html; charset=utf-8`` without its parameters, lower case; empty when it is none."""
    media = content_type.partition(";")[0].strip().lower()
    return media if re.fullmatch(r"[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}", media) else ""


def kind_of(content_type: str, body: bytes) -> PageKind:
    """What the body is, by what the server says and what the bytes show."""
    media, head = media_type(content_type), body[:_HEAD_BYTES]
    if image_type(head):
        return PageKind.IMAGE
    if not body:
        return PageKind.TEXT
    if binary_kind(head) or (b"\0" in head and not _is_utf16(content_type, head)):
        return PageKind.BINARY
    if media in _HTML or (not media and _LOOKS_LIKE_HTML.match(head)):
        return PageKind.HTML
    if _TEXT.fullmatch(media):
        return PageKind.TEXT
    return PageKind.TEXT if _is_utf8(head) else PageKind.BINARY


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


# --- Markdown ---


@dataclass(frozen=True, slots=True)
class Markdown:
    """A page as text. ``note`` says why it is its bare text, where it is no Markdown."""

    title: str
    text: str
    note: str = ""


async def to_markdown(page: str, base_url: str) -> Markdown:
    """``page`` as Markdown, its links absolute; its bare text where that fails."""
    if not has_extra("web"):
        plain = await _converted({"mode": "plain", "html": page, "base": base_url})
        note = f"this is the page's bare text; for Markdown with links: {install_command('web')}"
        return Markdown("", plain.text if plain else _UNREADABLE, note)
    for mode in ("markdown", "plain"):
        found = await _converted({"mode": mode, "html": page, "base": base_url})
        if found is not None:
            return found
    return Markdown("", _UNREADABLE, _FAILED)


async def _converted(request: dict[str, str]) -> Markdown | None:
    question = json.dumps(request).encode()
    out = await answer_of("agentcli.tools.web.page", "html_to_markdown", question, LIMIT_S)
    try:
        return Markdown(**json.loads(out)) if out else None
    except (ValueError, TypeError):
        return None


# --- in the process ---


def main() -> None:
    """Answer the request on standard input."""
    _limit()
    request = json.load(sys.stdin)
    title, text, note = "", "", ""
    if request["mode"] == "markdown":
        title, text = _markdown(request["html"], request["base"])
    if not text.strip():
        text, note = plain_text(request["html"]), note or _FAILED
    title = " ".join(title.split())[:_MAX_TITLE_CHARS]
    answer = {"title": title, "text": text[: MAX_MARKDOWN_CHARS + 1], "note": note}
    json.dump(answer, sys.stdout)


def _limit() -> None:
    import resource

    for what, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, int(LIMIT_S) + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # not every system has every limit
            resource.setrlimit(what, (limit, limit))


def _markdown(page: str, base_url: str) -> tuple[str, str]:
    import html_to_markdown as library

    def convert(*, navigation: bool) -> Any:
        # forms stay: some sites put the whole page into one
        cleaning = library.PreprocessingOptions(
            enabled=not navigation, remove_navigation=not navigation, remove_forms=False
        )
        options = library.ConversionOptions(
            preprocessing=cleaning,
            base_url=base_url,
            extract_metadata=True,
            inline_data_media="alt_text_only",
        )
        return library.convert(page, options)

    done = convert(navigation=False)
    if len(_body_of(done)) < _LITTLE_CHARS:
        done = convert(navigation=True)
    title = done.metadata.document.title if done.metadata else ""
    return title or "", _body_of(done)


def _body_of(done: Any) -> str:
    """The Markdown without the table of facts that the converter puts before it."""
    text = done.content or ""
    if text.startswith("---\n") and (end := text.find("\n---\n")) >= 0:
        text = text[end + len("\n---\n") :]
    return str(text).strip()


def plain_text(page: str) -> str:
    """What stands between the tags; takes time in proportion to the length, whatever is in it."""
    pieces: list[str] = []
    at, lower = 0, page.translate(_LOWER)
    ends: dict[str, int] = {}
    while at < len(page):
        start = page.find("<", at)
        pieces.append(page[at:] if start < 0 else page[at:start])
        end = page.find(">", start) if start >= 0 else -1
        if end < 0:
            break
        head = lower[start + 1 : min(end, start + _TAG_HEAD_CHARS)]
        if page.startswith("<!--", start):
            end = _next(page, "-->", start, ends) + 2
        elif name := next((name for name in _SKIPPED if head.startswith(name)), ""):
            end = max(end, _next(lower, f"</{name}", end, ends) - 1)
        if _BREAKS.match(head):
            pieces.append("\n")
        at = end + 1
    lines = (" ".join(line.split()) for line in html.unescape("".join(pieces)).splitlines())
    return "\n".join(line for line in lines if line)


def _next(text: str, what: str, at: int, known: dict[str, int]) -> int:
    """Where ``what`` stands next, or the end; looked for once over the whole text."""
    if known.get(what, -1) < at:
        found = text.find(what, at)
        known[what] = len(text) if found < 0 else found
    return known[what]
