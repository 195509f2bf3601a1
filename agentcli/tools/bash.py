"""``bash``: run a shell command where the session's last one left off (TOOL-11).

Law: where there is a sandbox every command runs in it (SEC-7); more access is an argument, which
the policy asks about, never a second try of ours. In the background its output goes to a log, as
it comes (BG-4); a flood costs no memory: what the log does not take any more is not even decoded.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import StoreError
from agentcli.domain.sandbox import Access, Confined, Sandbox, SandboxKind, StillLives
from agentcli.domain.tools import Asks, ToolContext, ToolHints, ToolOutput, Workspace
from agentcli.domain.values import frozen
from agentcli.process.environment import base_environment, find_program
from agentcli.process.run import (
    Capture,
    Command,
    DirectoryFailed,
    Ending,
    LiveOutput,
    Result,
    RunLimits,
    StartFailed,
    run,
)
from agentcli.process.shell import STATE_KEY, Handover, ShellState, ShellStates
from agentcli.tools.common.base import (
    MAX_CHARS,
    Arguments,
    BaseTool,
    bounded,
    looks_binary,
    one_line,
    plain_text,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from agentcli.domain.background import BackgroundSink
    from agentcli.domain.tool_ports import SessionState
    from agentcli.domain.tools import BackgroundSwitch

OnStart = Callable[[int], Awaitable[None]]
_OUTLIVES_APP = sys.platform != "linux"  # a command whose app was killed (REC-8)
# of the output that is told with the end; all of it is in the log
_HEAD_BYTES, _TAIL_BYTES = 2_000, 8_000
SHELLS = ("bash", "sh")
TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
_FOOTER_CHARS = 2_000
_SUMMARY_CHARS = 100
_NAMED_PROCESSES = 5
_SIGNALLED = 128
_ACCESS_SHOWN = {"network": ", with network", "outside": ", outside the sandbox"}
_NETWORK_REFUSED = re.compile(
    rb"network is unreachable|could not resolve|name resolution|name or service not known|"
    rb"getaddrinfo|connection refused|no route to host|dial tcp|failed to connect|connection error|"
    rb"(?-i:\b(?:ENETUNREACH|EAI_AGAIN|ENOTFOUND)\b)",  # no "FileNotFoundError"
    re.IGNORECASE,
)
# they are often told to say nothing: "curl -s ADDRESS | jq ."
_FETCHES = re.compile(r"\A(?>.*\b(?:curl|wget)\b)(?!.*(?:localhost|127\.0\.0\.1|\[::1))", re.DOTALL)
_FETCHES_ANY = re.compile(r"\b(?:curl|wget)\b")
_NAMES_SOCKET = re.compile(rb"\bsocket\b[^\n]{0,40}/(?:var/)?run/\S+[^\n]*(?:\(2\)|No such file)")
_LISTS_OTHERS = re.compile(r"(?:\A|[;&|(]\s*)(?:lsof|fuser|pgrep|pkill|killall|ps|ss|netstat)\b")
_IN_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})/([^\s;|&<>()'\"$`]+)")
_LOOKED_AT = 128 * 1024  # bytes at either end of what a command says
_WORD = re.compile(rb"\w+")
_PLACE_REFUSED = re.compile(
    rb"read-only file system|operation not permitted|permission denied|^bwrap: |^landlock: |"
    rb"cannot connect to the docker daemon|no such process|failed to sign the data|"
    rb"unable to create temporary|(?-i:\b(?:EROFS|EPERM|EACCES)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_NOT_ENTERED = b"bwrap: Can't chdir to "
# a mount over one file cannot be renamed or removed: rename(2), unlink(2)
_KEPT_BUSY = b"Device or resource busy"


class BashArguments(Arguments):
    """Arguments of ``bash``."""

    command: str = Field(min_length=1)
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=MAX_TIMEOUT_S,
        description=f"Seconds; default {TIMEOUT_S:.0f}",
    )
    description: str | None = Field(default=None, description="In a few words")
    access: Literal["network", "outside"] | None = Field(
        default=None,
        description=(
            "Only for what the sandbox has refused or surely will: network, "
            "or outside (to write elsewhere, or reach other processes). The user is asked"
        ),
    )

    @field_validator("command")
    @classmethod
    def _without_nul(cls, command: str) -> str:
        if "\0" in command:
            raise PydanticCustomError(
                "nul", "has a NUL in it, which no shell can run; leave it out"
            )
        return command


@frozen
class _Start:
    """Where and with what a command starts. ``gone`` says of its directory that it is not there.

    ``is_real``: no link may have come up on the way to it by then (SEC-5).
    """

    state: ShellState
    base: dict[str, str]
    cwd: Path
    gone: str = ""
    sandbox: Sandbox | None = None
    access: Access = Access.OUTSIDE
    withheld: frozenset[str] = frozenset()
    is_real: bool = False


@frozen
class BashContext(ToolContext):
    """The kept state of the shell, what limits it, and the way to the background.

    ``access`` is where the policy lets the command run; ``None``: as its arguments say.
    """

    state: SessionState
    session_id: str
    sandbox: Sandbox | None
    to_background: BackgroundSwitch | None
    access: Access | None


class BashTool(BaseTool[BashArguments]):
    """Runs a command with bash, or with sh where there is no bash."""

    name = "bash"
    display_name = "Run"
    description = (
        "Run a command with bash. The directory (cd) and exported variables are kept for the "
        "next call; functions, aliases and shell options are not. No input: "
        "interactive programs, pagers and editors do not work. Output and errors come together, "
        "with the exit code. To leave a server running, start it with & and send its output to a "
        "file; it ends with the session. Commands may run in a sandbox: no network but one that "
        "they share, writing only in the workspace and in a /tmp of their own, which other tools "
        "do not see. Prefer the file and search tools to cat, sed, grep, find."
    )
    params = BashArguments
    asks = Asks.ANYTHING
    context = BashContext
    group = "shell"
    hints = ToolHints(destructive=True, open_world=True, background=True)
    timeout_s = None

    def summary(self, args: BashArguments) -> str:
        """The first line of the command."""
        first, _, rest = args.command.strip().partition("\n")
        more = " …" if rest.strip() else ""
        how = _ACCESS_SHOWN.get(args.access or "", "")
        return f"Run `{one_line(first, _SUMMARY_CHARS)}`{more}{how}"

    async def preview(self, args: BashArguments, ctx: BashContext) -> str:
        """The exact command, the directory, what limits it, and what differs for it (SEC-15)."""
        start = await _where(ctx, args)
        where = f"in {start.cwd}{_limits(start, ctx.sandbox)}"
        if start.gone:
            where = f"{start.gone}: it will not run"
        where = where.replace("\n", r"\n")  # no line of its own, made by a command inside
        leaves = args.access or (start.access is Access.OUTSIDE and _has_boundary(ctx))
        changed = _changed_variables(start.state) if leaves else ()
        return "\n".join((f"{args.command}\n", where, *changed))

    def parse_background(self, arguments: Mapping[str, Any]) -> BashArguments:
        """As ``parse``, without the bound on the time."""
        limit = arguments.get("timeout_s")
        if not isinstance(limit, int | float) or limit <= MAX_TIMEOUT_S:
            return self.parse(arguments)
        args = self.parse({**arguments, "timeout_s": None})
        return args.model_copy(update={"timeout_s": float(limit)})

    async def run_background(
        self, args: BashArguments, ctx: BashContext, sink: BackgroundSink
    ) -> ToolOutput:
        """The same without a time limit of ours; what it does to the shell is not kept."""
        return await self.run(args, ctx, sink)

    async def run(
        self, args: BashArguments, ctx: BashContext, background: BackgroundSink | None = None
    ) -> ToolOutput:
        """Run it; a failure of the command is a tool error with its output."""
        start = await _where(ctx, args)
        if ctx.access not in {None, Access.OUTSIDE} and start.sandbox is None:
            return ToolOutput.error("The sandbox was switched off meanwhile. Run it again.")
        if start.gone and not start.access.reads_only:
            return await _not_run(ctx, start)
        shell = _find_shell(ctx.workspace)
        if shell is None:
            return ToolOutput.error("There is no bash or sh on PATH; ask the user to install bash.")
        try:
            handover = Handover(args.command, reads_only=start.access.reads_only)
        except (OSError, UnicodeEncodeError) as error:
            return ToolOutput.error(f"Cannot hand the command to a shell: {error}.")
        try:
            return await self._run_in((shell, handover), start, args, ctx, background)
        except StartFailed as error:
            return await _left(ctx, start, error)
        finally:
            handover.close()

    async def _run_in(
        self,
        script: tuple[str, Handover],
        start: _Start,
        args: BashArguments,
        ctx: BashContext,
        background: BackgroundSink | None,
    ) -> ToolOutput:
        """``script`` is the shell, and what it is to run."""
        shell, handover = script
        output = CallOutput(ctx.progress, background)
        environment = start.state.environment(start.base) | {"PWD": str(start.cwd)}
        argv, namespaces = handover.argv(shell), tuple[int, ...]()
        if start.sandbox is None and ctx.sandbox is not None:
            await ctx.sandbox.step_outside()
        elif start.sandbox is not None:
            namespaces = start.sandbox.namespaces
            if start.access.reads_only:
                environment = start.sandbox.read_only_environment(environment, args.command)
        command = Command(
            argv,
            start.cwd,
            environment,
            ctx.session_id,
            namespaces,
            handles=handover.handles(shell),
            is_real=start.is_real,
        )
        confined: list[Confined] = []

        async def confine() -> Confined:
            if start.sandbox is not None:
                confined.append(await start.sandbox.confine(argv, start.cwd, start.access))
            return confined[0] if confined else Confined(argv, start.cwd)

        timeout_s = args.timeout_s or (TIMEOUT_S if background is None else None)
        lives: StillLives | None = None
        try:
            async with _for_next_start(ctx.state) if _OUTLIVES_APP else nullcontext() as record:
                on_start = telling(output, ctx.to_background, record)
                limits = RunLimits(ctx.cancel, timeout_s, output.moved, handover.read)
                inside = confine if start.sandbox is not None else None
                ended = await run(command, limits, output.feed, on_start, inside)
            lives = ended.still_lives
        finally:
            output.close()
            born = await _settle(ctx, start, lives) if confined or not start.sandbox else ()
        if _never_began(start, handover, output, ended):
            return await _left(ctx, start, DirectoryFailed("it cannot be entered in the sandbox"))
        notes = [f"[{start.gone}; this ran in {start.cwd}]"] if start.gone else []
        if output.run is None:
            notes += await _keep_state(ctx, start, handover, ended)
        notes += await asyncio.to_thread(_left_running, ended, start)
        notes += [*born, *_refused_by_sandbox(start, args.command, output.capture, ended)]
        limit_s = timeout_s or 0.0
        return await asyncio.to_thread(_result, ctx.call_id, output.capture, ended, limit_s, notes)


def _for_next_start(state: SessionState) -> AbstractAsyncContextManager[OnStart]:
    from agentcli.process.leftovers import recorded

    return recorded(state)


async def _settle(ctx: BashContext, start: _Start, lives: StillLives | None) -> Sequence[str]:
    """Put right what a command inside has made; take what one outside has made as it is."""
    if start.access.reads_only:
        return ()
    if start.sandbox is not None:
        return await uninterruptible(start.sandbox.settle(lives))
    if ctx.sandbox is not None:
        await uninterruptible(ctx.sandbox.accept())
    return ()


async def _where(ctx: BashContext, args: BashArguments) -> _Start:
    """The state of the session's shell; the session's directory where the shell's is gone."""
    access = ctx.access or Access(args.access or Access.INSIDE)
    sandbox = ctx.sandbox if access is not Access.OUTSIDE else None
    if sandbox is not None and not (await sandbox.begin()).is_on:
        sandbox, access = None, Access.OUTSIDE
    states = ShellStates.from_json(await ctx.state.get(STATE_KEY))
    await _search_along(ctx, states)
    state = states.outside if sandbox is None else states.inside
    base = users = base_environment()
    if sandbox is not None:
        base = await asyncio.to_thread(sandbox.environment, base, access)
    cwd, gone, is_real = ctx.workspace.cwd, "", False
    if state.cwd is not None and state.cwd != str(cwd):
        wanted = Path(state.cwd)
        place = wanted if sandbox is None else sandbox.on_machine(wanted)
        is_real = sandbox is None and _has_boundary(ctx)
        led = is_real and await asyncio.to_thread(os.path.realpath, wanted) != str(wanted)
        if not led and await asyncio.to_thread(os.path.isdir, place):
            cwd = wanted
        else:
            is_there = await asyncio.to_thread(os.path.isdir, wanted)
            how = "does not exist in the sandbox" if is_there else "no longer exists"
            gone = f"{wanted} {'leads elsewhere now' if led and is_there else how}"
    withheld = frozenset(users.keys() - base.keys())
    return _Start(
        state, base, cwd, gone, sandbox, access, withheld, is_real and cwd != ctx.workspace.cwd
    )


