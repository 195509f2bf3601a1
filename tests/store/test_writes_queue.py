"""Queued text in a real session file: durable, delivered once, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentcli.app.queue import DurableQueue
from agentcli.domain.errors import PersistenceError, UsageError
from agentcli.domain.events import Outcome
from agentcli.domain.messages import user_text
from agentcli.domain.ports import QueueKind
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store.sqlite import SqliteStore

NAME = "0190a000-0000-7000-8000-000000000000"


def new(path: Path) -> SqliteStore:
    info = SessionInfo(NAME, "", "/w", 1.0, 1.0, SessionStatus.NEW, 0, "test/model")
    return SqliteStore.new(path / f"{NAME}.db", info, redact=lambda text: text.replace("key", "*"))


@pytest.mark.spec("UI-3", "CTRL-1")
def test_what_waits_is_there_after_a_restart_in_order_and_delivered_once(tmp_path: Path) -> None:
    async def body() -> None:
        store = new(tmp_path)
        await store.record_prompt(user_text("go"))
        queue = DurableQueue(store)
        first = await queue.add(QueueKind.STEERING, "one key")
        second = await queue.add(QueueKind.FOLLOW_UP, "two")
        await store.aclose()

        again = await SqliteStore.open(tmp_path / f"{NAME}.db")
        queue = await DurableQueue.load(again)
        assert [(item.id, item.text) for item in queue.waiting()] == [
            (first.id, "one *"),
            (second.id, "two"),
        ]
        assert queue.waiting(QueueKind.FOLLOW_UP) == (second,)
        turns = (await again.info()).turns
        await again.record_prompt(user_text("one *"), queued=(first.id,), begins_turn=False)
        assert (await again.info()).turns == turns
        with pytest.raises(PersistenceError):
            await again.record_prompt(user_text("one *"), queued=(first.id,))
        assert len((await again.load()).messages) == 2
        await again.record_end((), Outcome.CANCELLED, "user", "")
        assert [item.text for item in await again.queue_waiting()] == ["two"]
        await again.aclose()

    asyncio.run(body())


def test_what_waits_can_be_edited_and_taken_back_until_it_is_delivered(tmp_path: Path) -> None:
    async def body() -> None:
        store = new(tmp_path)
        queue = DurableQueue(store)
        item = await queue.add(QueueKind.STEERING, "typed before the first prompt")
        assert store.created
        assert await queue.edit(item.id, "better")
        assert [waiting.text for waiting in await store.queue_waiting()] == ["better"]
        await store.record_prompt(user_text("go"))
        await store.record_prompt(user_text("better"), queued=(item.id,), begins_turn=False)
        queue.delivered((item.id,))
        assert not await queue.edit(item.id, "too late")
        assert not await queue.drop(item.id)
        other = await queue.add(QueueKind.STEERING, "never mind")
        assert await queue.edit(other.id, "  ")
        assert not queue.waiting() and not await store.queue_waiting()
        with pytest.raises(UsageError):
            await queue.add(QueueKind.STEERING, " ")
        await store.aclose()

    asyncio.run(body())


def test_text_and_prompt_that_come_at_once_make_one_file(tmp_path: Path) -> None:
    async def body() -> None:
        store = new(tmp_path)
        await asyncio.gather(
            store.queue_add(QueueKind.STEERING, "wait"), store.record_prompt(user_text("go"))
        )
        assert len(await store.queue_waiting()) == 1
        assert len((await store.load()).messages) == 1
        await store.aclose()

    asyncio.run(body())
