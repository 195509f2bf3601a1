"""Hooks as a person has them: real programs around a real ``agent run``."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.one_shot import assert_one_line_error, check_sessions, one_shot, result_of
from tests.support.cli import Running, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.processes import alive, wait_until
from tests.support.replies import Call, call, calls, say
from tests.support.sandboxes import BOTH, needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.slow

PROTOCOLS = [ANTHROPIC, OPENAI]


class Setup:
    """The person's configuration, and where hooks note what they were told."""

    def __init__(self, home: Path, work: Path) -> None:
        self.work = work
        self._told = home / "told"
        self._told.mkdir()
        self._scripts = home / "scripts"
        self._scripts.mkdir()
        self._file = home / "agentcli" / "config.toml"
        self._file.parent.mkdir(exist_ok=True)

    def hook(
        self,
        event: str,
        answer: Any = "",
        *,
        matcher: str = "",
        code: int = 0,
        stderr: str = "",
        script: str = "",
        timeout_s: float = 20,
    ) -> None:
        """A hook for ``event`` that notes what it is told and then answers."""
        text = answer if isinstance(answer, str) else json.dumps(answer)
        number = len(list(self._scripts.iterdir()))
        file = self._scripts / f"hook{number}"
        note = self._told / f"{event}-{number}-$$"
        (self._scripts / f"{number}.answer").write_text(text)
        lines = (
            f'cat > "{note}.part" && mv "{note}.part" "{note}.json"',
            script,
            f'cat "{self._scripts}/{number}.answer"',
            f"printf %s {json.dumps(stderr)} >&2" if stderr else "",
            f"exit {code}",
        )
        file.write_text("\n".join(lines))
        with self._file.open("a") as config:
            config.write(f"[[hooks.{event}]]\ncommand = 'sh {file}'\nmatcher = '{matcher}'\n")
            config.write(f"timeout_s = {timeout_s}\n")

    def write(self, text: str) -> None:
        """Add to the configuration."""
        with self._file.open("a") as config:
            config.write(text)

    def told(self, event: str) -> list[dict[str, Any]]:
        """What the hooks of ``event`` were told, oldest first."""
        files = sorted(self._told.glob(f"{event}-*.json"), key=lambda file: file.stat().st_mtime_ns)
        return [json.loads(file.read_text()) for file in files]


@pytest.fixture
def setup(home: Path, tmp_path: Path) -> Setup:
    work = tmp_path / "work"
    work.mkdir()
    return Setup(home, work)


def own(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def prompts(server: ModelServer, number: int) -> str:
    return "\n".join(facts_of(server.requests[number]).prompts)


def results(server: ModelServer, number: int) -> dict[str, str]:
    return facts_of(server.requests[number]).results


# --- what hooks are told ------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_moment_is_told_with_the_fields_that_are_its_own(
    model_server: ModelServer, setup: Setup, protocol: str
) -> None:
    for event in (
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
    ):  # fmt: skip
        setup.hook(event)
    (setup.work / "a.txt").write_text("content\n")
    model_server.add(call("read_file", {"path": "a.txt"}, id="one"), "Done.")
    done = one_shot(model_server, "-o", "json", "go on", protocol=protocol, cwd=setup.work)
    assert done.code == 0 and done.stderr.count("hook") == 0
    session = result_of(done)["session_id"]
    (start,), (prompt,), (pre,), (post,), (stop,), (end,) = (
        setup.told(event)
        for event in (
            "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
        )
    )  # fmt: skip
    for told in (start, prompt, pre, post, stop, end):
        assert (told["session_id"], told["cwd"]) == (session, str(setup.work))
        assert told["permission_mode"] == "default"
        assert told["transcript_path"].endswith(f"{session}.db")
    assert (start["hook_event_name"], start["source"]) == ("SessionStart", "startup")
    assert prompt["prompt"] == "go on"
    for told in (pre, post):
        assert (told["tool_name"], told["tool_input"]) == ("read_file", {"path": "a.txt"})
        assert told["tool_use_id"]
    assert "content" in post["tool_response"]["content"]
    assert post["tool_response"]["is_error"] is False
    assert (stop["stop_hook_active"], stop["last_assistant_message"]) == (False, "Done.")
    assert end["reason"] == "other"


