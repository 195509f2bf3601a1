"""What commands show and give away, without keys (SEC-9)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from agentcli.cli.logging_setup import REDACTOR
from agentcli.domain.errors import AgentError
from agentcli.domain.files import directory_of, refuse_links

if TYPE_CHECKING:
    from agentcli.cli.options import RunOptions
    from agentcli.config.settings import Settings
    from agentcli.domain.stream import Tape


def shown(value: Any) -> Any:
    """``value``, a text or JSON of ours, without anything that is a key or looks like one."""
    return REDACTOR.redact_value(value)


def exported(value: Any) -> Any:
    """``value``, a text or JSON data of a session, without keys."""
    return REDACTOR.redact_data(value)


def know_secrets(settings: Settings | None = None) -> None:
    """Let everything that is shown be without the settings' secrets, as far as they are known.

    Where the settings are broken the stored keys are still known, and what looks like a key is
    taken out all the same.
    """
    from agentcli.config.paths import Paths
    from agentcli.config.settings import load_settings

    know_stored()
    try:
        known = settings or load_settings(Paths.from_env(os.environ), os.environ)
    except AgentError:
        return
    known.watch_secrets(REDACTOR.add)


def without_keys() -> dict[str, str]:
    """Our environment for a program of the user's, also where the settings are broken (SEC-8)."""
    from agentcli.config.paths import Paths
    from agentcli.config.settings import load_settings
    from agentcli.process.environment import without_provider_keys

    try:
        named = load_settings(Paths.from_env(os.environ), os.environ).key_variables
    except AgentError:
        named = ()
    return without_provider_keys(os.environ, named)


def know_stored() -> None:
    """The same for stored keys only: what an error can afford to look up."""
    from agentcli.config.paths import Paths

    try:
        paths = Paths.from_env(os.environ)
    except AgentError:
        return
    if os.path.lexists(paths.credentials_file):
        from agentcli.config.credentials import read_credentials

        REDACTOR.add(read_credentials(paths).known.values())


def write_private(path: Path, pieces: Iterable[str], *, replace: bool) -> None:
    """Make ``path``, readable by its owner only, whatever the umask; no link is followed.

    It is there whole or not at all. Raises ``FileExistsError`` unless ``replace``, ``OSError``, and
    what ``pieces`` raise. What is replaced keeps its permissions; what is no plain file, such as a
    pipe, or stands where no other file can be made is written to as it is.
    """
    place = refuse_links(path)
    known = path.lstat() if os.path.lexists(path) else None
    if not replace and (path.is_file() or not path.exists()):
        _refuse_existing(str(path))
    with directory_of(place) as directory:  # through no link that has come up since (SEC-5)
        if known is None or (stat.S_ISREG(known.st_mode) and os.access(path.parent, os.W_OK)):
            _write_whole(place.name, directory, pieces, known)
            return
        is_of_system = place.parts[1:2] in {("dev",), ("proc",)}
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        flags |= 0 if is_of_system else os.O_NOFOLLOW
        with _text_file(os.open(place.name, flags, dir_fd=directory)) as file:
            file.writelines(pieces)


def _write_whole(
    name: str, directory: int, pieces: Iterable[str], known: os.stat_result | None
) -> None:
    """Make the file, or put it in the place of ``known``."""
    if known is not None and not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    temporary = f".{os.urandom(8).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with _text_file(descriptor) as file:
            if known is not None:
                with suppress(PermissionError):
                    os.fchown(descriptor, known.st_uid, known.st_gid)
            os.fchmod(descriptor, 0o600 if known is None else stat.S_IMODE(known.st_mode))
            file.writelines(pieces)
            file.flush()
            os.fsync(descriptor)
        if known is None:
            _refuse_existing(name, directory)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _refuse_existing(name: str, directory: int | None = None) -> None:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=directory, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def _text_file(descriptor: int) -> TextIO:
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="replace")


def write_named(name: str, pieces: Iterable[str], *, replace: bool, quiet: bool = False) -> None:
    """Make the file that ``--output`` names, and say so unless ``quiet``. Raises ``UsageError``."""
    from agentcli.domain.errors import UsageError
    from agentcli.headless.streams import write_error_line

    try:
        write_private(Path(name).expanduser(), pieces, replace=replace)
    except FileExistsError:
        raise UsageError(f"{name} exists already", "name another file, or add --force") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot write {name}: {reason}", "give --output another file") from error
    if not quiet:
        write_error_line(f"written: {name}")


def tape_for(options: RunOptions, cwd: Path) -> Tape:
    """What keeps the provider's replies, or serves kept ones (TT-4); raises ``UsageError``."""
    from agentcli.headless.streams import write_error_line
    from agentcli.wire.tape import Recorder, Served

    def tell(line: str) -> None:
        if not options.quiet:
            write_error_line(f"warning: {line}")

    know_secrets()
    if options.record:
        return Recorder(Path(options.record).expanduser(), cwd, exported, tell)
    return Served(Path(options.replay or "").expanduser(), cwd, exported, tell)
