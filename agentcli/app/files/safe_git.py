"""Asking git about a directory without running any of the repository's code (SEC-2).

Law: git is a program outside the workspace; no file-system monitor, hook, pager, external diff,
text conversion, content filter or transport of the repository runs, whatever another process writes
into its configuration meanwhile. Nothing is written to it but by ``SafeGit.change``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

from agentcli.domain.clean import one_line
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.domain.files import open_at, opened_directory
from agentcli.domain.tools import real_path
from agentcli.domain.values import frozen
from agentcli.domain.worktrees import (
    common_of_worktree,
    filled_by_others,
    lies_in,
    may_be_chosen_there,
)
from agentcli.engine.context.system_prompt import project_root

TIMEOUT_S = 10.0
_TICK_S = 0.05
_GRACE_S = 2.0
_OPTIONS = (
    *("--no-optional-locks", "--no-pager"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.quotePath=false"),
)
_KEPT = ("HOME", "XDG_CONFIG_HOME", "TMPDIR")
_NAMING = ("HEAD", "index", "packed-refs", "refs", "reftable")
_MOST_REFERENCES = 200_000
_LONGEST_REFERENCE = 4_096
_ID = re.compile(rb"[0-9a-f]{40,64}\s*")
_OFF = {"filter": ("clean=", "smudge=", "process=", "required=false"), "hook": ("enabled=false",)}
_MOST_SETTINGS = 1_000_000
# what says how files are stored, and names no program
_HARMLESS = (
    r"^(core\.(filemode|ignorecase|precomposeunicode|symlinks|autocrlf|eol|bigfilethreshold"
    r"|checkstat|trustctime|checkroundtripencoding|sparsecheckout|sparsecheckoutcone)"
    r"|extensions\.(objectformat|partialclone|refstorage))$"
)
_REFTABLE = b"extensions.refstorage\nreftable\0"
_PLAIN_VALUE = re.compile(r"[\w., -]*")

# others may be changing references of the same repository; git would wait for a tenth of a second.
# Less than TIMEOUT_S: git then says what is in its way
_PATIENT = ("-c", "core.filesRefLockTimeout=8000", "-c", "core.packedRefsTimeout=8000")
_LOCKED = b".lock': File exists"


class GitBusy(ConfigError):
    """Another git, or a slow disk, was in the way for too long: later the same may go well."""


@frozen
class SafeGit:
    """Git for one directory; ``barred`` is what others fill."""

    program: str
    cwd: Path
    env: Mapping[str, str]
    options: tuple[str, ...] = _OPTIONS
    barred: tuple[Path, ...] = ()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start it with its output in a pipe. Raises ``OSError``."""
        return subprocess.Popen(  # noqa: S603 - a program outside the workspace
            [self.program, *self.options, *arguments],
            cwd=self.cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def output(
        self,
        *arguments: str,
        limit: int,
        ok: tuple[int, ...] = (0,),
        timeout_s: float = TIMEOUT_S,
        stop: threading.Event | None = None,
    ) -> bytes | None:
        """What it prints, at most ``limit`` bytes of it; ``None`` when it fails or takes long.

        ``stop`` ends it early.
        """
        try:
            process = self.start(*arguments)
        except OSError:
            return None
        with process:
            data = read_bounded(process, limit, stop, timeout_s)
        return data if process.returncode in ok or len(data) == limit else None

    def change(
        self,
        *arguments: str,
        timeout_s: float = TIMEOUT_S,
        given: IO[bytes] | None = None,
        keep_open: tuple[int, ...] = (),
        ok: tuple[int, ...] = (0,),
        stopped: Callable[[], bool] | None = None,
    ) -> bytes:
        """What it prints when it has done what it was asked for, which may write.

        Whatever interrupts this, or ``stopped`` when it says so, ends git with all that it has
        started, and lets it take its own locks away. ``given`` is its input;
        ``keep_open`` are files that stay open for as long as any of them runs.

        Raises ``ConfigError`` with what git says, ``GitBusy`` where it had to wait too long.
        """
        try:
            process = subprocess.Popen(  # noqa: S603 - a program outside the workspace
                [self.program, *self.options, *_PATIENT, *arguments],
                cwd=self.cwd,
                env=self.env,
                stdin=subprocess.DEVNULL if given is None else given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=keep_open,
            )
        except OSError as error:
            raise ConfigError(f"git cannot start: {error.strerror}", "see: agent doctor") from error
        try:
            out, said = _output_of(process, timeout_s, stopped)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                took = f"git {arguments[0]} was stopped"
                raise GitBusy(took, "nothing is left of it") from error
            raise
        if process.returncode not in ok:
            lines = os.fsdecode(said[:10_000]).encode("utf-8", "replace").decode().splitlines()
            fatal = (line for line in lines if line.startswith(("fatal: ", "error: ")))
            line = next(fatal, lines[0] if lines else f"exit code {process.returncode}")
            what = one_line(line.partition(": ")[2] or line, 300)
            kind = GitBusy if _LOCKED in said else ConfigError
            raise kind(f"git {arguments[0]}: {what}", "nothing was changed")
        return out

    @contextlib.contextmanager
    def without_filters(self, tree: Path) -> Iterator[SafeGit]:
        """The same for the working tree ``tree``, without content filters.

        It has a git directory of its own, with the repository's objects and a copy of its index:
        of the repository's configuration it knows what names no program, as that was when this
        began, since another process may write there between two looks of git. Raises
        ``UsageError``.
        """
        with contextlib.ExitStack() as made:
            plain = None
            with contextlib.suppress(OSError):
                plain = self._apart(tree, made, with_index=True)
            yield _known(plain, tree)

    def without_hooks(self) -> SafeGit:
        """The same without the hooks that its configuration names (Git 2.54).

        Raises ``UsageError``.
        """
        return _known(self._without("hook"), self.cwd)

    def commit(self, name: str) -> str:
        """The id of the commit ``name``; empty when there is none. Raises ``UsageError``.

        What references say is read through no link, whatever is put in their place meanwhile.
        """
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        with contextlib.ExitStack() as made:
            git = self if "@{" in name else None  # that is for the configuration, or logs, to say
            with contextlib.suppress(OSError):
                git = git or self._apart(self.cwd, made)
            git = _known(git, self.cwd)
            return os.fsdecode(git.output(*words, limit=1_000) or b"").strip()

    def _apart(
        self, tree: Path, made: contextlib.ExitStack, *, with_index: bool = False
    ) -> SafeGit | None:
        from agentcli.process.sandbox_setup import place_for_ours
        from agentcli.process.shell import PREFIX

        own, common = _directories(self)
        settings, head = self._whole("config", "--null", "--get-regexp", _HARMLESS), None
        if settings is not None and _REFTABLE in settings:  # which git alone can read
            head = self._whole("rev-parse", "--verify", "--quiet", "HEAD")
        if settings is None:
            return None
        parent = place_for_ours((tree, self.cwd, *self.barred))
        directory = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=parent)
        place = Path(made.enter_context(directory))
        _make_directory(place, own, common, settings)
        if with_index:
            _copy_index(own, place)
        if head is None:
            _copy_references(own, common, place)
        else:
            (place / "HEAD").write_bytes(head or b"ref: refs/heads/main\n")
        plain = replace(
            self,
            options=(*self.options, f"--git-dir={place}", f"--work-tree={tree}"),
            env={**self.env, "GIT_OBJECT_DIRECTORY": f"{common}/objects"},
        )
        return plain._without("filter|hook")  # noqa: SLF001 - another one of this class

    def _without(self, kinds: str) -> SafeGit | None:
        """With those of ``_OFF`` off that the configuration names; ``None`` where that cannot be.

        What counts is what holds in this very place: some of it may be for certain places alone.
        """
        listed = self._whole("config", "--null", "--name-only", "--get-regexp", rf"^({kinds})\.")
        if listed is None:
            return None
        keys = os.fsdecode(listed).split("\0")
        names = sorted({key.rpartition(".")[0] for key in keys if key.count(".") > 1})
        if any("=" in name for name in names):  # cannot be named on the command line
            return None
        off = (f"{name}.{what}" for name in names for what in _OFF[name.partition(".")[0]])
        more = (word for setting in off for word in ("-c", setting))
        return replace(self, options=(*self.options, *more))

    def _whole(self, *arguments: str) -> bytes | None:
        """What it prints, all of it; ``None`` when it fails or says too much."""
        said = self.output(*arguments, limit=_MOST_SETTINGS, ok=(0, 1))
        return None if said is None or len(said) >= _MOST_SETTINGS else said


