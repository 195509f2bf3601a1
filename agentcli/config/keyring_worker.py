"""One question to the OS keyring, in a process of its own: asked on stdin, answered on stdout.

Law: it imports nothing of ours; a key passes through the two pipes only, never through an
argument or a file. Its time is bounded by the process that started it: a keyring's daemon may
hang for ever.

The question is ``{"do": "get" | "set" | "delete", "service", "user", "key"}``, the answer
``{"ok", "key", "why"}``. ``"look"`` asks for the name of the keyring, which comes as ``key``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked; what a keyring raises becomes ``why``."""
    try:
        import keyring
    except ImportError:
        return {"ok": False, "why": "the package keyring is not installed"}
    try:
        return _answer(keyring, question)
    except Exception as error:  # noqa: BLE001 - backends raise what they like; it ends here as text
        what = " ".join(str(error).split())[:200] or type(error).__name__
        return {"ok": False, "why": what}


def _answer(keyring: Any, question: dict[str, Any]) -> dict[str, Any]:
    backend = keyring.get_keyring()
    place = f"{type(backend).__module__}.{type(backend).__name__}"
    if place.startswith(("keyring.backends.fail.", "keyring.backends.null.")):
        return {"ok": False, "why": "there is no keyring on this system"}
    if question["do"] == "look":
        return {"ok": True, "key": place}
    where = (question["service"], question["user"])
    if question["do"] == "set":
        backend.set_password(*where, question["key"])
        if backend.get_password(*where) != question["key"]:
            return {"ok": False, "why": "the keyring did not keep it"}
    elif question["do"] == "delete":
        if backend.get_password(*where) is not None:
            backend.delete_password(*where)
    else:
        key = backend.get_password(*where)
        return {"ok": True, "key": key if isinstance(key, str) else ""}
    return {"ok": True}


def main() -> None:
    """Answer the one question; nothing that a backend prints gets between."""
    out = os.dup(1)
    os.dup2(2, 1)
    reply = answer(json.load(sys.stdin))
    with os.fdopen(out, "w", encoding="ascii") as file:
        json.dump(reply, file)


if __name__ == "__main__":
    main()
