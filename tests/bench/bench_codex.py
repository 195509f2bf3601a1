"""The same work by the agent and by Codex, in turn; nothing where no ``codex`` is on PATH.

Codex (https://www.npmjs.com/package/@openai/codex) speaks its Responses API to the same service,
its sandbox is off, as ours is, and its launcher counts. Run: python -m tests.bench.bench_codex [RUNS]
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.bench.measure import (
    Sample,
    environment,
    fresh_home,
    in_turn,
    median,
    reached,
    run_once,
)
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT, PROMPT, FastTerminal

CODEX_PROMPT = b"Ask Codex to do"
TYPED = b"qzj"
EXEC = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "hi"]
MODEL_S = 0.5
STEP_S = 0.3
CONFIG = """
model = "m"
model_provider = "local"
check_for_update_on_startup = false
[projects."{home}"]
trust_level = "trusted"
[model_providers.local]
name = "local"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
_ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
_numbers = itertools.count()


class AnsweringTerminal(FastTerminal):
    """One of 24 x 80 that says where its cursor is and what its colours are: Codex waits for it."""

    answers: Mapping[bytes, bytes] = _ANSWERS

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        super().__init__(argv, env, cwd)
        fcntl.ioctl(self._handle, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def _read(self) -> bytes:
        data = super()._read()
        for question, answer in self.answers.items():
            if question in data:
                self.send(answer)
        return data


class SilentTerminal(AnsweringTerminal):
    """One that answers nothing."""

    answers: Mapping[bytes, bytes] = {}


def codex_environment(codex: str, home: Path, url: str) -> dict[str, str]:
    """A home for Codex that knows the service alone."""
    own = home / f"codex{next(_numbers)}"
    own.mkdir()
    (own / "config.toml").write_text(CONFIG.format(home=home, url=url))
    env = environment(home, 0) | {"CODEX_HOME": str(own), "OPENAI_API_KEY": "sk-test-000000"}
    return env | {"PATH": f"{Path(codex).parent}{os.pathsep}{env['PATH']}"}


def _both(
    codex: str, runs: int, chunks: int, *options: str, secure: bool = False
) -> tuple[list[Sample], list[Sample]]:
    with fresh_home() as home, reached(home, chunks, *options, secure=secure) as (port, ours):
        theirs = codex_environment(codex, home, ours["ANTHROPIC_BASE_URL"])
        theirs |= {name: ours[name] for name in ("SSL_CERT_FILE",) if name in ours}
        agent = [*AGENT, "run", "--yolo", "hi"]
        samples = in_turn(
            runs,
            agent=lambda: run_once(agent, ours, port=port, cwd=home),
            codex=lambda: run_once([codex, *EXEC], theirs, port=port, cwd=home),
        )
    return samples["agent"], samples["codex"]


def _chats(codex: str, runs: int) -> Iterator[tuple[str, float, float]]:
    """Seconds from exec to the prompt, and until what is typed at once stands in it."""
    with fresh_home() as home:
        ours = environment(home, 9)
        theirs = codex_environment(codex, home, "http://127.0.0.1:9")

        def starter(
            argv: list[str],
            env: dict[str, str],
            prompt: bytes,
            kind: type[AnsweringTerminal] = AnsweringTerminal,
        ) -> Callable[[], Sample]:
            def start() -> Sample:
                with kind(argv, env, home) as terminal:
                    return Sample(terminal.wait(prompt) - terminal.began, None, 0.0)

            return start

        def typist(argv: list[str], env: dict[str, str]) -> Callable[[], Sample]:
            def start() -> Sample:
                with AnsweringTerminal(argv, env, home) as terminal:
                    terminal.send(TYPED)
                    terminal.wait(TYPED)  # as the terminal itself shows it
                    return Sample(terminal.wait(TYPED) - terminal.began, None, 0.0)

            return start

        chat = [*AGENT, "--new"]
        prompted = in_turn(
            runs,
            agent=starter(chat, ours, PROMPT),
            codex=starter([codex], theirs, CODEX_PROMPT),
        )
        typed = in_turn(runs, agent=typist(chat, ours), codex=typist([codex], theirs))
        silent = in_turn(
            runs,
            agent=starter(chat, ours, PROMPT, SilentTerminal),
            codex=starter([codex], theirs, CODEX_PROMPT, SilentTerminal),
        )
        found = [
            ("prompt", prompted),
            ("what was typed at once", typed),
            ("prompt at a terminal that answers nothing", silent),
        ]
        if shutil.which("tmux"):
            inside = in_turn(
                runs,
                agent=lambda: _in_tmux(chat, ours, PROMPT, home),
                codex=lambda: _in_tmux([codex], theirs, CODEX_PROMPT, home),
            )
            found.append(("prompt inside tmux", inside))
    for what, samples in found:
        yield what, median(samples["agent"], "wall_s"), median(samples["codex"], "wall_s")


def _in_tmux(argv: list[str], env: Mapping[str, str], prompt: bytes, home: Path) -> Sample:
    """From the new window to the prompt in it, at a terminal that is attached and answers."""
    tmux = ["tmux", "-L", f"bench{next(_numbers)}", "-f", "/dev/null"]
    settings = [f"-e{name}={value}" for name, value in env.items() if name != "TERM"]
    base = {**env, "TMUX_TMPDIR": str(home)}
    try:
        with AnsweringTerminal(
            [str(shutil.which("tmux")), *tmux[1:], "new"], base, home
        ) as terminal:
            terminal.settle()
            began = time.perf_counter()
            subprocess.run(
                [*tmux, "new-window", "-c", home, *settings, *argv], env=base, check=True
            )
            return Sample(terminal.wait(prompt) - began, None, 0.0)
    finally:
        subprocess.run([*tmux, "kill-server"], env=base, check=False)


def rows(runs: int) -> Iterator[Row]:
    """The figures; none without Codex."""
    codex = shutil.which("codex")
    if codex is None:
        print("codex is not on PATH: nothing is compared with it")
        return
    agent, other = _both(codex, runs, 8)
    arrived, theirs = median(agent, "arrival_s"), median(other, "arrival_s")
    yield Row("exec to request / codex", arrived, "s", theirs, 1.0)
    peak, theirs = median(agent, "peak_mb"), median(other, "peak_mb")
    yield Row("peak memory / codex", peak, "MB", theirs, 1.0)
    agent, other = _both(codex, runs, 8, secure=True)
    arrived, theirs = median(agent, "arrival_s"), median(other, "arrival_s")
    yield Row("exec to request over https / codex", arrived, "s", theirs, 1.0)
    agent, other = _both(codex, runs, 8, "--delay", str(MODEL_S))
    beyond, theirs = (median(each, "wall_s") - MODEL_S for each in (agent, other))
    yield Row("beyond a 500 ms model / codex", beyond, "s", theirs, 0.9)
    agent, other = _both(codex, runs, 8, "--delay", str(STEP_S), "--shell")
    beyond, theirs = (median(each, "wall_s") - 2 * STEP_S for each in (agent, other))
    yield Row("shell step, beyond a 300 ms model / codex", beyond, "s", theirs, 1.0)
    agent, other = _both(codex, runs, 20_000)
    wall, theirs = median(agent, "wall_s"), median(other, "wall_s")
    yield Row("20,000 chunks to a pipe / codex", wall, "s", theirs, 1.0)
    for what, chat, theirs in _chats(codex, runs):
        yield Row(f"chat, exec to {what} / codex", chat, "s", theirs, 0.8)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
