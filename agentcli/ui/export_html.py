"""A session as one HTML page: no network, no script, tool calls that fold, light and dark.

Law: every text is escaped; a content policy in the page forbids whatever was overlooked.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from html import escape

from agentcli.domain.messages import ImagePart, TextPart, ThinkingPart
from agentcli.domain.session import LoadedSession, Note
from agentcli.ui._transcript import Exchange, entries, facts, note_title
from agentcli.ui.sanitize import clean

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SHOWN_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_INLINE = re.compile(
    r"(?<!`)(`{1,3})(?P<code>[^`\n]{1,500})\1(?!`)|\*\*(?P<bold>[^*\n]{1,500})\*\*"
)
_HEADING = re.compile(r"(#{1,6}) +(.+)")

_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --back: #fff; --dim: #59636e;
  --line: #d1d9e0; --code: #f6f8fa; --you: #ddf4ff; --add: #dafbe1; --cut: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --dim: #9198a1;
  --line: #3d444d; --code: #151b23; --you: #0c2d4d; --add: #12361f; --cut: #4a1a1f; } }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--back); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: .85rem; color: var(--dim); margin: 1.6rem 0 .3rem; }
h3 { font-size: 1.05rem; margin: .8rem 0 .3rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; }
dt { color: var(--dim); } dd { margin: 0; }
p, pre { margin: .4rem 0; white-space: pre-wrap; }
pre, code { font: .85rem/1.45 ui-monospace, monospace; background: var(--code);
  border-radius: 4px; }
pre { padding: .6rem .8rem; max-height: 40rem; overflow: auto; } code { padding: .1em .3em; }
pre code { padding: 0; }
.you { background: var(--you); border-radius: 8px; padding: .2rem .9rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: 0 .8rem; }
summary { cursor: pointer; padding: .35rem 0; font-size: .9rem; }
.failed > summary { border-left: 4px solid currentColor; padding-left: .5rem; }
.summary { border: 1px solid var(--line); border-radius: 8px; padding: .2rem .9rem; }
.folded { border-left: 4px dotted var(--line); padding-left: .8rem; }
.note { border-left: 4px solid var(--line); padding-left: .8rem; color: var(--dim); }
.add { background: var(--add); } .cut { background: var(--cut); }
img { max-width: 100%; }
"""


def export_html(session: LoadedSession) -> str:
    """The whole page."""
    title = escape(" ".join(clean(session.info.title).split()) or "Session")
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(session)
    )
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<header><h1>{title}</h1><dl>{rows}</dl></header><main>",
    ]
    for entry in entries(session):
        speaker = entry.speaker.lower()
        kind = f"{speaker} folded" if entry.remark else speaker
        lines.append(f'<section class="{kind}"><h2>{entry.heading}</h2>')
        for item in entry.items:
            lines += _item(item)
        lines.append("</section>")
    lines.append("</main></body></html>")
    return "\n".join(lines) + "\n"


def _item(item: TextPart | ThinkingPart | ImagePart | Exchange | Note) -> Iterator[str]:
    if isinstance(item, TextPart):
        yield from _prose(clean(item.text).strip("\n"))
    elif isinstance(item, ThinkingPart):
        if item.text.strip():
            text = escape(clean(item.text))
            yield f"<details><summary>Thinking</summary><p>{text}</p></details>"
    elif isinstance(item, ImagePart):
        yield _image(item)
    elif isinstance(item, Note):
        yield f'<div class="note"><p>{escape(note_title(item))}</p>{_pre(item.text)}</div>'
    else:
        yield from _exchange(item)


def _exchange(item: Exchange) -> Iterator[str]:
    failed = item.result is None or item.result.is_error
    kind = "tool failed" if failed else "tool"
    yield f'<details class="{kind}"><summary>{escape(item.summary)}</summary>'
    yield _pre(item.arguments)
    if item.display:
        yield _diff(item.display)
    for part in item.result.parts if item.result is not None else ():
        yield _image(part) if isinstance(part, ImagePart) else _pre(item.told(part.text))
    yield "</details>"


def _pre(text: str) -> str:
    return f"<pre>{escape(clean(text))}</pre>"


def _diff(text: str) -> str:
    marks = {"+": "add", "-": "cut"}
    lines = []
    for line in text.splitlines():
        mark = marks.get(line[:1])
        shown = escape(line)
        lines.append(f'<span class="{mark}">{shown}</span>' if mark else shown)
    return "<pre>" + "\n".join(lines) + "</pre>"


def _image(image: ImagePart) -> str:
    if image.media_type not in _SHOWN_IMAGES:
        return f"<p>(image: {escape(clean(image.media_type))}, {len(image.data):,} bytes)</p>"
    data = base64.b64encode(image.data).decode("ascii")
    return f'<p><img alt="image" src="data:{image.media_type};base64,{data}"></p>'


def _prose(text: str) -> Iterator[str]:
    """Text with the Markdown that matters when reading: code, headings, bold."""
    plain: list[str] = []
    code: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip(" `~"):
                yield f"<pre><code>{escape(chr(10).join(code))}</code></pre>"
                fence = ""
            else:
                code.append(line)
        elif found:
            yield from _paragraph(plain)
            plain, code, fence = [], [], found[1]
        else:
            plain.append(line)
    if fence:
        yield f"<pre><code>{escape(chr(10).join(code))}</code></pre>"
    yield from _paragraph(plain)


def _paragraph(lines: list[str]) -> Iterator[str]:
    plain: list[str] = []
    for line in [*lines, "# "]:
        heading = _HEADING.fullmatch(line)
        if heading or line == "# ":
            text = "\n".join(plain).strip("\n")
            if text.strip():
                yield f"<p>{_inline(text)}</p>"
            plain = []
        if heading:
            yield f"<h3>{_inline(heading[2])}</h3>"
        else:
            plain.append(line)


def _inline(text: str) -> str:
    shown = []
    end = 0
    for found in _INLINE.finditer(text):
        shown.append(escape(text[end : found.start()]))
        tag, inner = ("code", found["code"]) if found["code"] else ("b", found["bold"])
        shown.append(f"<{tag}>{escape(inner)}</{tag}>")
        end = found.end()
    return "".join((*shown, escape(text[end:])))
