"""The map of a real directory: kept up, bounded, honest (MEM-3)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from agentcli.app import codemap
from agentcli.app.codemap import MapFailed, ProjectMap
from agentcli.codemap import index as index_of_map
from agentcli.codemap import parse, watch
from agentcli.codemap.graph import Graph
from agentcli.codemap.index import (
    MAX_FILE_BYTES,
    Changes,
    MapIndex,
    forget_reading,
    map_file,
)
from agentcli.codemap.parse import is_code
from agentcli.codemap.ranking import pagerank
from agentcli.codemap.worker import lock_of
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.codemap import MapState
from agentcli.domain.errors import PersistenceError
from tests.support.databases import opened

T = TypeVar("T")
SHOP = {
    "shop/cart.py": "class Cart:\n    def total(self):\n        return price(self)\n\ndef price(x):\n    return 1\n",
    "shop/views.py": "from shop.cart import Cart\n\ndef show():\n    return Cart().total()\n",
    "shop/other.py": "class Cart:\n    pass\n\nCart()\n",
    "shop/use.py": "from shop import cart\n\ncart.price(3)\n",
    "README.md": "Cart\n",
}


class Shop:
    def __init__(self, root: Path, maps: Path) -> None:
        self.root, self.maps = root, maps
        for name, text in SHOP.items():
            self.write(name, text)
        self.map = ProjectMap(maps, root.resolve())

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def ask(self, question: Callable[[Graph], T]) -> tuple[T, MapState]:
        return asyncio.run(self.map.ask(question, CancelToken()))

    def titles(self, query: str, **more: str) -> list[str]:
        found, _ = self.ask(lambda graph: graph.symbols(query, **more))
        return [f"{each.path}:{each.line} {each.kind} {each.title}" for each in found]

    def uses(
        self, symbol: str = "", path: str = "", line: int = 0
    ) -> dict[str, dict[str, tuple[int, ...]]]:
        found, _ = self.ask(lambda graph: graph.references(symbol, path, line))
        return {
            f"{each.symbol.path}:{each.symbol.line}": {use.path: use.lines for use in each.uses}
            for each in found
        }


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    root = (tmp_path / "project").resolve()
    root.mkdir()
    return Shop(root, tmp_path / "maps")


@pytest.mark.spec("MEM-3")
def test_symbols_are_found_by_name_part_class_kind_and_place(shop: Shop) -> None:
    assert set(shop.titles("Cart")) == {"shop/cart.py:1 class Cart", "shop/other.py:1 class Cart"}
    assert (
        shop.titles("cart.total") == shop.titles("Cart.tot") == ["shop/cart.py:2 method Cart.total"]
    )
    assert shop.titles("Cart", below="shop/other.py") == ["shop/other.py:1 class Cart"]
    assert shop.titles("", kind="function", below="shop/views.py") == [
        "shop/views.py:3 function show"
    ]
    assert shop.titles("100%_") == []


@pytest.mark.spec("MEM-3")
def test_uses_of_one_name_go_to_the_definition_that_the_file_imports(shop: Shop) -> None:
    uses = shop.uses("Cart")
    assert uses["shop/cart.py:1"] == {"shop/views.py": (1, 4)}
    assert uses["shop/other.py:1"] == {"shop/other.py": (4,)}
    assert shop.uses("price") == {"shop/cart.py:5": {"shop/cart.py": (3,), "shop/use.py": (3,)}}
    assert shop.uses("total")["shop/cart.py:2"] == {"shop/views.py": (4,)}


@pytest.mark.spec("MEM-3")
def test_a_line_means_what_it_defines_or_uses_or_is_inside_of(shop: Shop) -> None:
    assert list(shop.uses(path="shop/cart.py", line=2)) == ["shop/cart.py:2"]
    assert list(shop.uses(path="shop/cart.py", line=6)) == ["shop/cart.py:5"]
    assert "shop/cart.py:5" in shop.uses(path="shop/use.py", line=3)
    assert shop.uses(path="shop/cart.py", line=999) == {}


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_ignored_files_links_and_hostile_files_are_left_out_and_told(
    shop: Shop, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("def stolen(): pass\n")
    (shop.root / "loop").symlink_to(shop.root)
    (shop.root / "away").symlink_to(outside)
    (shop.root / "one.py").symlink_to(outside / "secret.py")
    os.mkfifo(shop.root / "pipe.py")
    shop.write(".gitignore", "built/\n")
    shop.write("built/gen.py", "def stolen_too(): pass\n")
    shop.write("min.js", b"function stolen_3(){};" * 500_000)  # 10 MB in a line
    shop.write("small.min.js", b"function stolen_4(){};" * 5_000)
    shop.write("zero.py", b"def stolen_5(): pass\n\0")
    shop.write("big.py", b"def stolen_6(): pass\n" + b"#\n" * MAX_FILE_BYTES)
    shop.write("odd.py", b"def here_\xff(): pass\ndef here(): '\xe9'\n")
    for name in (b"caf\xe9.py", b"d\xff/x.py"):  # no database takes these names
        shop.write(os.fsdecode(name), "def stolen_7(): pass\n")
    shop.write("new\nline\x1b[1m.py", "def here_too(): pass\n")
    assert shop.titles("stolen") == []
    assert "odd.py:2 function here" in shop.titles("here")
    _, state = shop.ask(lambda graph: None)
    assert shop.titles("here_too") == ["new\nline\x1b[1m.py:1 function here_too"]
    assert (state.untold, state.waiting) == (6, 0)
    assert "6 files left out" in state.notes[0]
    shop.write(os.fsdecode(b"\xe8.py"), "def stolen_8(): pass\n")
    assert shop.titles("stolen") == shop.titles("\ud800") == []


@pytest.mark.spec("MEM-3")
def test_what_is_swapped_for_a_link_after_the_listing_is_not_followed(
    shop: Shop, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "cart.py").write_text("def stolen(): pass\n")
    (shop.root / "shop").rename(tmp_path / "was")
    (shop.root / "shop").symlink_to(outside)
    shop.maps.mkdir()
    index = MapIndex(map_file(shop.maps, shop.root), shop.root)
    try:
        assert index._content("shop/cart.py") == (b"", "link")
    finally:
        index.close()


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
@pytest.mark.parametrize(
    "damage", [b"", b"no database" * 1000, None], ids=["empty", "rubbish", "version"]
)
def test_a_lost_damaged_or_other_map_is_made_again(shop: Shop, damage: bytes | None) -> None:
    shop.titles("Cart")
    path = map_file(shop.maps, shop.root)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if damage is None:
        with opened(path) as db:
            db.execute("PRAGMA user_version = 99")
    else:
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(damage)
    assert len(shop.titles("Cart")) == 2


@pytest.mark.spec("MEM-3")
def test_a_pass_that_runs_out_of_time_says_so_and_the_next_goes_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.maps.mkdir()
    listed = [name for name in SHOP if name.endswith(".py")]
    index = MapIndex(map_file(shop.maps, shop.root), shop.root)
    try:
        monkeypatch.setattr(index_of_map, "PASS_S", -1.0)
        assert index.update(Changes(), listed) == 4
        assert Graph(index).state().notes == ("4 files are not in the map yet: ask again for more",)
        assert index.changes().unlisted
        monkeypatch.setattr(index_of_map, "PASS_S", 40.0)
        assert index.update(Changes(), listed) == 0
        assert Graph(index).state().notes == ()
    finally:
        index.close()


@pytest.mark.spec("MEM-3")
def test_a_cancelled_pass_leaves_a_map_that_can_be_used(shop: Shop) -> None:
    token = CancelToken()
    token.cancel(CancelReason.USER)
    found, _ = asyncio.run(shop.map.symbols("Cart", "", None, token))
    assert found == []
    assert len(shop.titles("Cart")) == 2


def test_a_place_that_cannot_be_written_is_told(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "maps").write_text("a file")
    with pytest.raises(MapFailed, match="cannot be used"):
        shop.titles("Cart")


@pytest.mark.spec("MEM-3")
def test_ranks_sum_to_one_and_go_to_what_is_used() -> None:
    ranks = pagerank([1, 2, 3], {(1, 3): 1.0, (2, 3): 2.0})
    assert sum(ranks.values()) == pytest.approx(1.0)
    assert ranks[3] > ranks[1] == pytest.approx(ranks[2])


@pytest.mark.spec("MEM-3")
def test_the_overview_has_first_what_others_use(shop: Shop) -> None:
    assert shop.titles("")[0].startswith("shop/cart.py:")


# --- what has changed --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
@pytest.mark.parametrize(
    "is_told", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["watched", "looked at"]
)
def test_every_kind_of_change_is_seen_by_the_next_question(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    if not is_told:
        monkeypatch.setattr(watch, "MAX_WATCHED", 0)
    shop.write(".gitignore", "")
    assert shop.titles("fresh") == shop.titles("fresh") == []
    for number, change in enumerate(
        (
            lambda: shop.write("shop/views.py", "def fresh(): pass\n"),
            lambda: shop.write("deep/er/here.py", "def fresh(): pass\n"),
            lambda: (shop.root / "shop").rename(shop.root / "store"),
            lambda: (shop.root / "store/cart.py").unlink(),
            lambda: shop.write(".gitignore", "deep\n"),
        )
    ):
        change()
        found = [title.partition(":")[0] for title in shop.titles("fresh")]
        assert (
            sorted(found)
            == [
                ["shop/views.py"],
                ["deep/er/here.py", "shop/views.py"],
                ["deep/er/here.py", "store/views.py"],
                ["deep/er/here.py", "store/views.py"],
                ["store/views.py"],
            ][number]
        )
        shop.titles("fresh")  # where it can be told, it is again
    assert shop.uses("Cart") == {"store/other.py:1": {"store/other.py": (4,)}}


@pytest.mark.spec("MEM-3")
@pytest.mark.parametrize(
    "is_told", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["watched", "looked at"]
)
def test_only_what_has_changed_is_read_and_looked_at_where_the_kernel_tells_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    if not is_told:
        monkeypatch.setattr(watch, "MAX_WATCHED", 0)
    shop.titles("Cart")
    shop.titles("Cart")
    (tree,) = shop.map._watch
    if is_told and tree.seen() is None:
        pytest.skip("not on this system or file system")
    looked, read = list[str](), list[str]()
    stamp, content = MapIndex._stamp, MapIndex._content

    def look(self: MapIndex, path: str) -> tuple[str, int]:
        looked.append(path)
        return stamp(self, path)

    def take(self: MapIndex, path: str) -> tuple[bytes, str]:
        read.append(path)
        return content(self, path)

    monkeypatch.setattr(MapIndex, "_stamp", look)
    monkeypatch.setattr(MapIndex, "_content", take)
    shop.titles("Cart")
    assert (read, bool(looked)) == ([], not is_told)
    shop.write("shop/views.py", "def fresh(): pass\n")
    assert shop.titles("fresh") == shop.titles("fresh") == ["shop/views.py:1 function fresh"]
    assert read == ["shop/views.py"]
    if not is_told:
        return
    assert set(looked) == {"shop/views.py"}
    assert not tree._take(struct.pack("iIII", 1, 0x4000, 0, 0))  # its queue ran over
    tree.end()
    assert tree.seen() is None
    shop.write("shop/views.py", "def other(): pass\n")
    assert shop.titles("fresh") == []


CRASHING = """
import os, signal, sys, time
sys.path.append({place!r})
from agentcli.codemap import index, worker
plain = index.parse
def parse(path, source, *more):
    if path.endswith("bad.py"):
        os.abort()
    if path.endswith("endless.py"):
        time.sleep(600)
    return plain(path, source, *more)
