"""The strict check of the Responses API can pass and can fail; its server speaks the protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.model_server import ModelServer
from tests.support.replies import Call, Reply, Text, Thinking, Tokens
from tests.support.strict import check_responses
from tests.support.strict_responses import Issued

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 24
Body = dict[str, Any]
Spoil = Callable[[Body], object]


def reasoning(item_id: str = "rs_1") -> Body:
    return {"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": f"e{item_id}"}


def call(call_id: str, arguments: str = '{"path":"x"}') -> Body:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "read_file",
        "arguments": arguments,
    }


def output(call_id: str) -> Body:
    return {"type": "function_call_output", "call_id": call_id, "output": "one"}


def responses_body() -> Body:
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    image = {"type": "input_image", "image_url": url, "detail": "auto"}
    return {
        "model": "gpt-5.2",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "tools": [
            {
                "type": "function",
                "name": "read_file",
                "description": "d",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
            reasoning(),
            call("a"),
            call("b"),
            output("a"),
            {**output("b"), "output": [{"type": "input_text", "text": "x"}, image]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "b", "annotations": []}],
            },
            {"role": "user", "content": "go on"},
        ],
    }


SPOILT: dict[str, tuple[Spoil, str]] = {
    "unknown field": (lambda b: b.update(messages=[]), "Unknown parameter: 'messages'."),
    "no input": (lambda b: b.update(input=[]), "Invalid 'input': empty array."),
    "no model": (lambda b: b.pop("model"), "Missing required parameter: 'model'."),
    "stored": (lambda b: b.pop("store"), "store must be false"),
    "earlier response": (lambda b: b.update(previous_response_id="resp_1"), "not found"),
    "output limit": (lambda b: b.update(max_output_tokens=1), "Expected a value >= 16"),
    "include": (lambda b: b.update(include=["all"]), "Invalid value: 'all'."),
    "effort": (lambda b: b["reasoning"].update(effort="minimal"), "Unsupported value: 'minimal'"),
    "no reasoning model": (lambda b: b.update(model="gpt-4.1"), "'reasoning.effort' is not supp"),
    "encryption": (
        lambda b: b.update(model="gpt-4.1", reasoning=None),
        "Encrypted content is not supported",
    ),
    "tool of the other API": (
        lambda b: b.update(tools=[{"type": "function", "function": {"name": "x"}}]),
        "Missing required parameter: 'tools[0].name'.",
    ),
    "tool schema": (
        lambda b: b["tools"][0].update(parameters={"type": "array"}),
        "Invalid schema for function 'read_file'",
    ),
    "strict tool": (lambda b: b["tools"][0].pop("strict"), "'additionalProperties' is required"),
    "tool name": (lambda b: b["tools"][0].update(name="a b"), "Invalid 'tools[0].name'"),
    "unknown item": (lambda b: b["input"][0].update(type="text"), "Invalid value: 'text'."),
    "unknown parameter": (
        lambda b: b["input"][1].update(status="completed"),
        "Unknown parameter: 'input[1].status'.",
    ),
    "no output": (
        lambda b: b["input"].__delitem__(slice(4, 6)),
        "No tool output found for function call a.",
    ),
    "one output missing": (
        lambda b: b["input"].pop(5),
        "No tool output found for function call b.",
    ),
    "outputs missing at the end": (
        lambda b: b["input"].__delitem__(slice(5, 8)),
        "No tool output found for function call b.",
    ),
    "user between the outputs": (
        lambda b: b["input"].insert(5, {"role": "user", "content": "wait"}),
        "No tool output found for function call b.",
    ),
    "output without a call": (
        lambda b: b["input"].pop(3),
        "No tool call found for function call output with call_id b.",
    ),
    "two outputs": (
        lambda b: b["input"].insert(5, output("a")),
        "No tool call found for function call output with call_id a.",
    ),
    "call id used again": (
        lambda b: b["input"].extend([{**call("a"), "id": "fc_x"}, output("a")]),
        "Duplicate function call id a.",
    ),
    "item used again": (
        lambda b: b["input"].append(b["input"][6]),
        "Duplicate item found with id msg_1.",
    ),
    "reasoning without its item": (
        lambda b: b["input"].__delitem__(slice(2, 7)),
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    "reasoning at the end": (
        lambda b: b["input"].append(reasoning("rs_2")),
        "Item 'rs_2' of type 'reasoning' was provided without its required following item.",
    ),
    "reasoning without its secret": (
        lambda b: b["input"][1].pop("encrypted_content"),
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
    ),
    "reasoning with its text": (
        lambda b: b["input"][1].update(content=[{"type": "reasoning_text", "text": "x"}]),
        "Invalid 'input[1].content': array too long.",
    ),
    "reasoning without an id": (lambda b: b["input"][1].pop("id"), "'input[1].id'"),
    "prefix of a call": (
        lambda b: b["input"][2].update(id="call_1"),
        "Invalid 'input[2].id': 'call_1'. Expected an ID that begins with 'fc'.",
    ),
    "prefix of a message": (
        lambda b: b["input"][6].update(id="item_1"),
        "Expected an ID that begins with 'msg'.",
    ),
    "characters of an id": (lambda b: b["input"][6].update(id="msg 1"), "additional characters"),
    "length of an id": (lambda b: b["input"][6].update(id="msg_" + "x" * 61), "length 65"),
    "length of a call id": (lambda b: b["input"][2].update(call_id="x" * 65), "length 65"),
    "arguments as an object": (
        lambda b: b["input"][2].update(arguments={}),
        "expected a string that holds a JSON object",
    ),
    "arguments cut": (lambda b: b["input"][2].update(arguments='{"a'), "JSON object"),
    "name of a call": (lambda b: b["input"][2].update(name="a b"), "does not match pattern"),
    "role of a text": (
        lambda b: b["input"][6]["content"][0].update(type="input_text"),
        "Invalid value: 'input_text'. Supported values are: 'output_text', 'refusal'.",
    ),
    "text of an answer": (
        lambda b: b["input"][0]["content"][0].update(type="output_text"),
        "Invalid value: 'output_text'.",
    ),
    "empty text": (lambda b: b["input"][7].update(content=" "), "string too short"),
    "empty part": (lambda b: b["input"][6]["content"][0].update(text=""), "string too short"),
    "empty content": (lambda b: b["input"][6].update(content=[]), "empty array"),
    "phase of a user": (lambda b: b["input"][7].update(phase="commentary"), "'commentary'"),
    "image of the other API": (
        lambda b: b["input"][5]["output"][1].update(image_url={"url": "x"}),
        "expected an image URL, but got an object instead",
    ),
    "image not base64": (
        lambda b: b["input"][5]["output"][1].update(image_url="data:image/png;base64,!"),
        "invalid base64-encoded value",
    ),
    "image of another type": (
        lambda b: b["input"][5]["output"][1].update(image_url="data:image/png;base64,AAAA"),
        "does not represent a valid image",
    ),
    "no output text": (lambda b: b["input"][4].pop("output"), "'input[4].output'"),
}


def follow(*items: Body, model: str = "gpt-5.2") -> Issued:
    issued = Issued()
    issued.remember(model, items)
    return issued


@pytest.mark.spec("HIS-1", "HIS-2", "HIS-7")
def test_a_well_formed_body_is_accepted() -> None:
    assert check_responses(responses_body()) is None
    assert check_responses(responses_body(), follow(reasoning(), call("a"), call("b"))) is None


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_body_is_refused_in_the_services_words(name: str) -> None:
    spoil, message = SPOILT[name]
    body = responses_body()
    spoil(body)
    assert message in (check_responses(body) or "accepted")


@pytest.mark.spec("HIS-4", "HIS-7")
@pytest.mark.parametrize(
    ("issued", "message"),
    [
        (Issued(), "The encrypted content ers_...rs_1 could not be verified."),
        (follow(reasoning(), call("a"), model="gpt-5"), "could not be verified."),
        (follow({**reasoning(), "encrypted_content": "other"}), "could not be verified."),
        (follow({**reasoning(), "summary": [{"text": "x"}]}), "the summary of rs_1 was altered"),
        (follow(reasoning(), {"type": "message", "id": "msg_0"}), "required following item."),
        (follow(reasoning(), {**call("a"), "id": "fc_other"}), "required following item."),
        (
            follow(reasoning(), call("a"), reasoning("rs_9"), call("b")),
            "of type 'function_call' was provided without its required 'reasoning' item: 'rs_9'.",
        ),
    ],
)
def test_only_the_reasoning_that_was_issued_may_come_back(issued: Issued, message: str) -> None:
    assert message in (check_responses(responses_body(), issued) or "accepted")


def test_a_reply_is_the_services_event_sequence(model_server: ModelServer) -> None:
    model_server.add(
        Reply(
            (Thinking("Hm.\n\nAh."), Text("Reading."), Call("bash", {"command": "ls"}, id="c1")),
            tokens=Tokens(input=7, output=9, cache_read=3, reasoning=2),
            piece=4,
        )
    )
    body = {**responses_body(), "input": "hi"}
    response = httpx.post(f"{model_server.openai_url}/responses", json=body)
    lines = response.text.split("\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [line[7:] for line in lines if line.startswith("event: ")] == [e["type"] for e in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events][:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    whole = events[-1]["response"]
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call"]
    assert [part["text"] for part in whole["output"][0]["summary"]] == ["Hm.", "Ah."]
    assert (whole["usage"]["input_tokens"], whole["usage"]["total_tokens"]) == (10, 19)
    arguments = [e["delta"] for e in events if e["type"].endswith("arguments.delta")]
    assert json.loads("".join(arguments)) == {"command": "ls"}
    done = [e["item"]["id"] for e in events if e["type"] == "response.output_item.done"]
    assert done == [item["id"] for item in whole["output"]]
