"""What a search shows of a text, which may have keys in it (SEC-9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentcli.domain.secrecy import excerpt
from agentcli.store.files import SessionFiles
from tests.store.sessions import fresh, one_turn

pytestmark = pytest.mark.spec("SEC-9", "CLI-8")

KEY = "sk-ant-Zk3-Qw8RtYp2-Lm5NvBx7-Jh4GfDs9"


@pytest.mark.parametrize("before", ["", "a few words that come first and are many, so that " * 9])
@pytest.mark.parametrize("wanted", ["Zk3", "Qw8RtYp2", "deploy", "here", "Jh4GfDs9 here"])
def test_no_part_of_a_key_is_shown(tmp_path: Path, before: str, wanted: str) -> None:
    files = SessionFiles(tmp_path / "sessions", tmp_path / "catalogue.db")

    async def scenario() -> list[str]:
        store = fresh(files.directory)
        text = f"{before}deploy with {KEY} here, and then {'much more of it, ' * 20}"
        await one_turn(store, text)
        await files.touch(*await store.stamped_info())
        await store.aclose()
        hits = [*await files.search(wanted), *await files.search_sessions(wanted)]
        return [hit.excerpt for hit in hits]

    shown = asyncio.run(scenario())
    assert shown
    for each in shown:
        assert not any(part in each for part in KEY.split("-")[2:]), each
    if wanted == "deploy":
        assert any("[deploy] with [redacted]" in each for each in shown)


def test_a_part_that_cannot_be_found_again_is_looked_at_by_itself() -> None:
    assert excerpt(f"…the \x02key\x03 {KEY}…", "something else") == "…the [key] [redacted]…"
    assert excerpt("…\x02plain\x03 words", "some plain words") == "…[plain] words"
