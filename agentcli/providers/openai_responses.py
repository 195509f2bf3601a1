"""OpenAI's Responses API, streamed and without storage on the server.

https://developers.openai.com/api/reference/responses. Law: ``encode`` is pure and extends its own
earlier output as a conversation grows (prompt cache); reasoning goes back as it came, before the
item that it led to and to the model that made it (HIS-4, HIS-7); the outputs of a batch follow
its calls at once (HIS-1). What a service proves not to take (a summary, encrypted reasoning of
another account) is left out and the request is made again: it stops no session (HIS-8).
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.cancel import CancelToken
from agentcli.domain.clean import clean_id, clean_name, digest
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from agentcli.domain.ports import Effort, ModelRequest, ProviderConfig
from agentcli.domain.stream import (
    StreamEvent,
)
from agentcli.providers._base import (
    HttpProvider,
    arguments_json,
    base64_text,
    with_own_fields,
)
from agentcli.providers._efforts import at_least_low, effort_for, gpt_version, is_reasoning_version
from agentcli.providers._responses_reply import ResponsesDecoder, unseal

Json = dict[str, Any]

_NO_IMAGES = "[image left out: this model takes no images]"
_MAX_ITEM_ID = 64
# The service asks for at least 16; a smaller limit is refused.
_MIN_OUTPUT_TOKENS = 16
_ENCRYPTED = "reasoning.encrypted_content"


# Parts of a request that a service may not take, by what it says about them.
SUMMARY = "summary"
EFFORT = "effort"
ENCRYPTION = "encryption"
_NOT_TAKEN = {
    SUMMARY: r"(?i)reasoning\.summary|reasoning summar",
    EFFORT: r"(?i)reasoning\.effort|unsupported value: '(none|minimal|low|medium|xhigh)'",
    ENCRYPTION: r"(?i)encrypted content is not supported|reasoning\.encrypted",
}
_BAD_REASONING = (
    r"(?i)encrypted.content.{0,200}could not be|items are not persisted"
    r"|type 'reasoning' was provided without|without its required 'reasoning' item"
)


# --- request -----------------------------------------------------------------------------


def encode(
    request: ModelRequest,
    not_taken: frozenset[str] = frozenset(),
    bad_reasoning: frozenset[str] = frozenset(),
) -> Json:
    """The body of a Responses request. ``request.messages`` is a prepared history.

    ``not_taken`` names parts to leave out, ``bad_reasoning`` the signatures of reasoning that
    the service has refused.
    """
    body: Json = {"model": request.model.name, "stream": True, "store": False}
    if request.system:
        body["instructions"] = request.system
    body["input"] = _Input(request, bad_reasoning).items
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,
            }
            for tool in request.tools
        ]
        if request.tool_choice:
            named = {"type": "function", "name": request.tool_choice}
            body["tool_choice"] = "required" if request.tool_choice == "*" else named
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = max(request.max_output_tokens, _MIN_OUTPUT_TOKENS)
    if thinks(request):
        reasoning = _reasoning(request, not_taken)
        if reasoning:
            body["reasoning"] = reasoning
        if ENCRYPTION not in not_taken:
            body["include"] = [_ENCRYPTED]
    body["prompt_cache_key"] = _cache_key(request)
    return with_own_fields(body, request)


def thinks(request: ModelRequest) -> bool:
    """Whether the model is a reasoning model: others refuse the fields for it."""
    version = gpt_version(request.model.name)
    return request.model.supports_thinking if version is None else is_reasoning_version(version)


def _reasoning(request: ModelRequest, not_taken: frozenset[str]) -> Json:
    name, effort = request.model.name, request.effort
    fields: Json = {}
    if effort is not None and EFFORT not in not_taken:
        version = gpt_version(name)
        level = at_least_low(effort) if version is None else effort_for(name, version, effort)
        if level is not None:
            fields["effort"] = level
    if SUMMARY not in not_taken and effort is not Effort.NONE:
        fields["summary"] = "auto"
    return fields


def _cache_key(request: ModelRequest) -> str:
    """The same for all requests of a conversation, so that they meet the same cache."""
    said = request.messages[0].text if request.messages else ""
    return digest(f"{request.system}\0{said}", 32)


class _Input:
    """The input items of a request."""

    def __init__(self, request: ModelRequest, bad_reasoning: frozenset[str]) -> None:
        self.items: list[Json] = []
        self._takes_images = request.model.supports_images
        self._bad_reasoning = bad_reasoning
        for message in request.messages:
            self._add(message)

    def _add(self, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            self._add_assistant(message)
        elif isinstance(message, ToolResult):
            self.items.append(
                {
                    "type": "function_call_output",
                    "call_id": clean_id(message.call_id),
                    "output": self._output(message.parts),
                }
            )
        else:
            content = [self._content(part) for part in message.parts]
            self.items.append({"type": "message", "role": "user", "content": content})

    def _content(self, part: TextPart | ImagePart) -> Json:
        if isinstance(part, TextPart):
            return {"type": "input_text", "text": part.text}
        if isinstance(part, DocumentPart):
            data = f"data:{part.media_type};base64,{base64_text(part.data)}"
            return {"type": "input_file", "filename": part.name or "a.pdf", "file_data": data}
        if not self._takes_images:
            return {"type": "input_text", "text": _NO_IMAGES}
        url = f"data:{part.media_type};base64,{base64_text(part.data)}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}

    def _output(self, parts: Sequence[TextPart | ImagePart]) -> str | list[Json]:
        content = [self._content(part) for part in parts]
        if all(part["type"] == "input_text" for part in content):
            return "\n".join(part["text"] for part in content)
        return content

    def _add_assistant(self, message: AssistantMessage) -> None:
        """Items in their order; reasoning whose own item is gone, or comes last, is left out."""
        waiting: list[Json] = []
        following: Json = {}
        is_fresh = True
        for part in message.parts:
            if isinstance(part, ThinkingPart):
                known = None if part.signature in self._bad_reasoning else unseal(part)
                if known is None:
                    continue
                if following.get("type", "reasoning") != "reasoning":
                    waiting = []
                item, following = known
                waiting += [item] if item is not None else []
                is_fresh = True
                continue
            if isinstance(part, TextPart) and not is_fresh and self._continues_text():
                self.items[-1]["content"].append(_output_text(part))
                continue
            own = self._call(part) if isinstance(part, ToolCall) else self._message(part)
            if following.get("type", own["type"]) == own["type"]:
                self.items += waiting
                self._name(own, following)
            self.items.append(own)
            waiting, following, is_fresh = [], {}, False

    def _continues_text(self) -> bool:
        last = self.items[-1]
        return (last["type"], last.get("role")) == ("message", "assistant")

    def _call(self, call: ToolCall) -> Json:
        return {
            "type": "function_call",
            "call_id": clean_id(call.id),
            "name": clean_name(call.name),
            "arguments": arguments_json(call.arguments),
        }

    def _message(self, part: TextPart) -> Json:
        return {
            "type": "message",
            "id": f"msg_{len(self.items)}",
            "role": "assistant",
            "status": "completed",
            "content": [_output_text(part)],
        }

    def _name(self, item: Json, known: Mapping[str, Any]) -> None:
        """Give ``item`` the id and the phase that the service had given it."""
        item_id = known.get("id")
        prefix = "msg" if item["type"] == "message" else "fc"
        if isinstance(item_id, str) and _is_item_id(item_id, prefix):
            item["id"] = item_id
        if item["type"] == "message" and isinstance(known.get("phase"), str):
            item["phase"] = known["phase"]


def _output_text(part: TextPart) -> Json:
    return {"type": "output_text", "text": part.text, "annotations": []}


def _is_item_id(item_id: str, prefix: str) -> bool:
    return item_id.startswith(prefix) and clean_id(item_id, _MAX_ITEM_ID) == item_id


# --- provider ----------------------------------------------------------------------------


def responses_url(base_url: str) -> str:
    """The address of the Responses API under ``base_url``; a bare host means ``/v1``."""
    base = base_url.rstrip("/").removesuffix("/responses")
    if not urlsplit(base).path.strip("/"):
        base += "/v1"
    return f"{base}/responses"


class ResponsesProvider(HttpProvider):
    """The Responses API of OpenAI or of a server that speaks it."""

    decoder_type = ResponsesDecoder

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self._not_taken: dict[str, frozenset[str]] = {}
        self._bad_reasoning: frozenset[str] = frozenset()

    def url(self) -> str:
        """The address that requests are posted to."""
        return responses_url(self.config.base_url)

    def encode(self, request: ModelRequest) -> Json:
        """The body of the request."""
        not_taken = self._not_taken.get(request.model.name, frozenset())
        return encode(request, not_taken, self._bad_reasoning)

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The reply as it comes; a request with a part that is not taken is made without it."""
        begun = False
        while True:
            try:
                async with aclosing(super().stream(request, cancel)) as events:
                    async for event in events:
                        begun = True
                        yield event
            except ProviderError as error:
                if begun or cancel.cancelled or not self._learn(request, error):
                    raise
            else:
                return

    def _learn(self, request: ModelRequest, error: ProviderError) -> bool:
        """Whether ``error`` names a part of ``request`` that was sent and can be left out."""
        if error.kind is not ErrorKind.BAD_REQUEST or error.status is None:
            return False
        model, text = request.model.name, error.message
        sent = self.encode(request)
        if re.search(_BAD_REASONING, text):
            self._bad_reasoning |= _signatures(request.messages)
        else:
            for name, says_so in _NOT_TAKEN.items():
                if re.search(says_so, text):
                    known = self._not_taken.get(model, frozenset())
                    self._not_taken[model] = known | {name}
                    break
        return self.encode(request) != sent


def _signatures(messages: Sequence[Message]) -> frozenset[str]:
    return frozenset(
        part.signature
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.parts
        if isinstance(part, ThinkingPart) and part.signature
    )


PROVIDER = ResponsesProvider
