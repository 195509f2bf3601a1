"""A session in reading order: each call with its result, notes in their places."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ToolRun
from agentcli.domain.session import Note, SessionInfo, SessionSource, StoredMessage
from agentcli.ui import wording
from agentcli.ui.sanitize import clean, clean_line, indented

SUMMARY_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Exchange:
    """A tool call, its result if it has one, and its row."""

    call: ToolCall
    result: ToolResult | None
    run: ToolRun | None

    @property
    def summary(self) -> str:
        """The call in one line: its name, its arguments, how it ended, how long it took."""
        values = [
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for value in self.call.arguments.values()
        ]
        arguments = clean_line(" ".join(values))
        if len(arguments) > SUMMARY_LENGTH:
            arguments = arguments[: SUMMARY_LENGTH - 1] + "…"
        status = self.result.status.value if self.result is not None else "no result"
        return " · ".join(filter(None, (self._name(arguments), status, self._duration())))

    def _name(self, arguments: str) -> str:
        return f"{clean(self.call.name)} {arguments}".strip()

    def _duration(self) -> str:
        took_s = None if self.run is None else self.run.took_s
        return "" if took_s is None else f"{took_s:.1f} s"

    @property
    def display(self) -> str:
        """What only the user was shown, for example a diff; empty when there is none."""
        return "" if self.run is None else clean(self.run.display)

    def beside_display(self, text: str) -> str:
        """A text of the result, without what ``display`` shows already."""
        shown = self.display.rstrip()
        cleaned = clean(text)
        return cleaned.replace(shown, "", 1).rstrip() if shown else cleaned

    @property
    def arguments(self) -> str:
        """The arguments as indented JSON, or what the model sent instead of JSON."""
        if self.call.malformed is not None:
            return clean(self.call.malformed)
        return clean(indented(self.call.arguments))


Item = TextPart | ThinkingPart | ImagePart | Exchange | Note


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One speaker's part of the transcript.

    ``remark`` says that it is no longer sent to the model, for a summary that it was taken back;
    empty otherwise (CMP-3). ``seq`` is that of its message, 0 for a note. ``items`` can be gone
    through once: the result of a call is looked up when its turn comes.
    """

    speaker: str
    time: str
    items: Iterable[Item]
    remark: str = ""
    seq: int = 0

    @property
    def heading(self) -> str:
        """Who and when: ``You · 2026-01-31 12:00 UTC · folded into a summary``."""
        return " · ".join(filter(None, (self.speaker, self.time, self.remark)))


def entries(session: SessionSource) -> Iterator[TranscriptEntry]:
    """The transcript, oldest first."""
    result_of, run_of = session.result_of, session.run_of
    notes = iter(session.notes)
    note = next(notes, None)

    def exchanges(message: UserMessage | AssistantMessage) -> Iterator[Item]:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield Exchange(part, result_of(part.id), run_of(part.id))
            else:
                yield part

    for stored in session.said:
        while note is not None and note.after_seq < stored.seq:
            yield _note_entry(note)
            note = next(notes, None)
        message = stored.message
        if not isinstance(message, ToolResult):
            who, when = speaker_of(message), moment(stored.created_at)
            items = exchanges(message)
            yield TranscriptEntry(who, when, items, remark_of(stored), stored.seq)
    while note is not None:
        yield _note_entry(note)
        note = next(notes, None)


def _note_entry(note: Note) -> TranscriptEntry:
    return TranscriptEntry("Note", moment(note.created_at), (note,))


def speaker_of(message: UserMessage | AssistantMessage) -> str:
    """Who has said it, for a heading."""
    if isinstance(message, AssistantMessage):
        return "Agent"
    if message.is_instructions:
        return "Instructions"
    return "Summary" if message.is_summary else "You"


def remark_of(stored: StoredMessage) -> str:
    """Why it is no longer sent; empty for what is."""
    if stored.hidden_by is None:
        return ""
    return "taken back" if stored.hidden_by == stored.seq else "folded into a summary"


def moment(seconds: float) -> str:
    """A time for people: ``2026-01-31 12:00 UTC``."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "unknown time"


def facts(session: SessionSource) -> tuple[tuple[str, str], ...]:
    """What to say of the session as a whole: names and values, both cleaned."""
    info = session.info
    usage = info.usage
    tokens = " in, ".join(
        (
            "unknown" if usage.input_tokens is None else f"{usage.input_tokens:,}",
            "unknown" if usage.output_tokens is None else f"{usage.output_tokens:,}",
        )
    )
    state = info.status.value + (f" ({info.detail})" if info.detail else "")
    listed = (
        ("Session", info.id),
        *_origin_facts(info),
        ("Directory", info.cwd),
        ("Model", info.model),
        ("Started", moment(info.created_at)),
        ("Last used", moment(info.updated_at)),
        ("State", state),
        ("Turns", str(info.turns)),
        ("Tokens", f"{tokens} out"),
        ("Cost", wording.exact_cost(info.cost_usd)),
    )
    return tuple((name, clean(value)) for name, value in listed)


def _origin_facts(info: SessionInfo) -> tuple[tuple[str, str], ...]:
    origin = info.origin
    if origin is None:
        return ()
    about = (wording.program(origin.format), origin.id, origin.cwd, origin.model)
    said = " · ".join(" ".join(part.split()) for part in about if part)
    return (("Imported", f"{moment(origin.imported_at)} from {said}"),)


def note_title(note: Note) -> str:
    """What kind of note it is, in words."""
    if note.kind == "partial":
        return "Cut short: seen, but not part of the conversation"
    return clean(note.kind.replace("_", " ")).capitalize()
