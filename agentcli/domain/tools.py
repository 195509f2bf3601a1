"""The tool port: what a tool is, what it may use and what it may return (TOOL-1, TOOL-2)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from agentcli.domain.cancel import CancelToken
from agentcli.domain.messages import ImagePart, ResultPart, ResultStatus, TextPart
from agentcli.domain.values import frozen, mutable

if TYPE_CHECKING:
    from agentcli.domain.background import Background, BackgroundSink
    from agentcli.domain.sandbox import Sandbox
    from agentcli.domain.subagents import SubAgents


class Effect(StrEnum):
    """What running a tool may change. READ calls of a batch run together (LOOP-4)."""

    READ = "read"
    WRITE = "write"
    EXEC = "exec"


@frozen
class ToolHints:
    """What a tool says of itself beyond its effect (TOOL-1)."""

    idempotent: bool = False
    destructive: bool = False
    open_world: bool = False
    background: bool = False


@frozen
class ToolDefinition:
    """A tool as the model, the policy and the screen know it.

    ``parameters`` is a JSON schema of an object. ``group`` is the capability it belongs to
    (TOOL-5). ``timeout_s`` of ``None`` means that the tool bounds itself.
    """

    name: str
    display_name: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect
    group: str
    hints: ToolHints = field(default_factory=ToolHints)
    timeout_s: float | None = 60.0
    always_ask: bool = False


class OutputKind(StrEnum):
    """Which of the kinds of result a tool returned (TOOL-2)."""

    SUCCESS = "success"
    TOOL_ERROR = "tool_error"
    INTERNAL_ERROR = "internal_error"
    CONNECTION_REQUIRED = "connection_required"
    CANCELLED = "cancelled"


@frozen
class ToolOutput:
    """What a tool returns. Build it with the constructors below.

    ``raw`` is kept in the session, shown on demand and never sent to the model (TOOL-3).
    ``display`` is for the person, for example a unified diff. ``cause`` goes to the log.
    ``ends_turn``: the model is not asked again in this turn (CTRL-2); ``answer`` is then what
    the turn answers with, if it is not what the model has said.
    """

    kind: OutputKind
    parts: tuple[ResultPart, ...]
    raw: bytes | None = None
    display: str = ""
    summary: str = ""
    cause: BaseException | None = None
    ends_turn: bool = False
    answer: str = ""

    @classmethod
    def text(
        cls, text: str, *, raw: bytes | None = None, display: str = "", summary: str = ""
    ) -> Self:
        """Success. An empty text is said to be empty, since providers refuse empty blocks."""
        shown = text if text.strip() else "(no output)"
        return cls(OutputKind.SUCCESS, (TextPart(shown),), raw, display, summary)

    @classmethod
    def json(cls, value: object, *, display: str = "", summary: str = "") -> Self:
        """Success with a JSON value, sent as compact JSON text."""
        encoded = json.dumps(value, ensure_ascii=False)
        return cls(OutputKind.SUCCESS, (TextPart(encoded),), None, display, summary)

    @classmethod
    def images(cls, text: str, images: Sequence[ImagePart], *, summary: str = "") -> Self:
        """Success with images, after a text that names them."""
        return cls(OutputKind.SUCCESS, (TextPart(text), *images), None, "", summary)

    @classmethod
    def error(
        cls, text: str, *, raw: bytes | None = None, display: str = "", summary: str = ""
    ) -> Self:
        """A failure that the model should know and may mend."""
        return cls(OutputKind.TOOL_ERROR, (TextPart(text),), raw, display, summary)

    @classmethod
    def internal_error(cls, cause: BaseException) -> Self:
        """A fault of ours: generic to the model, the chain to the log (LOOP-5)."""
        text = "The tool failed because of an internal error. It may not have taken effect."
        return cls(OutputKind.INTERNAL_ERROR, (TextPart(text),), cause=cause)

    @classmethod
    def connection_required(cls, provider: str) -> Self:
        """The user has to log in to ``provider`` first."""
        text = f"This tool needs a connection to {provider}. Ask the user to log in to {provider}."
        return cls(OutputKind.CONNECTION_REQUIRED, (TextPart(text),))

    @classmethod
    def cancelled(cls, output_so_far: str) -> Self:
        """The tool saw the cancel token and stopped; what it had printed is told (CAN-1)."""
        return cls(OutputKind.CANCELLED, (TextPart(output_so_far or "(no output)"),))


@frozen
class Workspace:
    """Where a session works: ``root`` bounds what is free to read, ``cwd`` resolves paths."""

    root: Path
    cwd: Path
    extra: tuple[Path, ...] = ()

    def resolve(self, path: str) -> Path:
        """``path`` made absolute against ``cwd``; ``~`` expanded; links not yet followed."""
        return self.cwd / Path(path).expanduser()

    def contains(self, path: Path) -> bool:
        """Whether ``path``, with all links followed, lies in the workspace (SEC-5)."""
        real = real_path(path)
        return any(real.is_relative_to(real_path(base)) for base in (self.root, *self.extra))


def real_path(path: Path) -> Path:
    """``path`` absolute and with all links followed; of links in a circle, as far as they go."""
    try:
        return Path(os.path.realpath(path))
    except OSError:  # a link that may not be read, such as another process's root in /proc
        return Path(os.path.abspath(path))  # noqa: PTH100 - pathlib's keeps ".."


class SessionState(Protocol):
    """Small JSON values kept in the session file, by key."""

    async def get(self, key: str) -> Any:
        """The value, or ``None``."""

    async def set(self, key: str, value: Any) -> None:
        """Store ``value`` durably."""


class RawOutputs(Protocol):
    """The whole output of earlier calls, where the model was sent a part (TOOL-6)."""

    async def read(self, call_id: str) -> bytes | None:
        """The raw output of that call, or ``None``."""


class Asker(Protocol):
    """Puts a question of the model to the person."""

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """The person's answer."""


