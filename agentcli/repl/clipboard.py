"""The clipboard, and what is pasted or dropped into the input (UI-3).

Law: only what the user asked for is put there, with a program of the desktop, else by the terminal
itself. Only an existing regular file with the bytes of an image counts as one. A program is looked
up outside the workspace (SEC-2), waited for at most ``TIMEOUT_S`` and read up to ``MAX_BYTES``;
what it gave is kept in a private file (SEC-9), for what is queued may be sent days later.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shlex
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import prompt_toolkit.application  # noqa: F401 - the parts below need it to be imported first
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document

from agentcli.app.files.mentions import escaped
from agentcli.app.shell_line import environment_for
from agentcli.app.user_files import UserFiles
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.files import make_private_directory
from agentcli.domain.images import facts_of
from agentcli.domain.patterns import LazyPattern
from agentcli.repl.outside import find_program
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line
from agentcli.ui.screen import Screen

TIMEOUT_S = 3.0
MAX_OSC_52 = 74_994
"""Bytes of base64 that every terminal with OSC 52 takes (xterm's limit)."""
MAX_BYTES = 20_000_000
KEPT_S = 7 * 24 * 3600.0
MAX_DROPPED = 20
_HEAD_BYTES = 4096
_MAX_CHARS = 20_000
_MAYBE = LazyPattern(
    r"(?:[/~'\"]|file://).*\.(?:png|jpe?g|gif|webp)['\"]?\s*\Z", re.DOTALL | re.IGNORECASE
)
# a variable that must be set, empty for none -> the command that prints the image
_IMAGE_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ("", ("pngpaste", "-")),
)
# the same -> the command that takes a text
_COPY_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-in")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
    ("", ("pbcopy",)),
    ("", ("termux-clipboard-set",)),
)


def copy_by_program(text: str, cwd: Path, env: Mapping[str, str]) -> bool:
    """Copy with a program; false when none could. Blocks.

    Over SSH the terminal's clipboard is the one the user has at hand.
    """
    if env.get("SSH_CONNECTION") or env.get("SSH_TTY"):
        return False
    return any(
        (not variable or bool(env.get(variable))) and _run(command, text, cwd, env)
        for variable, command in _COPY_PROGRAMS
    )


def _run(command: tuple[str, ...], text: str, cwd: Path, env: Mapping[str, str]) -> bool:
    program = find_program(command[0], cwd, env)
    if program is None:
        return False
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, a program outside the workspace
            [program, *command[1:]],
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
            env=environment_for(env),
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def osc_52(text: str) -> str:
    """The sequence that puts ``text`` on the terminal's clipboard. Raises ``UsageError``.

    https://invisible-island.net/xterm/ctlseqs/ctlseqs.html, "Manipulate Selection Data".
    """
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    if len(encoded) > MAX_OSC_52:
        raise UsageError("that is too long for the terminal's clipboard", "/export writes a file")
    return f"\x1b]52;c;{encoded}\x07"


# --- images that are dropped into the input or taken from the clipboard (UI-3) ----------------


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
    for variable, command in _IMAGE_PROGRAMS:
        program = find_program(command[0], cwd, env) if not variable or env.get(variable) else None
        if program is None:
            continue
        found = True
        data = _output([program, *command[1:]], env)
        if data and facts_of(data).media_type:
            return _kept(data, directory)
    if found:
        raise UsageError("there is no image in the clipboard", "a file can be dropped here")
    raise UsageError(
        "nothing here can read images from the clipboard",
        "install wl-clipboard, xclip or pngpaste, or drop the file here",
    )


