"""The chat with a session that plays its turns: the first word of the prompt says what happens.

All but the turns and what was said earlier is real: the files, the queue, the approvals. Run as a
program at a terminal by the tests of this room.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentcli.app.library import AsksUser, SearchHit, SessionLibrary
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.app.user_files import UserFiles
from agentcli.config.paths import Paths
from agentcli.config.redaction import Redactor
from agentcli.config.settings import load_settings
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError, SessionNotFound
from agentcli.domain.events import (
    AssistantRecorded,
    Cancelled,
    Continue,
    Done,
    Failed,
    Outcome,
    Prompt,
    PromptRecorded,
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
    GrantOffer,
    ModelInfo,
    Verdict,
)
from agentcli.domain.rewind import RewindPoint, RewindScope, Rewound
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus, StoredMessage
from agentcli.domain.tools import ToolOutput
from agentcli.engine.race import cancel_future
from agentcli.repl import panel
from agentcli.repl.loop import run_chat
from tests.support.documents import document


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

VARIABLES = {
    "theme": "PLAY_THEME",
    "notifications": "PLAY_NOTIFICATIONS",
    "editing_mode": "PLAY_EDITING_MODE",
    "keys.todos": "PLAY_TODOS_KEY",
}
EARLIER = [
    stored("0190aaaa-first", "fix the parser", SessionStatus.CANCELLED),
    stored("0190bbbb-second", "write the docs", SessionStatus.DONE),
]


class PlaySession(Session):
    """A real session in whose turns no model is asked."""

    _user: AsksUser
    _earlier: LoadedSession | None = None
    _calls = 0

    def play(self, user: AsksUser, earlier: SessionInfo | None) -> None:
        self._user = user
        self._answering = ModelInfo("play", "model-1")
        self._raw = {"earlier": b"all that it printed\n"}
        if earlier is not None:
            call = ToolCall("earlier", "bash", {"command": "make"})
            messages = (
                StoredMessage(1, 0, user_text("please fix it")),
                StoredMessage(2, 0, AssistantMessage((call,))),
                StoredMessage(3, 0, ToolResult("earlier", "bash", (TextPart("a part"),))),
                StoredMessage(4, 0, AssistantMessage((TextPart("It is fixed."),))),
            )
            self._earlier = LoadedSession(earlier, messages)
            self._info = earlier
            self._totals.turns, self._totals.title = earlier.turns, earlier.title
            self._totals.usage = Usage(10, 20)

    @property
    def model(self) -> ModelInfo:
        return self._answering

    @property
    def resumed(self) -> LoadedSession | None:
        return self._earlier

    @property
    def sandbox(self) -> None:
        """Whether there is one depends on the machine."""
        return None

    @property
    def boundary(self) -> str:
        """As ``sandbox``."""
        return ""

    async def run_queued(self, token: CancelToken | None = None) -> TurnSummary | None:
        """One queued text is one turn here; the real session joins them."""
        if not (waiting := self.queued()):
            return None
        await self.drop_queued(waiting[0].id)
        return await self.run(Prompt(user_text(waiting[0].text)))

    async def run_command(
        self,
        command: str,
        token: CancelToken,
        on_output: Callable[[str], None],
        *,
        remember: bool = True,
    ) -> ToolOutput:
        on_output("live line\n")
        if command == "wait":
            await token.wait()
            return ToolOutput.cancelled("live line")
        told = "told" if remember else "untold"
        return ToolOutput.text(f"out of {command}, {told}\n" + "line\n" * 150, summary="exit 0")

    async def run(self, op: Prompt | Continue, *_: Any, **__: Any) -> TurnSummary:
        assert isinstance(op, Prompt)
        with self._busy(None) as token:
            return await self._played(op, token)

    async def _played(self, op: Prompt, token: CancelToken) -> TurnSummary:
        text = op.message.text
        summary = TurnSummary(Outcome.DONE, 1, Usage(100, 5), 0.1, 0.1, "x", 0.01)
        self._emit(TurnStart(self.turns + 1))
        self._emit(PromptRecorded(op.message, self.turns + 1))
        self._emit(StepStart(1))
        verb, _, rest = text.partition(" ")
        work = asyncio.ensure_future(getattr(self, f"do_{verb}", self.do_say)(rest or text, token))
        stop = asyncio.ensure_future(token.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if token.cancelled and not work.done() and verb == "stubborn":
                with cancel_future(token, forced=True) as forced:
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
            self._totals.add_turn(summary, "")
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
            call, "Edit src/greet.py", DIFF, "it changes a file", (GrantOffer("edit(/work/**)"),)
        )
        answer = await self._user.approve(request)
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

    async def do_document(self, rest: str, token: CancelToken) -> None:
        """The document of a seed in pieces, each as soon as the file of its number is there."""
        seed, pieces = map(int, rest.split())
        text = document(seed)
        size = len(text) // pieces + 1
        for number in range(pieces):
            while not Path(str(number)).exists():
                await asyncio.sleep(0.01)
            for at in range(number * size, (number + 1) * size, 50):
                self._say(text[at : min(at + 50, (number + 1) * size)])
                await asyncio.sleep(0.002)
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
            call, f"Run {rest}", f"{rest}\n\nin /work", "not read-only", (GrantOffer("bash(x)"),)
        )
        answer = await self._user.approve(request)
        self._say(f"verdict {answer.verdict} reason {answer.reason!r}\n")
        if answer.verdict is Verdict.NO and token.cancelled:
            self._say("cancelled too\n")

    async def do_callapprove(self, rest: str, token: CancelToken) -> None:
        """A call that asks before it runs."""
        call = ToolCall("ca", "bash", {"command": rest})
        self._emit(ToolAnnounced(call, f"Run {rest}"))
        await self._user.approve(ApprovalRequest(call, f"Run {rest}", rest, ""))
        self._emit(ToolStarted(call, f"Run {rest}"))
        result = ToolResult(call.id, "bash", (TextPart("done"),), ResultStatus.OK)
        self._emit(ToolFinished(call, result, "exit 0", 0.05))

    async def do_agents(self, rest: str, token: CancelToken) -> None:
        """Two sub-agents at once; the second asks, the first goes on."""
        calls = [ToolCall(f"t{n}", "task", {}) for n in (1, 2)]
        for call in calls:
            self._emit(ToolAnnounced(call, f"Agent {call.id}"))
        for call in calls:
            self._emit(ToolStarted(call, f"Agent {call.id}"))
        inner = ToolCall("inner", "bash", {"command": rest})
        request = ApprovalRequest(inner, f"scout: Run {rest}", rest, "", within="t2")
        await self._user.approve(request)
        for call in calls:
            result = ToolResult(call.id, "task", (TextPart("done"),), ResultStatus.OK)
            self._emit(ToolFinished(call, result, "finished", 0.5))

    async def do_longapprove(self, rest: str, token: CancelToken) -> None:
        """A command of one long line."""
        line = "".join(f"line{number};" for number in range(3_000))
        await self.do_approve(f"echo {line} tail", token)

    async def do_busy(self, rest: str, token: CancelToken) -> None:
        """Works until the file named in the prompt exists."""
        self._say("busy\n")
        while not Path(rest).exists():
            await asyncio.sleep(0.01)

    async def look_for_sandbox(self) -> None:
        if "--looking" in sys.argv:  # a program that does not answer
            await asyncio.Event().wait()
        await super().look_for_sandbox()

    async def do_busyapprove(self, rest: str, token: CancelToken) -> None:
        await self.do_busy(rest, token)
        await self.do_approve("rm x", token)

    async def do_ask(self, rest: str, token: CancelToken) -> None:
        answer = await self._user.ask("Which colour?", ["red", "blue"])
        self._say(f"answer {answer!r}\n")

    async def do_retry(self, rest: str, token: CancelToken) -> None:
        error = ProviderError("overloaded", kind=ErrorKind.OVERLOADED)
        self._emit(RetryWait(error, 2, 3, 4.0))
        await asyncio.Event().wait()

    async def do_fail(self, rest: str, token: CancelToken) -> None:
        raise ProviderError("no key", "set PLAY_API_KEY", kind=ErrorKind.AUTH)

    async def do_crash(self, rest: str, token: CancelToken) -> None:
        raise RuntimeError("a bug")

    async def switch_model(self, name: str) -> ModelInfo:
        if "/" not in name:
            raise ConfigError(f"no model {name}", "see /model")
        provider, _, model = name.partition("/")
        self._answering = ModelInfo(provider, model)
        return self._answering

    async def load(self) -> LoadedSession:
        info = stored(self.id, self.title, SessionStatus.DONE)
        return LoadedSession(info, (StoredMessage(1, 0, user_text("hello export")),))

    async def raw_output(self, call_id: str) -> bytes | None:
        return self._raw.get(call_id)

    async def rewind_points(self) -> list[RewindPoint]:
        return [RewindPoint(1, "the first thing", 0.0), RewindPoint(3, "the second thing", 0.0)]

    async def rewind(self, seq: int, scope: RewindScope | None = None) -> Rewound:
        point = next(p for p in await self.rewind_points() if p.seq == seq)
        return Rewound(2, (), point.text)

    async def todos(self) -> list[dict[str, str]]:
        return [{"content": "first thing", "status": "completed"}]

    async def aclose(self, reason: str = "other") -> None:
        await super().aclose(reason)
        Path("closed").touch()


class PlayLibrary(SessionLibrary):
    """Opens real sessions that play; two of them have a past."""

    _earlier: SessionInfo | None = None

    async def _open(self, options: SessionOptions, user: AsksUser) -> Session:
        session = await super()._open(options, user)
        session.__class__ = PlaySession
        assert isinstance(session, PlaySession)
        session.play(user, self._earlier)
        return session

    async def open_new(self, user: AsksUser, model: str) -> Session:
        self._earlier = None
        return await super().open_new(user, "offline/rules")

    async def open_first(self, user: AsksUser) -> Session:
        self._earlier = EARLIER[0] if "--interrupted" in sys.argv else None
        return await super().open_first(user)

    async def open_existing(self, session_id: str, user: AsksUser) -> Session:
        found = [info for info in EARLIER if info.id.startswith(session_id)]
        if not found:
            raise SessionNotFound(f"no session {session_id}", "see agent sessions list")
        self._earlier = found[0]
        return await super().open_new(user, "offline/rules")

    async def list(self) -> Sequence[SessionInfo]:
        return EARLIER

    async def newest(self, limit: int) -> Sequence[SessionInfo]:
        return EARLIER[:limit]

    async def infos_of(self, ids: Sequence[str]) -> Mapping[str, SessionInfo]:
        return {info.id: info for info in EARLIER if info.id in ids}

    async def search(self, text: str, limit: int = 50) -> Sequence[SearchHit]:
        return [SearchHit(EARLIER[1].id, 1, f"where [{text}] stands")] if "zebra" in text else []

    async def load(self, session_id: str) -> LoadedSession:
        info = next(info for info in EARLIER if info.id == session_id)
        said = (StoredMessage(1, 0, user_text(f"about {info.title}")),)
        return LoadedSession(info, said)


async def play() -> int:
    env = {**os.environ, "AGENTCLI_MODEL": "offline/rules"}
    flags: dict[str, object] = {}
    for key, variable in VARIABLES.items():
        if variable in env:
            flags[key] = env[variable]
    panel.GUARD_S = float(env.get("PLAY_GUARD_S", panel.GUARD_S))
    if "PLAY_SCREEN_READER" in env:
        flags["screen_reader"] = True
    settings = load_settings(Paths.from_env(env), env, flags)
    options = SessionOptions(Path.cwd(), interactive=True)
    first = sys.argv[sys.argv.index("--first") + 1] if "--first" in sys.argv else None
    shown = replace(options, cwd=Path(env.get("PLAY_CWD") or Path.cwd()))
    user = UserFiles(settings, shown, Redactor(), lambda: (), lambda: ())
    return await run_chat(PlayLibrary(settings, options), user, first)


if __name__ == "__main__":
    sys.exit(asyncio.run(play()))
