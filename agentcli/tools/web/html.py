"""HTML to Markdown in a process of its own, which hostile HTML cannot make large or slow (SEC-13).

Law: a conversion ends within ``LIMIT_S`` and ``MEMORY_BYTES``, whatever the HTML; where the
converter fails at it, the bare text is shown instead. The page is never rendered, nothing that it
names is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import importlib.util
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentcli.domain.cancel import uninterruptible

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
_OWN_LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# unlike lower(), it keeps every character's place
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True, slots=True)
class Markdown:
    """A page as text. ``is_plain``: only its bare text could be had."""

    title: str
    text: str
    is_plain: bool = False


async def to_markdown(page: str, base_url: str) -> Markdown:
    """``page`` as Markdown, its links absolute; its bare text where that fails."""
    for mode in ("markdown", "plain"):
        found = await _converted({"mode": mode, "html": page, "base": base_url})
        if found is not None:
            return found
    return Markdown("", "[This page's HTML could not be read.]", is_plain=True)


async def _converted(request: dict[str, str]) -> Markdown | None:
    worker = await asyncio.create_subprocess_exec(
        *_command(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env={name: os.environ[name] for name in _OWN_LIBRARIES if name in os.environ},
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, _ = await worker.communicate(json.dumps(request).encode())
        return Markdown(**json.loads(out)) if worker.returncode == 0 else None
    except (TimeoutError, OSError, ValueError, TypeError):
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        await uninterruptible(_joined(worker))


async def _joined(worker: asyncio.subprocess.Process) -> None:
    await worker.wait()


def _command() -> list[str]:
    """Our own interpreter; nothing is imported from the working directory (SEC-2)."""
    library = importlib.util.find_spec("html_to_markdown")
    files = [__file__] if library is None or library.origin is None else [__file__, library.origin]
    places = [str(Path(file).resolve().parents[3 - 2 * index]) for index, file in enumerate(files)]
    code = f"import sys; sys.path += {places!r}; from agentcli.tools.web import html; html.main()"
    return [sys.executable, "-I", "-X", "utf8", "-c", code]


# --- in the process ------------------------------------------------------------------------


def main() -> None:
    """Answer the request on standard input."""
    _limit()
    request = json.load(sys.stdin)
    if request["mode"] == "markdown":
        title, text = _markdown(request["html"], request["base"])
        is_plain = not text.strip()
    else:
        title, text, is_plain = "", "", True
    if is_plain:
        text = plain_text(request["html"])
    title = " ".join(title.split())[:_MAX_TITLE_CHARS]
    answer = {"title": title, "text": text[: MAX_MARKDOWN_CHARS + 1], "is_plain": is_plain}
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
