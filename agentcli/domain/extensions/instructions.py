"""Instructions of the user and of a project, as the model reads them (CTX-1, EXT-4).

Law: a document is text for the model and nothing else; its text cannot end its own frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentcli.domain.messages import INSTRUCTIONS, Message, TextPart, UserMessage
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen

MAX_BYTES = 32 * 1024
"""All that is read at the start; and all that comes later, in one session."""
_DOCUMENT = LazyPattern(r'<document path="([^"\n]*)"( cut)?>\n(.*?)\n</document>', re.DOTALL)
HOLDS = "The project's instructions for the files that were just touched:"


@frozen
class ProjectDoc:
    """One file's text; ``cut`` when the budget ended within it."""

    path: Path
    text: str
    cut: bool = False

    @property
    def name(self) -> str:
        """Its path as the model sees it."""
        return re.sub(r'["<>\x00-\x1f]', "_", str(self.path))


def framed(docs: Iterable[ProjectDoc]) -> str:
    """``docs`` as they are sent, in their order."""
    return "\n".join(map(_frame, docs))


def _frame(doc: ProjectDoc) -> str:
    text = doc.text.replace("</document>", "< /document>")
    return f'<document path="{doc.name}"{" cut" if doc.cut else ""}>\n{text}\n</document>'


def documents_in(text: str) -> Iterator[ProjectDoc]:
    """The documents that stand in ``text``."""
    for found in _DOCUMENT.finditer(text):
        yield ProjectDoc(Path(found[1]), found[3], bool(found[2]))


def documents_of(messages: Iterable[Message]) -> Iterator[ProjectDoc]:
    """Those that came on the way, and those that a summary carries."""
    for message in messages:
        if isinstance(message, UserMessage) and (message.is_summary or message.is_instructions):
            own = message.parts[-1]  # what the model wrote of a summary stands before it
            yield from documents_in(own.text if isinstance(own, TextPart) else "")


def instructions_text(docs: Iterable[ProjectDoc]) -> str:
    """What the model is told of ``docs`` when a call has touched files that they hold for."""
    return f"{INSTRUCTIONS}{HOLDS}\n{framed(docs)}\n</instructions-for-files>"
