"""``agent sessions stats`` and ``agent stats`` as a person and as a script sees them."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from agentcli.cli.sessions.stats import MOST_DAYS, MOST_ROWS, largest, stats_page
from agentcli.domain.messages import Usage
from agentcli.store.catalogue.statistics import SessionTotal, Spent, Statistics, ToolUse
from agentcli.store.files import SessionFiles
from tests.store.sessions import fresh_info, make
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.spec("CLI-9", "CLI-11")
def test_nothing_spent_and_wrong_options_are_told_in_a_line() -> None:
    done = run_agent("stats", env=agent_env())
    assert done.code == 0 and "sessions  0, 0 turns" in done.stdout
    assert "cost      -" in done.stdout  # nothing was asked for, which is not the same as free
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.spec("COST-1", "COST-3")
def test_broken_settings_hide_no_sums_but_the_prices_of_results(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    spend(model_server, tmp_path)
    (home / "agentcli" / "config.toml").write_text("= nonsense")
    done = run_agent("stats", "--by", "tool", env=agent_env())
    assert done.code == 0 and "400 again, unknown" in done.stdout
    assert len(done.stderr.splitlines()) == 1 and "unknown" in done.stderr


@pytest.mark.spec("COST-3", "CLI-8", "SEC-9")
def test_no_list_of_sessions_shows_a_key_or_a_part_of_one(
    model_server: ModelServer, tmp_path: Path
) -> None:
    key = "ghp_" + "k1T9" * 9  # known by its form alone
    model_server.add(call("bash", {"command": f"echo {'x' * 20} {key}"}), "Done.")
    allowed = ("--allow-tool", "bash(echo *)")
    asked = f"say {'x' * 20} {key} and marmalade"
    done = run_agent("run", *allowed, asked, cwd=tmp_path, env=agent_env(model_server))
    assert done.code == 0, done.stderr
    lists = (
        ("stats", "--format", "json"),
        ("stats",),
        ("sessions", "stats"),
        ("sessions", "list"),
        ("sessions", "list", "--format", "json"),
        ("sessions", "search", "marmalade"),
        ("sessions", "search", "marmalade", "--format", "json"),
    )
    for arguments in lists:
        shown = run_agent(*arguments, env=agent_env()).stdout
        assert "x" * 20 in shown, arguments
        assert key[:8] not in shown, arguments


@pytest.mark.slow
@pytest.mark.spec("COST-3", "SEC-9")
def test_the_page_has_charts_by_day_model_tool_and_session_and_no_key(
    model_server: ModelServer, tmp_path: Path
) -> None:
    session_id = spend(model_server, tmp_path)
    key = "sk-ant-" + "k1T9" * 12
    rename = run_agent("sessions", "rename", session_id, f"about <b>{key}", env=agent_env())
    assert rename.code == 0
    target = tmp_path / "stats.html"
    done = run_agent("stats", "--html", str(target), env=agent_env(ANTHROPIC_API_KEY=key))
    assert (done.code, done.stdout) == (0, "") and "written" in done.stderr
    page = target.read_text()
    for title in ("By day", "By model", "By tool", "The most expensive tool results", "By session"):
        assert f"{title}</h2>" in page
    assert key not in page and "about &lt;b&gt;" in page
    for text in ("claude-sonnet-4-5", "read_file", "notes.txt", session_id, "$0.0013"):
        assert text in page
    assert target.stat().st_mode & 0o777 == 0o600
    again = run_agent("stats", "--html", str(target), env=agent_env())
    assert again.code == 0, again.stderr


@pytest.mark.slow
@pytest.mark.spec("COST-3", "CLI-11")
def test_a_page_is_written_over_no_file_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("precious")
    cases = (
        ("mine.html", "exists already"),
        ("no/such/place.html", "no such file"),
        (".", "directory"),
        (" ", "needs the name"),
    )
    for name, told in cases:
        done = run_agent("stats", "--html", name, env=agent_env(), cwd=tmp_path)
        assert done.code == 2 and told in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "mine.html").read_text() == "precious"
    empty = run_agent("stats", "--html", "new.html", env=agent_env(), cwd=tmp_path)
    assert empty.code == 0 and "In all" in (tmp_path / "new.html").read_text()


@pytest.mark.spec("COST-3")
def test_the_page_is_bounded_however_much_there_is() -> None:
    found = Statistics()
    for at in range(2_000):
        info = fresh_info(f"s{at}", title="words " * 200)
        spent = Spent(requests=1, usage=Usage(at, at), known_usd=float(at))
        found.sessions.append(SessionTotal(info, 1, spent))
        found.by_day[(date(2020, 1, 1) + timedelta(days=at)).isoformat()] = spent
        found.by_model[f"p/m{at}"] = spent
        found.by_tool[f"t{at}"] = ToolUse(1)
        found.total.add(spent.usage, spent.known_usd)
    page = stats_page(found, largest(found.sessions, lambda one: one.spent, MOST_ROWS))
    assert len(page) < 300_000 and "and 1,950 more" in page
    assert page.count("<rect") < 4 * MOST_ROWS + MOST_DAYS
