"""A page with charts: bounded by its policy, every number in a table, safe texts."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from agentcli.ui.charts import (
    BarRow,
    Point,
    bar_table,
    column_chart,
    facts,
    folded,
    paragraph,
    plain_table,
    report_page,
)

HOSTILE = "</script><script>alert(1)</script>\x1b[31m\u202e"
_VOID = {"meta"}


class Outline(HTMLParser):
    """Tags in their order; fails where they are not closed as they were opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


def page_of(text: str) -> str:
    rows = [BarRow(text, (3.0, 1.0), (text, "9"), text), BarRow("none", (), ("unknown", "0"))]
    points = [Point(f"2026-01-{day:02}", day, text, f"01-{day:02}") for day in range(1, 31)]
    sections = (
        (text, facts(((text, text, text),)) + paragraph(text)),
        ("bars", bar_table(text, ("name", "a", "b"), rows, key=(text, text), more=text)),
        ("days", column_chart(text, points, lambda size: f"${size:.2f}")),
        ("table", folded(text, plain_table(text, ("name", "a"), [(text, text)], more=text))),
    )
    return report_page(text, [text], sections)


@pytest.mark.spec("COST-3", "SEC-10")
def test_no_text_becomes_markup_or_reaches_a_terminal() -> None:
    outline, tame = Outline(page_of(HOSTILE)), Outline(page_of("tame"))
    assert [tag for tag, _ in outline.seen] == [tag for tag, _ in tame.seen]
    assert not outline.attributes("script")
    assert not re.search("[\x1b\u202e]", page_of(HOSTILE))


@pytest.mark.spec("COST-3")
def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else() -> None:
    page = page_of("words")
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = Outline(page).attributes("meta")[1]["content"] or ""
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert " style=" not in page and "http" not in page.replace("http-equiv", "")


@pytest.mark.spec("COST-3")
def test_a_screen_reader_hears_names_headings_and_every_number() -> None:
    outline = Outline(page_of("words"))
    assert outline.attributes("html")[0]["lang"] == "en"
    assert all(each["scope"] in {"col", "row"} for each in outline.attributes("th"))
    assert len(outline.attributes("caption")) == len(outline.attributes("table")) == 2
    for svg in outline.attributes("svg"):
        assert svg.get("aria-hidden") == "true" or svg.get("aria-label") or "role" not in svg
    [chart] = [svg for svg in outline.attributes("svg") if svg.get("role") == "img"]
    assert chart["aria-label"] == "words: 30 columns; the highest is 2026-01-30: words"
    names = {each["id"] for each in outline.attributes("h2")}
    assert names == {(each["href"] or "").lstrip("#") for each in outline.attributes("a")}
    assert len([each for each in outline.attributes("rect") if each.get("class") == "part"]) == 2


@pytest.mark.spec("COST-3")
@pytest.mark.parametrize("sizes", [[], [0.0], [1e-6, 2e-6], [1e12], [0.0, 7.0] * 45])
def test_a_chart_of_any_sizes_stays_in_its_frame(sizes: list[float]) -> None:
    points = [Point(str(at), size, "", str(at)) for at, size in enumerate(sizes)]
    outline = Outline(column_chart("t", points, str))
    bars = outline.attributes("rect")
    assert len(bars) == len(sizes)
    for bar in bars:
        top, height = float(bar["y"] or "x"), float(bar["height"] or "x")
        assert 0 <= top and top + height <= 220
        assert float(bar["x"] or "x") + float(bar["width"] or "x") <= 720
    assert 2 <= len(outline.attributes("line")) <= 7
