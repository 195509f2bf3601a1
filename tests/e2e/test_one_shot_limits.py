"""``agent run`` that is not allowed to go on: limits, refusals, the service says no."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.one_shot import assert_one_line_error, check_sessions, one_shot, result_of
from tests.support.cli import KEY, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, Tokens, call, calls, fails, rate_limited, say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


# --- limits and refusals ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("LOOP-1", "CLI-6")
def test_the_turn_limit_ends_with_code_3_and_a_balanced_history(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(call("list_directory", {}), call("list_directory", {}), "after")
    done = one_shot(model_server, "-o", "json", "--max-turns", "2", "go", cwd=tmp_path)
    assert done.code == 3 and result_of(done)["subtype"] == "error_max_turns"
    assert result_of(done)["num_turns"] == 2
    assert one_shot(model_server, "--continue", "on", cwd=tmp_path).stdout == "after\n"


@pytest.mark.spec("CLI-6", "COST-2")
def test_the_budget_ends_with_code_3(model_server: ModelServer, tmp_path: Path) -> None:
    reply = call("list_directory", {}, tokens=Tokens(input=1_000_000, output=10))
    model_server.add(reply)
    done = one_shot(model_server, "-o", "json", "--max-budget-usd", "0.01", "go", cwd=tmp_path)
    assert done.code == 3 and result_of(done)["subtype"] == "error_max_budget_usd"


@pytest.mark.slow
@pytest.mark.spec("CLI-6", "CAN-1")
def test_the_time_limit_ends_with_code_3(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add(call("bash", {"command": "sleep 60"}))
    done = one_shot(model_server, "--yolo", "-o", "json", "--timeout", "1", "go", cwd=tmp_path)
    assert done.code == 3 and result_of(done)["subtype"] == "error_timeout"
    check_sessions()


@pytest.mark.spec("CLI-5", "LOOP-13")
def test_what_was_said_when_the_time_was_over_is_no_answer(
    model_server: ModelServer, tmp_path: Path
) -> None:
    said = "." * 12_000 + "Half of what"
    model_server.add(say(f"{said} it would have said", piece=len(said), stall_at="text"))
    done = one_shot(model_server, "--timeout", "1", "go", cwd=tmp_path)
    assert (done.code, done.stdout) == (3, "")
    assert "no answer (without the first 2,012 characters):\n" in done.stderr
    assert "....Half of what\n" in done.stderr and "stopped after 1 s" in done.stderr


@pytest.mark.spec("LOOP-13", "CLI-15")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_that_was_cut_is_no_success(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    model_server.default = say("Half of it", stop="max_tokens")
    done = one_shot(model_server, "-o", "json", "go", protocol=protocol, cwd=tmp_path)
    result = result_of(done)
    assert (done.code, result["is_error"], result["subtype"]) == (3, True, "error_max_tokens")
    assert (result["terminal_reason"], result["stop_reason"]) == ("max_tokens", "max_tokens")
    assert result["result"] == "Half of it"
    model_server.default = say("Whole.")
    done = one_shot(model_server, "-c", "-o", "json", "go on", protocol=protocol, cwd=tmp_path)
    assert (done.code, result_of(done)["stop_reason"]) == (0, "end_turn")


@pytest.mark.slow
@pytest.mark.spec("LOOP-13")
def test_input_that_is_not_sent_whole_says_so(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.default = say("I see.")
    (tmp_path / "big.txt").write_text("a line\n" * 20_000)
    env = agent_env(model_server)
    args = ("run", "-o", "json", "what is in @big.txt?")
    done = run_agent(*args, input="x" * 2_300_000, env=env, cwd=tmp_path)
    assert done.code == 0
    attached, too_long = result_of(done)["truncated"]
    assert attached == "file big.txt is attached in part or not at all"
    assert "of 2,3" in too_long and "beginning and the end" in too_long
    assert attached in done.stderr and too_long in done.stderr
    small = run_agent("run", "-o", "json", "hi", input="y", env=env, cwd=tmp_path)
    assert "truncated" not in result_of(small) and not small.stderr


@pytest.mark.spec("CLI-6", "CLI-7")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_is_there_to_approve(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    model_server.add(call("bash", {"command": "touch made"}, id="one"), "I may not.")
    done = one_shot(model_server, "-o", "json", "go", protocol=protocol, cwd=tmp_path)
    assert done.code == 4
    result = result_of(done)
    assert (result["is_error"], result["subtype"]) == (True, "error_approval_needed")  # CLI-15
    (denied,) = result["permission_denials"]
    assert (denied["tool_name"], denied["tool_use_id"]) == ("bash", "one")
    assert denied["tool_input"]["command"] == "touch made"
    told = facts_of(model_server.requests[1]).results["one"]
    assert "--allow-tool" in told and "Cancelled" not in told
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("CLI-3", "SEC-3")
def test_an_allow_rule_lets_exactly_its_command_run(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(
        calls(Call("bash", {"command": "touch a"}), Call("bash", {"command": "touch b"})), "So."
    )
    done = one_shot(model_server, "--allow-tool", "bash(touch a)", "go", cwd=tmp_path)
    assert done.code == 4
    assert (tmp_path / "a").exists() and not (tmp_path / "b").exists()


@pytest.mark.slow
@pytest.mark.spec("LOOP-12")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_cut_by_the_token_limit_is_never_run(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    model_server.add(call("bash", raw='{"command": "touch made', stop="max_tokens"), "I see.")
    model_server.default = "I see."
    one_shot(model_server, "--yolo", "go", protocol=protocol, cwd=tmp_path)
    assert not (tmp_path / "made").exists()
    check_sessions()


# --- the service refuses ------------------------------------------------------------------------


@pytest.mark.spec("CLI-6", "STR-9")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [(400, "bad_request", 1), (401, "auth", 78), (403, "permission", 78), (404, "not_found", 1), (413, "too_large", 1), (400, "context", 1)],
)  # fmt: skip
def test_a_refused_request_has_its_code_and_says_who_refused(
    model_server: ModelServer, protocol: str, status: int, kind: str, code: int
) -> None:
    model_server.add(fails(status, kind))
    done = one_shot(model_server, "-o", "json", "go", protocol=protocol)
    assert done.code == code, done.stderr
    assert result_of(done)["subtype"] == "error_during_execution"
    assert_one_line_error(done, protocol)
    assert KEY not in done.stdout + done.stderr
    assert len(model_server.requests) == 1


@pytest.mark.spec("STR-2", "CLI-6")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_retries_are_told_and_bounded(model_server: ModelServer, protocol: str) -> None:
    model_server.default = rate_limited("0")
    done = one_shot(model_server, "-o", "stream-json", "go", protocol=protocol)
    assert done.code == 75 and len(model_server.requests) == 4
    retries = [line for line in done.lines if line.get("subtype") == "api_retry"]
    assert [(line["attempt"], line["error"]) for line in retries] == [
        (n, "rate_limit") for n in (1, 2, 3)
    ]
    assert result_of(done)["is_error"] is True


@pytest.mark.spec("STR-2")
def test_a_retry_that_works_is_a_success(model_server: ModelServer) -> None:
    model_server.add(fails(529, retry_after="0"), fails(500, retry_after="0"), "At last.")
    done = one_shot(model_server, "go")
    assert (done.code, done.stdout) == (0, "At last.\n")


@pytest.mark.spec("CLI-10")
def test_a_local_server_of_ones_own_needs_no_key(model_server: ModelServer) -> None:
    model_server.add("Fine.")
    done = one_shot(model_server, "go", protocol=OPENAI, OPENAI_API_KEY=None)
    assert (done.code, done.stdout) == (0, "Fine.\n"), done.stderr
    assert "authorization" not in model_server.requests[0].headers


@pytest.mark.spec("CLI-6", "STR-9")
@pytest.mark.parametrize(
    ("protocol", "name"), [(ANTHROPIC, "ANTHROPIC_API_KEY"), (OPENAI, "OPENAI_API_KEY")]
)
def test_a_missing_key_is_named(model_server: ModelServer, protocol: str, name: str) -> None:
    unset = {name: None, name.replace("API_KEY", "BASE_URL"): None}
    done = one_shot(model_server, "-o", "json", "go", protocol=protocol, **unset)
    assert done.code == 78
    assert result_of(done)["is_error"] is True
    assert_one_line_error(done, name)
    assert model_server.requests == []


@pytest.mark.spec("CLI-6")
@pytest.mark.parametrize("name", ["nosuchprovider/some-model", "no-such-model"])
def test_an_unknown_provider_or_bare_name_is_named(name: str) -> None:
    done = run_agent("run", "-m", name, "x", env=agent_env())
    assert done.code in {2, 78}
    assert_one_line_error(done, name.split("/", maxsplit=1)[0])


@pytest.mark.spec("CLI-6", "CLI-11")
def test_an_unreadable_config_names_line_and_column(home: Path) -> None:
    config = home / "agentcli" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('model = "offline"\nmax_steps = = 3\n')
    done = run_agent("run", "x", env=agent_env())
    assert done.code == 78
    assert_one_line_error(done, f"{config}:2:13")
