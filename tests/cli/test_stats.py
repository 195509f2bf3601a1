"""``agent sessions stats`` and ``agent stats`` as a person and as a script sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcli.store.files import SessionFiles
from tests.store.sessions import make
from tests.support.cli import agent_env, run_agent


@pytest.fixture
def session_ids(home: Path) -> list[str]:
    ours = home / "agentcli"
    files = SessionFiles(ours / "sessions", ours / "catalogue.db")
    return [make(files, "the first one"), make(files, "the \x1b[31msecond one")]


@pytest.mark.spec("CLI-8", "COST-1")
def test_totals_and_a_line_for_each_session_model_and_day(session_ids: list[str]) -> None:
    done = run_agent("sessions", "stats", env=agent_env())
    assert (done.code, done.stderr) == (0, "")
    assert "sessions  2, 2 turns, 4 requests" in done.stdout
    assert "cost      unknown" in done.stdout
    assert all(session_id in done.stdout for session_id in session_ids)
    assert "scripted/m" in done.stdout and "\x1b" not in done.stdout
    one = run_agent("sessions", "stats", session_ids[0], "--format", "json", env=agent_env())
    value = json.loads(one.stdout)
    assert (value["sessions"], value["turns"], value["requests"]) == (1, 1, 2)
    assert value["usage"]["input_tokens"] == 20 and value["total_cost_usd"] is None
    assert [row["id"] for row in value["by_session"]] == [session_ids[0]]
    assert value["by_model"][0]["model"] == "scripted/m"


@pytest.mark.spec("CLI-9", "COST-1")
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_bars_by_day_model_tool_and_session(session_ids: list[str], locale: str) -> None:
    del session_ids
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} if locale == "C" else {}
    done = run_agent("stats", env={**agent_env(), "LC_ALL": locale, "LANG": "", **plain})
    assert (done.code, done.stderr) == (0, "")
    for kind in ("day", "model", "tool", "session"):
        assert f"\nby {kind}\n" in done.stdout
    assert ("####" in done.stdout) is (locale == "C")
    assert "read_file" in done.stdout and "2 calls" in done.stdout
    only = run_agent("stats", "--by", "tool", "--format", "json", env=agent_env())
    value = json.loads(only.stdout)
    assert {row["tool"]: row["calls"] for row in value["by_tool"]} == {"bash": 2, "read_file": 2}
    assert "by_day" not in value


@pytest.mark.spec("CLI-9", "CLI-11")
def test_nothing_spent_and_wrong_options_are_told_in_a_line() -> None:
    done = run_agent("stats", env=agent_env())
    assert done.code == 0 and "sessions  0, 0 turns" in done.stdout
    for args in (("stats", "--by", "hour"), ("stats", "--days", "x"), ("stats", "nobody")):
        done = run_agent(*args, env=agent_env())
        assert done.code == 2 and len(done.stderr.splitlines()) == 1, done
