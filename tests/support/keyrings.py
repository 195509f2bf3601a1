"""A keyring for the ``keyring`` library that keeps its keys in a JSON file, or misbehaves."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

_BACKEND = """
import json, os, time
from pathlib import Path
from keyring.backend import KeyringBackend

FILE = Path({file!r})
KIND = {kind!r}

class Keyring(KeyringBackend):
    priority = 9

    def _all(self):
        if KIND == "hangs":
            time.sleep(3600)
        if KIND == "chatty":
            print("a line of the backend's own")
        return json.loads(FILE.read_text()) if FILE.exists() else {{}}

    def get_password(self, service, username):
        return self._all().get(f"{{service}}/{{username}}")

    def set_password(self, service, username, password):
        kept = self._all()
        if KIND == "raises":
            raise OSError("the daemon refused")
        if KIND != "forgets":
            kept[f"{{service}}/{{username}}"] = password
        FILE.write_text(json.dumps(kept))

    def delete_password(self, service, username):
        kept = self._all()
        del kept[f"{{service}}/{{username}}"]
        FILE.write_text(json.dumps(kept))
"""


def fake_keyring(directory: Path, kind: str = "works") -> dict[str, str]:
    """Environment variables that make ``keyring`` use such a backend; its file is KEYRING_FILE."""
    if importlib.util.find_spec("keyring") is None:
        pytest.skip("the keyring library is not installed")
    place = directory / "keyring-backend"
    place.mkdir(exist_ok=True)
    file = directory / "kept-keys.json"
    if kind == "missing":  # as where the extra is not installed
        (place / "keyring.py").write_text("raise ImportError('no keyring')\n")
    else:
        (place / "canary_backend.py").write_text(_BACKEND.format(file=str(file), kind=kind))
    known = {"fail": "keyring.backends.fail.Keyring", "null": "keyring.backends.null.Keyring"}
    path = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH", ""))))
    return {
        "PYTHONPATH": path,
        "PYTHON_KEYRING_BACKEND": known.get(kind, "canary_backend.Keyring"),
        "KEYRING_FILE": str(file),
    }


def use_keyring(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> Path:
    """Set those variables here; returns the backend's file."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return Path(env["KEYRING_FILE"])


def kept_in(file: Path) -> dict[str, str]:
    """What the backend has."""
    found: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return found
