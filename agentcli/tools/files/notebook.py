"""A Jupyter notebook as text: its cells and what they printed, without the JSON around them."""

from __future__ import annotations

import json
from typing import Any

from agentcli.tools._output import clip_line

_MAX_OUTPUT_CHARS = 4_000
_MAX_LINE_CHARS = 1_000


def notebook_text(source: str) -> str | None:
    """The cells of a notebook, or ``None`` when ``source`` is none."""
    try:
        notebook = json.loads(source)
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "")
        cells = notebook["cells"]
        shown = [_cell(number, cell, language) for number, cell in enumerate(cells, 1)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return "\n\n".join(shown) if shown else "(a notebook without cells)"


def _cell(number: int, cell: dict[str, Any], language: str) -> str:
    kind = str(cell.get("cell_type", "cell"))
    name = f", {cell['id']}" if "id" in cell else ""
    label = f"{kind} {language}".strip() if kind == "code" else kind
    parts = [f"--- cell {number} ({label}{name}) ---", _joined(cell.get("source", ""))]
    outputs = [text for output in cell.get("outputs", []) if (text := _output(output))]
    if outputs:
        parts += ["--- output ---", "\n".join(outputs)]
    return "\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    kind = output.get("output_type")
    if kind == "stream":
        return _short(_joined(output.get("text", "")))
    if kind == "error":
        return _short(f"{output.get('ename')}: {output.get('evalue')}")
    data = output.get("data", {})
    text = _short(_joined(data.get("text/plain", "")))
    images = [media for media in data if media.startswith("image/")]
    return "\n".join(filter(None, [text, *(f"[{media} not shown]" for media in images)]))


def _joined(source: str | list[str]) -> str:
    text = source if isinstance(source, str) else "".join(source)
    return text.rstrip("\n")


def _short(text: str) -> str:
    clipped = "\n".join(clip_line(line, _MAX_LINE_CHARS) for line in text.split("\n"))
    if len(clipped) <= _MAX_OUTPUT_CHARS:
        return clipped
    return f"{clipped[:_MAX_OUTPUT_CHARS]}\n[{len(clipped) - _MAX_OUTPUT_CHARS:,} characters cut]"
