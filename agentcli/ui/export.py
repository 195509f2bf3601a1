"""A session as a document: JSON for programs, Markdown and HTML for people (CLI-8).

The JSON form is a public format, ``agentcli-session/1``; it loses nothing that was said. The
other two show everything that was shown, with control sequences taken out.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from agentcli.domain.accounts import CallCost, ResultCost
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ToolRun
from agentcli.domain.session import LoadedSession, Note, SessionInfo, StoredMessage
from agentcli.ui import wording
from agentcli.ui.sanitize import clean, safe_json

__all__ = [
    "FORMAT",
    "cost_object",
    "export_html",
    "export_json",
    "export_json_text",
    "export_markdown",
    "iso_time",
    "mark_of",
    "remark_of",
    "session_object",
    "speaker_of",
]

FORMAT = "agentcli-session/1"

Part = TextPart | ThinkingPart | ImagePart | ToolCall


Costs = Mapping[str, CallCost]
"""What each result has cost, by call id (COST-1)."""


def export_json(session: LoadedSession, costs: Costs | None = None) -> dict[str, Any]:
    """The session as JSON values. Texts may hold lone surrogates; see ``export_json_text``."""
    known = costs or {}
    return {
        "format": FORMAT,
        "session": session_object(session.info),
        "messages": [_message_object(stored) for stored in session.messages],
        "tool_runs": [_run_object(run, known.get(run.call_id)) for run in session.runs.values()],
        "usage": _usage_object(session.info),
    }


def export_json_text(
    session: LoadedSession,
    redact: Callable[[Any], Any] = lambda value: value,
    costs: Costs | None = None,
) -> str:
    """The same as text that can be written and shown anywhere (SEC-10), ending in a line end.

    ``redact`` takes secrets out of JSON values (SEC-9).
    """
    value = redact(export_json(session, costs))
    return safe_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n"


def session_object(info: SessionInfo) -> dict[str, Any]:
    """A session as ``sessions list --format json`` shows it; times are ISO 8601, UTC."""
    value: dict[str, Any] = {
        "id": info.id,
        "title": info.title,
        "cwd": info.cwd,
        "created_at": iso_time(info.created_at),
        "updated_at": iso_time(info.updated_at),
        "state": info.status.value,
        "turns": info.turns,
        "model": info.model,
    }
    if info.origin is not None:
        value["imported_from"] = info.origin.as_json() | {
            "imported_at": iso_time(info.origin.imported_at)
        }
    return value | {"agent": info.agent, "parent_id": info.parent_id} if info.agent else value


def mark_of(info: SessionInfo) -> str:
    """Whose session it is, where it is not the user's own work here; for lists."""
    if info.agent:
        return f"[{info.agent}] "
    return f"[from {wording.program(info.origin.format)}] " if info.origin is not None else ""


