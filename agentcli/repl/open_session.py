"""The open session as it is shown around the input: status line, queue, window title."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.session import Session
from agentcli.domain.events import AgentEvent, AssistantRecorded, BackgroundChanged, Compacted
from agentcli.domain.messages import AssistantMessage, Usage
from agentcli.domain.ports import QueuedInput, QueueSource
from agentcli.domain.worktrees import branch_of
from agentcli.ui.rows import fit, packed
from agentcli.ui.sanitize import clean_line
from agentcli.ui.screen import Screen, Size
from agentcli.ui.session_lines import Farewell, farewell_lines, resume_lines
from agentcli.ui.status_line import StatusLine, context_of, painted_lines, title_of
from agentcli.ui.theme import BOLD, DIM, Theme

if TYPE_CHECKING:
    from agentcli.app.extensions.status_command import StatusCommand
    from agentcli.app.user_files import UserFiles
    from agentcli.domain.background import BackgroundTask


class OpenSession:
    """Follows one session at a time; ``session`` is the open one."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self._context: int | None = None
        self._background: Sequence[BackgroundTask] = ()
        self._greeted = False
        self._opened_at = 0.0
        self.on_background: Callable[[], None] = lambda: None
        self._usage: Usage | None = None  # of the newest request
        self._command: StatusCommand | None = None
        self.status_lines: list[str] = []
        """What the user's command has printed for the bottom of the chat (EXT-10)."""

    @asynccontextmanager
    async def asking(
        self, user: UserFiles, theme: Theme, refresh: Callable[[], None]
    ) -> AsyncIterator[None]:
        """The user's command is asked for the status line until the block ends."""
        settings = user.settings
        command, is_trusted = settings.statusline_command, settings.project is not None
        if not command or not theme.live:
            yield
            return
        from agentcli.app.extensions.status_command import StatusCommand, StatusFacts

        def shown() -> StatusFacts | None:
            if self.session is None:
                return None
            return StatusFacts(
                self.session, self._usage, self._context, self._opened_at, is_trusted
            )

        def show(text: str) -> None:
            self.status_lines = painted_lines(text, theme)
            refresh()

        self._command = StatusCommand(command, shown, show)
        self.changed()
        async with self._command.running():
            yield

    def changed(self) -> None:
        """What the status line says may be another by now."""
        if self._command is not None:
            self._command.changed()

    def adopt(self, session: Session | None) -> None:
        """Another session is open, or none."""
        self.session = session
        self._opened_at = time.monotonic()
        self._context = self._usage = None
        self.changed()
        self._background = () if session is None else session.active_runs
        if session is not None and session.resumed is not None:
            for stored in session.resumed.messages:
                if isinstance(stored.message, AssistantMessage):
                    self._context = context_of(stored.message.usage) or self._context

    def on_event(self, event: AgentEvent) -> None:
        """Learn from ``event``."""
        if isinstance(event, AssistantRecorded):
            self._context = context_of(event.message.usage) or self._context
            self._usage = event.message.usage
            self.changed()
        elif isinstance(event, Compacted):
            self._context = event.tokens_after
            self.changed()
        elif isinstance(event, BackgroundChanged):
            self._background = () if self.session is None else self.session.active_runs
            self.on_background()

    def status(self) -> StatusLine:
        """For the line at the bottom."""
        session = self.session
        if session is None:
            return StatusLine()
        return StatusLine(
            model=session.model.id,
            mode=str(session.mode),
            context_used=self._context,
            context_size=session.model.context_tokens,
            tokens=context_of(session.usage),
            cost_usd=session.cost_usd,
            turns=session.turns,
            title=session.title,
            background=len(self._background),
            asking=sum(task.asks is not None for task in self._background),
            sandbox=session.boundary,
        )

    def title(self, cwd: Path, theme: Theme) -> str:
        """For the window."""
        return title_of(self.status(), cwd.name, theme)

    def replayed_lines(self, theme: Theme, size: Size, *, folds: bool) -> list[str]:
        """The end of the conversation that was resumed, as it was drawn (UI-8)."""
        if self.session is None or self.session.resumed is None:
            return []
        from agentcli.repl.replay import replay_lines

        return replay_lines(self.session.resumed, theme, size, folds=folds)

    def opening_lines(self, cwd: Path, theme: Theme, columns: int) -> list[str]:
        """What was opened: where an earlier session had stopped, or who answers, and where."""
        session = self.session
        if session is None:
            return []
        if session.resumed is not None:
            waiting = [item.text for item in session.queued() if item.source is QueueSource.USER]
            lines = resume_lines(session.resumed, time.time(), theme, waiting)
            return [lines[0], *self._place(cwd, theme, columns), *lines[1:]]
        lines = [
            f"{theme.paint('agentcli', BOLD)}  {clean_line(session.model.id)}",
            *self._place(cwd, theme, columns),
        ]
        if session.documents:
            names = ", ".join(clean_line(name_of(doc.path, cwd)) for doc in session.documents)
            lines.append(theme.paint(f"  Project instructions: {names}", DIM))
        if not self._greeted:
            is_demo = session.model.provider == "offline"
            things = (*(_DEMO_TO_TRY if is_demo else _THINGS_TO_TRY), _KEYS_TO_TRY)
            lines += ["", *(f"  {line}" for line in things)]
        self._greeted = True
        return lines

    def _place(self, cwd: Path, theme: Theme, columns: int) -> list[str]:
        """Directory, branch and mode."""
        branch = clean_line(branch_of(cwd))
        mode = f"{self.session.mode} mode" if self.session is not None else ""
        parts = (clean_line(str(cwd)), f"branch {branch}" if branch else "", mode)
        rows = packed(parts, columns - 2, theme.symbols.dot)
        return [theme.paint(f"  {row}", DIM) for row in rows]

    def closing_lines(self, theme: Theme) -> list[str]:
        """How to come back, and what it has taken (UI-9)."""
        session = self.session
        if session is None:
            return []
        end = Farewell(
            session_id=session.id,
            turns=session.turns,
            usage=session.usage,
            cost_usd=session.cost_usd,
            duration_s=time.monotonic() - self._opened_at,
        )
        return farewell_lines(end, theme)

    def queue(self) -> Sequence[QueuedInput]:
        """What waits to be sent."""
        return self.session.queued() if self.session is not None else ()


