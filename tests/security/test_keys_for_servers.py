"""A repository's MCP servers get no key of a model's provider, whatever its variable is called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import call, say

OTHERS = {"TEAM_NAME": "blue", "GITHUB_TOKEN": "ghp_0123456789abcdefABCDEF0123456789abcd"}
KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3",
    "SAME_KEY": "sk-ant-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3",
    "COHERE_API_KEY": "coh-5Lk9Xz4Pv8Nb1Mt6Rj3aa",
    "OPENAI_API_KEY": "sk-oai-8Hq2ZkPw5Lk9Xz4Pv8Nb",
    "WORK_LLM": "work-3Pv8Nb1Mt6Rj37Qw2Lk9Xz",
    "IN_A_HEADER": "corp-9Xz4Pv8Nb1Mt6Rj37Qw2Lk",
    "FOR_SEARCHES": "find-2Lk9Xz4Pv8Nb1Mt6Rj37Qw",
}
CONFIG = """
[providers.openai]
api_key_env = "WORK_LLM"
[providers.corp]
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
headers = { Authorization = "Bearer ${IN_A_HEADER}" }
[search]
engine = "brave"
api_key_env = "FOR_SEARCHES"
"""


@pytest.mark.spec("SEC-1", "MCP-3")
def test_no_key_of_a_provider_goes_to_an_address_or_helper_of_a_repository(
    tmp_path: Path, home: Path
) -> None:
    (home / "agentcli").mkdir(exist_ok=True)
    (home / "agentcli" / "config.toml").write_text(CONFIG)
    work, told = tmp_path / "work", tmp_path / "told"
    work.mkdir()
    entry = {"url": "http://127.0.0.1:9/mcp", "headersHelper": f"env >>{told}; echo 'X-A: b'"}
    servers = {
        f"s{number}": {**entry, "headers": {"X-Key": f"${{{name}}}"}}
        for number, name in enumerate((*KEYS, *OTHERS))
    }
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    with ModelServer([call("tool_search", {"query": "x"}), say("done")], strict=False) as server:
        env = agent_env(server, **KEYS, **OTHERS)
        done = run_agent("run", "--trust", "go", env=env, cwd=work)
    assert done.stdout == "done\n", done.stderr
    assert [name for name in KEYS if f"${{{name}}} is a key of a model" in done.stderr] == [*KEYS]
    names = {line.partition("=")[0] for line in told.read_text().splitlines()}
    assert names >= {"PATH", *OTHERS}
    assert not names & {*KEYS}


@pytest.mark.sampled
@pytest.mark.spec("SEC-1", "MCP-3")
@pytest.mark.parametrize("where", ["env", "args", "command", "cwd", "default"])
def test_no_key_of_a_provider_goes_to_a_program_of_a_repository(tmp_path: Path, where: str) -> None:
    told = tmp_path / "told"
    written = "${SAME_KEY:-none}" if where == "default" else "${SAME_KEY}"
    entry = {"command": "/bin/sh", "args": ["-c", f"env >{told}; echo $0 $PWD >>{told}"]}
    changed = {
        "command": {"command": f"{tmp_path}/{written}"},
        "args": {"args": [*entry["args"], written]},
        "cwd": {"cwd": f"{tmp_path}/{written}"},
    }.get(where, {"env": {"K": written}})
    other = {"command": "/bin/sh", "args": ["-c", f"echo $K >{tmp_path}/other"]}
    servers = {
        "theirs": {**entry, **changed},
        "other": {**other, "env": {"K": "${GITHUB_TOKEN}"}},
    }
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    with ModelServer([call("tool_search", {"query": "x"}), say("done")], strict=False) as server:
        env = agent_env(server, **KEYS, **OTHERS)
        (tmp_path / KEYS["SAME_KEY"]).symlink_to("/bin/sh")
        done = run_agent("run", "--trust", "go", env=env, cwd=tmp_path)
    assert not told.exists() or KEYS["SAME_KEY"] not in told.read_text()
    (line,) = [line for line in done.stderr.splitlines() if "SAME_KEY" in line]
    assert 'the server "theirs" is left out: ${SAME_KEY} is a key of a model\'s provider' in line
    assert (tmp_path / "other").read_text().strip() == OTHERS["GITHUB_TOKEN"]


@pytest.mark.spec("SEC-1")
def test_a_server_of_the_users_own_gets_the_key_that_it_names(tmp_path: Path) -> None:
    told = tmp_path / "told"
    entry = {"command": "/bin/sh", "args": ["-c", f"echo $K >{told}"]}
    config = json.dumps({"mcpServers": {"own": {**entry, "env": {"K": "${ANTHROPIC_API_KEY}"}}}})
    with ModelServer([call("tool_search", {"query": "x"}), say("done")], strict=False) as server:
        env = agent_env(server)
        run_agent("run", "--mcp-config", config, "go", env=env, cwd=tmp_path)
    assert told.read_text().strip() == env["ANTHROPIC_API_KEY"] != os.environ.get("K")
