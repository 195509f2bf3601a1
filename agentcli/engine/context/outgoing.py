"""What a session sends of its history: prepared, images repaired, refused blocks left out (HIS-8).

Law: one per session, so that nothing is prepared, decoded or looked up twice; the messages it is
given are never changed. What only a refusal needs is imported when there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentcli.domain.errors import ProviderError, StoreError
from agentcli.domain.messages import AssistantMessage, ImagePart, Message
from agentcli.domain.ports import ModelInfo, ModelRequest, Provider, RepairImage
from agentcli.domain.prepare import Preparer, check_request
from agentcli.domain.tools import SessionState

if TYPE_CHECKING:
    from agentcli.engine.context.quarantine import Answer, Quarantine

STATE_KEY = "quarantine"
log = logging.getLogger(__name__)


class Outgoing:
    """See the module. ``repair_image`` may take its time; without it such images become texts."""

    def __init__(self, state: SessionState, repair_image: RepairImage | None = None) -> None:
        self._preparer = Preparer()
        self._state = state
        self._quarantine: Quarantine | None = None
        self._is_loaded = False
        self._repair_image = repair_image
        self._told: set[ImagePart] = set()
        self.news: list[str] = []
        """Lines for the user about images that the last request went without."""

    async def messages(self, messages: Sequence[Message], model: ModelInfo) -> tuple[Message, ...]:
        """``messages`` as they may be sent to ``model``. Raises ``HistoryViolation``: our bug."""
        await self._load()
        prepared = self._prepared(messages, model)
        while self._preparer.wanted:
            # one at a time: each may take a hundred megabytes while it is decoded
            image = self._preparer.wanted[0]
            better = None if self._repair_image is None else await self._repair_image(image)
            self._preparer.repair({image: better})
            if not self._preparer.wanted:
                prepared = self._prepared(messages, model)
        check_request(prepared)
        self.news = self._new_stubs(messages)
        return prepared

    def _new_stubs(self, messages: Sequence[Message]) -> list[str]:
        """What was left out of what the model has not answered yet, told once."""
        found = []
        stubs = self._preparer.stubs
        for message in reversed(messages) if stubs else ():
            if isinstance(message, AssistantMessage):
                break
            for image in message.parts:
                if isinstance(image, ImagePart) and image in stubs and image not in self._told:
                    self._told.add(image)
                    found.append(stubs[image].text.strip("[]"))
        return found

    def _prepared(self, messages: Sequence[Message], model: ModelInfo) -> tuple[Message, ...]:
        replaced = None if self._quarantine is None else self._quarantine.replaced(model.id)
        return self._preparer.prepare(messages, model, replaced)

    async def _load(self) -> None:
        """Read, once, what earlier runs of this session have found out."""
        if self._is_loaded:
            return
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
    ) -> Answer:
        """What a refusal leads to; ``again``: the same step has asked once more already."""
        quarantine = self._with_quarantine()
        encode = getattr(provider, "encode", None)
        answer = quarantine.answer(
            error, request, encode if callable(encode) else None, again=again
        )
        if answer.is_news:
            try:
                await self._state.set(STATE_KEY, quarantine.to_json())
            except StoreError:  # it holds for this run all the same
                log.warning("the quarantine could not be stored", exc_info=True)
        return answer
