"""Providers of companies: headers, queries, keys that a command prints, clouds (EXT-7)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentcli.config.paths import Paths
from tests.e2e.one_shot import assert_one_line_error, check_sessions, result_of
from tests.support.cli import Finished, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import call, say

pytestmark = pytest.mark.sampled

FIRST, SECOND = "sk-first-7Qd2mWx9Lp4Rv8Tz", "sk-second-3Hk6nYb1Gc5Js0Fa"


def configure(text: str) -> None:
    path = Paths.from_env(os.environ).config_file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def ask(*args: str, cwd: Path | None = None, **env: str | None) -> Finished:
    return run_agent("run", "hi", "--output-format", "json", *args, env=agent_env(**env), cwd=cwd)


def everything_written() -> bytes:
    found = b""
    for path in sorted(Path(os.environ["AGENTCLI_HOME"]).rglob("*")):
        if path.is_file() and path.name != "config.toml":
            found += path.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.spec("EXT-7", "SEC-9")
def test_headers_and_query_go_along_and_their_secrets_are_seen_by_nobody(tmp_path: Path) -> None:
    secret = "9fK2xQ7mZ4wL8vB1nR6t"
    with ModelServer([call("bash", {"command": "env"}), say("done")]) as server:
        configure(
            f'[providers.gw]\nkind = "openai"\nbase_url = "{server.openai_url}"\n'
            'headers = {"X-Team" = "blue", "Authorization" = "Bearer ${GW_TOKEN}"}\n'
            'query = {"api-version" = "preview", "tag" = "a b"}\n'
        )
        done = ask("-m", "gw/m", "--yolo", "--sandbox", "off", cwd=tmp_path, GW_TOKEN=secret)
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
    for sent in server.requests:
        assert sent.headers["x-team"] == "blue"
        assert sent.headers["authorization"] == f"Bearer {secret}"
        assert sent.path.endswith("/chat/completions?api-version=preview&tag=a+b")
    assert secret not in json.dumps(server.requests[-1].messages)  # nor does a command see it
    shown = run_agent("config", "show", env=agent_env(GW_TOKEN=secret))
    assert "X-Team" in shown.stdout
    assert secret not in shown.stdout + done.stdout + done.stderr
    assert secret.encode() not in everything_written()
    check_sessions()


@pytest.mark.slow
@pytest.mark.spec("EXT-7", "SEC-9")
def test_a_key_that_a_command_prints_is_asked_for_once_and_again_after_a_401(
    tmp_path: Path,
) -> None:
    keys, count = tmp_path / "keys", tmp_path / "asked"
    keys.write_text(f"{FIRST}\n{SECOND}\n{SECOND}\n")
    command = f"echo x >> {count}; sed -n $(wc -l < {count})p {keys}"
    replies = [call("list_directory", {"path": "."}), say("done")]
    with ModelServer(replies, api_key=SECOND) as server:
        configure(
            f'[providers.anthropic]\nbase_url = "{server.url}"\napi_key_command = "{command}"\n'
        )
        model = "anthropic/claude-sonnet-4-5"
        done = ask("-m", model, "--debug", str(tmp_path / "log"), ANTHROPIC_API_KEY="of-nobody")
        assert result_of(done)["result"] == "done", done.stderr
        used = [sent.headers["x-api-key"] for sent in server.requests]
    assert used == [FIRST, SECOND, SECOND]
    assert count.read_text().count("x") == 2
    written = everything_written() + (tmp_path / "log").read_bytes() + done.stderr.encode()
    assert FIRST.encode() not in written
    assert SECOND.encode() not in written


@pytest.mark.spec("EXT-7", "STR-9")
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("exit 3", "failed (exit code 3)"),
        (f"echo {FIRST}; echo {FIRST} >&2; exit 1", "failed (exit code 1)"),
        ("true", "printed nothing"),
        ("yes", "printed more than a key"),
        (f"echo {FIRST} and more", "not a usable key"),
        (f"echo {FIRST}", "401"),
    ],
)
def test_a_command_that_gives_no_usable_key_is_one_line_with_advice(
    command: str, says: str
) -> None:
    with ModelServer([say("x")], api_key=SECOND) as server:
        configure(
            f'[providers.gw]\nkind = "openai"\nbase_url = "{server.openai_url}"\n'
            f'api_key_command = "{command}"\n'
        )
        done = run_agent("run", "hi", "-m", "gw/m")
        assert_one_line_error(done, says, "api_key_command", " - ")
        assert len(server.requests) <= 2
    assert done.code == 78
    assert FIRST not in done.stdout + done.stderr
    assert FIRST.encode() not in everything_written()


@pytest.mark.spec("EXT-7", "SEC-2")
def test_the_command_finds_no_program_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inside = tmp_path / "sub" / "bin"
    inside.mkdir(parents=True)
    (inside / "my-vault").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho {FIRST}\n")
    (inside / "my-vault").chmod(0o755)
    with ModelServer([say("x")]) as server:
        configure(
            f'[providers.gw]\nkind = "openai"\nbase_url = "{server.openai_url}"\n'
            'api_key_command = "my-vault"\n'
        )
        path = f"{inside}:.:{os.environ['PATH']}"
        done = run_agent("run", "hi", "-m", "gw/m", env=agent_env(PATH=path), cwd=tmp_path / "sub")
    assert_one_line_error(done, "exit code 127")
    assert not (tmp_path / "ran").exists()


@pytest.mark.spec("EXT-7")
@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ("bearer", "authorization", f"Bearer {FIRST}"),
        ("x-api-key", "x-api-key", FIRST),
        ("none", "", ""),
    ],
)
@pytest.mark.parametrize("kind", ["anthropic", "openai", "gemini"])
def test_the_key_is_sent_as_the_settings_say(kind: str, auth: str, header: str, value: str) -> None:
    with ModelServer([say("done")]) as server:
        configure(
            f'[providers.gw]\nkind = "{kind}"\nbase_url = "{server.base_url(kind)}"\n'
            f'api_key_env = "GW_KEY"\nauth = "{auth}"\n'
        )
        done = ask("-m", "gw/m", GW_KEY=FIRST)
        assert result_of(done)["result"] == "done", done.stderr
        headers = server.requests[0].headers
    sent = {"authorization", "x-api-key", "x-goog-api-key"} & headers.keys()
    assert sent == ({header} if header else set())
    assert headers.get(header, "") == value


@pytest.mark.spec("EXT-7")
@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("bedrock/anthropic.claude-sonnet-4-5", "/anthropic/v1/messages"),
        ("bedrock/openai.gpt-5.4", "/openai/v1/responses"),
        ("bedrock/openai.gpt-oss-120b", "/v1/chat/completions"),
        ("azure/my-deployment", "/openai/v1/chat/completions"),
        ("vertex/gemini-3.6-flash", "/v1/publishers/google/models/gemini-3.6-flash"),
    ],
)
def test_a_cloud_is_a_row_and_a_key(model: str, path: str) -> None:
    with ModelServer([say("done")], api_key=FIRST) as server:
        done = ask(
            *("-m", model),
            AWS_BEARER_TOKEN_BEDROCK=FIRST,
            BEDROCK_BASE_URL=server.url,
            AZURE_OPENAI_API_KEY=FIRST,
            AZURE_OPENAI_BASE_URL=f"{server.url}/openai/v1",
            VERTEX_API_KEY=FIRST,
            VERTEX_BASE_URL=f"{server.url}/v1/publishers/google",
        )
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
        assert server.requests[0].path.partition(":")[0] == path


@pytest.mark.spec("EXT-7", "SEC-1")
def test_a_project_says_nothing_of_providers_trusted_or_not(tmp_path: Path) -> None:
    own = tmp_path / ".agentcli"
    own.mkdir()
    (own / "config.toml").write_text(
        f'[providers.anthropic]\napi_key_command = "touch {tmp_path}/ran"\n'
        'headers = {"X-A" = "b"}\nquery = {"x" = "y"}\nauth = "none"\n'
    )
    env = agent_env(ANTHROPIC_API_KEY=FIRST)
    run_agent("permissions", "trust", "--yes", env=env, cwd=tmp_path)
    with ModelServer([say("done")], api_key=FIRST) as server:
        env |= {"ANTHROPIC_BASE_URL": server.url}
        run_agent("run", "hi", "-m", "anthropic/claude-sonnet-4-5", env=env, cwd=tmp_path)
        assert "x-a" not in server.requests[0].headers
        assert "?" not in server.requests[0].path
    assert not (tmp_path / "ran").exists()


@pytest.mark.spec("EXT-7", "CLI-11")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('headers = "X-A: b"', "a table of HTTP headers"),
        ('headers = {"X A" = "b"}', "a table of HTTP headers"),
        ('headers = {"Host" = "evil"}', "a table of HTTP headers"),
        ('headers = {"X-A" = "b\\r\\nX-B: c"}', "a table of HTTP headers"),
        ("query = {a = 1}", "a table of texts"),
        ('auth = "basic"', "bearer, x-api-key, none"),
        ("api_key_command = 3", "a text"),
    ],
)
def test_a_setting_that_makes_no_sense_is_one_line(line: str, says: str) -> None:
    configure(f"[providers.gw]\n{line}\n")
    done = run_agent("run", "hi")
    assert done.code == 78
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.spec("EXT-7", "OPS-3")
def test_doctor_and_models_show_where_the_key_comes_from() -> None:
    with ModelServer([say("done")], api_key=FIRST) as server:
        configure(
            f'model = "gw/m"\n[providers.gw]\nkind = "openai"\nbase_url = "{server.openai_url}"\n'
            f'api_key_command = "echo {FIRST}"\n'
        )
        doctor = run_agent("doctor", env=agent_env(AWS_BEARER_TOKEN_BEDROCK=FIRST))
        listed = json.loads(run_agent("models", "gw/", "--format", "json").stdout)
    assert "gw (api_key_command)" in doctor.stdout
    assert "AWS_REGION" in doctor.stdout  # the token is there, the region is not
    assert [row["ready"] for row in listed if row["default"]] == [True]
    assert FIRST not in doctor.stdout + doctor.stderr
