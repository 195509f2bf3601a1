"""Google's Gemini API, streamed: https://ai.google.dev/api/generate-content.

Law: ``encode`` is pure and extends its own earlier output as a conversation grows (prompt
cache); the results of a batch stand alone in the content right after their calls, in order
(HIS-1): beside a result Gemini takes neither text nor image; roles take turns (HIS-3); every
signature goes back on the part it came on (HIS-4); the key travels in a header, never in a URL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from agentcli.domain.clean import as_list, clean_id, clean_name
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    Message,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import Effort, ModelRequest
from agentcli.domain.stream import (
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.domain.tools import ToolDefinition
from agentcli.providers._base import (
    HttpProvider,
    StreamDecoder,
    base64_text,
    received_json,
    token_count,
)
from agentcli.providers._errors import auth_headers, endpoint_of
from agentcli.wire.http import Endpoint

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
_FIRST_IN_NAME = LazyPattern(r"[A-Za-z_]")
_MAX_NAME = 64
_API_VERSION = LazyPattern(r"/v\d\w*(?:/|$)")


# --- request -----------------------------------------------------------------------------


def encode(request: ModelRequest) -> Json:
    """The body of a ``streamGenerateContent`` request. ``messages`` is a prepared history."""
    body: Json = {}
    if request.system:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    body["contents"] = _Contents(request).of(request.messages)
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
        if request.tool_choice:
            chosen: Json = {"mode": "ANY"}
            if request.tool_choice != "*":
                chosen["allowedFunctionNames"] = [function_name(request.tool_choice)]
            body["toolConfig"] = {"functionCallingConfig": chosen}
    generation: Json = {}
    if request.max_output_tokens is not None:
        generation["maxOutputTokens"] = request.max_output_tokens
    if (thinking := thinking_config(request)) is not None:
        generation["thinkingConfig"] = thinking
    if request.temperature is not None:
        generation["temperature"] = request.temperature
    if generation:
        body["generationConfig"] = generation
    return {**body, **request.fields}


def _declaration(tool: ToolDefinition) -> Json:
    declared: Json = {"name": function_name(tool.name), "description": tool.description}
    if (schema := gemini_schema(tool.parameters)) is not None:
        declared["parametersJsonSchema"] = schema
    return declared


def function_name(name: str) -> str:
    """``name`` as the API takes it: it begins with a letter or an underscore."""
    name = clean_name(name)
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
        if isinstance(part, DocumentPart):
            return ""
        if not self._takes_images:
            return _NO_IMAGES
        return "" if part.media_type in types else f"[image left out: {part.media_type}]"

    def _add_user(self, parts: list[Json]) -> None:
        if not parts:
            return
        last = self._out[-1] if self._out else None
        if last is not None and last["role"] == "user":
            if "functionResponse" not in last["parts"][0]:  # results stand alone
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
            response["id"] = clean_id(result.call_id)
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
            encoded["id"] = clean_id(call.id)
        return encoded


def _user(parts: list[Json]) -> Json:
    return {"role": "user", "parts": parts}


def _image(part: ImagePart) -> Json:
    return {"inlineData": {"mimeType": part.media_type, "data": base64_text(part.data)}}


# --- what one model takes and another refuses --------------------------------------------

# Sources: https://ai.google.dev/gemini-api/docs/generate-content/thinking (levels by model),
# /thought-signatures, /function-calling. Law: a combination that the API refuses is never sent;
# a name that is not known is taken for a model of today.

_NAME = LazyPattern(r"gemini-(?:(?P<major>\d+)(?:\.(?P<minor>\d+))?(?![\d.]))?")
_UNNUMBERED = (99, 0)
_FIRST_THINKING = (2, 5)
_FIRST_LEVELS = (3, 0)
# Of the models with levels, the Flash ones of these versions also know "minimal".
_WITH_MINIMAL = frozenset({(3, 0), (3, 1), (3, 5), (3, 6)})
_BUDGETS = {
    Effort.MINIMAL: 1_024,
    Effort.LOW: 4_096,
    Effort.MEDIUM: 10_000,
    Effort.HIGH: 24_000,
    Effort.XHIGH: 24_576,  # the most that every model with a budget takes
    Effort.MAX: 24_576,
}
_MIN_BUDGET = 1_024
_MIN_BUDGET_PRO = 128
# What is left for the answer where the output limit includes the thoughts.
_ROOM_TO_ANSWER = 1_024


def version_of(model: str) -> tuple[int, int] | None:
    """(3, 6) of ``gemini-3.6-flash``; above all numbers for ``gemini-flash-latest``.

    ``None`` for the name of another family.
    """
    match = _NAME.search(model.lower())
    if match is None:
        return None
    if match["major"] is None:
        return _UNNUMBERED
    return int(match["major"]), int(match["minor"] or 0)


def is_modern(model: str) -> bool:
    """Whether the model (Gemini 3 on) knows call ids and media in results, and wants signatures."""
    return (version_of(model) or _UNNUMBERED) >= _FIRST_LEVELS


def thinking_config(request: ModelRequest) -> Json | None:
    """``generationConfig.thinkingConfig``, or ``None`` where the model would refuse it."""
    model = request.model.name.lower()
    version = version_of(model)
    if version is None or version < _FIRST_THINKING:
        return None
    effort = request.effort
    if version >= _FIRST_LEVELS:
        config: Json = {"includeThoughts": True}
        if effort is not None:
            config["thinkingLevel"] = _level(model, version, effort)
        return config
    if effort is None:
        # Flash-Lite 2.5 does not think unless told to, and then has no thoughts to include.
        return None if "lite" in model else {"includeThoughts": True}
    if effort is Effort.NONE:
        return {"thinkingBudget": _MIN_BUDGET_PRO if "pro" in model else 0}
    budget = _BUDGETS[effort]
    if request.max_output_tokens is not None:
        budget = max(_MIN_BUDGET, min(budget, request.max_output_tokens - _ROOM_TO_ANSWER))
    return {"includeThoughts": True, "thinkingBudget": budget}


def _level(model: str, version: tuple[int, int], effort: Effort) -> str:
    if effort in {Effort.NONE, Effort.MINIMAL}:
        knows_minimal = "flash" in model and version in _WITH_MINIMAL
        return "minimal" if knows_minimal else "low"
    if effort is Effort.MEDIUM and version == _FIRST_LEVELS and "pro" in model:
        return "high"  # Gemini 3 Pro knows only the two ends
    return "high" if effort in {Effort.XHIGH, Effort.MAX} else effort.value


# --- schemas of tools --------------------------------------------------------------------

# https://ai.google.dev/api/caching#FunctionDeclaration, and the list of keywords under
# https://ai.google.dev/gemini-api/docs/structured-output. Law: pure; the result accepts whatever
# the schema accepted (it may accept more: the tool itself checks its arguments); references are
# written out, for beside one the API takes nothing else.

_KEPT = frozenset(
    {
        "type", "title", "description", "enum", "default", "nullable", "pattern",
        "minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength",
    }
)  # fmt: skip
_FORMATS = frozenset({"date-time", "date", "time", "int32", "int64", "float", "double"})
_LIST_INSIDE = {"anyOf": "anyOf", "oneOf": "anyOf", "prefixItems": "prefixItems"}
_MAX_DEPTH = 32
# References to references multiply; a schema of a tool has some dozens of nodes.
_MAX_NODES = 5_000


def gemini_schema(schema: Mapping[str, Any]) -> Json | None:
    """``schema`` of an object; ``None`` when it has no properties: the function takes nothing."""
    plain = _Plain(schema).node(schema, (), 0)
    properties = plain.get("properties")
    if not properties and not isinstance(plain.get("additionalProperties"), dict):
        return None
    return {**plain, "type": "object"}


class _Plain:
    """Writes the schema out; ``root`` is where its references point into."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def node(self, schema: object, seen: tuple[str, ...], depth: int) -> Json:
        self._nodes += 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            if reference in seen:
                return self.node(rest, seen, depth + 1)
            target = self.node(self._find(reference), (*seen, reference), depth + 1)
            return {**target, **self.node(rest, seen, depth + 1)}
        plain: Json = {}
        for part in as_list(schema.get("allOf")):
            _merge(plain, self.node(part, seen, depth + 1))
        own: Json = {}
        for key, value in schema.items():
            self._keyword(own, key, value, seen, depth + 1)
        _merge(plain, own)
        _inclusive(plain, schema)
        return plain

    def _keyword(
        self, plain: Json, key: str, value: object, seen: tuple[str, ...], depth: int
    ) -> None:
        if key in _KEPT or (key == "format" and value in _FORMATS):
            plain[key] = value
        elif key == "const":
            plain["enum"] = [value]
        elif key == "properties" and isinstance(value, Mapping):
            plain[key] = {name: self.node(item, seen, depth) for name, item in value.items()}
        elif key == "required":
            if names := [name for name in as_list(value) if isinstance(name, str)]:
                plain[key] = names
        elif key == "items":
            plain[key] = self.node(value, seen, depth)
        elif key == "additionalProperties":
            plain[key] = value if isinstance(value, bool) else self.node(value, seen, depth)
        elif key in _LIST_INSIDE:
            branches = [self.node(item, seen, depth) for item in as_list(value)]
            if branches:
                plain[_LIST_INSIDE[key]] = branches

    def _find(self, reference: str) -> object:
        """What ``#/$defs/Name`` points at; nothing for an address outside of the schema."""
        if not reference.startswith("#"):
            return {}
        found: object = self._root
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def _merge(into: Json, other: Json) -> None:
    for key, value in other.items():
        if key == "properties":
            into[key] = {**into.get(key, {}), **value}
        elif key == "required":
            into[key] = list(dict.fromkeys([*into.get(key, []), *value]))
        else:
            into[key] = value


