"""A report as one HTML page with charts: no script, no network, for eyes and for screen readers.

Laws. Every text is cleaned and escaped; the page's own policy allows its one style sheet and
nothing else. No number is in a picture only: a bar stands in the row of a table that says it, and
beside a chart of days is its table. What two marks mean is told by their shape, not by their
colour. Light and dark follow the reader's system.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from agentcli.domain.values import frozen
from agentcli.ui.sanitize import clean_line

GENERATOR = "agentcli report"
"""By this a page of ours is known, in its ``meta name="generator"``."""

_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --back: #fff; --dim: #59636e; --line: #d1d9e0;
  --bar: #0969da; --soft: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --dim: #9198a1;
  --line: #3d444d; --bar: #58a6ff; --soft: #151b23; } }
* { box-sizing: border-box; }
body { max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--back); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.6rem 0 .4rem; }
p { margin: .3rem 0; } .dim, nav { color: var(--dim); font-size: .9rem; }
a { color: var(--bar); } a:focus-visible, [tabindex]:focus-visible { outline: 2px solid var(--bar);
  outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem;
  margin: 1.2rem 0 0; }
.facts div { border: 1px solid var(--line); border-radius: 8px; padding: .6rem .9rem; }
dt { color: var(--dim); font-size: .85rem; } dd { margin: 0; font-size: 1.35rem; font-weight: 600; }
dd small { display: block; font-size: .8rem; font-weight: 400; color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--dim); padding: .2rem 0 .5rem; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; } thead th { color: var(--dim); font-weight: 400; }
th:first-child, td.text { text-align: left; }
tbody th { font-weight: 400; white-space: normal; min-width: 9rem; max-width: 22rem; }
tbody th small { display: block; color: var(--dim); }
td.bar { width: 30%; min-width: 6rem; }
path:hover { stroke-opacity: 1; stroke-width: 4; }
.bar svg { display: block; width: 100%; height: .8rem; }
.chart { display: block; width: 100%; min-width: 34rem; height: auto; }
.full, .part { vector-effect: non-scaling-stroke; stroke: var(--bar); stroke-width: 1.5; }
.full { fill: var(--bar); } .part { fill: var(--back); }
.grid { stroke: var(--line); stroke-width: 1; } .chart text { fill: var(--dim);
  font: 12px system-ui, sans-serif; }
.key svg { width: .8rem; height: .8rem; vertical-align: -.05rem; margin-right: .3rem; }
.key span { margin-right: 1.2rem; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--dim); font-size: .9rem; }
footer { margin: 3rem 0 1rem; border-top: 1px solid var(--line); padding-top: .6rem; }
@media print { body { max-width: none; margin: 0; } details > * { display: block; } }
"""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 720, 220, 64, 16, 24, 10
_TICKS = 4
_LABEL_PX = 64
_LONGEST_NAME = 300


@frozen
class BarRow:
    """A row of a table: its name, a smaller line below it, its bar, what the other columns say.

    ``parts`` make up the bar, in any unit; none where its length is not known. ``link`` is a page
    about it, beside this one.
    """

    name: str
    parts: tuple[float, ...]
    cells: tuple[str, ...]
    below: str = ""
    link: str = ""


@frozen
class Point:
    """One column of a chart: its name, its height, what it says in words, its name at the axis."""

    name: str
    size: float
    text: str
    label: str


