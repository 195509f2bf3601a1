"""What one request carries of a session's history: transformed, prepared, proved (HIS, CTRL-8).

Laws. Nothing stored is ever changed: what is sent is a function of the messages, the transforms,
the model, the images repaired so far and the quarantine alone. A message is prepared once and then
remembered, so that a long history costs a step next to nothing and the beginning of a request
stays the same. ``check_request`` raises where something is left that every provider refuses: our
bug. What only a refusal needs is imported when there is one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import compress
from operator import is_, is_not
from typing import TYPE_CHECKING

from agentcli.domain.clean import (
    MAX_TEXT_BYTES,
    clean_arguments,
    clean_id,
    clean_name,
    clean_text,
    cut_text,
)
from agentcli.domain.errors import (
    AgentError,
    HistoryViolation,
    ProviderError,
    SourceFailed,
    StoreError,
)
from agentcli.domain.events import ContextTransformed, ProviderRequestPrepared
from agentcli.domain.history import History
from agentcli.domain.messages import (
    ATTACHED,
    AssistantMessage,
    AssistantPart,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import (
    ContextTransform,
    ModelInfo,
    ModelRequest,
    Provider,
    RepairImage,
    StepFacts,
)
from agentcli.domain.tools import ToolDefinition
from agentcli.domain.values import mutable

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import SessionState
    from agentcli.engine.context.quarantine import Quarantine, Remedy


STATE_KEY = "quarantine"
# The strictest limits on a whole request: 100 images (Anthropic, models of 200,000 tokens), 20 MB
# (Gemini, inline data), 128 calls in a message (Chat Completions).
MAX_IMAGES = 100
MAX_IMAGES_BYTES = 12_000_000
MAX_TEXTS_BYTES = 6_000_000
MAX_CALLS = 128
# what ``app/files/attachments.py`` says of a file that it could not attach whole
_IN_PART = (
    rf"(?s){ATTACHED}(file|directory)=\"([^\"]*)\".*\n\[(?:cut|not attached|too long)[^\n]*\]\n"
    r"</attached>\Z"
)
_MIN_RESULT_BYTES = 30_000

Quarantined = Callable[[Message], Message | None]
log = logging.getLogger(__name__)

# --- one message after another -------------------------------------------------------------


def prepare(messages: Sequence[Message], provider: str, model: str) -> tuple[Message, ...]:
    """``messages`` as they may be sent to ``provider`` and ``model``; pure.

    Drops empty text and messages left empty (HIS-2), all thinking made elsewhere (HIS-4), and
    trailing white space of a final assistant text (HIS-6). Calls keep their results: dropping
    thinking never drops a call. Texts, arguments, names and ids are cleaned, also those that a
    model made up; an image that no provider takes becomes a text (HIS-8).
    """
    info = ModelInfo(provider, model, context_tokens=MAX_TEXT_BYTES)
    return Preparer().prepare(messages, info)


@mutable
class _PreparedMessage:
    """``source`` as it may be sent; ``None`` when nothing of it is left."""

    source: Message
    message: Message | None
    images_bytes: tuple[int, ...] = ()
    text_bytes: int = 0
    is_wide: bool = False


@mutable
class Preparer:
    """Prepares the requests of one conversation.

    ``repaired`` holds for an image what is sent in its place: a better one, or what is to be said
    of why there is none. ``wanted`` are the images that a decoder should look at before the next
    request, ``stubs`` the texts that are sent instead of images, as of now.
    """

    repaired: dict[ImagePart, ImagePart | str] = field(default_factory=dict)
    wanted: list[ImagePart] = field(default_factory=list)
    stubs: dict[ImagePart, TextPart] = field(default_factory=dict)
    _model: ModelInfo | None = None
    _quarantined: Quarantined | None = None
    _sources: list[Message] = field(default_factory=list)
    _entries: list[_PreparedMessage] = field(default_factory=list)

    def prepare(
        self,
        messages: Sequence[Message],
        model: ModelInfo,
        quarantined: Quarantined | None = None,
    ) -> tuple[Message, ...]:
        """``messages`` as they may be sent to ``model``; see the function ``prepare``.

        ``quarantined`` replaces, in a prepared message, what this model has refused before; a
        changed quarantine is another function.
        """
        known = self._entries
        if model != self._model or quarantined is not self._quarantined:
            self._model, self._quarantined = model, quarantined
            known = []
        if len(known) > len(messages) or not all(map(is_, self._sources, messages)):
            by_source = {id(entry.source): entry for entry in known}
            known = [by_source.get(id(each)) or self._one(each, model) for each in messages]
        known += [self._one(message, model) for message in messages[len(known) :]]
        self._sources, self._entries = list(messages), known
        kept = _within_limits(known)
        if kept and isinstance(last := kept[-1], AssistantMessage):
            final = last.parts[-1]
            if isinstance(final, TextPart):
                trimmed = TextPart(final.text.rstrip())
                kept[-1] = replace(last, parts=(*last.parts[:-1], trimmed))
        if kept and isinstance(kept[0], AssistantMessage):
            kept.insert(0, UserMessage((TextPart("(the beginning is left out)"),)))
        return tuple(kept)

    def repair(self, better: Mapping[ImagePart, ImagePart | str]) -> None:
        """Send these in the place of those from now on, or a text that ends with why not."""
        self.repaired |= better
        self.wanted = [image for image in self.wanted if image not in better]
        self._entries = [
            entry
            for entry in self._entries
            if not any(part in better for part in entry.source.parts if isinstance(part, ImagePart))
        ]
        self._sources = [entry.source for entry in self._entries]

    # --- one message -----------------------------------------------------------------------

    def _one(self, source: Message, model: ModelInfo) -> _PreparedMessage:
        message: Message | None
        if isinstance(source, AssistantMessage):
            foreign = (source.provider, source.model) != (model.provider, model.name)
            parts = tuple(_kept_parts(source.parts, foreign=foreign))
            is_empty = all(isinstance(part, ThinkingPart) for part in parts)
            message = None if is_empty else replace(source, parts=parts)
        elif isinstance(source, UserMessage):
            room = text_room(source, model.context_tokens)
            user_parts = self._shown(source.parts, model, room)
            message = replace(source, parts=user_parts or (TextPart("(empty message)"),))
        else:
            room = text_room(source, model.context_tokens)
            result_parts = self._shown(source.parts, model, room)
            message = ToolResult(
                clean_id(source.call_id),
                clean_name(source.name),
                result_parts or (TextPart("(no output)"),),
                source.status,
            )
        if message is not None and self._quarantined is not None:
            message = self._quarantined(message)
        entry = _PreparedMessage(source, message)
        if isinstance(message, AssistantMessage):
            entry.is_wide = len(message.parts) > MAX_CALLS and len(message.tool_calls) > MAX_CALLS
        elif message is not None:
            for part in message.parts:
                if isinstance(part, ImagePart):
                    entry.images_bytes += (len(part.data) * 4 // 3,)
                elif isinstance(message, ToolResult):
                    entry.text_bytes += len(part.text)
        return entry

    def _shown(
        self, parts: Sequence[TextPart | ImagePart], model: ModelInfo, room: int
    ) -> tuple[TextPart | ImagePart, ...]:
        """Text and images of a user or a tool; ``room`` is how much text, in bytes."""
        texts = [clean_text(part.text) if isinstance(part, TextPart) else "" for part in parts]
        share = _share(texts, room)
        shown: list[TextPart | ImagePart] = []
        for part, text in zip(parts, texts, strict=True):
            if isinstance(part, ImagePart):
                shown.append(self._image(part, model))
            elif text.strip():
                shown.append(TextPart(cut_text(text, share)))
        return tuple(shown)

    def _image(self, image: ImagePart, model: ModelInfo) -> TextPart | ImagePart:
        from agentcli.domain import images

        self.stubs.pop(image, None)
        if isinstance(image, DocumentPart):
            if image.data and model.supports_documents:
                return image
            return TextPart(clean_text(image.text) or images.stub(image, "it has no text").text)
        if not model.supports_images:
            return self._stub(image, "this model takes no images")
        better = self.repaired.get(image, "")
        if not isinstance(better, str):
            return better
        judgement = images.judge(image)
        if judgement.repairable and image not in self.repaired and image not in self.wanted:
            self.wanted.append(image)
        return judgement.image or self._stub(
            image, "; ".join(filter(None, (judgement.why, better)))
        )

    def _stub(self, image: ImagePart, why: str) -> TextPart:
        from agentcli.domain import images

        self.stubs[image] = images.stub(image, why)
        return self.stubs[image]


def text_room(message: UserMessage | ToolResult, context_tokens: int) -> int:
    """The most that is sent of a message's text to a model of that window, in bytes."""
    is_result = isinstance(message, ToolResult)
    room = max(context_tokens, _MIN_RESULT_BYTES) if is_result else 2 * context_tokens
    return min(room, MAX_TEXT_BYTES)


