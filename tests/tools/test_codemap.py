"""The tools that ask the map of the project (MEM-3, TOOL-14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.codemap import ProjectMap
from agentcli.domain.tools import Asks, ToolOutput
from agentcli.tools.codemap import MapContext
from agentcli.tools.common.registry import Registry
from tests.tools.in_a_room import Room, failed, ok, room, text_of

__all__ = ["room"]


class MapRoom:
    def __init__(self, room: Room, maps: Path) -> None:
        self.room, self.map = room, ProjectMap(maps, room.root)
        self.kept_back: Callable[[Path], bool] | None = None
        room.write("a.py", "class Cart:\n    def total(self): pass\n")
        room.write("b/c.py", "from a import Cart\nCart().total()\n")

    def run(
        self, name: str, judged: tuple[Path, ...] | None = None, **arguments: Any
    ) -> ToolOutput:
        tool = Registry.builtin().get(name)
        assert tool is not None
        args = tool.parse(arguments)
        judged = tool.paths(args, self.room.workspace) if judged is None else judged
        context = MapContext(
            "call_1",
            self.room.workspace,
            self.room.cancel,
            lambda _: None,
            judged,
            self.kept_back,
            self.map,
        )
        return asyncio.run(tool.run(args, context))


@pytest.fixture
def mapped(room: Room, tmp_path_factory: pytest.TempPathFactory) -> MapRoom:
    return MapRoom(room, tmp_path_factory.mktemp("maps"))


@pytest.mark.spec("MEM-3")
def test_symbols_and_references_tell_places_that_can_be_read(mapped: MapRoom) -> None:
    assert ok(mapped.run("symbols", query="cart")) == "a.py:1 class Cart"
    assert ok(mapped.run("symbols", query="total", path="b")).startswith("Nothing is called")
    assert ok(mapped.run("symbols")).splitlines()[0].startswith("a.py: class Cart:1")
    used = ok(mapped.run("references", symbol="Cart"))
    assert used == "a.py:1 class Cart, used in:\n  b/c.py:1, 2"
    assert "a.py:2 method Cart.total" in ok(mapped.run("references", path="a.py", line=2))
    assert "no definition" in ok(mapped.run("references", symbol="nothing"))


@pytest.mark.spec("MEM-3", "SEC-3")
def test_what_a_rule_keeps_back_is_not_told(mapped: MapRoom) -> None:
    mapped.kept_back = mapped.room.root.joinpath("b/c.py").__eq__
    mapped.room.write("b/c.py", "from a import Cart\nclass Hidden(Cart): pass\n")
    assert ok(mapped.run("symbols", query="Hidden")).startswith("Nothing is called")
    assert "b/c.py" not in ok(mapped.run("symbols"))
    assert "no definition" in ok(mapped.run("references", symbol="Hidden"))
    used = ok(mapped.run("references", symbol="Cart"))
    assert used == "a.py:1 class Cart, used in:\n  nothing that the map knows of"


@pytest.mark.spec("MEM-3")
def test_what_cannot_be_asked_is_told(mapped: MapRoom) -> None:
    assert "Give symbol" in failed(mapped.run("references"))
    assert "Give symbol" in failed(mapped.run("references", path="a.py"))
    assert "does not exist" in failed(mapped.run("symbols", query="x", path="nowhere"))
    assert "outside of" in failed(mapped.run("symbols", query="x", path="/"))
    other = mapped.run("symbols", judged=(Path("/other"),), query="x", path="b")
    assert "changed while it was being judged" in failed(other)


@pytest.mark.spec("MEM-3")
def test_names_of_files_cannot_break_lines_or_terminals(mapped: MapRoom) -> None:
    mapped.room.write("odd\n\x1b[31m.py", "class Odd: pass\n")
    text = text_of(mapped.run("symbols", query="Odd"))
    assert text == "odd\\n\\x1b[31m.py:1 class Odd"


@pytest.mark.spec("MEM-3")
def test_they_are_deferred_read_only_and_named_where_a_definition_is_searched(room: Room) -> None:
    registry = Registry.builtin()
    assert not {"symbols", "references"} & set(registry.list())
    for name in ("symbols", "references"):
        tool = registry.get(name)
        assert tool is not None
        assert tool.definition.asks is Asks.NOTHING
    assert {"symbols"} == set(Registry.builtin({"symbols"}).list())
    room.write("a.py", "class Cart: pass\n")
    grep = registry.get("grep_files")
    assert "symbols {query" in ok(room.run(grep, pattern="class Cart"))
    assert "symbols {query" not in ok(room.run(grep, pattern="Cart"))
