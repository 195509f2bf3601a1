"""What the Gemini API refuses, and what SPEC's laws add to it: pure checks of a request body."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.strict_anthropic import Issued
from tests.support.strict_shared import Problem, decode_base64, sniff_image

DUMMIES = {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOP = {
    "contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig",
    "cachedContent",
}  # fmt: skip
_DATA = {"text", "inlineData", "fileData", "functionCall", "functionResponse"}
_PART = _DATA | {"thought", "thoughtSignature"}
_IMAGES = {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
_SCHEMA = {
    "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items",
    "prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties",
    "additionalProperties", "required", "default", "pattern", "minLength", "maxLength", "nullable",
}  # fmt: skip
_AFTER = (
    "Please ensure that function call turn comes immediately after a user turn or after a function"
    " response turn."
)
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn."
)
_RESPONSE_AFTER = (
    "Please ensure that function response turn comes immediately after a function call turn."
)
_MODEL_LAST = "Requests ending with a model turn are not supported."
_ALTERNATE = "Please ensure that multiturn requests alternate between user and model."
_CORRUPTED = "Corrupted thought signature."

Json = Mapping[str, Any]


def version(model: str) -> tuple[int, int]:
    """(3, 6) of ``gemini-3.6-flash``."""
    match = re.match(r"gemini-(\d+)(?:\.(\d+))?", model)
    return (int(match[1]), int(match[2] or 0)) if match else (99, 0)


def is_modern(model: str) -> bool:
    """Gemini 3 and later."""
    return version(model) >= (3, 0)


def check_gemini(body: Json, model: str, issued: Issued | None = None) -> str | None:
    """The first reason to refuse ``body``, or ``None``. Without ``issued`` any signature goes."""
    return next(_problems(body, model, issued), None)


def _unknown(name: str, where: str = "") -> Problem:
    at = f" at '{where}'" if where else ""
    return Problem(f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')


def _problems(body: Json, model: str, issued: Issued | None) -> Iterator[str]:
    for name in sorted(set(body) - _TOP):
        yield _unknown(name)
    yield from _system(body.get("systemInstruction"))
    yield from _tools(body.get("tools", []))
    yield from _generation(body.get("generationConfig", {}), model)
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        yield Problem("* GenerateContentRequest.contents: contents is not specified\n")
        return
    for index, content in enumerate(contents):
        yield from _content(f"contents[{index}]", content, model)
    yield from _turns(contents, model)
    for index, content in enumerate(contents):
        yield from _signatures(index, content, model, issued)


def _system(value: Any) -> Iterator[str]:
    if value is None:
        return
    parts = value.get("parts") if isinstance(value, dict) else None
    if not parts or not all(set(part) == {"text"} and part["text"].strip() for part in parts):
        yield Problem("system_instruction: parts must hold text")


# --- contents ------------------------------------------------------------------------------


def _content(where: str, content: Any, model: str) -> Iterator[str]:
    for name in sorted(set(content) - {"role", "parts"}):
        yield _unknown(name, where)
    if content.get("role") not in {"user", "model"}:
        yield Problem("Please use a valid role: user, model.")
    if not content.get("parts"):
        yield Problem(
            f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.\n"
        )
        return
    for index, part in enumerate(content["parts"]):
        yield from _part(f"{where}.parts[{index}]", part, content["role"], model)


def _part(where: str, part: Json, role: str, model: str) -> Iterator[str]:
    for name in sorted(set(part) - _PART):
        yield _unknown(name, where)
    data = sorted(set(part) & _DATA)
    if len(data) != 1:
        yield Problem(
            f"* GenerateContentRequest.{where}.data: required oneof field 'data' must have one"
            " initialized field\n"
        )
        return
    kind = data[0]
    allowed = {
        "user": {"text", "inlineData", "functionResponse"},
        "model": {"text", "functionCall"},
    }
    if kind not in allowed[role]:
        yield Problem(f"{where}: a {kind} part does not belong to role {role}")
    if role == "user" and set(part) != {kind}:
        yield Problem(f"{where}: thoughts and signatures are the model's")
    value = part[kind]
    if kind == "text":
        signed = "thoughtSignature" in part
        if not isinstance(value, str) or not (value.strip() or signed):
            yield Problem(
                "Unable to submit request because it must have a text parameter. Add a text"
                " parameter and try again."
            )
    elif kind == "inlineData":
        yield from _image(where, value, _IMAGES)
    else:
        yield from _call_or_response(where, kind, value, model)


def _image(where: str, value: Json, types: set[str]) -> Iterator[str]:
    data = decode_base64(value.get("data"))
    if (
        value.get("mimeType") == "application/pdf"
    ):  # ai.google.dev/gemini-api/docs/document-processing
        if data is None or not data.startswith(b"%PDF-"):
            yield Problem("The document has no pages.")
        return
    if value.get("mimeType") not in types:
        yield Problem(f"Unsupported MIME type: {value.get('mimeType')}")
    elif data is None:
        yield Problem(f"Invalid value at '{where}.inline_data.data' (TYPE_BYTES)")
    elif sniff_image(data) != value["mimeType"]:
        yield Problem("Unable to process input image. Please retry or report in")


def _call_or_response(where: str, kind: str, value: Json, model: str) -> Iterator[str]:
    field = {"functionCall": "args", "functionResponse": "response"}[kind]
    known = {"name", "id", field} | ({"parts"} if kind == "functionResponse" else set())
    for name in sorted(set(value) - known):
        yield _unknown(name, f"{where}.{kind}")
    if "id" in value and not is_modern(model):
        yield _unknown("id", f"{where}.{kind}")
    if is_modern(model) and not _ID.fullmatch(str(value.get("id", ""))):
        yield Problem(f"{where}.{kind}.id is missing or odd")
    if not _NAME.fullmatch(value.get("name", "")):
        yield Problem(f"* GenerateContentRequest.{where}.{kind}.name: [FIELD_INVALID]\n")
    if not isinstance(value.get(field), dict):
        yield Problem(f"Invalid value at '{where}.{kind}.{field}' (type.googleapis.com/Struct)")
    parts = value.get("parts", [])
    if parts and not is_modern(model):
        yield Problem(
            "Unable to submit request because `function_response.parts` is not supported for this"
            " model."
        )
    for part in parts:
        yield from _image(where, part["inlineData"], {"image/png", "image/jpeg", "image/webp"})


def _turns(contents: Sequence[Json], model: str) -> Iterator[str]:
    pending: list[Json] = []
    before = None
    for content in contents:
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        results = [p["functionResponse"] for p in content["parts"] if "functionResponse" in p]
        if calls and before is None:
            yield Problem(_AFTER)
        if content["role"] == before:
            yield Problem(_ALTERNATE)
        if results and not pending:
            yield Problem(_RESPONSE_AFTER)
        if len(results) != len(pending):
            yield Problem(_COUNT)
        if results and len(results) != len(content["parts"]):
            yield Problem(_MODEL_LAST if is_modern(model) else _COUNT)
        for call, result in zip(pending, results, strict=True):
            if (call["name"], call.get("id")) != (result["name"], result.get("id")):
                yield Problem(f"the response to {call['name']} is for {result['name']}")
        pending, before = calls, content["role"]
    if before == "model":
        yield Problem(_MODEL_LAST)


def _signatures(index: int, content: Json, model: str, issued: Issued | None) -> Iterator[str]:
    if content["role"] != "model":
        return
    unsigned = is_modern(model)
    for part in content["parts"]:
        call = part.get("functionCall")
        signature = part.get("thoughtSignature")
        if call is not None and signature is None and unsigned:
            yield Problem(
                "Function call is missing a thought_signature in functionCall parts. This is"
                " required for tools to work correctly, and missing thought_signature may lead to"
                " degraded model performance. Additional data, function call"
                f" `default_api:{call['name']}` , position {index + 1}."
            )
        unsigned = unsigned and call is None
        if issued is not None:
            yield from _issued_here(part, signature, model, issued)
        elif signature is not None and signature not in DUMMIES and not _is_bytes(signature):
            yield Problem(f"Invalid value at 'contents[{index}].parts' (TYPE_BYTES)")


def _issued_here(part: Json, signature: str | None, model: str, issued: Issued) -> Iterator[str]:
    mark = mark_of_part(part)
    due = [s for s, where in issued.on_parts.items() if where == (model, mark)]
    if due and "id" in part.get("functionCall", {}) and signature not in due:
        yield Problem(_CORRUPTED)
    if signature is None or (signature in DUMMIES and "functionCall" in part):
        return
    if issued.on_parts.get(signature) != (model, mark):
        yield Problem(_CORRUPTED)


def mark_of_part(part: Json) -> str:
    """What tells a signed part from others."""
    if "functionCall" in part:
        call = part["functionCall"]
        return f"call:{call.get('id') or call['name']}"
    return f"{'thought' if part.get('thought') else 'text'}:{part.get('text')}"


def _is_bytes(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


# --- tools and options ---------------------------------------------------------------------


def _tools(tools: Any) -> Iterator[str]:
    names: set[str] = set()
    for tool in tools:
        for declared in tool["functionDeclarations"]:
            name = declared.get("name", "")
            for unknown in sorted(set(declared) - {"name", "description", "parametersJsonSchema"}):
                yield _unknown(unknown, "tools[0].function_declarations")
            if not _NAME.fullmatch(name):
                yield Problem(
                    "* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid"
                    " function name. Must start with a letter or an underscore.\n"
                )
            if name in names:
                yield Problem(f"Duplicate function declaration found: {name}")
            names.add(name)
            if not declared.get("description"):
                yield Problem(f"{name}: no description")
            schema = declared.get("parametersJsonSchema", {"type": "object"})
            if schema.get("type") != "object":
                yield Problem(
                    f"{name} functionDeclaration parameters schema should be of type OBJECT"
                )
            yield from _schema(name, schema)


def _schema(where: str, schema: Any) -> Iterator[str]:
    if "$ref" in schema and set(schema) - {"$ref", "description", "default"}:
        yield Problem(f"{where}: `$ref` was set alongside unsupported fields.")
    for name in sorted(set(schema) - _SCHEMA):
        yield Problem(f"{where}: the keyword {name} is not supported")
    for name, inner in schema.get("properties", {}).items():
        yield from _schema(f"{where}.{name}", inner)
    for inner in [*schema.get("anyOf", []), *schema.get("prefixItems", [])]:
        yield from _schema(where, inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _schema(f"{where}.{key}", schema[key])


def _generation(config: Json, model: str) -> Iterator[str]:
    for name in sorted(set(config) - {"maxOutputTokens", "thinkingConfig"}):
        yield _unknown(name, "generation_config")
    if config.get("maxOutputTokens", 1) < 1:
        yield Problem("max_output_tokens must be positive.")
    thinking = config.get("thinkingConfig")
    if thinking is None:
        return
    for name in sorted(set(thinking) - {"includeThoughts", "thinkingBudget", "thinkingLevel"}):
        yield _unknown(name, "generation_config.thinking_config")
    budget, level = thinking.get("thinkingBudget"), thinking.get("thinkingLevel")
    if version(model) < (2, 5):
        yield Problem("Thinking is not supported for this model.")
    if budget is not None and level is not None:
        yield Problem("You can only set only one of thinking budget and thinking level.")
    if level is not None:
        yield from _level(level, model)
    if budget is not None:
        lowest, highest = (128, 32_768) if "pro" in model else (0, 24_576)
        if not lowest <= budget <= highest or ("lite" in model and 0 < budget < 512):
            yield Problem(
                f"The thinking budget {budget} is invalid. Please choose a value between {lowest}"
                f" and {highest}."
            )
    thinks = budget != 0 and (budget is not None or "2.5-flash-lite" not in model)
    if thinking.get("includeThoughts") and not thinks:
        yield Problem("Thinking_config.include_thoughts is only enabled when thinking is enabled.")


def _level(level: str, model: str) -> Iterator[str]:
    """Levels by model: https://ai.google.dev/gemini-api/docs/generate-content/thinking."""
    if not is_modern(model):
        yield Problem("Thinking level is not supported for this model.")
    taken = {"low", "medium", "high"}
    if re.match(r"gemini-3(\.[156])?-flash", model):
        taken.add("minimal")
    if model.startswith("gemini-3-pro"):
        taken.discard("medium")
    if level not in taken:
        yield Problem(f"Thinking level {level.upper()} is not supported for this model.")
