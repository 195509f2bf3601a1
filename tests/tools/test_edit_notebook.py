"""Cells of notebooks: what is changed, and that nothing else is (TOOL-16)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcli.tools.common.registry import Registry
from agentcli.tools.edit_notebook import TOOL
from agentcli.tools.read_file import TOOL as READ
from tests.tools.in_a_room import Room, failed, ok, room

__all__ = ["room"]


def notebook(*sources: str, minor: int = 5, **more: Any) -> dict[str, Any]:
    cells = []
    for number, source in enumerate(sources):
        cell = {"cell_type": "code", "execution_count": 3}
        cell |= {"id": f"id-{number}"} if minor >= 5 else {}
        printed = [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}]
        lines = source.splitlines(keepends=True)
        cells.append({**cell, "metadata": {"x": 1e-05}, "outputs": printed, "source": lines})
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": minor, **more}


def written(value: Any, **style: Any) -> str:
    return json.dumps(value, **{"indent": 1, "ensure_ascii": False, **style}) + "\n"


@pytest.mark.spec("TOOL-16")
def test_a_cell_is_replaced_and_every_other_byte_stays(room: Room) -> None:
    text = written(notebook("a = 1", "b = 'ä'\nc = 2", "d"))
    path = room.write("n.ipynb", text)
    done = room.run(TOOL, path="n.ipynb", cell_id="id-1", new_source="b = 'ö'\nc = 2")
    after = path.read_text()
    cells = json.loads(after)["cells"]
    assert cells[1]["source"] == ["b = 'ö'\n", "c = 2"]
    assert (cells[1]["outputs"], cells[1]["execution_count"]) == ([], None)
    assert cells[0]["outputs"]
    assert ok(done).startswith("Edited cell id-1 of n.ipynb")
    assert "-b = 'ä'" in done.display
    assert "+b = 'ö'" in done.display
    start, end = text.index('"id": "id-0"'), text.index('"id": "id-1"')
    assert text[:end].rpartition("{")[0] == after[: after.index('"id": "id-1"')].rpartition("{")[0]
    assert text[text.index('"id": "id-2"') :] == after[after.index('"id": "id-2"') :]
    assert start < end


@pytest.mark.spec("TOOL-16")
@pytest.mark.parametrize(
    "style",
    [{}, {"indent": 2}, {"indent": "\t"}, {"indent": None}, {"ensure_ascii": True}],
    ids=["jupyter", "two", "tabs", "compact", "ascii"],
)
@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
def test_what_is_written_looks_like_the_rest(room: Room, style: dict[str, Any], end: str) -> None:
    value = notebook("ä", "two")
    text = written(value, **style).rstrip("\n") + end
    text = text.replace("\n", "\r\n") if end == "\r\n" else text
    path = room.write("n.ipynb", text.replace("\r\r", "\r").encode())
    before = path.read_bytes().decode()
    ok(room.run(TOOL, path="n.ipynb", cell_id="2", new_source="ü", mode="replace"))
    value["cells"][1] |= {"source": ["ü"], "outputs": [], "execution_count": None}
    expected = written(value, **style).rstrip("\n") + ("\n" if end else "")
    expected = expected.replace("\n", "\r\n") if "\r\n" in before else expected
    assert path.read_bytes().decode() == expected


@pytest.mark.slow
@pytest.mark.spec("TOOL-16")
@pytest.mark.parametrize("count", [0, 1, 3])
def test_cells_are_inserted_and_deleted_anywhere(room: Room, count: int) -> None:
    path = room.write("n.ipynb", written(notebook(*(f"s{n}" for n in range(count)))))
    for place in ["", *(f"id-{n}" for n in range(count))]:
        before = path.read_bytes()
        ok(
            room.run(
                *(TOOL,), path="n.ipynb", cell_id=place, new_source="new\n", mode="insert",
                cell_type="markdown",
            )
        )  # fmt: skip
        cells = json.loads(path.read_text())["cells"]
        (at,) = [n for n, cell in enumerate(cells) if cell["source"] == ["new\n"]]
        assert at == (int(place[3:]) + 1 if place else 0)
        assert cells[at]["cell_type"] == "markdown"
        assert path.read_text() == written(json.loads(path.read_text()))
        room.ledger.seen.clear()
        ok(room.run(TOOL, path="n.ipynb", cell_id=cells[at]["id"], mode="delete"))
        if count:
            assert path.read_bytes() == before


@pytest.mark.spec("TOOL-16")
@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        (written(notebook("a")), {"cell_id": "nope", "new_source": "b"}, "it has: id-0"),
        (written(notebook("a")), {"new_source": "b"}, "cell_id is missing"),
        (written(notebook("a")), {"cell_id": "1", "new_source": "a"}, "nothing to change"),
        ("{}", {"cell_id": "1", "new_source": "a"}, "no notebook of format 4"),
        ('{"cells": [], "nbformat": 1e999}', {"cell_id": "1"}, "no notebook of format 4"),
        ("not json", {"cell_id": "1", "new_source": "a"}, "no notebook of format 4"),
        ("[" * 50_000, {"cell_id": "1", "new_source": "a"}, "no notebook of format 4"),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(
    room: Room, text: str, arguments: dict[str, str], says: str
) -> None:
    path = room.write("n.ipynb", text)
    assert says in failed(room.run(TOOL, path="n.ipynb", **arguments))
    assert path.read_text() == text


@pytest.mark.spec("TOOL-16")
def test_the_tool_is_named_by_a_notebook_that_is_read_and_runs_without_being_offered(
    room: Room,
) -> None:
    room.write("n.ipynb", written(notebook("a")))
    assert "edit_notebook {path, cell_id, new_source" in ok(room.run(READ, path="n.ipynb"))
    registry = Registry.builtin()
    assert "edit_notebook" not in registry.list()
    assert registry.get("edit_notebook") is TOOL
    assert "edit_notebook" in Registry.builtin({"edit_notebook"}).list()
    assert Registry.builtin({"read_file"}).get("edit_notebook") is None
    assert Registry.builtin(disabled={"edit_notebook"}).get("edit_notebook") is None


@pytest.mark.spec("TOOL-16")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(sources=st.lists(st.text(max_size=20), min_size=1, max_size=4), new=st.text(max_size=20))
def test_any_source_comes_back_as_it_was_given(room: Room, sources: list[str], new: str) -> None:
    new = new.replace("\r", "")
    path = room.write("n.ipynb", written(notebook(*sources), ensure_ascii=True))
    room.ledger.seen.clear()
    result = room.run(TOOL, path="n.ipynb", cell_id="id-0", new_source=new)
    if new != sources[0]:
        ok(result)
    found = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    assert found == [new, *sources[1:]]


@pytest.mark.spec("TOOL-16", "SEC-13")
@pytest.mark.parametrize("odd", [{"source": None}, {"source": 5}, {"id": ["x"]}])
def test_a_cell_that_makes_no_sense_can_be_replaced(room: Room, odd: dict[str, Any]) -> None:
    whole = notebook("a", "b")
    whole["cells"][0] |= odd
    path = room.write("n.ipynb", written(whole))
    ok(room.run(TOOL, path="n.ipynb", cell_id="1", new_source="c"))
    room.ledger.seen.clear()
    ok(room.run(TOOL, path="n.ipynb", cell_id="1", new_source="d", mode="insert"))
    sources = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    assert sources == ["c", "d", "b"]
