"""Files named in a prompt become a part of it, within bounds, and only files that are there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agentcli.app.files import attachments
from agentcli.app.files.attachments import attach
from agentcli.domain.images import judge
from agentcli.domain.messages import ImagePart, TextPart, UserMessage
from agentcli.domain.tools import Workspace
from tests.support.histories import png


def attached(text: str, cwd: Path, told: list[str] | None = None) -> UserMessage:
    said: list[str] = []
    message = asyncio.run(attach(text, Workspace(cwd, cwd), said.append))
    assert said == (told or [])
    return message


def blocks(text: str, cwd: Path) -> list[str]:
    message = attached(text, cwd)
    assert message.parts[0] == TextPart(text)
    assert message.typed == text
    return [part.text for part in message.parts[1:] if isinstance(part, TextPart)]


@pytest.mark.spec("UI-4")
def test_a_file_follows_the_text_that_names_it_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2")
    (tmp_path / "b c.txt").write_text("text\n")
    assert blocks('compare @a.py, (@a.py) and @"b c.txt".', tmp_path) == [
        '<attached file="a.py">\nx = 1\ny = 2\n</attached>',
        '<attached file="b c.txt">\ntext\n</attached>',
    ]


@pytest.mark.spec("UI-4")
def test_what_is_not_there_stays_as_it_was_typed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for text in (
        "ask @nobody",
        "me@a.py",
        "@pipe",
        "@pipe/x",
        "@\0",
        f"@{'x' * 5000}",
        "@~nobody/x",
    ):
        assert attached(text, tmp_path).parts == (TextPart(text),)
    assert blocks("@/dev/zero", tmp_path) == []


@pytest.mark.spec("UI-4")
def test_a_name_of_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    text = (
        'see @nope.txt, (@src/b.py:3-4), @a.py and @"no such.md"; not @nobody @app.route("/x")'
        " @v1.2 @types/node @docs:guide.md @pytest.fixture; again @nope.txt."
    )
    names = "@nope.txt, @src/b.py, @no such.md"
    told = [f"no such file: {names} - sent as typed, with nothing attached"]
    assert attached(text, tmp_path, told).parts[0] == TextPart(text)
    many = " ".join(f"@{'x' * 200}{n}.c" for n in range(9))
    said: list[str] = []
    asyncio.run(attach(many, Workspace(tmp_path, tmp_path), said.append))
    assert len(said[0]) < 500


@pytest.mark.spec("UI-4")
def test_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    assert blocks("@a.txt:3-4", tmp_path) == [
        '<attached file="a.txt" lines="3-4">\nline 3\nline 4\n</attached>'
    ]
    assert blocks("@a.txt#L9-L99", tmp_path) == [
        '<attached file="a.txt" lines="9-10">\nline 9\nline 10\n</attached>'
    ]
    assert "it has 10 lines only" in blocks("@a.txt:11", tmp_path)[0]
    (tmp_path / "a.txt:3").write_text("another file\n")
    assert "another file" in blocks("@a.txt:3", tmp_path)[0]


@pytest.mark.spec("UI-4")
def test_a_directory_is_listed(tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/a.txt").touch()
    (tmp_path / "empty").mkdir()
    for number in range(250):
        (tmp_path / f"many{number:03}").mkdir()
    assert blocks("@d/", tmp_path) == ['<attached directory="d">\na.txt\nsub/\n</attached>']
    assert blocks("@empty", tmp_path) == [
        '<attached directory="empty">\n[it is empty]\n</attached>'
    ]
    assert "[52 more]" in blocks("@./", tmp_path)[0]


@pytest.mark.spec("UI-4")
def test_an_image_is_attached_as_one(tmp_path: Path) -> None:
    data = png(2, 2)
    (tmp_path / "shot.png").write_bytes(data)
    message = attached("what is on @shot.png?", tmp_path)
    (image,) = [part for part in message.parts if isinstance(part, ImagePart)]
    assert image == ImagePart("image/png", data)
    assert judge(image).image is not None
    assert "shot.png" in message.text


@pytest.mark.spec("UI-4")
def test_other_encodings_and_binaries(tmp_path: Path) -> None:
    (tmp_path / "u16.txt").write_text("grüße\n", encoding="utf-16")
    (tmp_path / "bom.txt").write_text("x\n", encoding="utf-8-sig")
    (tmp_path / "latin.txt").write_bytes(b"gr\xfc\xdfe\r\n")
    (tmp_path / "prog").write_bytes(b"\x7fELF\0\0\0")
    (tmp_path / "empty").touch()
    found = blocks("@u16.txt @bom.txt @latin.txt @prog @empty", tmp_path)
    assert ["grüße" in found[0], ">\nx\n" in found[1]] == [True, True]
    assert "gr\ufffd\ufffde\n<" in found[2]
    assert "[is a binary file of 7 bytes, not attached]" in found[3]
    assert "[it is empty]" in found[4]


@pytest.mark.spec("UI-4", "SEC-13")
def test_what_is_attached_is_bounded_and_says_so(tmp_path: Path) -> None:
    line = "0123456789" * 10 + "\n"
    (tmp_path / "big.txt").write_text(line * 2_000)
    (tmp_path / "one-line.txt").write_text("x" * 300_000)
    with (tmp_path / "sparse.txt").open("wb") as file:
        file.write(b"begin\n" * 200_000)
        file.truncate(10_000_000_000)
    (whole,) = blocks("@big.txt", tmp_path)
    assert len(whole) < attachments.MAX_FILE_CHARS + 300
    assert "[cut: the first 594 lines of a file of 202,000 bytes; read_file has the rest]" in whole
    assert len(blocks("@one-line.txt", tmp_path)[0]) < attachments.MAX_FILE_CHARS + 300
    assert "begin" in blocks("@sparse.txt", tmp_path)[0]
    assert "lines only" in blocks("@sparse.txt:999999999", tmp_path)[0]
    for number in range(8):
        (tmp_path / f"part{number}").write_text(line * 500)
    everything = blocks(" ".join(f"@part{n}" for n in range(8)), tmp_path)
    assert sum(map(len, everything)) < attachments.MAX_CHARS + 8 * 300
    assert "not attached: too much" in everything[-1]


@pytest.mark.spec("UI-4", "SEC-13")
def test_a_text_full_of_at_signs_is_no_work(tmp_path: Path) -> None:
    assert attached("@a b " * 200_000, tmp_path).parts[1:] == ()
    for number in range(60):
        (tmp_path / f"f{number}").write_text("x")
    text = " ".join(f"@f{number}" for number in range(60))
    assert len(blocks(text, tmp_path)) == attachments.MAX_FILES


@pytest.mark.spec("UI-4")
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    assert "[cannot be read: Permission denied]" in blocks("@secret", tmp_path)[0]


@pytest.mark.spec("UI-4")
def test_a_file_elsewhere_is_the_persons_to_attach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "notes.txt").write_text("mine\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("@../notes.txt", "@~/notes.txt", f"@{tmp_path}/notes.txt"):
        (block,) = blocks(text, work)
        assert "mine\n" in block
        assert str(tmp_path) in block or "../notes.txt" in block


@pytest.mark.spec("SEC-3", "SEC-5")
def test_a_link_of_the_workspace_attaches_nothing_that_its_name_does_not_say(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for file in (tmp_path / ".ssh/id_rsa", tmp_path / "elsewhere/a.md", work / ".env"):
        file.write_text("CANARY=1\n")
    (work / "real/b.md").write_text("mine\n")
    leads = {"notes.md": "../.ssh/id_rsa", "d": "../elsewhere", "e": ".env", "f": "real/b.md"}
    for name, target in leads.items():
        (work / name).symlink_to(target)
    told: list[str] = []
    text = "See @notes.md, @d/a.md, @d and @e"
    message = asyncio.run(attach(text, Workspace(work, work), told.append))
    assert message.parts == (TextPart(text),)
    assert told[0].startswith("not attached: @notes.md, @d/a.md, @d, @e - a link leads elsewhere")
    (block,) = blocks("@f", work)
    assert "mine\n" in block
    for named in ("@.env", f"@{tmp_path}/elsewhere/a.md", "@../.ssh/id_rsa"):
        assert "CANARY" in blocks(named, work)[0]
