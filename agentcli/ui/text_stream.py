"""One stretch of streamed text: the answer as Markdown, or thinking as dimmed text.

Law: what comes out is painted, sanitized across chunks (SEC-10) and never taken back; a fault
in the rendering costs the rendering and not the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.sanitize import Sanitizer
from agentcli.ui.theme import DIM, Theme

log = logging.getLogger(__name__)


class TextStream:
    """Text in, painted text out. Without a live terminal the answer is not rendered."""

    def __init__(self, theme: Theme, columns: Callable[[], int], *, thinking: bool) -> None:
        self.thinking = thinking
        self.begun = False
        self.head = ""
        self._theme = theme
        self._sanitizer = Sanitizer()
        self._markdown: MarkdownStream | None = None
        self._blanks = ""
        if thinking:
            self.head = theme.paint("Thinking", DIM) + "\n"
        elif theme.live:
            self._markdown = MarkdownStream(theme, columns)

    def feed(self, text: str) -> str:
        """What can be shown of the text so far and was not shown before."""
        return self._shown(self._sanitizer.feed(text))

    def finish(self) -> str:
        """The rest."""
        rest = self._shown(self._sanitizer.finish())
        return rest + self._rendered(None) if self._markdown else rest

    def _rendered(self, text: str | None) -> str:
        """More text through Markdown, ``None`` for its end; a fault of ours leaves it plain."""
        if self._markdown is None:
            return text or ""
        try:
            return self._markdown.finish() if text is None else self._markdown.feed(text)
        except Exception:
            log.exception("the answer could not be rendered")
            self._markdown = None
            return text or ""

    def _shown(self, text: str) -> str:
        if self._markdown:
            return self._rendered(text)
        text = self._blanks + text
        kept = text.rstrip("\n")
        self._blanks = text[len(kept) :]
        if not self.thinking:
            return kept
        return "\n".join(self._theme.paint(line, DIM) for line in kept.split("\n")) if kept else ""