def truncations(message: UserMessage, context_tokens: int) -> tuple[str, ...]:
    """What of the user's message is not sent whole, a line each (LOOP-13)."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    found = (re.match(_IN_PART, text) for text in texts)
    lines = [f"{each[1]} {each[2]} is attached in part or not at all" for each in found if each]
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > (room := text_room(message, context_tokens)):
        lines.append(
            f"the input is too long for the model: of {size:,} bytes the beginning and the end are"
            f" sent, {room:,} in all - save it to a file and name the file instead"
        )
    return tuple(lines)


def _share(texts: Sequence[str], room: int) -> int:
    """The most that each text may have, in bytes, so that all have room; short ones give way."""
    if 4 * sum(map(len, texts)) <= room:
        return room
    sizes = [len(text) if text.isascii() else len(text.encode()) for text in texts]
    if sum(sizes) <= room:
        return room
    even = room // len(sizes)
    short = [size for size in sizes if size <= even]
    return max((room - sum(short)) // (len(sizes) - len(short)), 200)


def _kept_parts(parts: Sequence[AssistantPart], *, foreign: bool) -> Iterable[AssistantPart]:
    for part in parts:
        if isinstance(part, ThinkingPart):
            provable = part.signature is not None or part.redacted is not None
            if not foreign and (provable or part.text.strip()):
                yield part
        elif isinstance(part, TextPart):
            if part.text.strip():
                yield TextPart(cut_text(clean_text(part.text)))
        else:
            call_id, name = clean_id(part.id), clean_name(part.name)
            arguments = clean_arguments(part.arguments)
            if (call_id, name) == (part.id, part.name) and arguments is part.arguments:
                yield part
            else:
                yield replace(part, id=call_id, name=name, arguments=arguments)


# --- the request as a whole ----------------------------------------------------------------


def _within_limits(prepared: Sequence[_PreparedMessage]) -> list[Message]:
    """What is left; the oldest images and results become texts where there are too many.

    Then half of what is allowed is kept, so that not every step changes the beginning.
    """
    sizes: list[int] = []
    results: list[int] = []
    for entry in prepared:
        sizes += entry.images_bytes
        results.append(entry.text_bytes)
    images = _too_many(sizes, MAX_IMAGES, MAX_IMAGES_BYTES)
    texts = _too_many(results, len(prepared), MAX_TEXTS_BYTES)
    kept: list[Message] = []
    is_wide = False
    for index, entry in enumerate(prepared):
        message = entry.message
        if isinstance(message, UserMessage | ToolResult):
            if images > 0 and entry.images_bytes:
                message = _without_images(message, images)
                images -= len(entry.images_bytes)
            if index < texts and isinstance(message, ToolResult):
                message = replace(message, parts=tuple(map(_shortened, message.parts)))
        if message is not None:
            kept.append(message)
            is_wide |= entry.is_wide
    return _narrowed(kept) if is_wide else kept


def _too_many(sizes: Sequence[int], max_count: int, max_size: int) -> int:
    """How many of the oldest to leave out."""
    if len(sizes) <= max_count and sum(sizes) <= max_size:
        return 0
    first, total = 0, 0
    for index, size in enumerate(sizes):
        total += size
        if index - first < max_count and total <= max_size:
            continue
        while first < index and (index + 1 - first > max_count // 2 or total > max_size // 2):
            total -= sizes[first]
            first += 1
    return first


def _without_images(message: UserMessage | ToolResult, count: int) -> UserMessage | ToolResult:
    from agentcli.domain.images import stub

    parts: list[TextPart | ImagePart] = []
    for part in message.parts:
        if isinstance(part, ImagePart) and count > 0:
            count -= 1
            parts.append(stub(part, "newer ones need its place"))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))


def _shortened(part: TextPart | ImagePart) -> TextPart | ImagePart:
    return TextPart(cut_text(part.text, 2_000)) if isinstance(part, TextPart) else part


def _narrowed(messages: Sequence[Message]) -> list[Message]:
    """Messages of more calls than every provider takes become several, each with its results.

    A message with thinking stays whole: nothing in it may change (HIS-4).
    """
    out: list[Message] = []
    results: dict[str, Message] = {}
    waiting: list[list[ToolCall]] = []
    for message in messages:
        if isinstance(message, ToolResult) and waiting:
            results[message.call_id] = message
            if all(call.id in results for group in waiting for call in group):
                _add_groups(out, waiting, results)
                waiting = []
        elif isinstance(message, AssistantMessage) and _is_divisible(message):
            calls = message.tool_calls
            waiting = [list(calls[i : i + MAX_CALLS]) for i in range(0, len(calls), MAX_CALLS)]
            rest = [part for part in message.parts if not isinstance(part, ToolCall)]
            out.append(replace(message, parts=(*rest, *waiting[0])))
            results = {}
        else:
            out.append(message)
    return out


def _is_divisible(message: AssistantMessage) -> bool:
    whole = any(isinstance(p, ThinkingPart) and (p.signature or p.redacted) for p in message.parts)
    return not whole and len(message.tool_calls) > MAX_CALLS


def _add_groups(
    out: list[Message], groups: Sequence[Sequence[ToolCall]], results: Mapping[str, Message]
) -> None:
    asked = out[-1]
    for number, group in enumerate(groups):
        if number and isinstance(asked, AssistantMessage):
            out.append(replace(asked, parts=tuple(group)))
        out += [results[call.id] for call in group]


def check_request(messages: Sequence[Message]) -> None:
    """Raise ``HistoryViolation`` unless ``messages`` is what every provider accepts (HIS-1, 2)."""
    history = History(messages)
    if history.pending:
        ids = ", ".join(call.id for call in history.pending)
        raise HistoryViolation(f"calls without a result: {ids}")
    if not messages:
        raise HistoryViolation("a request needs at least one message")
    for message in messages:
        if not message.parts:
            raise HistoryViolation("empty message")
        for part in message.parts:
            if isinstance(part, TextPart) and not part.text.strip():
                raise HistoryViolation("empty text block")


# --- transforms ----------------------------------------------------------------------------


class CachedPrefix:
    """The part of requests that a provider's cache can hold: it is looked at when it changes."""

    def __init__(self) -> None:
        self._known: tuple[str, Sequence[ToolDefinition]] | None = None
        self._hash = ""
        self._tools_characters = 0

    def prepared(self, request: ModelRequest, step: int, attempt: int) -> ProviderRequestPrepared:
        """What ``request`` is made of (CTRL-9)."""
        if self._known is None or (self._known[0], self._known[1]) != (
            request.system,
            request.tools,
        ):
            self._known = request.system, request.tools
            tools = json.dumps([[t.name, t.description, dict(t.parameters)] for t in request.tools])
            self._tools_characters = len(tools)
            data = f"{request.system}\0{tools}".encode("utf-8", "surrogatepass")
            self._hash = hashlib.blake2b(data, digest_size=16).hexdigest()
        return ProviderRequestPrepared(
            step=step,
            attempt=attempt,
            model=request.model.id,
            messages=len(request.messages),
            tools=len(request.tools),
            system_characters=len(request.system),
            tools_characters=self._tools_characters,
            messages_characters=sum(
                len(getattr(part, "text", "")) for each in request.messages for part in each.parts
            ),
            prefix_hash=self._hash,
            max_output_tokens=request.max_output_tokens,
        )