_THINGS_TO_TRY = (
    'Try:  "what does this project do?"',
    '      "run the tests and fix what fails"',
)
_DEMO_TO_TRY = ('Try:  "list files"', '      "write notes.txt: hello"')
_KEYS_TO_TRY = "      @ attaches a file, / lists the commands, ? shows the keys"


def name_of(path: Path, cwd: Path) -> str:
    """``path`` as seen from ``cwd`` where it is below, from the home directory, or whole."""
    for base, begin in ((cwd, ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{begin}{path.relative_to(base)}"
    return str(path)


# --- the window's title, a bell or a desktop notification (UI-6) ------------------------------

# OSC 2 and XTWINOPS 22, 23: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
# OSC 9: iTerm2, kitty, WezTerm, Windows Terminal, ghostty
MAX_TITLE = 120
_SAVE_TITLE = "\x1b[22;2t"
_RESTORE_TITLE = "\x1b[23;2t"


class Attention:
    """Names the window and calls the user; ``how`` is ``bell``, ``desktop`` or ``off``.

    Law: what a title or notification says is sanitized (SEC-10) and short; with ``off`` nothing
    rings; the title that was there before is asked back at the end.
    """

    def __init__(self, screen: Screen, how: str = "bell") -> None:
        self._screen = screen
        self._how = how
        self._title = ""

    def title(self, text: str) -> None:
        """Name the window."""
        wanted = fit(clean_line(text), MAX_TITLE)
        if wanted == self._title:
            return
        save = "" if self._title else _SAVE_TITLE
        self._title = wanted
        self._screen.send(f"{save}\x1b]2;{wanted}\x07")

    def give_title_back(self) -> None:
        """The chat ends."""
        if self._title:
            self._title = ""
            self._screen.send(_RESTORE_TITLE)

    def call(self, text: str) -> None:
        """Something waits for the user."""
        if self._how == "bell":
            self._screen.send("\x07")
        elif self._how == "desktop":
            self._screen.send(f"\x1b]9;agentcli: {fit(clean_line(text), MAX_TITLE)}\x07")