async def _search_along(ctx: BashContext, states: ShellStates) -> None:
    """What comes up where the user's next command is looked for is looked at (SEC-17)."""
    if ctx.sandbox is not None:
        await ctx.sandbox.search_along(states.outside.variables.get("PATH"))


async def _not_run(ctx: BashContext, start: _Start) -> ToolOutput:
    """What was judged, and approved, for a directory that is gone is done in no other (SEC-6)."""
    states = ShellStates.from_json(await ctx.state.get(STATE_KEY))
    domain = "outside" if start.sandbox is None else "inside"
    back = replace(getattr(states, domain), cwd=None)
    with suppress(StoreError):
        await ctx.state.set(STATE_KEY, replace(states, **{domain: back}).to_json())
    where = f"The next command starts in {start.cwd}"
    return ToolOutput.error(f"{start.gone}: nothing was run. {where}.")


def _never_began(start: _Start, handover: Handover, output: CallOutput, ended: Result) -> bool:
    """Whether bubblewrap could not enter the directory: a shell that began has told where it is."""
    if start.sandbox is None or not ended.returncode or output.run is not None:
        return False
    said = output.capture.data().startswith(_NOT_ENTERED)
    return said and handover.state(start.base)[0] is None


async def _left(ctx: BashContext, start: _Start, error: StartFailed) -> ToolOutput:
    """A directory that no command can start in is not kept: none could lead out of it."""
    gone = f"Cannot start a shell in {start.cwd}: {error}"
    if start.cwd == ctx.workspace.cwd or not isinstance(error, DirectoryFailed):
        return ToolOutput.error(f"{gone}.")
    return await _not_run(ctx, replace(start, gone=gone, cwd=ctx.workspace.cwd))


