"""One prompt, one answer, one end (CLI-2, CLI-5, CLI-6, CLI-7).

Laws: whatever happens - an answer, an error, a limit, a signal, a closed pipe - the output gets its
end exactly once, and the exit code follows from it. A terminal is never read for the prompt, and a
pipe that nobody writes to never hangs a run that already has its prompt.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, PromptBlocked, TurnCancelled, UsageError, kind_of
from agentcli.domain.events import (
    AgentEvent,
    BackgroundChanged,
    Cancelled,
    Continue,
    Done,
    Failed,
    Notice,
    Outcome,
    Prompt,
    TerminalEvent,
    ToolFinished,
    ToolRefused,
    TurnSummary,
)
from agentcli.domain.messages import TextPart, UserMessage
from agentcli.domain.values import frozen
from agentcli.headless.errors import (
    ExitCode,
    as_agent_error,
    exit_code_for,
    log_error,
    one_line,
)
from agentcli.headless.result import (
    JsonOutput,
    Output,
    Redact,
    RunEnd,
    RunFacts,
    Subtype,
    TextOutput,
    ended_by,
    failed,
    report_background,
    report_end,
    signalled,
    timed_out,
    write_failure,
)
from agentcli.headless.signals import (
    Late,
    StalledWrites,
    StoppedEarly,
    alarm,
    dropped_signal,
    raise_on_signals,
)
from agentcli.headless.streams import is_terminal, silence, write_error_line

if TYPE_CHECKING:
    from agentcli.app.session import Session
    from agentcli.headless.approvals import Attendants

    OpenSession = Callable[[Attendants], Awaitable[Session]]

SIGNALS = {
    signal.SIGINT: (CancelReason.USER, ExitCode.SIGINT),
    signal.SIGTERM: (CancelReason.SIGTERM, ExitCode.SIGTERM),
    signal.SIGHUP: (CancelReason.SIGHUP, ExitCode.SIGHUP),
}
P = ParamSpec("P")
MAX_STDIN_BYTES = 10_000_000
IDLE_S = 3.0
_PATIENCE_S = 0.5
_CLOSING = "! one moment: what commands have left behind is being put right"
_CHUNK = 1 << 16


@frozen
class RunRequest:
    """What a run is asked for.

    ``prepare`` reads settings and files, which may fail or wait; it says where the session works
    and gives what opens it. ``redact`` takes out of a text
    what is a key or looks like one, ``redact_known`` only what is one. ``takes_up_session``: an
    earlier session goes on, so that no prompt is needed. ``once``: the prompt is asked once in its
    session, however often the run is begun; its cost is that of the session. ``is_raw``: the text
    of the answer is written as it is, control sequences too. The last two are for messages on
    stdin.
    """

    prepare: Callable[[], tuple[Path, OpenSession]]
    redact: Redact
    redact_known: Redact
    words: tuple[str, ...] = ()
    takes_up_session: bool = False
    once: bool = False
    output_format: str = "text"
    partial_messages: bool = False
    only_result: bool = False
    timeout_s: float | None = None
    quiet: bool = False
    is_raw: bool = False
    verbose: bool = False
    replays_messages: bool = False
    asks_on_stdin: bool = False


class OneShot:
    """One run of ``agent run``."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._output: Output = (
            TextOutput(
                request.redact_known,
                quiet=request.quiet,
                only_result=request.only_result,
                is_raw=request.is_raw,
            )
            if request.output_format == "text"
            else JsonOutput(
                request.redact_known,
                stream=request.output_format == "stream-json",
                partial=request.partial_messages,
                quiet=request.quiet,
            )
        )
        self._facts = RunFacts()
        self._cwd = Path()
        self._token = CancelToken()
        self._code_of_signal: ExitCode | None = None
        self._is_late = False
        self._reader_left = False
        self._fault: Exception | None = None
        self._unattended = 0
        self._is_calling = False  # what runs then is no call of the model's
        self._terminal: TerminalEvent | None = None
        self._writes = StalledWrites()
        self._opening: asyncio.Future[Session] | None = None
        self._started_at = time.monotonic()
        self._has_ended = False
        self._has_result = False
        self._is_closing_told = False

    # --- from start to end -----------------------------------------------------------------

    def run(self) -> int:
        """The whole run; returns the exit code."""
        try:
            raise_on_signals()  # until the event loop takes them over
            return self._finish(self._outcome())
        except StoppedEarly as stop:
            _, self._code_of_signal = SIGNALS[signal.Signals(stop.number)]
            return self._finish(signalled(self._summary(), self._code_of_signal))
        except BrokenPipeError:
            silence(sys.stdout)
            return ExitCode.OK
        except Exception as error:  # noqa: BLE001 - even the end has failed
            return self._report_fault(error)

    def _report_fault(self, error: Exception) -> int:
        """Something failed at the end: what little can still be said, and no second result."""
        known = as_agent_error(error)
        log_error(known, error)
        message = self._request.redact(one_line(str(known)))
        is_owed = self._request.output_format != "text" and not self._has_result
        if is_owed and not isinstance(error, OSError):
            write_failure(message, kind_of(known), session_id=self._facts.session_id)
        write_error_line(f"error: {message}")
        return exit_code_for(known)

    def _outcome(self) -> RunEnd:
        request = self._request
        try:
            with alarm(request.timeout_s):
                self._cwd, open_session = request.prepare()
                message = self._message()
            return asyncio.run(self._main(open_session, message))
        except KeyboardInterrupt:
            return signalled(self._summary(), ExitCode.SIGINT)
        except Late:
            return timed_out(self._summary(), request.timeout_s or 0.0)
        except Exception as error:
            if self._has_ended or isinstance(error, BrokenPipeError):
                raise
            known = as_agent_error(error)
            log_error(known, error)
            return failed(known)

    def _message(self) -> UserMessage | None:
        """The words, where a lone ``-`` stands for stdin, and what is piped; maybe nothing."""
        typed = " ".join(self._request.words).strip()
        typed = "" if typed == "-" else typed
        piped = read_stdin(patient=not typed)
        if parts := [TextPart(text) for text in (typed, piped) if text.strip()]:
            return UserMessage(tuple(parts))
        if self._request.takes_up_session:
            return None
        raise UsageError("there is no prompt", 'give one: agent run "your prompt", or pipe it in')

    async def _main(self, open_session: OpenSession, message: UserMessage | None) -> RunEnd:
        with self._signals_and_timer():
            try:
                session = await self._open(open_session)
            except asyncio.CancelledError:
                return self._stopped()
            session.add_listener(self._on_event)
            try:
                end = await self._work(session, message)
                if self._request.once:
                    end = replace(end, summary=replace(end.summary, cost_usd=session.cost_usd))
                # before the session closes: nobody waits for processes that are being ended
                self._end(end)
            finally:
                asked = asyncio.get_running_loop().call_later(_PATIENCE_S, self._tell_closing)
                await session.aclose()
                asked.cancel()
            return end

    async def _open(self, open_session: OpenSession) -> Session:
        self._opening = asyncio.ensure_future(open_session(self._attendants()))
        try:
            if self._token.cancelled:
                self._opening.cancel()
            session = await self._opening
        finally:
            self._opening = None
        facts, request = self._facts, self._request
        facts.session_id = session.id
        facts.model = session.model.id
        facts.cwd = session.info.cwd
        facts.tools = session.tool_names
        facts.permission_mode = str(session.mode)
        facts.extensions = session.extensions.names()
        self._guarded(self._output.opened, facts)
        if not request.quiet:
            for notice in session.notices:
                write_error_line(f"! {request.redact(one_line(notice.removeprefix('warning: ')))}")
        if request.verbose:
            write_error_line(f"session {facts.session_id}: {facts.model}, {facts.permission_mode}")
        return session

    def _attendants(self) -> Attendants:
        """Who approves calls and who answers questions."""
        from agentcli.headless.approvals import make_approver

        return make_approver()

    async def _work(self, session: Session, message: UserMessage | None) -> RunEnd:
        """What the session was opened for: one turn. What was piped in, nobody has said (MEM-2)."""
        words = " ".join(self._request.words).strip()
        with nullcontext() if words not in {"", "-"} else session.quoting():
            if self._request.once and session.resumed is not None:
                return await self._once_more(session, message)
            calls = message is not None and message.parts[0] == TextPart(words)
            if message is not None and calls and words.startswith("/"):
                return await self._answer(session, message, self._token)
            if message is not None:
                message = await self._attached(session, message, self._request.words)
                message = await session.with_resources(message, words, self._token)
            return await self._turn(session, message, self._token)

    async def _attached(
        self, session: Session, message: UserMessage, words: Sequence[str]
    ) -> UserMessage:
        """``message`` with the files that the words of the command line name (UI-4).

        What came on stdin names none: a program wrote it, not the user.
        """
        typed = " ".join(words).strip()
        if "@" not in typed or message.parts[0] != TextPart(typed):
            return message
        from agentcli.app.files.attachments import attach
        from agentcli.domain.tools import Workspace

        attached = await attach(typed, Workspace(self._cwd, self._cwd), session.notify)
        return UserMessage((*message.parts, *attached.parts[1:]))

    async def _once_more(self, session: Session, message: UserMessage | None) -> RunEnd:
        """The run was begun before: what it came to, or else the rest of it."""
        from agentcli.app.earlier_end import can_continue, earlier_end

        if (earlier := earlier_end(session, wants_result=self._request.only_result)) is not None:
            return ended_by(earlier.event, unattended=earlier.unattended)
        if can_continue(session):
            message = None
        return await self._turn(session, message, self._token)

    async def _answer(
        self,
        session: Session,
        message: UserMessage,
        token: CancelToken,
        queued: Sequence[int] = (),
    ) -> RunEnd:
        """The turn of ``message``, or of the command or skill that it calls (CLI-14)."""
        first, *more = message.parts
        if not isinstance(first, TextPart) or not first.text.lstrip().startswith("/"):
            return await self._turn(session, message, token, queued)
        from agentcli.app.extensions.calling import find_called, in_force, message_of

        try:
            found = find_called(session, first.text)
            if found is None:
                attached = await self._attached(session, message, (first.text,))
                return await self._turn(session, attached, token, queued)
            async with in_force(session, *found):
                self._is_calling = True
                called = await message_of(session, self._cwd, *found, token)
                self._is_calling = False
                said = UserMessage((*called.parts, *more))
                return await self._turn(session, said, token, queued)
        except TurnCancelled:
            return self._stopped()
        except AgentError as error:
            self._is_calling = False
            for row in queued:
                await session.drop_queued(row)
            end = failed(error)
            if not self._unattended:
                return end
            reason = "approval_needed"
            return replace(
                end, subtype=Subtype.APPROVAL, code=ExitCode.APPROVAL, terminal_reason=reason
            )

    async def _turn(
        self,
        session: Session,
        message: UserMessage | None,
        token: CancelToken,
        queued: Sequence[int] = (),
    ) -> RunEnd:
        op = Continue() if message is None else Prompt(message)
        timeout_s = self._request.timeout_s
        deadline = self._started_at + timeout_s if timeout_s else None
        try:
            summary = await session.run(op, token, deadline=deadline, queued=queued)
        except PromptBlocked as error:  # a hook's word on this message, and not on the next
            return failed(error)
        if self._fault is not None:
            raise self._fault
        if self._token.cancelled and summary.outcome in {Outcome.CANCELLED, Outcome.TIMED_OUT}:
            return self._stopped(summary)
        if self._terminal is None:
            raise AgentError("the turn ended without saying how", "this is a bug; see the log")
        return ended_by(self._terminal, unattended=self._unattended)

    @property
    def _is_text(self) -> bool:
        return self._request.output_format == "text"

    # --- what happens meanwhile ------------------------------------------------------------

    def _on_event(self, event: AgentEvent) -> None:
        if self._has_ended and isinstance(event, BackgroundChanged):
            self._report_background(event)
            return
        if self._has_ended and isinstance(event, Notice):
            if not self._request.quiet:
                write_error_line(f"! {self._request.redact(one_line(event.text))}")
            return
        if isinstance(event, ToolRefused):
            self._unattended += event.unattended
            self._facts.refused.append(event)
        elif isinstance(event, Done | Cancelled | Failed):
            self._terminal = event
        if self._is_calling and isinstance(event, ToolFinished) and not self._is_text:
            return
        try:
            self._guarded(self._output.on_event, event)
        except Exception as error:  # noqa: BLE001 - a listener must not raise; the turn ends with it
            self._fault = self._fault or error
            self._stop(CancelReason.OUTER)

    def _report_background(self, event: BackgroundChanged) -> None:
        """The run of the program is over, and with it what went on in the background (BG-7)."""
        if event.ended is not None and not self._request.quiet and not self._reader_left:
            report_background(event.ended)

    def _guarded(self, write: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Write; when the reader has left, stop working for it (CLI-12)."""
        if self._reader_left:
            return
        try:
            self._writes.run(write, *args, **kwargs)
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
        if self._has_ended:
            self._tell_closing()

    def _tell_closing(self) -> None:
        """Answer a signal while the session takes its time to close (SEC-13)."""
        if self._code_of_signal is not None and not self._is_closing_told:
            self._is_closing_told = True
            write_error_line(_CLOSING)

    def _on_timeout(self) -> None:
        self._is_late = not self._token.cancelled
        self._stop(CancelReason.LIMIT)

    @contextmanager
    def _signals_and_timer(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        taken = []
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            taken.append(number)
            loop.add_signal_handler(number, self._on_signal, number)
            self._writes.watch(number)
        if (dropped := dropped_signal()) is not None:
            self._on_signal(dropped)
        timer = None
        if timeout_s := self._request.timeout_s:
            left_s = timeout_s - (time.monotonic() - self._started_at)
            timer = loop.call_later(left_s, self._on_timeout)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            for number in taken:
                loop.remove_signal_handler(number)
                # from here to the exit the end is decided: nothing interrupts it any more
                signal.signal(number, signal.SIG_IGN)

    # --- the end ---------------------------------------------------------------------------

    def _stopped(self, summary: TurnSummary | None = None) -> RunEnd:
        found = summary or self._summary()
        if self._code_of_signal is not None:
            return signalled(found, self._code_of_signal)
        if self._is_late:
            return timed_out(found, self._request.timeout_s or 0.0)
        return RunEnd(Subtype.CANCELLED, ExitCode.FAILED, "cancelled", found)

    def _summary(self) -> TurnSummary:
        return TurnSummary(Outcome.CANCELLED, duration_s=time.monotonic() - self._started_at)

    def _finish(self, end: RunEnd) -> int:
        self._end(end)
        if self._reader_left:
            return self._code_of_signal or ExitCode.OK
        return end.code

    def _end(self, end: RunEnd) -> None:
        """The answer or the result object, once; then one line on stderr, if there is one.

        A signal changes nothing any more: it only ends a write that nobody reads.
        """
        if not self._has_ended:
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._writes.watch(number)
            self._has_ended = True
            self._write_end(end, since=self._started_at)

    def _write_end(self, end: RunEnd, *, since: float, more: bool = False) -> None:
        shown = replace(end, message=self._request.redact(end.message))
        self._facts.duration_s = time.monotonic() - since
        self._guarded(self._output.ended, shown, self._facts, more=more)
        self._has_result = self._has_ended
        self._report_end(shown)

    def _report_end(self, end: RunEnd) -> None:
        self._guarded(report_end, end, self._facts, verbose=self._request.verbose)


# --- the prompt: words of the command line, piped stdin, or both ---------------------------


def read_stdin(*, patient: bool) -> str:
    """All of stdin as text, empty when it is a terminal, closed or /dev/null.

    Unless ``patient``, a pipe that stays silent for ``IDLE_S`` seconds is left alone, with a
    warning: programs that start others often leave an open pipe behind.
    """
    if sys.stdin is None or is_terminal(sys.stdin):
        return ""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
        if not patient and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            ready, _, _ = select.select([descriptor], [], [], IDLE_S)
            if not ready:
                write_error_line(
                    f"warning: nothing came on stdin within {IDLE_S:.0f} s, going on without it"
                    " - end it, or start with < /dev/null"
                )
                return ""
        data = bytearray()
        while chunk := os.read(descriptor, _CHUNK):
            data += chunk
            if len(data) > MAX_STDIN_BYTES:
                raise UsageError(
                    f"stdin holds more than {MAX_STDIN_BYTES // 1_000_000} MB",
                    "save it to a file and name the file in the prompt",
                )
    except (OSError, ValueError):
        return ""
    return data.decode("utf-8-sig", "replace").rstrip("\r\n")
