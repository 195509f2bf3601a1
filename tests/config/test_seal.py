"""A mark that only this installation can make."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentcli.config.seal import is_sealed, seal


@pytest.mark.spec("SEC-3", "SEC-9")
def test_a_mark_holds_for_its_text_and_its_key_only(tmp_path: Path) -> None:
    here, there = tmp_path / "here/seal.key", tmp_path / "there/seal.key"
    mark = seal(here, "text \udc80")
    assert is_sealed(here, "text \udc80", mark)
    assert not is_sealed(here, "text", mark)
    assert not is_sealed(there, "text \udc80", mark)
    assert not is_sealed(here, "text \udc80", "") and not is_sealed(here, "text", "\udc80é")
    assert stat.S_IMODE(here.stat().st_mode) == 0o600
    assert os.listdir(here.parent) == ["seal.key"]


def test_those_who_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        marks = set(pool.map(lambda _: seal(tmp_path / "seal.key", "x"), range(16)))
    assert len(marks) == 1


@pytest.mark.spec("SEC-3")
def test_where_there_is_no_key_nothing_is_marked_and_nothing_holds(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "short").write_text("too short")
    (tmp_path / "real").write_bytes(b"k" * 32)
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    for path in ("file/seal.key", "short", "link", "pipe"):
        assert not seal(tmp_path / path, "x")
        assert not is_sealed(tmp_path / path, "x", "")
