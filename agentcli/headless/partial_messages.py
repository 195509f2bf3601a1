"""An answer as it forms, in the events of the Messages API's own stream (CLI-5).

https://platform.claude.com/docs/en/build-with-claude/streaming. Law: whoever folds the events of
a message that was not cut gets its text, its thinking and its calls. A call's block opens as
soon as its id is known; its arguments come in one piece when the message is complete, as they
were repaired (LOOP-10). A message that was cut ends without ``message_delta``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agentcli.domain.messages import AssistantMessage, ToolCall, Usage
from agentcli.headless.stream_objects import message_object, new_uuid, stop_reason, usage_object

_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class PartialMessages:
    """Events of one message after another; ``emit`` gets each of them."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit
        self._block = ""
        self._index = -1
        self._calls: dict[str, int] = {}
        self.model = ""
        self.message_id = ""

    def piece(self, kind: str, text: str) -> None:
        """More ``text`` or ``thinking``."""
        if not text:
            return
        if self._block != kind:
            self._end_block()
            self._start(_EMPTY[kind])
            self._block = kind
        self._delta(self._index, {"type": f"{kind}_delta", kind: text})

    def call(self, call_id: str, name: str) -> None:
        """The model has begun a call; without an id it is told when the message is complete."""
        self._end_block()
        if call_id and call_id not in self._calls:
            self._calls[call_id] = self._start_call(call_id, name)

    def end(self, message: AssistantMessage | None) -> str:
        """The message is complete, or was cut; its id, empty when none was begun."""
        calls = message.tool_calls if message is not None else ()
        if not self.message_id and not calls:
            return ""
        self._end_block()
        for call in calls:
            self._end_call(call)
        for index in self._calls.values():  # the answer was asked for again, and it changed
            self._stop(index)
        if message is not None:
            delta = {"stop_reason": stop_reason(message), "stop_sequence": None}
            usage = usage_object(message.usage)
            self._emit({"type": "message_delta", "delta": delta, "usage": usage})
        self._emit({"type": "message_stop"})
        message_id, self.message_id = self.message_id, ""
        self._calls.clear()
        self._index = -1
        return message_id

    def _start_call(self, call_id: str, name: str) -> int:
        return self._start({"type": "tool_use", "id": call_id, "name": name, "input": {}})

    def _end_call(self, call: ToolCall) -> None:
        index = self._calls.pop(call.id, None)
        if index is None:
            index = self._start_call(call.id, call.name)
        text = call.malformed
        if text is None:
            text = json.dumps(call.arguments, ensure_ascii=False)
        self._delta(index, {"type": "input_json_delta", "partial_json": text})
        self._stop(index)

    def _start(self, block: dict[str, Any]) -> int:
        if not self.message_id:
            self.message_id = f"msg_{new_uuid()}"
            message = message_object(self.message_id, self.model, [], None, Usage())
            self._emit({"type": "message_start", "message": message})
        self._index += 1
        event = {"type": "content_block_start", "index": self._index, "content_block": dict(block)}
        self._emit(event)
        return self._index

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        self._emit({"type": "content_block_delta", "index": index, "delta": delta})

    def _end_block(self) -> None:
        if self._block:
            self._stop(self._index)
            self._block = ""

    def _stop(self, index: int) -> None:
        self._emit({"type": "content_block_stop", "index": index})
