"""Chat Completions, streamed: OpenAI and every server that speaks its protocol.

https://platform.openai.com/docs/api-reference/chat. Law: ``encode`` is pure; a call's arguments
go out as the JSON text of an object (HIS-5); the results of a batch follow their calls at once
(HIS-1). What only some servers do is told apart by provider name or host, in ``_Quirks``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.clean import clean_id, clean_name, digest, read_json
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    Message,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import ModelRequest, ProviderConfig
from agentcli.domain.stream import (
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.domain.values import frozen
from agentcli.providers._base import (
    HttpProvider,
    StreamDecoder,
    arguments_json,
    base64_text,
    openai_usage,
    received_json,
    with_own_fields,
)
from agentcli.providers._efforts import (
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


# --- request -----------------------------------------------------------------------------


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
        # of servers that speak the same protocol some refuse it
        if request.tool_choice and (quirks.is_openai or provider == "openai"):
            named = {"type": "function", "function": {"name": request.tool_choice}}
            body["tool_choice"] = "required" if request.tool_choice == "*" else named
    return with_own_fields(body, request)


def _reasoning_fields(request: ModelRequest, provider: str, quirks: _Quirks) -> Json:
    """The fields that ask for ``request.effort``; none where the model would refuse them."""
    effort, name = request.effort, request.model.name
    # also behind a proxy of the user's own: the models are OpenAI's, by their names
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
        if isinstance(part, DocumentPart):
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
                    "name": clean_name(call.name),
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
            return call_id if plain else digest(call_id, 9)
        return clean_id(call_id, _MAX_ID)


# --- reply -------------------------------------------------------------------------------

# Law: only choice 0 counts; a call starts once its name is known; arguments are passed on as they
# come; what says its id twice and then another is two replies, which are not glued (STR-12); a
# reply is over at ``[DONE]``, or at the end of the bytes when a finish reason was given.

_STOP_REASONS = {
    "stop": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
    "eos": StopReason.END_TURN,
    "eos_token": StopReason.END_TURN,
    "stop_sequence": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
}

Json = dict[str, Any]


_OUTPUT = ("content", "tool_calls", "function_call", "reasoning_content", "reasoning")


class _ChatCall:
    """A call that is being received. ``block`` is ``None`` until its name is known."""

    __slots__ = ("arguments", "block", "id", "name", "size")

    def __init__(self) -> None:
        self.block: int | None = None
        self.id = ""
        self.name = ""
        self.arguments = StringIO()
        self.size = 0

    def is_same(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether a piece says all of this call again, which some gateways do (STR-12)."""
        if not (call_id and name) or (call_id, name) != (self.id, self.name):
            return False
        again = _object(arguments)
        return again is not None and again == _object(self.arguments.getvalue())


