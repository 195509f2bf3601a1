"""A session as one HTML page: contents, search, what each reply has cost, calls that fold (CLI-8).

Laws: the page needs no network and asks for none. Every text is escaped; a content policy in the
page forbids whatever was overlooked: no script runs but the one below, which only searches, and
without it everything can still be read.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from html import escape
from io import StringIO

from agentcli.domain.accounts import REPLIES, CallCost, Ledger
from agentcli.domain.messages import DocumentPart, ImagePart, TextPart, ThinkingPart
from agentcli.domain.session import Note, SessionSource
from agentcli.ui import wording
from agentcli.ui.entries import Exchange, Item, TranscriptEntry, entries, facts, note_title
from agentcli.ui.sanitize import clean

Costs = Mapping[str, CallCost]

_SHOWN_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LINE = re.compile(r"^.*$", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)
_INLINE = re.compile(
    r"(?<!`)(`{1,3})(?P<code>[^`\n]{1,500})\1(?!`)|\*\*(?P<bold>[^*\n]{1,500})\*\*"
)
_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)

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
.cost { color: var(--dim); font-size: .8rem; font-variant-numeric: tabular-nums; }
p.cost { margin: 0; }
search { position: sticky; top: 0; background: var(--back); padding: .4rem 0; z-index: 1; }
input { font: inherit; padding: .2rem .5rem; width: min(24rem, 70%); }
nav { border: 1px solid var(--line); border-radius: 8px; max-height: 20rem; overflow: auto; }
nav ol { margin: .5rem 1rem .5rem 0; } a { color: inherit; }
section { scroll-margin-top: 3.5rem; } main { margin-top: 1.2rem; }
@media (min-width: 64rem) {
  body { max-width: 62rem; } nav li { padding-right: 7rem; position: relative; }
  section:has(> p.cost) { padding-right: 13rem; position: relative; min-height: 2.6rem; }
  section > p.cost, nav .cost { position: absolute; top: 0; right: 0; width: 12rem;
    text-align: right; }
}
"""


# what is not found is hidden; what folds and holds a find is opened
_SCRIPT = """
const make = (name, to, more) => to.appendChild(Object.assign(document.createElement(name), more));
const bar = make('search', document.createElement('div'), {});
const box = make('input', make('label', bar, {textContent: 'Search '}), {type: 'search'});
const found = make('output', bar, {});
document.querySelector('header').after(bar);
const parts = [...document.querySelectorAll('main > section')];
const texts = parts.map(part => part.textContent.toLowerCase());
let opened = [];
box.addEventListener('input', () => {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  const fits = text => words.every(word => text.includes(word));
  for (const each of opened) each.open = false;
  opened = [];
  let count = 0;
  parts.forEach((part, at) => {
    part.hidden = !fits(texts[at]);
    if (part.hidden || !words.length) return;
    count += 1;
    for (const each of part.querySelectorAll('details:not([open])')) {
      const text = each.textContent.toLowerCase();
      if (words.some(word => text.includes(word))) { each.open = true; opened.push(each); }
    }
  });
  found.textContent = words.length ? `${count} of ${parts.length}` : '';
});
"""
_TITLE_LENGTH = 80


