"""A session as Markdown: readable as text, foldable tool calls where HTML is rendered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from agentcli.domain.messages import ImagePart, TextPart, ThinkingPart
from agentcli.domain.session import LoadedSession, Note
from agentcli.ui._transcript import Exchange, entries, facts, note_title
from agentcli.ui.sanitize import clean

_BACKTICKS = re.compile(r"`{3,}")


def export_markdown(session: LoadedSession) -> str:
    """The whole session, ending in a line end."""
    title = " ".join(clean(session.info.title).split()) or "Session"
    blocks = [f"# {title}", "\n".join(f"- {name}: {value}" for name, value in facts(session))]
    for entry in entries(session):
        blocks.append(f"## {entry.heading}")
        for item in entry.items:
            blocks += _item(item)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _item(item: TextPart | ThinkingPart | ImagePart | Exchange | Note) -> Iterator[str]:
    if isinstance(item, TextPart):
        yield clean(item.text).strip()
    elif isinstance(item, ThinkingPart):
        text = clean(item.text).strip()
        if text:
            yield from _fold("Thinking", [_fence(text)])
    elif isinstance(item, ImagePart):
        yield _image(item)
    elif isinstance(item, Note):
        yield f"*{note_title(item)}*"
        yield _fence(clean(item.text))
    else:
        yield from _fold(item.summary, list(_exchange(item)))


def _exchange(item: Exchange) -> Iterator[str]:
    yield _fence(item.arguments, "json")
    if item.display:
        yield _fence(item.display, "diff")
    for part in item.result.parts if item.result is not None else ():
        yield _image(part) if isinstance(part, ImagePart) else _fence(item.told(part.text))


def _fold(summary: str, blocks: list[str]) -> Iterator[str]:
    yield f"<details><summary>{escape(summary)}</summary>"
    yield from blocks
    yield "</details>"


def _fence(text: str, language: str = "") -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}{language}\n{text.rstrip()}\n{marks}"


def _image(image: ImagePart) -> str:
    return f"*(image: {clean(image.media_type)}, {len(image.data):,} bytes)*"
