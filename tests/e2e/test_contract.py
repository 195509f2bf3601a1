"""The contract with scripts: every way a run may end, in every output format (CLI-5, CLI-6).

One row a path. For each format: what is on stdout, what is on stderr, the exit code. No path
shows a traceback, none has more than one line of error, and each has exactly one result, last.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentcli.headless import stream_json
from tests.e2e.one_shot import RESULT_FIELDS
from tests.support.cli import AGENT, Finished, agent_env
from tests.support.model_server import ModelServer
from tests.support.replies import Reply, call, fails, say
from tests.ui.schema_check import problems

pytestmark = pytest.mark.sampled
SCHEMA = json.loads((Path(stream_json.__file__).parent / "stream_json.schema.json").read_text())
FORMATS = ("text", "json", "stream-json")
SHAPE = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})

# what is broken, and how: run before the program itself
CRASHES = {
    "options": "import agentcli.cli.options as m; m.RunOptions.check = crash",
    "opening": "import agentcli.app.compose as m; m.open_session = crash",
    "engine": "import agentcli.engine.ask as m; m.Requests.ask = crash",
    "memory": "import agentcli.engine.ask as m; m.Requests.ask = out_of_memory",
    "recursion": "import agentcli.engine.ask as m; m.Requests.ask = for_ever",
    "output": "import agentcli.headless.result as m\n"
    "for kind in (m.TextOutput, m.JsonOutput): kind.on_event = crash",
    "ending": "import agentcli.headless.result as m\n"
    "for kind in (m.TextOutput, m.JsonOutput): kind.ended = crash",
}
_PROGRAM = """
import sys
def crash(*given, **named): raise RuntimeError("a bug of ours")
def out_of_memory(*given, **named): raise MemoryError
def for_ever(*given, **named): return for_ever(*given, **named)
{broken}
from agentcli.cli.entry import main
main()
"""


@dataclass(frozen=True)
class Way:
    """A way to end. ``reason`` is the result's ``terminal_reason``; ``said`` is on stderr."""

    script: tuple[Reply | str, ...]
    code: int
    subtype: str
    reason: str
    args: tuple[str, ...] = ()
    answer: str = ""
    said: str = ""
    crash: str = ""
    signal: int = 0
    env: dict[str, str] = field(default_factory=dict)
    never_opened: bool = False


LOOK = call("list_directory", {}, id="one")
STALLED = say("cut here", stall_at="text")
BUG: dict[str, Any] = {"code": 1, "subtype": "error_during_execution", "reason": "agent_error"}
PATHS = {
    "success": Way((LOOK, "Fine."), 0, "success", "completed", answer="Fine.\n"),
    "tool-error": Way(
        (call("read_file", {"path": "none"}), "None."), 0, "success", "completed", answer="None.\n"
    ),
    "refused-request": Way(
        (fails(400),), 1, "error_during_execution", "bad_request", said="127.0.0.1"
    ),
    "key": Way((fails(401),), 78, "error_during_execution", "auth", said="ANTHROPIC_API_KEY"),
    "later": Way((fails(529, retry_after="0"),) * 4, 75, "error_during_execution", "overloaded"),
    "turns": Way(
        (LOOK, "never"), 3, "error_max_turns", "max_turns", ("--max-turns", "1"), said="--max-turns"
    ),
    "budget": Way(
        (LOOK, "never"),
        3,
        "error_max_budget_usd",
        "max_budget_usd",
        ("--max-budget-usd", "0.0001"),
        said="--max-budget-usd",
    ),
    "time": Way(
        (STALLED,),
        3,
        "error_timeout",
        "timeout",
        ("--timeout", "0.7"),
        said="--timeout",
    ),
    "schema": Way(
        ("It is seven.",) * 4,
        3,
        "error_max_structured_output_retries",
        "max_structured_output_retries",
        ("--json-schema", SHAPE),
    ),
    "approval": Way(
        (call("bash", {"command": "touch made"}), "I may not."),
        4,
        "error_approval_needed",
        "approval_needed",
        answer="I may not.\n",
        said="--allow-tool",
    ),
    "sigint": Way((STALLED,), 130, "cancelled", "sigint", signal=signal.SIGINT),
    "sigterm": Way((STALLED,), 143, "cancelled", "sigterm", signal=signal.SIGTERM),
    "sighup": Way((STALLED,), 129, "cancelled", "sighup", signal=signal.SIGHUP),
    "usage": Way(
        (),
        2,
        "error_during_execution",
        "usage_error",
        ("--bogus",),
        never_opened=True,
        said="--bogus",
    ),
    "store": Way(
        (),
        74,
        "error_during_execution",
        "persistence_error",
        env={"AGENTCLI_HOME": "/dev/null/home"},
        said="/dev/null/home",
    ),
    "crash-options": Way((), crash="options", never_opened=True, **BUG),
    "crash-opening": Way((), crash="opening", never_opened=True, **BUG),
    "crash-engine": Way((), crash="engine", **BUG),
    "crash-memory": Way((), crash="memory", **BUG),
    "crash-recursion": Way((), crash="recursion", **BUG),
    "crash-output": Way(("x",), crash="output", **BUG),
    "crash-ending": Way(("x",), crash="ending", **BUG),
}


