"""A session as seen from outside its file: for lists, resume, export and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from agentcli.domain.errors import SessionTooNew, StoreError
from agentcli.domain.history import History
from agentcli.domain.messages import Message, ToolResult, Usage, UserMessage
from agentcli.domain.ports import ToolRun
from agentcli.domain.values import frozen

AFTER_ALL = float("inf"), ""
"""A time and an id that come after those of every session."""


def session_id_at(milliseconds: int, noise: bytes) -> str:
    """A UUID of version 7: sorts by time of creation (RFC 9562, 5.7). ``noise``: 10 bytes."""
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(noise[:10])
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class SessionStatus(StrEnum):
    """How the last turn stands. ``RUNNING`` with a dead owner is reported as ``CRASHED``.

    ``DAMAGED`` is never stored: lists use it for a file that cannot be read.
    """

    NEW = "new"
    RUNNING = "running"
    DONE = "done"
    LIMIT = "limit"
    CANCELLED = "cancelled"
    FAILED = "failed"
    CRASHED = "crashed"
    DAMAGED = "damaged"

    @property
    def interrupted(self) -> bool:
        """Whether ``agent`` in that directory should take the session up again (REC-4)."""
        return self in {SessionStatus.CANCELLED, SessionStatus.FAILED, SessionStatus.CRASHED}


@frozen
class Origin:
    """Where an imported session comes from, as its file said (CLI-8).

    ``format`` is ``claude``, ``codex``, ``opencode`` or ``agentcli``; ``id``, ``cwd`` and ``model``
    are what it was called, where it was held and who answered there. ``imported_at`` is in seconds
    since 1970.
    """

    format: str
    id: str
    cwd: str = ""
    model: str = ""
    imported_at: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """As it is kept; ``from_json`` reads it again."""
        return {name: getattr(self, name) for name in Origin.__dataclass_fields__}

    @classmethod
    def from_json(cls, value: object) -> Origin | None:
        """What ``as_json`` gave; ``None`` where somebody else has written it."""
        if not isinstance(value, dict):
            return None
        texts = [value.get(name) for name in ("format", "id", "cwd", "model")]
        at = value.get("imported_at")
        if not (all(isinstance(text, str) for text in texts) and isinstance(at, int | float)):
            return None
        name, session_id, cwd, model = map(str, texts)
        return cls(name, session_id, cwd, model, float(at))


@frozen
class SessionInfo:
    """One line of a list of sessions. Times are seconds since 1970, UTC.

    ``agent`` is empty for what a user began: lists leave out the others. It is the name of a
    sub-agent, which works for the session ``parent_id``, or says that it is a task's of a batch,
    which has no parent. ``origin`` says where an imported one comes from.
    """

    id: str
    title: str
    cwd: str
    created_at: float
    updated_at: float
    status: SessionStatus
    turns: int
    model: str
    detail: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    parent_id: str | None = None
    agent: str = ""
    origin: Origin | None = None

    @property
    def is_subagent(self) -> bool:
        """Whether what it did is a part of what its parent did."""
        return bool(self.agent) and self.parent_id is not None


@frozen
class StoredMessage:
    """A message with its place and time.

    ``hidden_by`` is the seq of the summary that stands for it; a summary that was taken back is
    hidden by itself (CMP-3).
    """

    seq: int
    created_at: float
    message: Message
    hidden_by: int | None = None


@frozen
class Note:
    """Something to show at ``after_seq`` that is not part of the history (CAN-5)."""

    after_seq: int
    created_at: float
    kind: str
    text: str


@frozen
class SessionPage:
    """Some messages of a session in the order in which they came, for showing (UI-12).

    ``notes`` and ``runs`` are those of the messages. What was taken back is left out, what a
    compaction folded is there.
    """

    messages: tuple[StoredMessage, ...] = ()
    notes: tuple[Note, ...] = ()
    runs: Mapping[str, ToolRun] = field(default_factory=dict)


class NewestUnreadable(StoreError):
    """The session last used in a directory cannot be read (REC-7); ``cause`` says why.

    ``older`` is the newest one that can be: nothing goes on in it unless the user says so.
    ``is_known_here`` is false where the file does not even give its directory.
    """

    def __init__(
        self,
        session_id: str,
        cause: StoreError,
        older: SessionInfo | None,
        *,
        is_known_here: bool = True,
    ) -> None:
        self.session_id = session_id
        self.is_known_here = is_known_here
        self.older = older
        self.can_repair = not isinstance(cause, SessionTooNew)
        ways = [f"repair it: agent sessions repair {session_id}"] if self.can_repair else []
        if older is not None:
            ways.append(f"go on in the older one: agent --session {older.id}")
        what = f"the newest session here cannot be continued: {cause.message}"
        super().__init__(what, "; ".join([*ways, "or begin another: agent --new"]))


@frozen
class KeptEvent:
    """An event as it was kept. ``at`` is in seconds since 1970, UTC; ``data`` is plain JSON.

    Neighbouring pieces of text, thinking or tool output are one event.
    """

    at: float
    type: str
    data: Mapping[str, Any]


class SessionSource(Protocol):
    """A session to be shown or exported, which need not be held: each pass may read it again."""

    @property
    def info(self) -> SessionInfo:
        """Its line in a list."""

    @property
    def messages(self) -> Iterable[StoredMessage]:
        """All of them in the order in which they came."""

    @property
    def said(self) -> Iterable[StoredMessage]:
        """The same without the results of tools."""

    @property
    def notes(self) -> Iterable[Note]:
        """In their order."""

    @property
    def tool_runs(self) -> Iterable[ToolRun]:
        """The rows of all calls."""

    @property
    def run_of(self) -> Callable[[str], ToolRun | None]:
        """The row of the call with that id."""

    @property
    def result_of(self) -> Callable[[str], ToolResult | None]:
        """What the call with that id came to."""


@frozen
class LoadedSession:
    """All that a session file holds for going on, showing or exporting (``SessionSource``)."""

    info: SessionInfo
    messages: tuple[StoredMessage, ...]
    notes: tuple[Note, ...] = ()
    runs: Mapping[str, ToolRun] = field(default_factory=dict)

    @property
    def said(self) -> Iterable[StoredMessage]:
        """See ``SessionSource``."""
        return (each for each in self.messages if not isinstance(each.message, ToolResult))

    @property
    def tool_runs(self) -> Iterable[ToolRun]:
        """See ``SessionSource``."""
        return self.runs.values()

    @property
    def run_of(self) -> Callable[[str], ToolRun | None]:
        """See ``SessionSource``."""
        return self.runs.get

    @property
    def result_of(self) -> Callable[[str], ToolResult | None]:
        """See ``SessionSource``."""
        messages = (stored.message for stored in self.messages)
        return {each.call_id: each for each in messages if isinstance(each, ToolResult)}.get

    def history(self) -> History:
        """The messages to send, under the law; raises ``HistoryViolation``.

        Only of a session that was loaded without what is hidden.
        """
        first = self.messages[0] if self.messages else None
        folded_at = 0
        if first is not None and isinstance(first.message, UserMessage):
            folded_at = first.seq if first.message.is_summary else 0
        return History(
            (stored.message for stored in self.messages),
            used_ids=self.runs,
            unlike_before=sum(stored.seq <= folded_at for stored in self.messages),
        )
