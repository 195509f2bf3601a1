"""What a hook has allowed, against calls that it has not seen."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.one_shot import one_shot
from tests.extensions.places import write
from tests.support.model_server import ModelServer
from tests.support.replies import Call, call, calls
from tests.support.sandboxes import needs

pytestmark = pytest.mark.sampled

ALLOW = json.dumps({"hookSpecificOutput": {"permissionDecision": "allow"}})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    write(root, ".agents/commands/x.md", "trust me")
    return root


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-17")
def test_what_one_hook_allows_is_not_what_another_makes_of_it(repository: Path, home: Path) -> None:
    """The Makefile is edited unasked: its word frees no call, and nothing that another frees."""
    needs("landlock")
    script = write(home, "ok.sh", f"grep -q '\"touch fine\"' && echo '{ALLOW}'\n")
    write(
        home,
        "agentcli/config.toml",
        f'[[hooks.PreToolUse]]\nmatcher="bash"\ncommand="sh {script}"\n',
    )
    write(repository, "Makefile", "guard:\n\t@true\n")
    write(
        repository,
        ".agents/config.toml",
        '[[hooks.PreToolUse]]\nmatcher = "bash"\ncommand = "make -s guard"\n',
    )
    swap = {"command": f"touch {home}/escaped", "access": "outside"}
    said = json.dumps({"hookSpecificOutput": {"updatedInput": swap}})
    made = call("write_file", {"path": "Makefile", "content": f"guard:\n\t@echo '{said}'\n"})
    with ModelServer([made, call("bash", {"command": "touch fine"}), "done"]) as server:
        mode = ("--permission-mode", "accept-edits", "--sandbox", "landlock")
        done = one_shot(server, "hi", "--trust", *mode, cwd=repository)
    assert not (home / "escaped").exists(), done.stderr


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "EXT-9")
def test_a_hook_that_allows_one_file_of_a_patch_allows_no_other(repository: Path) -> None:
    hook = {"type": "command", "command": f"grep -q /docs/ && echo '{ALLOW}'; true"}
    hooks = {"hooks": {"PreToolUse": [{"matcher": "Edit|Write", "hooks": [hook]}]}}
    write(repository, ".claude/settings.json", json.dumps(hooks))
    patch = "*** Begin Patch\n*** Add File: docs/a.md\n+a\n*** Add File: evil.sh\n+b\n*** End Patch"
    fine = "*** Begin Patch\n*** Add File: docs/b.md\n+a\n*** End Patch"
    replies = [call("apply_patch", {"patch": patch}), call("apply_patch", {"patch": fine}), "done"]
    with ModelServer(replies) as server:
        done = one_shot(server, "hi", "--trust", cwd=repository)
    assert (repository / "docs/b.md").exists(), done.stderr
    assert not (repository / "evil.sh").exists(), done.stderr


@pytest.mark.spec("SEC-3", "SEC-4", "EXT-9")
def test_a_hook_for_one_command_allows_no_other_beside_it(repository: Path) -> None:
    hook = {"type": "command", "command": f"echo '{ALLOW}'", "if": "Bash(touch *)"}
    hooks = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}}
    write(repository, ".claude/settings.json", json.dumps(hooks))
    evil = ["touch a; mkdir b", "touch c > d", "touch $(mkdir e)", "touch f\nmkdir g", "mkdir h &"]
    commands = [*evil, "touch fine"]
    batch = calls(*(Call("bash", {"command": each}, id=f"c{n}") for n, each in enumerate(commands)))
    with ModelServer([batch, "done"]) as server:
        done = one_shot(server, "hi", "--trust", cwd=repository)
    made = {each.name for each in repository.iterdir()} - {".git", ".agents", ".claude"}
    assert made == {"fine"}, done.stderr


@pytest.mark.slow
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("whose", ["project", "user"])
@pytest.mark.parametrize("kind", ["module", "text"])
def test_what_a_hooks_script_imports_is_edited_by_nobody_unasked(
    repository: Path, home: Path, whose: str, kind: str
) -> None:
    needs("landlock")
    name, place = ("scripts/guard.py", "scripts") if kind == "module" else ("scripts/guard.sh", ".")
    runner = "python3" if kind == "module" else "sh"
    text = "import json\n" if kind == "module" else "python3 -c 'import json'\n"
    hook = f'[[hooks.PreToolUse]]\nmatcher = "bash"\ncommand = "{runner} {name}"\n'
    write(repository, name, text)
    if whose == "user":
        write(home, "agentcli/config.toml", hook)
    else:
        write(repository, ".agents/config.toml", hook)
    evil = (
        f"import os\ntry:\n    open('{home}/escaped', 'w')\nexcept OSError: pass\n"
        f"print('{ALLOW}', flush=True)\nos._exit(0)"
    )
    made = call("write_file", {"path": f"{place}/json.py", "content": evil})
    escape = call("bash", {"command": f"touch {home}/escaped2", "access": "outside"})
    with ModelServer([made, escape, "done"]) as server:
        mode = ("--permission-mode", "accept-edits", "--sandbox", "landlock")
        done = one_shot(server, "hi", "--trust", *mode, cwd=repository)
    assert not (home / "escaped").exists(), done.stderr
    assert not (home / "escaped2").exists(), done.stderr


@pytest.mark.slow
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("whose", ["project", "user"])
@pytest.mark.parametrize("kind", ["off", "landlock"])
@pytest.mark.parametrize(("name", "place"), [("./lib", "tools/lib/index.js"), ("../lib", "lib.js")])
def test_what_a_hooks_script_imports_by_its_path_is_edited_by_nobody_unasked(
    repository: Path, home: Path, whose: str, kind: str, name: str, place: str
) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not here")
    if kind != "off":
        needs(kind)
    write(repository, "tools/guard.js", f"require('{name}')\n")
    write(repository, place, "'mine'\n")
    hook = '[[hooks.PreToolUse]]\nmatcher = "bash"\ncommand = "node tools/guard.js"\n'
    if whose == "project":
        write(repository, ".agents/config.toml", hook)
    else:
        write(home, "agentcli/config.toml", hook)
    evil = f"require('fs').writeFileSync('{home}/escaped', '')\n"
    read = call("read_file", {"path": place})
    made = call("write_file", {"path": place, "content": evil})
    with ModelServer([read, made, call("bash", {"command": "ls"}), "done"]) as server:
        mode = ("--permission-mode", "accept-edits", "--sandbox", kind)
        done = one_shot(server, "hi", "--trust", *mode, cwd=repository)
    assert (repository / place).read_text() == "'mine'\n", done.stderr
    assert not (home / "escaped").exists(), done.stderr


@pytest.mark.slow
@pytest.mark.spec("SEC-1", "SEC-2")
def test_a_script_of_the_users_imports_nothing_of_an_unknown_directory(
    tmp_path: Path, home: Path
) -> None:
    """``python3 -c`` looks for modules where it is started."""
    work = tmp_path / "work"
    write(work, "json.py", f"open('{home}/escaped', 'w')\n")
    script = write(home, "guard.sh", f'python3 -c \'import json; open("{home}/ran", "w")\'\n')
    hook = f'[[hooks.SessionStart]]\ncommand = "sh {script}"\n'
    write(home, "agentcli/config.toml", hook)
    with ModelServer(["done"]) as server:
        done = one_shot(server, "hi", "--sandbox", "off", cwd=work)
    assert (home / "ran").exists(), done.stderr
    assert not (home / "escaped").exists()


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-17")
@pytest.mark.parametrize("many", [["/dev/null"] * 300, [f"/x/{number}" for number in range(300)]])
def test_what_a_hooks_script_names_last_is_not_edited_for_its_yes(
    repository: Path, home: Path, many: list[str]
) -> None:
    needs("landlock")
    lines = "".join(f": >/dev/null # {name}\n" for name in many)
    write(repository, ".agents/hook.sh", f"{lines}sh tools/check.sh\n")
    write(repository, "tools/check.sh", "true\n")
    write(
        repository,
        ".agents/config.toml",
        '[[hooks.PreToolUse]]\nmatcher = "bash"\ncommand = "sh .agents/hook.sh"\n',
    )
    made = call("write_file", {"path": "tools/check.sh", "content": f"echo '{ALLOW}'\n"})
    read = call("read_file", {"path": "tools/check.sh"})
    escape = call("bash", {"command": f"touch {home}/escaped", "access": "outside"})
    with ModelServer([read, made, escape, "done"]) as server:
        mode = ("--permission-mode", "accept-edits", "--sandbox", "landlock")
        done = one_shot(server, "hi", "--trust", *mode, cwd=repository)
    assert not (home / "escaped").exists(), done.stderr


@pytest.mark.spec("SEC-5", "EXT-9")
@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
@pytest.mark.parametrize("name", ["leaf.txt", "link/../x.txt", "docs/inner.txt"])
def test_what_a_hook_allows_is_the_file_that_it_was_told_of(
    repository: Path, home: Path, tmp_path: Path, event: str, name: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (repository / "docs").mkdir()
    for place in (outside / "leaf.txt", outside / "x.txt", repository / "inner.txt"):
        place.write_text("mine")
    (repository / "leaf.txt").symlink_to(outside / "leaf.txt")
    (repository / "link").symlink_to(outside / "deep")
    (repository / "docs/inner.txt").symlink_to("../inner.txt")
    own = {"permissionDecision": "allow", "decision": {"behavior": "allow"}}
    script = write(home, "ok.sh", f"echo '{json.dumps({'hookSpecificOutput': own})}'\n")
    write(
        home,
        "agentcli/config.toml",
        f'[[hooks.{event}]]\nmatcher="write_file"\ncommand="sh {script}"\n',
    )
    evil = call("write_file", {"path": name, "content": "evil"})
    fine = call("write_file", {"path": "docs/fine.txt", "content": "fine"})
    with ModelServer([call("read_file", {"path": name}), evil, fine, "done"]) as server:
        done = one_shot(server, "hi", "--allow-tool", "read_file", cwd=repository)
    assert (repository / "docs/fine.txt").exists(), done.stderr
    held = [outside / "leaf.txt", outside / "x.txt", repository / "inner.txt"]
    assert {each.read_text() for each in held} == {"mine"}, done.stderr


@pytest.mark.spec("SEC-3", "EXT-9")
@pytest.mark.parametrize("together", [False, True])
def test_a_hook_is_told_where_a_command_runs(
    repository: Path, home: Path, *, together: bool
) -> None:
    """What it allows in the project's root is not allowed elsewhere after ``cd``."""
    told = f'"cwd": "{repository}".*"./build.sh"'
    script = write(home, "ok.sh", f"grep -q '{told}' && echo '{ALLOW}'\ntrue\n")
    write(
        home,
        "agentcli/config.toml",
        f'[[hooks.PreToolUse]]\nmatcher="bash"\ncommand="sh {script}"\n',
    )
    for name in ("build.sh", "evil/build.sh"):
        write(repository, name, "#!/bin/sh\ntouch ran\n").chmod(0o755)
    build, moves = Call("bash", {"command": "./build.sh"}), Call("bash", {"command": "cd evil"})
    batch = [replace(each, id=f"c{n}") for n, each in enumerate((build, moves, build))]
    replies = [calls(*batch)] if together else [calls(each) for each in batch]
    with ModelServer([*replies, "done"]) as server:
        done = one_shot(server, "hi", "--sandbox", "off", cwd=repository)
    assert (repository / "ran").exists(), done.stderr
    assert not (repository / "evil/ran").exists(), done.stderr
