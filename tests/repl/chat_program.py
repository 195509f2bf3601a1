"""A chat with a session that plays: what it does is said by the first word of the prompt.

Run as a program at a terminal by the tests of this room.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError, SessionNotFound
from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    Cancelled,
    Continue,
    Done,
    Failed,
    Outcome,
    Prompt,
    PromptRecorded,
    QueueChanged,
    RetryWait,
    StepStart,
    TextChunk,
    ToolAnnounced,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStart,
    TurnSummary,
)
from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    user_text,
)
from agentcli.domain.ports import (
    ApprovalRequest,
    Approver,
    ModelInfo,
    PermissionMode,
    QueuedInput,
    QueueKind,
    Verdict,
)
from agentcli.domain.rewind import RewindPoint, RewindScope, Rewound
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus, StoredMessage
from agentcli.domain.tools import Asker, ToolOutput
from agentcli.repl.desk import Hit
from agentcli.repl.host import Preferences
from agentcli.repl.loop import run_chat


def stored(session_id: str, title: str, status: SessionStatus) -> SessionInfo:
    return SessionInfo(
        session_id, title, os.getcwd(), time.time() - 7200, time.time() - 3600, status, 2, "p/m"
    )


MARKDOWN = """# Two things

The parser reads **one line** too many, so that a paragraph that is longer than the window wraps
and goes on below:

- `parse()` asks for the *next* line before it knows
- the caller does so too

```python
def parse(lines):
    for line in lines:  # once
        yield line
```

| file | lines |
|---|---|
| parser.py | 120 |

That is all.
"""
DIFF = """--- a/src/greet.py
+++ b/src/greet.py
@@ -1,3 +1,3 @@
 def greet(name):
-    print("hello")
+    print(f"hello {name}")
     return name