def _known(git: SafeGit | None, place: Path) -> SafeGit:
    if git is None:
        what = f"git cannot read the configuration, or the references, of {one_line(str(place))}"
        raise UsageError(what, "see: git config --list")
    return git


def _make_directory(place: Path, own: Path, common: Path, settings: bytes) -> None:
    """Make ``place`` a git directory in the place of ``own``, as gitrepository-layout(5) says."""
    lines = ["[core]", "repositoryformatversion = 1", "bare = false", "splitIndex = false"]
    for each in filter(None, os.fsdecode(settings.replace(_REFTABLE, b"")).split("\0")):
        key, has_value, value = each.partition("\n")
        section, _, name = key.partition(".")
        if _PLAIN_VALUE.fullmatch(value):
            lines += [f"[{section}]", f"{name} = {value}" if has_value else name]
    (place / "config").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("objects", "refs", "info"):
        (place / name).mkdir()
    for name in ("exclude", "attributes"):
        (place / "info" / name).symlink_to(common / "info" / name)
    (place / "info/sparse-checkout").symlink_to(own / "info/sparse-checkout")


def _copy_index(own: Path, place: Path) -> None:
    """With its time, by which git knows which files may be newer than it."""
    with opened_directory(own) as directory, os.scandir(directory) as entries:
        for name in (entry.name for entry in entries):
            if name != "index" and not name.startswith("sharedindex."):
                continue
            with (
                contextlib.suppress(FileNotFoundError),
                os.fdopen(open_at(name, directory), "rb") as file,
                (place / name).open("wb") as copy,
            ):
                shutil.copyfileobj(file, copy)
                copy.flush()
                status = os.fstat(file.fileno())
                os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_references(own: Path, common: Path, place: Path) -> None:
    """Copy what a git directory calls its commits, through no link: most of it into one file.

    Raises ``OSError``, also where it is too much.
    """
    with opened_directory(own) as directory, os.scandir(directory) as entries:
        for name in (entry.name for entry in entries if entry.name.endswith("HEAD")):
            (place / name).write_bytes(_said(name, directory))
    ids: dict[bytes, bytes] = {}
    with opened_directory(common) as directory:
        for below, _, names, there in os.fwalk("refs", dir_fd=directory):
            for name in names:
                said = _said(name, there)
                if _ID.fullmatch(said):
                    ids[os.fsencode(f"{below}/{name}")] = said.strip()
                elif said.startswith(b"ref: "):
                    (place / below).mkdir(parents=True, exist_ok=True)
                    (place / below / name).write_bytes(said)
                if len(ids) > _MOST_REFERENCES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        with (place / "packed-refs").open("wb") as copy:
            with contextlib.suppress(FileNotFoundError):
                packed = os.fdopen(open_at("packed-refs", directory), "rb")
                with packed:
                    for line in iter(lambda: packed.readline(_LONGEST_REFERENCE), b""):
                        if line[:1] not in b"#^" and line[:-1].partition(b" ")[2] not in ids:
                            copy.write(line)
            copy.writelines(b"%s %s\n" % (ids[name], name) for name in ids)