def start(
    path: Way, output: str, server: ModelServer, work: Path, stdout: int
) -> subprocess.Popen[bytes]:
    command = [*AGENT]
    if path.crash:
        command = [sys.executable, "-c", _PROGRAM.format(broken=CRASHES[path.crash])]
    return subprocess.Popen(
        [*command, "run", "-o", output, *path.args, "go"],
        env=agent_env(server) | path.env,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run(path: Way, output: str, server: ModelServer, work: Path) -> Finished:
    server.add(*path.script)
    process = start(path, output, server, work, subprocess.PIPE)
    if path.signal:
        server.wait_until_waiting()
        process.send_signal(path.signal)
    out, err = process.communicate(timeout=20)
    return Finished((), process.returncode, out.decode(), err.decode())


@pytest.mark.spec("CLI-5", "CLI-6", "CLI-7", "CLI-11", "OPS-1")
@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("name", PATHS)
def test_every_path_keeps_the_contract(name: str, output: str, tmp_path: Path) -> None:
    path = PATHS[name]
    with ModelServer(strict=False) as server:
        done = run(path, output, server, tmp_path)
    assert done.code == path.code, done
    CHECKS[output](path, done)
    assert_stderr(path, done, output)


def assert_stderr(path: Way, done: Finished, output: str) -> None:
    """At most one line of error, with what to do; beside it only progress, and that for people."""
    assert "Traceback" not in done.stderr, done.stderr
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith(("error: ", "cancelled"))]
    assert len(errors) == int(path.code != 0), done.stderr
    assert path.said in "".join(errors)
    if output != "text":
        others = [line for line in lines if line not in errors]
        assert all(_is_news(path, line) for line in others), done.stderr


def _is_news(path: Way, line: str) -> bool:
    """What a person wants to know although a program reads the output."""
    if path.code == 74:  # the prompt could not be saved, so it is shown
        return line in {"this could not be saved anywhere:", "go"}
    return line.startswith(("! ", "Retrying in "))


def text(path: Way, done: Finished) -> None:
    assert done.stdout == path.answer


def one_object(path: Way, done: Finished) -> None:
    (line,) = done.lines
    assert_result(path, line)


def stream(path: Way, done: Finished) -> None:
    lines = done.lines
    for line in lines:
        assert problems(line, SCHEMA, SCHEMA) == [], line
    assert [line["type"] for line in lines].count("result") == 1
    assert_result(path, lines[-1])
    if not path.never_opened and path.code != 74:
        assert (lines[0]["type"], lines[0]["subtype"]) == ("system", "init")
        assert {line["session_id"] for line in lines} == {lines[0]["session_id"]}


def assert_result(path: Way, result: dict[str, Any]) -> None:
    assert set(result) >= RESULT_FIELDS
    assert problems(result, SCHEMA, SCHEMA) == []
    assert (result["subtype"], result["terminal_reason"]) == (path.subtype, path.reason)
    assert result["is_error"] == (path.subtype != "success")
    assert bool(result["errors"]) == result["is_error"]
    assert bool(result["permission_denials"]) == (path.code == 4)
    assert result["result"]
    if path.answer:
        assert result["result"] + "\n" == path.answer


CHECKS: dict[str, Callable[[Way, Finished], None]] = {
    "text": text,
    "json": one_object,
    "stream-json": stream,
}


@pytest.mark.spec("CLI-5", "CLI-6", "CLI-12")
@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize(
    "name", ["success", "refused-request", "approval", "usage", "crash-engine"]
)
def test_a_reader_that_has_gone_is_a_quiet_end_on_every_path(
    name: str, output: str, tmp_path: Path
) -> None:
    path = PATHS[name]
    with ModelServer(strict=False) as server:
        server.add(*path.script)
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = start(path, output, server, tmp_path, write_end)
        os.close(write_end)
        _, err = process.communicate(timeout=20)
    assert "Traceback" not in err.decode() and "Broken" not in err.decode()
    expected = {0, path.code} if output == "text" or name == "usage" else {0}
    assert process.returncode in expected, err
