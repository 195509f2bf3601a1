"""What is walked without ripgrep: its own cases of ignore files, the precedence of nested ones."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agentcli.tools.search.worker import parse_rules, verdict, walk, walk_project

SUITE = Path(__file__).resolve().parents[4] / "shared/suites/gitignore/gitignore.json"


def rows() -> list[Any]:
    return json.loads(SUITE.read_text()) if SUITE.exists() else []


@pytest.mark.spec("TOOL-10")
@pytest.mark.skipif(not SUITE.exists(), reason="the shared suites are not here")
@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_ripgrep_s_cases(row: dict[str, Any]) -> None:
    path, root = os.path.normpath(row["path"]), os.path.normpath(row["root"])
    path = path.removeprefix(f"{root}/")
    ignored = verdict(parse_rules(row["gitignore"]), path, is_dir=row["is_dir"]) is True
    assert ignored is row["ignored"]


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.spec("TOOL-10")
def test_nested_files_negation_exclude_and_precedence(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            ".gitignore": "*.sub\n",  # above the repository: not its business
            "repo/.git/info/exclude": "excluded\n!kept.log\n",
            "repo/.gitignore": "*.log\n/build/\n!.github\n",
            "repo/.ignore": "!important.log\nprivate\n",
            "repo/a.log": "",
            "repo/kept.log": "",
            "repo/important.log": "",
            "repo/private": "",
            "repo/excluded": "",
            "repo/a.sub": "",
            "repo/build/x": "",
            "repo/.github/ci": "",
            "repo/.hidden/x": "",
            "repo/src/.gitignore": "!b.log\n*.tmp\n",
            "repo/src/b.log": "",
            "repo/src/c.log": "",
            "repo/src/d.tmp": "",
            "repo/src/build/y": "",
            "repo/src/inner/.git/HEAD": "",
            "repo/src/inner/e.log": "",
        },
    )
    assert list(walk(str(tmp_path / "repo"))) == [
        ".github/ci",
        "a.sub",
        "important.log",
        "src/b.log",
        "src/build/y",
        "src/inner/e.log",
    ]
    assert list(walk(str(tmp_path / "repo/src"))) == ["b.log", "build/y", "inner/e.log"]


@pytest.mark.spec("SEC-13")
def test_links_fifos_and_odd_ignore_files_do_no_harm(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "", "sub/b": "", "sub/.ignore": "[\n{\n\\\n"})
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / ".gitignore")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sub/.gitignore").write_bytes(b"\xff\xfe\0\n" * 10)
    assert list(walk(str(tmp_path))) == ["a", "sub/b"]


def test_the_order_is_by_the_bytes_of_names_directory_by_directory(tmp_path: Path) -> None:
    plant(tmp_path, {name: "" for name in ("b", "a/z", "a.txt", "a-b", "B", "\u00e9", "a/b/c")})
    assert list(walk(str(tmp_path))) == ["B", "a/b/c", "a/z", "a-b", "a.txt", "b", "\u00e9"]


def test_a_project_is_listed_nearest_first_with_its_directories(tmp_path: Path) -> None:
    plant(tmp_path, {"b": "", "a/c": "", "a/no.log": "", ".git/x": "", ".gitignore": "*.log\n"})
    (tmp_path / "link").symlink_to("a")
    found = list(walk_project(str(tmp_path), lambda: False))
    assert found == [".gitignore", "a/", "b", "link", "a/c"]


@pytest.mark.spec("SEC-13")
def test_an_ignore_file_that_takes_for_ever_is_not_waited_for(tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "*a" * 40 + "*b\n", "a" * 200: ""})
    started = time.monotonic()
    found = list(walk_project(str(tmp_path), lambda: time.monotonic() > started + 0.5))
    assert found in ([], [".gitignore"]) and time.monotonic() < started + 5
