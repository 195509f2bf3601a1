"""What a command printed becomes plain text, whatever the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.tools.common.base import looks_binary, plain_text


@pytest.mark.spec("TOOL-11")
@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b[38:2::1:2:3mx\x1b[K\x1b[2Jy", "xy"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        (b"\x1bPq...\x1b\\x\x1b(By\x1b=z\x1b", "xyz"),
        (b"\x1b]never ended\nnext line", "\nnext line"),
        (b"10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        (b"one\r\n\r\ntwo\r", "one\n\ntwo"),
        (b"N\x08NA\x08AM\x08M", "NAM"),
        (b"ab\x08\x08cd", "cd"),
        (b"bell\x07 nul\x00 del\x7f", "bell nul\u2400 del"),
        (b"caf\xc3\xa9 \xff\xc3", "caf\u00e9 \ufffd\ufffd"),
        ("c1 \u009b31mred\u0085".encode(), "c1 red"),
    ],
)
def test_escapes_overwritten_text_and_odd_bytes_go(printed: bytes, text: str) -> None:
    assert plain_text(printed) == text


@pytest.mark.spec("TOOL-11")
@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [b"\x1b", b"[", b"]", b"\r", b"\n", b"\x08", b"m", b"\x9b", b"P", b"a", b"\xc2"]
        )
    )
)
def test_no_control_character_is_ever_left(pieces: list[bytes]) -> None:
    text = plain_text(b"".join(pieces))
    assert all(char in "\n\t" or char.isprintable() for char in text)


@pytest.mark.sampled
@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    "piece", [b"x", b"\r", b"x\r", b"\x1b[", b"\x1b]", b"\x08", b"a\x08", b"\n", b"\x1b"]
)
def test_megabytes_of_anything_take_linear_time(piece: bytes) -> None:
    plain_text(piece * (3_000_000 // len(piece)))


def test_binary_is_told_from_text() -> None:
    assert looks_binary(bytes(range(256)) * 8)
    assert looks_binary(b"\0" * 100)
    assert not looks_binary("naïve Ünïcode €\n".encode() * 100)
    assert not looks_binary(b"latin-1 caf\xe9\n" * 100)
    assert not looks_binary(b"a\0b c d e f g\0")
    assert not looks_binary(b"")
