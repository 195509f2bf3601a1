"""What git runs is found however its configuration and hooks are written (SEC-17)."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from agentcli.process.directories import workplaces_below
from agentcli.process.git_config import programs_of, run_by_git
from tests.e2e.one_shot import last_result, one_shot
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.repositories import git, make_repository
from tests.support.sandboxes import BOTH, Sandboxed, needs, told

pytestmark = [pytest.mark.sampled, pytest.mark.spec("SEC-17")]

both = pytest.mark.parametrize("kind", BOTH)
CONFIGURATIONS = {
    "a comment": b"[core]\n\thooksPath = tools # ours\n",
    "a comment after quotes": b'[core]\n\thooksPath = "tools" ; ours\n',
    "quotes in between": b'[core]\n\thooksPath = to"ols"\n',
    "a line that goes on": b"[alias]\n\tlg = log \\\n\t--oneline\n[core]\n\thooksPath = tools\n",
    "a name that is no UTF-8": b"[user]\n\tname = J\xf6rg\n[core]\n\thooksPath = tools\n",
    "a program of a shell's": b'[alias]\n\tx = "!f() { tools/pre-commit; }; f"\n',
}
HOOKS = {
    "a directory first": "cd tools && ./check.sh\n",
    "a directory in a variable": 'D="$(git rev-parse --show-toplevel)/tools"\n"$D/check.sh"\n',
    "no ending": "sh tools/check\n",
    "no ending, sourced": '. "$PWD/tools/check"\n',
}


@both
@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_what_git_reads_in_its_configuration_is_read(
    tmp_path: Path, kind: str, config: bytes
) -> None:
    work = make_repository(tmp_path / "work")
    hook = work / "tools/pre-commit"
    hook.parent.mkdir()
    hook.write_text("true\n")
    hook.chmod(0o755)
    with (work / ".git/config").open("ab") as file:
        file.write(config)
    assert run_by_git(hook)
    (text,) = told(work, "echo touch pwned >> tools/pre-commit", kind=kind)
    assert "pwned" not in hook.read_text(), text


@both
@pytest.mark.parametrize("below", ["", "tools"])
@pytest.mark.parametrize("text", HOOKS.values(), ids=HOOKS)
def test_a_script_that_a_hook_names_is_protected(
    tmp_path: Path, kind: str, text: str, below: str
) -> None:
    work = make_repository(tmp_path / "work")
    (work / "tools").mkdir()
    (work / ".git/hooks").mkdir(exist_ok=True)
    (work / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{text}")
    scripts = [work / "tools/check", work / "tools/check.sh"]
    for script in scripts:
        script.write_text("true\n")
    named = scripts["check.sh" in text]
    assert run_by_git(named)
    told(work / below, f"echo touch pwned | tee {work}/tools/check*", kind=kind)
    assert "pwned" not in named.read_text()


@both
@pytest.mark.parametrize("url", ["{}", "file://{}"])
def test_no_remote_is_a_repository_of_a_command(tmp_path: Path, kind: str, url: str) -> None:
    work = make_repository(tmp_path / "work")
    git(work, "remote", "add", "origin", "/nowhere")

    async def run() -> Path:
        async with Sandboxed(work, kind) as inside:
            private = inside.sandbox.on_machine(Path("/tmp"))
            if kind == "landlock":
                private = Path((await inside.say("printf %s $TMPDIR")).split("\n")[0])
            evil = f"{url.format(private)}/e"
            await inside.say(
                "cd ${TMPDIR:-/tmp}; git init -q --bare e; mkdir -p e/hooks;"
                f"printf '#!/bin/sh\\ntouch {work}/pwned' > e/hooks/pre-receive;"
                f"chmod +x e/hooks/*; cd {work}; git remote set-url origin {evil};"
                f"git init -q n; git -C n remote add origin {evil}"
            )
            for place in (work, work / "n"):
                push = ["git", "push", "origin", "HEAD:refs/heads/x"]
                subprocess.run(push, check=False, cwd=place, capture_output=True)
        return private

    private = asyncio.run(run())
    assert not (work / "pwned").exists()
    assert str(private) not in (work / ".git/config").read_text()
    assert str(private) not in (work / "n/.git/config").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*BOTH, "off"])
def test_a_run_that_asks_nobody_changes_no_hook(tmp_path: Path, kind: str) -> None:
    if kind != "off":
        needs(kind)
    work = make_repository(tmp_path / "work")
    (work / "tools").mkdir()
    (work / "tools/pre-commit").write_text("#!/bin/sh\ntrue\n")
    (work / "tools/pre-commit").chmod(0o755)
    with (work / ".git/config").open("ab") as file:
        file.write(CONFIGURATIONS["a comment"])
    write = {"path": "tools/pre-commit", "content": "#!/bin/sh\ntouch pwned\n"}
    command = "echo touch pwned >> tools/pre-commit"
    replies = [
        call("read_file", {"path": "tools/pre-commit"}),
        call("write_file", write),
        call("bash", {"command": command}),
        say("done"),
    ]
    with ModelServer(replies, strict=False) as server:
        mode = ("--permission-mode", "auto", "--sandbox", kind)
        run_agent("run", *mode, "go", env=agent_env(server), cwd=work)
    git(work, "commit", "-q", "--allow-empty", "-m", "second")
    assert not (work / "pwned").exists()


# what is made in the workspace, and the file of it that something there runs, or waits for
ELSEWHERE = {
    "the script of a submodule further down": ("deep/sub", "sh ../../tools/x.sh", "tools/x.sh"),
    "the script of a repository beside": ("a", "sh ../shared/x.sh", "shared/x.sh"),
    "a script that is not there yet": (".", "[ ! -f new/x.sh ] || sh new/x.sh", "new/x.sh"),
    "one of a directory that is run": (".", 'for f in all.d/*; do sh "$f"; done', "all.d/new"),
}


@pytest.mark.parametrize("said", ["../tools/x.sh", "{work}/tools/x.sh"])
def test_the_script_of_a_bare_repository_is_run_by_it(tmp_path: Path, said: str) -> None:
    work = make_repository(tmp_path / "work")
    git(work, "init", "-q", "--bare", "b.git")
    (work / "tools").mkdir()
    (work / "tools/x.sh").write_text("true\n")
    hook = work / "b.git/hooks/pre-receive"
    hook.write_text(f"#!/bin/sh\nsh {said.format(work=work)}\n")
    hook.chmod(0o755)
    found = workplaces_below([str(work)], {})
    assert found == [str(work), f"{work}/b.git"]
    assert run_by_git(work / "tools/x.sh", found) == "run by a hook of git's"
    assert not run_by_git(work / "tools/y.sh", found)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*ELSEWHERE, "hooks of a repository beside", "an .envrc beside"])
def test_no_edit_unasked_of_what_something_in_the_workspace_runs(tmp_path: Path, case: str) -> None:
    repository, hook, file = ELSEWHERE.get(case, ("a", "true", "shared/pre-commit"))
    place = make_repository(tmp_path / "work" / repository)
    work = tmp_path / "work"
    (place / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{hook}\n")
    (place / ".git/hooks/pre-commit").chmod(0o755)
    if case not in ELSEWHERE:
        git(place, "config", "core.hooksPath", "../shared" if "hooks" in case else ".none")
        (place / ".envrc").write_text("source ../shared/pre-commit" if "envrc" in case else "")
    if "not there" not in case:
        (work / file).parent.mkdir(parents=True, exist_ok=True)
    if "directory" not in case and "not there" not in case:
        (work / file).write_text("true\n")
    replies = [
        call("write_file", {"path": each, "content": "touch pwned\n"})
        for each in (file, "free/pre-commit.txt", "free/y.sh")
    ]
    reads = [call("read_file", {"path": file})] if (work / file).exists() else []
    with ModelServer([*reads, *replies, say("done")], strict=False) as server:
        mode = ("--permission-mode", "accept-edits", "--sandbox", "off")
        run_agent("run", *mode, "go", env=agent_env(server), cwd=work)
    assert not (work / file).exists() or "pwned" not in (work / file).read_text()
    assert (work / "free/pre-commit.txt").exists() and (work / "free/y.sh").exists()


@both
@pytest.mark.parametrize("given", ["GIT_CONFIG_COUNT", "GIT_CONFIG_SYSTEM"])
def test_hooks_that_the_users_environment_names_are_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, given: str
) -> None:
    work = make_repository(tmp_path / "work")
    hook = work / "own hooks/pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    system = tmp_path / "system"
    system.write_text('[core]\n\thooksPath = "own hooks"\n')
    monkeypatch.setenv(given, "1" if "COUNT" in given else str(system))
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "own hooks")
    told(work, "echo touch pwned >> 'own hooks/pre-commit'", kind=kind)
    assert hook.read_text() == "#!/bin/sh\n"
    assert run_by_git(hook)


def test_a_long_configuration_is_read_at_once() -> None:
    for part in ('"', '\\"', '"a"', "\\\n", "a=", "# x\n", "[a]", "\t"):
        programs_of(b"[alias]\nx = " + part.encode() * 80_000 + b"\\x\n")


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-4")
@both
def test_a_read_that_names_a_credential_runs_where_others_do(tmp_path: Path, kind: str) -> None:
    needs(kind)
    root = make_repository(tmp_path / "work")
    (root / ".env").write_text("A=canary")
    (root / "evil").write_text("#!/bin/sh\ntouch made\n")
    (root / "evil").chmod(0o755)
    for key in ("core.fsmonitor", "diff.external"):
        git(root, "config", key, f"{root}/evil")
    command = "git status -s .env; git diff --stat -- .env; cat .env"
    with ModelServer([call("bash", {"command": command}), "done"]) as server:
        one_shot(server, "hi", "--yolo", "--sandbox", kind, cwd=root)
    assert "canary" in last_result(server)
    assert not (root / "made").exists()
