"""A key that was stored with ``agent auth login``: in no command's environment, in no session file."""

from __future__ import annotations

import json
import sqlite3
import zlib
from base64 import b64encode
from contextlib import closing
from pathlib import Path

import pytest

from tests.security.canary import found_in
from tests.support.cli import agent_env, run_agent
from tests.support.keyrings import fake_keyring
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.wire_facts import facts_of

KEY = "sk-ant-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3"


@pytest.mark.sampled
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


@pytest.mark.sampled
@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("more", [(), ("--input-format", "stream-json")])
def test_a_first_prompt_with_the_key_of_the_keyring_is_stored_without_it(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    key = "c4f19ab27d3e58606b1f9e0d72a8c35e"  # by its form it might be a commit
    prompt = f"is {key} right? and cd68a1b3f0e24795aa10c3b9d7e6f582?"
    with ModelServer([say("yes")]) as server:
        env = agent_env(server, ANTHROPIC_API_KEY=None, OPENAI_API_KEY=None)
        env |= fake_keyring(tmp_path)
        assert run_agent("auth", "login", "anthropic", "--stdin", input=key, env=env).code == 0
        line = {"type": "user", "message": {"role": "user", "content": prompt}}
        words = ("run", *more, *(("-o", "stream-json") if more else (prompt,)))
        done = run_agent(*words, input=json.dumps(line) + "\n" if more else None, env=env)
        assert done.code == 0, done.stderr
        assert server.requests[0].headers["x-api-key"] == key
        assert key in json.dumps(server.requests[0].body)
    ours = [each for each in Path(env["HOME"]).rglob("*") if each.is_file()]
    kept = b"".join(each.read_bytes() for each in ours if each.name != "kept-keys.json")
    assert b"cd68a1b3f0e24795aa10c3b9d7e6f582" in kept  # nothing else is taken out
    assert key.encode() not in kept


@pytest.mark.slow
@pytest.mark.spec("SEC-9", "TT-1")
def test_no_snapshot_for_undo_holds_a_key_in_another_form_or_that_of_a_server(
    tmp_path: Path,
) -> None:
    of_server = "Zq8Rw3Nc7Yt2Hk5Jv9Bx4Lm6"
    work = tmp_path / "work"
    work.mkdir()
    (work / "base64.yaml").write_text(f"replicas: 1\nkey: {b64encode(KEY.encode()).decode()}\n")
    (work / "servers.json").write_text(json.dumps({"replicas: 1": {"env": {"ISSUES": of_server}}}))
    (work / "utf16.txt").write_text(f"replicas: 1\n{KEY}\n", "utf-16")
    (work / "plain.txt").write_text("replicas: 1\n")
    names = sorted(path.name for path in work.iterdir())
    edit = {"old_string": "replicas: 1", "new_string": "replicas: 2"}
    replies = [
        *(call("read_file", {"path": name}) for name in names),
        *(call("edit_file", {"path": name, **edit}) for name in names),
        call("bash", {"command": "for name in *; do echo replicas >> $name; done"}),
        say("done"),
    ]
    with ModelServer(replies) as server:
        env = agent_env(server, ANTHROPIC_API_KEY=KEY)
        home = Path(env["AGENTCLI_HOME"])
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(
            f'[mcp.servers.issues]\ncommand = "false"\nenv = {{ ISSUES_TOKEN = "{of_server}" }}\n'
        )
        done = run_agent("run", "--yolo", "go", env=env, cwd=work)
        assert done.stdout == "done\n", done.stderr
    (file,) = (home / "sessions").glob("*.db")
    with closing(sqlite3.connect(file)) as db:
        blobs = [zlib.decompress(data) for (data,) in db.execute("SELECT data FROM blob")]
    assert b"replicas: 1\n" in blobs and b"replicas: 2\n" in blobs
    for data in blobs:
        assert not found_in(data, (KEY, of_server))
