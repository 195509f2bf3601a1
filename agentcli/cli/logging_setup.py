"""Where logs go and what never gets there: to a file of ours, without keys (SEC-9, CLI-11).

Law: redaction is the last thing that happens to a record, on the finished text with its
traceback, so that nothing can be added behind its back.
"""

from __future__ import annotations

import contextlib
import logging
import os
from functools import partial
from io import TextIOWrapper
from pathlib import Path

from agentcli.config.paths import ensure_dir
from agentcli.config.redaction import Redactor, environment_secrets, weak_secrets
from agentcli.domain.errors import PersistenceError, UsageError
from agentcli.domain.files import refuse_links

MAX_LOG_BYTES = 5_000_000
_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
REDACTOR = Redactor(
    source=partial(environment_secrets, os.environ), weak=partial(weak_secrets, os.environ)
)


class RedactingFormatter(logging.Formatter):
    """A formatter whose result, traceback included, has passed the redactor."""

    def format(self, record: logging.LogRecord) -> str:
        """The finished line or lines."""
        return REDACTOR.redact(super().format(record))


class PrivateFileHandler(logging.FileHandler):
    """A log file made on its first record: 0600, and one older copy when it grew large.

    ``ours``: its directory is one of ours, and is made with it.
    """

    def __init__(self, path: Path | str, *, ours: bool = False) -> None:
        super().__init__(path, delay=True)
        self._ours = ours

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        if self._ours:
            ensure_dir(path.parent)
        else:
            refuse_links(path)
        with contextlib.suppress(OSError):
            if path.stat().st_size > MAX_LOG_BYTES:
                path.replace(path.with_name(path.name + ".1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if not os.fstat(descriptor).st_mode & 0o600:  # the umask took it all away
            os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a file that cannot be opened is given up."""
        try:
            super().emit(record)
        except (OSError, PersistenceError):
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's name
        """A log that cannot be written stops nothing and says nothing (FAIL-2)."""
        del record
        logging.getLogger().removeHandler(self)


def start_logging(
    *, log_file: Path | None = None, debug_file: str | None = None, verbose: bool = False
) -> None:
    """Send the program's log to ``log_file``, and everything to ``debug_file`` if there is one.

    ``verbose`` adds informational records. Raises ``UsageError`` when the debug file, which the
    user asked for, cannot be written.
    """
    root = logging.getLogger()
    logging.raiseExceptions = False
    if debug_file is not None:
        handler = PrivateFileHandler(debug_file)
        try:
            handler.stream = handler._open()  # noqa: SLF001 - now, so that the error comes now
        except OSError as error:
            raise UsageError(
                f"cannot write {debug_file}: {error.strerror}", "give --debug another file"
            ) from error
        _attach(root, handler, logging.DEBUG)
        # asyncio's own chatter at this level tells nothing about us
        logging.getLogger("asyncio").setLevel(logging.INFO)
    if log_file is not None:
        level = logging.INFO if verbose else logging.WARNING
        _attach(root, PrivateFileHandler(log_file, ours=True), level)
    if not root.handlers:
        root.addHandler(logging.NullHandler())


def _attach(root: logging.Logger, handler: logging.Handler, level: int) -> None:
    handler.setLevel(level)
    handler.setFormatter(RedactingFormatter(_FORMAT))
    root.addHandler(handler)
    if root.level == logging.NOTSET or root.level > level:
        root.setLevel(level)
