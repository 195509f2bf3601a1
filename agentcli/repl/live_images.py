"""Images that are dropped into the input or taken from the clipboard.

Law: what was typed meanwhile stays, and the cursor stays where it was in it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document

from agentcli.domain.errors import AgentError
from agentcli.repl.images import clipboard_image, named_images
from agentcli.repl.paste import Pastes
from agentcli.ui.screen import Screen


class InputImages:
    """Puts signs for images into ``buffer``; those of the clipboard are kept in ``kept``."""

    def __init__(self, buffer: Buffer, pastes: Pastes, screen: Screen, cwd: Path) -> None:
        self._buffer = buffer
        self._pastes = pastes
        self._screen = screen
        self._cwd = cwd
        self.kept: Path | None = None

    async def take_dropped(self, text: str) -> None:
        """What was pasted may be the paths of images: then signs stand in its place."""
        images = await asyncio.to_thread(named_images, text)
        typed = self._buffer.text
        if not images or text not in typed:
            return
        before, _, after = typed.rpartition(text)
        whole = before + " ".join(map(self._pastes.image, images)) + after
        moved = len(whole) - len(typed) if self._buffer.cursor_position > len(before) else 0
        cursor = max(len(before), self._buffer.cursor_position + moved)
        self._buffer.set_document(Document(whole, cursor), bypass_readonly=True)

    async def take_clipboard(self) -> None:
        """The image in the clipboard, where a program can read it."""
        try:
            path = await asyncio.to_thread(clipboard_image, self.kept, self._cwd, os.environ)
        except AgentError as error:
            self._screen.print_aside([f"{error.message}: {error.advice}"])
            return
        self._buffer.insert_text(self._pastes.image(path))
