"""One process, many turns: ``agent run --input-format stream-json`` (CLI-4, CLI-5, CLI-6).

Law: each turn is told with one ``result``; on every path the last message of the process is a
``result``, and the exit code is that of how the run ended: the last turn, or what stopped it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentcli.cli.errors import one_line
from agentcli.cli.options import RunOptions
from agentcli.cli.streams import write_error_line
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import UsageError
from agentcli.domain.events import AgentEvent, PromptRecorded
from agentcli.domain.messages import TextPart, UserMessage
from agentcli.domain.values import frozen
from agentcli.headless.ending import Ending, Subtype, failed
from agentcli.headless.exit_codes import ExitCode
from agentcli.headless.one_shot import OneShot
from agentcli.headless.outputs import JsonOutput

if TYPE_CHECKING:
    from agentcli.app.session import Session
    from agentcli.domain.ports import Approver
    from agentcli.domain.tools import Asker
    from agentcli.headless.control import Channel
    from agentcli.headless.stream_run import StreamRun


@frozen
class _Told:
    """The last ending that a result was written for; ``stopped``: the whole run's."""

    ending: Ending
    stopped: bool


class StreamShot(OneShot):
    """One run whose messages come on stdin."""

    def __init__(self, options: RunOptions, words: Sequence[str]) -> None:
        super().__init__(options, words)
        self._writer = JsonOutput(
            stream=True, partial=options.include_partial_messages, quiet=options.quiet
        )
        self._output = self._writer
        self._told: _Told | None = None
        self._uuid = ""
        self._turn_started_at = self._started_at
        self._channel: Channel | None = None
        self._conversation: StreamRun | None = None

    # --- what a single shot does otherwise ---------------------------------------------------

    def _message(self) -> UserMessage | None:
        """Words of the command line are the first message; stdin is read as it comes."""
        typed = " ".join(self._words).strip()
        return UserMessage((TextPart(typed),)) if typed else None

    def _people(self) -> tuple[Approver, Asker | None]:
        from agentcli.headless.approvals import Nobody
        from agentcli.headless.control import OverChannel

        if self._options.permission_prompt_tool is None:
            return Nobody(), None
        return OverChannel(self._control, self._interrupt), None

    async def _work(self, session: Session, message: UserMessage | None) -> Ending:
        from agentcli.headless.stream_run import StreamRun

        self._conversation = StreamRun(session, self, self._control)
        last = await self._conversation.converse(message)
        if self._token.cancelled and not (self._told is not None and self._told.stopped):
            return self._stopped_ending()
        return last or failed(
            UsageError("no message came on stdin", "write one JSON object per line")
        )

    def _end(self, ending: Ending) -> None:
        """Nothing is told twice: neither a turn's end nor that nothing was going on."""
        if self._has_ended:
            return
        is_told = self._told is not None and ending is self._told.ending
        if is_told or (_is_stop(ending) and self._writer.writer.ends_with_result):
            self._has_ended = True
            if not is_told:
                self._tell_person(ending)
        else:
            super()._end(ending)

    def _on_event(self, event: AgentEvent) -> None:
        if isinstance(event, PromptRecorded) and self._options.replay_user_messages:
            self._guarded(lambda: self._writer.writer.replay(event.message, self._uuid))
        super()._on_event(event)

    # --- what a conversation asks of its process ---------------------------------------------

    @property
    def token(self) -> CancelToken:
        """Set when the whole run is to end."""
        return self._token

    async def turn(
        self, session: Session, message: UserMessage, token: CancelToken, queued: Sequence[int]
    ) -> Ending:
        """Run a turn to its end."""
        self._turn_started_at = time.monotonic()
        ending = await self._turn(session, message, token, queued)
        interrupted = token.reason is CancelReason.USER and not self._token.cancelled
        if interrupted and ending.subtype is Subtype.CANCELLED:  # as Ctrl-C would have ended it
            summary = ending.summary
            return Ending(Subtype.CANCELLED, ExitCode.SIGINT, "interrupted", summary, "cancelled")
        return ending

    def tell(self, ending: Ending) -> None:
        """Write the result of a turn."""
        self._told = _Told(ending, self._token.cancelled and _is_stop(ending))
        self._tell(ending, more=True)
        self._facts.refused.clear()
        self._unattended = 0
        self._terminal = None

    def _tell(self, ending: Ending, *, more: bool = False) -> None:
        self._facts.duration_s = time.monotonic() - self._turn_started_at
        self._guarded(lambda: self._output.ended(ending, self._facts, more=more))
        self._tell_person(ending)

    def skipped(self, line: int, reason: str) -> None:
        """Say that a line of stdin was not understood."""
        self._guarded(lambda: self._writer.writer.input_error(line, one_line(reason)))
        if not self._options.quiet:
            write_error_line(f"warning: line {line} of stdin is skipped: {one_line(reason)}")

    def now_answering(self, uuid: str) -> None:
        """Remember what the sender of the next message calls it."""
        self._uuid = uuid

    # --- the control channel ---------------------------------------------------------------------

    @property
    def _control(self) -> Channel:
        if self._channel is None:
            from agentcli.headless.control import Channel

            self._channel = Channel(self._send)
        return self._channel

    def _send(self, value: Mapping[str, Any]) -> None:
        self._guarded(lambda: self._writer.writer.control(value))

    def _interrupt(self) -> None:
        if self._conversation is not None:
            self._conversation.interrupt()


def _is_stop(ending: Ending) -> bool:
    return ending.subtype in {Subtype.CANCELLED, Subtype.TIMEOUT}