class ChatDecoder(StreamDecoder):
    """The events of one Chat Completions stream."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._blocks = 0
        self._open: tuple[type[TextDelta | ThinkingDelta], int] | None = None
        self._calls: dict[object, _ChatCall] = {}
        self._latest: _ChatCall | None = None
        self._ids: set[str] = set()
        self._has_deltas = False
        self._stop: StopReason | None = None
        self._refused = False
        self._usage: Usage | None = None
        self._reply_id = ""
        self._has_lasting_id = False

    def handle(self, value: Mapping[str, Any]) -> None:
        """Take one chunk, or the one document of a server that does not stream."""
        usage = value.get("usage")
        if usage is None and isinstance(groq := value.get("x_groq"), dict):
            usage = groq.get("usage")
        if isinstance(usage, dict):
            self._usage = openai_usage(usage, "prompt", "completion")
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                if self._is_of_another(value.get("id"), choice.get("delta")):
                    self.mixed_up("the id of the reply changes")
                    return
                self._choice(choice)
        self.complete = self._stop is not None and self._usage is not None

    def _is_of_another(self, reply_id: object, delta: object) -> bool:
        """Whether a piece with output comes from a second reply.

        Some servers make an id for each chunk: it means something where it has lasted.
        """
        if not isinstance(reply_id, str) or not reply_id:
            return False
        if reply_id == self._reply_id:
            self._has_lasting_id = True
            return False
        known, self._reply_id = self._reply_id, reply_id
        says = isinstance(delta, dict) and any(delta.get(key) for key in _OUTPUT)
        return bool(known) and self._has_lasting_id and says

    def done_marker(self) -> None:
        """The server says that this was all; a reply of nothing at all stays unfinished."""
        if self._stop is not None or self._blocks:
            self._end()

    def finish(self) -> None:
        """Some servers leave ``[DONE]`` out; a finish reason is enough."""
        if self._stop is not None:
            self._end()
        elif self._usage is not None:
            self.out.add(UsageReport(self._usage))

    def _end(self) -> None:
        if self._usage is not None:
            self.out.add(UsageReport(self._usage))
        stop = self._stop or StopReason.END_TURN
        if stop is StopReason.END_TURN:
            if self._calls:
                stop = StopReason.TOOL_USE
            elif self._refused:
                stop = StopReason.REFUSAL
        self.end(StreamEnd(stop))

    def _choice(self, choice: Json) -> None:
        delta = choice.get("delta")
        self._has_deltas = self._has_deltas or bool(delta)
        if not self._has_deltas:  # else some servers say all of it again at the end
            delta = choice.get("message")
        if isinstance(delta, dict):
            for kind, text in _pieces(delta):
                self._text(kind, text)
            refusal = delta.get("refusal")
            if isinstance(refusal, str) and refusal:
                self._refused = True
                self._text(TextDelta, refusal)
            calls = delta.get("tool_calls")
            if isinstance(calls, list):
                self.bound(calls)
                for call in calls:
                    if isinstance(call, dict):
                        self._call(call)
            elif isinstance(function := delta.get("function_call"), dict):
                self._call({"index": 0, "function": function})
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._stop = _STOP_REASONS.get(reason, StopReason.OTHER)

    def _text(self, kind: type[TextDelta | ThinkingDelta], text: str) -> None:
        if self._open is None or self._open[0] is not kind:
            self._open = (kind, self._new_block())
        self.out.delta(kind, self._open[1], text)

    def _new_block(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    # --- calls: matching a piece to its call -------------------------------------------------

    def _call(self, piece: Json) -> None:
        function = piece.get("function")
        if not isinstance(function, dict):
            function = {}
        call_id = piece.get("id")
        call_id = call_id if isinstance(call_id, str) else ""
        name = function.get("name")
        name = name if isinstance(name, str) else ""
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = received_json(arguments)
        elif not isinstance(arguments, str):
            arguments = ""
        if name and arguments.lstrip().startswith("{"):  # it is compared with what has come
            alike = (
                call for call in self._calls.values() if (call.id, call.name) == (call_id, name)
            )
            self.bound(again=sum(call.size for call in alike))
        if any(call.is_same(call_id, name, arguments) for call in self._calls.values()):
            return
        call = self._match(piece.get("index"), call_id, name, arguments)
        if call is None:
            return
        self._latest = call
        call.id = call.id or call_id
        call.name = call.name or name
        call.arguments.write(arguments)
        call.size += len(arguments)
        if call.block is not None:
            self.out.delta(ToolCallDelta, call.block, arguments)
        elif call.name:
            self._start(call)
        else:
            self.bound(again=len(call_id) + len(arguments))

    def _start(self, call: _ChatCall) -> None:
        self._open = None
        call.block = self._new_block()
        call_id = "" if call.id in self._ids else call.id
        self._ids.add(call.id)
        self.out.add(ToolCallStart(call.block, call_id, call.name))
        self.out.delta(ToolCallDelta, call.block, call.arguments.getvalue())

    def _match(self, index: object, call_id: str, name: str, arguments: str) -> _ChatCall | None:
        """The call that a piece belongs to; a new one where the piece begins one.

        Servers may leave out the index, the id or both, give every call index 0, or repeat id
        and name in every piece.
        """
        has_index = isinstance(index, int)
        current = self._calls.get(index) if has_index else self._latest
        if not has_index and call_id:
            known = (call for call in self._calls.values() if call.id == call_id)
            nameless = current if current is not None and not (name or current.id) else None
            current = next(known, nameless)
        if current is None:
            if not (name or call_id or has_index):
                return None
        elif not _begins_another(current, call_id, name, arguments):
            return current
        elif has_index:
            # The index is not to be trusted: move the finished call out of its way.
            self._calls[("done", len(self._calls))] = current
        call = _ChatCall()
        self._calls[index if has_index else ("free", len(self._calls))] = call
        self.bound(self._calls)
        return call


def _begins_another(current: _ChatCall, call_id: str, name: str, arguments: str) -> bool:
    if not name:
        return False
    if call_id and current.id and call_id != current.id:
        return True
    if current.name and name != current.name:
        return True
    begins_object = arguments.lstrip().startswith("{")
    return (
        begins_object and call_id in {"", current.id} and _is_object(current.arguments.getvalue())
    )


def _is_object(text: str) -> bool:
    return _object(text) is not None


def _object(text: str) -> Json | None:
    try:
        value = read_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _pieces(delta: Json) -> Iterator[tuple[type[TextDelta | ThinkingDelta], str]]:
    """Text and reasoning of a delta, in the spellings of the servers."""
    for key in ("reasoning_content", "reasoning", "thinking"):
        reasoning = delta.get(key)
        if isinstance(reasoning, str) and reasoning:
            yield ThinkingDelta, reasoning
            break
    content = delta.get("content")
    if isinstance(content, str):
        if content:
            yield TextDelta, content
    elif isinstance(content, list):
        for part in content:
            if not isinstance(part, dict):
                continue
            if isinstance(thinking := part.get("thinking"), list):
                texts = (item.get("text") for item in thinking if isinstance(item, dict))
                yield ThinkingDelta, "".join(text for text in texts if isinstance(text, str))
            elif isinstance(text := part.get("text"), str) and text:
                yield TextDelta, text


# --- provider ----------------------------------------------------------------------------


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

    decoder_type = ChatDecoder

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self._quirks = quirks_of(config)

    def url(self) -> str:
        """The address that requests are posted to."""
        return completions_url(self.config.base_url)

    def encode(self, request: ModelRequest) -> Json:
        """The body of the request."""
        return encode(request, self.name, self._quirks)


PROVIDER = OpenAIProvider