def iso_time(seconds: float) -> str:
    """Seconds since 1970 as ``2026-01-31T12:00:00.000Z``; what no calendar holds becomes 1970."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message_object(stored: StoredMessage) -> dict[str, Any]:
    """A message; ``is_summary`` and ``hidden_by`` only where a compaction is shown (CMP-3)."""
    message = stored.message
    value = {"seq": stored.seq, "role": _role(message), "content": _content(message)}
    if isinstance(message, UserMessage) and message.is_summary:
        value["is_summary"] = True
    if stored.hidden_by is not None:
        value["hidden_by"] = stored.hidden_by
    return value


def _role(message: Message) -> str:
    if isinstance(message, ToolResult):
        return "tool"
    return "assistant" if isinstance(message, AssistantMessage) else "user"


def _content(message: Message) -> list[dict[str, Any]]:
    blocks = [_block(part) for part in message.parts]
    if not isinstance(message, ToolResult):
        return blocks
    return [
        {
            "type": "tool_result",
            "tool_call_id": message.call_id,
            "name": message.name,
            "content": blocks,
            "is_error": message.is_error,
            "status": message.status.value,
        }
    ]


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ThinkingPart):
        block = {"type": "thinking", "text": part.text, "signature": part.signature}
        return block if part.redacted is None else {**block, "redacted": part.redacted}
    if isinstance(part, ImagePart):
        data = base64.b64encode(part.data).decode("ascii")
        if isinstance(part, DocumentPart):
            known = {"name": part.name, "text": part.text, "pages": part.pages}
            return {"type": "document", "media_type": part.media_type, "data": data, **known}
        return {"type": "image", "media_type": part.media_type, "data": data}
    call = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
    return call if part.malformed is None else {**call, "malformed": part.malformed}


def _run_object(run: ToolRun, cost: CallCost | None) -> Mapping[str, Any]:
    value = {
        "call_id": run.call_id,
        "name": run.name,
        "status": run.status.value,
        "started_at": None if run.started_at is None else iso_time(run.started_at),
        "finished_at": None if run.finished_at is None else iso_time(run.finished_at),
    }
    return value if cost is None else value | {"result_cost": cost_object(cost.result)}


def cost_object(cost: ResultCost) -> Mapping[str, Any]:
    """What results have cost; ``cost_usd`` is null where a part of it is unknown."""
    return {
        "added_tokens": cost.added_tokens,
        "again_requests": cost.again_requests,
        "again_cached_tokens": cost.again_cached_tokens,
        "again_uncached_tokens": cost.again_uncached_tokens,
        "added_usd": cost.added_usd,
        "again_usd": cost.again_usd,
        "known_cost_usd": cost.known_usd,
        "cost_usd": cost.cost_usd,
    }


def _usage_object(info: SessionInfo) -> Mapping[str, Any]:
    usage = info.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": info.cost_usd,
    }


# --- in reading order: each call with its result, notes in their places -----------------------


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
        arguments = " ".join(clean(" ".join(values)).split())
        if len(arguments) > SUMMARY_LENGTH:
            arguments = arguments[: SUMMARY_LENGTH - 1] + "…"
        status = self.result.status.value if self.result is not None else "no result"
        return " · ".join(filter(None, (self._name(arguments), status, self._duration())))

    def _name(self, arguments: str) -> str:
        return f"{clean(self.call.name)} {arguments}".strip()

    def _duration(self) -> str:
        run = self.run
        if run is None or run.started_at is None or run.finished_at is None:
            return ""
        return f"{max(0.0, run.finished_at - run.started_at):.1f} s"

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
        return clean(json.dumps(self.call.arguments, ensure_ascii=False, indent=2))


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One speaker's part of the transcript.

    ``remark`` says that it is no longer sent to the model, for a summary that it was taken back;
    empty otherwise (CMP-3).
    """

    speaker: str
    time: str
    items: tuple[TextPart | ThinkingPart | ImagePart | Exchange | Note, ...]
    remark: str = ""

    @property
    def heading(self) -> str:
        """Who and when: ``You · 2026-01-31 12:00 UTC · folded into a summary``."""
        return " · ".join(filter(None, (self.speaker, self.time, self.remark)))


def entries(session: LoadedSession) -> Iterator[TranscriptEntry]:
    """The transcript, oldest first."""
    results = {
        stored.message.call_id: stored.message
        for stored in session.messages
        if isinstance(stored.message, ToolResult)
    }
    notes = list(session.notes)
    yield from _notes_before(notes, 1)
    for index, stored in enumerate(session.messages):
        message = stored.message
        if not isinstance(message, ToolResult):
            items = tuple(
                _exchange(part, results, session.runs) if isinstance(part, ToolCall) else part
                for part in message.parts
            )
            yield TranscriptEntry(
                speaker_of(message), moment(stored.created_at), items, remark_of(stored)
            )
        is_last = index + 1 == len(session.messages)
        following = None if is_last else session.messages[index + 1].seq
        yield from _notes_before(notes, following)


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


def _exchange(
    call: ToolCall, results: Mapping[str, ToolResult], runs: Mapping[str, ToolRun]
) -> Exchange:
    return Exchange(call, results.get(call.id), runs.get(call.id))


def _notes_before(notes: list[Note], seq: int | None) -> Iterator[TranscriptEntry]:
    while notes and (seq is None or notes[0].after_seq < seq):
        note = notes.pop(0)
        yield TranscriptEntry("Note", moment(note.created_at), (note,))


