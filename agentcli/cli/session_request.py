"""From options to a session: the only place of this room that knows ``app.compose``."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli import __version__
from agentcli.app.trust import find_project, trusted_project
from agentcli.cli.logging_setup import REDACTOR, start_logging
from agentcli.cli.options import RunOptions, SharedOptions, number
from agentcli.config.paths import Paths
from agentcli.config.project import Project, Standing
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import UsageError
from agentcli.domain.ports import Effort
from agentcli.headless.streams import write_error_line

if TYPE_CHECKING:
    from agentcli.app.extensions.servers import GivenServers
    from agentcli.app.known_names import KnownNames
    from agentcli.app.options import SessionOptions
    from agentcli.tools.common.final_result import ResultSchema

AskWith = Callable[[Settings, Project, Standing], bool | None]
_log = logging.getLogger(__name__)


def prepare_settings(
    options: SharedOptions,
    *,
    quiet: bool = False,
    ask: AskWith | None = None,
    of_user_only: bool = False,
) -> Settings:
    """Settings in force for ``options``; starts the log. Raises ``ConfigError``, ``UsageError``.

    ``ask`` asks the user whether to trust the directory (SEC-1); without it nobody is asked.
    ``of_user_only`` leaves the directory's own out, trusted or not.
    """
    paths = Paths.from_env(os.environ)
    start_logging(log_file=paths.log_file, debug_file=options.debug, verbose=options.verbose)
    leftovers = _swept(paths.journals_dir)
    _log.debug("agentcli %s, Python %s, %s", __version__, sys.version, sys.platform)
    settings, notices = settings_in_force(options, ask, of_user_only=of_user_only)
    if not quiet:
        for warning in (*leftovers, *notices):
            write_error_line(f"warning: {warning}")
    return settings


def settings_in_force(
    options: SharedOptions, ask: AskWith | None = None, *, of_user_only: bool = False
) -> tuple[Settings, Sequence[str]]:
    """The settings of the directory of ``options``, and warnings; see ``prepare_settings``."""
    paths = Paths.from_env(os.environ)
    max_turns = options.max_turns if isinstance(options, RunOptions) else None
    flags = {
        "model": options.model,
        "fallback_models": options.fallback_models(),
        "effort": options.effort,
        "sandbox": options.sandbox,
        "permission_mode": str(mode) if (mode := options.mode()) else None,
        "max_steps": number("--max-turns", max_turns, int),
    }
    settings = load_settings(paths, os.environ, flags)
    project, notices = trusted_project(
        paths,
        None
        if of_user_only
        else find_project(working_directory(options.cd), os.environ, settings.hooks),
        ask=ask and partial(ask, settings),
        by_option=options.trust,
    )
    if project is not None:
        settings = load_settings(paths, os.environ, flags, project)
    return settings, _told(settings, notices)


def _swept(journals: Path) -> Sequence[str]:
    """Clear away what a killed process left beside the files that it was changing."""
    try:
        if not any(journals.iterdir()):
            return ()
    except OSError:
        return ()
    from agentcli.tools.files.disk import sweep

    return sweep(journals)


def settings_here() -> tuple[Settings, tuple[str, ...]]:
    """The settings of the working directory, a trusted project's too, and warnings.

    Raises ``UsageError`` where the directory is gone.
    """
    paths = Paths.from_env(os.environ)
    settings = load_settings(paths, os.environ)
    found = find_project(working_directory(None), os.environ, settings.hooks)
    project, notices = trusted_project(paths, found)
    if project is not None:
        settings = load_settings(paths, os.environ, project=project)
    return settings, _told(settings, notices)


def _told(settings: Settings, notices: Sequence[str]) -> tuple[str, ...]:
    """All warnings, without keys: some name a hook by its command (SEC-9)."""
    settings.watch_secrets(REDACTOR.add)
    return tuple(map(REDACTOR.redact_value, (*notices, *settings.warnings)))


def known_names(options: RunOptions) -> KnownNames:
    """What may be named in the directory of ``options``, with its settings; warns of those."""
    from agentcli.app.known_names import KnownNames

    settings, notices = settings_in_force(options)
    for notice in () if options.quiet else notices:
        write_error_line(f"warning: {notice}")
    return KnownNames(settings, working_directory(options.cd))


def session_options(
    options: SharedOptions, *, interactive: bool, result: ResultSchema | None = None
) -> SessionOptions:
    """What ``compose.open_session`` is asked for."""
    from agentcli.app.options import SessionOptions

    limits = options if isinstance(options, RunOptions) else RunOptions()
    tools = options.tools
    return SessionOptions(
        model=options.model,
        agent=options.agent,
        cwd=working_directory(options.cd),
        add_dirs=tuple(map(partial(existing_directory, "--add-dir"), options.add_dir or ())),
        mode=options.mode(),
        yolo_twice=options.yolo > 1,
        allow=tuple(options.allow_tool or ()),
        deny=tuple(options.deny_tool or ()),
        tools=None if tools is None else tuple(filter(None, map(str.strip, tools.split(",")))),
        effort=None if options.effort is None else Effort(options.effort),
        system_prompt=options.system_prompt,
        append_system_prompt=options.append_system_prompt,
        no_session=options.no_session,
        max_steps=number("--max-turns", limits.max_turns, int),
        max_budget_usd=number("--max-budget-usd", limits.max_budget_usd, float),
        pause_usd=number("--pause-usd", limits.pause_usd, float),
        resume=limits.session_id or options.session or options.resume or None,
        begins_missing=limits.session_id is not None,
        is_task=limits.as_task,
        continue_latest=options.continue_,
        fork=options.fork,
        new=options.new,
        interactive=interactive,
        result=result,
        one_turn_each=limits.speaks_json,
        mcp_config=_given_servers(options.mcp_config) if options.mcp_config else (),
        strict_mcp_config=options.strict_mcp_config,
    )


def _given_servers(texts: Sequence[str]) -> tuple[GivenServers, ...]:
    from agentcli.app.extensions.servers import given_servers

    return given_servers(texts)


def working_directory(name: str | None) -> Path:
    """The directory to work in; raises ``UsageError`` when there is none."""
    if name is not None:
        return existing_directory("--cd", name)
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            "the working directory no longer exists", "change to another, or give one with -C DIR"
        ) from error


def existing_directory(option: str, name: str) -> Path:
    """``name`` as an absolute directory; raises ``UsageError`` unless it is one."""
    try:
        path = Path(name).expanduser()
        path = path if path.is_absolute() else Path.cwd() / path
        if path.is_dir():
            return path
        reason = "not a directory" if path.exists() else "no such directory"
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise UsageError(f"{option} {name}: {reason}", "give an existing directory")
