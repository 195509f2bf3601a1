"""The JSON schema of stream-json, in code: ``stream_json.schema.json`` is written from it.

``.ci/generate_schema.py`` writes the file, a test holds it to this module, and every line that
the program prints in the tests is held to the file. Law: an object's properties are all
required unless marked ``optional``, and there are no others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentcli.domain.messages import StopReason
from agentcli.domain.ports import PermissionMode

SCHEMA_FILE = Path(__file__).with_name("stream_json.schema.json")
SUBTYPES = (
    "success",
    "error_during_execution",
    "error_max_turns",
    "error_max_budget_usd",
    "error_timeout",
    "error_max_structured_output_retries",
    "cancelled",
)

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
ANY_OBJECT: Schema = {"type": "object"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
COUNT_OR_NULL: Schema = {"type": ["integer", "null"], "minimum": 0}
UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


def ref(name: str) -> Schema:
    """A definition by name."""
    return {"$ref": f"#/$defs/{name}"}


def one_of(*schemas: Schema) -> Schema:
    """Exactly one of these."""
    return {"oneOf": list(schemas)}


def several(items: Schema, *, at_least: int = 0) -> Schema:
    """A list."""
    return {"type": "array", **({"minItems": at_least} if at_least else {}), "items": items}


def optional(schema: Schema, why: str) -> Schema:
    """A property that may be missing, and when it is there."""
    return {**schema, "description": why, "optional": True}


def record(*, about: str = "", **properties: Any) -> Schema:
    """An object with these properties and no others; a text stands for that very text."""
    fields = {
        name.removesuffix("_"): {"const": value} if isinstance(value, str) else dict(value)
        for name, value in properties.items()
    }
    required = [name for name, field in fields.items() if not field.pop("optional", False)]
    schema = {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }
    return {**schema, "description": about} if about else schema


def line(**properties: Any) -> Schema:
    """A line that belongs to a session."""
    return record(**properties, session_id=TEXT, uuid=ref("uuid"))


def system(subtype: str, **properties: Any) -> Schema:
    """A ``system`` line."""
    return line(type="system", subtype=subtype, **properties)


def event(type_: str, **properties: Any) -> Schema:
    """An event of the Messages API's stream."""
    return record(type=type_, **properties)


def _values() -> dict[str, Schema]:
    usage_fields = (
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "reasoning_tokens",
    )
    usage_about = (
        "Tokens; null where the provider did not say. input_tokens counts uncached input only."
    )
    return {
        "uuid": {"type": "string", "pattern": UUID},
        "usage": record(about=usage_about, **dict.fromkeys(usage_fields, COUNT_OR_NULL)),
        "text": record(type="text", text=TEXT),
        "thinking": record(type="thinking", thinking=TEXT, signature=TEXT),
        "redacted_thinking": record(type="redacted_thinking", data=TEXT),
        "tool_use": record(type="tool_use", id=TEXT, name=TEXT, input=ANY_OBJECT),
        "image": record(type="image", source=record(type="base64", media_type=TEXT, data=TEXT)),
        "tool_result": record(
            type="tool_result",
            tool_use_id=TEXT,
            content=several(one_of(ref("text"), ref("image")), at_least=1),
            is_error=FLAG,
        ),
        "message": record(
            id=TEXT,
            type="message",
            role="assistant",
            model=TEXT,
            content=several(
                one_of(ref("text"), ref("thinking"), ref("redacted_thinking"), ref("tool_use"))
            ),
            stop_reason={
                "enum": [str(reason) for reason in StopReason if reason is not StopReason.OTHER]
                + [None]
            },
            stop_sequence=NULL,
            usage=ref("usage"),
        ),
        "denial": record(tool_name=TEXT, tool_use_id=TEXT, tool_input=ANY_OBJECT, reason=TEXT),
    }


def _systems() -> dict[str, Schema]:
    return {
        "init": line(
            type="system",
            subtype="init",
            cwd=TEXT,
            tools=several(TEXT),
            mcp_servers={"type": "array"},
            model=TEXT,
            permissionMode={"enum": [str(mode) for mode in PermissionMode]},
            agentcli_version=TEXT,
        ),
        "api_retry": system(
            "api_retry",
            attempt=WHOLE,
            max_retries=WHOLE,
            retry_delay_ms=WHOLE,
            error_status={"type": ["integer", "null"]},
            error=TEXT,
            message=TEXT,
        ),
        "output_cap_raised": system(
            "output_cap_raised",
            about="A reply was cut at the output limit; the step is asked again with a higher one.",
            old_tokens=WHOLE,
            new_tokens=WHOLE,
        ),
        "model_fallback": system(
            "model_fallback",
            about="A model stayed out of reach; another one answers from now on.",
            old_model=TEXT,
            new_model=TEXT,
            error=TEXT,
            message=TEXT,
        ),
        "wrapping_up": system(
            "wrapping_up",
            about="A limit is near: the model is told to finish.",
            reason=TEXT,
        ),
        "gates_conflicted": system(
            "gates_conflicted",
            about="No tool was allowed by all gates; the list of one of them holds for this step.",
            winner=TEXT,
            gates=several(TEXT),
            allowed_tools=several(TEXT),
        ),
        "status": system(
            "status",
            about="What goes on beside the conversation; null when that is over.",
            status={"enum": ["compacting", None]},
        ),
        "compact_boundary": system(
            "compact_boundary",
            about="Older messages gave way to a summary; tokens are estimates, usage is what the"
            " summary cost.",
            compact_metadata=record(
                trigger={"enum": ["auto", "manual"]},
                pre_tokens=COUNT,
                post_tokens=COUNT,
                pre_messages=COUNT,
                post_messages=COUNT,
                kept=TEXT,
                folded=TEXT,
                usage=ref("usage"),
            ),
        ),
        "input_error": system(
            "input_error",
            about="With stream-json input: a line of stdin that could not be read was skipped.",
            line=COUNT,
            error=TEXT,
        ),
    }


