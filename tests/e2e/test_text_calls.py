"""Models that write their calls as text repair a small project, with the real tools (STR-10)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.one_shot import one_shot
from tests.providers.text_calls.forms import ASKED, BARE, MARKED
from tests.support.model_server import OPENAI, ModelServer, Recorded
from tests.support.replies import Reply

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
STEPS = (
    ("read_file", {"path": "adding.py"}),
    ("edit_file", {"path": "adding.py", "old_string": "a - b", "new_string": "a + b"}),
    ("bash", {"command": "python3 -c 'import adding; assert adding.add(2, 3) == 5' && echo right"}),
)
FORMS = MARKED | BARE | ASKED


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.spec("STR-10")
@pytest.mark.parametrize("form", FORMS)
def test_a_small_project_is_repaired_in_every_form(tmp_path: Path, form: str) -> None:
    (tmp_path / "adding.py").write_text(WRONG)
    protocol = "text" if form in ASKED else "auto"
    config = f'[models."openai/gpt-4.1"]\ntool_protocol = "{protocol}"\n'
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(config)
    with ModelServer(
        [*(FORMS[form](step) for step in STEPS), "It is repaired."], strict=False
    ) as s:
        done = one_shot(
            s, "-o", "json", "--yolo", "--sandbox", "off", "repair it",
            protocol=OPENAI, cwd=tmp_path, AGENTCLI_HOME=str(tmp_path / "home"),
        )  # fmt: skip
        sent = json.dumps(s.requests[-1].body)
        assert len(s.requests) == 4
    assert (done.code, done.result["result"]) == (0, "It is repaired."), done.stderr
    assert (tmp_path / "adding.py").read_text() == RIGHT
    assert "right" in sent
    assert ('"tools"' in sent) is (protocol == "auto")


@pytest.mark.slow
@pytest.mark.spec("STR-10")
def test_a_server_that_refuses_a_list_of_tools_is_met_in_text_once_and_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "adding.py").write_text(WRONG)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text(
        '[models."openai/gpt-4.1"]\ntool_protocol = "auto"\n'
    )
    refusal = {
        "error": {"message": "library/gemma3:4b does not support tools", "type": "api_error"}
    }
    todo = [*(ASKED["fenced"](step) for step in STEPS), "It is repaired."]

    def reply(request: Recorded) -> Reply | str:
        if "tools" in request.body:
            return Reply(status=400, body=json.dumps(refusal).encode())
        return todo.pop(0)

    with ModelServer(default=reply, strict=False) as s:
        done = one_shot(
            s, "-o", "stream-json", "--yolo", "--sandbox", "off", "repair it",
            protocol=OPENAI, cwd=tmp_path, AGENTCLI_HOME=str(tmp_path / "home"),
        )  # fmt: skip
        asked_with_tools = ["tools" in request.body for request in s.requests]
        described = json.dumps(s.requests[1].body)
    assert asked_with_tools == [True, False, False, False, False]
    assert (done.code, done.result["result"]) == (0, "It is repaired."), done.stderr
    assert (tmp_path / "adding.py").read_text() == RIGHT
    assert "edit_file" in described and "old_string" in described
    assert done.stderr.count("takes no list of tools here") == 1
