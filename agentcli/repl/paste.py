"""Long pastes, folded: one short sign in the input, the whole text in what is sent (UI-3).

Law: a sign that is still whole when the message is sent stands for its text; one that was
edited is the text that it has become.
"""

from __future__ import annotations

import re

FOLD_LINES = 8
FOLD_CHARS = 2000
_SIGN = re.compile(r"\[Pasted text #(\d+) \+[\d,]+ (?:lines|characters)\]")


class Pastes:
    """The texts behind the signs of one chat."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._last = 0

    def fold(self, text: str) -> str:
        """``text`` itself when it is short, else a sign for it."""
        lines = text.count("\n")
        if lines < FOLD_LINES and len(text) <= FOLD_CHARS:
            return text
        number = self._last = self._last + 1
        self._texts[number] = text
        size = f"{lines:,} lines" if lines else f"{len(text):,} characters"
        return f"[Pasted text #{number} +{size}]"

    def expand(self, text: str) -> str:
        """``text`` with the signs replaced by what they stand for."""
        return _SIGN.sub(lambda found: self._texts.get(int(found[1]), found[0]), text)

    def forget(self) -> None:
        """What was typed is sent: its signs stand for nothing any more."""
        self._texts.clear()

    def sign_before(self, text: str) -> int:
        """The length of the sign that ``text`` ends with; 0 when there is none."""
        if not text.endswith("]"):
            return 0
        start = text.rfind("[Pasted text #")
        found = _SIGN.fullmatch(text, start) if start >= 0 else None
        return len(text) - start if found and int(found[1]) in self._texts else 0
