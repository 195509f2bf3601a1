"""A directory of the project's on PATH, as an activated environment is: what it hides is told."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from agentcli.app.boundary import policy_for
from agentcli.app.options import SessionOptions
from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings
from agentcli.domain.sandbox import Access
from agentcli.process.environment import hides, hiding_below, searched_by
from agentcli.process.hook_scripts import run_by
from agentcli.process.sandbox_watch import TreeWatch
from tests.e2e.one_shot import last_result, one_shot
from tests.support.model_server import ModelServer
from tests.support.replies import call
from tests.support.sandboxes import BOTH, Sandboxed, needs

# the private /tmp of commands, as it is called outside
LED_AWAY = (
    "D=$(awk '$5 == \"/tmp\" {print $4}' /proc/self/mountinfo); mkdir -p $TMPDIR/b;"
    " printf 'evil' > $TMPDIR/b/ls; chmod +x $TMPDIR/b/ls; mv .venv/bin .venv/before;"
    " ln -s ${D:-$TMPDIR}/b .venv/bin; echo made"
)
MADE = "printf '#!/bin/sh\\necho evil\\n' > .venv/bin/NAME; chmod +x .venv/bin/NAME"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "work"
    (root / ".venv/bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{root}/.venv/bin:/usr/local/bin:/usr/bin:/bin")
    return root


@pytest.mark.spec("SEC-17")
def test_only_what_a_shell_would_run_for_a_program_of_the_system_hides_it(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hides(f"{work}/.venv/bin/env") in {"/usr/bin/env", "/bin/env"}
    for name in ("pytest-of-mine", "python3", "pip", "nothing/env", "../env"):
        assert not hides(f"{work}/.venv/bin/{name}")
    for name in ("env", "python3", "tool"):
        (work / ".venv/bin" / name).write_text("x")
    assert list(hiding_below([str(work)])) == [f"{work}/.venv/bin/env"]
    assert not list(hiding_below([f"{work}/.ven"]))
    monkeypatch.setenv("PATH", f"/usr/bin:/bin:{work}/.venv/bin")
    assert not hides(f"{work}/.venv/bin/env")


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("entry", ["./node_modules/.bin", "node_modules/.bin/", "../.bin", "."])
def test_a_relative_directory_on_path_is_looked_at_wherever_it_may_be(
    work: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.setenv("PATH", f"{entry}:/usr/bin:/bin:.")
    programs = work / "packages/a/node_modules/.bin"
    programs.mkdir(parents=True)
    watch = TreeWatch([work])
    watch.learn()
    for name in ("env", "tool"):
        (programs / name).write_text("evil")
    assert hides(f"{programs}/env") and not hides(f"{programs}/tool")
    assert len(watch.compare()) == 1 and not (programs / "env").exists()
    monkeypatch.setenv("PATH", f"/usr/bin:/bin:{entry}")
    assert not hides(f"{programs}/env") and not list(hiding_below([str(work)], [str(programs)]))


@pytest.mark.spec("SEC-17")
def test_a_program_that_hides_one_of_the_system_is_set_aside(work: Path) -> None:
    programs = work / ".venv/bin"
    (programs / "ls").write_text("of the user's")
    watch = TreeWatch([work])
    watch.learn()
    for name in ("env", "ls", "tool", "python3"):
        (programs / name).write_text("evil")
    assert len(watch.compare()) == 2
    found = {each.name: each.read_text() for each in programs.iterdir()}
    assert found.pop("ls") == "of the user's" and "env" not in found
    assert set(found) == {"env.set-aside", "ls.set-aside", "tool", "python3"}


@pytest.mark.slow
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_what_a_contained_command_puts_before_git_is_not_what_the_user_runs(
    work: Path, kind: str
) -> None:
    needs(kind)
    path = f"{work}/.venv/bin:{os.environ['PATH']}"
    (work / "make.sh").write_text(MADE.replace("NAME", "ls"))
    with ModelServer([call("bash", {"command": "sh make.sh"}), "done"]) as server:
        mode = ("--permission-mode", "auto", "--sandbox", kind)
        done = one_shot(server, "hi", *mode, cwd=work, PATH=path)
    assert not (work / ".venv/bin/ls").exists(), done.stderr
    assert "renamed" in last_result(server)


@pytest.mark.spec("SEC-17")
def test_a_directory_on_path_that_leads_to_the_commands_own_is_looked_at(
    work: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    (own / "bin").mkdir(parents=True)
    watch = TreeWatch([work], (), [own])
    watch.learn()
    (own / "bin/ls").write_text("evil")
    (work / ".venv/bin").rename(work / ".venv/before")
    (work / ".venv/bin").symlink_to(own / "bin")
    assert len(watch.compare()) == 1
    assert [each.name for each in (own / "bin").iterdir()] == ["ls.set-aside"]


@pytest.mark.slow
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_a_directory_on_path_is_not_led_to_the_commands_own(work: Path, kind: str) -> None:
    needs(kind)
    path = f"{work}/.venv/bin:{os.environ['PATH']}"
    with ModelServer([call("bash", {"command": LED_AWAY}), "done"]) as server:
        mode = ("--permission-mode", "auto", "--sandbox", kind)
        one_shot(server, "hi", *mode, cwd=work, PATH=path)
    assert "made" in last_result(server) and "ls.set-aside" in last_result(server)


@pytest.mark.slow
@pytest.mark.spec("SEC-17", "SEC-3")
def test_no_tool_puts_a_program_before_one_of_the_system_unasked(work: Path) -> None:
    patch = (
        "diff --git a/.venv/bin/ls b/.venv/bin/ls\nnew file mode 100755\n"
        "--- /dev/null\n+++ b/.venv/bin/ls\n@@ -0,0 +1 @@\n+evil\n"
    )
    path = f"{work}/.venv/bin:{os.environ['PATH']}"
    with ModelServer([call("apply_patch", {"patch": patch}), "done"]) as server:
        one_shot(server, "hi", "--permission-mode", "accept-edits", cwd=work, PATH=path)
    assert not (work / ".venv/bin/ls").exists()
    assert "ls (run for /" in last_result(server)


@pytest.mark.spec("SEC-17", "SEC-15")
@pytest.mark.parametrize("kind", BOTH)
def test_a_directory_that_the_shell_outside_was_led_to_is_looked_at_from_then_on(
    tmp_path: Path, kind: str
) -> None:
    """As ``!source .venv/bin/activate`` leads the user's next ``!git status`` there."""
    root = tmp_path.resolve() / "work"
    programs = root / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "env").write_text("of the user's")

    async def run() -> list[str]:
        async with Sandboxed(root, kind) as inside:
            before = await inside.say("sleep 60 & echo started")
            activate = f'export PATH="{programs}:$PATH"'
            activated = await inside.with_access(Access.OUTSIDE, activate)
            made = await inside.say(MADE.replace("NAME", "ls"))
            ran = await inside.with_access(Access.OUTSIDE, "ls -d .")
            return [before, activated, made, ran]

    before, activated, made, ran = asyncio.run(run())
    assert "started" in before and "renamed" not in activated
    assert "renamed" in made and "evil" not in ran
    assert (programs / "env").read_text() == "of the user's"