def _said(name: str, directory: int) -> bytes:
    """What a reference says; a link what git takes it for; nothing of one that has just gone."""
    try:
        with os.fdopen(open_at(name, directory), "rb", buffering=0) as file:
            return file.read(_LONGEST_REFERENCE) or b""
    except FileNotFoundError:
        return b""
    except OSError:
        target = os.readlink(os.fsencode(name), dir_fd=directory)
        if not target.startswith(b"refs/"):
            raise
        return b"ref: " + target


def _output_of(
    process: subprocess.Popen[bytes], timeout_s: float, stopped: Callable[[], bool] | None
) -> tuple[bytes, bytes]:
    """What it prints to its end. Raises ``TimeoutExpired``, also when ``stopped``."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            left_s = max(0.0, until - time.monotonic())
            return process.communicate(timeout=left_s if stopped is None else min(left_s, _TICK_S))
        except subprocess.TimeoutExpired:
            if stopped is None or stopped() or time.monotonic() >= until:
                raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and all that it has started; joins it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_GRACE_S if number == signal.SIGTERM else None)
            return


def read_bounded(
    process: subprocess.Popen[bytes],
    limit: int,
    stop: threading.Event | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """What ``process`` prints, at most ``limit`` bytes; it has ended when this returns."""
    timer = threading.Timer(timeout_s, process.kill)
    timer.daemon = True
    timer.start()
    data, waits = bytearray(), select.poll()
    if process.stdout is not None:
        waits.register(process.stdout, select.POLLIN)
    try:
        while process.stdout is not None and not (stop is not None and stop.is_set()):
            if stop is not None and not waits.poll(_TICK_S * 1000):
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            data += chunk
            if not chunk:
                break
            if len(data) >= limit:
                process.kill()
                break
        else:
            process.kill()
        return bytes(data[:limit])
    finally:
        process.wait()
        timer.cancel()


def refuse_references_elsewhere(git: SafeGit) -> None:
    """Raise ``UsageError`` where what the repository names is that of another one.

    With its objects, which git finds anywhere, what another one holds would be shown (SEC-5).
    """
    for top in _directories(git):
        seen, waiting = 0, [top / name for name in _NAMING]
        waiting += top.glob("sharedindex.*")
        while waiting:
            seen, path = seen + 1, waiting.pop()
            leads_away = path.is_symlink() and not real_path(path).is_relative_to(top)
            if leads_away or seen > _MOST_REFERENCES:
                what = "is a link to elsewhere" if leads_away else "is one of too many references"
                raise UsageError(f"{one_line(str(path))} {what}", "look at what made it")
            if path.is_dir():
                waiting += path.iterdir()


def _directories(git: SafeGit) -> tuple[Path, Path]:
    """Its git directory, and the one that its working trees share. Raises ``UsageError``.

    One that a ``.git`` file, a link or ``commondir`` names is another's unless it says so, too. Not
    that of a submodule, or one kept apart from its tree, which may say nothing.
    """
    cwd = real_path(git.cwd)
    entry = project_root(cwd) / ".git"
    said = (
        git.output("rev-parse", "--path-format=absolute", which, limit=10_000)
        for which in ("--git-dir", "--git-common-dir")
    )
    names = [os.fsdecode(each or b"").removesuffix("\n") for each in said]
    if not all(names):
        raise UsageError(f"git does not read {one_line(str(entry))}", "try: git status")
    own, common = (real_path(Path(name)) for name in names)
    if own != common:
        is_ours = common_of_worktree(entry, own) == common
    elif own.is_relative_to(entry.parent) or cwd.is_relative_to(own):
        is_ours = True
    else:
        is_bare = git.output("rev-parse", "--is-bare-repository", limit=10) != b"false\n"
        is_ours = own.name != ".git" and not is_bare
    if not is_ours:
        what = f"{one_line(str(entry))} is a link to elsewhere"
        raise UsageError(
            what, "look at what made it; of a tree that was moved: git worktree repair"
        )
    return own, common


def find_git(cwd: Path) -> SafeGit | None:
    """Git on PATH, unless it lies in the repository of ``cwd``."""
    barred = tuple(filled_by_others(cwd))
    places = [
        place
        for place in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if Path(place).is_absolute()
        and not (lies_in(Path(place), barred) or may_be_chosen_there(f"{place}/git"))
    ]
    path = os.pathsep.join(places)
    program = shutil.which("git", path=path)
    if program is None or lies_in(Path(program), barred):
        return None
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    env |= {"PATH": path, "LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    env["GIT_ALLOW_PROTOCOL"] = "none"  # unlike protocol.allow, whatever the repository allows
    return SafeGit(program, cwd, env, barred=barred)