class Plans(Protocol):
    """Puts a plan before the person who may approve it."""

    async def present(self, call_id: str, plan: str, cancel: CancelToken) -> ToolOutput:
        """The answer, for the model; approval ends plan mode."""


class FileKeeper(Protocol):
    """Remembers what files were before a call changes them (TT-1).

    Neither method fails a call: what cannot be kept is told to the person, once.
    """

    async def begin(self, call_id: str, effect: Effect, paths: Sequence[Path]) -> None:
        """A call that is no READ is about to run; ``paths`` are those that it names."""

    async def end(self, call_id: str) -> None:
        """It has run, or was stopped."""

    async def settled(self) -> None:
        """Return when all that has ended by now is stored."""


class BackgroundSwitch(Protocol):
    """Lets a running call go on as a background run when the person asks for it (UI-3)."""

    def offer(self, move: Callable[[BackgroundSink], None]) -> Callable[[], None]:
        """From now on the call can be moved: ``move`` is then called, once.

        It gets where the output goes from there on; what was printed before is put there first,
        time limits end. ``run`` then goes on; what it returns is the result of the run. Returns a
        function that takes the offer back.
        """


@mutable
class FileLedger:
    """What each file looked like when this session last read or wrote it (TOOL-8)."""

    seen: dict[Path, str] = field(default_factory=dict)


@mutable
class ToolContext:
    """What one call may use. ``ask`` is ``None`` where there is no person to ask.

    ``session_id`` says whose processes a call starts (CAN-11). ``sandbox`` limits its commands
    (SEC-7), ``background`` lets it start what outlives the turn (BG-1), ``to_background`` lets it
    go on there itself (UI-3); ``background`` and ``agents`` are made when they are called for.
    ``judged`` are the paths that the policy has judged, as the tool's ``paths`` told them: it opens
    no other (SEC-5); ``None`` where nothing was judged.
    """

    call_id: str
    workspace: Workspace
    cancel: CancelToken
    progress: Callable[[str], None]
    files: FileLedger
    state: SessionState
    outputs: RawOutputs
    ask: Asker | None = None
    session_id: str = ""
    plans: Plans | None = None
    agents: Callable[[], SubAgents] | None = None
    sandbox: Sandbox | None = None
    background: Callable[[], Background] | None = None
    to_background: BackgroundSwitch | None = None
    judged: tuple[Path, ...] | None = None


class Tool(Protocol):
    """A tool. ``args`` is whatever ``parse`` returned."""

    @property
    def definition(self) -> ToolDefinition:
        """Name, schema, effect and the rest."""

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """Validated arguments; raises ``InvalidArguments``."""

    def summary(self, args: Any) -> str:
        """How the call reads in one line: "Read src/app.py:1-80"."""

    def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
        """The files and directories that the call names, absolute; for the policy."""

    async def preview(self, args: Any, ctx: ToolContext) -> str:
        """What a person should see before saying yes: a diff, the command. May be empty."""

    async def run(self, args: Any, ctx: ToolContext) -> ToolOutput:
        """Do it. Failures are values; an exception is taken for a fault of ours."""


class BackgroundTool(Protocol):
    """What a tool with ``hints.background`` has beside ``Tool``.

    It may also have ``parse_background``, where other bounds hold for arguments than in a turn.
    """

    async def run_background(self, args: Any, ctx: ToolContext, sink: BackgroundSink) -> ToolOutput:
        """Do it to the end; ends within 2 s when ``ctx.cancel`` is set (BG-6)."""


class StandIn(Protocol):
    """What a tool has beside ``Tool`` that only has another one run: it is judged as that one."""

    def stands_for(self, args: Any) -> tuple[str, Mapping[str, Any]]:
        """The name and the arguments of what will run."""


class ToolBox(Protocol):
    """The tools of a turn; fixed while it runs (LOOP-3)."""

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """In the order in which they are shown to the model."""

    def get(self, name: str) -> Tool | None:
        """The tool, loaded if need be."""

    def near(self, name: str) -> tuple[str, ...]:
        """Names like ``name``, best first (TOOL-4)."""


def status_of(output: ToolOutput) -> ResultStatus:
    """The result status that an output amounts to."""
    return _STATUS_OF_KIND[output.kind]


_STATUS_OF_KIND = {
    OutputKind.SUCCESS: ResultStatus.OK,
    OutputKind.TOOL_ERROR: ResultStatus.ERROR,
    OutputKind.INTERNAL_ERROR: ResultStatus.ERROR,
    OutputKind.CONNECTION_REQUIRED: ResultStatus.ERROR,
    OutputKind.CANCELLED: ResultStatus.CANCELLED,
}
