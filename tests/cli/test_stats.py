"""``agent sessions stats`` and ``agent stats`` as a person and as a script sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcli.store.files import SessionFiles
from tests.store.sessions import make
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import Tokens, call, say


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


def spend(server: ModelServer, work: Path) -> str:
    """A session of two requests, whose one call reads a file; its id."""
    (work / "notes.txt").write_text("some words of a note\n" * 60)
    server.add(
        call("read_file", {"path": "notes.txt"}, tokens=Tokens(1000, 50, 0, 2000)),
        call("list_directory", {"path": "."}, tokens=Tokens(450, 30, 3000, 0)),
        say("All read.", tokens=Tokens(100, 10, 3450, 0)),
    )
    done = run_agent("run", "-o", "json", "read my notes", env=agent_env(server), cwd=work)
    assert done.code == 0, done.stderr
    return str(done.result["session_id"])


@pytest.mark.spec("COST-1", "COST-3")
def test_a_tool_result_has_a_price_in_tables_bars_and_exports(
    model_server: ModelServer, tmp_path: Path
) -> None:
    """Read: 3,000 tokens were sent before it, 3,450 with it and the 50 that asked for it."""
    session_id = spend(model_server, tmp_path)
    exported = run_agent("sessions", "export", session_id, env=agent_env())
    runs = json.loads(exported.stdout)["tool_runs"]
    cost = next(run["result_cost"] for run in runs if run["name"] == "read_file")
    assert cost["added_tokens"] == 400 and cost["again_requests"] == 1
    assert (cost["again_cached_tokens"], cost["again_uncached_tokens"]) == (400, 0)
    added, again = 400 * 3e-6, 400 * 0.3e-6  # list prices of Claude Sonnet 4.5
    assert cost["cost_usd"] == pytest.approx(added + again)
    tables = run_agent("sessions", "stats", session_id, env=agent_env()).stdout
    assert "\nTOOL" in tables and "the most expensive results" in tables
    line = next(each for each in tables.splitlines() if "notes.txt" in each)
    assert line.split()[:4] == ["400", "400", "400", "$0.0013"]
    assert "about" not in tables
    bars = run_agent("stats", "--by", "tool", env=agent_env()).stdout
    assert "400 tokens added, 400 again, $0.0013" in bars
    value = json.loads(run_agent("stats", "--format", "json", env=agent_env()).stdout)
    assert [each["tool"] for each in value["by_call"]] == ["read_file", "list_directory"]
    assert value["by_call"][0]["session_id"] == session_id


@pytest.mark.spec("COST-1", "COST-3")
def test_broken_settings_hide_no_sums_but_the_prices_of_results(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    spend(model_server, tmp_path)
    (home / "agentcli" / "config.toml").write_text("= nonsense")
    done = run_agent("stats", "--by", "tool", env=agent_env())
    assert done.code == 0 and "400 again, unknown" in done.stdout
    assert len(done.stderr.splitlines()) == 1 and "unknown" in done.stderr
