"""The permission modes in the real program: what runs, where, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.chat import Chat, leave
from tests.e2e.one_shot import last_result, one_shot
from tests.support.model_server import ModelServer
from tests.support.replies import call
from tests.support.sandboxes import BOTH, needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled


@pytest.mark.slow
@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("kind", BOTH)
def test_auto_runs_what_the_sandbox_contains_and_nothing_beyond(
    model_server: ModelServer, work: Path, tmp_path: Path, kind: str
) -> None:
    needs(kind)
    outside = tmp_path / "outside"
    auto = ("--permission-mode", "auto", "--sandbox", kind)
    model_server.add(call("bash", {"command": f"echo 1 > in; echo 2 > {outside}; cat in"}), "Done.")
    assert one_shot(model_server, *auto, "go", cwd=work).code == 0
    assert (work / "in").read_text() == "1\n"
    assert not outside.exists()
    model_server.add(call("bash", {"command": f"touch {outside}", "access": "outside"}), "Sorry.")
    assert one_shot(model_server, *auto, "go", cwd=work).code == 4
    assert not outside.exists()
    model_server.add(call("write_file", {"path": "new", "content": "x"}), "Done.")
    assert one_shot(model_server, *auto, "go", cwd=work).code == 0
    assert (work / "new").exists()


@pytest.mark.spec("SEC-3")
def test_auto_without_a_sandbox_says_so_once_and_asks_about_commands(
    model_server: ModelServer, work: Path
) -> None:
    auto = ("--permission-mode", "auto", "--sandbox", "off")
    touch = call("bash", {"command": "touch in"})
    model_server.add(call("write_file", {"path": "new", "content": "x"}), touch, touch, "Sorry.")
    done = one_shot(model_server, *auto, "go", cwd=work)
    assert (done.code, done.stderr.count("mode auto asks about them")) == (4, 1)
    assert (work / "new").exists()
    assert not (work / "in").exists()


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("kind", ["off", "bwrap"])
def test_no_option_is_lost_before_a_here_document(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    if kind != "off":
        needs(kind)
    (work / "other").write_text("all:\n\ttouch made\n")
    beyond = ("--allow-tool", "bash(make all *)", "--sandbox", kind)
    model_server.add(call("bash", {"command": "make all -fother<<E\nE"}), "Sorry.")
    assert one_shot(model_server, *beyond, "go", cwd=work).code == 4
    assert not (work / "made").exists()


@pytest.mark.spec("SEC-3", "SEC-14")
@pytest.mark.parametrize(
    "command",
    [
        "0</dev/null rm -rf $PWD/*",
        "time A=b rm -rf $PWD/*",
        "rm -rf 2>&- $PWD/*",
        "cp kept 2>&- .envrc",
    ],
)
def test_nothing_around_a_command_hides_it_from_yolo(
    model_server: ModelServer, work: Path, command: str
) -> None:
    (work / "kept").write_text("x")
    model_server.add(call("bash", {"command": command}), "Sorry.")
    assert one_shot(model_server, "--yolo", "go", cwd=work).code == 4
    assert sorted(each.name for each in work.iterdir()) == ["kept"]


@pytest.mark.slow
@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("kind", BOTH)
def test_yolo_has_no_boundary_unless_the_sandbox_is_named(
    model_server: ModelServer, work: Path, tmp_path: Path, kind: str
) -> None:
    needs(kind)
    first, second = tmp_path / "first", tmp_path / "second"
    model_server.add(call("bash", {"command": f"touch {first}"}), "Done.")
    assert one_shot(model_server, "--yolo", "go", cwd=work).code == 0
    assert first.exists()
    touch = {"command": f"touch {second}"}
    leaving = [
        call("write_file", {"path": str(second), "content": "x"}, id="file"),
        call("web_fetch", {"url": "http://127.0.0.1:9/"}, id="fetch"),
        call("bash", touch | {"access": "network"}, id="network"),
        call("bash", touch | {"access": "outside"}, id="outside"),
    ]
    model_server.restart(*leaving, call("bash", touch, id="inside"), "Sorry.")
    one_shot(model_server, "--yolo", "--sandbox", kind, "go", cwd=work)
    told = facts_of(model_server.requests[-1]).results
    for name in ("file", "fetch", "network", "outside"):
        assert "stays in yolo mode" in told[name], name
    assert "was not run" not in told["inside"]
    assert not second.exists()


@pytest.mark.spec("SEC-4", "SEC-3")
@pytest.mark.parametrize("mode", ["default", "plan"])
def test_a_format_that_assigns_a_variable_runs_nothing_of_the_repository(
    model_server: ModelServer, work: Path, mode: str
) -> None:
    (work / "0").mkdir()
    program = work / "0" / "ls"
    program.write_text("#!/bin/sh\ntouch canary\n")
    program.chmod(0o755)
    model_server.add(call("bash", {"command": "printf '%n' PATH; ls"}), "Sorry.")
    one_shot(model_server, "--permission-mode", mode, "--sandbox", "off", "go", cwd=work)
    assert "was not run" in last_result(model_server)
    assert not (work / "canary").exists()


@pytest.mark.spec("SEC-4", "SEC-2")
def test_what_only_looks_like_cd_runs_no_program_of_an_environment(
    model_server: ModelServer, work: Path
) -> None:
    (work / "sub").mkdir()
    programs = work / ".venv/bin"
    programs.mkdir(parents=True)
    program = programs / "\fcd"
    program.write_text("#!/bin/sh\ntouch canary\n")
    program.chmod(0o755)
    model_server.add(call("bash", {"command": "\fcd sub && ls"}), "Sorry.")
    path = f"{programs}:{os.environ['PATH']}"
    one_shot(model_server, "--sandbox", "off", "go", cwd=work, PATH=path)
    assert "was not run" in last_result(model_server)
    assert not (work / "canary").exists()


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("kind", BOTH)
def test_a_script_of_sed_that_runs_a_command_is_no_read(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    needs(kind)
    (work / ".env").write_text("HIDDEN=1\n")
    (work / "file").write_text("x\n")
    command = "sed 's/[[.-.]/]/x/;1e cat .e* #/p' file"
    model_server.add(call("bash", {"command": command}), "Sorry.")
    one_shot(model_server, "--sandbox", kind, "go", cwd=work)
    assert "was not run" in last_result(model_server)
    assert "HIDDEN" not in str(model_server.requests[-1])


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": ".ssh/id_rsa"}),
        ("grep_files", {"pattern": "KEY", "path": ".ssh"}),
        ("glob_files", {"pattern": ".ssh/*"}),
        ("bash", {"command": "cat .ssh/id_rsa"}),
    ],
)
def test_started_at_home_no_tool_reads_a_key_unasked(
    model_server: ModelServer, work: Path, tool: str, arguments: dict[str, str]
) -> None:
    (work / ".ssh").mkdir()
    (work / ".ssh/id_rsa").write_text("KEY-OF-THE-USER\n")
    model_server.add(call(tool, arguments), "Sorry.")
    done = one_shot(model_server, "go", cwd=work, HOME=str(work))
    assert done.code == 4
    assert all("KEY-OF-THE-USER" not in str(request) for request in model_server.requests)


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("grep_files", {"pattern": "KEY", "glob": "{.ssh/**,*}"}),
        ("bash", {"command": "grep -r KEY ."}),
        ("bash", {"command": "find . -type f | xargs cat"}),
    ],
)
def test_a_search_of_the_home_tells_no_line_of_a_key(
    model_server: ModelServer, work: Path, tool: str, arguments: dict[str, str]
) -> None:
    (work / ".ssh").mkdir()
    (work / ".ssh/id_rsa").write_text("KEY-OF-THE-USER\n")
    (work / "id_rsa").write_text("KEY-OF-THE-USER\n")
    (work / "notes").write_text("KEY of the piano\n")
    model_server.add(call(tool, arguments), "Done.")
    one_shot(model_server, "--permission-mode", "auto", "go", cwd=work, HOME=str(work))
    told = last_result(model_server)
    assert "piano" in told
    hint = "not shown, since they hold credentials" if tool == "grep_files" else "Permission denied"
    assert hint in told
    assert "KEY-OF-THE-USER" not in told


@pytest.mark.spec("SEC-3", "EXT-9")
def test_what_a_rule_denies_is_found_by_no_search_that_begins_above(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    (work / "private").mkdir()
    (work / "private/plan.txt").write_text("MINE alone\n")
    (work / "notes").write_text("MINE of coal\n")
    (home / ".claude").mkdir()
    rules = {"permissions": {"deny": ["Read(./private)"], "ask": ["Glob(private/)"]}}
    (home / ".claude/settings.json").write_text(json.dumps(rules))
    model_server.add(
        call("read_file", {"path": "private/plan.txt"}),
        call("grep_files", {"pattern": "MINE"}),
        call("grep_files", {"pattern": "MINE", "glob": "private/**"}),
        call("glob_files", {"pattern": "*"}),
        "Done.",
    )
    one_shot(model_server, "go", cwd=work)
    read, found, globbed, listed = (
        facts_of(each).results.popitem()[1] for each in model_server.requests[1:]
    )
    assert "denied by the rule read_file(private/**)" in read
    assert "coal" in found and "alone" not in found + globbed and "private/plan.txt" in found
    assert "notes" in listed and "plan" not in listed


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_start_up_files_that_lie_in_the_workspace_stay_as_they_are(
    model_server: ModelServer, work: Path, home: Path, kind: str
) -> None:
    """The home directory itself, or a repository of dotfiles that it links to."""
    needs(kind)
    (work / ".ssh").mkdir()
    own = (work / "bashrc", work / ".profile", work / ".ssh/authorized_keys")
    for path in own:
        path.write_text("mine\n")
    (home / ".bashrc").symlink_to(own[0])
    (work / "build.py").write_text(
        f"import sys\nfor name in {[*map(str, own), str(work / '.zshenv')]}:\n"
        "  try: open(name, 'a').write('theirs')\n  except OSError: pass\n"
    )
    linked = {"HOME": str(home)}
    for names, env in ((own[:1], linked), (own[1:], {"HOME": str(work)})):
        model_server.restart(call("bash", {"command": "python3 build.py"}), "Done.")
        auto = ("--permission-mode", "auto", "--sandbox", kind)
        done = one_shot(model_server, *auto, "go", cwd=work, **env)
        if kind == "landlock" and names == own[1:]:
            assert "cannot protect the home directory" in done.stderr
            return
        assert done.code == 0
        assert [path.read_text() for path in names] == ["mine\n"] * len(names)
        assert (work / ".zshenv").exists() == (names == own[:1])
        (work / ".zshenv").unlink(missing_ok=True)
        for path in own:
            path.write_text("mine\n")


@pytest.mark.slow
@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("line", ["/new", "/fork"])
def test_a_session_that_is_opened_from_another_is_in_no_freer_mode(
    model_server: ModelServer, chat: Chat, work: Path, line: str
) -> None:
    touch = call("bash", {"command": "touch made"})
    model_server.add("Hello.", touch, "Over.")
    terminal = chat("--yolo", "--sandbox", "off")
    terminal.line("hello")
    terminal.wait_for("Hello.")
    terminal.line("/permissions default")
    terminal.wait_for("Permission mode default")
    terminal.line(line)
    terminal.wait_for("A new session" if line == "/new" else "ork")
    terminal.line("go")
    terminal.wait_for("Allow this?")
    terminal.confirm("n")
    terminal.wait_for("Over.")
    assert not (work / "made").exists()
    leave(terminal)
