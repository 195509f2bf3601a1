"""Images that a person drags into the input, or takes from the clipboard (UI-3).

Law: only an existing regular file with the bytes of an image counts; a program is looked up
outside the workspace (SEC-2), waited for at most ``TIMEOUT_S`` and read up to ``MAX_BYTES``; what
it gave is kept in a private file (SEC-9), for what is queued may be sent days later.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agentcli.domain.errors import UsageError
from agentcli.domain.images import facts_of
from agentcli.repl.outside import find_program

TIMEOUT_S = 3.0
MAX_BYTES = 20_000_000
KEPT_S = 7 * 24 * 3600.0
MAX_DROPPED = 20
_HEAD_BYTES = 4096
_MAX_CHARS = 20_000
_MAYBE = re.compile(
    r"(?:[/~'\"]|file://).*\.(?:png|jpe?g|gif|webp)['\"]?\s*\Z", re.DOTALL | re.IGNORECASE
)
# a variable that must be set, empty for none -> the command that prints the image
_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ("", ("pngpaste", "-")),
)


def may_name_images(text: str) -> bool:
    """Whether ``text`` reads like paths of image files; no file is looked at."""
    return len(text) <= _MAX_CHARS and _MAYBE.match(text.lstrip()) is not None


def named_images(text: str) -> list[Path]:
    """The images, when ``text`` is nothing but their paths, as terminals write what is dropped.

    Plain, quoted, with backslashes, or as ``file://`` addresses. Reads files.
    """
    typed = text.strip()
    if is_image(whole := _path(typed)):
        return [whole]
    try:
        words = shlex.split(typed)
    except ValueError:
        return []
    paths = [_path(word) for word in words[: MAX_DROPPED + 1]]
    return paths if 0 < len(paths) <= MAX_DROPPED and all(map(is_image, paths)) else []


def _path(word: str) -> Path:
    if word.lower().startswith("file://"):
        parts = urlsplit(word)
        return Path(unquote(parts.path) if parts.netloc in {"", "localhost"} else "")
    home = word.startswith("~/")
    return Path(os.path.expanduser(word)) if home else Path(word)  # noqa: PTH111 - never raises


def is_image(path: Path) -> bool:
    """Whether ``path`` is absolute and a file that begins as an image does."""
    try:
        if not path.is_absolute() or not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            return bool(facts_of(file.read(_HEAD_BYTES)).media_type)
    except (OSError, ValueError):
        return False


def clipboard_image(directory: Path | None, cwd: Path, env: Mapping[str, str]) -> Path:
    """The clipboard's image as a file in ``directory``, or in a temporary one.

    Blocks. Raises ``UsageError``.
    """
    found = False
    for variable, command in _PROGRAMS:
        program = find_program(command[0], cwd, env) if not variable or env.get(variable) else None
        if program is None:
            continue
        found = True
        data = _output([program, *command[1:]])
        if data and facts_of(data).media_type:
            return _kept(data, directory)
    if found:
        raise UsageError("there is no image in the clipboard", "a file can be dropped here")
    raise UsageError(
        "nothing here can read images from the clipboard",
        "install wl-clipboard, xclip or pngpaste, or drop the file here",
    )


def _output(command: list[str]) -> bytes:
    """What ``command`` prints; nothing when it fails, takes too long or prints too much."""
    try:
        with subprocess.Popen(  # noqa: S603 - a fixed command, a program outside the workspace
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            guard = threading.Timer(TIMEOUT_S, process.kill)
            guard.start()
            try:
                data = process.stdout.read(MAX_BYTES + 1) if process.stdout else b""
                if len(data) > MAX_BYTES:
                    process.kill()
                code = process.wait()
            finally:
                guard.cancel()
    except OSError:
        return b""
    return data if code == 0 else b""


def _kept(data: bytes, wanted: Path | None) -> Path:
    """``data`` in a new file; files of the week before go."""
    try:
        directory = wanted or Path(tempfile.mkdtemp(prefix="agentcli-"))
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in directory.glob("clipboard-*"):
            if old.stat().st_mtime < time.time() - KEPT_S:
                old.unlink(missing_ok=True)
        kind = facts_of(data).media_type.removeprefix("image/")
        path = directory / f"clipboard-{uuid.uuid4().hex[:8]}.{kind}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"the image cannot be kept: {error.strerror}") from error
    return path
