"""``--record`` and ``--replay``: a run again, without its network, its key or its server (TT-4)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Finished, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.replies import Call, calls, fails, say

KEY = "sk-ant-api03-" + "c4N4rY" * 8


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (path / "notes.txt").write_text("one\ntwo\n")
    return path


def record(
    server: ModelServer, work: Path, *args: str, protocol: str = ANTHROPIC, **env: str
) -> Finished:
    command = ("run", "--record", "../run.jsonl", *args, "read the notes")
    return run_agent(*command, env=agent_env(server, protocol, **env), cwd=work)


def replay(work: Path, *args: str, prompt: str = "read the notes") -> Finished:
    return run_agent("run", "--replay", "../run.jsonl", *args, prompt, env=agent_env(), cwd=work)


def lines_of(work: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (work.parent / "run.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.spec("TT-4", "CLI-4")
@pytest.mark.parametrize(
    "protocol",
    [
        ANTHROPIC,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (OPENAI, RESPONSES, GEMINI)),
    ],
)
def test_a_recorded_run_is_repeated_without_server_or_key(
    model_server: ModelServer, work: Path, protocol: str
) -> None:
    reading = Call("read_file", {"path": "notes.txt"})
    running = Call("bash", {"command": "wc -l notes.txt; pwd"})
    model_server.add(
        calls(reading, running, text="Ünïcode: I look.", thinking="Hm."), say("Two lines.")
    )
    first = record(model_server, work, "-o", "json", protocol=protocol)
    assert first.code == 0, first.stderr
    assert (work.parent / "run.jsonl").stat().st_mode & 0o777 == 0o600
    asked = len(model_server.requests)
    model_server.close()
    elsewhere = work.with_name("elsewhere")
    work.rename(elsewhere)
    again = replay(elsewhere, "-o", "json")
    assert again.code == 0, again.stderr
    for name in ("result", "usage", "num_turns", "total_cost_usd"):
        assert again.result[name] == first.result[name]
    assert len(model_server.requests) == asked == 2


@pytest.mark.sampled
@pytest.mark.spec("TT-4", "SEC-9")
@pytest.mark.parametrize("piece", [3, 400])
def test_no_key_is_in_a_record_however_it_came_into_the_run(
    model_server: ModelServer, work: Path, piece: int
) -> None:
    (work / "notes.txt").write_text(f"the key is {KEY}\n")
    model_server.add(
        calls(Call("read_file", {"path": "notes.txt"}), text=f"I look for {KEY}.", piece=piece),
        say(f"It is {KEY}!", thinking=f"so {KEY}", piece=piece),
    )
    done = record(model_server, work, ANTHROPIC_API_KEY=KEY)
    assert done.code == 0, done.stderr
    kept = (work.parent / "run.jsonl").read_text()
    assert KEY not in kept and "x-api-key" not in kept.lower()
    spelled = "".join(
        json.loads(line[5:]).get("delta", {}).get(kind, "")
        for entry in lines_of(work)[1:]
        for kind in ("text", "thinking", "partial_json")
        for line in "".join(entry["pieces"]).split("\n")
        if line.startswith("data:")
    )
    assert KEY not in spelled and "It is [redacted" in spelled
    again = replay(work)
    assert again.code == 0 and "It is [redacted" in again.stdout, again.stderr


@pytest.mark.slow
@pytest.mark.spec("TT-4", "CLI-11")
def test_a_request_that_differs_is_told_of_with_what_differs(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add(calls(Call("read_file", {"path": "notes.txt"})), say("Two lines."))
    assert record(model_server, work).code == 0
    done = replay(work, prompt="read the novel")
    assert done.code not in {0, None} and done.stdout == ""
    error = done.stderr.splitlines()[-1]
    for told in ("request 1 differs", "messages[0].content", "read the no", "tes", "vel"):
        assert told in error, error
    (work / "notes.txt").write_text("one\ntwo\nthree\n")
    done = replay(work)
    assert done.code not in {0, None} and "request 2 differs" in done.stderr, done.stderr
    (work / "notes.txt").write_text("one\ntwo\n")
    around = replay(work, "--append-system-prompt", "Be brief.")
    assert around.code == 0 and "around the conversation request 1 differs" in around.stderr
    entries = (work.parent / "run.jsonl").read_text().splitlines(keepends=True)
    (work.parent / "run.jsonl").write_text("".join(entries[:2]))
    done = replay(work)
    assert "ends after request 1" in done.stderr and done.code not in {0, None}


@pytest.mark.slow
@pytest.mark.spec("TT-4")
def test_failures_are_recorded_and_happen_again(model_server: ModelServer, work: Path) -> None:
    model_server.add(fails(529, retry_after="0"), say("Late.", drop_at="headers"), say("Late."))
    first = record(model_server, work)
    assert first.code == 0, first.stderr
    assert [entry["end"] for entry in lines_of(work)[1:]] == ["refused", "failed", "complete"]
    model_server.close()
    again = replay(work)
    assert (again.code, again.stdout) == (0, first.stdout), again.stderr


@pytest.mark.slow
@pytest.mark.spec("TT-4", "CLI-11")
def test_files_that_are_no_records_are_left_alone_and_told_of(
    model_server: ModelServer, work: Path
) -> None:
    target = work.parent / "run.jsonl"
    target.write_text("precious\n")
    done = record(model_server, work)
    assert done.code == 2 and "is no record" in done.stderr and target.read_text() == "precious\n"
    assert replay(work).code == 2
    for text in ("", '{"format":"agentcli-record/1"}\n{"number":1}\n', '{"format":"other"}\n'):
        target.write_text(text)
        done = replay(work)
        assert done.code == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    entry = {"number": 1, "after": 0, "status": 200, "protocol": "evil\x1b[2J"}
    entry |= {"model": "openai/m", "request": {}, "pieces": [], "end": "complete"}
    target.write_text(f'{{"format":"agentcli-record/1","model":"openai/m"}}\n{json.dumps(entry)}\n')
    done = replay(work)
    assert done.code == 78 and "no protocol that is known" in done.stderr, done.stderr
    assert "\x1b" not in done.stderr
    target.unlink()
    assert replay(work).code == 2
    os.symlink(work / "notes.txt", target)
    assert record(model_server, work).code == 2
    both = run_agent("run", "--record", "a", "--replay", "b", "x", env=agent_env(), cwd=work)
    assert both.code == 2 and "exclude each other" in both.stderr
    assert not model_server.requests
