# ruff: noqa: INP001 - a script, not a package
"""Write ``.github/*.svg``: one chat of the real program, as a terminal shows it.

``agent`` runs in a real terminal of a fixed size against a model server on this machine that plays
a script; real tools work on real files. Four moments of it are drawn as SVGs that need no network.
Only what differs from run to run (seconds, the path of the temporary directory) is set to fixed
values.

With ``--check`` nothing is written; the exit code is 1 when a picture is not current. Each picture
carries a digest of what was drawn, so the check does not depend on the drawing library.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.support.model_server import ModelServer  # noqa: E402
from tests.support.pty_driver import Terminal  # noqa: E402
from tests.support.replies import Call, Tokens, calls, say  # noqa: E402

PICTURES = REPOSITORY / ".github"
COLUMNS, ROWS = 96, 28
WAIT_S = 20.0
MODEL = "anthropic/claude-sonnet-4-5"
RULE = "bash(./check.sh)"
ASKED = "the total of a cart is wrong: find out why and fix it"
QUEUED = "then run ./check.sh"
TITLES = {
    "streaming": "An answer streams in; what is typed meanwhile is queued",
    "approval": "The agent asks, with the diff, before it changes a file",
    "cancel": "Ctrl-C in the middle of a command that hangs",
    "resume": "The next start takes the session up where it stopped",
}

CART = '''def total(items):
    """The price of all items, in cents."""
    amount = 0
    for item in items:
        amount += item.price
    return amount
'''
# the first run hangs, as tests do at times; the second one does not
CHECK = """#!/bin/sh
echo "cart_test.py ....."
if [ ! -e .hung ]; then touch .hung; sleep 600; fi
echo "5 passed"
"""
EXPLAINED = """\
`total` adds each price **once per item** and forgets how many
were ordered. For a cart of

| item  | price | quantity | counted |
|-------|------:|---------:|--------:|
| tea   |   450 |        3 |     450 |
| bread |   320 |        1 |     320 |

the loop has to be

```python
for item in items:
    amount += item.price * item.quantity  # each of them
```

so I will change that one line.
"""
SO_FAR = "so I will"
PIECE = 12
EDIT = {
    "path": "cart.py",
    "old_string": "amount += item.price",
    "new_string": "amount += item.price * item.quantity",
}
FIXED = "`total` counts quantities now, and **all 5 tests pass**.\n"
_SECONDS = re.compile(r"\b\d+(?:\.\d)? s\b(?! ago)")
_SLOW = re.compile(r"(?<=exit 0) · \d+(?:\.\d)? s\b")  # told of a command that took long
# what the emulator does not know and would print
_UNKNOWN = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]")
_KNOWN = {2: [5], 22: [22, 25]}

# the sixteen colours of a dark terminal
THEME = TerminalTheme(
    (22, 24, 29),
    (216, 219, 226),
    [(40, 44, 52), (240, 113, 120), (152, 195, 121), (229, 192, 123),
     (97, 175, 239), (198, 120, 221), (86, 182, 194), (216, 219, 226)],
    [(92, 99, 112), (240, 113, 120), (152, 195, 121), (229, 192, 123),
     (97, 175, 239), (198, 120, 221), (86, 182, 194), (255, 255, 255)],
)  # fmt: skip
# the emulator's names of the colours that rich has others for
COLORS = {"brown": "yellow", "brightbrown": "bright_yellow"}

# fonts that the reader's system has: nothing is fetched
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>CAPTION</title>
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


class _Screen(pyte.Screen):
    """The emulator's screen; faint text, which it does not know, is kept as blinking text."""

    def select_graphic_rendition(self, *attributes: int, **options: bool) -> None:
        """Attributes of what follows; the numbers of a colour are none."""
        known: list[int] = []
        numbers = iter(attributes)
        for number in numbers:
            if number in {38, 48}:
                kind = next(numbers, 5)
                count = 3 if kind == 2 else 1  # noqa: PLR2004 - red, green, blue
                known += [number, kind, *(next(numbers, 0) for _ in range(count))]
            else:
                known += _KNOWN.get(number, [number])
        super().select_graphic_rendition(*known, **options)


def drawn(written: bytes) -> list[Text]:
    """The screen of a terminal to which ``written`` was written, cursor included."""
    screen = _Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(_UNKNOWN.sub(b"", written))
    rows = [_row(screen, y) for y in range(ROWS)]
    while rows and not rows[-1].plain:
        rows.pop()
    return rows


def _row(screen: pyte.Screen, y: int) -> Text:
    row = Text()
    cursor = screen.cursor.x if screen.cursor.y == y else -1
    cells = [(screen.buffer[y][x], x == cursor) for x in range(COLUMNS)]
    for (look, is_cursor), run in groupby(cells, lambda c: (c[0]._replace(data=""), c[1])):
        style = Style(
            color=_color(look.fg),
            bgcolor=_color(look.bg),
            bold=look.bold,
            dim=look.blink,
            italic=look.italics,
            underline=look.underscore,
            strike=look.strikethrough,
            reverse=look.reverse or is_cursor,
        )
        text = _SLOW.sub("", "".join(cell.data for cell, _ in run))
        text = _SECONDS.sub("2 s", text)
        # words are placed, not blanks: some programs that draw SVG leave out leading blanks
        for word in re.findall(r"\S+|\s+", text):
            row.append(word, style if word.strip() or style.bgcolor or style.reverse else None)
    if not row.spans or row.spans[-1].end < len(row) or not _has_background(row.spans[-1].style):
        row.rstrip()
    return row


