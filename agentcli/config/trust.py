"""Which directories the person trusts, and with what in them (SEC-1).

Law: a directory is trusted by its real path and with the very configuration that was shown: when
that changes, it is not trusted until the person was asked again. A book that cannot be read trusts
nothing.
"""

from __future__ import annotations

import json
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentcli.config.paths import Paths

_MAX_BYTES = 4_000_000


class Standing(StrEnum):
    """What the person has said of a directory. ``CHANGED``: trusted, with something else in it."""

    UNKNOWN = "unknown"
    TRUSTED = "trusted"
    CHANGED = "changed"
    REFUSED = "refused"


def standing(paths: Paths, directory: Path, fingerprint: str) -> Standing:
    """How ``directory`` stands with a configuration of this ``fingerprint``."""
    entry = _read(paths).get(os.path.realpath(directory))
    if not isinstance(entry, dict):
        return Standing.UNKNOWN
    if entry.get("trusted") is not True:
        return Standing.REFUSED
    return Standing.TRUSTED if entry.get("fingerprint") == fingerprint else Standing.CHANGED


def decide(paths: Paths, directory: Path, fingerprint: str, *, trusted: bool) -> None:
    """Write down what the person has said. Raises ``ConfigError``."""
    from agentcli.config.edit import write

    book = _read(paths)
    book[os.path.realpath(directory)] = {
        "trusted": trusted,
        "fingerprint": fingerprint,
        "decided_at": round(time.time()),
    }
    write(paths.trust_file, json.dumps({"directories": book}, indent=1, sort_keys=True) + "\n")


def _read(paths: Paths) -> dict[str, Any]:
    try:
        with paths.trust_file.open("rb") as file:
            book = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    directories = book.get("directories") if isinstance(book, dict) else None
    return directories if isinstance(directories, dict) else {}
