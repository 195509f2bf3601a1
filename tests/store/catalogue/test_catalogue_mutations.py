"""Whatever bytes of the catalogue have changed: lists and searches answer as the files do."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from agentcli.store import files as module
from agentcli.store.files import SessionFiles
from tests.store.repair.mutations import hit
from tests.store.sessions import make, now

BATCH = 25
Answers = tuple[list[str], list[str], set[tuple[str, int]], str]


def answers(files: SessionFiles) -> Answers:
    hits = now(files.search("heron"))
    latest = now(files.latest("/work/0"))
    return (
        [f"{info.id} {info.title} {info.cwd} {info.turns}" for info in now(files.list())],
        [info.id for info in now(files.newest(3))],
        {(hit.session_id, hit.seq) for hit in hits},
        latest.id if latest else "",
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SessionFiles:
    """Ten sessions in their catalogue, indexed."""
    directory = tmp_path_factory.mktemp("whole")
    files = SessionFiles(directory / "sessions", directory / "catalogue.db")
    for number in range(10):
        make(files, f"a heron {'stands ' * number} {number}", cwd=f"/work/{number % 2}")
    answers(files)
    return files


def prove(whole: SessionFiles, directory: Path, seed: int) -> None:
    directory.mkdir(parents=True)
    copy = directory / "catalogue.db"
    for name in whole.catalogue.path.parent.glob("catalogue.db*"):
        shutil.copy(name, directory)
    dice = random.Random(seed)
    what = hit(copy, dice)
    files = SessionFiles(whole.directory, copy)
    order = dice.choice([files.list, lambda: files.newest(3), lambda: files.search("heron")])
    now(order())  # type: ignore[arg-type] # whichever is asked first
    assert answers(files) == answers(whole), f"seed {seed}: {what}"
    assert files.catalogue.warning is None, f"seed {seed}: {what}"


@pytest.mark.spec("REC-7", "SCALE-6")
@pytest.mark.parametrize("most", [2_000, 5], ids=["few", "many"])
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_catalogue_changes_no_answer(
    whole: SessionFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    monkeypatch.setattr(module, "VERY_MANY", most)
    prove(whole, tmp_path / "copy", seed)


@pytest.mark.slow
@pytest.mark.spec("REC-7", "SCALE-6")
@pytest.mark.parametrize("most", [2_000, 5], ids=["few", "many"])
@pytest.mark.parametrize("start", range(0, 200, BATCH))
def test_no_damage_of_the_catalogue_changes_an_answer(
    whole: SessionFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, most: int
) -> None:
    monkeypatch.setattr(module, "VERY_MANY", most)
    for seed in range(start, start + BATCH):
        prove(whole, tmp_path / str(seed), seed)
