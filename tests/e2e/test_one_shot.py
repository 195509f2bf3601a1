"""``agent run`` as people and programs use it: prompts, formats, limits, exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.one_shot import assert_one_line_error, one_shot, result_of
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, Tokens, call, calls, fails, say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-5", "CLI-6")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_text_output_is_the_final_answer_and_nothing_else(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    (tmp_path / "a.txt").write_text("content\n")
    model_server.add(
        calls(Call("read_file", {"path": "a.txt"}), text="Let me look."), "It says: content."
    )
    done = one_shot(model_server, "what is in a.txt?", protocol=protocol, cwd=tmp_path)
    assert (done.code, done.stdout) == (0, "It says: content.\n")
    assert "a.txt" in done.stderr and "Traceback" not in done.stderr
    assert "content" in facts_of(model_server.requests[1]).results.popitem()[1]


@pytest.mark.spec("CLI-4", "CLI-5")
def test_quiet_says_nothing_but_the_answer(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add(call("list_directory", {}), "Nothing here.")
    done = one_shot(model_server, "--quiet", "look", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("Nothing here.\n", "")


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_json_output_is_exactly_one_result_object(model_server: ModelServer, protocol: str) -> None:
    model_server.add(say("Four.", tokens=Tokens(input=10, output=3, cache_read=5)))
    done = one_shot(model_server, "-o", "json", "2+2?", protocol=protocol)
    assert len(done.stdout.splitlines()) == 1
    result = result_of(done)
    assert (result["subtype"], result["is_error"], result["result"]) == ("success", False, "Four.")
    assert result["num_turns"] == 1 and result["permission_denials"] == []
    assert result["usage"]["output_tokens"] == 3
    assert result["usage"]["cache_read_input_tokens"] == 5


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_stream_json_shows_each_message_and_ends_with_the_result(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    model_server.add(call("bash", {"command": "echo hi"}, id="one", text="Trying."), "Done.")
    done = one_shot(
        model_server, "--yolo", "-o", "stream-json", "go", protocol=protocol, cwd=tmp_path
    )
    assert [line["type"] for line in done.lines] == [
        "system", "assistant", "user", "assistant", "result",
    ]  # fmt: skip
    init, first, tool, last, result = done.lines
    assert init["subtype"] == "init" and init["session_id"] == result["session_id"]
    kinds = [block["type"] for block in first["message"]["content"]]
    assert kinds == ["text", "tool_use"]
    (block,) = tool["message"]["content"]
    assert block["tool_use_id"] == "one" and "hi" in json.dumps(block["content"])
    assert last["message"]["content"] == [{"type": "text", "text": "Done."}]
    assert result["num_turns"] == 2


@pytest.mark.spec("CLI-4", "CLI-5")
def test_partial_messages_are_the_answer_in_pieces(model_server: ModelServer) -> None:
    model_server.add(say("one two three four five", piece=4, thinking="hm, well"))
    done = one_shot(model_server, "-o", "stream-json", "--include-partial-messages", "go")
    events = [line["event"] for line in done.lines if line["type"] == "stream_event"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(d.get("text", "") for d in deltas) == "one two three four five"
    assert "".join(d.get("thinking", "") for d in deltas) == "hm, well"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_answer_is_complete_with_its_last_event_not_with_the_connection(
    model_server: ModelServer, protocol: str
) -> None:
    model_server.add(say("All of it.", stall_at="last"))
    done = one_shot(model_server, "go", protocol=protocol)
    assert (done.code, done.stdout) == (0, "All of it.\n")


@pytest.mark.slow
@pytest.mark.spec("HIS-4")
def test_thinking_goes_back_as_it_came(model_server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    model_server.add(
        calls(Call("read_file", {"path": "a.txt"}), thinking="I should look.", text="Looking."),
        say("Done.", thinking=""),
        "Again.",
    )
    args = ("--effort", "high", "-m", "anthropic/claude-sonnet-4-5")
    assert one_shot(model_server, *args, "go", cwd=tmp_path).code == 0
    assert one_shot(model_server, *args, "--continue", "more", cwd=tmp_path).code == 0
    kinds = [b["type"] for b in model_server.requests[-1].messages[1]["content"]]
    assert kinds == ["thinking", "text", "tool_use"]


@pytest.mark.slow
@pytest.mark.spec("HIS-4", "HIS-7")
def test_a_session_goes_on_with_another_protocol(model_server: ModelServer, tmp_path: Path) -> None:
    reply = calls(Call("list_directory", {}), thinking="hm", text="Looking.")
    model_server.add(reply, "One.", reply, "Two.", "Three.")
    assert one_shot(model_server, "go", cwd=tmp_path).code == 0
    other = one_shot(model_server, "-c", "-m", "openai/gpt-4.1", "more", cwd=tmp_path)
    assert (other.code, other.stdout) == (0, "Two.\n"), other.stderr
    back = one_shot(model_server, "-c", "-m", "anthropic/claude-sonnet-4-5", "x", cwd=tmp_path)
    assert (back.code, back.stdout) == (0, "Three.\n"), back.stderr


# --- the prompt ---------------------------------------------------------------------------------


def prompts(server: ModelServer) -> str:
    return "\n".join(facts_of(server.requests[-1]).prompts)


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_piped_stdin_is_the_prompt_or_is_added_to_it(model_server: ModelServer) -> None:
    model_server.add("1", "2", "3")
    assert one_shot(model_server, input="from the pipe\n").code == 0
    assert prompts(model_server) == "from the pipe"
    assert one_shot(model_server, "explain", input="some text").code == 0
    assert prompts(model_server).split("\n")[0] == "explain"
    assert "some text" in prompts(model_server)
    assert one_shot(model_server, "explain", input="  \n").code == 0
    assert prompts(model_server) == "explain"


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize(
    ("args", "prompt"),
    [
        (("-p", "hello"), "hello"),
        (("-p", "run"), "run"),
        (("--quiet", "-p", "hello"), "hello"),
        (("run", "two", "words"), "two words"),
        (("run", "--", "--help"), "--help"),
        (("-p", "--", "-x"), "-x"),
        (("run", "--quiet", "hello"), "hello"),
        (("run", "hello", "--quiet"), "hello"),
    ],
)
def test_where_the_prompt_may_stand(
    model_server: ModelServer, args: tuple[str, ...], prompt: str
) -> None:
    model_server.add("Yes.")
    done = run_agent(*args, env=agent_env(model_server))
    assert (done.code, done.stdout) == (0, "Yes.\n"), done.stderr
    assert prompts(model_server) == prompt


@pytest.mark.spec("CLI-2", "CLI-6")
@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("run",), ["no prompt"]),
        (("run", "  "), ["no prompt"]),
        (("run", "--no-such-flag", "x"), ["--no-such-flag"]),
        (("run", "--timeout", "soon", "x"), ["--timeout"]),
        (("run", "--max-turns", "-3", "x"), ["--max-turns"]),
        (("run", "-o", "yaml", "x"), ["yaml"]),
        (("run", "--effort", "extreme", "x"), ["extreme"]),
        (("run", "--permission-mode", "god", "x"), ["god"]),
        (("run", "--plan", "--yolo", "x"), ["plan", "yolo"]),
        (("run", "-c", "--session", "1", "x"), ["--continue", "--session"]),
        (("run", "--session", "no-such-id", "x"), ["no-such-id"]),
        (("run", "--continue", "x"), ["continue"]),
        (("run", "-C", "/no/such/dir", "x"), ["/no/such/dir"]),
        (("run", "--tools", "no_such_tool", "x"), ["no_such_tool"]),
        (("run", "--allow-tool", "bash(", "x"), ["bash("]),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    args: tuple[str, ...], parts: list[str]
) -> None:
    done = run_agent(*args, env=agent_env())
    assert done.code == 2, done.stderr
    assert done.stdout == ""
    assert_one_line_error(done, *parts)


@pytest.mark.spec("CLI-10")
def test_without_key_and_server_the_offline_default_answers_and_says_what_it_is() -> None:
    done = run_agent("run", "hello", env=agent_env())
    assert done.code == 0, done.stderr
    assert "offline" in (done.stdout + done.stderr).lower()


# --- sessions -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("REC-4")
def test_run_resumes_only_when_asked(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add("one", "two", "three", "four")
    first = result_of(one_shot(model_server, "-o", "json", "first", cwd=tmp_path))
    assert one_shot(model_server, "second", cwd=tmp_path).code == 0
    assert prompts(model_server) == "second"
    same = one_shot(model_server, "-o", "json", "--session", first["session_id"], "third")
    assert result_of(same)["session_id"] == first["session_id"]
    assert prompts(model_server).split("\n") == ["first", "third"]
    assert one_shot(model_server, "--continue", "fourth", cwd=tmp_path).code == 0
    assert "fourth" in prompts(model_server)


@pytest.mark.slow
@pytest.mark.spec("CLI-3")
def test_a_fork_leaves_the_session_as_it_is(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add("one", "two")
    first = result_of(one_shot(model_server, "-o", "json", "first", cwd=tmp_path))
    forked = result_of(one_shot(model_server, "-o", "json", "-c", "--fork", "x", cwd=tmp_path))
    assert forked["subtype"] == "success", forked["result"]
    assert forked["session_id"] != first["session_id"]
    assert prompts(model_server).split("\n") == ["first", "x"]
    shown = run_agent("sessions", "export", first["session_id"], env=agent_env())
    assert len(json.loads(shown.stdout)["messages"]) == 2


@pytest.mark.slow
@pytest.mark.spec("CLI-6")
def test_a_session_id_that_matches_several_is_refused_with_the_choices(
    model_server: ModelServer,
) -> None:
    model_server.add("one", "two")
    ids = [result_of(one_shot(model_server, "-o", "json", "x"))["session_id"] for _ in range(2)]
    common = os.path.commonprefix(ids)  # noqa: RUF071 - ids are no paths
    done = one_shot(model_server, "--session", common, "y")
    assert done.code == 2
    assert_one_line_error(done, common)


@pytest.mark.spec("CLI-3")
def test_no_session_keeps_nothing(model_server: ModelServer, home: Path) -> None:
    model_server.add("one")
    assert one_shot(model_server, "--no-session", "x").code == 0
    assert not list(home.rglob("*.db*"))


@pytest.mark.slow
@pytest.mark.spec("REC-5")
def test_continuing_without_a_prompt_needs_something_to_continue(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("one", fails(400), "now")
    assert one_shot(model_server, "x", cwd=tmp_path).code == 0
    done = one_shot(model_server, "--continue", cwd=tmp_path)
    assert done.code == 2
    assert_one_line_error(done, "assistant")
    assert one_shot(model_server, "--continue", "fails", cwd=tmp_path).code == 1
    done = one_shot(model_server, "--continue", cwd=tmp_path)
    assert (done.code, done.stdout) == (0, "now\n"), done.stderr


@pytest.mark.slow
@pytest.mark.spec("REC-7")
def test_a_damaged_session_names_the_way_out_and_blocks_nothing_else(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    model_server.add("one", "two")
    session_id = result_of(one_shot(model_server, "-o", "json", "x"))["session_id"]
    path = home / "agentcli" / "sessions" / f"{session_id}.db"
    path.write_bytes(b"garbage" * 1000)
    done = one_shot(model_server, "--session", session_id, "y")
    assert done.code == 74
    assert_one_line_error(done, session_id, "agent sessions repair")
    assert one_shot(model_server, "fresh", cwd=tmp_path).stdout == "two\n"
    assert path.read_bytes() == b"garbage" * 1000
    listed = run_agent("sessions", "list", env=agent_env())
    assert listed.code == 0 and "Traceback" not in listed.stderr