index.parse = parse
worker._FILE_S = 0.3
worker.main()
"""


@pytest.mark.slow
@pytest.mark.spec("MEM-3", "SEC-13")
def test_a_file_that_ends_the_process_that_reads_it_is_left_out_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a_bad.py", "shop/endless.py"):
        shop.write(name, "def never(): pass\n")
    place = str(Path(__file__).parents[2])

    def command(path: Path, root: Path, **_: bool) -> tuple[str, ...]:
        code = CRASHING.format(place=place)
        return (sys.executable, "-I", "-c", code, str(path), str(root))

    monkeypatch.setattr(codemap, "command_of", command)
    assert len(shop.titles("Cart")) == 2
    assert shop.titles("never") == []
    _, state = shop.ask(lambda graph: None)
    assert (state.files, state.untold, state.waiting) == (6, 2, 0)
    assert list(shop.maps.glob("*.reading")) == []
    monkeypatch.undo()
    shop.write("a_bad.py", "def never(): 1\n")  # it has changed: another try
    assert shop.titles("never") == ["a_bad.py:1 function never"]


# --- which of several --------------------------------------------------------------------------

SHAPES = {
    "shapes/base.py": "class Base:\n    def area(self): pass\n    def twice(self):\n        return self.area()\n",
    "shapes/box.py": "from .base import Base\n\nclass Box(Base):\n    def area(self):\n        return super().area()\n",
    "other/field.py": "import json\n\nclass Field:\n    def area(self): pass\n    def loads(self): pass\n    def size(self):\n        json.loads('x'); ', '.area()\n        return self.area()\n",
    "use.py": "from shapes.box import Box\n\ndef go(thing):\n    Box.area(thing)\n    thing.area()\n    Box.twice()\n",
}


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_a_member_of_self_super_or_a_class_is_the_one_of_that_class(shop: Shop) -> None:
    for name, text in SHAPES.items():
        shop.write(name, text)
    assert shop.uses("Base.area") == {
        "shapes/base.py:2": {"shapes/base.py": (4,), "shapes/box.py": (5,)}
    }
    assert shop.uses("Box.area") == {"shapes/box.py:4": {"use.py": (4, 5)}}
    assert shop.uses("Field.area") == {"other/field.py:4": {"other/field.py": (8,)}}
    assert shop.uses("twice") == {"shapes/base.py:3": {"use.py": (6,)}}
    assert shop.uses("loads") == {"other/field.py:5": {}}
    found, _ = shop.ask(lambda graph: graph.references("area"))
    may = {each.symbol.title: {use.path: use.lines for use in each.may} for each in found}
    assert may["Field.area"] == {}
    assert may["Box.area"]["shapes/base.py"] == (4,)  # it overrides what is called there


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_of_one_name_in_two_packages_the_imported_one_is_meant(shop: Shop) -> None:
    shop.write("one/__init__.py", "from .deep import Query\n")
    shop.write("one/deep.py", "class Query: pass\n")
    shop.write("two/deep.py", "class Query: pass\n")
    shop.write("main.py", "from one import Query\nQuery()\n")
    shop.write("second.py", "import two.deep\ntwo.deep.Query()\n")
    shop.write("free.py", "from elsewhere import Query\nQuery()\n")
    assert shop.uses("Query") == {
        "one/deep.py:1": {"main.py": (1, 2), "one/__init__.py": (1,)},
        "two/deep.py:1": {"second.py": (2,)},
    }


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_what_is_defined_inside_of_a_function_is_seen_in_there_alone(shop: Shop) -> None:
    text = "def {}():\n    class Made: pass\n    return Made()\n"
    shop.write("inner.py", text.format("one") + text.format("two") + "Made()\n")
    assert shop.uses("Made") == {"inner.py:2": {"inner.py": (3,)}, "inner.py:5": {"inner.py": (6,)}}


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_a_file_of_100_000_symbols_among_loops_of_links_is_cut_and_told(shop: Shop) -> None:
    for number in range(3):
        (shop.root / f"loop{number}").symlink_to(shop.root / f"loop{(number + 1) % 3}")
    (shop.root / "shop/up").symlink_to("..")
    (shop.root / "self").symlink_to("self")
    (shop.root / "me.py").symlink_to("me.py")
    many = "".join(f"a{n}=1\n" for n in range(100_000))
    assert len(many) <= MAX_FILE_BYTES
    shop.write("many.py", many)
    _, state = shop.ask(lambda graph: graph.symbols("a1"))
    assert (state.files, state.partly, state.waiting) == (5, 1, 0)
    assert state.symbols <= parse.MAX_DEFINITIONS + 20
    assert any("left out or cut" in note for note in state.notes)
    assert shop.titles("a99")[0].startswith("many.py:100 ")
    assert len(shop.titles("Cart", kind="class")) == 2


# --- what becomes of the map itself ------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("MEM-3", "OPS-1")
def test_a_map_that_is_damaged_inside_is_thrown_away_and_made_again_at_once(shop: Shop) -> None:
    shop.titles("Cart")
    path = map_file(shop.maps, shop.root)
    for damage in ("UPDATE meta SET value = 'x'", "DROP TABLE part", "UPDATE used SET lines = 'x'"):
        with opened(path) as db:
            db.execute(damage)
        assert len(shop.uses("Cart")) == len(shop.titles("Cart")) == 2


@pytest.mark.slow
@pytest.mark.spec("MEM-3", "OPS-1")
def test_what_is_no_damage_costs_no_map_and_what_is_left_of_a_change_is_not_forgotten(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.titles("Cart")
    path = map_file(shop.maps, shop.root)
    monkeypatch.setattr(index_of_map, "_BUSY_MS", 1)
    shop.write("shop/views.py", "def fresh(): pass\n")
    with opened(path) as other:
        other.isolation_level = None
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(2):
            assert not shop.map._opened(shop.map._small_update)  # another process has to wait
        (again,) = other.execute("SELECT COUNT(*) FROM symbol").fetchone()
    assert shop.titles("fresh") == ["shop/views.py:1 function fresh"]
    assert again
    monkeypatch.setattr(index_of_map, "LEAST_FREE_BYTES", 1 << 62)
    index = MapIndex(path, shop.root)
    with contextlib.closing(index), pytest.raises(PersistenceError, match="are free"):
        index.update(Changes(), [*filter(is_code, SHOP), "shop/new.py"])
    assert shop.titles("fresh") == ["shop/views.py:1 function fresh"]
    (foreign := tmp_path / "foreign.db").write_bytes(b"")
    path.unlink()
    path.symlink_to(foreign)
    with pytest.raises(MapFailed, match="it is a link"):
        shop.titles("Cart")
    assert foreign.read_bytes() == b""


@pytest.mark.spec("MEM-3")
def test_a_file_is_not_blamed_where_its_reader_was_told_to_end(shop: Shop) -> None:
    shop.maps.mkdir()
    path = map_file(shop.maps, shop.root)
    left = path.with_name(f"{path.stem}.{2**22 + 1}.reading")
    left.write_text("shop/cart.py")
    forget_reading(path)
    assert not left.exists()


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_who_asks_does_not_wait_for_the_map_that_yields_to_all(shop: Shop) -> None:
    shop.maps.mkdir()
    lock = os.open(lock_of(map_file(shop.maps, shop.root)), os.O_CREAT | os.O_RDWR, 0o600)

    async def ask() -> int:
        early = asyncio.create_task(shop.map.update(CancelToken(), is_early=True))
        await asyncio.sleep(0)
        asked = asyncio.create_task(shop.map.symbols("Cart", "", None, CancelToken()))
        await early  # it ends, though it has not got its turn
        fcntl.flock(lock, fcntl.LOCK_UN)
        return len((await asked)[0])

    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert asyncio.run(ask()) == 2
    finally:
        os.close(lock)


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_maps_that_nobody_asks_go_with_the_next_pass(shop: Shop) -> None:
    shop.maps.mkdir()
    old, new, own = shop.maps / "old.db", shop.maps / "new.db", map_file(shop.maps, shop.root)
    for path, age_days in ((old, 40), (new, 1), (own, 40)):
        path.write_bytes(b"")
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age_days * 86_400))
    shop.titles("Cart")
    assert (old.exists(), new.exists(), own.exists()) == (False, True, True)


@pytest.mark.spec("MEM-3", "OPS-1")
@pytest.mark.parametrize(
    ("mounts", "is_local"),
    [
        ("1 1 0:1 / / rw - ext4 d rw", True),
        ("1 1 0:1 / / rw - nfs4 d rw", False),
        ("1 1 0:1 / / rw - ext4 d rw\n2 1 0:1 / /a\\040b rw - nfs4 d rw", False),
        ("1 1 0:1 / / rw - ext4 d rw\n2 1 0:1 / /a\\040b/c/share rw - cifs d rw", False),
        ("1 1 0:1 / / rw - nfs d rw\n2 1 0:1 / /a\\040b/c rw - tmpfs d rw", True),
        ("", False),
    ],
)
def test_a_share_is_known_by_its_mount_also_below_and_with_a_blank_in_its_name(
    monkeypatch: pytest.MonkeyPatch, mounts: str, *, is_local: bool
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: mounts)
    assert watch._is_local("/a b/c") == is_local
