"""A mark that only this installation can make."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentcli.config.seal import HomeSeal


@pytest.mark.spec("SEC-16", "SEC-9")
def test_a_mark_is_that_of_its_text_and_its_key_only(tmp_path: Path) -> None:
    here, there = tmp_path / "here/seal.key", tmp_path / "there/seal.key"
    mark = HomeSeal(here)("text \udc80")
    assert mark and HomeSeal(here)("text \udc80") == mark
    assert HomeSeal(here)("text") != mark
    assert HomeSeal(there)("text \udc80") != mark
    assert stat.S_IMODE(here.stat().st_mode) == 0o600
    assert os.listdir(here.parent) == ["seal.key"]
    here.rename(tmp_path / "moved")
    assert HomeSeal(tmp_path / "moved")("text \udc80") == mark


def test_those_who_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        marks = set(pool.map(lambda _: HomeSeal(tmp_path / "seal.key")("x"), range(16)))
    assert len(marks) == 1


@pytest.mark.spec("SEC-16")
def test_where_there_is_no_key_nothing_is_marked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "short").write_text("too short")
    (tmp_path / "real").write_bytes(b"k" * 32)
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    for path in ("file/seal.key", "short", "link", "pipe"):
        assert not HomeSeal(tmp_path / path)("x")