def _inclusive(plain: Json, schema: Mapping[str, Any]) -> None:
    """The API knows no exclusive bounds: for integers the next one, else the bound itself."""
    step = 1 if schema.get("type") == "integer" else 0
    for key, bound, sign in (
        ("exclusiveMinimum", "minimum", 1),
        ("exclusiveMaximum", "maximum", -1),
    ):
        value = schema.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            plain.setdefault(bound, value + sign * step)


# --- reply -------------------------------------------------------------------------------

# https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse. Law: only candidate 0
# counts; a signed part is never joined with another; a signature that belongs to a text or a call
# is kept as a thinking part right before it (``seal_of``), so that ``encode`` can put it back on
# the same part, byte for byte (HIS-4); a reply without a finish reason was cut; what arrives
# together with the finish reason, in whatever order, still counts.

_STOP_REASONS = {
    "STOP": StopReason.END_TURN,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "SAFETY": StopReason.REFUSAL,
    "RECITATION": StopReason.REFUSAL,
    "LANGUAGE": StopReason.REFUSAL,
    "BLOCKLIST": StopReason.REFUSAL,
    "PROHIBITED_CONTENT": StopReason.REFUSAL,
    "SPII": StopReason.REFUSAL,
}
_BLOCKED_ADVICE = "say it in other words, leave out what may have been blocked, or switch the model"

