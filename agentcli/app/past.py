"""Stored messages as the events that they once were, for those who show a session again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    Notice,
    PromptRecorded,
    TextChunk,
    ThinkingChunk,
    ToolAnnounced,
    ToolFinished,
)
from agentcli.domain.extensions.instructions import documents_of
from agentcli.domain.messages import (
    ABOUT_CHECKS,
    AssistantMessage,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ToolRun
from agentcli.domain.session import Note, StoredMessage


class Past:
    """Turns messages into events; knows the calls whose results are still to come.

    ``words`` say what a call does where its row does not.
    """

    def __init__(self, words: Callable[[ToolCall], str]) -> None:
        self._words = words
        self._calls: dict[str, ToolCall] = {}
        self._runs: dict[str, ToolRun] = {}

    def events(
        self,
        messages: Iterable[StoredMessage],
        notes: Sequence[Note],
        runs: Mapping[str, ToolRun],
    ) -> Iterator[AgentEvent]:
        """What happened, in its order, with what was seen and is no part of the history."""
        waiting = list(notes)
        for stored in messages:
            message = stored.message
            if isinstance(message, UserMessage):
                yield from _said(message, stored.seq)
            elif isinstance(message, AssistantMessage):
                yield from self._answered(message, stored.seq, runs)
            else:
                yield from self._finished(message)
            while waiting and waiting[0].after_seq <= stored.seq:
                yield from _noted(waiting.pop(0))
        for note in waiting:
            yield from _noted(note)

    def _answered(
        self, message: AssistantMessage, seq: int, runs: Mapping[str, ToolRun]
    ) -> Iterator[AgentEvent]:
        for part in message.parts:
            if isinstance(part, ThinkingPart) and part.text.strip():
                yield ThinkingChunk(part.text)
            elif isinstance(part, TextPart) and part.text.strip():
                yield TextChunk(part.text)
        yield AssistantRecorded(message, seq)
        for call in message.tool_calls:
            self._calls[call.id] = call
            run = runs.get(call.id)
            if run is not None:
                self._runs[call.id] = run
            yield ToolAnnounced(call, (run.line if run else "") or self._words(call))

    def _finished(self, result: ToolResult) -> Iterator[AgentEvent]:
        call = self._calls.pop(result.call_id, None) or ToolCall(result.call_id, result.name, {})
        run = self._runs.pop(result.call_id, None)
        if run is None:
            yield ToolFinished(call, result, "", 0.0)
            return
        yield ToolFinished(call, result, run.outcome, run.took_s or 0.0, run.display)


def _said(message: UserMessage, seq: int) -> Iterator[AgentEvent]:
    if message.is_summary:
        yield Notice("What was said before was summarised for the model.", is_warning=False)
    elif message.typed.startswith(ABOUT_CHECKS):
        yield Notice(message.typed.splitlines()[1].rstrip(":"), is_warning=False)
    elif message.is_instructions:
        names = ", ".join(doc.name for doc in documents_of([message]))
        yield Notice(f"Instructions came with the files: {names}", is_warning=False)
    else:
        yield PromptRecorded(message, seq)


def _noted(note: Note) -> Iterator[AgentEvent]:
    if note.kind == "partial" and note.text.strip():
        yield TextChunk(note.text)
        text = "The reply had begun; it was cut off here and is not sent to the model again."
        yield Notice(text, is_warning=False)