def _has_boundary(ctx: BashContext) -> bool:
    """Whether other commands run inside: these may put a link in a directory's place."""
    return ctx.sandbox is not None and ctx.sandbox.state.is_on


def _find_shell(workspace: Workspace) -> str | None:
    outside = (workspace.root, *workspace.extra)
    for name in SHELLS:
        for found in (find_program(name, outside), f"/bin/{name}", f"/usr/bin/{name}"):
            if found is not None and os.access(found, os.X_OK):
                return found
    return None


def _limits(start: _Start, offered: Sandbox | None) -> str:
    """What the user should know before saying yes."""
    if start.sandbox is not None and start.access.reads_only:
        return ", in the sandbox"
    if start.sandbox is not None:
        network = start.access is Access.NETWORK or start.sandbox.state.network
        some = ", ".join(start.sandbox.state.hosts)
        reached = ", WITH NETWORK" if network else some and f", with network to {some}"
        return f", in the sandbox{reached}"
    if offered is not None and offered.state.is_on:
        return ", OUTSIDE the sandbox"
    return ""


def _changed_variables(state: ShellState) -> tuple[str, ...]:
    """What earlier commands have left in the environment, for the one who is to say yes."""
    shown = ["  " + text.replace("\n", r"\n") for text in state.differences()]
    return ("with what earlier commands have set:", *shown) if shown else ()


