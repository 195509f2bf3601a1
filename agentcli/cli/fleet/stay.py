"""``-w`` of chat and one shot, and the way back to the worktree of an earlier session (SCALE-1).

Law: a worktree that is clean when the agent leaves is gone; one that is not is kept, and the last
line says where it is and how to come back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.session_request import working_directory
from agentcli.config.paths import Paths
from agentcli.domain.errors import AgentError, StoreError
from agentcli.headless.errors import one_line
from agentcli.headless.streams import write_error_line

if TYPE_CHECKING:
    from agentcli.app.worktrees.book import Stay, Worktrees
    from agentcli.app.worktrees.contents import TreeState
    from agentcli.cli.options import SharedOptions
    from agentcli.domain.session import SessionInfo
    from agentcli.store.files import SessionFiles

MANY_SESSIONS = 200  # among which the newest of a directory and its worktrees is looked for


@contextmanager
def in_worktree(options: SharedOptions, *, quiet: bool = False) -> Iterator[None]:
    """Let ``options`` work in the worktree that they ask for, if any; the chat or run is the block.

    Raises ``AgentError`` where there is none to be had.
    """
    paths = Paths.from_env(os.environ)
    if options.worktree is None and not paths.worktree_records_dir.is_dir():
        yield  # there never was one
        return
    from agentcli.app.worktrees.book import Worktrees
    from agentcli.app.worktrees.repository import repository_at

    trees, cwd = Worktrees(paths), working_directory(options.cd)
    if options.worktree is not None:
        stay = trees.enter(repository_at(cwd), options.worktree.strip() or None)
    elif (found := _of_session(options, trees, cwd)) is not None:
        stay = found
    else:
        yield
        return
    options.cd = str(stay.directory)
    if options.worktree is not None and options.continue_ and (task := _task_of(stay)) is not None:
        options.continue_, options.session = False, task
    try:
        if not quiet:
            for notice in stay.notices:
                write_error_line(one_line(f"warning: {notice}"))
        yield
    finally:
        _leave(trees, stay, quiet=quiet)


def _leave(trees: Worktrees, stay: Stay, *, quiet: bool) -> None:
    """Remove what is clean, name what is kept; an error of it is no error of the work."""
    try:
        state = trees.leave(stay)
        line = "" if state is None else _kept(stay, state)
    except AgentError as error:
        line = f"the worktree {stay.tree.name} is kept: {error}"
    if line and not quiet:
        write_error_line(one_line(line))


def _kept(stay: Stay, state: TreeState) -> str:
    tree = stay.tree
    if state.in_use:
        return f"another agent works in the worktree {tree.name}: it stays at {tree.path}"
    return (
        f"the worktree {tree.name} is kept ({state.text()}, branch {tree.branch}): {tree.path}"
        f" - come back with: agent -w {tree.name} --continue"
    )


def _of_session(options: SharedOptions, trees: Worktrees, cwd: Path) -> Stay | None:
    """The worktree of the session that is to be resumed; ``None``: it is of none."""
    from agentcli.cli.listing import session_files, wait

    files = session_files()
    with suppress(StoreError):
        if options.continue_:
            info = wait(_newest(files, trees, cwd))
        else:
            info = wait(_named(files, options.session or options.resume or ""))
        if info is None or not files.is_own(info.id):
            return None  # where another home's file says that it belongs counts for nothing
        if (stay := trees.enter_again(Path(info.cwd), cwd)) is None:
            return None
        if options.continue_:
            options.continue_, options.session = False, info.id
        return stay
    return None  # what is wrong with the session is said where it is opened


def _task_of(stay: Stay) -> str | None:
    """The session last used in a worktree, if it is of a task, which ``--continue`` leaves out."""
    from agentcli.cli.listing import session_files, wait

    found = wait(session_files().newest(MANY_SESSIONS, (str(stay.directory),), agents=True))
    newest = next((info for info in found if not info.is_subagent), None)
    return newest.id if newest is not None and newest.agent else None


async def _named(files: SessionFiles, name: str) -> SessionInfo | None:
    found = await files.resolve(name)
    return (await files.infos_of([found])).get(found)


async def _newest(files: SessionFiles, trees: Worktrees, cwd: Path) -> SessionInfo | None:
    """The newest session of ``cwd``, or of the same directory in a worktree of its repository."""
    is_of = trees.places_of(cwd)
    return next((info for info in await files.newest(MANY_SESSIONS) if is_of(info.cwd)), None)