def _output(command: list[str], env: Mapping[str, str]) -> bytes:
    """What ``command`` prints; nothing when it fails, takes too long or prints too much."""
    try:
        with subprocess.Popen(  # noqa: S603 - a fixed command, a program outside the workspace
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment_for(env),
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
        make_private_directory(directory)
        for old in directory.glob("clipboard-*"):
            if old.stat().st_mtime < time.time() - KEPT_S:
                old.unlink(missing_ok=True)
        kind = facts_of(data).media_type.removeprefix("image/")
        path = directory / f"clipboard-{os.urandom(4).hex()}.{kind}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"the image cannot be kept: {error.strerror}") from error
    return path


# --- pasted texts and images as short signs ---------------------------------------------------

FOLD_LINES = 8
FOLD_CHARS = 2000
NAME_COLUMNS = 40
_SIGN = LazyPattern(
    r"\[(?:Pasted text #(\d+) \+[\d,]+ (?:lines|characters)|Image #(\d+) [^\[\]\n]{1,80})\]"
)


class Pastes:
    """The texts and images behind the signs of one chat.

    Law: a sign that is still whole when the message is sent stands for its text, or names its image
    as an ``@path`` does; one that was edited is the text that it has become.
    """

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._images: dict[int, tuple[str, str]] = {}  # sign, path
        self._last = 0
        self._last_image = 0

    def fold(self, text: str) -> str:
        """``text`` itself when it is short, else a sign for it."""
        lines = text.count("\n")
        if lines < FOLD_LINES and len(text) <= FOLD_CHARS:
            return text
        number = self._last = self._last + 1
        self._texts[number] = text
        size = f"{lines:,} lines" if lines else f"{len(text):,} characters"
        return f"[Pasted text #{number} +{size}]"

    def image(self, path: Path) -> str:
        """A sign for the image ``path``."""
        number = self._last_image = self._last_image + 1
        name = fit(clean_line(re.sub(r"[\[\]]", "_", path.name)), NAME_COLUMNS) or "image"
        sign = f"[Image #{number} {name}]"
        self._images[number] = (sign, str(path))
        return sign

    def expand(self, text: str) -> str:
        """``text`` with the signs replaced by what they stand for."""
        return _SIGN.sub(self._meaning, text)

    def _meaning(self, found: re.Match[str]) -> str:
        if found[1]:
            return self._texts.get(int(found[1]), found[0])
        sign, path = self._images.get(int(found[2]), ("", ""))
        if sign != found[0]:
            return found[0]
        start, end = found.span()
        before = "" if start == 0 or found.string[start - 1].isspace() else " "
        after = "" if end == len(found.string) or found.string[end].isspace() else " "
        return f'{before}@"{escaped(path)}"{after}'

    def forget(self) -> None:
        """What was typed is sent: its signs stand for nothing any more."""
        self._texts.clear()
        self._images.clear()
        self._last_image = 0

    def sign_before(self, text: str) -> int:
        """The length of the sign that ``text`` ends with; 0 when there is none."""
        if not text.endswith("]"):
            return 0
        start = text.rfind("[")
        found = _SIGN.fullmatch(text, start) if start >= 0 else None
        return len(text) - start if found and self._meaning(found) != found[0] else 0


class InputImages:
    """Puts signs for images into ``buffer``; what was typed meanwhile and the cursor stay.

    Those of the clipboard are kept beside the user's earlier prompts.
    """

    def __init__(self, buffer: Buffer, pastes: Pastes, screen: Screen, user: UserFiles) -> None:
        self._buffer = buffer
        self._pastes = pastes
        self._screen = screen
        self._cwd = user.cwd
        self._kept = user.history_file.parent / "images" if user.history_file else None

    async def take_dropped(self, text: str) -> None:
        """What was pasted may be the paths of images: then signs stand in its place."""
        images = await asyncio.to_thread(named_images, text)
        typed = self._buffer.text
        if not images or text not in typed:
            return
        before, _, after = typed.rpartition(text)
        whole = before + " ".join(map(self._pastes.image, images)) + after
        moved = len(whole) - len(typed) if self._buffer.cursor_position > len(before) else 0
        cursor = max(len(before), self._buffer.cursor_position + moved)
        self._buffer.set_document(Document(whole, cursor), bypass_readonly=True)

    async def take_clipboard(self) -> None:
        """The image in the clipboard, where a program can read it."""
        try:
            path = await asyncio.to_thread(clipboard_image, self._kept, self._cwd, os.environ)
        except AgentError as error:
            self._screen.print_aside([f"{error.message}: {error.advice}"])
            return
        self._buffer.insert_text(self._pastes.image(path))