def report_page(title: str, lead: Sequence[str], sections: Iterable[tuple[str, str]]) -> str:
    """The page; ``sections`` are titles with their HTML, of the functions below."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    found = list(sections)
    links = "".join(
        f'<li><a href="#s{at}">{_shown(name)}</a></li>' for at, (name, _) in enumerate(found, 1)
    )
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f'<meta name="generator" content="{GENERATOR}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{_shown(title)}</title><style>{_STYLE}</style></head><body>",
        f"<header><h1>{_shown(title)}</h1>",
        *(f'<p class="dim">{_shown(line)}</p>' for line in lead),
        f'</header><nav aria-label="Contents"><ul>{links}</ul></nav><main>',
    ]
    for at, (name, body) in enumerate(found, 1):
        lines.append(f'<section aria-labelledby="s{at}"><h2 id="s{at}">{_shown(name)}</h2>')
        lines += [body, "</section>"]
    lines.append("</main></body></html>")
    return "\n".join(lines) + "\n"


def facts(values: Iterable[tuple[str, str, str]]) -> str:
    """Figures that stand out: name, value, and a smaller line or nothing."""
    boxes = (
        f"<div><dt>{_shown(name)}</dt><dd>{_shown(value)}{_small(more)}</dd></div>"
        for name, value, more in values
    )
    return f'<dl class="facts">{"".join(boxes)}</dl>'


def paragraph(text: str) -> str:
    """Words."""
    return f"<p>{_shown(text)}</p>"


def bar_table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[BarRow],
    *,
    key: Sequence[str] = (),
    more: str = "",
) -> str:
    """A table whose second column is a bar; ``head`` names the others.

    ``key`` says what the parts of a bar mean, the full one first; ``more`` what was left out.
    """
    longest = max((sum(row.parts) for row in rows), default=0.0) or 1.0
    titles = [f'<th scope="col">{_shown(name)}</th>' for name in head]
    titles.insert(1, '<th scope="col" aria-hidden="true"></th>')
    lines = [_key(key), *_table_head(caption, "".join(titles))]
    for row in rows:
        cells = "".join(f"<td>{_shown(cell)}</td>" for cell in row.cells)
        bar = f'<td class="bar" aria-hidden="true">{_bar(row.parts, longest)}</td>'
        lines.append(f"<tr>{_row_name(row.name, row.below, row.link)}{bar}{cells}</tr>")
    lines.append("</tbody></table></div>")
    return "\n".join([*lines, *_more(more)])


def plain_table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, more: str = ""
) -> str:
    """A table of texts; the first column names the row."""
    lines = _table_head(caption, "".join(f'<th scope="col">{_shown(name)}</th>' for name in head))
    for name, *cells in rows:
        lines.append(f"<tr>{_row_name(name)}{''.join(f'<td>{_shown(c)}</td>' for c in cells)}</tr>")
    lines.append("</tbody></table></div>")
    return "\n".join([*lines, *_more(more)])


def folded(summary: str, body: str) -> str:
    """What is opened when it is wanted."""
    return f"<details><summary>{_shown(summary)}</summary>{body}</details>"


def column_chart(title: str, points: Sequence[Point], axis: Callable[[float], str]) -> str:
    """A picture of one column for each point, in order; ``axis`` writes a size."""
    most = max((point.size for point in points), default=0.0)
    step = _step(most)
    top = max(step, math.ceil(most / step) * step)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM - _TOP
    each = width / max(len(points), 1)
    peak = max(points, key=lambda point: point.size, default=None)
    about = f"{len(points)} columns" + (
        f"; the highest is {peak.name}: {peak.text}" if peak else ""
    )
    lines = [
        f'<p class="dim">{_shown(title)}</p>',
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_shown(title)}">',
        (
            f'<svg class="chart" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
            f' aria-label="{_shown(f"{title}: {about}")}">'
        ),
    ]
    for number in range(round(top / step) + 1):
        y = _TOP + height - height * number * step / top
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_px(y)}" y2="{_px(y)}"/>'
            f'<text x="{_LEFT - 8}" y="{_px(y + 4)}" text-anchor="end">'
            f"{_shown(axis(number * step))}</text>"
        )
    every = max(1, math.ceil(_LABEL_PX / each))
    for at, point in enumerate(points):
        x = _LEFT + at * each
        tall = max(height * point.size / top, 1.0 if point.size else 0.0)
        lines.append(
            f'<rect class="full" x="{_px(x + each * 0.15)}" y="{_px(_TOP + height - tall)}"'
            f' width="{_px(each * 0.7)}" height="{_px(tall)}">'
            f"<title>{_shown(f'{point.name}: {point.text}')}</title></rect>"
        )
        if (len(points) - 1 - at) % every == 0:
            lines.append(
                f'<text x="{_px(x + each / 2)}" y="{_HEIGHT - 6}" text-anchor="middle">'
                f"{_shown(point.label)}</text>"
            )
    lines.append("</svg></div>")
    return "\n".join(lines)


def _shown(text: str) -> str:
    return escape(clean_line(text))


def _small(text: str) -> str:
    return f"<small>{_shown(text)}</small>" if text else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def _row_name(name: str, below: str = "", link: str = "") -> str:
    shown = _shown(_cut(name))
    if link:
        shown = f'<a href="{_shown(link)}">{shown}</a>'
    return f'<th scope="row">{shown}{_small(_cut(below))}</th>'


def _table_head(caption: str, titles: str) -> list[str]:
    return [
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_shown(caption)}">',
        f"<table><caption>{_shown(caption)}</caption><thead><tr>{titles}</tr></thead><tbody>",
    ]


def _more(text: str) -> Iterator[str]:
    if text:
        yield f'<p class="dim">{_shown(text)}</p>'


def _key(names: Sequence[str]) -> str:
    marks = (
        f'<span><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="{kind}" x="1" y="1"'
        f' width="8" height="8"/></svg>{_shown(name)}</span>'
        for name, kind in zip(names, ("full", "part"), strict=False)
    )
    return f'<p class="dim key">{"".join(marks)}</p>' if names else ""


def _bar(parts: Sequence[float], longest: float) -> str:
    """The parts one after another: the first is full, the others are outlines."""
    rects, x = [], 0.0
    for at, part in enumerate(parts):
        width = 100 * part / longest
        if width > 0:
            kind = "part" if at else "full"
            rects.append(
                f'<rect class="{kind}" x="{_px(x)}" y="1" width="{_px(max(width, 0.3))}"'
                ' height="8"/>'
            )
        x += width
    return f'<svg viewBox="0 0 101 10" preserveAspectRatio="none">{"".join(rects)}</svg>'


def _px(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _step(most: float) -> float:
    """A round distance between lines of the grid: 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most / _TICKS))
    return next(times * power for times in (1, 2, 5, 10) if times * power * _TICKS >= most)
