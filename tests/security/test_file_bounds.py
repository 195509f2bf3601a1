"""Files that are no files, without end, or huge: answers within bounds of memory (SEC-13).

Each row runs in a process of its own, which tells what it answered and how much it held.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.support.deep import deep_directory

pytestmark = pytest.mark.slow

MAX_RESIDENT_KB = 300 * 1024
LARGE = 330 * 1024 * 1024
MB = 1024 * 1024
ROOT = Path(__file__).resolve().parents[2]

_PROGRAM = """
import asyncio, contextlib, json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from agentcli.domain.tools import WouldFail, Workspace
from agentcli.process.run import end_processes
from agentcli.tools.common.registry import Registry
from tests.support.memory import children_peak_kib, peak_kib
from tests.tools.in_a_room import Room, text_of
from agentcli.app.files.attachments import attach

room = Room(Path(sys.argv[2]))
tools = Registry.builtin(["files"])

async def main():
    for name, arguments in json.load(sys.stdin):
        if name == "attach":
            message = await attach(arguments["text"], room.workspace, lambda _: None)
            print(json.dumps(["success", "".join(getattr(part, "text", "") for part in message.parts)]))
            continue
        tool = tools.get(name)
        args = tool.parse(arguments)
        ctx = room.context()
        ctx.judged = tool.paths(args, room.workspace)
        with contextlib.suppress(WouldFail):
            await tool.preview(args, ctx)
        output = await tool.run(args, ctx)
        print(json.dumps([output.kind.value, text_of(output)]))
    await end_processes()

asyncio.run(main())
print(json.dumps([peak_kib(), children_peak_kib()]))
"""

Call = tuple[str, dict[str, Any]]


def answers(root: Path, calls: list[Call], *, path: str | None = None) -> list[list[str]]:
    """Kind and text of each answer; what the process held is within the bound."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(ROOT), str(root)],
        env={**os.environ, "PATH": path or os.environ["PATH"]},
        input=json.dumps(calls),
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    *rows, resident = map(json.loads, done.stdout.splitlines())
    assert max(resident) < MAX_RESIDENT_KB, resident
    assert all(len(text) < 200_000 for _, text in rows)
    return rows


def every_tool(path: str) -> list[Call]:
    change = f"*** Begin Patch\n*** Update File: {path}\n@@\n-zzz\n+yyy\n*** End Patch"
    return [
        ("read_file", {"path": path}),
        ("read_file", {"path": path, "offset": 900_000_000}),
        ("stat_file", {"path": path}),
        ("edit_file", {"path": path, "old_string": "zzz\nyyy", "new_string": "x"}),
        ("apply_patch", {"patch": change}),
        ("grep_files", {"pattern": "foo", "path": path}),
        ("list_directory", {"path": path}),
        ("attach", {"text": f"@{path} @{path}:5-6"}),
    ]


# --- what is no file -----------------------------------------------------------------------------


@pytest.mark.spec("SEC-13")
@pytest.mark.timeout(120)
def test_pipes_sockets_devices_and_loops_are_answered_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to pipe").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s")) if len(str(tmp_path)) < 90 else None
        paths = ["pipe", "loop", "to pipe", "/dev/zero", "/dev/tty", "/dev/stdin", "/dev/fd/0"]
        paths += ["/proc/self/mem", "/proc/self/pagemap", "s"] if os.path.exists("/proc") else []
        calls = [call for path in paths for call in every_tool(path)]
        rows = answers(tmp_path, calls)
    for (name, arguments), (kind, text) in zip(calls, rows, strict=True):
        if name not in {"stat_file", "attach"}:
            assert kind == "tool_error", (name, arguments, text)
            assert text


@pytest.mark.spec("SEC-13")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", [None, "/nonexistent"], ids=["rg", "python"])
def test_a_directory_of_such_things_is_searched_without_waiting(
    tmp_path: Path, path: str | None
) -> None:
    os.mkfifo(tmp_path / "pipe")
    if path is not None:
        os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "root").symlink_to("/")
    (tmp_path / "file").write_text("foo\n")
    calls: list[Call] = [
        ("grep_files", {"pattern": "foo"}),
        ("glob_files", {"pattern": "*"}),
        ("list_directory", {}),
    ]
    grep, glob, listing = answers(tmp_path, calls, path=path)
    assert grep[1].splitlines()[0] == "file:1:foo"
    assert glob[1] == "file"
    assert "pipe  (a named pipe)" in listing[1]


# --- what is huge --------------------------------------------------------------------------------


def _sparse(file: BinaryIO) -> None:
    file.truncate(10 * 1024**3)


def _sparse_text(file: BinaryIO) -> None:
    file.write(b"some text\n" * 20_000)
    file.truncate(10 * 1024**3)


