"""Reading: pages, encodings, images, notebooks, and everything that is no text file."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcli.domain import images
from agentcli.domain.cancel import CancelReason
from agentcli.domain.errors import InvalidArguments
from agentcli.domain.messages import ImagePart
from agentcli.domain.tools import Asks, OutputKind
from agentcli.tools.common.base import MAX_CHARS
from agentcli.tools.files.images import reencode_image
from agentcli.tools.read_file import TOOL, _read
from agentcli.tools.write_file import TOOL as WRITE_FILE
from tests.support.histories import png
from tests.tools.in_a_room import Room, failed, ok, room, text_of

__all__ = ["room"]


def numbered(*lines: str, start: int = 1) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, start))


@pytest.mark.spec("TOOL-7")
def test_lines_are_numbered(room: Room) -> None:
    room.write("a.txt", "one\n\n  three")
    output = room.run(TOOL, path="a.txt")
    assert ok(output) == numbered("one", "", "  three")
    assert output.summary == "3 lines"


@pytest.mark.spec("TOOL-7")
def test_a_part_is_given_by_offset_and_limit(room: Room) -> None:
    room.write("a.txt", "".join(f"line {n}\n" for n in range(1, 11)))
    assert ok(room.run(TOOL, path="a.txt", offset=4, limit=2)) == (
        numbered("line 4", "line 5", start=4)
        + "\n[lines 4-5 of a file of 71 bytes; go on with offset=6]"
    )
    assert ok(room.run(TOOL, path="a.txt", offset=10)) == (
        numbered("line 10", start=10) + "\n[lines 10-10 of 10, the end of the file]"
    )
    assert ok(room.run(TOOL, path="a.txt", offset=0, limit=10)).endswith("line 10")


@pytest.mark.spec("TOOL-7")
def test_beyond_the_end_and_empty_are_said_so(room: Room) -> None:
    room.write("a.txt", "one\ntwo\n")
    room.write("empty", "")
    assert "has 2 lines" in failed(room.run(TOOL, path="a.txt", offset=3))
    assert "is empty" in ok(room.run(TOOL, path="empty"))


@pytest.mark.spec("TOOL-6", "TOOL-7")
def test_a_page_ends_at_a_line_when_its_size_is_reached(room: Room) -> None:
    room.write("a.txt", "".join(f"{n:04} {'x' * 95}\n" for n in range(1, 1001)))
    seen, offset = [], 1
    while offset <= 1000:
        text = ok(room.run(TOOL, path="a.txt", offset=offset))
        assert len(text) <= MAX_CHARS
        rows = [row for row in text.split("\n") if not row.startswith("[")]
        seen += [row.split("\t")[1] for row in rows]
        offset += len(rows)
    assert "".join(f"{line}\n" for line in seen) == (room.root / "a.txt").read_text()


@pytest.mark.spec("TOOL-7")
def test_the_default_limit_is_2000_lines(room: Room) -> None:
    room.write("a.txt", "x\n" * 3000)
    assert "[lines 1-2000 of a file" in ok(room.run(TOOL, path="a.txt"))


@pytest.mark.spec("TOOL-7")
def test_an_over_long_line_is_cut_and_said_so(room: Room) -> None:
    room.write("a.txt", "x" * 5000 + "\nend\n")
    text = ok(room.run(TOOL, path="a.txt"))
    assert "… [3,000 more characters in this line]" in text
    assert "1 line too long" in text
    assert "     2\tend" in text


@pytest.mark.spec("TOOL-7", "SEC-13")
def test_a_huge_sparse_file_is_read_in_pages_without_being_loaded(room: Room) -> None:
    path = room.write("big.log", b"".join(b"%99d\n" % number for number in range(1, 120_001)))
    os.truncate(path, 10 * 1024**3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = ok(room.run(TOOL, path="big.log", offset=100_003, limit=2))
    grown_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert text.startswith(numbered(f"{100_003:99}", f"{100_004:99}", start=100_003))
    assert "of a file of 10.0 GB; go on with offset=100005]" in text
    assert grown_kilobytes < 64 * 1024
    assert room.ledger.seen[path].startswith("stat:")


@pytest.mark.spec("TOOL-7", "SEC-13")
def test_a_cancel_stops_a_long_scan(room: Room) -> None:
    path = room.write("big.txt", "a\n")
    os.truncate(path, 64 * 1024**3)
    with path.open("r+b") as file:
        file.write(b"a" * 70_000)

    async def go() -> OutputKind:
        task = asyncio.create_task(
            TOOL.run(TOOL.parse({"path": "big.txt", "offset": 5}), room.context())
        )
        await asyncio.sleep(0)
        room.cancel.cancel(CancelReason.USER)
        return (await task).kind

    assert asyncio.run(go()) is OutputKind.CANCELLED


def test_no_scan_goes_on_after_the_task_was_cancelled(room: Room) -> None:
    path = room.write("big.txt", "a\n")
    os.truncate(path, 64 * 1024**3)
    with path.open("r+b") as file:
        file.write(b"a" * 70_000)

    async def go() -> None:
        task = asyncio.create_task(
            TOOL.run(TOOL.parse({"path": "big.txt", "offset": 5}), room.context())
        )
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.get_running_loop().shutdown_default_executor()  # joins the thread

    asyncio.run(go())
    assert not [thread for thread in threading.enumerate() if "asyncio" in thread.name]


@pytest.mark.spec("TOOL-8")
def test_a_change_made_during_the_read_counts_as_not_seen(room: Room) -> None:
    path = room.write("a.txt", "old\n")

    def somebody_writes() -> bool:
        path.write_text("new\n")
        return False

    assert "old" in ok(_read(TOOL.parse({"path": "a.txt"}), room.context(), somebody_writes))
    assert "changed since" in failed(room.run(WRITE_FILE, path="a.txt", content="mine\n"))
    assert path.read_text() == "new\n"


# --- encodings -----------------------------------------------------------------------------


@pytest.mark.spec("TOOL-7")
@pytest.mark.parametrize(
    ("codec", "label"),
    [
        ("utf-8", ""),
        ("utf-8-sig", "UTF-8 with BOM"),
        ("utf-16", "UTF-16-LE"),
        ("utf-16-be", "UTF-16-BE"),
        ("utf-32", "UTF-32-LE"),
        ("latin-1", "Latin-1"),
    ],
)
def test_text_in_any_encoding_is_read_and_the_encoding_told(
    room: Room, codec: str, label: str
) -> None:
    room.write("a.txt", "caf\u00e9 one\nand some more plain text\n".encode(codec))
    text = ok(room.run(TOOL, path="a.txt"))
    assert text.startswith(numbered("caf\u00e9 one", "and some more plain text"))
    assert (f"encoding: {label}" in text) == bool(label)


@pytest.mark.spec("TOOL-7", "HIS-8")
def test_bad_bytes_are_replaced_and_carriage_returns_told(room: Room) -> None:
    room.write("a.txt", "\u00e4\u00f6\u00fc\r\n".encode() + b"bad \xff byte\r\n")
    text = ok(room.run(TOOL, path="a.txt"))
    assert numbered("\u00e4\u00f6\u00fc", "bad \ufffd byte") in text
    assert "UTF-8 with invalid bytes; line ends are CRLF" in text
    text.encode()


# --- what is no text -----------------------------------------------------------------------


@pytest.mark.spec("TOOL-7")
@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("a.bin", bytes(range(256)) * 8, "binary"),
        ("a", b"\x7fELF\x02\x01", "ELF"),
        ("a.zip", b"PK\x03\x04....", "ZIP"),
        ("a.db", b"SQLite format 3\x00...", "SQLite"),
        ("a.txt", b"text with a \x00 in it", "binary"),
    ],
)
def test_binary_files_are_refused_with_type_and_size(
    room: Room, name: str, data: bytes, word: str
) -> None:
    room.write(name, data)
    message = failed(room.run(TOOL, path=name))
    assert word in message
    assert "bytes)" in message or "KB)" in message


@pytest.mark.spec("TOOL-7")
@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0....", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_images_come_as_images(room: Room, data: bytes, media_type: str) -> None:
    room.write("picture", data)
    output = room.run(TOOL, path="picture")
    assert media_type in ok(output)
    assert output.parts[1] == ImagePart(media_type, data)


@pytest.mark.spec("TOOL-7", "SEC-13")
def test_an_image_that_is_too_large_is_refused(room: Room) -> None:
    path = room.write("a.png", b"\x89PNG\r\n\x1a\n")
    os.truncate(path, 20_000_001)
    assert "smaller" in failed(room.run(TOOL, path="a.png"))


@pytest.mark.slow
@pytest.mark.spec("TOOL-7", "HIS-8")
def test_an_image_that_has_to_be_made_smaller_for_the_model_is_read_all_the_same(
    room: Room,
) -> None:
    data = png(2_400, 1_700, noise=True)
    assert len(data) > images.MAX_IMAGE_BYTES
    room.write("photo.png", data)
    output = room.run(TOOL, path="photo.png")
    (image,) = [part for part in output.parts if isinstance(part, ImagePart)]
    assert image == ImagePart("image/png", data)
    sent = asyncio.run(reencode_image(image))
    assert not isinstance(sent, str) and images.judge(sent).image == sent


@pytest.mark.spec("TOOL-7")
def test_a_notebook_is_shown_as_cells(room: Room) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "id": "c1",
            "source": "print(1)",
            "outputs": [
                {"output_type": "stream", "text": ["1\n"]},
                {
                    "output_type": "display_data",
                    "data": {"image/png": "QUJD", "text/plain": "<Fig>"},
                },
                {"output_type": "error", "ename": "E", "evalue": "bad"},
            ],
        },
    ]
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "python"}}}
    room.write("n.ipynb", json.dumps(notebook))
    room.write("broken.ipynb", '{"cells": 3}')
    text = ok(room.run(TOOL, path="n.ipynb"))
    for part in (
        "# Title",
        "cell 2 (code python, c1)",
        "print(1)",
        "<Fig>",
        "[image/png not shown]",
        "E: bad",
        "a notebook",
    ):
        assert part in text
    assert "QUJD" not in text
    assert numbered('{"cells": 3}') == ok(room.run(TOOL, path="broken.ipynb"))


@pytest.mark.spec("SEC-13")
def test_pipes_sockets_and_devices_are_refused_without_blocking(room: Room) -> None:
    os.mkfifo(room.root / "pipe")
    (room.root / "link").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(room.root / "sock"))
        assert "a named pipe" in failed(room.run(TOOL, path="pipe"))
        assert "a character device" in failed(room.run(TOOL, path="link"))
        assert "a socket" in failed(room.run(TOOL, path="sock"))


def test_directories_missing_files_and_circles_are_clear_errors(room: Room) -> None:
    room.write("src/app.py", "x\n")
    (room.root / "loop").symlink_to("loop")
    assert "list_directory" in failed(room.run(TOOL, path="src"))
    assert "Did you mean src/app.py?" in failed(room.run(TOOL, path="src/App.py"))
    assert "nor does its directory" in failed(room.run(TOOL, path="nowhere/a"))
    assert "circle" in failed(room.run(TOOL, path="loop"))
    assert "directory" in failed(room.run(TOOL, path="/"))


# --- earlier output ------------------------------------------------------------------------


@pytest.mark.spec("TOOL-6")
def test_the_output_of_an_earlier_call_is_read_in_pages(room: Room) -> None:
    room.outputs.kept["call_9"] = b"one\ntwo\n" + b"x" * 3000 + b"\nend\n"
    assert room.paths(TOOL, path="output://call_9") == ()
    text = ok(room.run(TOOL, path="output://call_9", offset=2, limit=3))
    assert text.startswith(numbered("two", "x" * 2000, "x" * 1000, start=2))
    assert "no stored output" in failed(room.run(TOOL, path="output://other"))


# --- the rest ------------------------------------------------------------------------------


@pytest.mark.spec("TOOL-1")
def test_a_read_says_in_a_line_what_it_reads() -> None:
    def line(**arguments: object) -> str:
        return TOOL.summary(TOOL.parse({"path": "src/app.py", **arguments}))

    assert line() == "Read src/app.py"
    assert line(offset=1, limit=80) == "Read src/app.py:1-80"
    assert line(offset=5) == "Read src/app.py:5-"
    assert TOOL.summary(TOOL.parse({"path": "a\nb\x1b[2J"})) == "Read a\\nb\\x1b[2J"
    assert TOOL.asks is Asks.NOTHING


@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize(
    "arguments", [{}, {"path": 3}, {"path": "a", "limit": 0}, {"path": "a", "x": 1}]
)
def test_bad_arguments_are_named(arguments: dict) -> None:
    with pytest.raises(InvalidArguments):
        TOOL.parse(arguments)


@pytest.mark.spec("TOOL-7")
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    content=st.text(st.sampled_from("ab\n\r\u00e4"), max_size=60),
    offset=st.integers(1, 12),
    limit=st.integers(1, 12),
)
def test_a_page_is_what_its_lines_say(
    tmp_path_factory, content: str, offset: int, limit: int
) -> None:
    room = Room(tmp_path_factory.mktemp("r").resolve())
    room.write("a.txt", content)
    lines = content.split("\n" if "\n" in content else "\r")
    if not lines[-1]:
        lines.pop()
    wanted = [line.removesuffix("\r") for line in lines[offset - 1 : offset - 1 + limit]]
    output = room.run(TOOL, path="a.txt", offset=offset, limit=limit)
    if wanted:
        assert ok(output).startswith(numbered(*wanted, start=offset))
    elif lines:
        failed(output)
    else:
        assert "is empty" in text_of(output)
