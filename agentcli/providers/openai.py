"""Chat Completions, streamed: OpenAI and every server that speaks its protocol.

https://platform.openai.com/docs/api-reference/chat. Law: ``encode`` is pure; a call's arguments
go out as the JSON text of an object (HIS-5); the results of a batch follow their calls at once
(HIS-1). What only some servers do is told apart by provider name or host, in ``_Quirks``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ModelRequest, Provider, ProviderConfig
from agentcli.domain.values import frozen
from agentcli.providers._base import (
    HttpProvider,
    arguments_json,
    base64_text,
    short_hash,
    wire_id,
    wire_name,
)
from agentcli.providers._chat_decoder import Decoder
from agentcli.providers._openai_effort import (
    FIRST_ALWAYS_ON,
    effort_for,
    gpt_version,
    is_reasoning_version,
)

_MAX_ID = 40
_IMAGE_NOTE = "The images of the tool results above:"
_NO_IMAGES = "[image left out: this model takes no images]"
# https://developers.openai.com/api/docs/models: from GPT-5.4 on, Chat Completions takes
# functions only with reasoning_effort "none".
_FIRST_NO_EFFORT_WITH_TOOLS = (5, 4)

Json = dict[str, Any]


@frozen
class _Quirks:
    """Where a server differs from OpenAI."""

    is_openai: bool = False
    # Mistral: ids of nine letters or digits; no user message right after a tool message; sends
    # its usage unasked and refuses unknown fields.
    is_mistral: bool = False
    # DeepSeek and Moonshot: a step of a tool loop is refused without its own reasoning text.
    wants_reasoning_back: bool = False
    # Gemini 3 refuses calls without a signature; this value is documented to stand for one.
    wants_signature: bool = False


def quirks_of(config: ProviderConfig) -> _Quirks:
    """The differences of the server that ``config`` names."""
    host = urlsplit(config.base_url).hostname or ""
    return _Quirks(
        is_openai=host.endswith(("openai.com", "openai.azure.com")),
        is_mistral=config.name == "mistral" or host.endswith("mistral.ai"),
        wants_reasoning_back=config.name in {"deepseek", "moonshot"},
        wants_signature=host.endswith("generativelanguage.googleapis.com"),
    )


# --- request -------------------------------------------------------------------------------


def encode(request: ModelRequest, provider: str = "openai", quirks: _Quirks | None = None) -> Json:
    """The body of a Chat Completions request. ``request.messages`` is a prepared history."""
    quirks = quirks or _Quirks()
    body: Json = {"model": request.model.name, "stream": True}
    if not quirks.is_mistral:
        body["stream_options"] = {"include_usage": True}
    if request.max_output_tokens is not None:
        name = "max_completion_tokens" if quirks.is_openai else "max_tokens"
        body[name] = request.max_output_tokens
    body.update(_reasoning_fields(request, provider, quirks))
    messages: list[Json] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    _Messages(messages, request, quirks).add_all(request.messages)
    body["messages"] = messages
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in request.tools
        ]
    return body


def _reasoning_fields(request: ModelRequest, provider: str, quirks: _Quirks) -> Json:
    """The fields that ask for ``request.effort``; none where the model would refuse them."""
    effort, name = request.effort, request.model.name
    # also behind a proxy of the person's own: the models are OpenAI's, by their names
    if quirks.is_openai or provider == "openai":
        version = gpt_version(name)
        if version is None or not is_reasoning_version(version):
            return {}
        if request.tools and _FIRST_NO_EFFORT_WITH_TOOLS <= version < FIRST_ALWAYS_ON:
            return {"reasoning_effort": "none"}
        value = None if effort is None else effort_for(name, version, effort)
        return {} if value is None else {"reasoning_effort": value}
    if effort is None or (provider == "openrouter" and not request.model.supports_thinking):
        return {}
    from agentcli.providers._efforts import effort_fields

    return effort_fields(provider, name, effort)


class _Messages:
    """Appends encoded messages, keeping to the order that servers accept."""

    def __init__(self, out: list[Json], request: ModelRequest, quirks: _Quirks) -> None:
        self._out = out
        self._quirks = quirks
        self._takes_images = request.model.supports_images
        self._loose_images: list[Json] = []

    def add_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, ToolResult):
                self._add_result(message)
            elif isinstance(message, UserMessage):
                self._add_user([*self._take_images(), *map(self._content, message.parts)])
            else:
                self._flush_images()
                self._add_assistant(message)
        self._flush_images()

    def _content(self, part: TextPart | ImagePart) -> Json:
        if isinstance(part, TextPart):
            return {"type": "text", "text": part.text}
        if not self._takes_images:
            return {"type": "text", "text": _NO_IMAGES}
        url = f"data:{part.media_type};base64,{base64_text(part.data)}"
        return {"type": "image_url", "image_url": {"url": url}}

    def _add_result(self, result: ToolResult) -> None:
        text = result.text
        images = [part for part in result.parts if isinstance(part, ImagePart)]
        if images and self._takes_images:
            self._loose_images += map(self._content, images)
            text = text or "The result is an image; it follows."
        elif images:
            text = f"{text}\n{_NO_IMAGES}" if text else _NO_IMAGES
        self._out.append(
            {"role": "tool", "tool_call_id": self._id(result.call_id), "content": text}
        )

    def _take_images(self) -> list[Json]:
        images, self._loose_images = self._loose_images, []
        return [{"type": "text", "text": _IMAGE_NOTE}, *images] if images else []

    def _flush_images(self) -> None:
        if images := self._take_images():
            self._add_user(images)

    def _add_user(self, parts: list[Json]) -> None:
        out = self._out
        if self._quirks.is_mistral and out and out[-1]["role"] == "tool":
            out.append({"role": "assistant", "content": "Understood."})
        if out and out[-1]["role"] == "user":
            earlier = out.pop()["content"]
            if isinstance(earlier, str):
                earlier = [{"type": "text", "text": earlier}]
            parts = [*earlier, *parts]
        if all(part["type"] == "text" for part in parts):
            out.append({"role": "user", "content": "\n".join(part["text"] for part in parts)})
        else:
            out.append({"role": "user", "content": parts})

    def _add_assistant(self, message: AssistantMessage) -> None:
        out = self._out
        encoded: Json = {"role": "assistant", "content": message.text or None}
        calls = [
            {
                "id": self._id(call.id),
                "type": "function",
                "function": {
                    "name": wire_name(call.name),
                    "arguments": arguments_json(call.arguments),
                },
            }
            for call in message.tool_calls
        ]
        if calls:
            encoded["tool_calls"] = calls
            if self._quirks.wants_signature:
                signature = {"google": {"thought_signature": "skip_thought_signature_validator"}}
                for call in calls:
                    call["extra_content"] = signature
        if self._quirks.wants_reasoning_back and calls:
            thoughts = [part.text for part in message.parts if isinstance(part, ThinkingPart)]
            encoded["reasoning_content"] = "".join(thoughts)
        last = out[-1] if out else None
        if last and last["role"] == "assistant" and not last.get("tool_calls"):
            texts = [text for text in (last["content"], encoded["content"]) if text]
            encoded["content"] = "\n".join(texts) or None
            out.pop()
        out.append(encoded)

    def _id(self, call_id: str) -> str:
        if self._quirks.is_mistral:
            plain = len(call_id) == 9 and call_id.isascii() and call_id.isalnum()  # noqa: PLR2004 - Mistral's ids
            return call_id if plain else short_hash(call_id, 9)
        return wire_id(call_id, _MAX_ID)


# --- provider ------------------------------------------------------------------------------


def completions_url(base_url: str) -> str:
    """The address of Chat Completions under ``base_url``; a bare host means ``/v1``.

    Gemini's service has them at a place of its own.
    """
    base = base_url.rstrip("/").removesuffix("/chat/completions")
    parts = urlsplit(base)
    if not parts.path.strip("/"):
        is_google = (parts.hostname or "").endswith("generativelanguage.googleapis.com")
        base += "/v1beta/openai" if is_google else "/v1"
    return f"{base}/chat/completions"


class OpenAIProvider(HttpProvider):
    """Chat Completions of OpenAI or of a server that speaks it."""

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self._quirks = quirks_of(config)

    def url(self) -> str:
        """The address that requests are posted to."""
        return completions_url(self.config.base_url)

    def headers(self, request: ModelRequest, body: Mapping[str, Any]) -> dict[str, str]:
        """The key, where there is one."""
        del request, body
        key = self.config.api_key
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode(self, request: ModelRequest) -> Json:
        """The body of the request."""
        return encode(request, self.name, self._quirks)

    def decoder(self, request: ModelRequest) -> Decoder:
        """A fresh decoder for one reply."""
        return Decoder(self.endpoint(request.model.name))


def create(config: ProviderConfig) -> Provider:
    """The provider that ``config`` describes."""
    return OpenAIProvider(config)


PROVIDER = create
