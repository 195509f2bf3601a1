"""``--agent NAME``: a session that is one of the user's agents itself (EXT-3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.one_shot import assert_one_line_error, one_shot
from tests.extensions.places import write
from tests.support.model_server import ModelServer
from tests.support.replies import call


def tools_of(server: ModelServer, number: int = 0) -> set[str]:
    return {tool["name"] for tool in server.requests[number].body["tools"]}


@pytest.mark.slow
@pytest.mark.spec("EXT-3")
def test_a_run_as_an_agent_has_its_text_its_tools_and_its_model(home: Path, tmp_path: Path) -> None:
    write(
        home,
        ".agents/agents/reviewer.md",
        "---\nname: reviewer\ndescription: Reviews.\ntools: Read, grep_files, Bash, Unheard\n"
        "disallowedTools: Bash(git push *)\nmodel: haiku\n---\nYou review code, briefly.\n",
    )
    with ModelServer([call("bash", {"command": "git push origin"}), "reviewed"]) as server:
        done = one_shot(server, "--agent", "Reviewer", "--yolo", "look", cwd=tmp_path)
        assert (done.code, done.stdout) == (0, "reviewed\n"), done.stderr
        body = server.requests[0].body
        wrong = one_shot(server, "--agent", "reviwer", "look", cwd=tmp_path)
    assert "You review code, briefly." in str(body["system"])
    assert "haiku" in body["model"]
    assert {"read_file", "grep_files", "bash"} <= tools_of(server)
    assert not {"edit_file", "write_file", "task"} & tools_of(server)
    assert "denied" in str(server.requests[1].body["messages"][-1]).lower()
    assert wrong.code == 2
    assert_one_line_error(wrong, "there is no agent 'reviwer' - did you mean reviewer?")
