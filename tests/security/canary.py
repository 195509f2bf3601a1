"""Keys that must be nowhere, and the search for them in all that a run leaves behind."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

IN_ENVIRONMENT = "sk-ant-Canary/env+0123456789=abcdef"
IN_STORE = "sk-Canary/stored+0123456789=abcdef"
IN_ADDRESS = "Canary-address-0123456789"
ALL = (IN_ENVIRONMENT, IN_STORE, IN_ADDRESS)


def forms(secret: str) -> Iterator[bytes]:
    """A key as it stands in texts, JSON, addresses and base64, whatever is around it there."""
    raw = secret.encode()
    yield raw
    yield json.dumps(secret)[1:-1].encode()
    yield quote(secret).encode()
    yield quote(secret, safe="").encode()
    yield quote(secret, safe="").replace("%2F", "%2f").encode()
    yield json.dumps(secret)[1:-1].replace("/", r"\/").encode()
    yield secret.encode("utf-16-le")
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        yield b64encode(b"\0" * before + raw)[first:last]


def found_in(data: bytes | str, secrets: Iterable[str] = ALL) -> list[bytes]:
    """The forms of ``secrets`` that stand in ``data``."""
    text = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return [form for secret in secrets for form in forms(secret) if form in text]


def leaks(directory: Path, own: Iterable[Path] = ()) -> dict[str, list[bytes]]:
    """Files below ``directory`` in which a key stands, by name too; ``own`` may hold theirs."""
    kept = set(own)
    found = {}
    for path in directory.rglob("*"):
        if hits := found_in(path.name):
            found[f"name of {path}"] = hits
        if path.is_file() and not path.is_symlink() and path not in kept:
            if hits := found_in(path.read_bytes()):
                found[str(path)] = hits
    return found
