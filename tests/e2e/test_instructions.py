"""Instructions with the whole program: what reaches the model, when, and how often."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat
from tests.e2e.one_shot import check_sessions, one_shot
from tests.support.cli import MODELS, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer, Recorded
from tests.support.replies import Call, Tokens, calls, say

pytestmark = pytest.mark.sampled

READ = Call("read_file", {"path": "sub/x.py"})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    (path / "sub").mkdir(parents=True)
    (path / ".git").mkdir()
    (path / "AGENTS.md").write_text("ROOT-RULE, see @more.md and @gone.md")
    (path / "more.md").write_text("MORE-RULE")
    (path / "sub/AGENTS.md").write_text("SUB-RULE")
    (path / "sub/x.py").write_text("x = 1\n")
    (path / ".claude/rules").mkdir(parents=True)
    (path / ".claude/rules/py.md").write_text("---\npaths: '**/*.py'\n---\nPY-RULE")
    return path


def counts(request: Recorded, *words: str) -> list[int]:
    return [request.raw.decode().count(word) for word in words]


@pytest.mark.spec("EXT-4", "CTX-1", "CTX-2")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_nested_instructions_come_with_the_first_result_below_them_and_once(
    model_server: ModelServer, work: Path, protocol: str
) -> None:
    words = ("ROOT-RULE", "MORE-RULE", "SUB-RULE", "PY-RULE")
    model_server.add(calls(READ), calls(READ), say("done"), calls(READ), say("again"))
    first = one_shot(model_server, "look", protocol=protocol, cwd=work)
    assert first.code == 0
    assert first.stderr.count("@gone.md") == 1
    assert one_shot(model_server, "--continue", "more", protocol=protocol, cwd=work).code == 0
    found = [counts(request, *words) for request in model_server.requests]
    assert found == [[1, 1, 0, 0], *[[1, 1, 1, 1]] * 4]
    check_sessions()


@pytest.mark.slow
@pytest.mark.spec("EXT-4", "CMP-3")
def test_they_survive_a_compaction_and_are_no_words_of_yours(
    model_server: ModelServer, work: Path
) -> None:
    key = f'models."{MODELS[ANTHROPIC]}".context_tokens'
    assert run_agent("config", "set", key, "20000", env=agent_env()).code == 0
    model_server.add(
        calls(READ),
        say("read"),
        say("fine", tokens=Tokens(input=17_000)),
        say("SUMMARY", tokens=Tokens(input=3_000, output=300)),
        calls(READ),
        say("end"),
    )
    assert one_shot(model_server, "look", cwd=work).code == 0
    assert one_shot(model_server, "--continue", "good", cwd=work).code == 0
    assert one_shot(model_server, "--continue", "what now", cwd=work).code == 0
    asked, folded, last = model_server.requests[-3:]
    assert counts(asked, "<transcript>", "SUB-RULE") == [1, 0]
    assert counts(folded, "SUMMARY", "SUB-RULE", "PY-RULE", "ROOT-RULE") == [1, 1, 1, 1]
    assert counts(last, "SUB-RULE", "PY-RULE") == [1, 1]
    assert "<said>\\n<instructions" not in folded.raw.decode()


@pytest.mark.slow
@pytest.mark.spec("EXT-4", "CMP-5")
def test_the_chat_names_each_file_and_its_size(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    Path(os.environ["HOME"], ".claude").mkdir()
    Path(os.environ["HOME"], ".claude/CLAUDE.md").write_text("HOME-RULE")
    model_server.add(calls(READ), say("done"))
    terminal = chat(rows=50, cols=100)
    start = terminal.text()
    assert "Project instructions: ~/.claude/CLAUDE.md, AGENTS.md, more.md" in start
    assert "AGENTS.md imports @gone.md, which is not there" in start
    terminal.line("look")
    terminal.wait_for("done")
    terminal.wait_for(IDLE)
    assert "sub/AGENTS.md" in terminal.text()
    assert "SUB-RULE" not in terminal.text()
    terminal.line("/memory")
    terminal.wait_for("sub/AGENTS.md  8 bytes")
    terminal.line("/context")
    terminal.wait_for("Instructions, sent with every request")
    assert "rules/py.md" in terminal.text()