async def _keep_state(
    ctx: BashContext, start: _Start, handover: Handover, ended: Result
) -> list[str]:
    """Store where the shell ended up; what the model should know about it (SEC-15)."""
    state, dropped = handover.state(start.base)
    if start.access.reads_only and state is not None:  # a directory is all it may change
        state, dropped = replace(start.state, cwd=state.cwd), ()
    if state is not None and state.cwd is not None and start.sandbox is None and _has_boundary(ctx):
        state = replace(state, cwd=await asyncio.to_thread(os.path.realpath, state.cwd))
    notes = []
    if state is None:
        if ended.ending is Ending.EXITED:
            notes.append(f"[cd and exports were not recorded; the next command is in {start.cwd}]")
        return notes
    if state.cwd is not None and state.cwd != str(start.cwd):
        notes.append(f"[directory is now {state.cwd}]")
    if dropped:
        notes.append(f"[not kept for the next command: {', '.join(dropped[:10])}]")
    if state != start.state:
        states = ShellStates.from_json(await ctx.state.get(STATE_KEY))
        began = replace(start.state, cwd=str(start.cwd))
        after = states.after(began, state, inside=start.sandbox is not None)
        await _search_along(ctx, after)
        try:
            await ctx.state.set(STATE_KEY, after.to_json())
            stored = ShellStates.from_json(await ctx.state.get(STATE_KEY))
            if stored != after:  # keys are taken out of all that is stored (SEC-9)
                kept, keys = after.as_far_as(stored)
                await ctx.state.set(STATE_KEY, kept.to_json())
                named = ", ".join(keys[:_NAMED_PROCESSES]) or "the directory"
                notes.append(f"[{named}: a key is not stored; set it in the command that needs it]")
        except StoreError as error:
            notes.append(f"[cd and exports could not be stored: {error}]")
    return notes


