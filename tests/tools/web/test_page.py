"""What an answer of the web is, and its text; HTML as Markdown, and hostile HTML."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from agentcli.tools.web.page import (
    MAX_MARKDOWN_CHARS,
    Markdown,
    PageKind,
    kind_of,
    media_type,
    plain_text,
    text_of,
    to_markdown,
)

pytestmark = pytest.mark.sampled

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
    assert done.title == "The & guide" and not done.note
    assert done.text.startswith("# Start\n\nRead **this** [first](https://docs.example/a?b=c).")
    assert "```py\nx = 1\ny = 2\n```" in done.text
    assert "- one\n- two" in done.text
    assert "| A" in done.text and "alert" not in done.text and "Menu" not in done.text


def test_a_page_that_is_all_navigation_keeps_it() -> None:
    assert "[Menu](https://docs.example/x)" in markdown("<nav><a href=/x>Menu</a></nav>").text


def test_a_form_feed_of_facts_is_not_put_before_the_page() -> None:
    assert markdown("<title>T</title><meta name=author content=x><p>Hi</p>").text == "Hi"
    assert markdown("").text == ""


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
def test_what_the_converter_gives_up_is_shown_as_bare_text() -> None:
    depth = 200_000
    done = markdown("<div>" * depth + "deep&amp;down" + "</div>" * depth)
    assert done.note and done.text == "deep&down"


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


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.mark.spec("TOOL-12")
@pytest.mark.parametrize(
    ("said", "body", "kind"),
    [
        ("text/html; charset=utf-8", b"<p>x", PageKind.HTML),
        ("", b"\n <!DOCTYPE HTML><p>x", PageKind.HTML),
        ("", b"plain", PageKind.TEXT),
        ("application/json", b"{}", PageKind.TEXT),
        ("application/vnd.api+json", b"{}", PageKind.TEXT),
        ("image/svg+xml", b"<svg/>", PageKind.TEXT),
        ("application/octet-stream", b"#!/bin/sh\n", PageKind.TEXT),
        ("application/octet-stream", b"\xff\xfe\0\1\0\2"[2:], PageKind.BINARY),
        ("text/html", PNG, PageKind.IMAGE),
        ("image/png", PNG, PageKind.IMAGE),
        ("text/plain", b"a\0b", PageKind.BINARY),
        ("text/plain; charset=utf-16le", b"a\0b\0", PageKind.TEXT),
        ("text/html", b"%PDF-1.7", PageKind.BINARY),
        ("application/pdf", b"%PDF-1.7", PageKind.BINARY),
        ("video/mp4", b"\xff\xf1\x80", PageKind.BINARY),
        ("video/mp4", b"", PageKind.TEXT),
    ],
)
def test_the_kind_is_what_server_and_bytes_say(said: str, body: bytes, kind: PageKind) -> None:
    assert kind_of(said, body) is kind


@pytest.mark.parametrize(
    ("said", "body", "text"),
    [
        ("text/plain; charset=iso-8859-1", "\x80ä".encode("latin-1"), "€ä"),
        ('text/plain; Charset="windows-1251"', "Привет".encode("cp1251"), "Привет"),
        ("text/html", b'<meta charset="shift_jis">' + "日本".encode("cp932"), "日本"),
        ("text/html", "<meta charset=utf-8>é".encode(), "é"),
        ("text/plain", "é".encode(), "é"),
        ("text/plain", "é".encode("latin-1"), "é"),
        ("text/plain", "\ufeffé".encode(), "é"),
        ("text/plain", "\ufeffé".encode("utf-16-le"), "é"),
        ("text/plain; charset=utf-8", b"\xff", "\ufffd"),
    ],
)
def test_text_is_read_in_the_character_set_that_it_is_written_in(
    said: str, body: bytes, text: str
) -> None:
    assert text_of(said, body).endswith(text)


def test_utf8_that_was_cut_in_a_character_is_still_utf8() -> None:
    cut = "éaé".encode()[:-1]
    assert text_of("text/plain", cut, is_cut=True) == "éa\ufffd"
    assert text_of("text/plain", cut) == "Ã©aÃ"


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    "name", ["zip", "hex", "base64", "rot13", "punycode", "idna", "unicode_escape", "utf-7", "../x",
             "x" * 100, "os.path", "no-such"]
)  # fmt: skip
def test_a_codec_that_is_no_character_set_is_not_used(name: str) -> None:
    assert text_of(f"text/plain; charset={name}", b"\\u0041+AGE- 41") == "\\u0041+AGE- 41"


def test_a_media_type_that_is_none_is_not_repeated() -> None:
    assert media_type("Text/HTML ; q=1") == "text/html"
    assert media_type("text/\x1b[31mred") == ""
    assert media_type("x") == ""
