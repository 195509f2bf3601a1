"""The strict check of Gemini requests refuses what the service refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.strict import Issued, check_gemini

NEW = "gemini-3.6-flash"
OLD = "gemini-2.5-flash"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"

GOOD: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Two."},
                {
                    "functionCall": {"name": "a", "args": {}, "id": "1"},
                    "thoughtSignature": "c2ln",
                },
                {"functionCall": {"name": "b", "args": {}, "id": "2"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "a", "id": "1", "response": {"output": "x"}}},
                {"functionResponse": {"name": "b", "id": "2", "response": {"error": "x"}}},
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "a",
                    "description": "A.",
                    "parametersJsonSchema": {"type": "object", "properties": {"x": {}}},
                }
            ]
        }
    ],
    "generationConfig": {"maxOutputTokens": 5, "thinkingConfig": {"thinkingLevel": "low"}},
}


def broken(change: Callable[[dict[str, Any]], Any], model: str = NEW) -> str:
    body = copy.deepcopy(GOOD)
    change(body)
    found = check_gemini(body, model)
    assert found is not None
    return found


def contents(body: dict[str, Any], index: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = body["contents"][index]["parts"]
    return parts


def test_a_good_body_is_good() -> None:
    assert check_gemini(GOOD, NEW) is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda b: b.update(model="x"), 'Unknown name "model"'),
        (lambda b: b.update(contents=[]), "contents is not specified"),
        (lambda b: contents(b, 0).clear(), "contents.parts must not be empty"),
        (lambda b: b["contents"][0].update(role="assistant"), "valid role"),
        (lambda b: contents(b, 0).append({"text": " "}), "must have a text parameter"),
        (lambda b: contents(b, 0).append({}), "required oneof field 'data'"),
        (lambda b: b["contents"].pop(0), "function call turn comes immediately after a user turn"),
        (lambda b: contents(b, 2).pop(), "number of function response parts is equal"),
        (lambda b: b["contents"].pop(), "Requests ending with a model turn"),
        (lambda b: b["contents"].pop(1), "alternate"),
        (lambda b: contents(b, 2).append({"text": "x"}), "Requests ending with a model turn"),
        (lambda b: contents(b, 2).reverse(), "the response to a is for b"),
        (lambda b: contents(b, 1)[1].pop("thoughtSignature"), "missing a thought_signature"),
        (lambda b: contents(b, 1)[1].update(thoughtSignature="!"), "TYPE_BYTES"),
        (lambda b: contents(b, 1)[1]["functionCall"].update(args="{}"), "Struct"),
        (
            lambda b: contents(b, 0).append({"inlineData": {"mimeType": "image/gif", "data": ""}}),
            "Unsupported MIME type",
        ),
        (
            lambda b: b["tools"][0]["functionDeclarations"].append(
                {"name": "9", "description": "x"}
            ),
            "Invalid function name",
        ),
        (
            lambda b: b["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"].update(
                {"$schema": "x"}
            ),
            "$schema is not supported",
        ),
        (
            lambda b: b["generationConfig"]["thinkingConfig"].update(thinkingBudget=1),
            "only set only one",
        ),
        (
            lambda b: b["generationConfig"]["thinkingConfig"].update(thinkingLevel="extreme"),
            "Thinking level EXTREME is not supported",
        ),
    ],
)
def test_what_the_service_refuses(change: Callable[[dict[str, Any]], Any], complaint: str) -> None:
    assert complaint in broken(change)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda b: None, "Thinking level is not supported"),
        (lambda b: b.pop("generationConfig"), 'Unknown name "id"'),
        (
            lambda b: b.update(
                generationConfig={"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": True}}
            ),
            "include_thoughts is only enabled",
        ),
    ],
)
def test_what_an_earlier_model_refuses(
    change: Callable[[dict[str, Any]], Any], complaint: str
) -> None:
    assert complaint in broken(change, OLD)


def test_a_signature_belongs_to_its_model_and_its_part() -> None:
    issued = Issued()
    assert check_gemini(GOOD, NEW, issued) == "Corrupted thought signature."
    issued.on_parts["c2ln"] = ("gemini-3.5-flash", "call:1")
    assert check_gemini(GOOD, NEW, issued) == "Corrupted thought signature."
    issued.on_parts["c2ln"] = (NEW, "call:2")
    assert check_gemini(GOOD, NEW, issued) == "Corrupted thought signature."
    issued.on_parts["c2ln"] = (NEW, "call:1")
    assert check_gemini(GOOD, NEW, issued) is None
    stripped = copy.deepcopy(GOOD)
    contents(stripped, 1)[1]["thoughtSignature"] = "skip_thought_signature_validator"
    assert check_gemini(stripped, NEW, issued) == "Corrupted thought signature."
    assert check_gemini(stripped, NEW, Issued()) is None
