r"""What a shell hands to the next one: its directory and its exported variables (TOOL-11).

Each command runs in a shell of its own. A line around the command has the shell write its directory
and its exported variables, NUL-terminated, to a file in a private directory when it ends. Laws:
that file is taken for hostile (any command may write to it); only what differs from the base
environment is kept, in bounded size, and never a key of a provider or a variable that
``environment`` bars. The directory is 0700 with an unpredictable name, and is removed by its maker;
what a killed app left behind the next command of that user removes (SEC-9).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentcli.domain.cancel import uninterruptible
from agentcli.process.environment import may_pass

PREFIX = "agentcli-"
"""Begins the name of every temporary directory of ours; our pid follows."""
_NAME = re.compile(rf"{PREFIX}(?P<pid>\d+)-\w+")
_swept: set[Path] = set()
STATE_KEY = "shell"
_MAX_FILE_BYTES = 4 * 1024 * 1024
_MAX_VALUE_CHARS = 32 * 1024
_MAX_TOTAL_CHARS = 128 * 1024
_VOLATILE = frozenset({"_", "PWD", "SHLVL", "COLUMNS", "LINES"})
_OURS = "__agentcli_"
_END = b"end"

# One line each, so that the shell counts the command's own lines from 1.
_BASH = (
    "__agentcli_save() {{ {{ builtin set +xveu; }} 2>/dev/null; {{ "
    "builtin local __agentcli_name IFS=$' \\t\\n'; builtin pwd; builtin printf '\\0'; "
    "for __agentcli_name in $(builtin compgen -e); do "
    'builtin printf \'%s=%s\\0\' "$__agentcli_name" "${{!__agentcli_name}}"; done; '
    "builtin printf 'end\\0'; }} >|{state} 2>/dev/null; }}; "
    "IFS= builtin read -r -d '' __agentcli_command <{command}; "
    "builtin trap '{{ __agentcli_save; }} 2>/dev/null' EXIT; "
    'builtin eval "$__agentcli_command"; '
    "{{ __agentcli_status=$?; __agentcli_save; builtin set +x; }} 2>/dev/null; "
    'builtin exit "$__agentcli_status"'
)
_SH = (
    "__agentcli_save() {{ {{ set +xveu; }} 2>/dev/null; {{ "
    "pwd; printf '\\0'; command -p env -0; printf 'end\\0'; }} >|{state} 2>/dev/null; }}; "
    "__agentcli_command=$(cat {command}; printf x); "
    "trap '{{ __agentcli_save; }} 2>/dev/null' EXIT; "
    'eval "${{__agentcli_command%x}}"; '
    "{{ __agentcli_status=$?; __agentcli_save; set +x; }} 2>/dev/null; "
    'exit "$__agentcli_status"'
)


@dataclass(frozen=True, slots=True)
class ShellState:
    """Where the next shell starts. ``cwd`` of ``None`` is the session's own directory."""

    cwd: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` as the shells before have changed it."""
        changed = {name: value for name, value in self.variables.items() if may_pass(name, value)}
        return {n: v for n, v in {**base, **changed}.items() if n not in self.unset}

    def to_json(self) -> dict[str, Any]:
        """For the session file."""
        return {
            "cwd": None if self.cwd is None else _pack(self.cwd),
            "set": {name: _pack(value) for name, value in sorted(self.variables.items())},
            "unset": list(self.unset),
        }

    @classmethod
    def from_json(cls, value: Any) -> ShellState:
        """What ``to_json`` made; anything else is a fresh state."""
        try:
            cwd = None if value["cwd"] is None else _unpack(value["cwd"])
            variables = {str(name): _unpack(packed) for name, packed in value["set"].items()}
            return cls(cwd, variables, tuple(str(name) for name in value["unset"]))
        except (TypeError, KeyError, ValueError, AttributeError):
            return cls()


def shell_argv(shell: str, scratch: Path) -> tuple[str, ...]:
    """The command line that has ``shell`` run the command in ``scratch`` and save its state."""
    files = {
        "command": shlex.quote(str(scratch / "command")),
        "state": shlex.quote(str(scratch / "state")),
    }
    if Path(shell).name == "bash":
        return (shell, "--noprofile", "--norc", "-c", _BASH.format(**files), "bash")
    return (shell, "-c", _SH.format(**files), "sh")


def read_state(scratch: Path, base: Mapping[str, str]) -> tuple[ShellState | None, tuple[str, ...]]:
    """What the shell saved, and the names of variables that are not kept; ``None`` if nothing."""
    data = _read_regular(scratch / "state")
    fields = data.split(b"\0") if data else []
    if len(fields) < len((b"cwd", _END, b"")) or fields[-2:] != [_END, b""]:
        return None, ()
    cwd = os.fsdecode(fields[0].removesuffix(b"\n"))
    after: dict[str, str] = {}
    for item in fields[1:-2]:
        raw_name, _, raw_value = item.partition(b"=")
        after[os.fsdecode(raw_name)] = os.fsdecode(raw_value)
    kept: dict[str, str] = {}
    dropped: list[str] = []
    room = _MAX_TOTAL_CHARS
    for name, text in after.items():
        if name in _VOLATILE or name.startswith((_OURS, "BASH_FUNC_")) or base.get(name) == text:
            continue
        if not may_pass(name, text) or len(text) > min(room, _MAX_VALUE_CHARS):
            dropped.append(name)
            continue
        room -= len(name) + len(text)
        kept[name] = text
    unset = tuple(sorted(name for name in base if name not in after and name not in _VOLATILE))
    is_directory = os.path.isabs(cwd)  # noqa: PTH117 - a text, maybe of undecodable bytes
    return ShellState(cwd if is_directory else None, kept, unset), tuple(dropped)


def _read_regular(path: Path) -> bytes:
    """The file's content, unless something else has taken its place or it is too large."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        data = file.read(_MAX_FILE_BYTES + 1)
    return data if len(data) <= _MAX_FILE_BYTES else b""


def _pack(text: str) -> str | dict[str, str]:
    """Text as it is; the bytes in hexadecimal where they are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"hex": os.fsencode(text).hex()}
    return text


def _unpack(packed: Any) -> str:
    return packed if isinstance(packed, str) else os.fsdecode(bytes.fromhex(packed["hex"]))


# --- the private directory ------------------------------------------------------------------------


async def new_scratch(command: str, parent: Path | None = None) -> Path:
    """A directory with the command, in ``parent``; a cancelled caller leaves none behind."""
    made: list[Path] = []
    try:
        await uninterruptible(asyncio.to_thread(lambda: made.append(_make(command, parent))))
    except asyncio.CancelledError:
        for scratch in made:
            await remove_scratch(scratch)
        raise
    return made[0]


async def remove_scratch(scratch: Path) -> None:
    """Remove it, whatever happens to the caller."""
    await uninterruptible(asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True))


def _make(command: str, parent: Path | None) -> Path:
    sweep_once(Path(tempfile.gettempdir()))
    scratch = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    try:
        for name, data in (("command", command.encode("utf-8", "surrogateescape")), ("state", b"")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(scratch / name, flags, 0o600), "wb") as file:
                file.write(data)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return scratch


def sweep_once(parent: Path) -> None:
    """Remove what dead processes of this user left in ``parent``; once per process."""
    if parent in _swept:
        return
    _swept.add(parent)
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            match = _NAME.fullmatch(entry.name)
            if match and not _is_alive(int(match["pid"])) and _is_own_directory(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_own_directory(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
