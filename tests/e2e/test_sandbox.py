"""Commands of ``agent run`` and of the chat in the sandbox that this machine has."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.chat import Chat, leave
from tests.e2e.one_shot import last_result, one_shot
from tests.extensions.places import write
from tests.support.cli import agent_env, run_agent, spawn_agent
from tests.support.model_server import ModelServer
from tests.support.processes import started, wait_until
from tests.support.replies import Call, call, calls
from tests.support.repositories import make_repository
from tests.support.sandboxes import BOTH, needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled


@pytest.mark.spec("SEC-7")
@pytest.mark.parametrize("kind", BOTH)
def test_a_command_in_yolo_mode_writes_in_the_workspace_only(
    model_server: ModelServer, work: Path, tmp_path: Path, kind: str
) -> None:
    needs(kind)
    outside = tmp_path / "outside"
    command = f"echo 1 > in; echo 2 > {outside}; cat in"
    model_server.add(call("bash", {"command": command}), "Done.")
    done = one_shot(model_server, "--yolo", "--sandbox", kind, "go", cwd=work)
    assert (done.code, done.stdout) == (0, "Done.\n")
    assert (work / "in").read_text() == "1\n"
    assert not outside.exists()
    assert "1\n[exit code 0" in last_result(model_server)


@pytest.mark.spec("SEC-7", "SEC-3")
def test_more_access_is_refused_where_nobody_can_be_asked_whatever_the_rules(
    model_server: ModelServer, work: Path, tmp_path: Path
) -> None:
    needs("bwrap")
    outside = tmp_path / "outside"
    wanted = {"command": f"touch {outside}", "access": "outside"}
    model_server.add(call("bash", wanted), "Sorry.")
    one_shot(model_server, "--allow-tool", "bash", "go", cwd=work)
    assert not outside.exists()
    assert "it asks to run outside the sandbox" in last_result(model_server)


@pytest.mark.spec("SEC-7")
def test_off_is_off(model_server: ModelServer, work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    model_server.add(call("bash", {"command": f"touch {outside}"}), "Done.")
    done = one_shot(model_server, "--yolo", "--sandbox", "off", "go", cwd=work)
    assert outside.exists()
    assert "sandbox" not in done.stderr


@pytest.mark.spec("SEC-17", "REC-8")
def test_what_a_command_had_made_when_agent_was_killed_is_set_aside_by_the_next_run(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    needs("bwrap")
    subprocess.run(["git", "init", "-q", "."], check=True, cwd=work)
    config = work / "sub/.git/config"
    sleep = ("sleep", f"1000.{os.getpid()}")
    plant = f"git init -q sub; cd sub; git config core.fsmonitor x; {' '.join(sleep)}"
    (work / "plant.sh").write_text(plant)
    model_server.add(call("bash", {"command": "sh plant.sh"}))
    env = agent_env(model_server)
    auto = ("run", "--permission-mode", "auto")
    with spawn_agent(*auto, "go", env=env, cwd=work) as running:
        wait_until(lambda: bool(started(*sleep)), "the command")
        running.signal(signal.SIGKILL)
        running.wait()
    wait_until(lambda: not started(*sleep), "the end of the command")
    assert "fsmonitor" in config.read_text()
    model_server.add(call("bash", {"command": "sh -c 'echo next'"}), "Done.")
    done = run_agent(*auto, "-c", "go on", env=env, cwd=work)
    assert (done.code, done.stdout) == (0, "Done.\n")
    assert "agent was ended here while a command could still write" in done.stderr
    assert "fsmonitor" in config.with_name("config.set-aside").read_text()
    assert "fsmonitor" not in config.read_text()
    assert not list(home.rglob("unsettled/*"))


@pytest.mark.slow
@pytest.mark.spec("SEC-7", "UI-7")
def test_the_chat_asks_for_more_access_each_time_and_tells_the_state(
    model_server: ModelServer, chat: Chat, tmp_path: Path
) -> None:
    needs("bwrap")
    outside = tmp_path / "outside"
    wanted = {"command": f"touch {outside}", "access": "outside"}
    model_server.add(call("bash", wanted), "Done.")
    terminal = chat()
    terminal.line("go")
    terminal.wait_for("it asks to run outside the sandbox")
    terminal.wait_for("yes, once")
    assert "for this session" not in terminal.text()
    terminal.confirm("y")
    terminal.wait_for("Done.")
    assert outside.exists()
    terminal.line("/sandbox")
    terminal.wait_for("Sandbox of commands: bubblewrap", scrolled=True)
    terminal.line("/sandbox off")
    terminal.wait_for("without a sandbox from now on")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-14")
def test_what_comes_after_the_sandbox_is_switched_off_is_judged_where_it_runs(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    """Also a call of the same reply: outside the shell is in another directory."""
    needs("bwrap")
    (work / "sub").mkdir()
    os.mkfifo(work / "sub" / "waits")
    waiting, emptying = ({"command": command} for command in ("cat waits", "rm -rf ./*"))
    both = calls(Call("bash", waiting), Call("bash", emptying))
    model_server.add(call("bash", {"command": "cd sub"}), both, "Done.")
    terminal = chat("--permission-mode", "yolo", "--sandbox", "bwrap", cwd=work)
    terminal.line("go")
    with (work / "sub" / "waits").open("w"):  # opens once the command does
        terminal.line("/sandbox off")
        terminal.wait_for("without a sandbox from now on")
    terminal.wait_for("yes, once")
    terminal.confirm("n")
    terminal.wait_for("Done.")
    assert (work / "sub").is_dir()
    leave(terminal)


_MOVES_SHELL = """
import os, sys, fcntl
text = sys.stdin.buffer.read()
for handle in range(3, 100):
    try:
        if "memfd:" in os.readlink(f"/proc/self/fd/{handle}"):
            os.write(handle, os.getcwdb() + b"/sub\\n\\0end\\0")
            fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    except OSError:
        pass
