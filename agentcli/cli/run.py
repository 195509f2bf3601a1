"""``agent run [PROMPT]``: one shot (CLI-2, CLI-4)."""

from __future__ import annotations

import json
import stat
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.options import (
    CommandSpec,
    DirectCommand,
    PromptArgument,
    RunOptions,
    print_version,
)
from agentcli.domain.errors import UsageError
from agentcli.domain.files import open_named

if TYPE_CHECKING:
    from agentcli.app.session import Session
    from agentcli.headless.approvals import Attendants
    from agentcli.headless.one_shot import OpenSession
    from agentcli.tools.common.final_result import ResultSchema

MAX_SCHEMA_BYTES = 1_000_000
_SCHEMA = "--json-schema"
_MAX_NAME = 200
_ADVICE = "give a file that holds a JSON schema, or the schema itself"


class RunCommand(RunOptions, PromptArgument):
    """The prompt, all shared options and those of one shot."""


def run(options: RunCommand) -> int:
    """Answer one prompt; returns the exit code of CLI-6."""
    if options.version:
        return print_version()
    options.check()
    if options.has_own_place:
        from agentcli.cli.fleet.stay import in_worktree

        with in_worktree(options, quiet=options.quiet):
            return _answer(options)
    return _answer(options)


def _answer(options: RunCommand) -> int:
    """The same, in the directory of ``options``."""
    from agentcli.cli.logging_setup import REDACTOR
    from agentcli.headless.one_shot import OneShot, RunRequest

    request = RunRequest(
        prepare=partial(prepare, options),
        redact=REDACTOR.redact,
        redact_known=REDACTOR.redact_known,
        words=tuple(options.prompt or ()),
        takes_up_session=bool(options.continue_ or options.session or options.resume),
        once=options.session_id is not None,
        output_format=options.output_format,
        partial_messages=options.include_partial_messages,
        only_result=options.json_schema is not None,
        timeout_s=options.timeout_s(),
        quiet=options.quiet,
        is_raw=options.raw,
        verbose=options.verbose,
        replays_messages=options.replay_user_messages,
        asks_on_stdin=options.permission_prompt_tool is not None,
    )
    if options.speaks_json:
        from agentcli.headless.stream_run import StreamShot

        return StreamShot(request).run()
    return OneShot(request).run()


def prepare(options: RunOptions, *, of_user_only: bool = False) -> tuple[Path, OpenSession]:
    """Settings, log, output schema; see ``prepare_settings``. Raises ``AgentError``."""
    from agentcli.cli.session_request import prepare_settings, session_options

    result = None if options.json_schema is None else read_output_schema(options.json_schema)
    settings = prepare_settings(options, quiet=options.quiet, of_user_only=of_user_only)
    asked = session_options(options, interactive=False, result=result)
    if options.record or options.replay:
        from agentcli.cli.redacting import tape_for

        asked = replace(asked, tape=tape_for(options, asked.cwd))

    def open_(attendants: Attendants) -> Awaitable[Session]:
        from agentcli.app.compose import open_session

        return open_session(settings, asked, *attendants)

    return asked.cwd, open_


def read_output_schema(given: str) -> ResultSchema:
    """The schema in the file ``given``, or in ``given`` itself when it is JSON (CTRL-5).

    Raises ``UsageError`` for everything that is not a JSON schema.
    """
    is_inline = given.lstrip().startswith(("{", "[")) or given.strip() in {"true", "false"}
    text = given if is_inline else _content(given)
    where = _SCHEMA if is_inline else f"{_SCHEMA} {given[:_MAX_NAME]}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{where}: not JSON: {error.msg} ({place})", "correct it") from None
    except RecursionError:
        raise UsageError(f"{where}: nested too deeply", "write a simpler schema") from None
    from agentcli.app.options import result_schema

    try:
        return result_schema(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.advice) from None


def _content(name: str) -> str:
    """The text of a file or of a pipe, ``<(command)`` in the shell."""
    shown = name[:_MAX_NAME]
    if not name.strip():
        raise UsageError(f"{_SCHEMA} is empty", _ADVICE)
    try:
        path = Path(name).expanduser()
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            what = "a directory" if stat.S_ISDIR(mode) else "not a file"
            raise UsageError(f"{_SCHEMA} {shown}: {what}", _ADVICE)
        with open_named(path) as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{_SCHEMA} {shown}: {reason.lower()}", _ADVICE) from error
    if len(data) > MAX_SCHEMA_BYTES:
        raise UsageError(f"{_SCHEMA} {shown}: larger than {MAX_SCHEMA_BYTES:,} bytes", _ADVICE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{_SCHEMA} {shown}: not UTF-8", _ADVICE) from None


COMMAND = DirectCommand(
    CommandSpec(
        "run",
        "Answer one prompt and exit.\n\nPiped stdin is the prompt, or is added to it. Only the"
        " answer goes to stdout; progress and warnings go to stderr. Nothing is asked where"
        " there is no terminal: a call that needs an approval is refused (exit code 4).",
        tells_codes=True,
    ),
    RunCommand,
    run,
)
