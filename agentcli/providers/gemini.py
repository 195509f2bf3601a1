"""Google's Gemini API, streamed: https://ai.google.dev/api/generate-content.

Law: ``encode`` is pure and extends its own earlier output as a conversation grows (prompt
cache); the results of a batch stand alone in the content right after their calls, in order
(HIS-1): beside a result Gemini takes neither text nor image; roles take turns (HIS-3); every
signature goes back on the part it came on (HIS-4); the key travels in a header, never in a URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ModelRequest, Provider, ProviderConfig
from agentcli.domain.tools import ToolDefinition
from agentcli.providers._base import HttpProvider, base64_text, wire_id, wire_name
from agentcli.providers._errors import Endpoint
from agentcli.providers._gemini_decoder import Decoder
from agentcli.providers._gemini_schema import gemini_schema
from agentcli.providers.models.gemini import is_modern, thinking_config

# https://ai.google.dev/gemini-api/docs/thought-signatures: stands for the signature of a call
# that another model made, which Gemini 3 would refuse without one.
FOREIGN_CALL = "skip_thought_signature_validator"
# https://ai.google.dev/gemini-api/docs/image-understanding
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
_RESULT_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})
_IMAGE_NOTE = "The images of the tool results above:"
_NO_IMAGES = "[image left out: this model takes no images]"
_BETWEEN = "Understood."
_GO_ON = "Continue."
_FIRST_IN_NAME = re.compile(r"[A-Za-z_]")
_MAX_NAME = 64
_API_VERSION = re.compile(r"/v\d\w*(?:/|$)")

Json = dict[str, Any]


# --- request -------------------------------------------------------------------------------


def encode(request: ModelRequest) -> Json:
    """The body of a ``streamGenerateContent`` request. ``messages`` is a prepared history."""
    body: Json = {}
    if request.system:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    body["contents"] = _Contents(request).of(request.messages)
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
    generation: Json = {}
    if request.max_output_tokens is not None:
        generation["maxOutputTokens"] = request.max_output_tokens
    if (thinking := thinking_config(request)) is not None:
        generation["thinkingConfig"] = thinking
    if generation:
        body["generationConfig"] = generation
    return body


def _declaration(tool: ToolDefinition) -> Json:
    declared: Json = {"name": function_name(tool.name), "description": tool.description}
    if (schema := gemini_schema(tool.parameters)) is not None:
        declared["parametersJsonSchema"] = schema
    return declared


def function_name(name: str) -> str:
    """``name`` as the API takes it: it begins with a letter or an underscore."""
    name = wire_name(name)
    return name if _FIRST_IN_NAME.match(name) else f"_{name}"[:_MAX_NAME]


class _Contents:
    """Appends encoded messages, keeping to the order that the API accepts."""

    def __init__(self, request: ModelRequest) -> None:
        self._out: list[Json] = []
        self._takes_images = request.model.supports_images
        self._modern = is_modern(request.model.name)
        self._loose_images: list[Json] = []
        self._names: dict[str, str] = {}
        self._results: list[ToolResult] = []

    def of(self, messages: Sequence[Message]) -> list[Json]:
        for message in messages:
            if isinstance(message, ToolResult):
                self._results.append(message)
                continue
            self._add_results()
            if isinstance(message, UserMessage):
                self._add_user([*self._take_images(), *map(self._content, message.parts)])
            else:
                self._add_user(self._take_images())
                self._add_model(self._model_parts(message))
        self._add_results()
        self._add_user(self._take_images())
        if self._out and self._out[0]["role"] == "model":
            self._out.insert(0, _user([{"text": _GO_ON}]))
        if self._out and self._out[-1]["role"] == "model":
            self._out.append(_user([{"text": _GO_ON}]))
        return self._out

    # --- the user's side -----------------------------------------------------------------

    def _content(self, part: TextPart | ImagePart) -> Json:
        if isinstance(part, TextPart):
            return {"text": part.text}
        stub = self._no_image(part, _IMAGE_TYPES)
        return {"text": stub} if stub else _image(part)

    def _no_image(self, part: ImagePart, types: Iterable[str]) -> str:
        """What to say in place of an image that would be refused; empty when it would not."""
        if not self._takes_images:
            return _NO_IMAGES
        return "" if part.media_type in types else f"[image left out: {part.media_type}]"

    def _add_user(self, parts: list[Json]) -> None:
        if not parts:
            return
        last = self._out[-1] if self._out else None
        if last is not None and last["role"] == "user":
            if not _holds_results(last):
                last["parts"].extend(parts)
                return
            self._out.append({"role": "model", "parts": [{"text": _BETWEEN}]})
        self._out.append(_user(parts))

    def _add_results(self) -> None:
        """The results of a batch, in the order and under the names of its calls."""
        if not self._results:
            return
        order = {call_id: index for index, call_id in enumerate(self._names)}
        self._results.sort(key=lambda result: order.get(result.call_id, 0))
        parts = [{"functionResponse": self._response(result)} for result in self._results]
        self._out.append(_user(parts))
        self._results.clear()
        self._names.clear()

    def _response(self, result: ToolResult) -> Json:
        name = self._names.get(result.call_id) or function_name(result.name)
        response: Json = {"name": name}
        if self._modern:
            response["id"] = wire_id(result.call_id)
        texts = [part.text for part in result.parts if isinstance(part, TextPart)]
        inside: list[Json] = []
        types = _RESULT_IMAGE_TYPES if self._modern else _IMAGE_TYPES
        for part in result.parts:
            if isinstance(part, TextPart):
                continue
            if stub := self._no_image(part, types):
                texts.append(stub)
            else:
                (inside if self._modern else self._loose_images).append(_image(part))
        text = "\n".join(texts) or "The result is an image."
        response["response"] = {"error" if result.is_error else "output": text}
        if inside:
            response["parts"] = inside
        return response

    def _take_images(self) -> list[Json]:
        images, self._loose_images = self._loose_images, []
        return [{"text": _IMAGE_NOTE}, *images] if images else []

    # --- the model's side ----------------------------------------------------------------

    def _add_model(self, parts: list[Json]) -> None:
        if not parts:
            return
        last = self._out[-1] if self._out else None
        if last is not None and last["role"] == "model":
            last["parts"].extend(parts)
        else:
            self._out.append({"role": "model", "parts": parts})

    def _model_parts(self, message: AssistantMessage) -> list[Json]:
        parts: list[Json] = []
        place = signature = ""
        first_call = True
        for part in message.parts:
            if isinstance(part, ThinkingPart):
                if part.redacted is not None:
                    place, _, signature = part.redacted.partition(":")
                    if place == "alone":
                        parts.append({"text": "", "thoughtSignature": signature})
                elif part.signature is not None:
                    thought = {"text": part.text, "thought": True}
                    parts.append({**thought, "thoughtSignature": part.signature})
                continue
            if isinstance(part, TextPart):
                encoded: Json = {"text": part.text}
                signed = place == "text"
            else:
                encoded = {"functionCall": self._call(part)}
                signed = place == "call"
                if first_call and self._modern and not signed:
                    encoded["thoughtSignature"] = FOREIGN_CALL
                first_call = False
            if signed:
                encoded["thoughtSignature"] = signature
            parts.append(encoded)
            place = ""
        return parts

    def _call(self, call: ToolCall) -> Json:
        name = self._names[call.id] = function_name(call.name)
        encoded: Json = {"name": name, "args": call.arguments}
        if self._modern:
            encoded["id"] = wire_id(call.id)
        return encoded


def _user(parts: list[Json]) -> Json:
    return {"role": "user", "parts": parts}


def _image(part: ImagePart) -> Json:
    return {"inlineData": {"mimeType": part.media_type, "data": base64_text(part.data)}}


def _holds_results(content: Json) -> bool:
    return "functionResponse" in content["parts"][0]


# --- provider ------------------------------------------------------------------------------


def api_base(base_url: str) -> str:
    """``base_url`` up to the API's version, which is ``/v1beta`` unless it names one.

    The address of the same service for Chat Completions is understood too.
    """
    base = base_url.rstrip("/").removesuffix("/openai").removesuffix("/models")
    return base if _API_VERSION.search(urlsplit(base).path) else f"{base}/v1beta"


def stream_url(base_url: str, model: str) -> str:
    """The address that requests for ``model`` are posted to; names may carry ``models/``."""
    collection, slash, name = model.rpartition("/")
    if not slash or collection not in {"models", "tunedModels"}:
        collection, name = "models", model.removeprefix("models/")
    path = f"{collection}/{quote(name, safe='')}:streamGenerateContent?alt=sse"
    return f"{api_base(base_url)}/{path}"


class GeminiProvider(HttpProvider):
    """The Gemini API of Google or of a server that speaks it."""

    def url(self) -> str:
        """The address of the models; a request's own also names its model."""
        return f"{api_base(self.config.base_url)}/models"

    def endpoint(self, model: str) -> Endpoint:
        """Where requests for ``model`` go."""
        known = super().endpoint(model)
        url = stream_url(self.config.base_url, model)
        return Endpoint(known.provider, url, known.key_env, known.base_env, model, known.secrets)

    def headers(self, request: ModelRequest, body: Mapping[str, Any]) -> dict[str, str]:
        """The key, where there is one."""
        del request, body
        key = self.config.api_key
        return {"x-goog-api-key": key} if key else {}

    def encode(self, request: ModelRequest) -> Json:
        """The body of the request."""
        return encode(request)

    def decoder(self, request: ModelRequest) -> Decoder:
        """A fresh decoder for one reply."""
        return Decoder(self.endpoint(request.model.name))


def create(config: ProviderConfig) -> Provider:
    """The provider that ``config`` describes."""
    return GeminiProvider(config)


PROVIDER = create
