"""Images dropped into the input, and those from the clipboard."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.app.files.mentions import find_mentions
from agentcli.domain.errors import UsageError
from agentcli.repl.clipboard import (
    FOLD_CHARS,
    FOLD_LINES,
    KEPT_S,
    Pastes,
    clipboard_image,
    may_name_images,
    named_images,
)

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    directory = tmp_path / "my pictures"
    directory.mkdir()
    path = directory / "it's a (1) screen.png"
    path.write_bytes(PNG)
    return path


def program(directory: Path, name: str, body: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}


@pytest.mark.spec("UI-3")
def test_what_terminals_write_for_a_dropped_file_is_understood(image: Path) -> None:
    escaped = str(image).translate({ord(char): f"\\{char}" for char in " '()"})
    quoted = "'" + str(image).replace("'", "'\\''") + "'"
    for typed in (str(image), f"{escaped} ", quoted, f'"{image}"', image.as_uri()):
        assert may_name_images(typed), typed
        assert named_images(typed) == [image], typed
    assert named_images(f"{escaped} {image.as_uri()}\n") == [image, image]


@pytest.mark.spec("UI-3")
def test_what_is_no_path_of_an_image_stays_text(image: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.png"
    text.write_text("no image")
    os.mkfifo(tmp_path / "pipe.png")
    for typed in (
        f"look at {image}",
        str(text),
        str(tmp_path / "pipe.png"),
        str(tmp_path / "missing.png"),
        str(tmp_path),
        "relative.png",
        f"{quote(image)} {quote(text)}",
        "'unbalanced.png",
        "file://elsewhere/x.png",
        "/a\0b.png",
        "",
    ):
        assert named_images(typed) == [], typed
    assert not may_name_images("/help me with it")
    assert not may_name_images("/x" * 20_000 + ".png")


def quote(path: Path) -> str:
    return f'"{path}"'


@pytest.mark.spec("UI-3", "SEC-9")
def test_the_image_in_the_clipboard_becomes_a_private_file(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(PNG)
    env = program(tmp_path / "bin", "xclip", f"cat {tmp_path}/image") | {"DISPLAY": ":0"}
    kept = tmp_path / "state" / "images"
    path = clipboard_image(kept, tmp_path / "workspace", env)
    assert path.parent == kept
    assert path.suffix == ".png"
    assert path.read_bytes() == PNG
    assert path.stat().st_mode & 0o077 == 0
    assert kept.stat().st_mode & 0o077 == 0
    os.utime(path, (path.stat().st_mtime - KEPT_S - 60,) * 2)
    again = clipboard_image(kept, tmp_path / "workspace", env)
    assert list(kept.iterdir()) == [again]


@pytest.mark.spec("UI-3", "SEC-2")
@pytest.mark.parametrize(
    ("body", "expected"),
    [("echo text", "no image"), ("exit 1", "no image"), ("head -c 25000000 /dev/zero", "no image")],
)
def test_a_clipboard_without_an_image_says_so(tmp_path: Path, body: str, expected: str) -> None:
    env = program(tmp_path / "bin", "wl-paste", body) | {"WAYLAND_DISPLAY": "wayland-0"}
    with pytest.raises(UsageError, match=expected):
        clipboard_image(tmp_path / "kept", tmp_path / "workspace", env)
    assert not (tmp_path / "kept").exists()


@pytest.mark.spec("UI-3", "SEC-2")
def test_a_program_of_the_workspace_is_not_asked(tmp_path: Path) -> None:
    env = program(tmp_path / "bin", "pngpaste", f"touch {tmp_path}/ran") | {"DISPLAY": ":0"}
    env["PATH"] = str(tmp_path / "bin")
    with pytest.raises(UsageError, match="install wl-clipboard"):
        clipboard_image(tmp_path / "kept", tmp_path, env)
    assert not (tmp_path / "ran").exists()


# --- Folded pastes


@pytest.mark.spec("UI-3")
def test_a_short_paste_is_itself_and_a_long_one_a_sign() -> None:
    pastes = Pastes()
    assert pastes.fold("one\ntwo") == "one\ntwo"
    assert pastes.fold("\n".join("x" * 10_000)) == "[Pasted text #1 +9,999 lines]"
    assert pastes.fold("y" * (FOLD_CHARS + 1)) == "[Pasted text #2 +2,001 characters]"


@pytest.mark.spec("UI-3")
@settings(max_examples=50)
@given(st.lists(st.text("ab\n[]#1 ", max_size=40), max_size=4))
def test_signs_stand_for_what_was_pasted(texts: list[str]) -> None:
    pastes = Pastes()
    long = [text + "\n" * FOLD_LINES for text in texts]
    typed = " and ".join(map(pastes.fold, long))
    assert pastes.expand(typed) == " and ".join(long)


@pytest.mark.spec("UI-3")
def test_a_sign_that_was_edited_or_never_given_is_text() -> None:
    pastes = Pastes()
    sign = pastes.fold("\n" * 20)
    assert pastes.expand(sign[:-1]) == sign[:-1]
    assert pastes.expand("[Pasted text #7 +3 lines]") == "[Pasted text #7 +3 lines]"
    assert pastes.sign_before(f"look: {sign}") == len(sign)
    assert pastes.sign_before(f"{sign} ") == 0
    assert pastes.sign_before("[Pasted text #7 +3 lines]") == 0
    assert pastes.sign_before("]") == 0


@pytest.mark.spec("UI-3")
def test_the_sign_of_an_image_names_its_file_when_it_is_sent() -> None:
    pastes = Pastes()
    sign = pastes.image(Path('/tmp/a "b" [c].png'))
    assert sign == '[Image #1 a "b" _c_.png]'
    expanded = pastes.expand(f"look at{sign}and say")
    assert expanded == 'look at @"/tmp/a \\"b\\" [c].png" and say'
    assert next(find_mentions(expanded))[0].path == '/tmp/a "b" [c].png'
    assert pastes.sign_before(f"x {sign}") == len(sign)
    assert pastes.expand(sign.replace("a", "o")) == sign.replace("a", "o")
    assert pastes.image(Path("/tmp/2.png")) == "[Image #2 2.png]"
    pastes.forget()
    assert pastes.expand(sign) == sign
