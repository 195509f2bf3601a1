"""Streamed text, rendered or plain."""

from __future__ import annotations

import pytest

from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.text_stream import TextStream
from agentcli.ui.theme import PLAIN, Theme

LIVE = Theme(color=False, attributes=True, live=True)


@pytest.mark.spec("UI-1", "SEC-10")
def test_the_answer_is_rendered_and_sanitized_where_the_terminal_is_live() -> None:
    live, plain = (TextStream(theme, lambda: 80, thinking=False) for theme in (LIVE, PLAIN))
    pieces = ("a **b", "** c\x1b[3", "1md\n")
    assert "".join(map(live.feed, pieces)) + live.finish() == "a \x1b[1mb\x1b[0m cd\n"
    assert "".join(map(plain.feed, pieces)) + plain.finish() == "a **b** cd"


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize("method", ["feed", "finish"])
def test_a_fault_in_the_rendering_leaves_the_text_plain(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(MarkdownStream, method, fail)
    stream = TextStream(LIVE, lambda: 80, thinking=False)
    shown = stream.feed("one\n") + stream.feed("two\n") + stream.finish()
    assert "one" in shown
    assert "two" in shown
