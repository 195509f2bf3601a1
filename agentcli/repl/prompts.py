"""Where earlier prompts are remembered, and what may not stand there (SEC-9)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Prompts(NamedTuple):
    """``file`` keeps them, ``None`` for nowhere; ``redact`` takes keys out of each."""

    file: Path | None
    redact: Callable[[str], str]