@pytest.mark.slow
@pytest.mark.spec("SEC-17", "SEC-3")
def test_no_tool_edits_a_program_where_the_shell_outside_was_led_to_unasked(
    tmp_path: Path,
) -> None:
    """Also in a session that goes on."""
    root = tmp_path / "work"
    (root / ".venv/bin").mkdir(parents=True)
    lead = call("bash", {"command": 'export PATH="$PWD/.venv/bin:$PATH"'})
    edit = call("write_file", {"path": ".venv/bin/ls", "content": "evil"})
    with ModelServer([lead, "done", edit, "done"]) as server:
        one_shot(server, "hi", "--yolo", cwd=root)
        one_shot(server, "more", "-c", "--permission-mode", "accept-edits", cwd=root)
    assert not (root / ".venv/bin/ls").exists()
    assert "ls (run for /" in last_result(server)


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("PATH_add bin", "bin"),
        ("use x\n  PATH_add ./scripts # ours", "scripts"),
        ('PATH_add "$PWD/a/bin" b', "b"),
        ("path_add PATH tools", "tools"),
        ('export PATH="$PWD/tools:$(pwd)/more:$PATH"', "more"),
        ("load_prefix vendor/x", "vendor/x/bin"),
        ("layout node", "node_modules/.bin"),
        ("layout python3", ".direnv/python-3.12/bin"),
    ],
)
def test_what_an_envrc_puts_first_in_path_is_looked_at(
    work: Path, monkeypatch: pytest.MonkeyPatch, said: str, place: str
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    project = work / "packages/a"
    (project / place).mkdir(parents=True)
    (project / ".envrc").write_text(f"{said}\n")
    watch, settings = TreeWatch([work]), load_settings(Paths.from_env(os.environ), os.environ)
    runs = policy_for(settings, SessionOptions(cwd=work)).run_by_others
    watch.learn()
    program = project / place / "env"
    assert runs(program) == "run for /usr/bin/env"
    assert not runs(program.with_name("tool")) and not runs(project / "x" / "env")
    program.write_text("x")
    program.with_name("tool").write_text("x")
    (told,) = watch.compare()
    assert f"{place}/env would take effect outside" in told
    assert not watch.compare()


@pytest.mark.spec("SEC-13", "SEC-17")
@pytest.mark.parametrize(
    "text",
    [
        "PATH_add /x/* \0 ** ~nobody/*\nlayout\nlayout *\nload_prefix /\n",
        "PATH=" * 100_000,
        "PATH_add a\n" * 100_000,
        "_={" * 100_000,
        "_.file = [" * 50_000,
        "[hooks]\na\n \t" * 50_000,
    ],
)
@pytest.mark.parametrize("name", [".envrc", "mise.toml"])
def test_what_is_hostile_on_entering_costs_no_time_and_ends_nothing(
    work: Path, name: str, text: str
) -> None:
    (work / name).write_text(text)
    began = time.process_time()
    assert isinstance(searched_by(f"{work}/{name}"), str)
    TreeWatch([work]).learn()
    assert time.process_time() - began < 2.0


MISE = """[env]
_.file = [".env", ".env.local"]
_.source = { path = "scripts/set.sh" }
_.path = ["{{config_root}}/tools", "./more"]
mise.file = "more.env"
VERSION = "{{ exec(command='sh scripts/version.sh') }}"
[tasks.build]
file = "scripts/build.sh"
run = "sh scripts/task.sh"
[hooks]
enter = "sh scripts/enter.sh"
[tools]
node = "22"
"""


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("name", ["mise.toml", ".mise.toml", ".config/mise/config.toml"])
def test_what_mise_loads_on_entering_is_protected_and_its_tasks_are_not(
    work: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for place in ("scripts", "tools", "more", ".git", ".config/mise"):
        (work / place).mkdir(parents=True)
    (work / name).write_text(MISE)
    programs = () if "/" in name else ("tools/env", "more/env")
    loaded = (
        ".env", ".env.local", "scripts/set.sh", "scripts/enter.sh", "more.env",
        "scripts/version.sh", *programs,
    )  # fmt: skip
    free = ("scripts/build.sh", "scripts/task.sh", "tools/mine")
    (work / ".env").write_text("A=1")
    watch, settings = TreeWatch([work]), load_settings(Paths.from_env(os.environ), os.environ)
    runs = policy_for(settings, SessionOptions(cwd=work)).run_by_others
    watch.learn()
    assert all(runs(work / each) for each in loaded if not name.startswith(".config"))
    assert not any(runs(work / each) for each in free)
    for each in (*loaded, *free):
        (work / each).write_text("LD_PRELOAD=/x.so")
    told = "\n".join(watch.compare())
    assert all(f"{work / each} would take effect" in told for each in loaded), told
    assert not any(f"{work / each} " in told for each in free)
    assert (work / ".env").read_text() == "A=1"


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    "said",
    [
        '"tools"', '["x", "./tools"]', '"{{config_root}}/tools"', '["{{ config_root }}/tools"]',
        '{ path = "tools", tools = true }', '[{ path = ["{{ config_root }}/tools"], tools = true }]',
    ],
)  # fmt: skip
def test_however_mise_is_told_a_directory_of_programs_it_is_found(work: Path, said: str) -> None:
    (work / "mise.toml").write_text(f"[env]\n_.path = {said}\n")
    assert f"{work}/tools" in searched_by(f"{work}/mise.toml").split(":")


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    "said",
    [
        'hooks = { enter = "sh a.sh" }', '[[watch_files]]\npatterns = ["*"]\nrun = "sh a.sh"',
        '[env._]\nsource = "a.sh"', '[env._.source]\npath = "a.sh"', 'env_file = "a.sh"',
    ],
)  # fmt: skip
def test_however_mise_is_told_what_to_load_it_is_found(work: Path, said: str) -> None:
    (work / "mise.toml").write_text(f"{said}\n[tasks.build]\nfile = 'b.sh'\n")
    (work / "a.sh").write_text("x")
    (work / "b.sh").write_text("x")
    assert list(run_by([f"{work}/mise.toml"], str(work))) == [f"{work}/a.sh"]