class TransformChain:
    """Runs the transforms of a session; remembers the sizes of the history's messages.

    What did not change is not looked at: a step costs the messages that are new or were changed.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, int]] = {}
        self._last: Message | None = None
        self._count = 0
        self._total = 0

    def apply(
        self,
        transforms: Sequence[ContextTransform],
        facts: StepFacts,
        report: Callable[[ContextTransformed], None],
    ) -> Sequence[Message]:
        """The copy for one request of ``facts.messages``."""
        messages: Sequence[Message] = facts.messages
        if not transforms:
            return messages
        size = self._size_of_history(messages)
        for transform in transforms:
            before, messages = messages, _applied(transform, messages, facts)
            if messages is before:
                continue
            old_size, size = size, size + self._grown(before, messages)
            counts = (len(before), len(messages))
            report(ContextTransformed(transform.name, *counts, old_size, size))
        return messages

    def _size_of_history(self, messages: Sequence[Message]) -> int:
        """Characters of visible text; only what was appended since is counted."""
        count = self._count
        if not (0 < count <= len(messages) and messages[count - 1] is self._last):
            self._known.clear()
            count = self._total = 0
        for message in messages[count:]:
            size = len(message.text)
            self._known[id(message)] = (message, size)
            self._total += size
        self._count = len(messages)
        self._last = messages[-1] if messages else None
        return self._total

    def _grown(self, before: Sequence[Message], after: Sequence[Message]) -> int:
        """By how much the text has grown: a look at those that differ."""
        if len(before) == len(after):
            changed = list(map(is_not, before, after))
            return self._sizes(compress(after, changed)) - self._sizes(compress(before, changed))
        start = _alike(before, after)
        end = _alike(before[start:][::-1], after[start:][::-1])
        old, new = before[start : len(before) - end], after[start : len(after) - end]
        return self._sizes(new) - self._sizes(old)

    def _sizes(self, messages: Iterable[Message]) -> int:
        total = 0
        for message in messages:
            known = self._known.get(id(message))
            if known is not None and known[0] is message:
                total += known[1]
            else:
                total += len(message.text)
        return total


def _applied(
    transform: ContextTransform, messages: Sequence[Message], facts: StepFacts
) -> Sequence[Message]:
    """What ``transform`` makes of ``messages``; raises ``SourceFailed`` where it cannot.

    Nothing is sent then: what it was to leave out is not sent by mistake.
    """
    try:
        return transform.apply(messages, facts)
    except AgentError:
        raise
    except (Exception, SystemExit) as error:
        name = getattr(transform, "name", type(transform).__name__)
        raise SourceFailed(
            f"the transform {name} failed: {type(error).__name__}: {error}",
            "nothing was sent; correct the transform, or start without it",
        ) from error


def _alike(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages at the start of both are the same."""
    differ = list(map(is_not, one, other))
    return differ.index(True) if True in differ else len(differ)


