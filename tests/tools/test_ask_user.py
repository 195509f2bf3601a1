"""A question to the person, or the advice to decide."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.tools import Asks, OutputKind, PortMissing, context_for
from agentcli.tools.ask_user import TOOL
from tests.support.tool_context import FixedAnswer, text_of, tool_context


@pytest.mark.spec("TOOL-5")
def test_the_answer_of_the_person_is_the_result(tmp_path: Path) -> None:
    person = FixedAnswer("blue")
    args = TOOL.parse({"question": "Colour?", "options": ["red", "blue"]})
    output = asyncio.run(TOOL.run(args, tool_context(tmp_path, ask=person)))
    assert text_of(output) == "blue"
    assert person.asked == [("Colour?", ("red", "blue"))]
    assert TOOL.summary(args) == "Ask: Colour?"
    assert TOOL.definition.asks is Asks.NOTHING
    assert TOOL.definition.timeout_s is None


@pytest.mark.spec("TOOL-5")
def test_without_a_user_the_model_is_told_to_decide(tmp_path: Path) -> None:
    with pytest.raises(PortMissing, match="Decide yourself"):
        context_for(TOOL, tool_context(tmp_path), lambda _: None)


def test_an_empty_answer_is_said_to_be_empty(tmp_path: Path) -> None:
    context = tool_context(tmp_path, ask=FixedAnswer(" "))
    output = asyncio.run(TOOL.run(TOOL.parse({"question": "?"}), context))
    assert "empty answer" in text_of(output)


@pytest.mark.spec("CAN-6", "CAN-9")
def test_a_cancel_ends_the_question(tmp_path: Path) -> None:
    events: list[str] = []

    class Silent:
        async def ask(self, question: str, options: Sequence[str]) -> str:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                events.append("withdrawn")
            return ""

    asked = asyncio.Event()

    async def body() -> None:
        cancel = CancelToken()
        context = tool_context(tmp_path, cancel=cancel, ask=Silent())
        asking = asyncio.create_task(TOOL.run(TOOL.parse({"question": "?"}), context))
        await asked.wait()
        cancel.cancel()
        assert (await asking).kind is OutputKind.CANCELLED

    asyncio.run(body())
    assert events == ["withdrawn"]
