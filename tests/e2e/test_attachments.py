"""Files named in a prompt reach the model, from a shell line and from the chat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.e2e.one_shot import one_shot
from tests.support.histories import png
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.wire_facts import facts_of


@pytest.mark.spec("UI-4")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_one_shot_attaches_what_its_words_name_and_not_what_was_piped(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    (tmp_path / "a b.py").write_text("answer = 42\n")
    (tmp_path / "piped.txt").write_text("quux-9431\n")
    (tmp_path / "shot.png").write_bytes(png())
    model_server.add("Seen.")
    done = one_shot(
        model_server,
        'what is in @"a b.py" and @shot.png?',
        cwd=tmp_path,
        protocol=protocol,
        input="log: see @piped.txt",
    )
    assert done.code == 0, done.stderr
    sent = json.dumps(model_server.requests[0].body)
    assert "answer = 42" in sent
    assert "image/png" in sent
    assert "quux-9431" not in sent


@pytest.mark.slow
@pytest.mark.spec("UI-4", "UI-8")
def test_the_chat_completes_and_attaches_and_shows_what_was_typed(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    (work / "src").mkdir()
    (work / "src/some_module.py").write_text("answer = 42\n")
    model_server.add("Seen it.")
    terminal = chat()
    terminal.send("explain @somemod")
    terminal.wait_for("src/some_module.py")
    terminal.key("tab")
    terminal.wait_for("@src/some_module.py")
    terminal.line(" please")
    terminal.wait_for("Seen it.")
    terminal.wait_for(IDLE)
    prompts = "\n".join(facts_of(model_server.requests[0]).prompts)
    assert prompts.startswith("explain @src/some_module.py please")
    assert "answer = 42" in prompts
    assert "answer = 42" not in terminal.text()
    leave(terminal)
