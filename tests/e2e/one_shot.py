"""What the tests of ``agent run`` share: where it works, and what every ending must look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.cli import Finished, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.wire_facts import facts_of

RESULT_FIELDS = {
    "type", "subtype", "is_error", "result", "session_id", "num_turns", "duration_ms",
    "duration_api_ms", "total_cost_usd", "usage", "permission_denials", "structured_output",
    "terminal_reason",
}  # fmt: skip


def one_shot(
    server: ModelServer | None,
    *args: str,
    protocol: str = ANTHROPIC,
    cwd: Path | None = None,
    input: str | bytes | None = None,  # noqa: A002 - subprocess.run's name
    **env: str | None,
) -> Finished:
    """``agent run`` with ``args``."""
    return run_agent("run", *args, env=agent_env(server, protocol, **env), cwd=cwd, input=input)


def assert_one_line_error(done: Finished, *parts: str) -> None:
    """The error is one line with all of ``parts`` in it, and no traceback (CLI-11)."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning:")]
    assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
    for part in parts:
        assert part.lower() in lines[0].lower(), lines[0]


def result_of(done: Finished) -> dict[str, Any]:
    """The last line, which is the one result, complete (CLI-5)."""
    results = [line for line in done.lines if line["type"] == "result"]
    assert len(results) == 1 and results[0] is not None and done.lines[-1] == results[0]
    assert set(results[0]) >= RESULT_FIELDS
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = results[0]
    return found


def last_result(server: ModelServer) -> str:
    """What the model was told of its last call."""
    return facts_of(server.requests[-1]).results.popitem()[1]


def check_sessions() -> None:
    """Every session on disk is sound."""
    done = run_agent("sessions", "check", env=agent_env())
    assert done.code == 0, done.stdout + done.stderr
