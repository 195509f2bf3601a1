"""A fenced code block as it comes, line by line.

Law: the code's characters are shown as they are; a line that looks like a fence ends the block
only where CommonMark says so (https://spec.commonmark.org/0.31.2/#fenced-code-blocks).
"""

from __future__ import annotations

import re

from agentcli.ui.blocks import CODE_INDENT
from agentcli.ui.containers import Opened
from agentcli.ui.highlight import Highlighter
from agentcli.ui.inline import Span
from agentcli.ui.theme import DIM, Theme


class CodeBlock:
    """One block, begun by the line ``opened``. ``head`` is the fence as it is shown."""

    __slots__ = ("_bars", "_highlighter", "_margin", "_marker", "_marks", "head", "is_closed")

    def __init__(self, opened: Opened, theme: Theme) -> None:
        self._marker = opened.start.marker
        info = opened.rest[opened.start.skip + len(self._marker) :].strip()
        language = info.split(maxsplit=1)[0].strip("{}.").partition(":")[0] if info else ""
        self._highlighter = Highlighter(language if theme.color else "")
        self._margin = opened.margin
        self._bars: list[Span] = [(f"{theme.symbols.bar} " * opened.quotes, DIM)]
        quotes = opened.quotes
        self._marks = re.compile(rf"(?: {{0,3}}> ?){{1,{quotes}}}") if quotes else None
        self.head: list[Span] = [(self._marker + info, DIM)]
        self.is_closed = False

    def line(self, line: str) -> list[Span] | None:
        """The spans of the next line; ``None`` when it is no part of the block any more."""
        if self._marks is not None:
            marks = self._marks.match(line)
            if marks is None:
                return None
            line = line[marks.end() :]
        bare = line.strip()
        margin = len(line) - len(line.lstrip(" "))
        is_fence = bare and not bare.strip(self._marker[0]) and len(bare) >= len(self._marker)
        if is_fence and margin < self._margin + CODE_INDENT:
            self.is_closed = True
            return [*self._bars, (bare, DIM)]
        return [*self._bars, *self._highlighter.line(line[min(margin, self._margin) :])]
