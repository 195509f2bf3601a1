# ruff: noqa: INP001 - a script, not a package
"""Write ``.github/chat.svg``: a chat of the real program, as its own renderer shows it.

A real session (provider ``scripted``, real tools, a real file) runs through the chat's own view
and screen; what they write is drawn as an SVG that needs no network. Only what differs from run
to run (durations, temporary paths, the session's id) is set to fixed values.

With ``--check`` nothing is written; the exit code is 1 when the picture is not current. The
picture carries a digest of what was drawn, so the check does not depend on the drawing library.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from agentcli.app.compose import SessionOptions, open_session
from agentcli.app.session import Session
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.events import AgentEvent, Done, Prompt, ToolFinished, ToolProgress
from agentcli.domain.messages import user_text
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Verdict
from agentcli.domain.settings import PermissionMode
from agentcli.repl.approve import approval_lines
from agentcli.repl.turn_view import TurnView
from agentcli.ui.screen import Screen, Size
from agentcli.ui.session_lines import Farewell, farewell_lines, resume_lines
from agentcli.ui.theme import BOLD, DIM, Theme

PICTURE = Path(__file__).resolve().parent.parent / ".github" / "chat.svg"
COLUMNS = 88
SESSION_ID = "019aa1c4-7d21-7c3e-9f4b-2c6d8e0a1b57"
RULE = "bash(./check.sh)"
RESUMED_AFTER_S = 130

CART = '''def total(items):
    """The price of all items, in cents."""
    amount = 0
    for item in items:
        amount += item.price
    return amount
'''
# the first run hangs, as tests do at times; the second one does not
CHECK = """#!/bin/sh
if [ -e .hung ]; then seconds=0.1; else seconds=60; fi
touch .hung
echo "cart_test.py ....."
sleep "$seconds"
echo "5 passed in 0.3 s"
"""
SCRIPT = [
    [
        {"text": "I will read the function first.\n", "chunk": 9},
        {"tool": "read_file", "arguments": {"path": "cart.py"}},
    ],
    [
        {"text": "It adds `price` once per item and **forgets the quantity**.\n", "chunk": 9},
        {
            "tool": "edit_file",
            "arguments": {
                "path": "cart.py",
                "old_string": "amount += item.price",
                "new_string": "amount += item.price * item.quantity",
            },
        },
        {"tool": "bash", "arguments": {"command": "./check.sh"}},
    ],
    [{"tool": "bash", "arguments": {"command": "./check.sh"}}],
    [
        {
            "text": "`total` counts quantities now, and **all 5 tests pass**.\n",
            "chunk": 9,
        }
    ],
]
_DURATION = re.compile(r"\b\d+(?:\.\d)? s\b(?! ago)")

# the sixteen colours of a dark terminal
THEME = TerminalTheme(
    (22, 24, 29),
    (216, 219, 226),
    [(40, 44, 52), (240, 113, 120), (152, 195, 121), (229, 192, 123),
     (97, 175, 239), (198, 120, 221), (86, 182, 194), (216, 219, 226)],
    [(92, 99, 112), (240, 113, 120), (152, 195, 121), (229, 192, 123),
     (97, 175, 239), (198, 120, 221), (86, 182, 194), (255, 255, 255)],
)  # fmt: skip

# fonts that the reader's system has: nothing is fetched
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>agentcli at work: an answer, an edit, a cancelled command, the resumed session</title>
<!-- shows DIGEST -->
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas,
 "DejaVu Sans Mono", "Liberation Mono", monospace; font-size: {char_height}px;
 line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class _TimelessView(TurnView):
    """The chat's view, told that everything took as long as the picture says."""

    def on_event(self, event: AgentEvent) -> None:
        """Show ``event``."""
        super().on_event(_timeless(event))


class _Person:
    """Says yes, and lets the question and the answer be seen, as the chat does."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Yes, for this session."""
        theme = self._screen.theme
        self._screen.print_block(approval_lines(request, theme))
        self._screen.print_block([theme.paint("  Yes, for this session.", DIM)], gap=False)
        return ApprovalAnswer(Verdict.SESSION)


