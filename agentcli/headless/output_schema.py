"""``--json-schema``: a file, or the schema itself, becomes the shape of the answer (CTRL-5)."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.domain.errors import UsageError

if TYPE_CHECKING:
    from agentcli.tools._final_result import ResultSchema

OPTION = "--json-schema"
MAX_BYTES = 1_000_000
_MAX_NAME = 200
_ADVICE = "give a file that holds a JSON schema, or the schema itself"


def read_output_schema(given: str | None) -> ResultSchema | None:
    """The schema in the file ``given``, or in ``given`` itself when it is JSON.

    ``None`` stays ``None``. Raises ``UsageError`` for everything that is not a JSON schema.
    """
    if given is None:
        return None
    is_inline = given.lstrip().startswith(("{", "[")) or given.strip() in {"true", "false"}
    text = given if is_inline else _content(given)
    where = OPTION if is_inline else f"{OPTION} {given[:_MAX_NAME]}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{where}: not JSON: {error.msg} ({place})", "correct it") from None
    except RecursionError:
        raise UsageError(f"{where}: nested too deeply", "write a simpler schema") from None
    from agentcli.tools._final_result import ResultSchema

    try:
        return ResultSchema(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.advice) from None


def _content(name: str) -> str:
    """The text of a file or of a pipe, ``<(command)`` in the shell."""
    shown = name[:_MAX_NAME]
    if not name.strip():
        raise UsageError(f"{OPTION} is empty", _ADVICE)
    try:
        path = Path(name).expanduser()
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            what = "a directory" if stat.S_ISDIR(mode) else "not a file"
            raise UsageError(f"{OPTION} {shown}: {what}", _ADVICE)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{OPTION} {shown}: {reason.lower()}", _ADVICE) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{OPTION} {shown}: larger than {MAX_BYTES:,} bytes", _ADVICE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{OPTION} {shown}: not UTF-8", _ADVICE) from None
