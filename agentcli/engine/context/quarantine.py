"""What a model has refused of a session's history, and what it is sent instead (HIS-8).

Law: the original stays in the store; what was quarantined is remembered in the session file, so
that the same refusal never stops the session twice, also after a restart. One refusal is answered
by one more request in its step. Where even that is refused, all that may be meant is left out
from the next turn on, then calls and results become plain text; where nothing helps, the history
was not the cause: everything is given back and that refusal is never acted upon again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentcli.domain.clean import cut_text, digest, plain_text
from agentcli.domain.errors import ProviderError
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
from agentcli.engine.context.suspects import (
    WHY,
    Block,
    How,
    Kind,
    Topic,
    all_suspects,
    how_to,
    key_of,
    suspects,
    topic_of,
)

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
class Answer:
    """What a refusal led to: whether asking again may help, and a line for the user.

    ``is_news``: there is something new to remember.
    """

    ask_again: bool = False
    notice: str = ""
    is_news: bool = True


_NOTHING = Answer(is_news=False)


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
    ) -> Answer:
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
        if not any(block.kind is not Kind.PROMPT or how_to(block) is How.PLAIN for block in found):
            return _prepare_next_turn(ward, mark, topic, request)
        ward.add(mark, found)
        notice = f"{request.model.provider} refused {_counted(found)}: left out from now on"
        return Answer(ask_again=True, notice=f"{notice}, kept in the session")


def _prepare_next_turn(ward: _Ward, mark: str, topic: Topic, request: ModelRequest) -> Answer:
    """One guess was not enough: whatever may be meant stays out of the next request."""
    found = _new_to(ward, all_suspects(topic, request))
    ward.add(mark, found)
    if not found:
        return Answer()
    notice = f"{_counted(found)} will be left out of the next request, kept in the session"
    return Answer(notice=notice)


def _last_resort(ward: _Ward, mark: str, request: ModelRequest) -> Answer:
    ward.release(mark)
    if not ward.is_flat and _has_answers(request):
        ward.is_flat = True
        ward.add(mark, ())
        notice = "earlier tool calls are sent as plain text from now on, kept in the session"
        return Answer(ask_again=True, notice=f"{request.model.provider} refused: {notice}")
    ward.is_flat = False
    ward.hopeless.add(mark)
    ward.add(mark, ())
    return Answer()


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
    known = value if isinstance(value, dict) else {}
    return {key: text for key, text in known.items() if isinstance(text, str)}


def _marks(value: object) -> set[str]:
    return {mark for mark in value if isinstance(mark, str)} if isinstance(value, list) else set()


def _new_to(ward: _Ward, blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if ward.blocks.get(block.key) != how_to(block)]


def _has_answers(request: ModelRequest) -> bool:
    return any(isinstance(message, AssistantMessage) for message in request.messages)


def _counted(blocks: Sequence[Block]) -> str:
    """For example: 2 images and 1 tool result."""
    counts = Counter(block.kind for block in {block.key: block for block in blocks}.values())
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
