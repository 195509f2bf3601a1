"""Which block of a request a provider's refusal means (HIS-8). Pure.

Law: a refusal that is not about the history suspects nothing. A block that the text names is
suspected alone; without a name the kinds that have broken sessions before, of what is new since
this model last answered: what came before that was accepted. Places in the text count the
provider's own messages, so they are looked up in the body that was sent and the blocks found
there are recognised by what they say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from agentcli.domain.clean import digest, plain_text
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
from agentcli.domain.ports import ModelRequest
from agentcli.domain.values import frozen

_PLACE = re.compile(
    r"\b(messages|input|contents)[\"']?((?:[.,\s\[\]\"']{0,4}(?:\d+|[A-Za-z_]+)\]?)*)"
)
_STEP = re.compile(r"\d+|[A-Za-z_]+")
_MIN_ID = 6
_MIN_JOINED = 20
_MAX_DEPTH = 40
_BIG_ARGUMENTS = 20_000

WHY = "the model's provider refused it"
"""Part of every stub."""

Json = Mapping[str, Any]


class Kind(StrEnum):
    """What a block is; the value is how the user is told of one."""

    IMAGE = "image"
    THINKING = "reasoning"
    RESULT = "tool result"
    ARGUMENTS = "tool call's arguments"
    ANSWER = "answer"
    PROMPT = "message"


class How(StrEnum):
    """What is sent instead: a text that says so, or the text without unusual characters."""

    STUB = "stub"
    PLAIN = "plain"


@frozen
class Block:
    """One part of a prepared message. ``key`` finds it again in any later request."""

    key: str
    kind: Kind
    part: TextPart | ThinkingPart | ImagePart | ToolCall
    message: int


class Topic(StrEnum):
    """What a refusal is about, by its words."""

    OTHER = "other"
    IMAGE = "image"
    THINKING = "thinking"
    TEXT = "text"
    CALLS = "calls"
    POLICY = "policy"
    VAGUE = "vague"


# Worded as the services do; see their issue trackers. The first that fits.
_NOT_THE_HISTORY = (
    r"max_(completion_|output_)?tokens|temperature|top_[pk]\b|reasoning[._ ]effort|tool_choice"
    r"|budget_tokens|thinking\.(type|enabled|adaptive)|output_config|stream_options"
    r"|\btools?[.\[]\d|input_schema|function_?declarations|invalid schema|api.?key|api.version"
    r"|prompt_cache|service_tier|billing|credit|quota|permission|must be verified|no such model"
    r"|\bmodels?\b.{0,60}(not (exist|found|available|supported)|deprecat|unknown|invalid)"
    r"|(unknown|unsupported|missing) (model|parameter)|invalid model|unrecognized request"
    r"|not supported (with|by) this model|does not support (tool|func|stream|think|reason|para)"
)
_TOPICS = (
    (Topic.POLICY, r"flagged|content.?(filter|policy|management)|moderation|usage polic|safety"),
    (Topic.IMAGE, r"image|media[ _]type|mime[ _]?type|inline_?data|base64|picture|\bvision"),
    (Topic.OTHER, _NOT_THE_HISTORY),
    (Topic.THINKING, r"thinking|thought|signature|reasoning|encrypted.content"),
    (Topic.CALLS, r"tool|function|call_id|arguments"),
    (Topic.TEXT, r"text|content|character|utf-?8|unicode|surrogate|encod|json|string|parse|escape"),
)
_AT_MOST = r"(?i)(?:at most|maximum|up to|limit|no more than)\D{0,25}?\b(\d{1,4}) {0,2}image"


def topic_of(text: str, status: int | None) -> Topic:
    """What the refusal ``text`` is about."""
    if status in {404, 405, 415}:
        return Topic.OTHER
    found = (topic for topic, words in _TOPICS if re.search(words, text, re.IGNORECASE))
    topic = next(found, Topic.VAGUE)
    if topic is Topic.OTHER and _places(text):
        return Topic.VAGUE
    return topic


# --- blocks --------------------------------------------------------------------------------


def blocks_of(messages: Sequence[Message]) -> Iterator[Block]:
    """Everything in a prepared history that can be left out of it."""
    for index, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall) and not part.arguments:
                continue
            if isinstance(part, TextPart) and WHY in part.text:
                continue  # a stub: what it stands for is left out already
            yield Block(key_of(part), _kind(message, part), part, index)


def key_of(part: TextPart | ThinkingPart | ImagePart | ToolCall) -> str:
    """What stays the same for this part in every later request."""
    if isinstance(part, ImagePart):
        return f"image:{digest(part.data)}"
    if isinstance(part, ToolCall):
        return f"call:{part.id}"
    if isinstance(part, ThinkingPart):
        return f"thinking:{digest(part.signature or part.redacted or part.text)}"
    return f"text:{digest(part.text)}"


def _kind(message: Message, part: object) -> Kind:
    if isinstance(part, ImagePart):
        return Kind.IMAGE
    if isinstance(part, ThinkingPart):
        return Kind.THINKING
    if isinstance(part, ToolCall):
        return Kind.ARGUMENTS
    if isinstance(message, ToolResult):
        return Kind.RESULT
    return Kind.PROMPT if isinstance(message, UserMessage) else Kind.ANSWER


def how_to(block: Block) -> How:
    """The mildest replacement that can help."""
    part = block.part
    if isinstance(part, TextPart) and plain_text(part.text) != part.text:
        return How.PLAIN
    return How.STUB


# --- suspicion -----------------------------------------------------------------------------


def suspects(text: str, topic: Topic, request: ModelRequest, body: Json | None) -> list[Block]:
    """The blocks to leave out before asking once more; none when that cannot help."""
    if topic is Topic.OTHER:
        return []
    everything = list(blocks_of(request.messages))
    if topic is Topic.IMAGE and (limit := re.search(_AT_MOST, text)):
        images = _of(Kind.IMAGE, everything)
        return images[: -int(limit[1])] if 0 < int(limit[1]) < len(images) else images
    if topic is Topic.THINKING and (thoughts := _of(Kind.THINKING, everything)):
        return thoughts
    if named := _named(text, everything, body):
        return _most_likely(named)
    return _unnamed(topic, request, everything)


def all_suspects(topic: Topic, request: ModelRequest) -> list[Block]:
    """Everything that may be meant: for the next turn, when the one guess was wrong."""
    first = _first_new(request)
    blocks = blocks_of(request.messages)
    if topic is Topic.IMAGE:
        return _of(Kind.IMAGE, list(blocks))
    by_reasoning = topic in {Topic.THINKING, Topic.VAGUE}
    return [
        block
        for block in blocks
        if (by_reasoning if block.kind is Kind.THINKING else block.message >= first)
        or block.kind is Kind.IMAGE
        or how_to(block) is How.PLAIN
        or _is_big(block)
    ]


def _first_new(request: ModelRequest) -> int:
    """Where what this model has not yet accepted begins: its own last answer (0 without one)."""
    model = request.model
    for index in range(len(request.messages) - 1, -1, -1):
        message = request.messages[index]
        if isinstance(message, AssistantMessage) and (message.provider, message.model) == (
            model.provider,
            model.name,
        ):
            return index
    return 0


def _of(kind: Kind, blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if block.kind is kind]


def _is_big(block: Block) -> bool:
    part = block.part
    return isinstance(part, ToolCall) and len(str(part.arguments)) > _BIG_ARGUMENTS


def _unnamed(topic: Topic, request: ModelRequest, everything: Sequence[Block]) -> list[Block]:
    """Images, huge arguments, odd characters, what tools have returned lately; else reasoning."""
    first = _first_new(request)
    images = _of(Kind.IMAGE, everything)
    if topic is Topic.IMAGE:
        return [block for block in images if block.message >= first] or images
    odd = [block for block in everything if how_to(block) is How.PLAIN]
    if topic is Topic.TEXT and odd:
        return odd
    found = [block for block in images if block.message >= first]
    found += [block for block in everything if _is_big(block)]
    found += [block for block in odd if block not in found]
    if first or not found:  # without an answer of this model everything is new
        latest = first or _last_question(request.messages)
        results = [b for b in _of(Kind.RESULT, everything) if b.message >= latest]
        found += [block for block in results if block not in found]
    return found or images or _of(Kind.THINKING, everything)


def _last_question(messages: Sequence[Message]) -> int:
    return max((i for i, m in enumerate(messages) if isinstance(m, UserMessage)), default=0)


def _most_likely(named: Sequence[Block]) -> list[Block]:
    """Of the blocks in the place that was named."""
    if len(named) > 1:
        order = (Kind.IMAGE, Kind.THINKING, Kind.RESULT, Kind.ARGUMENTS, Kind.ANSWER)
        for kind in order:
            if chosen := _of(kind, named):
                return chosen
    return list(named)


# --- what the text names -------------------------------------------------------------------


def _places(text: str) -> list[tuple[str, list[str]]]:
    """The paths into the body that ``text`` holds, as (field, steps); the first step a number."""
    found = []
    for match in _PLACE.finditer(text):
        steps = _STEP.findall(match[2])
        if steps and steps[0].isdigit():
            found.append((match[1], steps))
    return found


def _named(text: str, blocks: Sequence[Block], body: Json | None) -> list[Block]:
    for field, steps in _places(text):
        node = None if body is None else _node(body.get(field), steps)
        if node is not None and (found := _blocks_in(node, blocks)):
            return found
    ids = {block.part.id for block in blocks if isinstance(block.part, ToolCall)}
    meant = {call_id for call_id in ids if len(call_id) >= _MIN_ID and call_id in text}
    return [b for b in blocks if isinstance(b.part, ToolCall) and b.part.id in meant]


def _node(value: Any, steps: Sequence[str]) -> Any:
    """The innermost member of a list that ``steps`` lead to; words that lead nowhere are passed."""
    found = None
    for step in steps:
        if isinstance(value, list) and step.isdigit():
            if int(step) >= len(value):
                break
            found = value = value[int(step)]
        elif isinstance(value, Mapping):
            first, *rest = step.split("_")
            camel = first + "".join(word.title() for word in rest)
            value = value.get(step, value.get(camel, value))
    return found


def _blocks_in(node: Any, blocks: Sequence[Block]) -> list[Block]:
    texts = [text for text in _strings(node) if text]
    return [block for block in blocks if _is_in(block.part, texts)]


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _MAX_DEPTH and isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item, depth + 1)


def _is_in(part: object, texts: Sequence[str]) -> bool:
    if isinstance(part, ImagePart):
        from binascii import b2a_base64

        data = b2a_base64(part.data, newline=False).decode("ascii")
        return any(text.endswith(data) for text in texts)
    if isinstance(part, ToolCall):
        return part.id in texts and part.name in texts
    if isinstance(part, ThinkingPart):
        marks = {part.signature, part.redacted, part.text} - {None, ""}
        return any(text in marks for text in texts)
    if not isinstance(part, TextPart):
        return False
    return part.text in texts or (
        len(part.text) >= _MIN_JOINED and any(part.text in text for text in texts)
    )
