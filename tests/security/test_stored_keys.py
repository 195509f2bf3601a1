"""A key that was stored with ``agent auth login`` is in no command's environment by another name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import agent_env, run_agent
from tests.support.keyrings import fake_keyring
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.wire_facts import facts_of

KEY = "sk-ant-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3"


@pytest.mark.spec("SEC-8")
@pytest.mark.parametrize("place", ["keyring", "file"])
def test_no_command_has_a_stored_key_under_another_name(tmp_path: Path, place: str) -> None:
    work, told = tmp_path / "work", tmp_path / "told"
    work.mkdir()
    replies = [call("bash", {"command": f"env | tee {told}"}), say("done")]
    with ModelServer(replies) as server:
        env = agent_env(server, ANTHROPIC_API_KEY=None, OPENAI_API_KEY=None)
        env |= fake_keyring(tmp_path)
        login = ("auth", "login", "anthropic", "--stdin", *(["--file"] * (place == "file")))
        assert run_agent(*login, input=KEY, env=env).code == 0
        env |= {"MY_LLM": KEY, "MY_LLM_ADDRESS": f"https://llm.example.com/?k={KEY}", "PLAIN": "a"}
        done = run_agent("run", "--yolo", "go", env=env, cwd=work)
        assert done.stdout == "done\n", done.stderr
        assert server.requests[0].headers["x-api-key"] == KEY
        assert KEY not in next(iter(facts_of(server.requests[-1]).results.values()))
    assert "PLAIN=a" in told.read_text()
    assert KEY not in told.read_text()