def test_a_resumed_session_says_so(model_server: ModelServer, setup: Setup) -> None:
    setup.hook("SessionStart", matcher="resume")
    model_server.add("One.", "Two.")
    assert one_shot(model_server, "a", cwd=setup.work).code == 0
    assert setup.told("SessionStart") == []
    assert one_shot(model_server, "-c", "b", cwd=setup.work).code == 0
    assert [told["source"] for told in setup.told("SessionStart")] == ["resume"]


@pytest.mark.spec("SEC-8")
def test_a_hook_runs_in_the_project_without_the_keys(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.hook("UserPromptSubmit", script="pwd; env")
    model_server.add("Done.")
    assert one_shot(model_server, "go", cwd=setup.work, PLAIN="kept").code == 0
    shown = prompts(model_server, 0)
    assert f"CLAUDE_PROJECT_DIR={setup.work}\n" in shown
    assert f"AGENTCLI_PROJECT_DIR={setup.work}\n" in shown
    assert f"(A hook adds: {setup.work}\n" in shown and "PLAIN=kept" in shown
    assert "API_KEY" not in shown


# --- context ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_start_and_prompt_hooks_print_goes_with_the_prompt_and_stays(
    model_server: ModelServer, setup: Setup, protocol: str
) -> None:
    setup.hook("SessionStart", "The branch is main.")
    setup.hook("UserPromptSubmit", own("UserPromptSubmit", additionalContext="Speak French."))
    model_server.add("One.", "Two.")
    assert one_shot(model_server, "hello", protocol=protocol, cwd=setup.work).code == 0
    first = prompts(model_server, 0)
    assert first.startswith("hello")
    assert "The branch is main." in first and "Speak French." in first
    assert one_shot(model_server, "-c", "more", protocol=protocol, cwd=setup.work).code == 0
    assert prompts(model_server, 1).startswith(first)


# --- prompts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
@pytest.mark.parametrize("how", ["exit code", "answer", "continue"])
def test_a_refused_prompt_is_neither_sent_nor_stored(
    model_server: ModelServer, setup: Setup, output: str, how: str
) -> None:
    if how == "exit code":
        setup.hook("UserPromptSubmit", code=2, stderr="no secrets please")
    elif how == "answer":
        answer = {"decision": "block", "reason": "no secrets please"}
        setup.hook("UserPromptSubmit", answer)
    else:
        stop = {"continue": False, "stopReason": "no secrets please"}
        setup.hook("UserPromptSubmit", stop)
    done = one_shot(model_server, "-o", output, "my password is x", cwd=setup.work)
    assert done.code == 1
    assert_one_line_error(done, "a hook refused the prompt", "no secrets please")
    assert model_server.requests == []
    if output != "text":
        assert result_of(done)["subtype"] == "error_during_execution"
    listed = run_agent("sessions", "list", "--format", "json", env=agent_env())
    assert json.loads(listed.stdout) == []


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("how", ["exit code", "decision", "permission"])
def test_a_refused_call_does_not_run_and_the_model_is_told_why(
    model_server: ModelServer, setup: Setup, protocol: str, how: str
) -> None:
    if how == "exit code":
        setup.hook("PreToolUse", code=2, stderr="not on Fridays", matcher="bash")
    elif how == "decision":
        setup.hook("PreToolUse", {"decision": "block", "reason": "not on Fridays"})
    else:
        denied = {"permissionDecision": "deny", "permissionDecisionReason": "not on Fridays"}
        setup.hook("PreToolUse", own("PreToolUse", **denied))
    model_server.add(call("bash", {"command": "touch made"}, id="one"), "I see.")
    done = one_shot(model_server, "--yolo", "-o", "json", "go", protocol=protocol, cwd=setup.work)
    assert done.code == 0
    assert not (setup.work / "made").exists()
    assert "not on Fridays" in results(model_server, 1)["one"]
    (denial,) = result_of(done)["permission_denials"]
    assert denial["tool_name"] == "bash"


