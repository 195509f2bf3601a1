"""The directories that a session works in, put elsewhere by what runs in them (SEC-3, SEC-5)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.extensions.places import skill
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer, Recorded
from tests.support.processes import wait_until
from tests.support.replies import Reply, call
from tests.support.sandboxes import needs
from tests.support.wire_facts import facts_of

SWAP = """import os, time
while not os.path.exists({go!r}):
    time.sleep(0.01)
os.rename({place!r}, {place!r} + ".gone")
os.symlink({elsewhere!r}, {place!r})
"""


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("name", ["app", "app/.agents/skills/x"])
def test_a_link_in_the_place_of_a_directory_that_is_free_leads_no_call_elsewhere(
    tmp_path: Path, name: str
) -> None:
    needs("landlock")
    repo, elsewhere = tmp_path / "repo", tmp_path / "elsewhere"
    app, place, go = repo / "app", repo / name, repo / "go"
    skill(app / ".agents", "x", "X")
    elsewhere.mkdir()
    (elsewhere / "notes.txt").write_text("private")
    text = SWAP.format(elsewhere=str(elsewhere), place=str(place), go=str(go))
    (repo / "swap.py").write_text(text)
    later = [
        call("read_file", {"path": "notes.txt"}),
        call("read_file", {"path": str(elsewhere / "notes.txt")}),
        call("write_file", {"path": "new.txt", "content": "x"}),
        "Over.",
    ]

    def answer(_: Recorded) -> Reply | str:
        """It is another one once the command that has left that to a process is over."""
        go.touch()
        wait_until(place.is_symlink, "the link")
        return later.pop(0)

    begin = call("bash", {"command": "python3 ../swap.py >/dev/null 2>&1 &"})
    args = ("run", "go", "-o", "json", "--permission-mode", "auto", "--sandbox", "landlock")
    with ModelServer([begin], default=answer) as server:
        run_agent(*args, "--add-dir", "..", "--trust", env=agent_env(server), cwd=app)
        told = facts_of(server.requests[-1]).results
    assert "private" not in json.dumps(told), told
    assert [each.name for each in elsewhere.iterdir()] == ["notes.txt"]
