r"""What a shell hands to the next one: its directory and its exported variables (TOOL-11, SEC-15).

Each command runs in a shell of its own. A line around the command has the shell write its directory
and its exported variables, NUL-terminated, to a file when it ends. Laws: neither the command nor
what it leaves behind goes through a file with a name: the shell inherits both as open files, so no
process of another command can put its own in their place. What comes back is taken for hostile all
the same (the command itself may write to it): it counts for the trust domain that the command ran
in, inside the sandbox or outside; only what differs from the base environment is kept, in bounded
size, and never a key of a provider or a variable that ``environment`` bars. What runs outside
changes both domains, what runs inside never the one outside.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from agentcli.domain.values import frozen
from agentcli.process.environment import may_pass, without_credentials

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

# The numbers under which the shell finds its command and the file for its state. Plain shells know
# no number of two digits.
_HANDLES = {"bash": (60, 61), "sh": (7, 8)}
# One line each, so that the shell counts the command's own lines from 1.
_BASH = (
    "__agentcli_save() {{ {{ builtin set +xveu; }} 2>/dev/null; {{ "
    "builtin local __agentcli_name IFS=$' \\t\\n'; builtin pwd; builtin printf '\\0'; {variables}"
    "builtin printf 'end\\0'; __agentcli_saved=1; }} >&{state} 2>/dev/null; }}; "
    "IFS= builtin read -r -d '' __agentcli_command <&{command}; builtin exec {command}<&-; "
    "builtin trap '{{ builtin [ \"${{__agentcli_saved-}}\" ] || __agentcli_save; }} 2>/dev/null' "
    "EXIT; "
    'builtin eval "$__agentcli_command"; '
    "{{ __agentcli_status=$?; __agentcli_save; builtin set +x; }} 2>/dev/null; "
    'builtin exit "$__agentcli_status"'
)
_SH = (
    "__agentcli_save() {{ {{ set +xveu; }} 2>/dev/null; {{ "
    "pwd; printf '\\0'; {variables}printf 'end\\0'; __agentcli_saved=1; }} "
    ">&{state} 2>/dev/null; }}; "
    "__agentcli_command=$(cat <&{command}; printf x); exec {command}<&-; "
    "trap '{{ [ \"${{__agentcli_saved-}}\" ] || __agentcli_save; }} 2>/dev/null' EXIT; "
    'eval "${{__agentcli_command%x}}"; '
    "{{ __agentcli_status=$?; __agentcli_save; set +x; }} 2>/dev/null; "
    'exit "$__agentcli_status"'
)
_BASH_VARIABLES = (
    "for __agentcli_name in $(builtin compgen -e); do "
    'builtin printf \'%s=%s\\0\' "$__agentcli_name" "${!__agentcli_name}"; done; '
)
_SH_VARIABLES = "command -p env -0; "


@frozen
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
            return cls(cwd, variables, tuple(map(str, value["unset"])))
        except (TypeError, KeyError, ValueError, AttributeError):
            return cls()

    def differences(self) -> tuple[str, ...]:
        """What differs from the user's own environment, a text for each variable, PATH first."""
        changed = {name: f"{name}={value}" for name, value in self.variables.items()}
        changed |= {name: f"{name} unset" for name in self.unset}
        return tuple(changed[name] for name in sorted(changed, key=lambda n: (n != "PATH", n)))

    def followed(self, before: ShellState, after: ShellState) -> ShellState:
        """This state inside, with what a command outside has changed which began in ``before``."""
        changed = {
            name: value
            for name, value in after.variables.items()
            if before.variables.get(name) != value
        }
        changed = changed and without_credentials(changed)
        unset_now = {*after.unset} - {*before.unset}
        gone = ({*before.variables} - {*after.variables}) | unset_now
        kept = {n: v for n, v in {**self.variables, **changed}.items() if n not in gone}
        set_again = ({*before.unset} - {*after.unset}) | {*changed}
        unset = ({*self.unset} | unset_now) - set_again
        return ShellState(
            self.cwd if after.cwd == before.cwd else after.cwd, kept, tuple(sorted(unset))
        )


@frozen
class ShellStates:
    """Where the next shell starts, inside the sandbox and outside of it.

    ``outside`` is also the user's own shell, and the only one where there is no sandbox.
    """

    inside: ShellState = ShellState()
    outside: ShellState = ShellState()

    @classmethod
    def from_json(cls, value: Any) -> ShellStates:
        """What ``to_json`` made; anything else is a fresh start."""
        known = value if isinstance(value, dict) else {}
        return cls(
            ShellState.from_json(known.get("inside")), ShellState.from_json(known.get("outside"))
        )

    def to_json(self) -> dict[str, Any]:
        """For the session file."""
        return {"inside": self.inside.to_json(), "outside": self.outside.to_json()}

    def as_far_as(self, stored: ShellStates) -> tuple[ShellStates, list[str]]:
        """Without the variables that ``stored`` has otherwise, and their names."""
        whole = {**self.inside.variables, **self.outside.variables}
        same = {**stored.inside.variables, **stored.outside.variables}
        changed = sorted(name for name, value in whole.items() if same.get(name) != value)
        states = (
            replace(state, variables={n: v for n, v in state.variables.items() if n not in changed})
            for state in (self.inside, self.outside)
        )
        return ShellStates(*states), changed

    def after(self, start: ShellState, end: ShellState, *, inside: bool) -> ShellStates:
        """The states once a shell has gone from ``start`` to ``end``."""
        if inside:
            return ShellStates(end, self.outside)
        return ShellStates(self.inside.followed(start, end), end)