"""

EARLIER = [
    stored("0190aaaa-first", "mend the parser", SessionStatus.CANCELLED),
    stored("0190bbbb-second", "write the docs", SessionStatus.DONE),
]


class PlaySession:
    def __init__(self, info: SessionInfo, approver: Approver, asker: Asker) -> None:
        self.id = info.id
        self.title = info.title
        self.model = ModelInfo("play", "model-1")
        self.mode = PermissionMode.DEFAULT
        self.usage = Usage() if not info.turns else Usage(10, 20)
        self.cost_usd: float | None = 0.0
        self.turns = info.turns
        self.notices: Sequence[str] = ()
        self.sandbox = None
        self.background = None
        self.resumed: LoadedSession | None = None
        if info.turns:
            call = ToolCall("earlier", "bash", {"command": "make"})
            messages = (
                StoredMessage(1, 0, user_text("please mend it")),
                StoredMessage(2, 0, AssistantMessage((call,))),
                StoredMessage(3, 0, ToolResult("earlier", "bash", (TextPart("a part"),))),
                StoredMessage(4, 0, AssistantMessage((TextPart("It is mended."),))),
            )
            self.resumed = LoadedSession(info, messages)
        self._approver, self._asker = approver, asker
        self._listeners: list[Callable[[AgentEvent], None]] = []
        self._token: CancelToken | None = None
        self._calls = 0
        self._raw = {"earlier": b"all that it printed\n"}
        self._queue: list[QueuedInput] = []
        self._row = 0

    def move_to_background(self) -> bool:
        return False

    def set_mode(self, mode: PermissionMode, /) -> None:
        self.mode = mode

    def queued(self) -> Sequence[QueuedInput]:
        return tuple(self._queue)

    async def enqueue(self, text: str, kind: QueueKind = QueueKind.STEERING, /) -> QueuedInput:
        self._row += 1
        item = QueuedInput(self._row, kind, text, time.time())
        self._queue.append(item)
        self._emit(QueueChanged(len(self._queue)))
        return item

    async def edit_queued(self, row_id: int, text: str, /) -> bool:
        self._queue = [replace(i, text=text) if i.id == row_id else i for i in self._queue]
        return True

    async def drop_queued(self, row_id: int, /) -> bool:
        self._queue = [item for item in self._queue if item.id != row_id]
        self._emit(QueueChanged(len(self._queue)))
        return True

    async def run_queued(self) -> TurnSummary | None:
        """One queued text is one turn here; the real session joins them."""
        if not self._queue:
            return None
        item = self._queue.pop(0)
        return await self.run(Prompt(user_text(item.text)))

    async def run_command(
        self,
        command: str,
        token: CancelToken,
        on_output: Callable[[str], None],
        /,
        *,
        tell: bool = True,
    ) -> ToolOutput:
        on_output("live line\n")
        if command == "wait":
            await token.wait()
            return ToolOutput.cancelled("live line")
        told = "told" if tell else "untold"
        return ToolOutput.text(f"out of {command}, {told}\n" + "line\n" * 150, summary="exit 0")

    def add_listener(self, listener: Callable[[AgentEvent], None], /) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _emit(self, event: AgentEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def interrupt(self, reason: CancelReason = CancelReason.USER, *, force: bool = False) -> bool:
        if self._token is None:
            return False
        self._token.cancel(reason, force=force)
        return True

    async def run(self, op: Prompt | Continue, /) -> TurnSummary:
        assert isinstance(op, Prompt)
        text = op.message.text
        token = self._token = CancelToken()
        self.turns += 1
        summary = TurnSummary(Outcome.DONE, 1, Usage(100, 5), 0.1, 0.1, "x", 0.01)
        self._emit(TurnStart(self.turns))
        self._emit(PromptRecorded(op.message, self.turns))
        self._emit(StepStart(1))
        verb, _, rest = text.partition(" ")
        work = asyncio.ensure_future(getattr(self, f"do_{verb}", self.do_say)(rest or text, token))
        stop = asyncio.ensure_future(token.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if token.cancelled and not work.done() and verb == "stubborn":
                forced = asyncio.ensure_future(token.wait_forced())
                await asyncio.wait({work, forced}, return_when=asyncio.FIRST_COMPLETED)
                self._emit(TextChunk("it was forced\n"))
            if token.cancelled:
                work.cancel()
                summary = replace(summary, outcome=Outcome.CANCELLED)
                self._emit(Cancelled(summary, token.reason or ""))
            else:
                error = work.exception()
                if isinstance(error, ProviderError):
                    summary = replace(summary, outcome=Outcome.ERROR)
                    self._emit(Failed(summary, error))
                elif error is not None:
                    raise error
                else:
                    self._emit(Done(summary))
        finally:
            stop.cancel()
            work.cancel()
            await asyncio.gather(stop, work, return_exceptions=True)
            self._token = None
            self.usage += summary.usage
            self.cost_usd = (self.cost_usd or 0) + 0.01
        return summary

    def _say(self, text: str) -> None:
        self._emit(TextChunk(text))

    async def do_say(self, rest: str, token: CancelToken) -> None:
        self._say(f"You said **{rest}**.\n")
        self._emit(AssistantRecorded(AssistantMessage((TextPart(rest),)), 2))

    async def do_echo(self, rest: str, token: CancelToken) -> None:
        self._say(f"echo {rest}!\n")

    async def do_stream(self, rest: str, token: CancelToken) -> None:
        for number in range(int(rest)):
            self._say(f"word{number} ")
            if number % 100 == 0:
                await asyncio.sleep(0)

    async def do_markdown(self, rest: str, token: CancelToken) -> None:
        for at in range(0, len(MARKDOWN), 9):
            self._say(MARKDOWN[at : at + 9])
            await asyncio.sleep(0)

    async def do_edit(self, rest: str, token: CancelToken) -> None:
        call = ToolCall("e1", "edit_file", {"path": "src/greet.py"})
        request = ApprovalRequest(
            call, "Edit src/greet.py", DIFF, "it changes a file", "edit_file(/work/**)"
        )
        answer = await self._approver.approve(request)
        self._say(f"verdict {answer.verdict}\n")

    async def do_count(self, rest: str, token: CancelToken) -> None:
        lines = rest.split("\n")
        self._say(f"{len(lines)} lines, the last is {lines[-1]}\n")

    async def do_flood(self, rest: str, token: CancelToken) -> None:
        """That many chunks, a thousand a second, in paragraphs."""
        loop = asyncio.get_running_loop()
        begun, sent, wanted = loop.time(), 0, int(rest)
        while sent < wanted:
            due = min(wanted, int((loop.time() - begun) * 1000) + 1)
            for number in range(sent, due):
                self._say("\n\n" if number % 90 == 89 else f"word{number % 7} ")
            sent = due
            await asyncio.sleep(0.001)
        self._say("\n\nThe end.\n")

    async def do_hang(self, rest: str, token: CancelToken) -> None:
        self._say("thinking about it")
        await asyncio.Event().wait()

    async def do_stubborn(self, rest: str, token: CancelToken) -> None:
        self._say("I will not stop\n")
        await asyncio.Event().wait()

    async def do_tool(self, rest: str, token: CancelToken) -> None:
        self._calls += 1
        call = ToolCall(f"c{self._calls}", "bash", {"command": rest})
        self._emit(ToolAnnounced(call, f"Run {rest}"))
        self._emit(ToolStarted(call, f"Run {rest}"))
        self._emit(ToolProgress(call.id, "first line\nsecond line\n"))
        if rest == "wait":
            await asyncio.Event().wait()
        if rest == "whole":
            self._raw[call.id] = b"first line\n10 %\r100 %\r\nthe middle\nsecond line\n"
        result = ToolResult(
            call.id, "bash", (TextPart("first line\nsecond line"),), ResultStatus.OK
        )
        self._emit(ToolFinished(call, result, "exit 0", 1.25))

    async def do_approve(self, rest: str, token: CancelToken) -> None:
        call = ToolCall("a1", "bash", {"command": rest})
        request = ApprovalRequest(
            call, f"Run {rest}", f"{rest}\n\nin /work", "not read-only", "bash(x)"
        )
        answer = await self._approver.approve(request)
        self._say(f"verdict {answer.verdict} reason {answer.reason!r}\n")
        if answer.verdict is Verdict.NO and token.cancelled:
            self._say("cancelled too\n")

    async def do_longapprove(self, rest: str, token: CancelToken) -> None:
        """A command of one long line."""
        line = "".join(f"line{number};" for number in range(3_000))
        await self.do_approve(f"echo {line} tail", token)

    async def do_busy(self, rest: str, token: CancelToken) -> None:
        """Works until the file named in the prompt exists."""
        self._say("busy\n")
        while not Path(rest).exists():
            await asyncio.sleep(0.01)

    async def do_busyapprove(self, rest: str, token: CancelToken) -> None:
        await self.do_busy(rest, token)
        await self.do_approve("rm x", token)

    async def do_ask(self, rest: str, token: CancelToken) -> None:
        answer = await self._asker.ask("Which colour?", ["red", "blue"])
        self._say(f"answer {answer!r}\n")

    async def do_retry(self, rest: str, token: CancelToken) -> None:
        error = ProviderError("overloaded", kind=ErrorKind.OVERLOADED)
        self._emit(RetryWait(error, 2, 3, 4.0))
        await asyncio.Event().wait()

    async def do_fail(self, rest: str, token: CancelToken) -> None:
        raise ProviderError("no key", "set PLAY_API_KEY", kind=ErrorKind.AUTH)

    async def do_crash(self, rest: str, token: CancelToken) -> None:
        raise RuntimeError("a bug")

    async def switch_model(self, name: str, /) -> ModelInfo:
        if "/" not in name:
            raise ConfigError(f"no model {name}", "see /model")
        provider, _, model = name.partition("/")
        self.model = ModelInfo(provider, model)
        return self.model

    async def rename(self, title: str, /) -> None:
        self.title = title

    async def load(self) -> LoadedSession:
        info = stored(self.id, self.title, SessionStatus.DONE)
        return LoadedSession(info, (StoredMessage(1, 0, user_text("hello export")),))

    async def raw_output(self, call_id: str, /) -> bytes | None:
        return self._raw.get(call_id)

    async def rewind_points(self) -> list[RewindPoint]:
        return [RewindPoint(1, "the first thing", 0.0), RewindPoint(3, "the second thing", 0.0)]

    async def rewind(self, seq: int, scope: RewindScope, /) -> Rewound:
        point = next(p for p in await self.rewind_points() if p.seq == seq)
        return Rewound(2, (), point.text)

    async def todos(self) -> list[dict[str, str]]:
        return [{"content": "first thing", "status": "completed"}]

    async def aclose(self, reason: str = "other") -> None:
        Path("closed").touch()


class PlayDesk:
    config_file = Path("config.toml")
    command_directories = (Path("own"),)

    async def refresh_search(self) -> None:
        pass

    def redact(self, value: Any) -> Any:
        return value

    async def search(self, text: str, limit: int = 50) -> Sequence[Hit]:
        return [Hit(EARLIER[1].id, f"where [{text}] stands")] if "zebra" in text else []

    async def set(self, key: str, value: str) -> str:
        Path("settings").write_text(f"{key} = {value}")
        return f"{key} = {value}"

    async def allow_always(self, rule: str) -> None:
        Path("allowed").write_text(rule)

    async def load(self, session_id: str) -> LoadedSession:
        info = next(info for info in EARLIER if info.id == session_id)
        said = (StoredMessage(1, 0, user_text(f"about {info.title}")),)
        return LoadedSession(info, said)


class PlayHost:
    desk = PlayDesk()
    cwd = Path(os.environ.get("PLAY_CWD") or Path.cwd())
    history_file = Path("history")
    preferences = Preferences(
        theme=os.environ.get("PLAY_THEME", "auto"),
        notifications=os.environ.get("PLAY_NOTIFICATIONS", "bell"),
        editing_mode=os.environ.get("PLAY_EDITING_MODE", "emacs"),
        screen_reader="PLAY_SCREEN_READER" in os.environ,
        keys={"todos": os.environ["PLAY_TODOS_KEY"]} if "PLAY_TODOS_KEY" in os.environ else {},
    )

    def __init__(self) -> None:
        self._opened = 0

    async def open_first(self, approver: Approver, asker: Asker) -> PlaySession:
        if "--interrupted" in sys.argv:
            return PlaySession(EARLIER[0], approver, asker)
        return await self.open_new(approver, asker, "")

    async def open_new(self, approver: Approver, asker: Asker, model: str) -> PlaySession:
        self._opened += 1
        info = stored(f"0190cccc-new{self._opened}", "", SessionStatus.NEW)
        return PlaySession(replace(info, turns=0), approver, asker)

    async def open_existing(self, session_id: str, approver: Approver, asker: Asker) -> PlaySession:
        for info in EARLIER:
            if info.id.startswith(session_id):
                return PlaySession(info, approver, asker)
        raise SessionNotFound(f"no session {session_id}", "see agent sessions list")

    async def list_sessions(self) -> Sequence[SessionInfo]:
        return EARLIER

    def known_models(self) -> Sequence[str]:
        return ("play/model-1", "play/model-2")


if __name__ == "__main__":
    first = sys.argv[sys.argv.index("--first") + 1] if "--first" in sys.argv else None
    sys.exit(asyncio.run(run_chat(PlayHost(), first)))
