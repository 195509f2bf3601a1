"""The book of trusted directories: what is not exactly what was shown is not trusted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.config.paths import Paths
from agentcli.config.project import Standing, decide, standing


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    home = tmp_path / "home"
    return Paths(home, home, home)


@pytest.mark.spec("SEC-1")
def test_nothing_is_trusted_before_it_was_said(paths: Paths, tmp_path: Path) -> None:
    assert standing(paths, tmp_path, "") is Standing.UNKNOWN


@pytest.mark.spec("SEC-1")
def test_a_directory_is_trusted_with_the_very_configuration_that_was_shown(
    paths: Paths, tmp_path: Path
) -> None:
    decide(paths, tmp_path, "one", trusted=True)
    assert standing(paths, tmp_path, "one") is Standing.TRUSTED
    assert standing(paths, tmp_path, "two") is Standing.CHANGED
    assert standing(paths, tmp_path / "below", "one") is Standing.UNKNOWN
    assert standing(paths, tmp_path.parent, "one") is Standing.UNKNOWN


@pytest.mark.spec("SEC-1")
def test_a_no_is_kept_and_can_be_taken_back(paths: Paths, tmp_path: Path) -> None:
    decide(paths, tmp_path, "one", trusted=False)
    assert standing(paths, tmp_path, "two") is Standing.REFUSED
    decide(paths, tmp_path, "two", trusted=True)
    assert standing(paths, tmp_path, "two") is Standing.TRUSTED


@pytest.mark.spec("SEC-1", "SEC-5")
def test_a_link_is_as_trusted_as_what_it_leads_to(paths: Paths, tmp_path: Path) -> None:
    real, other, link = tmp_path / "real", tmp_path / "other", tmp_path / "link"
    real.mkdir()
    other.mkdir()
    link.symlink_to(real)
    decide(paths, link, "", trusted=True)
    assert standing(paths, real, "") is Standing.TRUSTED
    link.unlink()
    link.symlink_to(other)
    assert standing(paths, link, "") is Standing.UNKNOWN


@pytest.mark.spec("SEC-9")
def test_the_book_is_for_its_owner_only(paths: Paths, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        decide(paths, tmp_path, "", trusted=True)
    finally:
        os.umask(old)
    assert paths.trust_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("SEC-1", "SEC-13")
@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"directories": 3}', '{"directories": {"HERE": true}}', "[" * 100_000]
)
def test_a_book_that_cannot_be_read_trusts_nothing(paths: Paths, tmp_path: Path, text: str) -> None:
    paths.config_dir.mkdir()
    paths.trust_file.write_text(text.replace("HERE", str(tmp_path)))
    assert standing(paths, tmp_path, "") is Standing.UNKNOWN
    decide(paths, tmp_path, "", trusted=True)
    assert standing(paths, tmp_path, "") is Standing.TRUSTED
