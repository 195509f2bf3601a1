"""``agent mcp``: servers are added, shown, taken over and removed; no key is shown."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.cli import Finished, agent_env, run_agent
from tests.support.oauth_server import OAuthServer

pytestmark = pytest.mark.sampled

SUPPORT = Path(__file__).resolve().parent.parent / "support"
KEY = "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    return root


def mcp(repo: Path, *args: str, **env: str) -> Finished:
    done = run_agent("mcp", *args, cwd=repo, env=agent_env(**env))
    assert KEY not in done.stdout + done.stderr
    return done


def listed(repo: Path, **env: str) -> dict[str, tuple[str, str, str]]:
    rows = json.loads(mcp(repo, "list", "--format", "json", **env).stdout)
    return {row["name"]: (row["scope"], row["state"], row["target"]) for row in rows}


@pytest.mark.slow
@pytest.mark.spec("MCP-1", "CLI-9")
def test_servers_are_added_in_their_scopes_shown_and_removed(repo: Path) -> None:
    assert mcp(repo, "add", "files", "-e", "A=b=c", "--", "npx", "-y", "srv", ".").code == 0
    assert mcp(repo, "add", "api", "--url", "https://h/mcp", "-H", "X-Key: ${KEY}").code == 0
    added = mcp(repo, "add", "-t", "sse", "-s", "local", "old", "https://old/sse")
    assert added.code == 0 and "agent mcp login old" in added.stderr
    assert mcp(repo, "add", "db", "-s", "project", "--", "./db").code == 0
    assert listed(repo, KEY=KEY) == {
        "old": ("local", "on", "https://old/sse"),
        "db": ("project", "on", "./db"),
        "files": ("user", "on", "npx -y srv ."),
        "api": ("user", "on", "https://h/mcp"),
    }
    assert "${KEY} is not set" in mcp(repo, "list").stderr
    shown = mcp(repo, "get", "api", "--format", "json", KEY=KEY)
    assert json.loads(shown.stdout)["headers"] == {"X-Key": "•••"}
    twice = mcp(repo, "add", "files", "--", "x")
    assert twice.code == 2 and "agent mcp remove files" in twice.stderr
    for name in ("files", "api", "old", "db"):
        assert mcp(repo, "remove", name).code == 0
    assert json.loads(mcp(repo, "list", "--format", "json").stdout) == []
    gone = mcp(repo, "get", "files")
    assert gone.code == 2 and gone.stderr.count("\n") == 1


@pytest.mark.spec("SEC-3", "SEC-5")
def test_a_repositorys_link_has_no_file_elsewhere_changed(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "settings.json"
    other.write_text('{"mcpServers": {"mine": {"command": "mine"}}}')
    (repo / ".mcp.json").symlink_to(other)
    before = other.read_text()
    for line in (("add", "db", "-s", "project", "--", "./db"), ("remove", "mine")):
        done = mcp(repo, *line)
        assert done.code != 0 and "leads elsewhere" in done.stderr, done.stderr
    assert other.read_text() == before


@pytest.mark.spec("MCP-3", "SEC-1")
def test_a_repositorys_own_server_is_listed_and_waits_for_trust(repo: Path) -> None:
    (repo / ".mcp.json").write_text('{"mcpServers": {"x": {"command": "evil\\u001b[31m"}}}')
    ((scope, state, target),) = listed(repo).values()
    assert (scope, state) == ("project", "waits for trust")
    assert "\x1b" not in mcp(repo, "list").stdout + target.replace("\x1b", "")
    assert mcp(repo, "add", "mine", "-s", "project", "--", "y").code == 0
    assert listed(repo)["x"][1] == "waits for trust"


@pytest.mark.slow
@pytest.mark.spec("MCP-1")
def test_servers_of_other_agents_are_taken_over_and_a_projects_file_wants_a_yes(
    repo: Path, tmp_path: Path
) -> None:
    claude = {
        "mcpServers": {"a": {"command": "x", "args": ["${NOT_SET}"]}, "bad": {}},
        "projects": {str(repo): {"mcpServers": {"mine": {"command": "y"}}}},
    }
    (tmp_path / "claude.json").write_text(json.dumps(claude))
    done = mcp(repo, "import", str(tmp_path / "claude.json"))
    assert done.code == 0 and "imported 2 servers" in done.stderr and '"bad"' in done.stderr
    assert listed(repo, NOT_SET="z") == {
        "mine": ("local", "on", "y"),
        "a": ("user", "on", "x '${NOT_SET}'"),
    }
    toml = '[mcp_servers.c]\ncommand = "z"\nstartup_timeout_sec = 5\n'
    (tmp_path / "codex.toml").write_text(toml)
    assert mcp(repo, "import", str(tmp_path / "codex.toml")).code == 0
    (repo / "other.json").write_text('{"servers": {"d": {"command": "rm"}}}')
    refused = mcp(repo, "import", "other.json")
    assert refused.code == 4 and "d (user): rm" in refused.stderr
    assert "d" not in listed(repo)
    assert mcp(repo, "import", "other.json", "--yes").code == 0
    assert {"c", "d"} <= listed(repo).keys()


@pytest.mark.spec("MCP-1", "CLI-11")
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("serve",), "out of scope"),
        (("add", "x"), "agent mcp add x -- COMMAND"),
        (("add", "a b", "--", "c"), "letters, digits"),
        (("add", "x", "--url", "ftp://h"), "no http:// or https:// address"),
        (("add", "x", "--url", "https://h", "--", "c"), "not both"),
        (("add", "x", "-e", "A", "--", "c"), "--env"),
        (("add", "x", "-H", "A: b", "--", "c"), "remote server"),
        (("add", "x", "--sandbox", "https://h"), "local one"),
        (("remove", "x"), "there is no MCP server x"),
        (("import", "/nowhere.json"), "cannot be read"),
        (("lst",), "did you mean list"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_one_line_and_exit_code_2(
    repo: Path, args: tuple[str, ...], says: str
) -> None:
    done = mcp(repo, *args)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.spec("MCP-1", "MCP-2")
def test_a_try_starts_each_server_says_what_it_has_and_what_it_said(repo: Path) -> None:
    mcp(repo, "add", "good", "--", sys.executable, str(SUPPORT / "mcp_hostile.py"), "good")
    dies = "import sys; sys.stderr.write('no licence\\n'); sys.exit(3)"
    mcp(repo, "add", "bad", "--", sys.executable, "-c", dies)
    done = mcp(repo, "test", "--format", "json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert done.code == 1 and rows["good"]["is_ok"] and rows["good"]["tools"]
    assert rows["bad"]["state"] == "failed" and "no licence" in rows["bad"]["problem"]
    shown = mcp(repo, "test", "bad")
    assert shown.code == 1 and "no licence" in shown.stdout
    assert mcp(repo, "test", "good").code == 0


@pytest.mark.slow
@pytest.mark.spec("MCP-5", "SEC-9", "SEC-12")
def test_a_login_in_the_browser_lets_calls_in_until_the_logout(repo: Path, tmp_path: Path) -> None:
    browser = tmp_path / "bin/xdg-open"
    browser.parent.mkdir()
    get = "import sys, urllib.request as u; u.urlopen(sys.argv[1]).read()"
    browser.write_text(f"#!{sys.executable} -P\n{get}\n")
    browser.chmod(0o755)
    screen = {"DISPLAY": ":0", "PATH": f"{browser.parent}:/usr/bin:/bin"}
    with OAuthServer() as remote:
        mcp(repo, "add", "api", "--url", remote.url)
        before = mcp(repo, "test", "api")
        assert before.code == 1 and "agent mcp login api" in before.stdout
        done = mcp(repo, "login", "api", SSH_CONNECTION="", **screen)
        assert done.code == 0 and "logged in to api" in done.stderr
        (token,) = remote.tokens
        assert token not in done.stdout + done.stderr
        inside = mcp(repo, "test", "api")
        assert inside.code == 0 and "  hi" in inside.stdout
        assert mcp(repo, "logout", "api").code == 0
        assert mcp(repo, "test", "api").code == 1
        remote.answer = {"error": "access_denied", "code": None}
        refused = mcp(repo, "login", "api", SSH_CONNECTION="", **screen)
        assert refused.code == 1 and "access_denied" in refused.stderr
        assert refused.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.spec("SEC-13", "MCP-3")
@pytest.mark.parametrize("kind", ["pipe", "sparse"])
def test_what_has_no_end_is_not_imported(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "servers.json"
    if kind == "pipe":
        os.mkfifo(file)
    else:
        with file.open("wb") as opened:
            opened.truncate(10 << 30)
    done = mcp(tmp_path, "import", str(file))
    assert done.code == 2
    assert str(file) in done.stderr
