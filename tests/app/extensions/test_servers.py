"""Which MCP servers a session has: whose they are, which of a name holds, what is asked first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.boundary import session_sandbox
from agentcli.app.extensions.found import find_extensions, has_servers
from agentcli.app.extensions.plugin_store import keep, plugin_places, staged
from agentcli.app.extensions.servers import (
    ConfiguredServers,
    change_project,
    find_servers,
    given_by_editor,
    given_servers,
    switch,
    waiting_servers,
)
from agentcli.app.trust import change_trust, find_project, project_lines, trusted_project
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.domain.tools import Workspace
from agentcli.mcp.servers import ServerScope
from agentcli.policy.places import credential_place

pytestmark = pytest.mark.anyio


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    home = tmp_path / "home"
    home.mkdir()
    return Paths(home, home, home)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    return root


def put(path: Path, servers: Any) -> None:
    document = {"mcpServers": servers} if isinstance(servers, dict) else servers
    path.write_text(document if isinstance(document, str) else json.dumps(document))


def settings_in(paths: Paths, repo: Path) -> Settings:
    env = {"HOME": str(paths.config_dir)}
    project, _ = trusted_project(paths, find_project(repo, env, ()))
    return load_settings(paths, env, project=project)


def found(paths: Paths, repo: Path, **options: Any) -> ConfiguredServers:
    return find_servers(settings_in(paths, repo), repo, **options)


def trust(paths: Paths, repo: Path) -> None:
    change_trust(paths, find_project(repo, {"HOME": str(paths.config_dir)}, ()), trusted=True)


@pytest.mark.spec("MCP-3", "SEC-1")
def test_a_repositorys_servers_wait_for_trust_and_a_change_asks_again(
    paths: Paths, repo: Path
) -> None:
    entry = {"command": "node", "args": ["./db.js", "a b"], "env": {"A": "1"}, "runs": "ls"}
    api = {"type": "http", "url": "https://a.example/mcp", "headers": {"X-Key": "${TEAM}"}}
    put(repo / ".mcp.json", {"db": entry, "api": api, "odd": {"args": 7, "command": "x"}})
    assert found(paths, repo).servers == ()
    env = {"HOME": str(paths.config_dir)}
    _, notices = trusted_project(paths, find_project(repo, env, ()))
    assert str(repo / ".mcp.json") in notices[0] and "not trusted" in notices[0]
    project = find_project(repo, env, ())
    assert project is not None
    shown = "\n".join(project_lines(project))
    assert "  MCP server db runs: node ./db.js 'a b'\n    variable A: 1\n    runs: ls\n" in shown
    called = "  MCP server api is called at: https://a.example/mcp\n    type: http\n"
    assert called + "    header X-Key: ${TEAM}\n" in shown
    assert shown.endswith("  MCP server odd args: 7\n    command: x")
    put(repo / ".mcp.json", {"db": {"command": "node", "args": ["./db.js"], "env": {"A": "1"}}})
    trust(paths, repo)
    (server,) = found(paths, repo).servers
    assert (server.scope, server.cwd) == (ServerScope.PROJECT, str(repo))
    for changed in (
        {"command": "node", "args": ["./db.js"], "env": {"A": "2"}},
        {"command": "node", "args": ["./other.js"], "env": {"A": "1"}},
        {"command": "sh", "args": ["./db.js"], "env": {"A": "1"}},
        {"url": "https://evil"},
    ):
        put(repo / ".mcp.json", {"db": changed})
        assert found(paths, repo).servers == ()


@pytest.mark.spec("SEC-17", "MCP-3")
def test_a_changed_script_of_a_server_asks_again(paths: Paths, repo: Path) -> None:
    (repo / "db.js").write_text("one")
    put(repo / ".mcp.json", {"db": {"command": "node", "args": ["./db.js"]}})
    trust(paths, repo)
    settings = settings_in(paths, repo)
    assert find_servers(settings, repo).servers
    (repo / "db.js").write_text("two")
    late = find_servers(settings, repo)
    assert not late.servers and "has changed" in late.notices[0]
    assert not found(paths, repo).servers


@pytest.mark.spec("MCP-1")
def test_the_first_of_a_name_holds_and_what_it_hides_is_said(paths: Paths, repo: Path) -> None:
    paths.config_file.write_text(
        '[mcp.servers.a]\ncommand = "user"\n[mcp.servers.b]\nurl = "https://b"\ntimeout_s = 3\n'
    )
    put(repo / ".mcp.json", {"a": {"command": "project"}})
    assert [each.command for each in found(paths, repo).servers] == ["user", ""]
    trust(paths, repo)
    here = found(paths, repo)
    # a rule of the user's for its own server frees no tool of a repository's
    assert {each.name: each.command for each in here.servers} == {"a": "user", "b": ""}
    assert "hidden" in here.notices[0]
    change_project(paths, repo, "mcpServers", {"a": {"command": "local"}})
    assert found(paths, repo).servers[0].command == "local"
    given = given_servers(['{"mcpServers": {"a": {"command": "given"}}}'])
    assert found(paths, repo, given=given).servers[0].command == "given"
    (only,) = found(paths, repo, given=given, is_strict=True).servers
    assert (only.command, only.cwd) == ("given", str(repo))
    put(repo / ".mcp.json", {"a.b": {"command": "evil"}})
    trust(paths, repo)
    given = given_servers(['{"mcpServers": {"a_b": {"command": "mine"}}}'])
    alike = found(paths, repo, given=given)  # mcp__a_b__* are the tools of one of them
    assert "evil" not in {each.command for each in alike.servers}
    assert any("a.b" in notice and "hidden" in notice for notice in alike.notices)
    (elsewhere,) = (each for each in found(paths, paths.data_dir).servers if each.name == "a")
    assert (elsewhere.command, elsewhere.cwd) == ("user", str(paths.config_dir))


@pytest.mark.spec("MCP-3", "SEC-3")
def test_a_server_of_the_users_that_cannot_be_used_leaves_its_name_to_no_repository(
    paths: Paths, repo: Path
) -> None:
    paths.config_file.write_text(
        '[mcp.servers.github]\ncommand = "user"\nenv = { TOKEN = "${NOT_SET_TODAY}" }\n'
    )
    put(repo / ".mcp.json", {"github": {"command": "evil"}, "own": {"command": "fine"}})
    trust(paths, repo)
    here = found(paths, repo)  # a rule mcp__github__* of the user's is for none of the repository's
    assert [each.command for each in here.servers] == ["fine"]
    left_out, hidden = here.notices
    assert "NOT_SET_TODAY" in left_out
    assert hidden.endswith(f"is hidden by that of {paths.config_file}")


@pytest.mark.spec("MCP-1")
def test_a_server_is_switched_off_in_one_project_and_on_again(paths: Paths, repo: Path) -> None:
    paths.config_file.write_text('[mcp.servers.a]\ncommand = "user"\n')
    switch(paths, repo, "a", on=False)
    assert not found(paths, repo).servers[0].enabled
    assert found(paths, paths.data_dir).servers[0].enabled
    assert paths.servers_file.stat().st_mode & 0o777 == 0o600
    switch(paths, repo, "a", on=True)
    assert found(paths, repo).servers[0].enabled


@pytest.mark.spec("MCP-1")
def test_broken_files_are_a_line_each_and_nothing_is_written_over(paths: Paths, repo: Path) -> None:
    put(repo / ".mcp.json", '{"mcpServers": {')
    paths.servers_file.write_text("{")
    paths.config_file.write_text(
        '[mcp.servers.bad]\ncommand = 3\n[mcp.servers.ok]\ncommand = "a"\n'
    )
    here = found(paths, repo)
    assert [each.name for each in here.servers] == ["ok"]
    assert len(here.notices) == 3 and not any("\n" in line for line in here.notices)
    with pytest.raises(ConfigError, match="damaged"):
        switch(paths, repo, "ok", on=False)
    assert paths.servers_file.read_text() == "{"


@pytest.mark.spec("MCP-1", "OPS-1")
@pytest.mark.parametrize("text", ["/nowhere/x.json", "{", '{"mcpServers": 3}'])
def test_a_given_file_that_cannot_be_used_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--mcp-config"):
        given_servers([text])


@pytest.mark.spec("MCP-1")
def test_without_servers_nothing_is_looked_for(paths: Paths, repo: Path) -> None:
    assert not has_servers(settings_in(paths, repo), repo)
    put(repo / ".mcp.json", {"a": {"command": "b"}})
    assert has_servers(settings_in(paths, repo), repo)


@pytest.mark.spec("MCP-1")
def test_the_servers_that_an_editor_passes(paths: Paths, repo: Path) -> None:
    listed = [
        {
            "name": "files here",
            "command": "/bin/files",
            "args": ["--stdio"],
            "env": [{"name": "A", "value": "${NOT_SET_ANYWHERE:-b}"}],
        },
        {
            "type": "http",
            "name": "api",
            "url": "https://h",
            "headers": [{"name": "X", "value": "y"}],
        },
    ]
    given = find_servers(settings_in(paths, repo), repo, [given_by_editor(listed)])
    files, api = given.servers
    assert (files.name, files.env, files.cwd) == (
        "files-here",
        (("A", "b"),),
        str(paths.config_dir),
    )
    assert (api.url, api.headers) == ("https://h", (("X", "y"),))
    assert {each.scope for each in given.servers} == {ServerScope.CLIENT}
    alike = [{"name": name, "command": "/bin/files"} for name in ("a b", "a-b", "a b")]
    _, more = given_by_editor(alike)
    assert list(more) == ["a-b", "a-b-2", "a-b-3"], "none takes the place of another"


@pytest.mark.spec("SEC-1", "MCP-3")
@pytest.mark.parametrize("scope", ["option", "editor", "local"])
def test_a_server_starts_in_a_directory_that_is_trusted_or_that_it_names(
    paths: Paths, repo: Path, scope: str
) -> None:
    lines = {
        "module": ("python3", "-m", "tool"),
        "script": ("python3", "-u", "tools/server.py", "x.py"),
        "path": ("./serve", "..", "--root=.", "./a/../b", "data", "@a/b", "-"),
        "given": ("sh", "x.sh"),
    }
    entries: dict[str, Any] = {
        name: {"command": line[0], "args": list(line[1:])} for name, line in lines.items()
    }
    entries["given"]["cwd"] = "${AGENTCLI_PROJECT_DIR}/sub"

    def started() -> dict[str, tuple[str, ...]]:
        given = ("--mcp-config", entries)
        if scope == "editor":
            given = given_by_editor([{"name": name, **entries[name]} for name in entries])
        elif scope == "local":
            change_project(paths, repo, "mcpServers", entries)
        here = find_servers(settings_in(paths, repo), repo, [] if scope == "local" else [given])
        return {each.name: (each.cwd, each.command, *each.args) for each in here.servers}

    home, rest = str(paths.config_dir), (f"{repo}/b", "data", "@a/b", "-")
    assert started() == {
        "module": (home, "python3", "-m", "tool"),
        "script": (home, "python3", "-u", f"{repo}/tools/server.py", "x.py"),
        "path": (home, f"{repo}/./serve", f"{repo.parent}", f"--root={repo}", *rest),
        "given": (f"{repo}/sub", "sh", "x.sh"),
    }
    (repo / ".agents").mkdir()
    (repo / ".agents/config.toml").write_text("max_steps = 7\n")
    assert started()["module"] == (home, "python3", "-m", "tool")
    trust(paths, repo)
    assert started() == {name: (str(repo), *line) for name, line in lines.items()} | {
        "given": (f"{repo}/sub", "sh", "x.sh")
    }


@pytest.mark.spec("MCP-1", "EXT-5")
def test_a_plugins_servers_start_in_it_and_know_where_it_is(
    paths: Paths, repo: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / ".claude-plugin").mkdir(parents=True)
    (source / ".claude-plugin/plugin.json").write_text('{"name": "demo"}')
    put(source / ".mcp.json", {"db": {"command": "./db", "args": ["${CLAUDE_PLUGIN_ROOT}/x"]}})
    with staged(paths, str(source)) as new:
        keep(paths, new)
    (server,) = found(paths, repo).servers
    ((_, root),) = plugin_places(paths)
    assert (server.scope, server.cwd) == (ServerScope.PLUGIN, str(root))
    assert server.args == (f"{root}/x",) and dict(server.env)["PLUGIN_ROOT"] == str(root)


@pytest.mark.spec("MCP-1", "CLI-5")
async def test_the_servers_of_a_session_are_named_to_programs_that_start_it(
    paths: Paths, repo: Path
) -> None:
    paths.config_file.write_text(
        '[mcp.servers.a]\ncommand = "b"\n[mcp.servers.off]\ncommand = "c"\nenabled = false\n'
    )
    extensions = await find_extensions(settings_in(paths, repo), repo)
    assert extensions.names()["mcp_servers"] == ["a"]
    none = await find_extensions(settings_in(paths, repo), repo, is_strict=True)
    assert none.servers == ()


@pytest.mark.spec("MCP-3", "SEC-13", "OPS-1")
@pytest.mark.parametrize("kind", ["deep", "deeper", "surrogate", "fifo", "directory", "link"])
def test_a_hostile_file_of_a_repository_is_a_line_and_stops_nothing(
    paths: Paths, repo: Path, kind: str
) -> None:
    file, levels = repo / ".mcp.json", 10_000 if kind == "deeper" else 960
    match kind:
        case "deep" | "deeper":
            nested = "[" * levels + "]" * levels
            file.write_text('{"mcpServers": {"a": {"command": "x", "args": ' + nested + "}}}")
        case "surrogate":
            file.write_text('{"mcpServers": {"a\\ud800": {"command": "\\ud800"}}}')
        case "fifo":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
        case _:
            file.symlink_to("/etc/passwd")
    assert find_project(repo, {"HOME": str(paths.config_dir)}, ()) is None
    settings = settings_in(paths, repo)
    here = find_servers(settings, repo)
    assert not here.servers and len(here.notices) <= 1
    assert waiting_servers(settings, repo) == ((), ())


@pytest.mark.spec("SEC-3", "SEC-7", "SEC-9")
def test_logins_and_servers_with_keys_are_read_by_no_tool_and_no_command(
    paths: Paths, repo: Path, tmp_path: Path
) -> None:
    settings = settings_in(paths, repo)
    sandbox = session_sandbox(settings, Workspace(repo, repo))
    hidden = set(sandbox._own().hidden)
    assert {paths.logins_dir, paths.servers_file} <= hidden
    home = tmp_path / ".config/agentcli"
    assert credential_place([home / "mcp-logins/x.json"]) and credential_place([home / "mcp.json"])
