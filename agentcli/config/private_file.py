"""Writing a file of ours whole: the write is atomic and 0600, whatever the umask (SEC-9)."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from agentcli.config.paths import ensure_dir
from agentcli.domain.errors import ConfigError


def write(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` at once: a reader sees the old file or the new, never a part.

    A symbolic link is kept and its target replaced. Raises ``ConfigError``.
    """
    target = Path(os.path.realpath(path))
    ensure_dir(target.parent)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.stem}-", suffix=".tmp"
        )
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            os.fchmod(handle, 0o600)  # the umask may have taken more away
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot write {path}: {reason}", "nothing was changed") from error
