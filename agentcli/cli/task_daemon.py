"""``agent tasks daemon``: a session without a chat, so that its schedules start (BG-8).

Law: it holds the session as a chat would, asks nobody and lets no model speak: ends of runs wait in
the file for the next chat. It ends with a signal, or when nothing is left to start or to end.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.options import SharedOptions
from agentcli.cli.session_request import prepare_settings, session_options
from agentcli.domain.errors import SessionLocked
from agentcli.domain.events import AgentEvent, BackgroundChanged, Notice
from agentcli.headless.approvals import Nobody
from agentcli.headless.streams import write_error_line
from agentcli.ui.sanitize import clean_line

if TYPE_CHECKING:
    from agentcli.app.session import Session

_SIGNALS = (signal.SIGINT, signal.SIGTERM, *(() if sys.platform == "win32" else (signal.SIGHUP,)))


def run_daemon(path: Path, mode: str | None) -> int:
    """Look after the session file ``path`` in ``mode`` until a signal comes; the exit code."""
    from agentcli.cli.listing import session_files
    from agentcli.store.files import read_info

    info = read_info(path)
    # where another home's file says that it belongs counts for nothing (SEC-16)
    place = info.cwd if session_files().is_own(path.stem) else None
    options = SharedOptions(session=path.stem, cd=place, permission_mode=mode)
    options.check()
    settings = prepare_settings(options)
    request = session_options(options, interactive=True)

    async def serve() -> int:
        from agentcli.app.compose import open_session

        with _signals() as stopped:
            try:
                session = await open_session(settings, request, Nobody())
            except SessionLocked as error:
                advice = "its schedules start there; a daemon is for a session that nobody has open"
                raise SessionLocked(error.message, advice) from error
            try:
                return await _serve(session, stopped)
            finally:
                await session.aclose()

    return asyncio.run(serve())


async def _serve(session: Session, stopped: asyncio.Future[int]) -> int:
    news = asyncio.Event()
    begun: set[str] = set()

    def on_event(event: AgentEvent) -> None:
        if isinstance(event, Notice):
            _say(event.text)
        elif isinstance(event, BackgroundChanged):
            _tell(session, event, begun)
        else:
            return
        news.set()

    for line in session.notices:
        _say(line)
    session.add_listener(on_event)
    _tell_next(session)
    while not stopped.done() and _has_work(session):
        news.clear()
        waiting: asyncio.Future[object] = asyncio.ensure_future(news.wait())
        ends: set[asyncio.Future[object] | asyncio.Future[int]] = {waiting, stopped}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not stopped.done():
            _tell_next(session)
    if stopped.done():
        return 128 + stopped.result()
    _say("nothing is left to start")
    return 0


def _has_work(session: Session) -> bool:
    background = session.background
    if background is None:
        return False
    return bool(background.schedules()) or any(task.is_active for task in background.tasks())


def _tell(session: Session, event: BackgroundChanged, begun: set[str]) -> None:
    """What has changed; ``begun`` are the runs of which it was said that they began."""
    from agentcli.ui.wording import background_ended

    if event.asks is not None and event.asks.question is not None:
        how = f"agent tasks answer {event.asks.run_id} TEXT"
        _say(f"{clean_line(event.asks.title)} asks: {event.asks.question.text} - answer: {how}")
    elif event.ended is not None:
        _say(f"{background_ended(event.ended)}: {event.ended.log_path}")
    elif session.background is not None and session.background.tasks():
        task = session.background.tasks()[-1]
        if task.run_id in begun:
            return
        begun.add(task.run_id)
        _say(f"Background run began: {clean_line(task.title)}: {task.run_id}")


def _tell_next(session: Session) -> None:
    from agentcli.ui.task_lines import next_time

    schedules = session.background.schedules() if session.background is not None else ()
    due = sorted((each for each in schedules if each.next_at), key=lambda each: each.next_at or 0)
    if due:
        first = due[0]
        _say(f"next: {next_time(first, time.time())}: {clean_line(first.title)}")


def _say(text: str) -> None:
    write_error_line(f"{time.strftime('%H:%M:%S')} {clean_line(text)}")


@contextmanager
def _signals() -> Iterator[asyncio.Future[int]]:
    """A future that is done with the number of the first signal."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def on_signal(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in _SIGNALS:
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, on_signal, number)
    try:
        yield stopped
    finally:
        for number in _SIGNALS:
            with suppress(NotImplementedError, RuntimeError):
                loop.remove_signal_handler(number)
