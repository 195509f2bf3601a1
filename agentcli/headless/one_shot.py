"""One prompt, one answer, one ending (CLI-5, CLI-6, CLI-7).

Law: whatever happens after the options were read - an answer, an error, a limit, a signal, a
closed pipe - the output gets its ending exactly once, and the exit code follows from it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from agentcli.cli.errors import as_agent_error, log_error, one_line, report, said
from agentcli.cli.logging_setup import REDACTOR
from agentcli.cli.options import RunOptions, number
from agentcli.cli.session_request import prepare_settings, session_options
from agentcli.cli.streams import silence, write_error_line
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, PromptBlocked, UsageError
from agentcli.domain.events import (
    AgentEvent,
    BackgroundChanged,
    Cancelled,
    Continue,
    Done,
    Failed,
    Outcome,
    Prompt,
    TerminalEvent,
    ToolRefused,
    TurnSummary,
)
from agentcli.domain.messages import UserMessage
from agentcli.headless.ending import Ending, Subtype, ended_by, failed, signalled, timed_out
from agentcli.headless.exit_codes import ExitCode
from agentcli.headless.output_schema import read_output_schema
from agentcli.headless.outputs import SessionFacts, make_output
from agentcli.headless.prompt_input import read_prompt, with_attachments
from agentcli.headless.result_due import Stopped, dropped_signal, stop_on_signals, write_failure
from agentcli.headless.stalled import StalledWrites

if TYPE_CHECKING:
    from agentcli.app.session import Session
    from agentcli.config.settings import Settings
    from agentcli.domain.ports import Approver
    from agentcli.domain.tools import Asker
    from agentcli.tools._final_result import ResultSchema

_LONGEST_ALARM_S = 1e6
SIGNALS = {
    signal.SIGINT: (CancelReason.USER, ExitCode.SIGINT),
    signal.SIGTERM: (CancelReason.SIGTERM, ExitCode.SIGTERM),
    signal.SIGHUP: (CancelReason.SIGHUP, ExitCode.SIGHUP),
}


class _Late(BaseException):
    """``--timeout`` passed before the event loop was there to say so."""


class OneShot:
    """One run of ``agent run``."""

    def __init__(self, options: RunOptions, words: Sequence[str]) -> None:
        self._options = options
        self._words = words
        self._output = make_output(
            options.output_format,
            partial=options.include_partial_messages,
            quiet=options.quiet,
            only_result=options.json_schema is not None,
        )
        self._result: ResultSchema | None = None
        self._facts = SessionFacts()
        self._cwd = Path()
        self._token = CancelToken()
        self._timeout_s: float | None = None
        self._code_of_signal: ExitCode | None = None
        self._is_late = False
        self._reader_left = False
        self._fault: Exception | None = None
        self._unattended = 0
        self._terminal: TerminalEvent | None = None
        self._writes = StalledWrites()
        self._opening: asyncio.Task[Session] | None = None
        self._started_at = time.monotonic()
        self._has_ended = False

    # --- from start to ending --------------------------------------------------------------

    def run(self) -> int:
        """The whole run; returns the exit code."""
        try:
            stop_on_signals()  # until the event loop takes them over
            return self._finish(self._ending())
        except Stopped as stop:
            _, self._code_of_signal = SIGNALS[signal.Signals(stop.number)]
            return self._finish(signalled(self._summary(), self._code_of_signal))
        except BrokenPipeError:
            silence(sys.stdout)
            return ExitCode.OK
        except Exception as error:  # noqa: BLE001 - even the ending has failed
            return self._last_words(error)

    def _last_words(self, error: Exception) -> int:
        """The ending could not be told: what little can still be said."""
        if self._options.output_format != "text" and not isinstance(error, OSError):
            message, reason = said(error)
            write_failure(message, reason=reason, session_id=self._facts.session_id)
        return report(error)

    def _ending(self) -> Ending:
        try:
            self._options.check()
            self._timeout_s = number("--timeout", self._options.timeout, float) or None
            with _alarm(self._timeout_s):
                self._result = read_output_schema(self._options.json_schema)
                message = self._message()
            settings = prepare_settings(self._options, quiet=self._options.quiet)
            return asyncio.run(self._main(settings, message))
        except KeyboardInterrupt:
            return signalled(self._summary(), ExitCode.SIGINT)
        except _Late:
            return timed_out(self._summary(), self._timeout_s or 0.0)
        except Exception as error:
            if self._has_ended or isinstance(error, BrokenPipeError):
                raise
            known = as_agent_error(error)
            log_error(known, error)
            return failed(known)

    def _message(self) -> UserMessage | None:
        message = read_prompt(self._words)
        options = self._options
        if message is None and not (options.continue_ or options.session or options.resume):
            raise UsageError(
                "there is no prompt", 'give one: agent run "your prompt", or pipe it in'
            )
        return message

    async def _main(self, settings: Settings, message: UserMessage | None) -> Ending:
        with self._signals_and_timer():
            try:
                session = await self._open(settings)
            except asyncio.CancelledError:
                return self._stopped_ending()
            session.add_listener(self._on_event)
            try:
                ending = await self._work(session, message)
                # before the session closes: nobody waits for processes that are being ended
                self._end(ending)
            finally:
                await session.aclose()
            return ending

    async def _open(self, settings: Settings) -> Session:
        from agentcli.app.compose import open_session

        request = session_options(self._options, interactive=False, result=self._result)
        self._cwd = request.cwd
        approver, asker = self._people()
        self._opening = asyncio.ensure_future(open_session(settings, request, approver, asker))
        try:
            if self._token.cancelled:
                self._opening.cancel()
            session = await self._opening
        finally:
            self._opening = None
        self._facts.session_id = session.id
        self._facts.model = session.model.id
        self._facts.cwd = session.info.cwd
        self._facts.tools = session.tool_names
        self._facts.permission_mode = str(session.mode)
        self._guarded(lambda: self._output.opened(self._facts))
        if not self._options.quiet:
            for notice in session.notices:
                write_error_line(REDACTOR.redact(one_line(notice)))
        if self._options.verbose:
            facts = self._facts
            write_error_line(f"session {facts.session_id}: {facts.model}, {facts.permission_mode}")
        return session

    def _people(self) -> tuple[Approver, Asker | None]:
        """Who approves calls and who answers questions."""
        from agentcli.headless.approvals import make_approver

        return make_approver()

    async def _work(self, session: Session, message: UserMessage | None) -> Ending:
        """What the session was opened for: one turn."""
        if message is not None:
            message = await with_attachments(message, self._words, self._cwd)
        return await self._turn(session, message, self._token)

    async def _turn(
        self,
        session: Session,
        message: UserMessage | None,
        token: CancelToken,
        queued: Sequence[int] = (),
    ) -> Ending:
        op = Continue() if message is None else Prompt(message)
        deadline = self._started_at + self._timeout_s if self._timeout_s else None
        try:
            summary = await session.run(op, token, deadline=deadline, queued=queued)
        except PromptBlocked as error:  # a hook's word on this message, and not on the next
            return failed(error)
        if self._fault is not None:
            raise self._fault
        if self._token.cancelled and summary.outcome is Outcome.CANCELLED:
            return self._stopped_ending(summary)
        if self._terminal is None:
            raise AgentError("the turn ended without saying how", "this is a bug; see the log")
        return ended_by(self._terminal, unattended=self._unattended)

    # --- what happens meanwhile ------------------------------------------------------------

    def _on_event(self, event: AgentEvent) -> None:
        if self._has_ended and isinstance(event, BackgroundChanged):
            self._tell_of_run(event)
            return
        if isinstance(event, ToolRefused):
            self._unattended += event.unattended
            self._facts.refused.append(event)
        elif isinstance(event, Done | Cancelled | Failed):
            self._terminal = event
        try:
            self._guarded(lambda: self._output.on_event(event))
        except Exception as error:  # noqa: BLE001 - a listener must not raise; the turn ends with it
            self._fault = self._fault or error
            self._stop(CancelReason.OUTER)

    def _tell_of_run(self, event: BackgroundChanged) -> None:
        """The run of the program is over, and with it what went on in the background (BG-7)."""
        if event.ended is not None and not self._options.quiet and not self._reader_left:
            from agentcli.ui.wording import background_ended

            write_error_line(background_ended(event.ended))

    def _guarded(self, write: object) -> None:
        """Write; when the reader has left, stop working for it (CLI-12)."""
        if self._reader_left or not callable(write):
            return
        try:
            self._writes.run(write)
        except BrokenPipeError:
            self._reader_left = True
            silence(sys.stdout)
            self._stop(CancelReason.USER)

    def _stop(self, reason: CancelReason, *, force: bool = False) -> None:
        self._token.cancel(reason, force=force)
        if self._opening is not None:
            self._opening.cancel()

    def _on_signal(self, signal_number: signal.Signals) -> None:
        reason, code = SIGNALS[signal_number]
        force = self._code_of_signal is not None
        self._code_of_signal = self._code_of_signal or code
        self._stop(reason, force=force)

    def _on_timeout(self) -> None:
        self._is_late = not self._token.cancelled
        self._stop(CancelReason.LIMIT)

    @contextmanager
    def _signals_and_timer(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        taken = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number_ in taken:
            loop.add_signal_handler(number_, self._on_signal, number_)
            self._writes.watch(number_)
        if (dropped := dropped_signal()) is not None:
            self._on_signal(dropped)
        timer = None
        if self._timeout_s:
            left_s = self._timeout_s - (time.monotonic() - self._started_at)
            timer = loop.call_later(left_s, self._on_timeout)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            for number_ in taken:
                loop.remove_signal_handler(number_)
                # from here to the exit the ending is decided: nothing interrupts it any more
                signal.signal(number_, signal.SIG_IGN)

    # --- the ending ------------------------------------------------------------------------

    def _stopped_ending(self, summary: TurnSummary | None = None) -> Ending:
        found = summary or self._summary()
        if self._code_of_signal is not None:
            return signalled(found, self._code_of_signal)
        if self._is_late and self._timeout_s is not None:
            return timed_out(found, self._timeout_s)
        return Ending(Subtype.CANCELLED, ExitCode.FAILED, "cancelled", found)

    def _summary(self) -> TurnSummary:
        return TurnSummary(Outcome.CANCELLED, duration_s=time.monotonic() - self._started_at)

    def _finish(self, ending: Ending) -> int:
        self._end(ending)
        if self._reader_left:
            return self._code_of_signal or ExitCode.OK
        return ending.code

    def _end(self, ending: Ending) -> None:
        """The answer or the result object, once; then one line for the person, if there is one."""
        if self._has_ended:
            return
        self._has_ended = True
        self._tell(ending)

    def _tell(self, ending: Ending, *, more: bool = False) -> None:
        self._facts.duration_s = time.monotonic() - self._started_at
        self._guarded(lambda: self._output.ended(ending, self._facts, more=more))
        self._tell_person(ending)

    def _tell_person(self, ending: Ending) -> None:
        if self._reader_left:
            return
        if self._options.verbose:
            write_error_line(_figures(ending.summary, self._facts.duration_s))
        if ending.message:
            prefix = "error: " if ending.is_error else ""
            write_error_line(prefix + one_line(ending.message))
        elif ending.code is ExitCode.APPROVAL:
            write_error_line(
                f"error: {self._unattended} call(s) needed an approval and nobody could give it"
                " - allow them with --allow-tool RULE, or all with --yolo"
            )
        if ending.unsaved:
            from agentcli.ui.sanitize import clean

            write_error_line(f"this could be saved nowhere:\n{clean(ending.unsaved)}")


def _figures(summary: TurnSummary, duration_s: float) -> str:
    from agentcli.ui.wording import cost, duration, plural, tokens

    parts = (plural(summary.steps, "request"), tokens(summary.usage), duration(duration_s))
    return f"{', '.join(parts)}, cost {cost(summary.cost_usd)}"


@contextmanager
def _alarm(timeout_s: float | None) -> Iterator[None]:
    """Raise ``_Late`` in the block after ``timeout_s``: it may wait for a pipe."""

    def late(number_: int, frame: FrameType | None) -> None:
        del number_, frame
        raise _Late

    if not timeout_s:
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, min(timeout_s, _LONGEST_ALARM_S))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
