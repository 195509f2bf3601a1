"""Whatever bytes have changed: what ``check`` calls sound, and what ``repair`` makes, goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agentcli.store.repair.check import check
from agentcli.store.repair.repair import repair
from tests.store.repair.mutations import copied, hit, made, take_up, texts_of

BATCH = 25
QUICK = (2, 21, 38, 167, 198, 324)  # a bit, a log, a copied page, a log's tail, a text, a swap


@pytest.fixture(scope="module", params=[False, True], ids=["closed", "killed"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("whole"), in_log=request.param)


def prove(whole: Path, directory: Path, seed: int) -> None:
    path = copied(whole, directory / "sessions")
    said_before = texts_of(copied(whole, directory / "before"))
    what = hit(path, random.Random(seed))
    readable = texts_of(copied(path, directory / "readable"))
    about = f"seed {seed}: {what}"
    restored: tuple[str, ...] = ()
    if problems := check(path):
        report = repair(path)
        restored = report.restored
        assert report.copy is not None, about
        assert check(path) == [], about
    said = take_up(path)
    assert check(path) == [], about
    lost = {text for text in readable if text not in said}
    assert not lost or restored, (about, problems)  # what was put right reads as it was written
    if not problems and not what.startswith("cut of .db-wal"):  # as an earlier kill leaves it
        assert all(text in said for text in said_before), about


@pytest.mark.spec("REC-7", "FAIL-3")
@pytest.mark.parametrize("seed", QUICK)
def test_a_session_goes_on_after_damage(whole: Path, tmp_path: Path, seed: int) -> None:
    prove(whole, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.spec("REC-7", "FAIL-3")
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(start, marks=pytest.mark.campaign if start % 250 else ())
        for start in range(0, 500, BATCH)
    ],
)
def test_a_session_goes_on_after_any_of_a_thousand_damages(
    whole: Path, tmp_path: Path, start: int
) -> None:
    for seed in range(start, start + BATCH):
        prove(whole, tmp_path / str(seed), seed)
