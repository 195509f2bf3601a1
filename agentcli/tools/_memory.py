"""What the tools of the model's own notes share: limits, and what a wrong key is told (TOOL-5)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from agentcli.tools.files.paths import one_line

MAX_KEYS = 200
MAX_KEY_CHARS = 200
MAX_VALUE_CHARS = 20_000
MAX_TOTAL_CHARS = 200_000
_NEAR = 5


def _checked(key: str) -> str:
    if not 0 < len(key) <= MAX_KEY_CHARS:
        raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters")
    return key


Key = Annotated[str, AfterValidator(_checked)]
"""Checked here and not by the schema, which is sent with every request (CTX-2)."""


def unknown_key(key: str, memory: dict[str, str]) -> str:
    """What the model is told of a key that is not there."""
    from difflib import get_close_matches

    near = get_close_matches(key, memory, n=_NEAR, cutoff=0.5)
    known = near or list(memory)[-_NEAR:]
    hint = f"there is {', '.join(one_line(k, 60) for k in known)}" if known else "nothing is kept"
    return f"There is no key {one_line(key, 60)!r}: {hint}."