def moment(seconds: float) -> str:
    """A time for people: ``2026-01-31 12:00 UTC``."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "unknown time"


def facts(session: LoadedSession) -> tuple[tuple[str, str], ...]:
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


# --- Markdown: readable as text, foldable tool calls where HTML is rendered -------------------


_BACKTICKS = re.compile(r"`{3,}")


def export_markdown(session: LoadedSession) -> str:
    """The whole session, ending in a line end."""
    title = " ".join(clean(session.info.title).split()) or "Session"
    blocks = [f"# {title}", "\n".join(f"- {name}: {value}" for name, value in facts(session))]
    for entry in entries(session):
        blocks.append(f"## {entry.heading}")
        for item in entry.items:
            blocks += _markdown_item(item)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _markdown_item(item: TextPart | ThinkingPart | ImagePart | Exchange | Note) -> Iterator[str]:
    if isinstance(item, TextPart):
        yield clean(item.text).strip()
    elif isinstance(item, ThinkingPart):
        text = clean(item.text).strip()
        if text:
            yield from _fold("Thinking", [_fence(text)])
    elif isinstance(item, ImagePart):
        yield _markdown_image(item)
    elif isinstance(item, Note):
        yield f"*{note_title(item)}*"
        yield _fence(clean(item.text))
    else:
        yield from _fold(item.summary, list(_markdown_exchange(item)))


def _markdown_exchange(item: Exchange) -> Iterator[str]:
    yield _fence(item.arguments, "json")
    if item.display:
        yield _fence(item.display, "diff")
    for part in item.result.parts if item.result is not None else ():
        yield (
            _markdown_image(part)
            if isinstance(part, ImagePart)
            else _fence(item.beside_display(part.text))
        )


def _fold(summary: str, blocks: list[str]) -> Iterator[str]:
    yield f"<details><summary>{escape(summary)}</summary>"
    yield from blocks
    yield "</details>"


def _fence(text: str, language: str = "") -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}{language}\n{text.rstrip()}\n{marks}"


def _markdown_image(image: ImagePart) -> str:
    if isinstance(image, DocumentPart):
        return f"*(document: {clean(image.name)}, {len(image.data):,} bytes)*"
    return f"*(image: {clean(image.media_type)}, {len(image.data):,} bytes)*"


# --- HTML: one page, no network, no script, tool calls that fold ------------------------------

# Law: every text is escaped; a content policy in the page forbids whatever was overlooked.


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SHOWN_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_INLINE = re.compile(
    r"(?<!`)(`{1,3})(?P<code>[^`\n]{1,500})\1(?!`)|\*\*(?P<bold>[^*\n]{1,500})\*\*"
)
_HEADING = re.compile(r"(#{1,6}) +(.+)")

_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --back: #fff; --dim: #59636e;
  --line: #d1d9e0; --code: #f6f8fa; --you: #ddf4ff; --add: #dafbe1; --cut: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --dim: #9198a1;
  --line: #3d444d; --code: #151b23; --you: #0c2d4d; --add: #12361f; --cut: #4a1a1f; } }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--back); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: .85rem; color: var(--dim); margin: 1.6rem 0 .3rem; }
h3 { font-size: 1.05rem; margin: .8rem 0 .3rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; }
dt { color: var(--dim); } dd { margin: 0; }
p, pre { margin: .4rem 0; white-space: pre-wrap; }
pre, code { font: .85rem/1.45 ui-monospace, monospace; background: var(--code);
  border-radius: 4px; }
pre { padding: .6rem .8rem; max-height: 40rem; overflow: auto; } code { padding: .1em .3em; }
pre code { padding: 0; }
.you { background: var(--you); border-radius: 8px; padding: .2rem .9rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: 0 .8rem; }
summary { cursor: pointer; padding: .35rem 0; font-size: .9rem; }
.failed > summary { border-left: 4px solid currentColor; padding-left: .5rem; }
.summary { border: 1px solid var(--line); border-radius: 8px; padding: .2rem .9rem; }
.folded { border-left: 4px dotted var(--line); padding-left: .8rem; }
.note { border-left: 4px solid var(--line); padding-left: .8rem; color: var(--dim); }
.add { background: var(--add); } .cut { background: var(--cut); }
img { max-width: 100%; }
"""