def _messages() -> dict[str, Schema]:
    parent = {"parent_tool_use_id": TEXT_OR_NULL}
    return {
        "assistant": line(type="assistant", message=ref("message"), **parent),
        "user": line(
            type="user",
            message=record(role="user", content=several(ref("tool_result"), at_least=1)),
            **parent,
        ),
        "replay": record(
            about="With --replay-user-messages: what was said on stdin, now that it is recorded.",
            type="user",
            message=record(
                role="user", content=several(one_of(ref("text"), ref("image")), at_least=1)
            ),
            **parent,
            session_id=TEXT,
            isReplay={"const": True},
            uuid=TEXT,
        ),
        "stream_event": line(type="stream_event", event=one_of(*_events()), **parent),
    }


def _events() -> list[Schema]:
    blocks = one_of(ref("text"), ref("thinking"), ref("tool_use"))
    deltas = one_of(
        record(type="text_delta", text=TEXT),
        record(type="thinking_delta", thinking=TEXT),
        record(type="input_json_delta", partial_json=TEXT),
    )
    return [
        event("message_start", message=ref("message")),
        event("content_block_start", index=COUNT, content_block=blocks),
        event("content_block_delta", index=COUNT, delta=deltas),
        event("content_block_stop", index=COUNT),
        event(
            "message_delta",
            delta=record(stop_reason=TEXT, stop_sequence=NULL),
            usage=ref("usage"),
        ),
        event("message_stop"),
    ]


def _control() -> dict[str, Schema]:
    answer = one_of(
        record(subtype="success", request_id=TEXT, response=ANY_OBJECT),
        record(subtype="error", request_id=TEXT, error=TEXT),
    )
    return {
        "control_response": record(
            about="The answer to a control_request on stdin.",
            type="control_response",
            response=answer,
        ),
        "control_request": record(
            about="With --permission-prompt-tool stdio: a call waits for a control_response.",
            type="control_request",
            request_id=TEXT,
            request=record(
                subtype="can_use_tool",
                tool_name=TEXT,
                display_name=TEXT,
                description=TEXT,
                input=ANY_OBJECT,
                tool_use_id=TEXT,
                decision_reason=TEXT,
                permission_suggestions=several(ANY_OBJECT),
            ),
        ),
        "control_cancel_request": record(
            about="A control_request needs no answer any more.",
            type="control_cancel_request",
            request_id=TEXT,
        ),
    }


def _result() -> Schema:
    return record(
        about="The last line of a turn and, on every path, of the run; also the whole output of"
        " --output-format json.",
        type="result",
        subtype={"enum": list(SUBTYPES)},
        is_error=FLAG,
        result=TEXT,
        session_id=TEXT,
        num_turns={**COUNT, "description": "Model requests."},
        duration_ms=COUNT,
        duration_api_ms=COUNT,
        total_cost_usd={
            "type": ["number", "null"],
            "description": "null when the model's price is unknown.",
        },
        usage=ref("usage"),
        compaction_usage=optional(
            ref("usage"), "The part of usage that was spent on summaries, where there were any."
        ),
        permission_denials=several(ref("denial")),
        structured_output={},
        terminal_reason=TEXT,
        errors=several(TEXT),
        retry_after_s=optional(
            {"type": "number", "minimum": 0}, "Where the provider said when to try again."
        ),
        uuid=ref("uuid"),
    )


def build_schema() -> Schema:
    """The whole schema."""
    lines = {**_systems(), **_messages(), **_control(), "result": _result()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agentcli stream-json",
        "description": "One line of `agent run --output-format stream-json`.",
        **one_of(*(ref(name) for name in lines)),
        "$defs": {**_values(), **lines},
    }


def schema_text() -> str:
    """What ``stream_json.schema.json`` holds."""
    return json.dumps(build_schema(), indent=2) + "\n"
