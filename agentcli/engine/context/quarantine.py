"""What a model has refused of a session's history, and what it is sent instead (HIS-8).

Laws. The original stays in the store; what was quarantined is remembered in the session file, so
that the same refusal never stops the session twice, also after a restart. One refusal is answered
by one more request in its step. Where even that is refused, all that may be meant is left out
from the next turn on, then calls and results become plain text; where nothing helps, the history
was not the cause: everything is given back and that refusal is never acted upon again.

Which block a refusal means: one that is not about the history suspects nothing; a block that the
text names is suspected alone; without a name the kinds that have broken sessions before, of what is
new since this model last answered: what came before that was accepted. Places in the text count the
provider's own messages, so they are looked up in the body that was sent and the blocks found there
are recognised by what they say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from agentcli.domain.clean import as_object, cut_text, digest, plain_text
from agentcli.domain.errors import ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
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

# --- what a refusal means ------------------------------------------------------------------


_PLACE = re.compile(
    r"\b(messages|input|contents)[\"']?((?:[.,\s\[\]\"']{0,4}(?:\d+|[A-Za-z_]+)\]?)*)"
)
_STEP = re.compile(r"\d+|[A-Za-z_]+")
_DOCUMENT = "document"
_MIN_ID = 6
_MIN_JOINED = 20
_MAX_DEPTH = 40
_BIG_ARGUMENTS = 20_000

WHY = "the model's provider refused it"
"""Part of every stub."""

Json = Mapping[str, Any]


class BlockKind(StrEnum):
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
    kind: BlockKind
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


def _kind(message: Message, part: object) -> BlockKind:
    if isinstance(part, ImagePart):
        return BlockKind.IMAGE
    if isinstance(part, ThinkingPart):
        return BlockKind.THINKING
    if isinstance(part, ToolCall):
        return BlockKind.ARGUMENTS
    if isinstance(message, ToolResult):
        return BlockKind.RESULT
    return BlockKind.PROMPT if isinstance(message, UserMessage) else BlockKind.ANSWER


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
        images = _of(BlockKind.IMAGE, everything)
        return images[: -int(limit[1])] if 0 < int(limit[1]) < len(images) else images
    if topic is Topic.THINKING and (thoughts := _of(BlockKind.THINKING, everything)):
        return thoughts
    if named := _named(text, everything, body):
        return _most_likely(named)
    return _unnamed(topic, request, everything)


def all_suspects(topic: Topic, request: ModelRequest) -> list[Block]:
    """Everything that may be meant: for the next turn, when the one guess was wrong."""
    first = _first_new(request)
    blocks = blocks_of(request.messages)
    if topic is Topic.IMAGE:
        return _of(BlockKind.IMAGE, list(blocks))
    by_reasoning = topic in {Topic.THINKING, Topic.VAGUE}
    return [
        block
        for block in blocks
        if (by_reasoning if block.kind is BlockKind.THINKING else block.message >= first)
        or block.kind is BlockKind.IMAGE
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


def _of(kind: BlockKind, blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if block.kind is kind]


def _is_big(block: Block) -> bool:
    part = block.part
    return isinstance(part, ToolCall) and len(str(part.arguments)) > _BIG_ARGUMENTS


def _unnamed(topic: Topic, request: ModelRequest, everything: Sequence[Block]) -> list[Block]:
    """Images, huge arguments, odd characters, what tools have returned lately; else reasoning."""
    first = _first_new(request)
    images = _of(BlockKind.IMAGE, everything)
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
        results = [b for b in _of(BlockKind.RESULT, everything) if b.message >= latest]
        found += [block for block in results if block not in found]
    return found or images or _of(BlockKind.THINKING, everything)


def _last_question(messages: Sequence[Message]) -> int:
    return max((i for i, m in enumerate(messages) if isinstance(m, UserMessage)), default=0)


def _most_likely(named: Sequence[Block]) -> list[Block]:
    """Of the blocks in the place that was named."""
    if len(named) > 1:
        order = (
            BlockKind.IMAGE,
            BlockKind.THINKING,
            BlockKind.RESULT,
            BlockKind.ARGUMENTS,
            BlockKind.ANSWER,
        )
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
    for name, steps in _places(text):
        node = None if body is None else _node(body.get(name), steps)
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


# --- the quarantine ------------------------------------------------------------------------


_MAX_FLAT_BYTES = 10_000
_VARYING = re.compile(r"req_\w+|[0-9a-f-]{16,}|\d+")

Replaced = Callable[[Message], Message | None]
Encode = Callable[[ModelRequest], Mapping[str, Any]]


@dataclass(slots=True)
class _Ward:
    """What one model has refused. ``met`` are refusals to which an answer was tried already.

    ``because`` says which refusal put a block among ``blocks``. ``is_flat``: calls and results go
    out as text. ``hopeless`` refusals have other causes.
    """

    blocks: dict[str, str] = field(default_factory=dict)
    because: dict[str, str] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    hopeless: set[str] = field(default_factory=set)
    is_flat: bool = False
    replaced: Replaced | None = None

    def add(self, mark: str, found: Sequence[Block]) -> None:
        """Leave ``found`` out from now on, because of the refusal ``mark``."""
        self.met.add(mark)
        self.blocks |= {block.key: how_to(block).value for block in found}
        self.because |= {block.key: mark for block in found}
        self.refresh()

    def release(self, mark: str) -> None:
        """Give back what was left out because of ``mark``: it was not the cause."""
        self.blocks = {
            key: how for key, how in self.blocks.items() if self.because.get(key) != mark
        }

    def refresh(self) -> None:
        """Another function for another quarantine; see ``Preparer``."""
        self.replaced = None
        if self.blocks or self.is_flat:
            self.replaced = _Substitute(dict(self.blocks), self.is_flat)

    def to_json(self) -> dict[str, Any]:
        """For ``_ward_of``."""
        return {
            "blocks": self.blocks,
            "because": self.because,
            "met": sorted(self.met),
            "hopeless": sorted(self.hopeless),
            "flat": self.is_flat,
        }


@frozen
class Remedy:
    """What a refusal led to: whether asking again may help, and a line for the user.

    ``is_news``: there is something new to remember.
    """

    ask_again: bool = False
    notice: str = ""
    is_news: bool = True


_NOTHING = Remedy(is_news=False)


class Quarantine:
    """The quarantine of one session, for each model by itself. Pure: storing it is the caller's."""

    def __init__(self) -> None:
        self._wards: dict[str, _Ward] = {}

    def restore(self, stored: object) -> None:
        """Take up what ``to_json`` gave. A damaged note is no note."""
        if isinstance(stored, dict):
            self._wards = {
                model: _ward_of(value) for model, value in stored.items() if isinstance(value, dict)
            }

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON value."""
        return {model: ward.to_json() for model, ward in self._wards.items()}

    def replaced(self, model_id: str) -> Replaced | None:
        """What replaces, in a prepared message, what that model has refused."""
        ward = self._wards.get(model_id)
        return None if ward is None else ward.replaced

    def answer(
        self, error: ProviderError, request: ModelRequest, encode: Encode | None, *, again: bool
    ) -> Remedy:
        """Quarantine what ``error`` means in ``request``; ``again``: this step has retried."""
        topic = topic_of(error.message, error.status)
        mark = digest(_VARYING.sub("#", error.message))
        ward = self._wards.setdefault(request.model.id, _Ward())
        if topic is Topic.OTHER or mark in ward.hopeless:
            return _NOTHING
        if again:
            return _prepare_next_turn(ward, mark, topic, request)
        body = None if encode is None else encode(request)
        found = _new_to(ward, suspects(error.message, topic, request, body))
        if not found and mark in ward.met:
            return _last_resort(ward, mark, request)
        if not found and topic is not Topic.POLICY and not _has_answers(request):
            return _NOTHING  # a first request: there is nothing to suspect
        if not any(
            block.kind is not BlockKind.PROMPT or how_to(block) is How.PLAIN for block in found
        ):
            return _prepare_next_turn(ward, mark, topic, request)
        ward.add(mark, found)
        notice = f"{request.model.provider} refused {_counted(found)}: left out from now on"
        return Remedy(ask_again=True, notice=f"{notice}, kept in the session")


def _prepare_next_turn(ward: _Ward, mark: str, topic: Topic, request: ModelRequest) -> Remedy:
    """One guess was not enough: whatever may be meant stays out of the next request."""
    found = _new_to(ward, all_suspects(topic, request))
    ward.add(mark, found)
    if not found:
        return Remedy()
    notice = f"{_counted(found)} will be left out of the next request, kept in the session"
    return Remedy(notice=notice)


def _last_resort(ward: _Ward, mark: str, request: ModelRequest) -> Remedy:
    ward.release(mark)
    if not ward.is_flat and _has_answers(request):
        ward.is_flat = True
        ward.add(mark, ())
        notice = "earlier tool calls are sent as plain text from now on, kept in the session"
        return Remedy(ask_again=True, notice=f"{request.model.provider} refused: {notice}")
    ward.is_flat = False
    ward.hopeless.add(mark)
    ward.add(mark, ())
    return Remedy()


def _ward_of(value: Mapping[str, Any]) -> _Ward:
    blocks, because = value.get("blocks"), value.get("because")
    ward = _Ward(
        {key: how for key, how in _texts(blocks).items() if how in set(How)},
        _texts(because),
        _marks(value.get("met")),
        _marks(value.get("hopeless")),
        value.get("flat") is True,
    )
    ward.refresh()
    return ward


def _texts(value: object) -> dict[str, str]:
    known = as_object(value)
    return {key: text for key, text in known.items() if isinstance(text, str)}


def _marks(value: object) -> set[str]:
    return {mark for mark in value if isinstance(mark, str)} if isinstance(value, list) else set()


def _new_to(ward: _Ward, blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if ward.blocks.get(block.key) != how_to(block)]


def _has_answers(request: ModelRequest) -> bool:
    return any(isinstance(message, AssistantMessage) for message in request.messages)


def _counted(blocks: Sequence[Block]) -> str:
    """For example: 2 images and 1 tool result."""
    unique = {block.key: block for block in blocks}.values()
    counts = Counter(_DOCUMENT if isinstance(b.part, DocumentPart) else b.kind for b in unique)
    each = [f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts.items()]
    return " and ".join(each)


# --- what is sent instead ------------------------------------------------------------------

_MAX_STUBS = 2


@frozen
class _Substitute:
    """A prepared message with stubs in the place of what was refused."""

    blocks: dict[str, str]
    is_flat: bool

    def __call__(self, message: Message) -> Message | None:
        changed = self._changed(message)
        return _flat(changed) if self.is_flat and changed is not None else changed

    def _changed(self, message: Message) -> Message | None:
        if not any(key_of(part) in self.blocks for part in message.parts):
            return message
        # what is left of a reply's reasoning would be refused as changed (HIS-4)
        is_sealed = not any(
            isinstance(part, ThinkingPart) and key_of(part) in self.blocks for part in message.parts
        )
        parts = [
            part if isinstance(part, ThinkingPart) else self._instead_of(part)
            for part in message.parts
            if is_sealed or not isinstance(part, ThinkingPart)
        ]
        changed: Any = tuple(parts)
        return replace(message, parts=changed) if parts else None

    def _instead_of(self, part: TextPart | ImagePart | ToolCall) -> TextPart | ImagePart | ToolCall:
        """The stub of a part; where even that was refused, the stub of the stub."""
        for _ in range(_MAX_STUBS):
            how = self.blocks.get(key_of(part))
            if how is None:
                break
            part = _stub(part, how)
        return part


def _stub(part: TextPart | ImagePart | ToolCall, how: str) -> TextPart | ToolCall:
    if isinstance(part, ToolCall):
        return replace(part, arguments={"left_out": f"the arguments; {WHY}"})
    if isinstance(part, DocumentPart) and part.text.strip():
        return TextPart(f"[as text: {WHY} as a document]\n{plain_text(part.text)}")
    if isinstance(part, ImagePart):
        from agentcli.domain.images import stub

        return stub(part, WHY)
    if how == How.PLAIN:
        return TextPart(plain_text(part.text))
    return TextPart(f"[text of {len(part.text):,} characters left out; {WHY}]")


def _flat(message: Message) -> Message:
    """The same told in texts: no call, no result, no reasoning, no image."""
    if isinstance(message, UserMessage):
        text = plain_text(message.text) or "(an image)"
        return replace(message, parts=(TextPart(text),))
    if isinstance(message, ToolResult):
        text = cut_text(plain_text(message.text), _MAX_FLAT_BYTES) or "(an image)"
        return UserMessage((TextPart(f"[what {message.name} returned]\n{text}"),))
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    texts += [
        f"[called {call.name} with {cut_text(str(call.arguments), _MAX_FLAT_BYTES)}]"
        for call in message.tool_calls
    ]
    return replace(message, parts=(TextPart("\n".join(texts) or "(no text)"),))
