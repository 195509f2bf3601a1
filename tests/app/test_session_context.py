"""A session's context by hand, on a real file: compact, take back, look where the tokens go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import AgentError, ErrorKind, ProviderError, TurnCancelled, UsageError
from agentcli.domain.events import Compacted, CompactionTrigger, Prompt
from agentcli.domain.messages import TextPart, ToolResult, Usage, UserMessage, user_text
from agentcli.domain.ports import ModelInfo
from agentcli.domain.stream import UsageReport
from agentcli.domain.tools import ToolContext, ToolOutput
from agentcli.engine.context.report import ASSISTANT, DOCUMENTS, RESULTS, SUMMARY, TOOLS, USER
from agentcli.store.repair.check import check
from agentcli.store.sqlite import SqliteStore
from tests.app.test_session import Made
from tests.support.turns import FakeTool, PlayedProvider, World, calls, says

PRICED = ModelInfo(
    "test", "model", 20_000, 1_000, input_price=1.0, output_price=2.0, cache_read_price=0.1,
    cache_write_price=1.0,
)  # fmt: skip


async def look(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text("x" * 2_000)


async def talked(directory: Path, *replies: Any, turns: int = 3) -> Made:
    opening = [says(f"answer {number}") for number in range(turns)]
    made = Made(directory, World(PlayedProvider(*opening, *replies), [FakeTool("look", look)]))
    made.session._conversation.model = PRICED
    for number in range(turns):
        await made.say(f"question {number}")
    made.events.clear()
    return made


async def on_disk(made: Made) -> list[str]:
    return [stored.message.text for stored in (await made.store.load()).messages]


@pytest.mark.spec("CMP-3", "CMP-4", "LOOP-6", "COST-1")
def test_a_session_is_compacted_by_hand_and_its_cost_counts(tmp_path: Path) -> None:
    async def body() -> None:
        reply = [UsageReport(Usage(1_000_000, 500_000)), *says("SUMMARY")]
        made = await talked(tmp_path, reply, says("on"))
        made.session._totals.cost_usd = 0.0
        done = await made.session.compact("names")
        assert done is not None and done.trigger is CompactionTrigger.MANUAL
        assert [type(event) for event in made.events if isinstance(event, Compacted)] == [Compacted]
        assert made.session.usage == Usage(1_000_000, 500_000)
        assert made.session.cost_usd == pytest.approx(2.0)
        assert made.session.turns == 3
        assert await on_disk(made) == [m.text for m in made.session.history.messages]
        assert "SUMMARY" in (await on_disk(made))[0]
        assert (await made.say("more")).text == "on"
        await made.session.aclose()
        assert check(made.store.path) == []

    asyncio.run(body())


@pytest.mark.spec("CMP-3")
def test_taking_it_back_brings_everything_back_and_keeps_what_came_later(tmp_path: Path) -> None:
    async def body() -> None:
        made = await talked(tmp_path, says("SUMMARY"), says("later answer"), says("last"))
        whole = [m.text for m in made.session.history.messages]
        await made.session.compact()
        await made.say("later")
        assert await made.session.undo_compaction()
        wanted = [*whole, "later", "later answer"]
        assert [m.text for m in made.session.history.messages] == wanted == await on_disk(made)
        assert not await made.session.undo_compaction()
        await made.say("end")
        assert await on_disk(made) == [*wanted, "end", "last"]
        shown = [s.message.text for s in (await made.session.load()).messages]
        assert any("SUMMARY" in text for text in shown)
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("CMP-1")
def test_a_failure_by_hand_is_the_error_and_the_history_is_as_it_was(tmp_path: Path) -> None:
    async def body() -> None:
        refused = [ProviderError("no", kind=ErrorKind.AUTH)]
        made = await talked(tmp_path, refused, says("fine"))
        before = made.session.history.messages
        with pytest.raises(AgentError, match="no"):
            await made.session.compact()
        assert made.session.history.messages == before
        assert not made.session.is_running
        await made.say("more")
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("CAN-9")
def test_it_can_be_cancelled_and_nothing_else_runs_meanwhile(tmp_path: Path) -> None:
    async def body() -> None:
        made = await talked(tmp_path, says("SUMMARY"))
        before = made.session.history.messages
        token = CancelToken()
        running = asyncio.ensure_future(made.session.compact("", token))
        await asyncio.sleep(0)
        assert made.session.is_running
        with pytest.raises(UsageError):
            await made.session.run(Prompt(user_text("x")))
        with pytest.raises(UsageError):
            await made.session.undo_compaction()
        assert made.session.interrupt()
        with pytest.raises(TurnCancelled):
            await running
        assert made.session.history.messages == before
        assert await on_disk(made) == [m.text for m in before]
        await made.session.aclose()

    asyncio.run(body())


def test_a_new_session_has_nothing_to_compact_and_nothing_to_take_back(tmp_path: Path) -> None:
    async def body() -> None:
        made = Made(tmp_path, World(PlayedProvider()))
        assert await made.session.compact() is None
        assert not await made.session.undo_compaction()
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("CMP-3", "HIS-1")
def test_a_call_id_that_was_folded_is_not_used_again_after_a_resume(tmp_path: Path) -> None:
    async def body() -> None:
        first = calls(("same-id", "look", "{}"))
        made = await talked(tmp_path, first, says("seen"), says("SUMMARY"), turns=1)
        await made.say("look")
        await made.store.record_compaction(
            user_summary("S"), [0, 1, 2, 3, 4], 6, usage=Usage(), model="test/model"
        )
        await made.session.aclose()
        store = await SqliteStore.open(made.store.path)
        loaded = await store.load()
        history = loaded.history()
        assert "same-id" in history.call_ids and len(history) == 2
        assert history.unlike_before == 2
        provider = PlayedProvider(calls(("same-id", "look", "{}")), says("again"))
        again = World(provider, [FakeTool("look", look)], store=store)
        again.conversation.history = history
        await again.run("look again")
        results = [m for m in history.messages if isinstance(m, ToolResult)]
        assert len(results) == 1 and results[0].call_id != "same-id"
        await store.aclose()
        assert check(made.store.path) == []

    asyncio.run(body())


def user_summary(text: str) -> UserMessage:
    return UserMessage((TextPart(text),), is_summary=True)


@pytest.mark.spec("CMP-5", "COST-1")
def test_the_report_says_where_the_tokens_go_and_adds_up(tmp_path: Path) -> None:
    async def body() -> None:
        steps = [calls((f"c{n}", "look", f'{{"path": "src/{n}.py"}}')) for n in range(2)]
        final = [UsageReport(Usage(3_000, 10)), *says("done")]
        made = await talked(tmp_path, *steps, final)
        it = made.session._conversation
        it.parts = replace(
            it.parts, system=f'be good\n<document path="AGENTS.md">\n{"rule " * 100}\n</document>'
        )
        estimated = made.session.context_report()
        assert not estimated.is_measured
        await made.say("look around")
        report = made.session.context_report()
        assert report.is_measured and report.window == 20_000 and report.compacts_at == 16_000
        assert 3_000 <= report.used <= 3_020
        assert sum(part.tokens for part in report.parts) == pytest.approx(report.used, abs=10)
        parts = {part.name: part for part in report.parts}
        assert {"system prompt", DOCUMENTS, TOOLS, USER, ASSISTANT, RESULTS} == set(parts)
        assert parts[DOCUMENTS].count == 1 and parts[RESULTS].count == 2
        assert parts[RESULTS].tokens > parts[DOCUMENTS].tokens > parts["system prompt"].tokens
        assert report.free == 20_000 - report.used
        assert report.percent == pytest.approx(15, abs=0.2)
        heavy = report.heaviest[0]
        assert (heavy.name, heavy.about, heavy.left_out) == ("look", "src/0.py", False)
        assert heavy.again_usd == pytest.approx(heavy.tokens * 0.1 / 1_000_000)
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("CMP-5")
def test_the_report_of_a_compacted_session_names_the_summary(tmp_path: Path) -> None:
    async def body() -> None:
        made = await talked(tmp_path, says("SUMMARY"))
        await made.session.compact()
        parts = {part.name: part.count for part in made.session.context_report().parts}
        assert parts[SUMMARY] == 1 and parts[USER] == 1
        await made.session.aclose()

    asyncio.run(body())