Json = dict[str, Any]


def seal_of(place: str, signature: str) -> str:
    """A signature with its place: on the ``text`` or ``call`` that follows, or ``alone``."""
    return f"{place}:{signature}"


class GeminiDecoder(StreamDecoder):
    """The events of one ``streamGenerateContent`` reply."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._blocks = 0
        self._open: tuple[type[TextDelta | ThinkingDelta], int] | None = None
        self._call_ids: set[str] = set()
        self._has_output = False
        self._stop: StopReason | None = None
        self._reason = ""
        self._usage: Usage | None = None

    def handle(self, value: Mapping[str, Any]) -> None:
        """Take one chunk."""
        # one answer may be wrapped once more by proxies of Google's own
        if isinstance(inner := value.get("response"), dict) and "candidates" not in value:
            value = inner
        if isinstance(usage := value.get("usageMetadata"), dict):
            self._count(usage)
        feedback = value.get("promptFeedback")
        if isinstance(feedback, dict) and isinstance(why := feedback.get("blockReason"), str):
            self.failure = self._failure(f"blocked the request ({why})", _BLOCKED_ADVICE)
            return
        candidates = value.get("candidates")
        if isinstance(candidates, list):
            for candidate in candidates:
                if isinstance(candidate, dict) and not candidate.get("index"):
                    self._candidate(candidate)
        self.complete = self._stop is not None and self._usage is not None

    def finish(self) -> None:
        """The bytes have ended: in good order when a finish reason was given."""
        if self._usage is not None:
            self.out.add(UsageReport(self._usage))
        if self._stop is None:
            return
        if self._stop is StopReason.REFUSAL and not self._has_output:
            what = f"stopped the reply before its first word ({self._reason})"
            self.failure = self._failure(what, _BLOCKED_ADVICE)
            return
        stop = self._stop
        if stop is StopReason.END_TURN and self._call_ids:
            stop = StopReason.TOOL_USE
        self.end(StreamEnd(stop))

    def done_marker(self) -> None:
        """Some gateways send ``[DONE]`` as Chat Completions does."""
        if self._stop is not None:
            self.finish()

    def _failure(self, what: str, advice: str) -> ProviderError:
        return self._named(ProviderError(what, advice, kind=ErrorKind.OTHER))

    def _candidate(self, candidate: Json) -> None:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        if isinstance(parts, list):
            for part in parts:
                if isinstance(part, dict):
                    self._part(part)
        reason = candidate.get("finishReason")
        if isinstance(reason, str) and reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._reason = reason
            self._stop = _STOP_REASONS.get(reason, StopReason.OTHER)

    def _part(self, part: Json) -> None:
        signature = part.get("thoughtSignature")
        signature = signature if isinstance(signature, str) else ""
        call = part.get("functionCall")
        text = part.get("text")
        if isinstance(call, dict):
            self._call(call, signature)
        elif isinstance(text, str) or signature:
            text = text if isinstance(text, str) else ""
            if part.get("thought") is True:
                self._thought(text, signature)
            else:
                self._text(text, signature)

    def _thought(self, text: str, signature: str) -> None:
        if not signature:
            self.out.delta(ThinkingDelta, self._joined(ThinkingDelta), text)
            return
        block = self._new_block()
        self.out.delta(ThinkingDelta, block, text)
        self.out.add(ThinkingSeal(block, signature=signature))

    def _text(self, text: str, signature: str) -> None:
        self._has_output = self._has_output or bool(text)
        if not signature:
            self.out.delta(TextDelta, self._joined(TextDelta), text)
            return
        place = "text" if text.strip() else "alone"
        self.out.add(ThinkingSeal(self._new_block(), redacted=seal_of(place, signature)))
        self.out.delta(TextDelta, self._new_block(), text)

    def _call(self, call: Json, signature: str) -> None:
        name = call.get("name")
        call_id = call.get("id")
        call_id = call_id if isinstance(call_id, str) else ""
        if not isinstance(name, str) or not name or (call_id and call_id in self._call_ids):
            return  # some gateways send a call again in a later chunk
        self._has_output = True
        self._call_ids.add(call_id)
        if signature:
            self.out.add(ThinkingSeal(self._new_block(), redacted=seal_of("call", signature)))
        block = self._new_block()
        arguments = call.get("args")
        self.out.add(ToolCallStart(block, call_id, name))
        if isinstance(arguments, dict):
            self.out.delta(ToolCallDelta, block, received_json(arguments))
        elif isinstance(arguments, str):
            self.out.delta(ToolCallDelta, block, arguments)

    def _joined(self, kind: type[TextDelta | ThinkingDelta]) -> int:
        """The block that an unsigned piece of ``kind`` continues, or a new one."""
        if self._open is None or self._open[0] is not kind:
            self._open = (kind, self._new_block())
        return self._open[1]

    def _new_block(self) -> int:
        self._open = None
        self._blocks += 1
        return self._blocks - 1

    def _count(self, usage: Json) -> None:
        first = self._usage is None
        self._usage = (self._usage or Usage()).updated(_usage(usage))
        if first and self._usage.is_known:
            self.out.add(UsageReport(self._usage))  # a reply that is cut costs its prompt too


def _usage(usage: Json) -> Usage:
    """Gemini counts the cached tokens in the prompt, the thoughts beside the answer."""
    prompt = _sum(usage, "promptTokenCount", "toolUsePromptTokenCount")
    cached = token_count(usage.get("cachedContentTokenCount"))
    thoughts = token_count(usage.get("thoughtsTokenCount"))
    output = _sum(usage, "candidatesTokenCount", "thoughtsTokenCount")
    return Usage(
        input_tokens=None if prompt is None else max(0, prompt - (cached or 0)),
        output_tokens=output,
        cache_read_tokens=cached,
        reasoning_tokens=thoughts,
    )


def _sum(usage: Json, first: str, second: str) -> int | None:
    counts = [token_count(usage.get(first)), token_count(usage.get(second))]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


# --- provider ----------------------------------------------------------------------------


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

    decoder_type = GeminiDecoder

    def url(self) -> str:
        """The address of the models; a request's own also names its model."""
        return f"{api_base(self.config.base_url)}/models"

    def endpoint(self, model: str) -> Endpoint:
        """Where requests for ``model`` go."""
        url = stream_url(self.config.base_url, model)
        if not self.config.stream:
            url = url.replace(":streamGenerateContent?alt=sse", ":generateContent")
        return endpoint_of(self.config, url, model)

    def headers(self, body: Mapping[str, Any]) -> dict[str, str]:
        """The key, where there is one."""
        del body
        return auth_headers(self.config, "x-goog-api-key")

    def encode(self, request: ModelRequest) -> Json:
        """The body of the request."""
        return encode(request)


PROVIDER = GeminiProvider
