"""A key that is no secret changes no data: answers, results, sessions, requests (SEC-9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, leave
from tests.security.canary import IN_ENVIRONMENT
from tests.support.cli import AGENT, agent_env, run_agent
from tests.support.model_server import OPENAI, ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import call, say

pytestmark = pytest.mark.sampled

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.slow
@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize(
    "key", ["ollama", "lm-studio", "dummy-key", "sk-local", "4f8a2c9d1e7b3f6a"]
)
def test_the_key_of_a_local_server_stays_a_word_like_any_other(
    model_server: ModelServer, tmp_path: Path, key: str
) -> None:
    env = agent_env(model_server, OPENAI, OPENAI_API_KEY=key, ANTHROPIC_API_KEY=None)
    said = f"use {key}, or x{key}x"
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "a.txt").write_text(said)
    model_server.add(call("read_file", {"path": "a.txt"}), said)
    first = run_agent("run", f"what is {key}?", env=env, cwd=tmp_path)
    assert first.stdout == f"{said}\n", first.stderr
    model_server.add(call("final_result", {"name": said}))
    args = ("run", "-c", "--json-schema", "schema.json", "-o", "json", "as a result")
    done = run_agent(*args, env=env, cwd=tmp_path)
    assert done.result["structured_output"] == {"name": said}
    sent = json.dumps(model_server.requests[-1].body)
    assert (
        sent.count(key) >= 5 and "redacted" not in sent
    )  # prompt, file, answer: nothing rewritten
    told = run_agent("sessions", "export", done.result["session_id"], env=env, cwd=tmp_path)
    assert said in told.stdout and "[redacted]" not in told.stdout
    for shape in ("json", "table"):
        args = ("sessions", "search", "--file", "a.txt", "--format", shape)
        touched = run_agent(*args, env=env, cwd=tmp_path)
        assert f"what is {key}?" in touched.stdout, touched.stdout


@pytest.mark.slow
@pytest.mark.spec("SEC-9", "UI-3")
@pytest.mark.parametrize("key", ["lm-studio", "4f8a2c9d1e7b3f6a"])
def test_a_prompt_that_names_it_is_recalled_as_it_was_typed(
    model_server: ModelServer, tmp_path: Path, key: str
) -> None:
    model_server.default = say("END")
    env = agent_env(model_server, OPENAI, OPENAI_API_KEY=key, ANTHROPIC_API_KEY=None)
    typed = f"start {key} with password: {key}"
    with Terminal([*AGENT], env, tmp_path, 40, 100) as terminal:
        terminal.wait_for(IDLE)
        terminal.line(typed)
        terminal.wait_for("END")
        terminal.wait_for(IDLE)
        leave(terminal)
    with Terminal([*AGENT], env, tmp_path, 40, 100) as terminal:
        terminal.wait_for(IDLE)
        terminal.key("up")
        terminal.wait_for("start")
        terminal.key("enter")
        terminal.wait_for("END")
        terminal.wait_for(IDLE)
        leave(terminal)
    assert model_server.requests[-1].body["messages"][-1]["content"] == typed


@pytest.mark.spec("SEC-9", "CTRL-5")
@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_a_result_in_a_shape_that_was_asked_for_is_never_changed(
    model_server: ModelServer, tmp_path: Path, output: str
) -> None:
    env = agent_env(model_server, ANTHROPIC_API_KEY=IN_ENVIRONMENT)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    model_server.strict = False
    model_server.add(call("final_result", {"name": IN_ENVIRONMENT}))
    args = ("run", "--json-schema", "schema.json", "-o", output, "go")
    done = run_agent(*args, env=env, cwd=tmp_path)
    found = done.result if output == "text" else done.result["structured_output"]
    assert found == {"name": IN_ENVIRONMENT}, done.stderr


@pytest.mark.spec("SEC-9")
def test_a_real_key_in_an_answer_is_shown_by_no_run(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    env = agent_env(model_server, ANTHROPIC_API_KEY=IN_ENVIRONMENT)
    model_server.default = say(f"It is {IN_ENVIRONMENT}.")
    for output in ("text", "json", "stream-json"):
        done = run_agent("run", "-o", output, "go", env=env, cwd=tmp_path)
        assert IN_ENVIRONMENT not in done.stdout + done.stderr
        assert "[redacted]" in done.stdout
    model_server.default = say(f"It is {IN_ENVIRONMENT}.", delay_s=0.05)
    args = ("run", "-o", "stream-json", "--include-partial-messages", "go")
    done = run_agent(*args, env=env, cwd=tmp_path)
    events = [line["event"] for line in done.lines if line["type"] == "stream_event"]
    told = "".join(each["delta"].get("text", "") for each in events if "delta" in each)
    assert told == "It is [redacted]."
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files and not [path for path in files if IN_ENVIRONMENT.encode() in path.read_bytes()]


HEADERS = """
[providers.anthropic.headers]
anthropic-beta = "context-1m-2025-08-07"
HTTP-Referer = "https://github.com/me/tool"
Cookie = "a=b; CF_Authorization=${FOR_A_HEADER}"
"""


@pytest.mark.slow
@pytest.mark.spec("SEC-9")
def test_of_headers_and_addresses_only_keys_are_taken_out(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    (home / "agentcli").mkdir(exist_ok=True)
    (home / "agentcli" / "config.toml").write_text(HEADERS)
    key, url = "tv7Qw2Lk9Xz4Pv8Nb1Mt6Rj3", "http://localhost:3000"
    env = agent_env(model_server, AUTH_URL=url, FOR_A_HEADER=key)
    said = f"context-1m-2025-08-07 https://github.com/me/tool {url}"
    (tmp_path / "a.txt").write_text(f"{said} {key}")
    model_server.add(call("read_file", {"path": "a.txt"}), said, "END")
    done = run_agent("run", "go", env=env, cwd=tmp_path)
    assert done.stdout == f"{said}\n", done.stderr
    run_agent("run", "-c", "more", env=env, cwd=tmp_path)
    sent = json.dumps(model_server.requests[-1].body)
    assert sent.count(said) == 2
    assert key not in sent
