"""The control channel: questions to the program on stdin, and its answers (CLI-4, CLI-7).

The shape is that of Claude Code's SDKs: ``control_request`` with an id, answered by a
``control_response`` with the same id; ``control_cancel_request`` takes a question back. Law: a
question ends with its answer, with its cancellation or with the end of stdin, never later.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Verdict
from agentcli.headless.stream_input import Answered, Asked
from agentcli.headless.stream_objects import new_uuid

_RULE = re.compile(r"(?P<tool>[^(]+)(?:\((?P<content>.*)\))?", re.DOTALL)


class Channel:
    """Sends requests and answers through ``send``; ``answered`` brings what came back."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        self._send = send
        self._waiting: dict[str, asyncio.Future[Answered | None]] = {}
        self._closed = False

    async def ask(self, request: Mapping[str, Any]) -> Answered | None:
        """The answer; ``None`` when none can come any more."""
        if self._closed:
            return None
        request_id = new_uuid()
        answer: asyncio.Future[Answered | None] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self._send({"type": "control_request", "request_id": request_id, "request": request})
        try:
            return await answer
        except asyncio.CancelledError:
            self._send({"type": "control_cancel_request", "request_id": request_id})
            raise
        finally:
            del self._waiting[request_id]

    def answered(self, line: Answered) -> None:
        """An answer has come; one that nobody waits for is ignored."""
        waiting = self._waiting.get(line.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(line)

    def close(self) -> None:
        """Stdin has ended: nobody will answer."""
        self._closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def succeed(self, asked: Asked, response: Mapping[str, Any]) -> None:
        """Answer a request of the other side."""
        self._respond({"subtype": "success", "request_id": asked.request_id, "response": response})

    def refuse(self, asked: Asked, error: str) -> None:
        """Say why a request of the other side cannot be met."""
        self._respond({"subtype": "error", "request_id": asked.request_id, "error": error})

    def _respond(self, response: Mapping[str, Any]) -> None:
        self._send({"type": "control_response", "response": response})


class OverChannel:
    """An approver that asks the program on stdin (``--permission-prompt-tool stdio``)."""

    def __init__(self, channel: Channel, interrupt: Callable[[], object]) -> None:
        self._channel = channel
        self._interrupt = interrupt

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Yes, yes for this session, or no with a reason."""
        suggestion = _suggestion(request.session_rule)
        answered = await self._channel.ask(
            {
                "subtype": "can_use_tool",
                "tool_name": request.call.name,
                "display_name": request.summary,
                "description": request.detail,
                "input": request.call.arguments,
                "tool_use_id": request.call.id,
                "decision_reason": request.reason,
                "permission_suggestions": [suggestion] if suggestion else [],
            }
        )
        if answered is None:
            reason = "It needs an approval, and the program that gives them has left."
            return ApprovalAnswer(Verdict.UNATTENDED, reason)
        if answered.error:
            return ApprovalAnswer(Verdict.NO, f"The approval failed: {answered.error}")
        return self._judged(request, answered.answer, suggestion)

    def _judged(
        self, request: ApprovalRequest, answer: Mapping[str, Any], suggestion: Mapping[str, Any]
    ) -> ApprovalAnswer:
        if answer.get("behavior") != "allow":
            if answer.get("interrupt"):
                self._interrupt()
            return ApprovalAnswer(Verdict.NO, str(answer.get("message") or ""))
        if answer.get("updatedInput", request.call.arguments) != request.call.arguments:
            # what was approved is not what would run
            reason = "It was approved with other arguments only, which is not supported here."
            return ApprovalAnswer(Verdict.NO, reason)
        updates = answer.get("updatedPermissions")
        if suggestion and isinstance(updates, list) and any(_same(u, suggestion) for u in updates):
            return ApprovalAnswer(Verdict.SESSION)
        return ApprovalAnswer(Verdict.ONCE)


def _suggestion(rule: str) -> dict[str, Any]:
    """What "for this session" would allow, in the words of the channel; empty for no rule."""
    found = _RULE.fullmatch(rule)
    if found is None:
        return {}
    entry = {"toolName": found["tool"]}
    if found["content"] is not None:
        entry["ruleContent"] = found["content"]
    update = {"type": "addRules", "rules": [entry], "behavior": "allow"}
    return {**update, "destination": "session"}


def _same(update: Any, suggestion: Mapping[str, Any]) -> bool:
    keys = ("type", "rules", "behavior")
    return isinstance(update, dict) and all(update.get(key) == suggestion[key] for key in keys)