def test_a_matcher_of_another_agent_guards_our_tool(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.hook("PreToolUse", code=2, stderr="no", matcher="Bash")
    model_server.add(call("bash", {"command": "touch made"}, id="one"), "I see.")
    assert one_shot(model_server, "--yolo", "go", cwd=setup.work).code == 0
    assert not (setup.work / "made").exists()


@pytest.mark.parametrize("code", [1, 127])
def test_a_hook_that_fails_is_a_warning_and_the_turn_goes_on(
    model_server: ModelServer, setup: Setup, code: int
) -> None:
    for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"):
        setup.hook(event, code=code, stderr=f"boom {event}")
    model_server.add(call("bash", {"command": "touch made"}), "Done.")
    done = one_shot(model_server, "--yolo", "go", cwd=setup.work)
    assert (done.code, done.stdout) == (0, "Done.\n")
    assert (setup.work / "made").exists()
    for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"):
        assert f"failed with exit code {code}: boom {event}" in done.stderr


def test_a_hook_that_takes_too_long_is_stopped_and_warned_about(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.hook("PreToolUse", script="sleep 300", timeout_s=0.3)
    model_server.add(call("list_directory", {}), "Done.")
    done = one_shot(model_server, "go", cwd=setup.work)
    assert done.code == 0
    assert "took longer than 0.3 s and was stopped" in done.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_changed_arguments_are_what_runs_and_all_are_told(
    model_server: ModelServer, setup: Setup, protocol: str
) -> None:
    changed = own("PreToolUse", permissionDecision="allow", updatedInput={"command": "touch good"})
    setup.hook("PreToolUse", changed)
    setup.hook("PostToolUse")
    model_server.add(call("bash", {"command": "touch bad"}, id="one"), "Done.")
    done = one_shot(model_server, "-o", "stream-json", "go", protocol=protocol, cwd=setup.work)
    assert done.code == 0
    assert [file.name for file in setup.work.iterdir()] == ["good"]
    # the history keeps what the model has asked for, and says what was run
    facts = facts_of(model_server.requests[1])
    assert "touch good" in "\n".join(facts.prompts)
    assert setup.told("PostToolUse")[0]["tool_input"] == {"command": "touch good"}
    (shown,) = [line for line in done.lines if line["type"] == "assistant"][:1]
    assert "touch bad" in json.dumps(shown)


def test_changed_arguments_that_the_tool_does_not_take_do_not_run(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.hook("PreToolUse", own("PreToolUse", updatedInput={"cmd": "touch bad"}))
    model_server.add(call("bash", {"command": "touch bad"}, id="one"), "I see.")
    done = one_shot(model_server, "--yolo", "go", cwd=setup.work)
    assert done.code == 0
    assert not (setup.work / "bad").exists()
    assert "a hook changed its arguments to something invalid" in results(model_server, 1)["one"]
    assert "something invalid" in done.stderr


@pytest.mark.spec("SEC-3")
def test_a_hook_may_allow_what_asks_but_nothing_that_is_denied_or_protected(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.hook("PreToolUse", own("PreToolUse", permissionDecision="allow"))
    (setup.work / ".git").mkdir()
    model_server.add(
        calls(
            Call("bash", {"command": "touch allowed"}, id="free"),
            Call("bash", {"command": "rm allowed"}, id="denied"),
            Call("write_file", {"path": ".git/config", "content": "x"}, id="protected"),
        ),
        "Done.",
    )
    args = ("--deny-tool", "bash(rm *)")
    assert one_shot(model_server, *args, "go", cwd=setup.work).code == 4
    assert (setup.work / "allowed").exists()
    assert not (setup.work / ".git/config").exists()
    told = results(model_server, 1)
    assert "denied by the rule" in told["denied"] and "approval" in told["protected"]


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("changed", ["rm -rf sub", "touch ../outside"])
def test_arguments_that_a_hook_has_changed_are_judged_anew(
    model_server: ModelServer, setup: Setup, changed: str
) -> None:
    (setup.work / "sub").mkdir()
    setup.hook("PreToolUse", own("PreToolUse", updatedInput={"command": changed}))
    model_server.add(call("bash", {"command": "ls"}, id="one"), "I see.")
    args = ("--deny-tool", "bash(rm *)")
    one_shot(model_server, *args, "go", cwd=setup.work)
    assert (setup.work / "sub").exists() and not (setup.work / "../outside").exists()
    assert "was not run" in results(model_server, 1)["one"]


@pytest.mark.spec("LOOP-4")
def test_a_read_that_a_hook_makes_an_effect_runs_alone_and_in_order(
    model_server: ModelServer, setup: Setup
) -> None:
    script = (
        'read -r told < "$0.now" 2>/dev/null; '
        "case \"$(cat {told}/PreToolUse-*-$$.json)\" in *'ls second'*) cat {answer};; esac"
    )
    answer = setup.work.parent / "answer"
    update = {"command": "sleep 0.2; touch made; ls"}
    answer.write_text(
        json.dumps(own("PreToolUse", permissionDecision="allow", updatedInput=update))
    )
    told = Path(os.environ["HOME"]) / "told"
    setup.hook("PreToolUse", script=script.format(told=told, answer=answer))
    (setup.work / "first").mkdir()
    model_server.add(
        calls(
            Call("bash", {"command": "ls first"}, id="a"),
            Call("bash", {"command": "ls second"}, id="b"),
            Call("list_directory", {}, id="c"),
        ),
        "Done.",
    )
    assert one_shot(model_server, "go", cwd=setup.work).code == 0
    assert "made" in results(model_server, 1)["c"]
    assert len(setup.told("PreToolUse")) == 3


@pytest.mark.spec("CLI-7")
def test_a_hook_may_ask_where_the_mode_would_not(model_server: ModelServer, setup: Setup) -> None:
    answer = {"permissionDecision": "ask", "permissionDecisionReason": "production"}
    setup.hook("PreToolUse", own("PreToolUse", **answer))
    model_server.add(call("bash", {"command": "touch made"}, id="one"), "I see.")
    assert one_shot(model_server, "--yolo", "go", cwd=setup.work).code == 4
    assert not (setup.work / "made").exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.spec("CAN-8")
def test_what_a_hook_says_after_a_call_is_told_beside_the_true_result(
    model_server: ModelServer, setup: Setup, protocol: str
) -> None:
    setup.hook("PostToolUse", code=2, stderr="the linter found 3 problems", matcher="write_file")
    model_server.add(
        call("write_file", {"path": "a.py", "content": "x"}, id="one"),
        "I see.",
        "Later.",
    )
    done = one_shot(model_server, "--yolo", "go", protocol=protocol, cwd=setup.work)
    assert done.code == 0
    assert "linter" not in results(model_server, 1)["one"]
    assert "the linter found 3 problems" in prompts(model_server, 1)
    assert one_shot(model_server, "-c", "more", protocol=protocol, cwd=setup.work).code == 0
    assert "the linter found 3 problems" in prompts(model_server, 2)
    check_sessions()


def test_continue_false_ends_the_turn_and_what_was_left_does_not_run(
    model_server: ModelServer, setup: Setup
) -> None:
    stop = {"continue": False, "stopReason": "that was enough"}
    setup.hook("PostToolUse", stop, matcher="bash")
    setup.hook("Stop")
    model_server.add(
        calls(
            Call("bash", {"command": "touch one"}, id="a"),
            Call("bash", {"command": "touch two"}, id="b"),
        ),
        "Again.",
    )
    done = one_shot(model_server, "--yolo", "go", cwd=setup.work)
    assert done.code == 0 and "a hook ends the turn: that was enough" in done.stderr
    assert [file.name for file in setup.work.iterdir()] == ["one"]
    assert len(model_server.requests) == 1
    assert setup.told("Stop") == []
    assert one_shot(model_server, "-c", "more", "--yolo", cwd=setup.work).code == 0
    assert "a hook ended the turn" in results(model_server, 1)["b"]


# --- the end of a turn --------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stop_hook_keeps_the_turn_going_until_it_is_content(
    model_server: ModelServer, setup: Setup, protocol: str
) -> None:
    script = "test -e content && exit 0; touch content"
    setup.hook("Stop", script=script, code=2, stderr="the tests fail")
    model_server.add("Done.", "Now it is.")
    done = one_shot(model_server, "-o", "json", "go", protocol=protocol, cwd=setup.work)
    result = result_of(done)
    assert (done.code, result["result"], result["num_turns"]) == (0, "Now it is.", 2)
    assert "the tests fail" in prompts(model_server, 1)
    assert [told["stop_hook_active"] for told in setup.told("Stop")] == [False, True]


@pytest.mark.spec("CTRL-7")
def test_a_stop_hook_that_is_never_content_is_not_asked_for_ever(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.hook("Stop", {"decision": "block", "reason": "more"})
    model_server.add(*[f"Answer {n}." for n in range(20)])
    done = one_shot(model_server, "go", cwd=setup.work)
    assert (done.code, done.stdout) == (0, "Answer 8.\n")
    assert "wants the turn to go on, but it did so 8 times" in done.stderr
    check_sessions()


def test_a_stop_hook_may_not_pass_the_limit_of_steps(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.hook("Stop", {"decision": "block", "reason": "more"})
    model_server.add("One.", "Two.", "Three.")
    assert one_shot(model_server, "--max-turns", "2", "go", cwd=setup.work).code == 3
    assert len(model_server.requests) == 2


# --- several hooks, and the rest ----------------------------------------------------------------


def test_hooks_of_one_moment_run_at_the_same_time(model_server: ModelServer, setup: Setup) -> None:
    # each waits for what the other makes: one after the other they would wait for ever
    wait = "touch {mine}; while ! test -e {other}; do sleep 0.02; done"
    setup.hook("UserPromptSubmit", "one", script=wait.format(mine="one", other="two"))
    setup.hook("UserPromptSubmit", "two", script=wait.format(mine="two", other="one"))
    model_server.add("Done.")
    done = one_shot(model_server, "go", cwd=setup.work)
    assert done.code == 0 and done.stderr == ""
    assert prompts(model_server, 0).index("adds: one") < prompts(model_server, 0).index("adds: two")


def test_a_message_of_a_hook_is_shown(model_server: ModelServer, setup: Setup) -> None:
    setup.hook("PreToolUse", {"systemMessage": "Mind the gap.", "suppressOutput": True})
    model_server.add(call("list_directory", {}), "Done.")
    assert "Mind the gap." in one_shot(model_server, "go", cwd=setup.work).stderr


def test_an_approval_that_waits_is_a_notification(model_server: ModelServer, setup: Setup) -> None:
    setup.hook("Notification", matcher="permission_prompt")
    model_server.add(call("bash", {"command": "touch made"}), "I see.")
    assert one_shot(model_server, "go", cwd=setup.work).code == 4
    (told,) = setup.told("Notification")
    assert "needs your permission" in told["message"] and "touch made" in told["message"]
    assert told["notification_type"] == "permission_prompt"


@pytest.mark.spec("CLI-9")
def test_config_shows_the_hooks_with_their_place(setup: Setup) -> None:
    setup.write('[[hooks.PreToolUse]]\nmatcher = "bash"\ncommand = "check it"\n')
    shown = run_agent("config", "show", env=agent_env())
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("hooks.PreToolUse")]
    assert "bash: check it (60 s)" in line and "config.toml:1" in line
    got = run_agent("config", "get", "hooks.PreToolUse", env=agent_env())
    assert got.stdout == "bash: check it (60 s)\n"
    refused = run_agent("config", "set", "hooks.Stop", "x", env=agent_env())
    assert refused.code == 2 and "agent config edit" in refused.stderr


@pytest.mark.spec("SEC-1")
def test_hooks_of_a_project_are_not_run(model_server: ModelServer, setup: Setup) -> None:
    for name in (".agents/config.toml", ".agents/hooks.toml", ".agentcli/config.toml"):
        file = setup.work / name
        file.parent.mkdir(exist_ok=True)
        file.write_text('[[hooks.SessionStart]]\ncommand = "touch evil"\n')
    (setup.work / ".claude").mkdir()
    (setup.work / ".claude/settings.json").write_text(
        '{"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":"touch evil"}]}]}}'
    )
    model_server.add("Done.")
    assert one_shot(model_server, "go", cwd=setup.work).code == 0
    assert not (setup.work / "evil").exists()


@pytest.mark.spec("SEC-1", "SEC-17")
@pytest.mark.parametrize(
    "command", ["./notify.sh", "timeout 5s ./notify.sh", "sh < notify.sh", "cat notify.sh | sh"]
)
def test_what_an_unknown_directory_brings_runs_contained_in_a_hook_of_the_users(
    model_server: ModelServer, setup: Setup, tmp_path: Path, command: str
) -> None:
    needs("landlock")
    script = setup.work / "notify.sh"
    script.write_text(f"#!/bin/sh\necho ran >ran\necho evil >'{tmp_path}/evil'\n")
    script.chmod(0o755)
    setup.write(f"[[hooks.SessionStart]]\ncommand = '{command}'\n")
    model_server.add("Done.")
    assert one_shot(model_server, "go", cwd=setup.work).code == 0
    assert (setup.work / "ran").exists()
    assert not (tmp_path / "evil").exists()


@pytest.mark.spec("CAN-9", "CAN-10")
@pytest.mark.parametrize(
    "event", ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
)
def test_a_signal_stops_a_hook_with_all_that_it_started(
    model_server: ModelServer, setup: Setup, event: str
) -> None:
    pid_file = setup.work.parent / "hook.pid"
    script = f"(trap '' TERM; sleep 300) & echo $! > {pid_file}.part; mv {pid_file}.part {pid_file}; wait"
    setup.hook(event, script=script, timeout_s=60)
    model_server.add(call("bash", {"command": "touch made"}, id="one"), "Done.")
    env = agent_env(model_server)
    with Running("run", "--yolo", "-o", "json", "go", env=env, cwd=setup.work) as running:
        wait_until(pid_file.exists, f"the {event} hook never ran")
        running.signal(signal.SIGTERM)
        done = running.wait(15)
    assert done.code == 143
    assert result_of(done)["subtype"] == "cancelled"
    assert not alive(int(pid_file.read_text()))
    check_sessions()
    # the prompt is recorded, and what had happened is told as it was
    shown = run_agent(
        "sessions", "export", "--format", "json", result_of(done)["session_id"], env=env
    )
    messages = json.loads(shown.stdout)["messages"]
    assert messages[0]["content"][0]["text"] == "go"
    ran = event in {"PostToolUse", "Stop"}
    assert (setup.work / "made").exists() is ran
    if event == "PostToolUse":
        assert messages[2]["content"][0]["is_error"] is False


@pytest.mark.spec("REC-8")
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and a child subreaper")
def test_a_hook_does_not_outlive_a_killed_app(model_server: ModelServer, setup: Setup) -> None:
    pid_file = setup.work.parent / "hook.pid"
    setup.hook("PreToolUse", script=f"echo $$ > {pid_file}; sleep 300", timeout_s=60)
    model_server.add(call("list_directory", {}), "Done.")
    with Running("run", "go", env=agent_env(model_server), cwd=setup.work) as running:
        wait_until(lambda: pid_file.exists() and bool(pid_file.read_text()), "the hook never ran")
        running.process.kill()
        running.process.wait(timeout=15)
        pid = int(pid_file.read_text())
        wait_until(lambda: not alive(pid), "the hook outlived the app")


def test_a_long_answer_and_a_long_error_are_no_harm(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.hook("UserPromptSubmit", script="head -c 3000000 /dev/zero | tr '\\0' x")
    setup.hook("PreToolUse", script="head -c 3000000 /dev/zero | tr '\\0' y >&2", code=2)
    model_server.add(call("list_directory", {}, id="one"), say("Done."))
    assert one_shot(model_server, "go", cwd=setup.work).code == 0
    assert len(prompts(model_server, 0)) < 12_000
    assert len(results(model_server, 1)["one"]) < 12_000


@pytest.mark.spec("CLI-5")
def test_a_refused_message_of_a_stream_gets_its_result_and_the_next_one_runs(
    model_server: ModelServer, setup: Setup
) -> None:
    setup.write(
        "[[hooks.UserPromptSubmit]]\ncommand = 'grep -q secret && { echo no >&2; exit 2; }; exit 0'\n"
    )
    model_server.add("Hello.")
    lines = [
        {"type": "user", "message": {"role": "user", "content": text}}
        for text in ("my secret", "good morning")
    ]
    done = one_shot(
        model_server, "--input-format", "stream-json", "-o", "stream-json", cwd=setup.work,
        input="".join(json.dumps(line) + "\n" for line in lines),
    )  # fmt: skip
    results_ = [line for line in done.lines if line["type"] == "result"]
    assert [line["is_error"] for line in results_] == [True, False], done.stdout + done.stderr
    assert facts_of(model_server.requests[0]).prompts == ["good morning"]


ALLOWS = (
    'echo \'{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}\''
)


@pytest.mark.spec("SEC-1", "SEC-3", "SEC-17")
def test_a_hook_that_runs_an_unknown_directory_frees_no_call(
    model_server: ModelServer, setup: Setup, tmp_path: Path
) -> None:
    needs("landlock")
    (setup.work / "check.sh").write_text(ALLOWS)
    setup.write("[[hooks.PreToolUse]]\ncommand = 'sh ./check.sh'\n")
    outside = {"command": f"touch '{tmp_path}/evil'", "access": "outside"}
    model_server.add(call("bash", outside, id="one"), "Done.")
    done = one_shot(model_server, "go", cwd=setup.work)
    assert done.code == 4 and not (tmp_path / "evil").exists()
    assert "its allowing does not count" in done.stderr


@pytest.mark.spec("SEC-1", "SEC-17")
@pytest.mark.parametrize("trust", [False, True])
def test_without_a_sandbox_nothing_of_an_unknown_directory_runs_in_a_hook(
    model_server: ModelServer, setup: Setup, trust: bool
) -> None:
    (setup.work / "Makefile").write_text("ran:\n\t@touch ran\n")
    setup.write("[[hooks.SessionStart]]\ncommand = 'make -s ran'\n")
    model_server.add("Done.")
    args = ("--trust",) if trust else ()
    done = one_shot(model_server, "--sandbox", "off", *args, "go", cwd=setup.work)
    assert done.code == 0
    assert (setup.work / "ran").exists() is trust
    assert ("was not run" in done.stderr) is not trust


@pytest.mark.spec("SEC-13", "CLI-5")
@pytest.mark.parametrize("is_done", [True, False])
def test_a_signal_is_answered_while_the_session_takes_its_time_to_close(
    model_server: ModelServer, setup: Setup, is_done: bool
) -> None:
    begun, go = setup.work / "begun", setup.work / "go"
    wait = f"touch {begun}; until [ -e {go} ]; do sleep 0.02; done"
    setup.hook("SessionEnd", script=wait)
    model_server.add(say("Done." if is_done else "x", stall_at=None if is_done else "start"))
    env = agent_env(model_server)
    with Running("run", "-o", "json", "go", env=env, cwd=setup.work) as running:
        if is_done:
            wait_until(begun.exists, "the hook never ran")
        else:
            model_server.wait_until_waiting()
        running.signal(signal.SIGINT)
        wait_until(lambda: "one moment" in running.stderr, "the answer")
        go.touch()
        done = running.wait(15)
    assert done.code == (0 if is_done else 130)
    assert done.stderr.count("one moment") == 1
    assert result_of(done)["subtype"] == ("success" if is_done else "cancelled")


_REPLACES = """\
import os
while "new" not in open("a.txt").read():
    pass
os.symlink(os.environ["THERE"], "link")
os.replace("link", "a.txt")
"""


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("kind", BOTH)
def test_no_hook_outside_opens_a_file_that_something_inside_may_make_a_link_meanwhile(
    model_server: ModelServer, setup: Setup, home: Path, kind: str
) -> None:
    needs(kind)
    (key := home / "key").write_text("TODO alpha\n")
    (setup.work / "a.txt").write_text("old\n")
    (setup.work / "replace.py").write_text(_REPLACES)
    opens = "until [ -h a.txt ]; do sleep 0.01; done; cat a.txt >&2; echo more >> a.txt"
    setup.hook("PostToolUse", matcher="write_file", script=opens, code=2)
    command = f"THERE={key} python3 replace.py >/dev/null 2>&1 &"
    write = call("write_file", {"path": "a.txt", "content": "new\n"})
    model_server.add(call("bash", {"command": command}), write, "Done.")
    options = ("--permission-mode", "auto", "--sandbox", kind)
    done = one_shot(model_server, "go", *options, cwd=setup.work)
    assert done.code == 0 and "ran in the sandbox: what was left running" in done.stderr
    assert key.read_text() == "TODO alpha\n" and "alpha" not in prompts(model_server, -1)
