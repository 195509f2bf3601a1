"""Other programs that have the terminal for a while: the editor, the pager, a login.

Law: a program is looked up on PATH outside the workspace (SEC-2), and has no key of a provider
unless it is ours (SEC-8); it starts outside the workspace, where an editor finds none of its
settings (SEC-2); temporary files are private (SEC-9) and gone afterwards; none of them keeps the
chat from ending (``end_programs``).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from agentcli.app.shell_line import environment_for
from agentcli.domain.errors import AgentError
from agentcli.domain.extensions.extras import own_python
from agentcli.domain.worktrees import filled_by_others, lies_in, may_be_chosen_there

_EDITORS = ("nano", "vim", "vi", "emacs")
_PAGERS = ("less", "more")
_GRACE_S = 1.0
_running: set[subprocess.Popen[bytes]] = set()
# a program that has been started is known, also to a signal that comes at that moment
_starting = threading.Lock()


_OWN_TERMINAL = frozenset(
    ("emacs", "helix", "htop", "hx", "joe", "lazygit", "mc", "micro", "nano", "nvim", "pico",
     "ranger", "screen", "tig", "tmux", "top", "vi", "vim", "vimdiff", "visudo", "btop")
)  # fmt: skip
_ONLY_SAYS = frozenset({"--version", "--help", "-h", "-V", "-b", "--batch", "-batch"})
_BEFORE = frozenset({"sudo", "env", "command", "exec"})


def needs_terminal(command: str) -> str:
    """The program of a typed command that draws on a terminal of its own; empty for all others."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    while words and (words[0] in _BEFORE or "=" in words[0]):
        del words[0]
    name = words[0].rpartition("/")[2] if words else ""
    return name if name in _OWN_TERMINAL and not _ONLY_SAYS.intersection(words) else ""


def find_program(name: str, cwd: Path, env: Mapping[str, str]) -> str | None:
    """The program on PATH, or by its absolute path, unless it lies in the repository."""
    barred = filled_by_others(cwd)
    if "/" in name:
        path = Path(name)
        outside = path.is_absolute() and not lies_in(path, barred)
        return name if outside and os.access(path, os.X_OK) else None
    places = [
        place
        for place in env.get("PATH", "").split(os.pathsep)
        if Path(place).is_absolute() and not lies_in(Path(place), barred)
    ]
    return shutil.which(name, path=os.pathsep.join(places))


def command_for(
    wanted: Sequence[str], known: Sequence[str], cwd: Path, env: Mapping[str, str]
) -> list[str] | None:
    """The command line of the first variable of ``wanted`` that is set, else a known program."""
    for variable in wanted:
        try:
            words = shlex.split(env.get(variable, ""))
        except ValueError:
            continue
        program = find_program(words[0], cwd, env) if words else None
        if program is not None:
            return [program, *words[1:]]
    for name in known:
        program = find_program(name, cwd, env)
        if program is not None and not may_be_chosen_there(program):
            return [program]
    return None


def edit_text(text: str, cwd: Path, env: Mapping[str, str]) -> str:
    """``text`` as the user's editor leaves it. Blocks. Raises ``AgentError``."""
    command = command_for(("VISUAL", "EDITOR"), _EDITORS, cwd, env)
    if command is None:
        raise AgentError("no editor was found", "set EDITOR")
    with tempfile.TemporaryDirectory(prefix="agentcli-") as directory:
        path = Path(directory) / "message.md"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        path.chmod(0o600)
        try:
            code = _run([*command, str(path)], None, environment_for(env), directory)
            edited = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise AgentError(f"cannot run {command[0]}: {error.strerror}", "set EDITOR") from error
    if code != 0:
        raise AgentError(f"{command[0]} ended with {code}", "the text is as it was")
    return edited.removesuffix("\n")


def log_in(provider: str, env: Mapping[str, str]) -> bool:
    """Have our own program ask for a key of ``provider``; whether it was stored. Blocks."""
    argv = [*own_python(), "-m", "agentcli", "auth", "login", "--", provider]
    return _run(argv, None, env) == 0


def overwritten(output: bytes) -> str:
    """What a command printed, without what it overwrote in the same line, as progress bars do."""
    lines = output.decode("utf-8", "replace").split("\n")
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)


def page_text(text: str, cwd: Path, env: Mapping[str, str], *, less: str = "") -> bool:
    """Show ``text`` in the user's pager; false when there is none. Blocks.

    ``less`` are options for the pager of that name.
    """
    command = command_for(("PAGER",), _PAGERS, cwd, env)
    if command is None:
        return False
    kept = _pagers(env)
    try:
        _run(command, text.encode("utf-8", "replace"), {**kept, "LESS": less, "LESSSECURE": "1"})
    except OSError:
        return False
    return True


def page_file(file: BinaryIO, line: int, cwd: Path, env: Mapping[str, str]) -> bool:
    """Show ``file`` in the pager that the user has chosen; false when that is none. Blocks.

    ``line`` (from 1) is where a pager that can begins.
    """
    command = command_for(("PAGER",), (), cwd, env)
    if command is None:
        return False
    if is_less(command):
        command = [*command, f"+{line}g"]
    kept = _pagers(env)
    file.seek(0)
    try:
        _run(command, file, {**kept, "LESS": "R", "LESSSECURE": "1"})
    except OSError:
        return False
    return True


def _pagers(env: Mapping[str, str]) -> dict[str, str]:
    given = environment_for(env).items()
    return {name: value for name, value in given if not name.startswith("LESS")}


def is_less(command: Sequence[str]) -> bool:
    """Whether it is the pager that knows colours, and lines to begin at."""
    return Path(command[0]).name == "less"


def end_programs() -> None:
    """End what was started here and still runs, be it in the middle of something."""
    with _starting:
        running = tuple(_running)
    for process in running:
        process.terminate()
        killer = threading.Timer(_GRACE_S, process.kill)
        killer.daemon = True
        killer.start()


def _run(
    command: Sequence[str], given: bytes | BinaryIO | None, env: Mapping[str, str], cwd: str = "/"
) -> int:
    """The exit code of a program that has the terminal."""
    piped = given if isinstance(given, bytes) else None
    stdin = subprocess.PIPE if isinstance(given, bytes) else given
    with _starting:
        process = subprocess.Popen(command, stdin=stdin, env=env, cwd=cwd)  # noqa: S603 - the user's own program
        _running.add(process)
    with process:
        try:
            process.communicate(piped)
        finally:
            _running.discard(process)
        return process.returncode