# --- all of it -----------------------------------------------------------------------------


class Outgoing:
    """See the module. ``repair_image`` may take its time; without it such images become texts."""

    def __init__(self, state: SessionState, repair_image: RepairImage | None = None) -> None:
        self._preparer = Preparer()
        self._state = state
        self._quarantine: Quarantine | None = None
        self._is_loaded = False
        self._repair_image = repair_image
        self._reported: set[ImagePart] = set()
        self.news: list[str] = []
        """Lines for the user about images that the last request went without."""

    async def messages(self, messages: Sequence[Message], model: ModelInfo) -> tuple[Message, ...]:
        """``messages`` as they may be sent to ``model``. Raises ``HistoryViolation``: our bug."""
        if not self._is_loaded:
            await self._load()
        preparer, quarantine = self._preparer, self._quarantine
        replaced = None if quarantine is None else quarantine.replaced(model.id)
        prepared = preparer.prepare(messages, model, replaced)
        while preparer.wanted:
            while preparer.wanted:
                # one at a time: each may take a hundred megabytes while it is decoded
                image = preparer.wanted[0]
                better = "" if self._repair_image is None else await self._repair_image(image)
                preparer.repair({image: better})
            prepared = preparer.prepare(messages, model, replaced)
        check_request(prepared)
        self.news = self._new_stubs(messages) if preparer.stubs else []
        return prepared

    def _new_stubs(self, messages: Sequence[Message]) -> list[str]:
        """What was left out of what the model has not answered yet, told once."""
        found = []
        stubs = self._preparer.stubs
        for message in reversed(messages):
            if isinstance(message, AssistantMessage):
                break
            for image in message.parts:
                if isinstance(image, ImagePart) and image in stubs and image not in self._reported:
                    self._reported.add(image)
                    found.append(stubs[image].text.strip("[]"))
        return found

    async def _load(self) -> None:
        """Read, once, what earlier runs of this session have found out."""
        try:
            stored = await self._state.get(STATE_KEY)
        except StoreError:
            log.warning("the quarantine could not be read", exc_info=True)
            stored = None
        self._is_loaded = True
        if stored:
            self._with_quarantine().restore(stored)

    def _with_quarantine(self) -> Quarantine:
        from agentcli.engine.context.quarantine import Quarantine

        if self._quarantine is None:
            self._quarantine = Quarantine()
        return self._quarantine

    async def refused(
        self, error: ProviderError, request: ModelRequest, provider: Provider, *, again: bool
    ) -> Remedy:
        """What a refusal leads to; ``again``: the same step has asked once more already."""
        quarantine = self._with_quarantine()
        answer = quarantine.answer(error, request, provider.encode, again=again)
        if answer.is_news:
            try:
                await self._state.set(STATE_KEY, quarantine.to_json())
            except StoreError:  # it holds for this run all the same
                log.warning("the quarantine could not be stored", exc_info=True)
        return answer
