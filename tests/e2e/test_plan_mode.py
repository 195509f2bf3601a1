"""Plan mode as a person and a script meet it: reads only, the plan approved, carried out, kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.chat import Chat, leave
from tests.e2e.one_shot import check_sessions, one_shot, result_of
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.replies import Call, call, calls
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI, RESPONSES, GEMINI]
PLAN = "# Write the file\n\n- write **made**"
WRITE = Call("write_file", {"path": "made", "content": "x\n"}, id="write")


def names_of(server: ModelServer, number: int) -> list[str]:
    tools = server.requests[number].body.get("tools", [])
    each = [d for tool in tools for d in tool.get("functionDeclarations", [tool])]
    return [tool.get("function", tool)["name"] for tool in each]


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "CLI-3", "CLI-7", "CTRL-2")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_without_a_terminal_the_plan_is_the_answer(
    model_server: ModelServer, tmp_path: Path, protocol: str, output: str
) -> None:
    (tmp_path / "a.txt").write_text("content\n")
    reads = calls(Call("read_file", {"path": "a.txt"}, id="read"), WRITE)
    model_server.add(reads, call("present_plan", {"plan": PLAN}))
    done = one_shot(model_server, "--plan", "-o", output, "go", protocol=protocol, cwd=tmp_path)
    assert (done.code, len(model_server.requests)) == (0, 2), done.stderr
    shown = done.stdout if output == "text" else result_of(done)["result"]
    assert shown.strip() == PLAN and not (tmp_path / "made").exists()
    facts = facts_of(model_server.requests[1])
    assert "content" in facts.results["read"] and "plan mode" in facts.results["write"].lower()
    assert "Plan mode" in facts.prompts[-1] and "present_plan" in names_of(model_server, 0)
    check_sessions()


@pytest.mark.spec("CTX-2", "SEC-3")
def test_a_run_that_is_not_in_plan_mode_knows_nothing_of_it(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("hello")
    one_shot(model_server, "go", cwd=tmp_path)
    assert "present_plan" not in names_of(model_server, 0)
    assert facts_of(model_server.requests[0]).prompts == ["go"]


@pytest.mark.slow
@pytest.mark.spec("SEC-3")
def test_the_tools_that_a_person_chose_leave_the_way_out_of_plan_mode(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("the plan", "the plan")
    one_shot(model_server, "--plan", "--tools", "read_file", "go", cwd=tmp_path)
    assert names_of(model_server, 0) == ["read_file", "present_plan"]
    schema = json.dumps({"type": "string"})
    one_shot(model_server, "--plan", "--json-schema", schema, "--max-turns", "1", "x", cwd=tmp_path)
    assert {"present_plan", "final_result"} & set(names_of(model_server, 1)) == {"final_result"}


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "UI-7", "UI-3", "LOOP-3")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_a_plan_is_refused_then_approved_and_carried_out_in_the_same_turn(
    model_server: ModelServer, chat: Chat, work: Path, protocol: str
) -> None:
    model_server.add(
        call("present_plan", {"plan": "# First idea"}, id="one"),
        call("present_plan", {"plan": PLAN}, id="two"),
        calls(WRITE),
        "All done.",
    )
    terminal = chat("--plan", protocol=protocol)
    terminal.line("write it")
    terminal.wait_for("First idea")
    terminal.wait_for("Carry out this plan?")
    terminal.confirm("r")
    terminal.wait_for("No, because:")
    terminal.line("smaller steps")
    terminal.wait_for("Write the file")
    assert not (work / "made").exists()
    terminal.confirm("s")
    terminal.wait_for("All done.")
    assert (work / "made").read_text() == "x\n"
    assert "smaller steps" in facts_of(model_server.requests[1]).results["one"]
    told = [facts_of(request).prompts[-1] for request in model_server.requests]
    assert ["Plan mode" in text for text in told] == [True, True, False, False]
    assert len({tuple(names_of(model_server, n)) for n in range(4)}) == 1
    terminal.line("/plan show")
    terminal.wait_for("The plan (approved)")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-3", "UI-5", "UI-8")
def test_plan_mode_is_entered_in_mid_session_and_its_plan_is_there_on_resume(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add("hello", call("present_plan", {"plan": PLAN}), "Waiting.")
    terminal = chat()
    terminal.line("hi")
    terminal.wait_for("hello")
    terminal.line("/plan")
    terminal.wait_for("Plan mode is on")
    terminal.line("write it")
    terminal.wait_for("Carry out this plan?")
    terminal.confirm("n")
    terminal.wait_for("Waiting.")
    assert not (work / "made").exists()
    told = [facts_of(request).prompts[-1] for request in model_server.requests]
    assert ["Plan mode" in text for text in told] == [False, True, True]
    assert names_of(model_server, 0) == names_of(model_server, 2)
    leave(terminal)
    again = chat("--continue")
    again.wait_for("/plan show")
    again.line("/plan show")
    again.wait_for("The plan (not approved)")
    leave(again)