def _refused_by_sandbox(start: _Start, command: str, capture: Capture, ended: Result) -> list[str]:
    """How the model can ask for what the sandbox has kept from it, or may have refused."""
    if start.sandbox is None:
        return []
    has_own = start.sandbox.state.kind is SandboxKind.BWRAP  # files, processes and ports
    has_failed = bool(ended.returncode) and ended.ending is Ending.EXITED
    state = start.sandbox.state
    offline = start.access is not Access.NETWORK and not state.network
    fetching = _FETCHES_ANY if has_failed else _FETCHES
    fetches = offline and not state.hosts and fetching.search(command) is not None
    said = capture.data() if has_failed or fetches or "git" in command else b""
    if len(said) > 2 * _LOOKED_AT:
        said = said[:_LOOKED_AT] + b"\n" + said[-_LOOKED_AT:]
    is_kept = _KEPT_BUSY in said  # some of git's commands go on
    told = command.encode("utf-8", "replace") + (b"\n" + said if has_failed else b"")
    words = set(_WORD.findall(told))
    if missed := [name for name in start.withheld if name.encode() in words]:
        named = ", ".join(sorted(missed)[:_NAMED_PROCESSES])
        line = f"[{named} of the user's environment is not given to commands in the sandbox"
        return [f'{line}; with access "outside" it is: the user will be asked]']
    if not (has_failed or fetches or is_kept):
        return []
    if offline and (_NETWORK_REFUSED.search(said) or (fetches and not said.strip())):
        some = state.hosts and f"network to {', '.join(state.hosts)} alone, by HTTPS_PROXY"
        own = f"with a localhost of its own and {some or 'without network'}"
        alone = (own if has_own else "without network, that of localhost included", "network")
        what, how = ("without network and SSH keys", "outside") if b"ssh: " in said else alone
    elif is_kept:
        what, how = (
            "where git's configuration and what other programs run stays as it is",
            "outside",
        )
    elif not has_failed:
        return []
    elif _PLACE_REFUSED.search(said):
        temporary = "/tmp" if has_own else "$TMPDIR"  # noqa: S108 - named
        reads_only = start.access.reads_only
        writable = "nothing" if reads_only else f"only the workspace and {temporary}"
        hidden = " (no credential, unless a command of its own names it)"
        read = f"not everything readable{hidden if start.access.hides else ''}"
        what, how = f"with {writable} writable, and {read}", "outside"
    elif has_own and (not_seen := _not_seen(command, said, state.readable)):
        what, how = f"with {not_seen}", "outside"
    else:
        return []
    goes_on = is_kept and not has_failed
    why = "what it left out is needed" if goes_on else "that is why it failed"
    line = f"[it ran in the sandbox, {what}; if {why}, run it again with access"
    return [f'{line} "{how}": the user will be asked]']


def _not_seen(command: str, said: bytes, readable: Sequence[Path]) -> str:
    """What a command that failed and ``said`` this asks for is another one inside; empty: nothing.

    ``readable`` are the places of the home directory that it sees.
    """
    if not said.strip():
        return "processes and ports of its own" if _LISTS_OTHERS.search(command) else ""
    if _NAMES_SOCKET.search(said):
        return "no sockets but those of its own session"
    if b"No such file" not in said:
        return ""
    if "/tmp/" in command:  # noqa: S108 - only looked for
        return "a /tmp of its own"
    home = os.path.expanduser("~")  # noqa: PTH111 - never raises
    named = (Path(home, found[1]) for found in _IN_HOME.finditer(command))
    hidden = any(not any(path.is_relative_to(each) for each in readable) for path in named)
    return "only a part of the home directory in sight" if hidden else ""


def _left_running(ended: Result, start: _Start) -> list[str]:
    if not ended.left_running:
        return []
    names = [f"{pid} ({_command_line(pid)})" for pid in ended.left_running[:_NAMED_PROCESSES]]
    more = len(ended.left_running) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    if ended.ending is Ending.EXITED:
        how = '; to end it: kill it with access "outside"' if start.sandbox is not None else ""
        return [f"[still running in the background until the session ends: {listed}{how}]"]
    return [f"[could not be killed: {listed}]"]


