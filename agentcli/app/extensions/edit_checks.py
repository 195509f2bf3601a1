"""The checks after edits of a session, put together when the first edit comes (EXT-6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.trust import check_runs_project, is_changed
from agentcli.domain.errors import ConfigError
from agentcli.domain.tools import FileLedger, Workspace
from agentcli.extensions.checks import CheckServices, SessionChecks, found_checks
from agentcli.process.environment import find_program
from agentcli.process.program import run_program
from agentcli.tools.files.diff import diff_bytes
from agentcli.tools.files.disk import Transaction, fingerprint_of, read_state
from agentcli.tools.files.paths import FileProblem
from agentcli.tools.search.globs import PathFilter

if TYPE_CHECKING:
    from agentcli.app.options import SessionOptions
    from agentcli.config.settings import Settings
    from agentcli.domain.extensions.checks import CheckConfig
    from agentcli.domain.tools import FileKeeper
    from agentcli.process.sandbox import SessionSandbox


def session_checks(
    settings: Settings,
    options: SessionOptions,
    place: tuple[Workspace, SessionSandbox],
    session_id: str,
    keeper: Callable[[], FileKeeper] | None,
) -> SessionChecks:
    """Those of the settings; else those that the project is set up for, to run or to tell of."""
    workspace, sandbox = place
    is_told = settings.checks == "off" and options.interactive and not settings.own_checks
    offers = partial(_offer, settings) if is_told else None
    is_looked_for = settings.checks == "auto" or (
        is_told and settings.sources["checks"] == "default"
    )

    async def is_contained() -> bool:
        return (await sandbox.begin()).is_on

    services = CheckServices(
        root=workspace.cwd,
        run=partial(run_program, sandbox=sandbox),
        is_contained=is_contained,
        doubted=partial(_doubted, settings, workspace.cwd),
        selects=lambda glob, path: PathFilter(glob).matches(path),
        replace=partial(_replace, workspace),
        mark=fingerprint_of,
        diff=lambda name, before, after: diff_bytes(name, name, before, after).text,
        owner=session_id,
        keeper=keeper,
        find=partial(_found, settings, workspace.cwd) if is_looked_for else None,
        offers=offers,
    )
    return SessionChecks(settings.own_checks, services)


def _doubted(settings: Settings, cwd: Path, checks: Sequence[CheckConfig]) -> Sequence[CheckConfig]:
    """``checks`` as they are to run in ``cwd`` where there is no sandbox. Blocks.

    One that may run what a directory holds does not, unless it is trusted as it is (SEC-17).
    """
    if settings.project is not None and not is_changed(settings, cwd):
        return checks
    runs = partial(check_runs_project, cwd=cwd)
    return [
        replace(each, runs_project=each.runs_project or any(map(runs, each.commands)))
        for each in checks
    ]


def checks_found_in(root: Path) -> Sequence[CheckConfig]:
    """The checks that the project in ``root`` is set up for, and whose programs are there."""
    return found_checks(root, lambda name: find_program(name, (root,), is_theirs=True))


def _found(settings: Settings, cwd: Path) -> Sequence[CheckConfig]:
    """The same for a session; code of a project that the user trusts may run."""
    found = checks_found_in(cwd)
    if settings.project is None:
        return found
    return [replace(check, runs_project=False) for check in found]


def offer_line(found: Sequence[CheckConfig]) -> str:
    """How users are told of checks that they have not asked for."""
    names = ", ".join(check.name for check in found)
    what = "runs it" if len(found) == 1 else "runs them"
    return f'this project is set up for {names}: "agent config set checks auto" {what} after edits'


def _offer(settings: Settings, found: Sequence[CheckConfig]) -> str:
    """The same, once for all: a file remembers it. Blocks."""
    from agentcli.config.paths import write

    told = settings.paths.state_dir / "checks-offered"
    try:
        if told.exists():
            return ""
        write(told, "")
    except (OSError, ConfigError):
        return ""
    return offer_line(found)


def _replace(workspace: Workspace, path: Path, data: bytes, ledger: FileLedger) -> None:
    """Write what a formatter has printed, as a tool would. Raises ``ValueError``; blocks."""
    try:
        with Transaction(workspace, ledger) as transaction:
            transaction.write(path, data, read_state(path, workspace))
            transaction.commit()
    except FileProblem as problem:
        raise ValueError(str(problem)) from problem
