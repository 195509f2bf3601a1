"""A Markdown document laid out for a terminal as a whole, where nothing streams (CLI-16).

Law: the text is cleaned first (SEC-10); colours only where the terminal has them and NO_COLOR is
not set; words stay whole, and a page is never wider than is good to read.
"""

from __future__ import annotations

from io import StringIO
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.theme import Theme

from agentcli.ui.sanitize import clean

_WIDEST = 100
_STYLES = {
    "markdown.code": "cyan",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.h3": "italic",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
}


class _LeftHeading(Heading):
    """A heading that begins where the text begins, in all versions of the library."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        self.text.justify = "left"
        yield self.text


class _Page(Markdown):
    elements: ClassVar = {**Markdown.elements, "heading_open": _LeftHeading}


def painted_page(text: str, columns: int) -> str:
    """``text`` as a terminal of ``columns`` shows it."""
    page = StringIO()
    console = Console(
        file=page, force_terminal=True, width=min(columns, _WIDEST), theme=Theme(_STYLES)
    )
    console.print(_Page(clean(text), code_theme="ansi_dark", hyperlinks=False))
    return page.getvalue()