sys.stdout.buffer.write(text)
"""


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-7")
@pytest.mark.parametrize(("begun", "wanted"), [("off", "on"), *((kind, "off") for kind in BOTH)])
def test_a_sub_agent_in_a_worktree_has_the_sandbox_that_the_user_has_switched(
    model_server: ModelServer, chat: Chat, work: Path, home: Path, begun: str, wanted: str
) -> None:
    needs("bwrap" if begun == "off" else begun)
    head = "---\nname: writer\ndescription: Writes\nisolation: worktree\n---\n"
    write(home, ".agents/agents/writer.md", f"{head}Write.\n")
    work.rmdir()
    make_repository(work)
    outside = work.parent / "outside"
    task = {"agent": "writer", "description": "d", "prompt": "go"}
    model_server.add(
        call("task", task), call("bash", {"command": f"touch {outside}"}), "Tried.", "Over."
    )
    terminal = chat("--sandbox", begun, "--allow-tool", "bash(touch *)")
    terminal.line(f"/sandbox {wanted}")
    terminal.wait_for("/sandbox o")
    terminal.line("go")
    terminal.wait_for("Over.")
    assert outside.exists() == (wanted == "off")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-7")
def test_what_the_user_has_chosen_in_the_session_holds_after_a_reload(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    needs("bwrap")
    outside = work.parent / "outside"
    reach_out = call("bash", {"command": f"touch {outside}"})
    model_server.add(reach_out, "Inside.", call("bash", {"command": "mkdir made"}), "Over.")
    terminal = chat("--sandbox", "off", "--allow-tool=bash(touch *)", "--allow-tool=bash(mkdir *)")
    terminal.line("/sandbox on")
    terminal.wait_for("/sandbox off|on")
    terminal.line("/permissions remove bash(mkdir *)")
    terminal.wait_for("for this session only")
    terminal.line("/reload")
    terminal.wait_for("Read again")
    terminal.line("go")
    terminal.wait_for("Inside.")
    assert not outside.exists()
    terminal.line("go on")
    terminal.wait_for("Allow this?")
    terminal.confirm("n")
    terminal.wait_for("Over.")
    assert not (work / "made").exists()
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "UI-7")
def test_a_yes_for_the_session_to_what_the_sandbox_keeps_frees_nothing_without_it(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    needs("bwrap")
    outside = work.parent / "outside"
    reach_out = call("bash", {"command": f"touch {outside}; touch made"})
    model_server.add(reach_out, "Inside.", reach_out, "Again.", reach_out, "Over.")
    terminal = chat()
    terminal.line("go")
    terminal.wait_for("yes, for this session")
    terminal.confirm("s")
    terminal.wait_for("Inside.")
    terminal.line("and again")
    terminal.wait_for("Again.")
    assert terminal.text().count("you: yes, for this session") == 1
    terminal.line("/sandbox off")
    terminal.wait_for("without a sandbox from now on")
    terminal.line("once more")
    terminal.wait_for("Allow this?")
    terminal.confirm("n")
    terminal.wait_for("Over.")
    assert not outside.exists()
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "UI-7")
def test_a_rule_that_could_not_be_written_holds_after_a_reload(
    model_server: ModelServer, chat: Chat, work: Path, home: Path
) -> None:
    model_server.add(call("read_file", {"path": "plan.txt"}), "Over.")
    (work / "plan.txt").write_text("of the user")
    terminal = chat()
    file = home / "agentcli" / "config.toml"
    file.mkdir()
    terminal.line("/permissions deny read_file(plan.txt)")
    terminal.wait_for("it could not be written")
    file.rmdir()
    terminal.line("/reload")
    terminal.wait_for("Read again")
    terminal.line("go")
    terminal.wait_for("Over.")
    assert "of the user" not in str(model_server.requests[-1])
    leave(terminal)


@pytest.mark.spec("SEC-3", "SEC-4", "SEC-15")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("second", ["./build.sh", "cd . && cat credentials"])
def test_a_filter_of_a_repository_moves_no_command_to_where_it_was_not_judged(
    model_server: ModelServer, work: Path, kind: str, second: str
) -> None:
    needs(kind)
    sub = work / "sub" / ".aws" if "cat" in second else work / "sub"
    sub.mkdir(parents=True)
    (sub / "credentials").write_text("of the user")
    (sub / "build.sh").write_text("echo another; touch ran\n")
    (sub / "build.sh").chmod(0o755)
    (work / "moves.py").write_text(_MOVES_SHELL.replace("/sub", f"/{sub.relative_to(work)}"))
    (work / ".gitattributes").write_text("a filter=f\n")
    (work / "a").write_text("1\n")
    made = "git init -q && git add a && git config filter.f.clean 'python3 moves.py' && echo 2 > a"
    subprocess.run(["sh", "-c", made], cwd=work, check=True)
    both = calls(Call("bash", {"command": "git diff"}), Call("bash", {"command": second}))
    model_server.add(both, "Done.")
    rule = ("--allow-tool", "bash(./build.sh)")
    one_shot(model_server, "--sandbox", kind, *rule, "go", cwd=work)
    told = facts_of(model_server.requests[-1]).results
    assert f"directory is now {sub}" in next(iter(told.values())), told
    assert "was not run" in last_result(model_server)
    assert not (sub / "ran").exists()


@pytest.mark.slow
@pytest.mark.spec("SEC-15", "UI-4")
def test_the_users_own_command_has_nothing_of_what_was_set_inside(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    needs("bwrap")
    (work / "evil").mkdir()
    (work / "evil" / "uname").write_text("#!/bin/sh\necho owned\n")
    (work / "evil" / "uname").chmod(0o755)
    inside = {"command": f"export PATH={work}/evil:$PATH MARK=set; cd evil; uname"}
    model_server.add(call("bash", inside), "Done.")
    terminal = chat("--permission-mode", "yolo", "--sandbox", "bwrap", cwd=work)
    terminal.line("go")
    terminal.wait_for("Done.")
    terminal.line('!uname; echo "mark=${MARK-none} in=$PWD."')
    terminal.wait_for(f"mark=none in={work}.")
    assert "Linux" in terminal.text()
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-15", "SEC-5")
@pytest.mark.parametrize("kind", BOTH)
def test_the_directory_of_the_users_own_commands_is_not_led_elsewhere_from_inside(
    model_server: ModelServer, chat: Chat, work: Path, tmp_path: Path, kind: str
) -> None:
    needs(kind)
    (work / "sub").mkdir()
    (other := tmp_path / "other").mkdir()
    swap = f"cd {work} && mv sub before && ln -s {other} sub"
    model_server.add(call("bash", {"command": swap}), "Done.")
    terminal = chat("--permission-mode", "auto", "--sandbox", kind, cwd=work)
    terminal.line("!cd sub; echo in=${PWD#$HOME}.")
    terminal.wait_for("exit code 0")
    terminal.line("go")
    terminal.wait_for("Done.")
    terminal.line("!touch mark")
    terminal.wait_for("nothing was run")
    assert not (work / "mark").exists()
    terminal.line("!touch mark; pwd -P; echo gone-$((1+1))")
    terminal.wait_for("gone-2")
    assert not (other / "mark").exists() and (work / "mark").exists()
    leave(terminal)


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("kind", BOTH)
def test_git_that_only_reads_runs_unasked_and_what_the_repository_names_has_no_effect(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    needs(kind)
    evil = work / "evil"
    evil.write_text(f"#!/bin/sh\ntouch '{work}/mark'\ncat\n")
    evil.chmod(0o755)
    (work / "file").write_text("one\n")
    name = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for argv in (("init", "-q"), ("add", "file"), (*name, "commit", "-qm", "first")):
        subprocess.run(["git", *argv], check=True, cwd=work)
    (work / "file").write_text("two\n")
    for key in ("core.fsmonitor", "diff.external", "diff.x.textconv", "filter.x.clean"):
        subprocess.run(["git", "config", key, str(evil)], check=True, cwd=work)
    (work / ".gitattributes").write_text("* diff=x filter=x\n")
    model_server.add(call("bash", {"command": "git status && git diff"}), "Done.")
    one_shot(model_server, "--sandbox", kind, "go", cwd=work)
    assert "+two" in last_result(model_server)
    assert not (work / "mark").exists()


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_the_user_and_the_model_are_told_what_was_set_aside(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    needs(kind)
    command = "mkdir -p a/b/c/d/e; cd a/b/c/d/e; git init -q .; git config core.fsmonitor evil"
    (work / "build.sh").write_text(command)
    model_server.add(call("bash", {"command": "sh build.sh"}), "Done.")
    done = one_shot(model_server, "--yolo", "--sandbox", kind, "go", cwd=work)
    assert (done.code, done.stdout) == (0, "Done.\n")
    for text in (done.stderr, last_result(model_server)):
        assert "a/b/c/d/e/.git/config would take effect outside" in text
    assert "evil" not in (work / "a/b/c/d/e/.git/config").read_text()


@pytest.mark.slow
@pytest.mark.spec("SEC-17")
def test_another_name_of_what_is_read_only_changes_nothing_unseen(
    model_server: ModelServer, work: Path
) -> None:
    needs("bwrap")
    users = "mkdir sub; cd sub; git init -q .; ln .git/config other"
    subprocess.run(["sh", "-c", users], check=True, cwd=work)
    command = "printf '[core]\\n\\tfsmonitor = ./evil\\n' >> sub/other"
    model_server.add(call("bash", {"command": command}), "Done.")
    done = one_shot(model_server, "--yolo", "--sandbox", "bwrap", "go", cwd=work)
    assert "sub/.git/config would take effect outside" in done.stderr
    assert "evil" not in (work / "sub/.git/config").read_text()


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("kind", BOTH)
def test_however_deep_a_command_makes_its_temporary_directory_the_next_program_starts(
    model_server: ModelServer, work: Path, tmp_path: Path, kind: str
) -> None:
    """A tree that cannot be removed would keep every later program from starting."""
    needs(kind)
    (tmp_path / "temporary").mkdir()
    deep = "for _ in range(1100): os.mkdir('d'); os.chdir('d')"
    (work / "deep.py").write_text(f"import os\nos.chdir(os.environ['TMPDIR'])\n{deep}\n")
    for command in ("python3 deep.py", "echo next"):  # the next one goes on with what took too long
        model_server.add(call("bash", {"command": command}), "Done.")
        more = ("--yolo", "--sandbox", kind, "go")
        done = one_shot(model_server, *more, cwd=work, TMPDIR=str(tmp_path / "temporary"))
        assert (done.code, done.stdout) == (0, "Done.\n"), done.stderr
        assert "exit code 0" in last_result(model_server)


@pytest.mark.slow
@pytest.mark.spec("SEC-6", "SEC-15")
@pytest.mark.parametrize("kind", BOTH)
def test_what_was_approved_in_a_directory_that_is_moved_away_meanwhile_runs_in_no_other(
    model_server: ModelServer, chat: Chat, work: Path, kind: str
) -> None:
    needs(kind)
    (work / "build").mkdir()
    (work / "kept").touch()
    moves = f"until [ -e {work}/flag ]; do sleep 0.05; done; mv {work}/build {work}/old"
    model_server.add(
        call("bash", {"command": "cd build", "access": "outside"}),
        call("bash", {"command": f"({moves}) >/dev/null 2>&1 &"}),
        call("bash", {"command": "rm -rf *", "access": "outside"}),
        "Done.",
    )
    terminal = chat("--permission-mode", "auto", "--sandbox", kind)
    terminal.line("go")
    terminal.wait_for("cd build")
    terminal.confirm("y")
    terminal.wait_for("rm -rf *")
    (work / "flag").touch()
    terminal.wait_until(lambda: (work / "old").exists())
    terminal.confirm("y")
    terminal.wait_for("Done.")
    assert (work / "kept").exists()
    assert "no longer exists: nothing was run" in last_result(model_server)
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-7", "UI-7")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("mode", ["default", "accept-edits", "auto"])
def test_what_the_sandbox_protects_is_asked_about_once_and_runs_outside(
    model_server: ModelServer, chat: Chat, work: Path, kind: str, mode: str
) -> None:
    needs(kind)
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    commands = (
        "git config user.name Somebody",
        "git remote add origin https://host.example/a.git",
        "echo layout > .envrc",
        "mkdir -p .husky; echo ls > .husky/pre-commit",
    )
    calls = [call("bash", {"command": text}, id=f"c{at}") for at, text in enumerate(commands)]
    model_server.add(call("bash", {"command": "export MARK=1; ls"}), *calls, "Done.")
    terminal = chat("--permission-mode", mode, "--sandbox", kind, cwd=work)
    terminal.line("go")
    if mode != "auto":
        terminal.wait_for("yes, once")
        terminal.confirm("y")
    for text in commands:
        asked = terminal.wait_for(re.compile(rf"{re.escape(text)}.*?yes, once", re.DOTALL))
        shown = re.sub(r"[\s↪]", "", asked[0])  # lines are broken anywhere
        assert ",OUTSIDEthesandbox" in shown and "thisrunsOUTSIDEthesandbox" in shown
        assert "forthissession" not in shown
        terminal.confirm("y")
    terminal.wait_for("Done.")
    results = facts_of(model_server.requests[-1]).results
    assert all("exit code 0" in results[f"c{at}"] for at in range(len(commands)))
    assert "Somebody" in (work / ".git" / "config").read_text()
    assert "host.example" in (work / ".git" / "config").read_text()
    assert (work / ".envrc").read_text() == "layout\n"
    assert (work / ".husky" / "pre-commit").exists()
    assert not list(work.glob("*.set-aside"))
    leave(terminal)


@pytest.mark.sampled
@pytest.mark.spec("SEC-3", "SEC-7")
@pytest.mark.parametrize("kind", BOTH)
def test_what_the_sandbox_protects_is_refused_where_the_sandbox_stays(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    needs(kind)
    wanted = {"command": "echo layout > .envrc"}
    both = [call("bash", wanted | more, id=name) for name, more in
            (("plain", {}), ("asks", {"access": "outside"}))]  # fmt: skip
    model_server.add(*both, "Sorry.")
    one_shot(model_server, "--yolo", "--sandbox", kind, "go", cwd=work)
    told = facts_of(model_server.requests[-1]).results
    assert all("stays in yolo mode" in told[name] for name in ("plain", "asks"))
    for mode in ("default", "auto", "plan"):
        model_server.restart(call("bash", wanted, id="plain"), "Sorry.")
        options = ("--permission-mode", mode, "--sandbox", kind, "--allow-tool", "bash")
        one_shot(model_server, *options, "go", cwd=work)
        said = "plan mode" if mode == "plan" else "this runs OUTSIDE the sandbox"
        assert said in last_result(model_server)
    assert not list(work.glob(".envrc*"))


@pytest.mark.slow
@pytest.mark.spec("SEC-15", "SEC-7")
def test_no_directory_from_inside_is_where_a_command_runs_outside(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    needs("bwrap")
    (work / "sub").mkdir()
    move = call("bash", {"command": "cd sub"}, id="move")
    write = call("bash", {"command": "echo layout > .envrc"}, id="write")
    there = {"command": "cd sub && echo layout > .envrc", "access": "outside"}
    model_server.add(move, write, call("bash", there, id="there"), "Done.")
    terminal = chat("--permission-mode", "auto", cwd=work)
    terminal.line("go")
    terminal.wait_for("yes, once")
    told = facts_of(model_server.requests[-1]).results["write"]
    assert f"is in {work}:" in told and 'use access "outside"' in told
    terminal.confirm("y")
    terminal.wait_for("Done.")
    assert (work / "sub" / ".envrc").exists()
    assert not (work / ".envrc").exists()
    leave(terminal)
