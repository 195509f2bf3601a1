"""A conversation as it was found elsewhere, and what the history law makes of it.

Laws. What comes out of ``lawful`` can be continued with any provider: each call has one result,
right after it, ids are unique, nothing is empty. A call whose result is not there gets the one that
``repair_results`` gives after a crash. The name of a new session follows from what was read, so
that one and the same file has one and the same name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentcli.domain.clean import clean_id, digest
from agentcli.domain.history import RepairReason, repair_results
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.session import session_id_at
from agentcli.domain.values import frozen, mutable
from agentcli.store.imports.reading import LeftOut, Record, Source

MAX_TURNS_BACK = 300


@mutable
class DraftMessage:
    """A message of another program. ``at`` is in seconds since 1970, 0 where that is unknown.

    ``hidden_by`` is the summary that stands for it; ``taken_back`` says that it is no longer part
    of the conversation. ``usage``, ``cost_usd`` and ``model`` are of the request that it answered.
    """

    message: Message
    at: float = 0.0
    hidden_by: DraftMessage | None = None
    taken_back: bool = False
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    model: str = ""


@mutable
class DraftSession:
    """What was found. ``format`` is the program's short name, ``id`` what it is called there.

    ``usage`` and ``cost_usd`` are what is known of it as a whole only. ``agents`` are its
    sub-agents' sessions, each with the agent's name and the call that began it; ``run_times`` when
    calls began and ended; ``notes`` what has no place in the conversation.
    """

    format: str
    id: str = ""
    title: str = ""
    cwd: str = ""
    model: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    messages: list[DraftMessage] = field(default_factory=list)
    agents: list[tuple[str, str, DraftSession]] = field(default_factory=list)
    run_times: dict[str, tuple[float, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    left_out: LeftOut = field(default_factory=LeftOut)
    digest: str = ""
    turns_back: int = 0

    def may_go_back(self) -> bool:
        """Whether one more compaction or roll-back is taken: each looks through all before it."""
        self.turns_back += 1
        if self.turns_back > MAX_TURNS_BACK:
            what = f"compaction or roll-back beyond the first {MAX_TURNS_BACK}"
            self.left_out[what] += 1
        return self.turns_back <= MAX_TURNS_BACK

    def take_back_from(self, first: DraftMessage | None) -> None:
        """What was said from ``first`` on is no longer part of the conversation."""
        at = next((n for n, each in enumerate(self.messages) if each is first), None)
        for each in self.messages[at:] if at is not None else ():
            each.taken_back = True

    def fold_into(self, summary: DraftMessage, kept: Sequence[DraftMessage] = ()) -> None:
        """Add ``summary``, which stands for all before it but ``kept``."""
        stays = {id(each) for each in kept}
        for each in self.messages:
            if each.hidden_by is None and not each.taken_back and id(each) not in stays:
                each.hidden_by = summary
        self.messages.append(summary)


@frozen
class SessionFormat:
    """A format of files. ``recognizes`` gets one of the first lines, or the whole document.

    It is read by ``records``, line by line, with the path of the file if there is one, or by
    ``document``, as one value. Both may raise ``UsageError``.
    """

    recognizes: Callable[[Mapping[str, Any]], bool]
    records: Callable[[Source, Path | None], DraftSession] | None = None
    document: Callable[[Record, Source], DraftSession] | None = None


def user_message(parts: Sequence[Any], *, is_summary: bool = False) -> UserMessage:
    """``parts`` without blank text."""
    kept = (each for each in parts if not (isinstance(each, TextPart) and not each.text.strip()))
    return UserMessage(tuple(kept), is_summary)


def assistant_message(parts: Sequence[Any]) -> AssistantMessage:
    """``parts`` as a reply that nobody signed: what a provider has signed stays with it (HIS-4)."""
    kept: list[Any] = []
    for each in parts:
        if isinstance(each, ThinkingPart):
            each = ThinkingPart(each.text)  # noqa: PLW2901 - without its proof of origin
        if isinstance(each, ToolCall) or each.text.strip():
            kept.append(each)
    return AssistantMessage(tuple(kept))


def result_of(call_id: str, name: str, parts: Sequence[Any], **more: Any) -> ToolResult:
    """A result, which has at least one part."""
    return ToolResult(call_id, name, tuple(parts) or (TextPart("(no output)"),), **more)


def lawful(draft: DraftSession) -> list[DraftMessage]:
    """The messages in the order of the law; what has no place in it is counted as left out."""
    results: dict[str, deque[DraftMessage]] = {}
    for each in draft.messages:
        if isinstance(each.message, ToolResult):
            results.setdefault(each.message.call_id, deque()).append(each)
    used: dict[str, int] = {}
    found: list[DraftMessage] = []
    for each in draft.messages:
        message = each.message
        if isinstance(message, ToolResult) or not message.parts:
            continue
        if isinstance(message, AssistantMessage) and message.tool_calls:
            found += _exchange(each, message, results, used)
        else:
            found.append(each)
    for orphan in (each.message for queue in results.values() for each in queue):
        draft.left_out["tool result without its call, kept as a note"] += 1
        text = orphan.text if isinstance(orphan, ToolResult) else ""
        draft.notes.append(f"The result of a call that is not there:\n{text}")
    last = draft.created_at
    for each in found:
        each.at = last = each.at or last
    shown = {id(each) for each in found}
    for each in found:
        if each.hidden_by is not None and id(each.hidden_by) not in shown:
            each.hidden_by = None
    return found


def _exchange(
    asked: DraftMessage,
    message: AssistantMessage,
    results: dict[str, deque[DraftMessage]],
    used: dict[str, int],
) -> Iterator[DraftMessage]:
    """A message with calls, each under an id of its own, and their results."""
    parts: list[Any] = []
    answers: list[DraftMessage] = []
    for part in message.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
            continue
        queue = results.get(part.id)
        result = queue.popleft() if queue else None
        call = replace(part, id=_free_id(part.id, used))
        parts.append(call)
        if result is None or not isinstance(result.message, ToolResult):
            (repaired,) = repair_results((call,), {}, RepairReason.CRASHED)
            result = DraftMessage(repaired, asked.at)
        else:
            known = replace(result.message, call_id=call.id, name=call.name)
            result = replace(result, message=known, at=result.at or asked.at)
        answers.append(replace(result, hidden_by=asked.hidden_by, taken_back=asked.taken_back))
    asked.message = replace(message, parts=tuple(parts))
    yield asked
    yield from answers


def _free_id(wanted: str, used: dict[str, int]) -> str:
    """An id that no other call has; ``used`` has, by each that was given, the next number."""
    name = clean_id(wanted) if wanted else "call"
    free, number = name, used.get(name, 2)
    while free in used or free == "call":
        free = f"{name[:48]}-{digest(wanted, 6)}-{number}"
        number += 1
    used[free], used[name] = 2, number
    return free


def session_id_of(draft: DraftSession, part: str = "") -> str:
    """The name of the session that ``draft`` becomes; ``part`` tells its sub-agents apart."""
    known = f"{draft.format}\0{draft.id}\0{draft.digest}\0{part}"
    noise = sha256(known.encode("utf-8", "surrogatepass")).digest()
    return session_id_at(int(draft.created_at * 1000), noise)