class Handover:
    """The open files of one shell: the command that it is given, the state that it hands back.

    ``reads_only``: of that state its directory alone. Raises ``OSError`` when there is no room for
    them, ``UnicodeEncodeError`` for a command that is no text. To be closed.
    """

    def __init__(self, command: str, *, reads_only: bool = False) -> None:
        self._reads_only = reads_only
        data = command.encode("utf-8", "surrogateescape")
        self._command = open_nameless(data)
        try:
            self._state = open_nameless(b"", _MAX_FILE_BYTES)
        except BaseException:
            os.close(self._command)
            raise
        self._data: bytes | None = None

    def argv(self, shell: str) -> tuple[str, ...]:
        """The command line that has ``shell`` run the command and save its state."""
        name = "bash" if Path(shell).name == "bash" else "sh"
        command, state = _HANDLES[name]
        if name == "bash":
            variables = "" if self._reads_only else _BASH_VARIABLES
            text = _BASH.format(command=command, state=state, variables=variables)
            return (shell, "--noprofile", "--norc", "-c", text, name)
        variables = "" if self._reads_only else _SH_VARIABLES
        return (shell, "-c", _SH.format(command=command, state=state, variables=variables), name)

    def handles(self, shell: str) -> dict[int, int]:
        """Our open files by the numbers under which ``shell`` is to have them."""
        numbers = _HANDLES["bash" if Path(shell).name == "bash" else "sh"]
        return dict(zip(numbers, (self._command, self._state), strict=True))

    def read(self) -> None:
        """Take what the shell has saved, once: what is written later counts for nothing."""
        if self._data is None:
            size = min(os.lseek(self._state, 0, os.SEEK_CUR), _MAX_FILE_BYTES)
            self._data = os.pread(self._state, size, 0)

    def state(self, base: Mapping[str, str]) -> tuple[ShellState | None, tuple[str, ...]]:
        """What the shell saved, as ``parse_state`` reads it."""
        self.read()
        return parse_state(self._data or b"", base)

    def close(self) -> None:
        """Close our ends."""
        os.close(self._command)
        os.close(self._state)


def open_nameless(data: bytes, most_bytes: int = 0) -> int:
    """A file that no path leads to, with ``data`` in it, to be read from its beginning.

    It lies in memory where the system has such files, and grows to ``most_bytes`` at most. Raises
    ``OSError``.
    """
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # a kernel may be told to refuse them
            handle = os.memfd_create("agentcli", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                os.pwrite(handle, data, 0)
                if most_bytes:
                    os.ftruncate(handle, most_bytes)
                    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
            except OSError:
                os.close(handle)
                raise
            return handle
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return os.dup(file.fileno())


def parse_state(data: bytes, base: Mapping[str, str]) -> tuple[ShellState | None, tuple[str, ...]]:
    """What a shell saved, and the names of variables that are not kept; ``None`` if nothing.

    It may have saved more than once: the last time counts.
    """
    fields = data.rstrip(b"\0").split(b"\0")
    if not data or fields.pop() != _END:
        return None, ()
    while _END in fields:
        del fields[: fields.index(_END) + 1]
    if not fields:
        return None, ()
    cwd = os.fsdecode(fields[0].removesuffix(b"\n"))
    after: dict[str, str] = {}
    for item in fields[1:]:
        raw_name, _, raw_value = item.partition(b"=")
        after[os.fsdecode(raw_name)] = os.fsdecode(raw_value)
    kept: dict[str, str] = {}
    dropped: list[str] = []
    room = _MAX_TOTAL_CHARS
    for name, text in after.items():
        if name in _VOLATILE or name.startswith((_OURS, "BASH_FUNC_")) or base.get(name) == text:
            continue
        # "~" is judged as the home of the user
        if name == "HOME" or not may_pass(name, text) or len(text) > min(room, _MAX_VALUE_CHARS):
            dropped.append(name)
            continue
        room -= len(name) + len(text)
        kept[name] = text
    unset = tuple(sorted(base.keys() - after.keys() - _VOLATILE))
    is_directory = os.path.isabs(cwd)  # noqa: PTH117 - a text, maybe of undecodable bytes
    return ShellState(cwd if is_directory else None, kept, unset), tuple(dropped)


def _pack(text: str) -> str | dict[str, str]:
    """Text as it is; the bytes in hexadecimal where they are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"hex": os.fsencode(text).hex()}
    return text


def _unpack(packed: Any) -> str:
    return packed if isinstance(packed, str) else os.fsdecode(bytes.fromhex(packed["hex"]))


# --- private directories ------------------------------------------------------------------------


def sweep_once(parent: Path) -> None:
    """Remove what dead processes of this user left in ``parent``; once per process."""
    if parent in _swept:
        return
    _swept.add(parent)
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            match = _NAME.fullmatch(entry.name)
            if match and not _is_alive(int(match["pid"])) and _is_own_directory(entry):
                from agentcli.process.leftovers import remove_tree

                remove_tree(Path(entry.path))


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
