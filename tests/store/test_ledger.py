"""What a session's requests have sent, read without decoding a message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcli.domain.accounts import call_costs
from agentcli.domain.events import Outcome
from agentcli.domain.messages import ImagePart, ToolResult, Usage
from agentcli.domain.ports import RecordedResult
from agentcli.store.files import ledger_of
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import PNG, answer, asking, call, change, fresh, now, result, text


async def one_call(store: SqliteStore, call_id: str, done: ToolResult | None = None) -> None:
    await store.record_prompt(text("go"))
    wanted = call(call_id)
    await store.record_assistant(asking(wanted), (wanted,), final=None)
    await store.record_running(wanted)
    found = done or result(call_id, "words " * 1000)
    await store.record_result(RecordedResult(found, line="Run ls"), (found,))
    await store.record_assistant(answer(), (), final=Outcome.DONE)


@pytest.mark.spec("COST-1")
def test_messages_with_their_sizes_and_requests_with_their_places(tmp_path: Path) -> None:
    async def work() -> Path:
        store = fresh(tmp_path)
        await one_call(store, "a", ToolResult("a", "bash", (ImagePart("image/png", PNG),)))
        await store.add_usage("p/m", Usage(7), None, kind="partial")
        await store.add_usage("p/m", Usage(8), 0.5, kind="subagent")
        await store.record_prompt(text("more"))
        await store.aclose()
        return store.path

    ledger = ledger_of(now(work()))
    [done] = [message for message in ledger.messages if message.call_id]
    assert (done.seq, done.call_id, done.name, done.line) == (3, "a", "bash", "Run ls")
    assert done.size > 1_000
    assert [(row.kind, row.before) for row in ledger.rows] == [
        ("step", 2),
        ("step", 4),
        ("partial", 5),
        ("subagent", 5),
    ]
    assert call_costs(ledger, lambda _: None)["a"].result.again_requests == 1


@pytest.mark.spec("COST-1")
def test_what_the_user_took_back_was_sent_until_then(tmp_path: Path) -> None:
    async def work() -> Path:
        store = fresh(tmp_path)
        await one_call(store, "a")
        await store.aclose()
        moves = json.dumps([(seq, None, seq) for seq in (1, 2, 3, 4)])
        change(store.path, "UPDATE message SET hidden_by = seq")
        change(
            store.path,
            f"INSERT INTO rewind (created_at, newest_seq, messages) VALUES (1, 4, '{moves}')",
        )
        store = await SqliteStore.open(store.path)
        await one_call(store, "b")
        await store.aclose()
        return store.path

    ledger = ledger_of(now(work()))
    assert [message.until for message in ledger.messages] == [5, 5, 5, 5, None, None, None, None]
    found = call_costs(ledger, lambda _: None)
    assert [found[key].result.again_requests for key in "ab"] == [0, 0]
    assert found["a"].result.added_tokens and found["b"].result.added_tokens


@pytest.mark.spec("COST-1", "REC-7")
def test_what_a_damaged_file_has_in_the_place_of_a_value_is_none(tmp_path: Path) -> None:
    async def work() -> Path:
        store = fresh(tmp_path)
        await one_call(store, "a")
        await store.aclose()
        return store.path

    path = now(work())
    change(path, "PRAGMA ignore_check_constraints = 1")
    for damage in (
        "UPDATE usage SET model = x'ff', created_at = 'noon', input_tokens = 'many', cost_usd = 'x'",
        "UPDATE tool_run SET line = x'ff', name = x'fe'",
        "UPDATE message SET created_at = 'x'",
        "INSERT INTO rewind (created_at, newest_seq, messages) VALUES (1, 'x', '[1, [2]]')",
    ):
        change(path, damage)
    found = call_costs(ledger_of(path), lambda _: None)
    assert (found["a"].line, found["a"].result.cost_usd) == ("", 0.0)
