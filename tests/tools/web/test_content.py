"""What an answer is, and its text."""

from __future__ import annotations

import pytest

from agentcli.tools.web.content import Kind, kind_of, media_type, text_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.mark.spec("TOOL-12")
@pytest.mark.parametrize(
    ("said", "body", "kind"),
    [
        ("text/html; charset=utf-8", b"<p>x", Kind.HTML),
        ("", b"\n <!DOCTYPE HTML><p>x", Kind.HTML),
        ("", b"plain", Kind.TEXT),
        ("application/json", b"{}", Kind.TEXT),
        ("application/vnd.api+json", b"{}", Kind.TEXT),
        ("image/svg+xml", b"<svg/>", Kind.TEXT),
        ("application/octet-stream", b"#!/bin/sh\n", Kind.TEXT),
        ("application/octet-stream", b"\xff\xfe\0\1\0\2"[2:], Kind.BINARY),
        ("text/html", PNG, Kind.IMAGE),
        ("image/png", PNG, Kind.IMAGE),
        ("text/plain", b"a\0b", Kind.BINARY),
        ("text/plain; charset=utf-16le", b"a\0b\0", Kind.TEXT),
        ("text/html", b"%PDF-1.7", Kind.BINARY),
        ("application/pdf", b"%PDF-1.7", Kind.BINARY),
        ("video/mp4", b"\xff\xf1\x80", Kind.BINARY),
        ("video/mp4", b"", Kind.TEXT),
    ],
)
def test_the_kind_is_what_server_and_bytes_say(said: str, body: bytes, kind: Kind) -> None:
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
