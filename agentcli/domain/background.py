"""Background runs: what a call leaves going when it returns, and what outlives a turn (BG-1..9).

Laws: the row in the session file is the truth; each update carries the attempt it belongs to, and
one of a stale attempt changes nothing (BG-3); what is only watched may fail without failing the
run (FAIL-2); nothing runs in the background that its tool would not have been allowed to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.domain.cancel import CancelToken
    from agentcli.domain.sandbox import Access


MAX_ACTIVE_PER_SESSION = 5
MAX_ACTIVE_PER_PROCESS = 64
MAX_LOG_CHARS = 262_144
HEARTBEAT_S = 2.0
MAX_SCHEDULES = 20


class TaskState(StrEnum):
    """How a background run stands; all but the first two are for ever.

    ``NEEDS_INPUT``: it goes on when its question is answered (BG-9).
    """

    RUNNING = "running"
    NEEDS_INPUT = "needs_input"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class Wake(StrEnum):
    """What of a run makes an idle chat react (BG-9).

    Nothing, its end, or also what it reports and asks on its way.
    """

    SILENT = "silent"
    COMPLETION = "completion"
    MESSAGE = "message"


ACTIVE_STATES = frozenset({TaskState.RUNNING, TaskState.NEEDS_INPUT})


@frozen
class TaskQuestion:
    """What a run asks the user. ``answer`` is what it was told, ``None`` while it waits.

    ``waiting`` is an answer in the session file that has not reached the run yet.
    """

    text: str
    options: tuple[str, ...] = ()
    answer: str | None = None
    waiting: str | None = None


@frozen
class TaskProgress:
    """How far a run is; ``total`` is ``None`` where nobody knows."""

    current: float
    total: float | None = None
    unit: str = ""
    label: str = ""


@frozen
class BackgroundTask:
    """A row of the task registry (BG-3). Times are seconds since 1970, UTC.

    ``run_id`` is ``bg_`` and a UUIDv7 in hex. ``pid`` and ``pid_started`` (the kernel's start time
    of that process) find what a crash has left (BG-7). ``announced_at``: when the session was told
    of the end; ``signals``: whether it is to be told. ``is_repeatable``: doing it twice is doing it
    once, and ``arguments`` are stored as they were given. ``task_id`` is the same for all runs of
    one schedule. ``question`` is what the run has asked last.
    """

    run_id: str
    task_id: str
    tool: str
    arguments: Mapping[str, Any]
    title: str
    state: TaskState
    created_at: float
    updated_at: float
    attempt: int = 1
    detail: str = ""
    progress: TaskProgress | None = None
    summary: str = ""
    log_path: str = ""
    result_path: str = ""
    error_kind: str = ""
    error_message: str = ""
    heartbeat_at: float | None = None
    finished_at: float | None = None
    cancel_requested_at: float | None = None
    signals: bool = True
    announced_at: float | None = None
    schedule_id: str = ""
    pid: int | None = None
    pid_started: str = ""
    is_repeatable: bool = False
    question: TaskQuestion | None = None
    wake: Wake = Wake.COMPLETION

    @property
    def is_active(self) -> bool:
        """Whether it takes one of the places (BG-2)."""
        return self.state in ACTIVE_STATES

    @property
    def asks(self) -> TaskQuestion | None:
        """What it asks the user now (BG-9)."""
        return self.question if self.state is TaskState.NEEDS_INPUT else None

    @property
    def wakes_on_end(self) -> bool:
        """Whether an idle chat reacts to its end."""
        return self.wake is not Wake.SILENT

    @property
    def wakes_on_message(self) -> bool:
        """Whether an idle chat reacts to what it reports and asks on its way."""
        return self.wake is Wake.MESSAGE


@frozen
class Schedule:
    """When a run starts (BG-8): one of ``cron_expression`` (5 fields) and ``scheduled_at``.

    ``next_at`` is in seconds since 1970; ``None`` when it will not start again. ``approved`` is
    what the user has said yes to beyond the run itself: a rule that asks, a protected place; and
    whether it was to run in the sandbox.
    ``root`` is the workspace that it was said for. ``cwd`` is where the session's shell was when a
    command was planned: there it runs.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    title: str
    created_at: float
    cron_expression: str | None = None
    scheduled_at: str | None = None
    time_zone: str = "UTC"
    next_at: float | None = None
    is_active: bool = True
    signals: bool = True
    wake: Wake = Wake.COMPLETION
    approved: str = ""
    root: str = ""
    cwd: str = ""


