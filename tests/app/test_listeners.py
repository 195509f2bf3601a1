"""What a tool call needs is imported while the first answer is awaited (DESIGN, import budget)."""

import asyncio
import sys
import threading
from pathlib import Path

import httpx  # noqa: F401 - as in a session whose request has left
import pytest

from agentcli.app import listeners
from agentcli.app.listeners import EarlyImports, Listeners
from agentcli.domain.events import StepStart, TextChunk

MODULE = "imported_early"


async def hears(*events: StepStart | TextChunk) -> bool:
    """Whether the module has been imported once the loop has been free for a while."""
    heard = Listeners("id")
    EarlyImports(heard, (MODULE,))
    for event in events:
        heard.emit(event)
    for _ in range(20):  # timers of no length
        await asyncio.sleep(0)
    for thread in threading.enumerate():
        if thread.name == "imports":
            await asyncio.to_thread(thread.join)
    return sys.modules.pop(MODULE, None) is not None


@pytest.fixture(autouse=True)
def _module_and_no_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{MODULE}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(listeners, "LOOK_S", 0)


def test_it_is_imported_once_the_request_is_on_its_way() -> None:
    assert asyncio.run(hears(StepStart(1)))


def test_an_answer_that_has_begun_is_left_alone() -> None:
    assert not asyncio.run(hears(StepStart(1), TextChunk("hi")))


def test_nothing_is_imported_before_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "CLIENT", "a module that is not loaded")
    assert not asyncio.run(hears(StepStart(1)))
