"""``agent run --json-schema``: a result in a given shape on every wire protocol (CTRL-5, CLI-4..6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.one_shot import assert_one_line_error, check_sessions, one_shot, result_of
from tests.support.cli import Finished
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.replies import Call, call, calls, say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.slow

PROTOCOLS = [ANTHROPIC, OPENAI, RESPONSES, GEMINI]
FORMATS = ["text", "json", "stream-json"]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ADA = {"name": "Ada", "age": 36}
CITIES = {"type": "array", "items": {"type": "string"}, "minItems": 1}


def structured(
    server: ModelServer | None, schema: Any, *args: str, output: str = "json", **more: Any
) -> Finished:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return one_shot(server, "-o", output, "--json-schema", text, *args, "go", **more)


def tools_of(server: ModelServer, number: int = 0) -> dict[str, Any]:
    """The schemas of the tools in a request, by name."""
    body = server.requests[number].body
    found = {}
    for tool in body["tools"]:
        for each in tool.get("functionDeclarations", [tool.get("function", tool)]):
            keys = ("input_schema", "parameters", "parametersJsonSchema")
            found[each["name"]] = next((each[key] for key in keys if key in each), None)
    return found


@pytest.mark.spec("CTRL-5", "CLI-5", "CTRL-2")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("output", FORMATS)
def test_a_call_at_once_is_the_answer_after_exactly_one_request(
    model_server: ModelServer, tmp_path: Path, protocol: str, output: str
) -> None:
    model_server.add(call("final_result", ADA))
    done = structured(model_server, PERSON, output=output, protocol=protocol, cwd=tmp_path)
    assert (done.code, len(model_server.requests)) == (0, 1), done.stderr
    if output == "text":
        assert json.loads(done.stdout) == ADA and done.stdout.count("\n") == 1
    else:
        result = result_of(done)
        assert result["structured_output"] == ADA and json.loads(result["result"]) == ADA
        assert (result["subtype"], result["terminal_reason"]) == ("success", "completed")
        assert (result["is_error"], result["num_turns"]) == (False, 1)
    assert set(tools_of(model_server)["final_result"]["properties"]) == {"name", "age"}
    check_sessions()


@pytest.mark.spec("CTRL-5", "CLI-4")
def test_the_schema_may_be_a_file_and_has_an_alias(
    model_server: ModelServer, tmp_path: Path
) -> None:
    file = tmp_path / "person.json"
    file.write_text(json.dumps(PERSON), encoding="utf-8-sig")
    model_server.add(call("final_result", ADA))
    done = one_shot(model_server, "--output-schema", str(file), "who?", cwd=tmp_path)
    assert (done.code, json.loads(done.stdout)) == (0, ADA)


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_no_object_travels_in_one(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    model_server.add(call("final_result", {"result": ["Rome", "Oslo"]}))
    done = structured(model_server, CITIES, protocol=protocol, cwd=tmp_path)
    assert result_of(done)["structured_output"] == ["Rome", "Oslo"], done.stderr
    assert list(tools_of(model_server)["final_result"]["properties"]) == ["result"]


@pytest.mark.spec("CTRL-5", "LOOP-11", "LOOP-5")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_result_goes_back_to_the_model_with_what_is_wrong(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    wrong = call("final_result", {"name": "Ada", "age": -1}, id="call_1")
    model_server.add(wrong, call("final_result", ADA))
    done = structured(model_server, PERSON, protocol=protocol, cwd=tmp_path)
    assert (done.code, result_of(done)["structured_output"]) == (0, ADA)
    (told,) = facts_of(model_server.requests[1]).results.values()
    assert "age" in told and "minimum" in told and "-1" not in told
    assert result_of(done)["num_turns"] == 2


@pytest.mark.spec("CTRL-5", "LOOP-10")
def test_a_value_that_can_be_read_in_one_way_costs_no_second_request(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(call("final_result", {"name": "Ada", "age": "36"}))
    done = structured(model_server, PERSON, cwd=tmp_path)
    assert result_of(done)["structured_output"] == ADA


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("text", [json.dumps(ADA), f"Here:\n```json\n{json.dumps(ADA)}\n```\n"])
def test_words_count_when_the_reminders_are_used_up(
    model_server: ModelServer, tmp_path: Path, protocol: str, text: str
) -> None:
    model_server.add("It is Ada.", say(text), "As I said.")
    done = structured(model_server, PERSON, protocol=protocol, cwd=tmp_path)
    assert (done.code, result_of(done)["structured_output"]) == (0, ADA), done.stderr
    prompts = facts_of(model_server.requests[1]).prompts
    assert len(prompts) == 2 and "final_result" in prompts[1]
    assert tools_of(model_server, 0) == tools_of(model_server, 1)


@pytest.mark.spec("CTRL-5", "CTRL-4", "LOOP-3")
def test_after_words_all_tools_stay_open_and_what_was_announced_is_looked_up(
    model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text("Ada is 36.")
    todo = Call("write_todos", {"todos": []}, id="todo")
    look = Call("read_file", {"path": "b.txt"}, id="look")
    model_server.add("Next I will read b.txt.", calls(todo, look), call("final_result", ADA))
    done = structured(model_server, PERSON, cwd=tmp_path)
    assert (done.code, result_of(done)["structured_output"]) == (0, ADA)
    facts = facts_of(model_server.requests[2])
    assert facts.errors == set() and "Ada is 36." in facts.results["look"]
    assert tools_of(model_server, 0) == tools_of(model_server, 2)


@pytest.mark.spec("CTRL-5", "CLI-6")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("output", FORMATS)
def test_after_two_reminders_in_vain_the_run_fails_with_the_reason(
    model_server: ModelServer, tmp_path: Path, protocol: str, output: str
) -> None:
    model_server.add("It is Ada.", "Ada, I said.", "Shall I proceed?", "never asked for")
    done = structured(model_server, PERSON, output=output, protocol=protocol, cwd=tmp_path)
    assert (done.code, len(model_server.requests)) == (3, 3)
    assert_one_line_error(done, "no result that fits the schema", "2 reminders")
    if output == "text":
        assert done.stdout == ""
    else:
        result = result_of(done)
        assert result["subtype"] == "error_max_structured_output_retries"
        assert (result["is_error"], result["structured_output"]) == (True, None)
        assert result["terminal_reason"] == "max_structured_output_retries"
    assert len(facts_of(model_server.requests[2]).prompts) == 3
    check_sessions()


@pytest.mark.spec("CTRL-5")
def test_a_question_is_no_answer_and_does_not_take_the_tools_away(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(
        "Shall I proceed?", call("list_directory", {}, id="look"), call("final_result", ADA)
    )
    done = structured(model_server, {"type": "object"}, cwd=tmp_path)
    assert (done.code, result_of(done)["structured_output"]) == (0, ADA)
    facts = facts_of(model_server.requests[2])
    assert facts.errors == set() and "Nobody can answer" in facts.prompts[-1]


@pytest.mark.spec("CTRL-5")
def test_the_first_answer_of_substance_is_used_when_the_reminders_were_in_vain(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(json.dumps(ADA), "As I said.", "Really.")
    done = structured(model_server, PERSON, cwd=tmp_path)
    assert (done.code, result_of(done)["structured_output"]) == (0, ADA)


@pytest.mark.spec("CTRL-5", "LOOP-1")
def test_at_the_step_cap_an_answer_in_the_right_shape_is_better_than_none(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(json.dumps(ADA))
    done = structured(model_server, PERSON, "--max-turns", "1", cwd=tmp_path)
    assert (done.code, result_of(done)["structured_output"]) == (0, ADA)
    model_server.add("Ada.")
    done = structured(model_server, PERSON, "--max-turns", "1", output="text", cwd=tmp_path)
    assert (done.code, done.stdout) == (3, "")


@pytest.mark.spec("CTRL-5", "CLI-6")
def test_a_result_that_never_fits_ends_the_run(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add(*(call("final_result", {"name": str(n)}) for n in range(9)))
    done = structured(model_server, PERSON, cwd=tmp_path)
    assert (done.code, len(model_server.requests)) == (3, 5)
    assert result_of(done)["subtype"] == "error_max_structured_output_retries"
    check_sessions()


@pytest.mark.spec("CTRL-5", "REC-4", "HIS-1")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_session_goes_on_after_a_result_with_and_without_a_schema(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    model_server.add(call("final_result", ADA), call("final_result", {"result": 3}), "So long.")
    structured(model_server, PERSON, protocol=protocol, cwd=tmp_path)
    done = structured(
        model_server, {"type": "integer"}, "--continue", protocol=protocol, cwd=tmp_path
    )
    assert result_of(done)["structured_output"] == 3, done.stderr
    done = one_shot(model_server, "--continue", "thanks", protocol=protocol, cwd=tmp_path)
    assert (done.code, done.stdout) == (0, "So long.\n")
    assert len(facts_of(model_server.requests[2]).results) == 2


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ({"type": "null"}, None, "null"),
        ({"type": "boolean"}, False, "false"),
        ({"type": "string"}, "a\u2028\u001b[31m", '"a\\u2028\\u001b[31m"'),
        ({"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/T"}], "$defs": {"T": CITIES}}, ["x"], '["x"]'),
        (True, {"a": [1]}, '{"a":[1]}'),
    ],
)  # fmt: skip
def test_every_json_value_can_be_a_result(
    model_server: ModelServer, tmp_path: Path, schema: Any, value: Any, shown: str
) -> None:
    model_server.add(call("final_result", {"result": value}))
    done = structured(model_server, schema, output="text", cwd=tmp_path)
    assert (done.code, done.stdout) == (0, shown + "\n"), done.stderr


@pytest.mark.spec("CTRL-5", "CLI-11", "CLI-6", "SEC-12")
@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("missing.json", ["missing.json", "no such file"]),
        ("", ["empty"]),
        (".", ["directory"]),
        ("{", ["not json", "line 1"]),
        ("[1]", ["an array"]),
        ('{"type":"strin"}', ["type", "strin"]),
        ('{"properties":{"a":{"minimum":"x"}}}', ["properties.a.minimum"]),
        ('{"pattern":"("}', ["pattern"]),
        ('{"$ref":"#/$defs/none"}', ["/$defs/none", "not in it"]),
        ('{"properties":{"a":{"$ref":"https://example.invalid/x"}}}', ["not in it", "nothing is fetched"]),
        ('{"$ref":"#"}', ["itself"]),
        ('{"$schema":5}', ["$schema"]),
        ("[" * 100_000, ["nested"]),
    ],
)  # fmt: skip
def test_a_schema_that_is_none_is_a_usage_error_before_anything_is_asked(
    model_server: ModelServer, tmp_path: Path, given: str, parts: list[str]
) -> None:
    done = structured(model_server, given, cwd=tmp_path)
    assert (done.code, model_server.requests) == (2, [])
    assert_one_line_error(done, "--json-schema", *parts)
    assert result_of(done)["is_error"] is True


@pytest.mark.spec("CTRL-7", "CTRL-5", "LOOP-2")
def test_a_result_near_a_limit_is_complete_and_says_wrapped_up(
    model_server: ModelServer, tmp_path: Path
) -> None:
    looks = [call("list_directory", {"path": "."}, id=f"c{n}") for n in range(3)]
    model_server.add(*looks, call("final_result", ADA))
    done = structured(model_server, PERSON, "--max-turns", "5", cwd=tmp_path)
    assert (done.code, result_of(done)["terminal_reason"]) == (0, "wrapped_up")
    assert result_of(done)["structured_output"] == ADA