def _policy() -> str:
    """Nothing but the styles and the one script of the page, and images that it holds."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )


def export_html(
    session: SessionSource, ledger: Ledger | None = None, costs: Costs | None = None
) -> Iterator[str]:
    """The whole page; ``ledger`` and ``costs`` are what requests and results have cost."""
    title = escape(" ".join(clean(session.info.title).split()) or "Session")
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(session)
    )
    spent = _Spending(ledger or Ledger())
    yield (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n"
        f"<header><h1>{title}</h1><dl>{rows}</dl></header>\n"
    )
    yield from _contents(session, spent)
    yield "<main>\n"
    for entry in entries(session):
        speaker = entry.speaker.lower()
        kind = f"{speaker} folded" if entry.remark else speaker
        place = f' id="m{entry.seq}"' if entry.seq else ""
        yield f'<section class="{kind}"{place}><h2>{entry.heading}</h2>\n'
        if cost := spent.line(entry.seq):
            yield f'<p class="cost">{escape(cost)}</p>\n'
        for item in entry.items:
            whole = StringIO()  # a list of many lines would take many times its size
            whole.writelines(_html_item(item, costs or {}))
            yield whole.getvalue()
        yield "</section>\n"
    yield f"</main><script>{_SCRIPT}</script></body></html>\n"


class _Spending:
    """What each reply has cost, and all up to it."""

    def __init__(self, ledger: Ledger) -> None:
        self._rows = {row.before: row for row in ledger.rows if row.kind in REPLIES}
        self._totals: dict[int, float | None] = {}
        total: float | None = 0.0
        for row in ledger.rows:
            is_known = total is not None and row.cost_usd is not None
            total = (total or 0.0) + (row.cost_usd or 0.0) if is_known else None
            self._totals[row.before] = total

    def line(self, seq: int) -> str:
        """In words; empty for what is no reply, or of which nothing is known."""
        row = self._rows.get(seq)
        if row is None:
            return ""
        out = row.usage.output_tokens
        tokens = f"{row.prompt_tokens:,} in, {'unknown' if out is None else f'{out:,}'} out"
        total = self._totals[seq]
        so_far = "" if total is None else f" (so far {wording.exact_cost(total)})"
        return f"{wording.exact_cost(row.cost_usd)}{so_far} · {tokens}"

    def between(self, first: int, end: float) -> str:
        """What the replies from ``first`` to before ``end`` have cost together."""
        costs = [row.cost_usd for seq, row in self._rows.items() if first <= seq < end]
        known = [cost for cost in costs if cost is not None]
        return wording.exact_cost(sum(known)) if known and len(known) == len(costs) else ""


def _contents(session: SessionSource, spent: _Spending) -> Iterator[str]:
    """A link to each prompt, with what all that came of it has cost."""
    said = [
        (entry.seq, entry.remark, _short(_first_text(entry)) or "(no text)")
        for entry in entries(session)
        if entry.speaker in {"You", "Summary"} and entry.seq
    ]
    if not said:
        return
    yield '<nav aria-label="Contents"><ol>\n'
    ends = [*(seq for seq, *_ in said[1:]), float("inf")]
    for (seq, remark, text), end in zip(said, ends, strict=True):
        cost = spent.between(seq, end)
        price = f' <span class="cost">{escape(cost)}</span>' if cost else ""
        mark = f" ({remark})" if remark else ""
        yield f'<li><a href="#m{seq}">{escape(text)}</a>{mark}{price}</li>\n'
    yield "</ol></nav>\n"


def _first_text(entry: TranscriptEntry) -> str:
    return next((item.text for item in entry.items if isinstance(item, TextPart)), "")


def _short(text: str) -> str:
    """A prompt in one short line."""
    line = " ".join(clean(text[:1000]).split())
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1] + "…"


def _html_item(item: Item, costs: Costs) -> Iterator[str]:
    if isinstance(item, TextPart):
        yield from _prose(clean(item.text).strip("\n"))
    elif isinstance(item, ThinkingPart):
        if item.text.strip():
            text = escape(clean(item.text))
            yield f"<details><summary>Thinking</summary><p>{text}</p></details>\n"
    elif isinstance(item, ImagePart):
        yield _html_image(item)
    elif isinstance(item, Note):
        yield f'<div class="note"><p>{escape(note_title(item))}</p>'
        yield f"<pre>{escape(clean(item.text))}</pre></div>\n"
    else:
        yield from _html_exchange(item, costs.get(item.call.id))


def _html_exchange(item: Exchange, cost: CallCost | None) -> Iterator[str]:
    failed = item.result is None or item.result.is_error
    kind = "tool failed" if failed else "tool"
    yield f'<details class="{kind}"><summary>{escape(item.summary)}{_cost(cost)}</summary>\n'
    yield _pre(item.arguments)
    if item.display:
        yield from _diff(item.display)
    for part in item.result.parts if item.result is not None else ():
        yield (
            _html_image(part)
            if isinstance(part, ImagePart)
            else _pre(item.beside_display(part.text))
        )
    yield "</details>\n"


def _cost(cost: CallCost | None) -> str:
    """What the result has cost, sent once and again."""
    if cost is None or not cost.result.tokens:
        return ""
    said = f"result: {wording.exact_cost(cost.result.cost_usd)}, {cost.result.tokens:,} tokens"
    return f' <span class="cost">{escape(said)}</span>'


def _pre(text: str) -> str:
    return f"<pre>{escape(clean(text))}</pre>\n"


def _diff(text: str) -> Iterator[str]:
    marks = {"+": "add", "-": "cut"}
    before = "<pre>"
    for found in _LINE.finditer(text.removesuffix("\n")):
        mark = marks.get(found[0][:1])
        shown = escape(found[0])
        yield f'{before}<span class="{mark}">{shown}</span>' if mark else f"{before}{shown}"
        before = "\n"
    yield "</pre>\n"


def _html_image(image: ImagePart) -> str:
    if isinstance(image, DocumentPart):
        return f"<p>(document: {escape(clean(image.name))}, {len(image.data):,} bytes)</p>\n"
    if image.media_type not in _SHOWN_IMAGES:
        return f"<p>(image: {escape(clean(image.media_type))}, {len(image.data):,} bytes)</p>\n"
    data = base64.b64encode(image.data).decode("ascii")
    return f'<p><img alt="image" src="data:{image.media_type};base64,{data}"></p>\n'


def _prose(text: str) -> Iterator[str]:
    """Text with the Markdown that matters when reading: code, headings, bold."""
    fence = ""
    start = 0
    for found in _FENCE.finditer(text):
        end = found.start()
        if not fence:
            yield from _paragraphs(text[start:end])
            fence, start = found[1], found.end() + 1
        elif found[1].startswith(fence) and not found[2].strip(" `~"):
            yield from _code(text[start : end - 1])
            fence, start = "", found.end() + 1
    yield from (_code if fence else _paragraphs)(text[start:])


def _code(text: str) -> Iterator[str]:
    yield f"<pre><code>{escape(text)}</code></pre>\n"


def _paragraphs(text: str) -> Iterator[str]:
    start = 0
    for heading in _HEADING.finditer(text):
        yield from _paragraph(text[start : heading.start()].strip("\n"))
        yield from ("<h3>", *_inline(heading[1]), "</h3>\n")
        start = heading.end()
    yield from _paragraph(text[start:].strip("\n"))


def _paragraph(text: str) -> Iterator[str]:
    if text and not text.isspace():
        yield "<p>"
        yield from _inline(text)
        yield "</p>\n"


def _inline(text: str) -> Iterator[str]:
    end = 0
    for found in _INLINE.finditer(text):
        yield escape(text[end : found.start()])
        tag, inner = ("code", found["code"]) if found["code"] else ("b", found["bold"])
        yield f"<{tag}>{escape(inner)}</{tag}>"
        end = found.end()
    yield escape(text[end:])
