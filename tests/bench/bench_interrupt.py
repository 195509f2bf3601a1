"""Ctrl-C to usable prompt, Esc and Ctrl-C to a still screen, in every state of a chat at a PTY.

Run: python -m tests.bench.bench_interrupt [RUNS]
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.bench.measure import environment, fresh_home
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT, PROMPT, FastTerminal

TARGET_MS = 200.0
STILL_MS = 45.0
CTRL_C = b"\x03"
ESC = b"\x1b"
ENDLESS = {"pause_s": 600}
STUBBORN = "trap '' TERM INT HUP; echo started; while :; do sleep 1; done"


def _bash(command: str) -> dict[str, Any]:
    return {"tool": "bash", "arguments": {"command": command}}


# state -> (step that the script repeats, what shows that the state is reached, flags)
STATES: dict[str, tuple[list[dict[str, Any]], bytes, list[str]]] = {
    "waiting for the model": ([ENDLESS], b"Working", []),
    "streaming an answer": (
        [{"text": "A word. " * 200, "chunk": 8}, {"text": "\n\nMore.\n\n"}, ENDLESS],
        b"More.",
        [],
    ),
    "running a command": ([_bash("echo started; sleep 600")], b"started", ["--yolo"]),
    "running a command that ignores signals": ([_bash(STUBBORN)], b"started", ["--yolo"]),
    "an approval is waiting": ([_bash("touch nothing")], b"yes, once", []),
}
STILL = (
    "waiting for the model",
    "streaming an answer",
    "running a command",
    "an approval is waiting",
)


def _chat(home: Path, flags: list[str], step: list[dict[str, Any]], runs: int) -> FastTerminal:
    script = home / "script.json"
    # a cancelled call leaves an assistant message, and the script goes on by their number
    script.write_text(json.dumps([step] * (runs + 1)))
    env = environment(home, 0) | {"AGENTCLI_SCRIPT": str(script)}
    return FastTerminal([*AGENT, "--new", "-m", "scripted/script", *flags], env, home)


def _median_ms(runs: int, once: Callable[[], float]) -> float:
    return statistics.median(once() for _ in range(runs)) * 1000


def _working(state: str, runs: int) -> float:
    step, reached, flags = STATES[state]
    with fresh_home() as home, _chat(home, flags, step, runs) as terminal:
        terminal.wait(PROMPT)

        def once() -> float:
            terminal.settle()
            terminal.send(b"go on\r")
            terminal.wait(reached)
            terminal.settle(0.05)
            pressed = terminal.send(CTRL_C)
            return terminal.wait(PROMPT) - pressed

        return _median_ms(runs, once)


def _to_still_screen(state: str, key: bytes, runs: int) -> float:
    """From the key to the last byte that the chat writes."""
    step, reached, flags = STATES[state]
    with fresh_home() as home, _chat(home, flags, step, runs) as terminal:
        terminal.wait(PROMPT)

        def once() -> float:
            terminal.settle()
            terminal.send(b"go on\r")
            terminal.wait(reached)
            terminal.settle(0.05)
            pressed = terminal.send(key)
            return terminal.still() - pressed

        return _median_ms(runs, once)


def _at_prompt(runs: int, typed: bytes, wanted: bytes) -> float:
    with fresh_home() as home, _chat(home, [], [], 1) as terminal:
        terminal.wait(PROMPT)

        def once() -> float:
            terminal.send(b"x")
            terminal.settle()
            terminal.send(CTRL_C)
            terminal.settle()
            if typed:
                terminal.send(typed)
                terminal.settle()
            pressed = terminal.send(CTRL_C)
            return terminal.wait(wanted) - pressed

        return _median_ms(runs, once)


def rows(runs: int) -> Iterator[Row]:
    """One figure per state."""

    def row(state: str, value: float) -> Row:
        return Row(f"Ctrl-C to prompt: {state}", value, "ms", target=TARGET_MS)

    yield row("empty prompt", _at_prompt(runs, b"", b"To leave"))
    yield row("text in the prompt", _at_prompt(runs, b"some text", PROMPT))
    for state in STATES:
        yield row(state, _working(state, runs))
    for state in STILL:
        for name, key in (("Esc", ESC), ("Ctrl-C", CTRL_C)):
            value = _to_still_screen(state, key, runs)
            yield Row(f"{name} to a still screen: {state}", value, "ms", target=STILL_MS)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
