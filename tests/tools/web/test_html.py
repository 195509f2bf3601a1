"""HTML as Markdown, and hostile HTML."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from agentcli.tools.web.html import MAX_MARKDOWN_CHARS, Markdown, plain_text, to_markdown

BASE = "https://docs.example/guide/page.html"
SIZE = 3_000_000
CHILDREN = Path(f"/proc/self/task/{threading.get_native_id()}/children")


def markdown(page: str) -> Markdown:
    return asyncio.run(to_markdown(page, BASE))


@pytest.mark.spec("TOOL-12")
def test_a_page_becomes_readable_markdown_with_absolute_links() -> None:
    done = markdown(
        "<html><head><title>The &amp;\n guide</title><style>p{}</style></head><body>"
        "<nav><a href=/x>Menu</a></nav><form><h1>Start</h1><p>Read <b>this</b> "
        "<a href='../a?b=c'>first</a>.</p></form><pre><code class=language-py>x = 1\ny = 2</code>"
        "</pre><ul><li>one</li><li>two</li></ul>"
        "<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>"
        "<script>alert('no')</script>" + "<p>More words than navigation alone has.</p>" * 8
    )
    assert done.title == "The & guide" and not done.is_plain
    assert done.text.startswith("# Start\n\nRead **this** [first](https://docs.example/a?b=c).")
    assert "```py\nx = 1\ny = 2\n```" in done.text
    assert "- one\n- two" in done.text
    assert "| A" in done.text and "alert" not in done.text and "Menu" not in done.text


def test_a_page_that_is_all_navigation_keeps_it() -> None:
    assert "[Menu](https://docs.example/x)" in markdown("<nav><a href=/x>Menu</a></nav>").text


def test_a_form_feed_of_facts_is_not_put_before_the_page() -> None:
    assert markdown("<title>T</title><meta name=author content=x><p>Hi</p>").text == "Hi"
    assert markdown("").text == ""


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    "piece",
    [
        "<div>",
        "<a href=x>",
        "<b>",
        "<",
        "<!--",
        "<table><tr><td>",
        "</p>",
        "&",
        "<script>",
        "<p a=",
    ],
)
def test_hostile_html_ends_and_is_bounded(piece: str) -> None:
    done = markdown(piece * (SIZE // len(piece)))
    assert len(done.text) <= MAX_MARKDOWN_CHARS + 1


@pytest.mark.spec("SEC-13")
def test_what_the_converter_gives_up_is_shown_as_bare_text() -> None:
    depth = 200_000
    done = markdown("<div>" * depth + "deep&amp;down" + "</div>" * depth)
    assert done.is_plain and done.text == "deep&down"


@pytest.mark.spec("CAN-9", "CAN-10")
@pytest.mark.skipif(not CHILDREN.exists(), reason="this system does not list a task's children")
def test_a_cancel_leaves_no_converter_running() -> None:
    async def cancelled() -> None:
        before = CHILDREN.read_text()
        task = asyncio.create_task(to_markdown("<b>" * 1_000_000, BASE))
        while CHILDREN.read_text() == before:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert CHILDREN.read_text() == before

    asyncio.run(cancelled())


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a</p><p>b <i>c</i></p>", "a\nb c"),
        ("x<!-- <p>no -->y", "xy"),
        ("a<SCRIPT>no</SCRIPT>b<style>no", "ab"),
        ("\u0130\u0130\u0130<script>no</script>b", "\u0130\u0130\u0130b"),
        ("1 < 2", "1"),
        ("&lt;b&gt;", "<b>"),
    ],
)
def test_bare_text_is_what_stands_between_the_tags(page: str, text: str) -> None:
    assert plain_text(page) == text
