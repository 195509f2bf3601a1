"""``output.log`` and ``result.json``: bounded, private, redacted, and no fault of the run's."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from agentcli.domain.background import MAX_LOG_CHARS
from agentcli.engine.background.log import TRUNCATED, RunLog, read_log, write_result


def hide(text: str) -> str:
    return text.replace("secret", "*")


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    log = RunLog(tmp_path / "runs" / "bg_1" / "output.log", hide)
    log.open()
    return log


@pytest.mark.spec("BG-4", "SEC-9")
def test_a_secret_in_two_pieces_is_hidden_and_lines_come_at_once(log: RunLog) -> None:
    log.add("one\ntwo sec")
    log.flush()
    assert log.path.read_text() == "one\n"
    log.add("ret\nthree")
    log.flush()
    assert log.path.read_text() == "one\ntwo *\n"
    log.flush()  # nothing came meanwhile
    assert log.path.read_text() == "one\ntwo *\nthree"
    log.close()
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700


@pytest.mark.spec("BG-4", "SEC-9")
@pytest.mark.parametrize("place", range(2043, 2054))
def test_a_secret_in_a_long_line_is_hidden_wherever_the_line_is_cut(
    log: RunLog, place: int
) -> None:
    log.add("x" * 5000 + "secret" + "y" * (place - 6))
    log.flush()
    assert log.path.read_text()
    log.add("\n")
    log.close()
    assert log.path.read_text() == f"{'x' * 5000}*{'y' * (place - 6)}\n"


@pytest.mark.spec("BG-4")
@pytest.mark.parametrize("over", [0, 1, 500_000])
def test_the_log_takes_so_many_characters_and_counts_the_rest(log: RunLog, over: int) -> None:
    taken = [log.add("ä" * 1024) for _ in range(MAX_LOG_CHARS // 1024)]
    assert all(taken)
    if over:
        assert not log.add("b" * over)
    assert log.received == MAX_LOG_CHARS + over
    log.flush()
    log.close("Canceled by request.")
    text = log.path.read_text()
    assert text[:MAX_LOG_CHARS] == "ä" * MAX_LOG_CHARS
    line = f"\n{TRUNCATED}\n" if over else "\n"
    assert text[MAX_LOG_CHARS:] == f"{line}Canceled by request."


@pytest.mark.spec("BG-4", "BG-7")
def test_a_later_attempt_goes_on_where_the_first_one_stopped(log: RunLog) -> None:
    log.add("x" * (MAX_LOG_CHARS - 1))
    log.close()
    again = RunLog(log.path, hide)
    again.open()
    assert again.add("y")
    assert not again.add("z")
    again.close()
    third = RunLog(log.path, hide)
    third.open()
    assert not third.add("more")
    third.close()
    end = log.path.read_text()[MAX_LOG_CHARS - 1 :]
    assert end == f"y\n{TRUNCATED}\n"


@pytest.mark.spec("FAIL-2")
def test_what_cannot_be_written_is_a_problem_and_no_exception(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    log = RunLog(tmp_path / "runs" / "bg_1" / "output.log", hide)
    log.open()
    assert "output.log" in log.problem
    assert not log.add("text")
    log.flush()
    log.close("last")
    assert "result.json" in write_result(tmp_path / "runs" / "bg_1" / "result.json", {})


@pytest.mark.spec("FAIL-2")
def test_a_full_disk_stops_the_log_and_not_the_run(log: RunLog) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._file or 0)
    os.close(full)
    assert log.add("text\n")
    log.flush()
    assert "No space left" in log.problem
    assert not log.add("more")
    log.close()


@pytest.mark.spec("SEC-9", "BG-4")
def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "bg_1"
    place.mkdir(parents=True)
    (tmp_path / "precious").write_text("kept")
    (place / "output.log").symlink_to(tmp_path / "precious")
    log = RunLog(place / "output.log", hide)
    log.open()
    log.add("text\n")
    log.close()
    assert log.problem
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.spec("BG-4")
def test_a_result_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    assert write_result(path, {"status": "canceled"}) == ""
    assert path.read_text() == '{"status":"canceled"}'
    assert write_result(path, {"status": "succeeded", "result": "\ud800ä"}) == ""
    assert json.loads(path.read_text())["status"] == "succeeded"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.spec("BG-4", "SEC-9")
def test_a_log_that_hiding_has_made_shorter_says_that_it_is_cut(log: RunLog) -> None:
    log.add("secret\n" * 9)
    log.add("x" * MAX_LOG_CHARS)
    log.flush()
    log.add("more")
    log.close()
    text = log.path.read_text()
    assert text.startswith("*\n" * 9) and text.endswith(f"x\n{TRUNCATED}\n")
    assert text.count(TRUNCATED) == 1 and len(text) <= MAX_LOG_CHARS + len(TRUNCATED) + 2


@pytest.mark.spec("BG-4", "SEC-9")
def test_a_secret_across_the_bound_is_hidden_to_its_first_letter(log: RunLog) -> None:
    log.add("x" * (MAX_LOG_CHARS - 3) + "secret and more")
    log.close()
    kept = log.path.read_text().partition("\n")[0]
    assert kept == "x" * (MAX_LOG_CHARS - 3) + "* a"


@pytest.mark.spec("BG-4")
def test_a_log_is_read_as_it_was_written(log: RunLog) -> None:
    log.add("1 %\r2 %\r\nfür\r")
    log.close()
    assert read_log(log.path) == "1 %\r2 %\r\nfür\r"


@pytest.mark.spec("BG-4")
def test_half_a_character_is_left_for_the_next_time(log: RunLog) -> None:
    log.path.write_bytes("für".encode()[:2])
    assert read_log(log.path) == "f"


@pytest.mark.spec("BG-4", "SEC-5")
@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_what_a_run_has_put_in_the_place_of_its_log_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "output.log"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (tmp_path / "key").write_text("private")
        path.symlink_to(tmp_path / "key")
    else:
        path.mkdir()
    assert read_log(path) == ""


@pytest.mark.spec("BG-4")
def test_more_than_a_log_can_have_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert len(read_log(path)) < 5 * MAX_LOG_CHARS


@pytest.mark.spec("BG-2")
def test_a_run_that_did_not_start_leaves_no_log(log: RunLog) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    log.discard()
    assert not log.path.parent.exists()
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1
