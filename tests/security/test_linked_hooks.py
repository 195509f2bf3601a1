"""Hooks and what a shell loads that are links, as many projects set them up (SEC-17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.one_shot import one_shot
from tests.support.model_server import ModelServer
from tests.support.replies import call
from tests.support.repositories import git
from tests.support.sandboxes import BOTH, needs, told
from tests.support.wire_facts import facts_of

HOOK = '#!/bin/sh\n. "$(git rev-parse --show-toplevel)/lib/common.sh"\nscripts/lint.sh\n'
NAMED = ("scripts/hooks/pre-commit", "scripts/lint.sh", "lib/common.sh", "conf/env.sh")
PLACES = {"directory": (".git/hooks", "../scripts/hooks")}
PLACES["file"] = (".git/hooks/pre-commit", "../../scripts/hooks/pre-commit")


@pytest.fixture(params=PLACES)
def project(request: pytest.FixtureRequest, home: Path) -> Path:
    root = home / "project"
    root.mkdir()
    git(root, "init", "-q", "--template=")
    (root / ".git/hooks").mkdir()
    for name in NAMED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("# mine\n")
    (root / "scripts/hooks/pre-commit").write_text(HOOK)
    (root / "conf/envrc").write_text("source_env conf/env.sh\n")
    (root / ".envrc").symlink_to("conf/envrc")
    place, target = PLACES[request.param]
    if request.param == "directory":
        (root / place).rmdir()
    (root / place).symlink_to(target)
    return root


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_no_command_changes_what_hooks_behind_a_link_run(
    model_server: ModelServer, project: Path, kind: str
) -> None:
    needs(kind)
    before = {name: (project / name).read_text() for name in NAMED}
    (project / "build.sh").write_text(f"for f in {' '.join(NAMED)} out; do echo evil > $f; done\n")
    model_server.add(call("bash", {"command": "sh build.sh"}), "Done.")
    one_shot(model_server, "--permission-mode", "auto", "--sandbox", kind, "go", cwd=project)
    assert {name: (project / name).read_text() for name in NAMED} == before
    assert (project / "out").read_text() == "evil\n"


@pytest.mark.spec("SEC-17")
def test_no_tool_writes_what_hooks_behind_a_link_run_unasked(
    model_server: ModelServer, project: Path
) -> None:
    names = [*NAMED, "out"]
    if (project / ".git/hooks").is_symlink():
        names.append("scripts/hooks/pre-push")
    calls = [call("write_file", {"path": name, "content": "evil\n"}) for name in names]
    model_server.add(*calls, "Done.")
    one_shot(model_server, "--permission-mode", "accept-edits", "go", cwd=project)
    told = dict(zip(names, facts_of(model_server.requests[-1]).results.values(), strict=True))
    assert "is protected" not in told.pop("out")
    assert all("is protected" in text for text in told.values()), told
    assert not (project / "scripts/hooks/pre-push").exists()


@pytest.mark.spec("SEC-3", "SEC-17")
def test_no_tool_writes_unasked_what_a_link_gives_a_name_that_others_obey(
    model_server: ModelServer, home: Path
) -> None:
    root = home / "project"
    (root / "conf/editor").mkdir(parents=True)
    (root / "part").mkdir()
    (root / ".claude").mkdir()
    for place in (root, root / "part"):
        git(place, "init", "-q")
    names = ("conf/editor/tasks.json", "conf/editor/settings.json", "conf/load", "conf/ours.json")
    (root / "conf/ours.json").write_text("mine\n")
    (root / ".vscode").symlink_to("conf/editor")
    (root / "part/.envrc").symlink_to("../conf/load")
    (root / ".claude/settings.json").symlink_to("../conf/ours.json")
    below = root / "packages/a/.claude"  # in a directory that is no repository
    below.mkdir(parents=True)
    (below / "skills").symlink_to("../../../conf/known")
    (below.parent / ".goose").symlink_to("../../conf")
    names += ("conf/known/a/SKILL.md", "conf/hooks/start", "conf/mcp.json")
    calls = [
        call("write_file", {"path": name, "content": "evil\n"})
        for name in (*names, "conf/editor/words.txt")
    ]
    model_server.add(*calls, "Done.")
    one_shot(model_server, "--permission-mode", "accept-edits", "go", cwd=root)
    *told, free = facts_of(model_server.requests[-1]).results.values()
    assert all("is protected" in text for text in told), told
    assert "is protected" not in free and (root / "conf/editor/words.txt").exists()


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_no_command_changes_what_lefthook_runs(home: Path, kind: str) -> None:
    """https://lefthook.dev/configuration: scripts lie below ``.lefthook``, more in ``.config``."""
    root = home / "project"
    script, more = root / ".lefthook/pre-commit/lint.sh", root / ".config/lefthook-local.yml"
    script.parent.mkdir(parents=True)
    script.write_text("# mine\n")
    git(root, "init", "-q")
    (root / ".git/hooks/pre-commit").write_text("#!/bin/sh\nlefthook run pre-commit\n")
    commands = (
        f"sh -c 'mkdir -p .config; for f in {script} {more}; do echo evil > $f; done'; echo done",
        "echo next",
    )
    assert all("exit code 0" in said for said in told(root, *commands, kind=kind))
    assert script.read_text() == "# mine\n" and not more.exists()
