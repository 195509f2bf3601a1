"""The OS keyring, asked through a process that can be given up (SEC-9).

Law: no answer is waited for without a bound, and the ``keyring`` library is never imported here:
it costs more than a whole start, and its daemons hang.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

READ_S = 10.0
WRITE_S = 60.0  # a person may have to unlock it
INSTALL = "pip install 'agentcli[keyring]'"
_WORKER = Path(__file__).with_name("keyring_worker.py")


class KeyringError(Exception):
    """The keyring is not there, refused, or did not answer; the text says which."""


class KeyringCall:
    """One question to the keyring under way. ``stop`` ends it from any thread."""

    def __init__(self, question: dict[str, str], timeout_s: float) -> None:
        self._question = question
        self._timeout_s = timeout_s
        self._process: Any = None
        self._stopped = False

    def result(self) -> str:
        """The key that was asked for, or an empty text. Blocks; raises ``KeyringError``."""
        import subprocess

        try:
            # -P: nothing is imported from beside the worker or from a working directory
            process = subprocess.Popen(  # noqa: S603 - our own file
                [sys.executable, "-P", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise KeyringError(f"it cannot be asked: {error.strerror}") from error
        self._process = process
        if self._stopped:
            self.stop()
        with process:
            try:
                out, _ = process.communicate(json.dumps(self._question).encode(), self._timeout_s)
            except subprocess.TimeoutExpired:
                self.stop()
                raise KeyringError(f"it did not answer within {self._timeout_s:g} s") from None
            except BaseException:
                self.stop()
                raise
        return _read(out)

    def stop(self) -> None:
        """End the question; ``result`` then raises."""
        import os
        import signal

        self._stopped = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _read(out: bytes) -> str:
    try:
        reply = json.loads(out)
        ok, key, why = bool(reply["ok"]), reply.get("key", ""), reply.get("why", "")
    except (ValueError, KeyError, TypeError):
        raise KeyringError("it ended without an answer") from None
    if not ok:
        raise KeyringError(str(why))
    return key if isinstance(key, str) else ""
