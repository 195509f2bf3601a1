"""What a command printed for a terminal, as the plain text that a reader would have seen.

Law: the result holds no escape sequence and no control character but newline and tab; of a line
that was overwritten by carriage returns (a progress bar) only its last state is kept.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    "|\x1b[\\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c|$)?"  # OSC, DCS, SOS, PM, APC
    "|\x1b[ -/]*[0-~]?"  # the two-character ones, and a lone ESC
    "|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OVERSTRUCK = re.compile("[^\x08\n]\x08")
# anchored, so that a long line is looked at once and not from each of its characters
_OVERWRITTEN = re.compile("^[^\\n]*\r(?=[^\r\\n])", re.MULTILINE)
_BINARY_SAMPLE = 8192
_BINARY_SHARE = 0.3


def looks_binary(data: bytes) -> bool:
    """Whether a terminal would show mostly rubbish, judged by the first bytes."""
    sample = data[:_BINARY_SAMPLE].decode("utf-8", "replace")
    rubbish = sum(char in "\ufffd\0" or "\x0e" <= char <= "\x1a" for char in sample)
    return rubbish > _BINARY_SHARE * len(sample)


def plain_text(data: bytes) -> str:
    """``data`` as text for the model; what is not UTF-8 becomes U+FFFD, NUL becomes U+2400."""
    text = data.decode("utf-8", "replace")
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\x08" in text:
        text = _without_backspaces(text)
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    text = text.replace("\0", "\N{SYMBOL FOR NULL}")
    return _CONTROLS.sub("", text)


def _without_backspaces(text: str) -> str:
    """Apply backspaces; the rounds are bounded since each may be undone by the next."""
    for _ in range(32):
        shorter = _OVERSTRUCK.sub("", text)
        if shorter == text:
            break
        text = shorter
    return text
