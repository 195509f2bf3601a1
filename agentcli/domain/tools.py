"""The tool port: what a tool is, what it may use and what it may return (TOOL-1, TOOL-2)."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from dataclasses import fields as fields_of
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from agentcli.domain.cancel import CancelToken
from agentcli.domain.files import real_text
from agentcli.domain.messages import ImagePart, ResultPart, ResultStatus, TextPart
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen, mutable

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundSink
    from agentcli.domain.extensions.mcp import ServerFacts, ServerPrompt, ServerTool


PREFIX = "mcp__"
"""What the names of tools of MCP servers begin with: ``mcp__SERVER__TOOL`` (MCP-4)."""
_MOST_LINKS = 100  # more than a kernel follows


class Asks(StrEnum):
    """What the user is asked about before a call runs in mode ``default``: what the judge goes by.

    ``NOTHING``: it changes nothing outside of its session. ``HOST``: nor does this, but it reads
    what a host elsewhere says. ``SESSION``: as ``HOST``, and a yes holds for the session. ``EDIT``:
    it changes the files that it names, which mode ``accept-edits`` lets it. ``ANYTHING``: what it
    may change cannot be told.
    """

    NOTHING = "nothing"
    HOST = "host"
    SESSION = "session"
    EDIT = "edit"
    ANYTHING = "anything"


@frozen
class ToolHints:
    """What else a tool says of itself (TOOL-1)."""

    idempotent: bool = False
    destructive: bool = False
    open_world: bool = False
    background: bool = False


@frozen
class ToolDefinition:
    """A tool as the model, the policy and the screen know it.

    ``parameters`` is a JSON schema of an object. ``group`` is the capability it belongs to
    (TOOL-5). ``timeout_s`` of ``None`` means that the tool bounds itself. ``always_ask``: no mode
    and no rule frees a call of it. ``concurrent``: neighbouring calls run together (LOOP-4).
    ``whole_name`` is what a server calls it where ``name`` is cut or changed: rules know both.
    """

    name: str
    display_name: str
    description: str
    parameters: Mapping[str, Any]
    asks: Asks
    group: str
    hints: ToolHints = field(default_factory=ToolHints)
    timeout_s: float | None = 60.0
    always_ask: bool = False
    concurrent: bool = False
    whole_name: str = ""

    @property
    def only_reads(self) -> bool:
        """Whether it changes nothing outside of its session."""
        return self.asks in {Asks.NOTHING, Asks.HOST, Asks.SESSION}


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
    ``display`` is for the user, for example a unified diff. ``cause`` goes to the log.
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
        """A failure that the model should know and may correct."""
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
    """Where a session works: ``root`` bounds what is free to read, ``cwd`` resolves paths.

    ``journals`` is where changes under way are noted, for a start after a kill to clear away.
    ``led`` is where ``root`` and each of ``extra`` led when it was first named: what has been put
    in its place since leads nowhere (SEC-5).
    """

    root: Path
    cwd: Path
    extra: tuple[Path, ...] = ()
    journals: Path | None = None
    led: tuple[tuple[Path, Path], ...] = ()

    def __post_init__(self) -> None:
        known = dict(self.led)
        names = dict.fromkeys((self.root, *self.extra))
        led = tuple((name, known.get(name) or real_path(name)) for name in names)
        object.__setattr__(self, "led", led)

    @property
    def real_root(self) -> Path:
        """Where ``root`` led."""
        return self.led[0][1]

    def resolve(self, path: str) -> Path:
        """``path`` made absolute against ``cwd``; ``~`` expanded; links not yet followed."""
        return self.cwd / Path(path).expanduser()

    def contains(self, path: Path) -> bool:
        """Whether ``path``, with all links followed, lies in the workspace (SEC-5).

        What a link of ``/proc`` leads to does not: it is another place for each process.
        """
        real = real_path(path)
        is_in = any(real.is_relative_to(base) for _, base in self.led)
        return is_in and (str(real) == os.path.normpath(path) or not _is_by_process(path))


def real_path(path: Path) -> Path:
    """``path`` absolute and with all links followed; of links in a circle, as far as they go."""
    return Path(real_text(str(path)))


def _is_by_process(path: Path) -> bool:
    """Whether the way to ``path``, which is absolute, leads through ``/proc``."""
    place, left = "/", _MOST_LINKS
    waiting = list(reversed(path.parts))
    while waiting and left:
        place = os.path.normpath(os.path.join(place, waiting.pop()))  # noqa: PTH118 - text
        if place == "/proc":
            return True
        with contextlib.suppress(OSError):
            waiting += reversed(Path(os.readlink(place)).parts)  # noqa: PTH115 - text
            place = os.path.dirname(place)  # noqa: PTH120 - text
            left -= 1
    return not left


class McpServers(Protocol):
    """The servers of one session, made when they are first needed."""

    @property
    def names(self) -> tuple[str, ...]:
        """In the order in which they are configured."""

    def begin(self) -> None:
        """Start them in the background; only the first call does anything."""

    def facts(self) -> Sequence[ServerFacts]:
        """All of them, as they stand."""

    def tool(self, wanted: str) -> ServerTool | None:
        """The tool of that whole name (the server's own name for it may stand in it).

        Before its server is ready it may turn out not to exist.
        """

    def full_name(self, server: str, tool: str) -> str:
        """What ``tool`` of ``server`` is called here; empty for a server that is not there."""

    async def tools(
        self, cancel: CancelToken, progress: Callable[[str], None], within_s: float | None = None
    ) -> Sequence[str]:
        """Wait for the tools of all servers; a line for each server that cannot be used."""

    async def call(
        self,
        tool: ServerTool,
        arguments: Mapping[str, Any],
        cancel: CancelToken,
        progress: Callable[[str], None],
    ) -> ToolOutput:
        """What the tool returned, not yet bounded.

        Raises ``McpError``. Once ``cancel`` is set it returns soon, with a ``CANCELLED`` output.
        """

    async def read(self, server: str, uri: str, cancel: CancelToken) -> Sequence[ResultPart]:
        """A resource as parts of a message. Raises ``McpError``."""

    async def prompt(
        self, prompt: ServerPrompt, arguments: Mapping[str, str], cancel: CancelToken
    ) -> Sequence[ResultPart]:
        """The text (and images) of a prompt. Raises ``McpError``."""

    async def restart(self, server: str, cancel: CancelToken) -> None:
        """Stop it and start it again; raises ``McpError`` when it does not come up.

        Raises ``TurnCancelled`` once ``cancel`` is set: it goes on starting.
        """

    async def aclose(self) -> None:
        """End all of them. May be called again."""


class Asker(Protocol):
    """Puts a question of the model to the user."""

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """The user's answer."""


class FileKeeper(Protocol):
    """Remembers what files were before a call changes them (TT-1).

    Neither method fails a call: what cannot be kept is told to the user, once.
    """

    async def begin(self, call_id: str, paths: Sequence[Path]) -> None:
        """A call that may change files is about to run; ``paths`` are those that it names."""

    async def end(self, call_id: str) -> None:
        """It has run, or was stopped."""

    async def settled(self) -> None:
        """Return when all that has ended by now is stored."""


class BackgroundSwitch(Protocol):
    """Lets a running call go on as a background run when the user asks for it (UI-3)."""

    def offer(self, move: Callable[[BackgroundSink], None]) -> Callable[[], None]:
        """From now on the call can be moved: ``move`` is then called, once.

        It gets where the output goes from there on; what was printed before is put there first,
        time limits end. ``run`` then goes on; what it returns is the result of the run. Returns a
        function that takes the offer back.
        """


class EditorFiles(Protocol):
    """Files as the user's editor has them open (ACP-1)."""

    async def read(self, path: Path) -> str | None:
        """The text, unsaved changes included; ``None`` where the editor does not say."""


@mutable
class FileLedger:
    """What each file looked like when this session last read or wrote it (TOOL-8).

    ``sha256:`` and the digest of its content, where that was read or written whole.
    """

    seen: dict[Path, str] = field(default_factory=dict)


@frozen
class RunIdentity:
    """Whose work it is: the session, the run (one turn of it), and for a sub-agent its parent.

    All three are ids; ``parent_id`` is that of the session that it works for, else empty (CTRL-9).
    """

    session_id: str = ""
    run_id: str = ""
    parent_id: str = ""


@frozen
class ToolContext:
    """What every call gets; what else a tool needs of its session it declares.

    Its ``context`` is then a class of its own, with a field for each port::

        @frozen
        class AskContext(ToolContext):
            ask: Asker


        class AskTool(BaseTool[AskArguments]):
            context = AskContext

            async def run(self, args: AskArguments, ctx: AskContext) -> ToolOutput: ...

    A call gets the ports that its tool declares and no other. Where the session lacks one, the
    call is answered with an error that says so, unless the field may be ``None``. The ports are:

    - ``ask: Asker``, ``plans: Plans``, ``agents: SubAgents``, ``background: Background``
    - ``state: SessionState``, ``outputs: RawOutputs``, ``files: FileLedger``
    - ``sandbox: Sandbox | None``: what limits its commands (SEC-7)
    - ``to_background: BackgroundSwitch | None``: with it the call goes on there itself (UI-3)
    - ``session_id: str``: whose processes it starts (CAN-11)
    - ``codemap: CodeMap``: who uses what in the project (MEM-3)
    - ``search: WebSearch``: what searches the web (EXT-8)
    - ``editor: EditorFiles | None``: files as an editor has them open
    - ``servers: McpServers | None``: the MCP servers of the session (MCP-4)
    - ``memory: ProjectMemory``: what is known of the project (MEM-1)
    - ``toolbox: ToolBox``: all of its tools
    - ``run: RunIdentity``: whose work it is (CTRL-9)
    - ``judged: tuple[Path, ...] | None``: the paths that the policy has judged, as ``paths`` told
      them; the call opens no other (SEC-5). ``None`` where nothing was judged.
    - ``access: Access | None``: where the policy lets its command run; ``None`` as ``judged``
    - ``approved: bool``: the user was asked about this very call, and said yes
    """

    call_id: str
    workspace: Workspace
    cancel: CancelToken
    progress: Callable[[str], None]


@frozen
class RunContext(ToolContext):
    """For a tool that wants to know whose work it does."""

    run: RunIdentity


class WouldFail(Exception):
    """A call would change nothing and fail now; the text is the result that the model gets."""


class PortMissing(Exception):
    """A tool declares a port that its session does not have; the text is for the model."""

    def __init__(self, name: str) -> None:
        super().__init__(_WITHOUT.get(name, f"This session has no {name}, which the tool needs."))


_MAY_LACK = LazyPattern(r"\bNone\b|\bOptional\b")
_WITHOUT = {
    "agents": "There are no sub-agents in this run. Do it yourself.",
    "ask": "Nobody can be asked in this run. Decide yourself, and say in your answer what you "
    "assumed.",
    "background": "There are no background runs here. Call the tool directly.",
    "memory": "The project's memory is not written here. Say in your answer what should be kept.",
    "plans": "Nobody looks at plans in this run. Answer with the plan.",
}


def context_for(tool: Tool, call: ToolContext, port: Callable[[str], object]) -> Any:
    """What ``tool`` declares: ``call``, and the ports, each from ``port`` by its name.

    Raises ``PortMissing``.
    """
    given: dict[str, object] = {}
    for declared in fields_of(tool.context):
        name = declared.name
        given[name] = getattr(call, name) if hasattr(ToolContext, name) else port(name)
        if given[name] is None and not _MAY_LACK.search(str(declared.type)):
            raise PortMissing(name)
    return tool.context(**given)


@frozen
class StandIn:
    """What a call runs in its place: ``tool`` with ``arguments``, at once or on a ``schedule``.

    ``field`` is the argument that holds them. ``is_direct``: it runs now, as the call itself;
    otherwise the tool that was called starts it.
    """

    tool: str
    arguments: Mapping[str, Any]
    schedule: object = None
    field: str = "args"
    is_direct: bool = False


class Tool(Protocol):
    """A tool: subclass it for the defaults (with pydantic arguments: ``tools.common.base``).

    ``args`` is always what ``parse`` returned, ``ctx`` one of the tool's ``context``.
    """

    context: type[Any] = ToolContext
    """What a call of it gets; see ``ToolContext``."""

    @property
    def definition(self) -> ToolDefinition:
        """Name, schema, what it asks and the rest."""

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """Validated arguments; raises ``InvalidArguments``."""

    def summary(self, args: Any) -> str:
        """How the call reads in one line: "Read src/app.py:1-80"."""
        del args
        return self.definition.display_name

    def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
        """The files and directories that the call names, absolute; for the policy."""
        del args, workspace
        return ()

    def stands_for(self, args: Any) -> StandIn | None:
        """The call of another tool that this one only has run: it is judged as that one."""
        del args
        return None

    async def preview(self, args: Any, ctx: Any) -> str:
        """What the user should see before saying yes: a diff, the command. May be empty.

        Raises ``WouldFail`` where there is nothing to say yes to.
        """
        del args, ctx
        return ""

    async def run(self, args: Any, ctx: Any) -> ToolOutput:
        """Do it. Failures are values; an exception is taken for a fault of ours."""

    def parse_background(self, arguments: Mapping[str, Any]) -> Any:
        """As ``parse``, where ``hints.background``: other bounds may hold there than in a turn."""
        return self.parse(arguments)

    async def run_background(self, args: Any, ctx: Any, sink: BackgroundSink) -> ToolOutput:
        """Do it to the end in the background; ends within 2 s when ``ctx.cancel`` is set (BG-6)."""
        del sink
        return await self.run(args, ctx)


class ToolBox(Protocol):
    """The tools of a turn; fixed while it runs (LOOP-3)."""

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """In the order in which they are shown to the model."""

    def get(self, name: str) -> Tool | None:
        """The tool, loaded if need be."""

    @property
    def deferred(self) -> tuple[ToolDefinition, ...]:
        """Those that can be called although the model is not shown them (TOOL-14)."""

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
