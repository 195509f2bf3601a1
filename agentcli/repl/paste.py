"""What is pasted: long texts and images, as short signs in the input (UI-3).

Law: a sign that is still whole when the message is sent stands for its text, or names its image
as an ``@path`` does; one that was edited is the text that it has become.
"""

from __future__ import annotations

import re
from pathlib import Path

from agentcli.app.mentions import escaped
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line

FOLD_LINES = 8
FOLD_CHARS = 2000
NAME_COLUMNS = 40
_SIGN = re.compile(
    r"\[(?:Pasted text #(\d+) \+[\d,]+ (?:lines|characters)|Image #(\d+) [^\[\]\n]{1,80})\]"
)


class Pastes:
    """The texts and images behind the signs of one chat."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._images: dict[int, tuple[str, str]] = {}  # sign, path
        self._last = 0
        self._last_image = 0

    def fold(self, text: str) -> str:
        """``text`` itself when it is short, else a sign for it."""
        lines = text.count("\n")
        if lines < FOLD_LINES and len(text) <= FOLD_CHARS:
            return text
        number = self._last = self._last + 1
        self._texts[number] = text
        size = f"{lines:,} lines" if lines else f"{len(text):,} characters"
        return f"[Pasted text #{number} +{size}]"

    def image(self, path: Path) -> str:
        """A sign for the image ``path``."""
        number = self._last_image = self._last_image + 1
        name = fit(clean_line(re.sub(r"[\[\]]", "_", path.name)), NAME_COLUMNS) or "image"
        sign = f"[Image #{number} {name}]"
        self._images[number] = (sign, str(path))
        return sign

    def expand(self, text: str) -> str:
        """``text`` with the signs replaced by what they stand for."""
        return _SIGN.sub(self._meaning, text)

    def _meaning(self, found: re.Match[str]) -> str:
        if found[1]:
            return self._texts.get(int(found[1]), found[0])
        sign, path = self._images.get(int(found[2]), ("", ""))
        if sign != found[0]:
            return found[0]
        start, end = found.span()
        before = "" if start == 0 or found.string[start - 1].isspace() else " "
        after = "" if end == len(found.string) or found.string[end].isspace() else " "
        return f'{before}@"{escaped(path)}"{after}'

    def forget(self) -> None:
        """What was typed is sent: its signs stand for nothing any more."""
        self._texts.clear()
        self._images.clear()
        self._last_image = 0

    def sign_before(self, text: str) -> int:
        """The length of the sign that ``text`` ends with; 0 when there is none."""
        if not text.endswith("]"):
            return 0
        start = text.rfind("[")
        found = _SIGN.fullmatch(text, start) if start >= 0 else None
        return len(text) - start if found and self._meaning(found) != found[0] else 0
