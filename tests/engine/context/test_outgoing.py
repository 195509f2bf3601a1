"""What a session sends: images repaired once, the quarantine kept, a failing store endured."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentcli.domain.errors import ErrorKind, HistoryViolation, PersistenceError, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    TextPart,
    ToolCall,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import ModelInfo, ModelRequest
from agentcli.engine.context.outgoing import STATE_KEY, Outgoing
from tests.support.histories import HOME, PNG, png
from tests.support.turns import MemoryStore, PlayedProvider

MODEL = ModelInfo(*HOME)
SOUND = ImagePart("image/png", PNG)
WIDE = [ImagePart("image/png", png(3_000 + number, 2)) for number in range(3)]
REFUSED = ProviderError("Could not process image", kind=ErrorKind.BAD_REQUEST, status=400)


class Mender:
    """Makes one sound image of every image; counts how many are decoded at the same time."""

    def __init__(self) -> None:
        self.seen: list[ImagePart] = []
        self.at_work = 0

    async def __call__(self, image: ImagePart) -> ImagePart | None:
        self.at_work += 1
        assert self.at_work == 1
        self.seen.append(image)
        await asyncio.sleep(0)
        self.at_work -= 1
        return None if image is WIDE[2] else SOUND


@pytest.mark.spec("HIS-8")
def test_each_image_is_decoded_once_one_after_another() -> None:
    async def main() -> None:
        mender = Mender()
        outgoing = Outgoing(MemoryStore(), mender)
        messages = [UserMessage((TextPart("see"), *WIDE, WIDE[0])), user_text("more")]
        for model in (MODEL, MODEL, ModelInfo("openai", "gpt-4.1")):
            first, _ = await outgoing.messages(messages, model)
            assert first.parts[1:3] == (SOUND, SOUND)
            assert "3,002x2 px" in first.text
            assert first.parts[4] == SOUND
        assert mender.seen == WIDE

    asyncio.run(main())


@pytest.mark.spec("HIS-8")
def test_without_a_decoder_such_images_are_texts() -> None:
    async def main() -> None:
        (message,) = await Outgoing(MemoryStore()).messages([UserMessage((WIDE[0], SOUND))], MODEL)
        assert "longer than" in message.text
        assert message.parts[1] == SOUND

    asyncio.run(main())


@pytest.mark.spec("HIS-8")
def test_the_person_is_told_once_of_an_image_that_cannot_be_sent() -> None:
    async def main() -> None:
        outgoing = Outgoing(MemoryStore(), Mender())
        bad = ImagePart("image/png", b"")
        messages = [UserMessage((TextPart("see"), bad, SOUND, WIDE[0]))]
        await outgoing.messages(messages, MODEL)
        assert outgoing.news == ["image left out: image/png, 0 bytes; it is empty"]
        await outgoing.messages(messages, MODEL)
        assert not outgoing.news
        later = Outgoing(MemoryStore())
        answered = [*messages, AssistantMessage((TextPart("I see."),), *HOME), user_text("more")]
        await later.messages(answered, MODEL)
        assert not later.news

    asyncio.run(main())


def request(outgoing_messages: Any) -> ModelRequest:
    return ModelRequest(MODEL, "", outgoing_messages)


@pytest.mark.spec("HIS-8")
def test_what_was_refused_is_remembered_in_the_session() -> None:
    async def main() -> None:
        store, messages = MemoryStore(), [UserMessage((TextPart("see"), SOUND))]
        outgoing, provider = Outgoing(store), PlayedProvider()
        sent = await outgoing.messages(messages, MODEL)
        assert not store.state
        answer = await outgoing.refused(REFUSED, request(sent), provider, again=False)
        assert answer.ask_again
        assert STATE_KEY in store.state
        for known in (outgoing, Outgoing(store)):
            (message,) = await known.messages(messages, MODEL)
            assert "refused" in message.text
        again = await outgoing.refused(REFUSED, request(sent), provider, again=True)
        assert not again.ask_again

    asyncio.run(main())


class FullDisk(MemoryStore):
    async def get(self, key: str) -> Any:
        raise PersistenceError("cannot read")

    async def set(self, key: str, value: Any) -> None:
        raise PersistenceError("disk is full")


@pytest.mark.spec("HIS-8", "FAIL-2")
def test_a_store_that_fails_does_not_keep_it_from_helping() -> None:
    async def main() -> None:
        outgoing, messages = Outgoing(FullDisk()), [UserMessage((TextPart("see"), SOUND))]
        sent = await outgoing.messages(messages, MODEL)
        answer = await outgoing.refused(REFUSED, request(sent), PlayedProvider(), again=False)
        assert answer.ask_again
        (message,) = await outgoing.messages(messages, MODEL)
        assert "refused" in message.text

    asyncio.run(main())


def test_a_history_that_no_provider_takes_is_our_bug() -> None:
    async def main() -> None:
        messages = [user_text("x"), AssistantMessage((ToolCall("a", "look", {}),), *HOME)]
        with pytest.raises(HistoryViolation):
            await Outgoing(MemoryStore()).messages(messages, MODEL)

    asyncio.run(main())
