"""Images dropped into the input, and those from the clipboard."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.domain.errors import UsageError
from agentcli.repl.images import KEPT_S, clipboard_image, may_name_images, named_images

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