@frozen
class Beat:
    """What is known of a run at a heartbeat; it counts for ``attempt`` only (BG-3)."""

    run_id: str
    attempt: int
    detail: str = ""
    progress: TaskProgress | None = None
    pid: int | None = None
    pid_started: str = ""


@frozen
class TaskEnd:
    """How a run has ended. ``message`` is what the session is told of it; empty for nothing."""

    run_id: str
    attempt: int
    state: TaskState
    summary: str = ""
    error_kind: str = ""
    error_message: str = ""
    message: str = ""


@frozen
class SpawnWish:
    """What ``spawn_background`` asks for. ``schedule`` is as the model gave it, unchecked.

    ``judged`` are the paths that the policy has judged, ``access`` is where it lets a command run;
    ``None`` where nothing was judged. ``approved``: the user has said yes to this very call.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    schedule: object = None
    signals: bool = True
    wake: Wake = Wake.COMPLETION
    judged: tuple[Path, ...] | None = None
    access: Access | None = None
    approved: bool = True


@frozen
class Spawned:
    """What came of a wish: a run that is under way, or a schedule (then ``run_id`` is empty).

    ``number`` is what the user calls the run by.
    """

    run_id: str = ""
    task_id: str = ""
    log_path: str = ""
    result_path: str = ""
    schedule: Schedule | None = None
    number: int = 0


@frozen
class TaskOutput:
    """A page of a run's log. ``next_offset`` (characters) is ``None`` at the end of a finished one.

    ``size`` is what the log has so far, in characters.
    """

    task: BackgroundTask
    text: str
    offset: int
    next_offset: int | None
    size: int


class BackgroundRefused(Exception):
    """The run cannot be started; the text is for the model: what is wrong and what to do."""


class PlacesTaken(BackgroundRefused):
    """As many runs are active as there may be (BG-2); it passes."""


class BackgroundSink(Protocol):
    """Where a run puts what it has to tell; never raises, never blocks (FAIL-2)."""

    def output(self, text: str) -> bool:
        """More for ``output.log``; false once that is full (BG-4): more is only counted."""

    def progress(self, progress: TaskProgress) -> None:
        """How far it is."""

    def detail(self, text: str) -> None:
        """What it does now, in a line."""

    def process(self, pid: int) -> None:
        """The process that does the work, for finding it after a crash (BG-7)."""


class Background(Protocol):
    """The background runs of one session."""

    async def spawn(self, wish: SpawnWish) -> Spawned:
        """Start a run, or put down its schedule. Raises ``BackgroundRefused``."""

    def tasks(self) -> Sequence[BackgroundTask]:
        """All runs that the session knows of, oldest first."""

    def schedules(self) -> Sequence[Schedule]:
        """The schedules that can still start something."""

    async def output(
        self, run_id: str, offset: int, limit: int, wait_s: float, cancel: CancelToken
    ) -> TaskOutput:
        """A page of the log, waiting up to ``wait_s`` for more or for the end.

        Raises ``BackgroundRefused`` for an unknown id.
        """

    async def cancel(self, run_id: str) -> BackgroundTask | Schedule:
        """Ask a run to end, or end a schedule. Raises ``BackgroundRefused`` for an unknown id."""

    async def answer(self, run_id: str, text: str) -> BackgroundTask:
        """Answer what a run asks (BG-9); the run as it goes on.

        Raises ``BackgroundRefused`` for an unknown id, an empty text and a run that asks nothing.
        """


class Scheduler(Protocol):
    """What keeps the schedules of one session and starts what is due (BG-8)."""

    def begin(self) -> None:
        """Wait for what is due next, if anything will be."""

    async def put(self, wish: SpawnWish) -> Schedule:
        """A new schedule for ``wish``. Raises ``BackgroundRefused``."""

    def schedules(self) -> Sequence[Schedule]:
        """Those that can still start something."""

    async def cancel(self, schedule_id: str) -> Schedule | None:
        """End a schedule; ``None`` when there is no such one."""

    async def aclose(self) -> None:
        """Start nothing any more."""