def export_html(session: LoadedSession) -> str:
    """The whole page."""
    title = escape(" ".join(clean(session.info.title).split()) or "Session")
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(session)
    )
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<header><h1>{title}</h1><dl>{rows}</dl></header><main>",
    ]
    for entry in entries(session):
        speaker = entry.speaker.lower()
        kind = f"{speaker} folded" if entry.remark else speaker
        lines.append(f'<section class="{kind}"><h2>{entry.heading}</h2>')
        for item in entry.items:
            lines += _html_item(item)
        lines.append("</section>")
    lines.append("</main></body></html>")
    return "\n".join(lines) + "\n"


def _html_item(item: TextPart | ThinkingPart | ImagePart | Exchange | Note) -> Iterator[str]:
    if isinstance(item, TextPart):
        yield from _prose(clean(item.text).strip("\n"))
    elif isinstance(item, ThinkingPart):
        if item.text.strip():
            text = escape(clean(item.text))
            yield f"<details><summary>Thinking</summary><p>{text}</p></details>"
    elif isinstance(item, ImagePart):
        yield _html_image(item)
    elif isinstance(item, Note):
        yield f'<div class="note"><p>{escape(note_title(item))}</p>{_pre(item.text)}</div>'
    else:
        yield from _html_exchange(item)


def _html_exchange(item: Exchange) -> Iterator[str]:
    failed = item.result is None or item.result.is_error
    kind = "tool failed" if failed else "tool"
    yield f'<details class="{kind}"><summary>{escape(item.summary)}</summary>'
    yield _pre(item.arguments)
    if item.display:
        yield _diff(item.display)
    for part in item.result.parts if item.result is not None else ():
        yield (
            _html_image(part)
            if isinstance(part, ImagePart)
            else _pre(item.beside_display(part.text))
        )
    yield "</details>"


def _pre(text: str) -> str:
    return f"<pre>{escape(clean(text))}</pre>"


def _diff(text: str) -> str:
    marks = {"+": "add", "-": "cut"}
    lines = []
    for line in text.splitlines():
        mark = marks.get(line[:1])
        shown = escape(line)
        lines.append(f'<span class="{mark}">{shown}</span>' if mark else shown)
    return "<pre>" + "\n".join(lines) + "</pre>"


def _html_image(image: ImagePart) -> str:
    if isinstance(image, DocumentPart):
        return f"<p>(document: {escape(clean(image.name))}, {len(image.data):,} bytes)</p>"
    if image.media_type not in _SHOWN_IMAGES:
        return f"<p>(image: {escape(clean(image.media_type))}, {len(image.data):,} bytes)</p>"
    data = base64.b64encode(image.data).decode("ascii")
    return f'<p><img alt="image" src="data:{image.media_type};base64,{data}"></p>'


def _prose(text: str) -> Iterator[str]:
    """Text with the Markdown that matters when reading: code, headings, bold."""
    plain: list[str] = []
    code: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip(" `~"):
                yield f"<pre><code>{escape(chr(10).join(code))}</code></pre>"
                fence = ""
            else:
                code.append(line)
        elif found:
            yield from _paragraph(plain)
            plain, code, fence = [], [], found[1]
        else:
            plain.append(line)
    if fence:
        yield f"<pre><code>{escape(chr(10).join(code))}</code></pre>"
    yield from _paragraph(plain)


def _paragraph(lines: list[str]) -> Iterator[str]:
    plain: list[str] = []
    for line in [*lines, "# "]:
        heading = _HEADING.fullmatch(line)
        if heading or line == "# ":
            text = "\n".join(plain).strip("\n")
            if text.strip():
                yield f"<p>{_inline(text)}</p>"
            plain = []
        if heading:
            yield f"<h3>{_inline(heading[2])}</h3>"
        else:
            plain.append(line)


def _inline(text: str) -> str:
    shown = []
    end = 0
    for found in _INLINE.finditer(text):
        shown.append(escape(text[end : found.start()]))
        tag, inner = ("code", found["code"]) if found["code"] else ("b", found["bold"])
        shown.append(f"<{tag}>{escape(inner)}</{tag}>")
        end = found.end()
    return "".join((*shown, escape(text[end:])))