def _command_line(pid: int) -> str:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "?"
    return one_line(data.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace"), 60)


# --- its output, shown as it comes or logged by a background run ---


class LoggedOutput:
    """Passes output on to ``sink``; in the place of ``LiveOutput``."""

    def __init__(self, sink: BackgroundSink) -> None:
        self._sink = sink
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_wanted = True

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        if self._is_wanted:
            self._is_wanted = self._sink.output(self._decoder.decode(data))

    def close(self) -> None:
        """There is no more."""
        if self._is_wanted and (rest := self._decoder.decode(b"", final=True)):
            self._sink.output(rest)


class CallOutput:
    """The output of a command: shown as it comes, and after a move (UI-3) logged by a run.

    ``run`` is the run that it belongs to, from the beginning or by now; ``moved`` is done once it
    was moved.
    """

    def __init__(self, progress: Callable[[str], None], run: BackgroundSink | None) -> None:
        self.run = run
        self.moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.capture = Capture() if run is None else ends_of_output()
        self._live = LiveOutput(progress) if run is None else LoggedOutput(run)
        self._pid = 0
        self._take_back: Callable[[], None] = lambda: None

    def feed(self, data: bytes) -> bool:
        """Take the next piece; all of it is wanted."""
        self.capture.feed(data)
        self._live.feed(data)
        return True

    def started(self, pid: int, switch: BackgroundSwitch | None) -> None:
        """It runs as ``pid`` and can be moved from now on."""
        self._pid = pid
        if self.run is not None:
            self.run.process(pid)
        elif switch is not None:
            self._take_back = switch.offer(self._move)

    def close(self) -> None:
        """There is no more."""
        self._take_back()
        self._live.close()

    def _move(self, run: BackgroundSink) -> None:
        self.run = run
        run.process(self._pid)
        self._live.close()
        self._live = LoggedOutput(run)
        before, self.capture = self.capture.data(), ends_of_output()
        self.feed(before)
        self.moved.set_result(None)


def ends_of_output() -> Capture:
    """Keeps what is told with the end."""
    return Capture(_HEAD_BYTES, _TAIL_BYTES)


def telling(
    output: CallOutput, switch: BackgroundSwitch | None, on_start: OnStart | None
) -> OnStart:
    """``on_start`` that tells of the process, too (BG-7), and that it can be moved."""

    async def tell(pid: int) -> None:
        output.started(pid, switch)
        if on_start is not None:
            await on_start(pid)

    return tell


# --- the result ---


def _result(
    call_id: str, capture: Capture, ended: Result, timeout_s: float, notes: list[str]
) -> ToolOutput:
    data = capture.data()
    if looks_binary(data):
        text = f"(binary output, {capture.size_bytes} bytes; send it to a file instead)"
    else:
        text = plain_text(data)
    short, raw = bounded(text, call_id, max_chars=MAX_CHARS - _FOOTER_CHARS)
    if raw is None and data.decode("utf-8", "replace") != text:
        raw = data
    took = _duration(ended.duration_s)
    outcome, how = _outcome(ended, timeout_s, took)
    shown = short.rstrip("\n")
    footer = "\n".join([*notes, f"[{how}]"])[:_FOOTER_CHARS]
    if ended.ending is Ending.CANCELLED:
        return ToolOutput.cancelled("\n".join([shown, *notes]).strip("\n"))
    body = f"{shown if shown.strip() else '(no output)'}\n{footer}"
    if ended.ending is Ending.EXITED and ended.returncode == 0:
        return ToolOutput.text(body, raw=raw, summary=outcome)
    return ToolOutput.error(body, raw=raw, summary=outcome)


def _outcome(ended: Result, timeout_s: float, took: str) -> tuple[str, str]:
    """How it ended: for the screen, and for the model."""
    if ended.ending is Ending.TIMED_OUT:
        limit = f"{timeout_s:g} s"
        advice = f"timeout_s may be at most {MAX_TIMEOUT_S:g}" if timeout_s < MAX_TIMEOUT_S else ""
        advice = advice or "run it with spawn_background"
        return f"timed out · {limit}", f"timed out after {limit} and was killed; {advice}"
    if ended.returncode is None:
        return f"lost · {took}", f"the shell was killed from outside, {took}"
    code = ended.returncode
    if code < 0:
        name = _signal_name(-code)
        return f"{name} · {took}", f"exit code {_SIGNALLED - code}, killed by {name}, {took}"
    name = _signal_name(code - _SIGNALLED) if code > _SIGNALLED else ""
    because = f" ({name})" if name.startswith("SIG") else ""
    return f"exit {code} · {took}", f"exit code {code}{because}, {took}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _duration(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


TOOL = BashTool()