def _has_background(style: Style | str) -> bool:
    return isinstance(style, Style) and style.bgcolor is not None


def _color(name: str) -> str | None:
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return COLORS.get(name, re.sub(r"^bright(?!_)", "bright_", name))


class _Demo:
    """The chat that is drawn, in the directory ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._shop = home / "shop"
        self._shop.mkdir()
        (self._shop / "cart.py").write_text(CART, encoding="utf-8")
        check = self._shop / "check.sh"
        check.write_text(CHECK, encoding="utf-8")
        check.chmod(0o755)
        self._go_on = threading.Event()
        tokens = Tokens(input=5_310, output=214)
        check_it = Call("bash", {"command": "./check.sh"})
        place = (EXPLAINED.index(SO_FAR) + len(SO_FAR)) // PIECE + 2
        explained = calls(
            Call("edit_file", EDIT),
            text=EXPLAINED,
            piece=PIECE,
            hold=self._go_on,
            hold_at=f"text:{place}",
            tokens=tokens,
        )
        self._server = ModelServer(
            [
                calls(
                    Call("read_file", {"path": "cart.py"}), text="I read it first.", tokens=tokens
                ),
                explained,
                calls(check_it, tokens=tokens),
                calls(check_it, tokens=tokens),
                say(FIXED, tokens=tokens),
            ]
        )

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "HOME": str(self._home),
            "AGENTCLI_HOME": str(self._home / "agentcli"),
            "AGENTCLI_MODEL": MODEL,
            "ANTHROPIC_API_KEY": "sk-test",
            "ANTHROPIC_BASE_URL": self._server.base_url("anthropic"),
            "LANG": "C.UTF-8",
            "COLORTERM": "truecolor",
        }

    def _agent(self) -> Terminal:
        command = [sys.executable, "-m", "agentcli", "--allow-tool", RULE]
        size = {"rows": ROWS, "cols": COLUMNS}
        return Terminal(command, env=self._environment(), cwd=self._shop, **size)

    def _seen(self, terminal: Terminal) -> list[Text]:
        written = terminal.raw.replace(os.fsencode(self._shop), b"~/shop")
        return drawn(written)

    def play(self) -> Iterator[tuple[str, list[Text]]]:
        """Ask, queue, allow, cancel what hangs, leave, come back, go on: four screens of it."""
        with self._server:
            with self._agent() as terminal:
                terminal.wait_for("Ask or tell", WAIT_S)
                terminal.line(ASKED)
                terminal.wait_for(SO_FAR, WAIT_S)
                terminal.line(QUEUED)
                terminal.wait_for(f"└ {QUEUED}", WAIT_S)
                terminal.send("and add a test for")
                terminal.wait_for("> and add a test for", WAIT_S)
                terminal.wait_for(re.compile(r"Working · \d+ s"), WAIT_S)
                yield "streaming", self._seen(terminal)
                for _ in "and add a test for":
                    terminal.key("backspace")
                self._go_on.set()
                terminal.wait_for("Enter confirms", WAIT_S)
                yield "approval", self._seen(terminal)
                terminal.confirm("y")
                terminal.wait_for(re.compile(r"check\.sh` · \d+ s"), WAIT_S)
                terminal.wait_for("cart_test.py", WAIT_S)
                terminal.key("ctrl-c")
                terminal.wait_for("Cancelled.", WAIT_S)
                terminal.wait_for("Ask or tell", WAIT_S)
                yield "cancel", self._seen(terminal)
                terminal.key("ctrl-d")
                terminal.wait_exit(WAIT_S)
            with self._agent() as terminal:
                terminal.wait_for("Ask or tell", WAIT_S)
                terminal.line("continue")
                terminal.wait_for("tests pass", WAIT_S)
                terminal.wait_for("Ask or tell", WAIT_S)
                yield "resume", self._seen(terminal)
                terminal.key("ctrl-d")
                terminal.wait_exit(WAIT_S)


def draw(name: str, rows: list[Text]) -> str:
    """``rows`` as an SVG."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        _environ={},
    )
    for row in [*rows, *[Text()] * (ROWS - len(rows))]:
        console.print(row, soft_wrap=True)
    template = SVG.replace("CAPTION", TITLES[name])
    svg = console.export_svg(
        title="agent", theme=THEME, code_format=template, font_aspect_ratio=0.61, unique_id=name
    )
    lines = (line.rstrip() for line in svg.replace("DIGEST", digest(rows)).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def digest(rows: list[Text]) -> str:
    """What the picture is made from, in short."""
    spans = [(row.plain, [(s.start, s.end, str(s.style)) for s in row.spans]) for row in rows]
    return hashlib.sha256(f"{SVG}{TITLES}{COLUMNS}{ROWS}{spans}".encode()).hexdigest()


def main(arguments: list[str]) -> int:
    """Write or check."""
    stale = []
    with tempfile.TemporaryDirectory() as name:
        for scene, rows in _Demo(Path(name).resolve()).play():
            path = PICTURES / f"{scene}.svg"
            if "--check" not in arguments:
                path.write_text(draw(scene, rows), encoding="utf-8")
            elif not path.exists() or digest(rows) not in path.read_text(encoding="utf-8"):
                stale.append(path.name)
    if stale:
        names = ", ".join(stale)
        sys.stderr.write(f"not current: {names}; run .ci/generate_pictures.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