def _one_line(file: BinaryIO) -> None:
    file.writelines(b"x" * MB for _ in range(LARGE // MB))


def _lines(line: str) -> Callable[[BinaryIO], None]:
    def write(file: BinaryIO) -> None:
        data = line.encode()
        file.write(data * (16 * MB // len(data)))

    return write


HUGE: dict[str, Callable[[BinaryIO], None]] = {
    "sparse": _sparse,
    "sparse text": _sparse_text,
    "one line": _one_line,
    "empty lines": _lines("\n"),
    "short lines": _lines("ab\n"),
    "mixed ends": _lines("ab\ncd\r\n"),
    "wide characters": _lines("\U0001f600\n"),
    "no line": _lines("a"),
}


@pytest.fixture(scope="module", params=HUGE)
def huge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("huge").resolve() / "f"
    with path.open("wb") as file:
        HUGE[request.param](file)
    yield str(path)
    path.unlink(missing_ok=True)


@pytest.mark.spec("SEC-13", "TOOL-7", "TOOL-8")
@pytest.mark.timeout(120)
def test_huge_files_are_answered_in_bounded_memory(huge: str) -> None:
    root = Path(huge).parent
    calls = every_tool(huge)
    for old in ("\n", "ab"):
        edit = {"path": huge, "old_string": old, "new_string": "c\nd"}
        calls += [("edit_file", edit), ("edit_file", {**edit, "replace_all": True})]
    for (name, _), (kind, text) in zip(calls, answers(root, calls), strict=True):
        assert kind in {"success", "tool_error"}, (name, text)
    size = Path(huge).stat().st_size
    assert size >= 16 * MB - 10
    last: list[Call] = [("grep_files", {"pattern": "foo"}), ("delete_file", {"path": huge})]
    rows = answers(root, last, path="/nonexistent")
    assert [kind for kind, _ in rows] == ["success", "success"]
    assert not Path(huge).exists()


@pytest.mark.spec("SEC-13", "TOOL-10")
@pytest.mark.timeout(120)
def test_the_end_of_a_line_that_ripgrep_cannot_hold_is_still_found(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        _one_line(file)
        file.write(b"\nneedle\n")
    calls: list[Call] = [("grep_files", {"pattern": "needle"})]
    assert "needle" in answers(tmp_path, calls)[0][1]


@pytest.mark.spec("SEC-13")
@pytest.mark.timeout(120)
def test_overwriting_a_huge_file_shows_a_bounded_diff(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        _lines("ab\n")(file)
    rows = answers(tmp_path, [("write_file", {"path": "f", "content": "x\n" * 200_000})])
    assert rows[0][0] == "success"
    assert (tmp_path / "f").read_text() == "x\n" * 200_000


@pytest.mark.spec("SEC-13", "TOOL-8")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("a" * 16 * MB, "a" * 8 * MB, "b"),
        ("a" * 100_001, "aa", "b"),
        ("a\n" * 100_000, "a\n", "b\n"),
        ("ab\n" * 5 * MB, "ab \n" * 100_000, "b"),
        ("  a\n" * 199_999, "a\n" * 50_000 + "b", "b"),
        ("ab\r\ncd\n" * 90_000, "cd", "x\ny\n" * 1_000),
    ],
    ids=["half", "overlaps", "lines", "other ends", "loosely", "large result"],
)
def test_edits_with_very_many_places_end(tmp_path: Path, text: str, old: str, new: str) -> None:
    (tmp_path / "f").write_bytes(text.encode())
    edit = {"path": "f", "old_string": old, "new_string": new}
    rows = answers(tmp_path, [("edit_file", edit), ("edit_file", {**edit, "replace_all": True})])
    assert rows[0][0] == "tool_error"


# --- what is many --------------------------------------------------------------------------------


@pytest.fixture
def deep_tree(tmp_path: Path) -> Iterator[Path]:
    """A directory with a thousand levels."""
    with deep_directory(tmp_path, 1_000) as directory:
        yield directory


@pytest.mark.spec("SEC-13", "TOOL-10")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", [None, "/nonexistent"], ids=["rg", "python"])
def test_a_directory_of_many_and_a_tree_of_a_thousand_levels(
    deep_tree: Path, path: str | None
) -> None:
    many = deep_tree / "many"
    many.mkdir()
    (many / "foo").touch()
    for number in range(20_000):
        os.link(many / "foo", many / f"{number}-{'x' * 100}")
    deep = "d/" * 1_000 + "leaf"
    calls: list[Call] = [
        ("list_directory", {"path": "many"}),
        ("glob_files", {"pattern": "many/*"}),
        ("glob_files", {"pattern": "leaf"}),
        ("grep_files", {"pattern": "foo"}),
        ("write_file", {"path": deep, "content": "deep\n"}),
        ("read_file", {"path": deep}),
        ("attach", {"text": "@many @d"}),
    ]
    rows = answers(deep_tree, calls, path=path)
    assert [kind for kind, _ in rows] == ["success"] * len(calls)
    assert "20,001 entries" in rows[0][1]
    assert deep in rows[2][1]
    assert "deep" in rows[5][1]
