"""Messages, results and refusals as JSON objects in the shape of the Messages API (CLI-5).

Law: ``dumps`` gives one line of valid UTF-8 whatever the text in it: line separators, C1
controls and lone surrogates never appear raw. Nothing but the standard library is imported.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from agentcli.domain.events import ToolRefused
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)

# what ends a line for some readers, and what a terminal would obey or reorder (SEC-10)
_UNSAFE = re.compile(
    "[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


def dumps(value: Any) -> str:
    """``value`` as one line of JSON that every reader takes for one line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return _UNSAFE.sub(_escaped, text) if _UNSAFE.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= found[0] <= "\udfff" else json.dumps(found[0])[1:-1]


def new_uuid() -> str:
    """A random UUID (RFC 9562, version 4)."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def assistant_message(message: AssistantMessage, message_id: str) -> dict[str, Any]:
    """An assistant message in the shape of the Messages API."""
    content: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case TextPart():
                content.append({"type": "text", "text": part.text})
            case ThinkingPart() if part.redacted is not None:
                content.append({"type": "redacted_thinking", "data": part.redacted})
            case ThinkingPart():
                signature = part.signature or ""
                block = {"type": "thinking", "thinking": part.text, "signature": signature}
                content.append(block)
            case ToolCall():
                block = {"type": "tool_use", "id": part.id, "name": part.name}
                content.append({**block, "input": part.arguments})
    model = f"{message.provider}/{message.model}" if message.provider else message.model
    reason = stop_reason(message)
    return message_object(message_id, model, content, reason, message.usage)


def stop_reason(message: AssistantMessage) -> str:
    """Why the model stopped, in the Messages API's words."""
    reason = message.stop_reason
    return "end_turn" if reason is StopReason.OTHER else str(reason)


def message_object(
    message_id: str, model: str, content: list[dict[str, Any]], reason: str | None, usage: Usage
) -> dict[str, Any]:
    """The envelope of an assistant message."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage_object(usage),
    }


def tool_result(result: ToolResult) -> dict[str, Any]:
    """A tool's result as a content block; ``content`` is always a list of blocks."""
    return {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": [_block(part) for part in result.parts],
        "is_error": result.is_error,
    }


def user_blocks(message: UserMessage) -> list[dict[str, Any]]:
    """The parts of a user message as content blocks."""
    return [_block(part) for part in message.parts]


def _block(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    import base64

    data = base64.b64encode(part.data).decode("ascii")
    source = {"type": "base64", "media_type": part.media_type, "data": data}
    return {"type": "image", "source": source}


def usage_object(usage: Usage) -> dict[str, int | None]:
    """Token counts by the Messages API's names; ``None`` where the provider did not say."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def denial(event: ToolRefused) -> dict[str, Any]:
    """One entry of ``permission_denials``."""
    return {
        "tool_name": event.call.name,
        "tool_use_id": event.call.id,
        "tool_input": event.call.arguments,
        "reason": event.reason,
    }