class _Demo:
    """The chat that is drawn."""

    def __init__(self, workspace: Path) -> None:
        self.stream = io.StringIO()
        self._workspace = workspace
        self._theme = Theme(color=True, attributes=True, live=True)
        self._screen = Screen(self.stream, self._theme, lambda: Size(COLUMNS, 40))
        self._settings = self._prepare()

    def _prepare(self) -> Settings:
        script = self._workspace.parent / "script.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        (self._workspace / "cart.py").write_text(CART, encoding="utf-8")
        check = self._workspace / "check.sh"
        check.write_text(CHECK, encoding="utf-8")
        check.chmod(0o755)
        home = str(self._workspace.parent / "home")
        for name in [name for name in os.environ if name not in {"PATH", "LANG", "LC_ALL"}]:
            del os.environ[name]
        os.environ.update(HOME=home, AGENTCLI_HOME=home, AGENTCLI_SCRIPT=str(script))
        return load_settings(Paths.from_env(os.environ), os.environ)

    async def _open(self, *allowed: str) -> Session:
        """As the chat opens it: an interrupted session of this directory is taken up."""
        mode = PermissionMode.ACCEPT_EDITS
        options = SessionOptions(self._workspace, mode=mode, allow=allowed, interactive=True)
        session = await open_session(self._settings, options, _Person(self._screen))
        view = _TimelessView(self._screen)
        session.add_listener(view.on_event)
        return session

    def _at_the_shell(self, text: str) -> None:
        self._screen.gap()
        self._screen.print_block([f"{self._theme.paint('$ ', BOLD)}{text}"], gap=False)

    async def play(self) -> None:
        """Ask, cancel the command that hangs, leave, come back, go on."""
        session = await self._open()
        self._at_the_shell("agent --permission-mode accept-edits")
        heading = self._theme.paint("agentcli", BOLD)
        self._screen.print_block([f"{heading}  {session.model.id}  {self._workspace}"])

        def press_ctrl_c(event: AgentEvent) -> None:
            if isinstance(event, ToolProgress):
                session.interrupt()

        remove = session.add_listener(press_ctrl_c)
        await self._turn(session, "the cart's total is wrong. fix it and run ./check.sh")
        remove()
        end = Farewell(SESSION_ID, session.turns, session.usage, session.cost_usd, 48)
        self._screen.print_block(farewell_lines(end, self._theme)[1:])
        await session.aclose()

        session = await self._open(RULE)
        self._at_the_shell(f"agent --permission-mode accept-edits --allow-tool '{RULE}'")
        if session.resumed is None:
            raise RuntimeError("the session was not resumed")
        now = time.time() + RESUMED_AFTER_S
        self._screen.print_block(resume_lines(session.resumed, now, self._theme))
        await self._turn(session, "continue")
        await session.aclose()

    async def _turn(self, session: Session, text: str) -> None:
        await session.run(Prompt(user_text(text)))
        self._screen.end_text()


def _timeless(event: AgentEvent) -> AgentEvent:
    """``event`` as if it had taken the time that the picture shows."""
    if isinstance(event, ToolFinished):
        return replace(event, duration_s=0.0, summary=_DURATION.sub("1.4 s", event.summary))
    if isinstance(event, Done):
        return replace(event, summary=replace(event.summary, duration_s=3.2))
    return event


def output() -> str:
    """What the program wrote in that chat, escape sequences included."""
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(name).resolve() / "shop"
        workspace.mkdir()
        demo = _Demo(workspace)
        asyncio.run(demo.play())
        text = demo.stream.getvalue().replace(str(workspace), "~/shop")
    return text.strip("\n")


def draw(text: str) -> str:
    """``text`` as an SVG."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        _environ={},
    )
    for line in text.split("\n"):
        console.print(Text.from_ansi(line), soft_wrap=True)
    svg = console.export_svg(
        title="agent", theme=THEME, code_format=SVG, font_aspect_ratio=0.61, unique_id="chat"
    )
    lines = (line.rstrip() for line in svg.replace("DIGEST", digest(text)).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def digest(text: str) -> str:
    """What the picture is made from, in short."""
    return hashlib.sha256(f"{SVG}{COLUMNS}{text}".encode()).hexdigest()


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = output()
    if "--check" in arguments:
        if PICTURE.exists() and digest(text) in PICTURE.read_text(encoding="utf-8"):
            return 0
        sys.stderr.write(".github/chat.svg is not current: run .ci/generate_pictures.py\n")
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
