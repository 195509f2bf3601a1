"""Hooks in the user's file: every spelling that people bring along, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.config.hooks import finds_modules, may_run_from, run_the_directory, scripts_of
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import ConfigError
from agentcli.domain.extensions.hooks import HookConfig, HookEvent


def load(home: Path, text: str) -> Settings:
    paths = Paths(home, home, home)
    paths.config_file.write_text(text)
    return load_settings(paths, {})


FLAT = """
[[hooks.PreToolUse]]
matcher = "bash"
command = "check"
timeout_s = 10
"""
GROUPED = """
[[hooks.PreToolUse]]
matcher = "bash"
[[hooks.PreToolUse.hooks]]
type = "command"
command = "check"
timeout = 10
"""
LISTED = """
[[hooks]]
event = "PreToolUse"
matcher = "bash"
command = "check"
timeout = 10
"""


@pytest.mark.parametrize("text", [FLAT, GROUPED, LISTED], ids=["flat", "grouped", "listed"])
def test_three_spellings_mean_the_same_hook(tmp_path: Path, text: str) -> None:
    settings = load(tmp_path, text)
    (hook,) = settings.hooks
    assert (hook.event, hook.matcher, hook.command) == (HookEvent.PRE_TOOL_USE, "bash", "check")
    assert hook.limit_s == 10
    assert not settings.warnings
    assert settings.values["hooks.PreToolUse"] == ("bash: check (10 s)",)
    assert settings.sources["hooks.PreToolUse"].startswith(f"{tmp_path / 'config.toml'}:")


def test_hooks_of_one_event_keep_their_order(tmp_path: Path) -> None:
    text = "".join(f'[[hooks.Stop]]\ncommand = "{name}"\n' for name in "abc")
    assert [hook.command for hook in load(tmp_path, text).hooks] == ["a", "b", "c"]


def test_a_hook_has_a_minute_and_one_that_ends_a_session_less(tmp_path: Path) -> None:
    text = '[[hooks.Stop]]\ncommand = "a"\n[[hooks.SessionEnd]]\ncommand = "b"\n'
    assert [hook.limit_s for hook in load(tmp_path, text).hooks] == [60, 5]


@pytest.mark.spec("CLI-11")
def test_an_event_that_does_not_exist_is_a_warning_with_its_place(tmp_path: Path) -> None:
    settings = load(tmp_path, '[[hooks.PreToolUsed]]\ncommand = "a"\n')
    (warning,) = settings.warnings
    assert settings.hooks == ()
    assert "config.toml:1:" in warning and "'PreToolUsed'" in warning and "PreToolUse," in warning


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("hooks = 3", "expected tables"),
        ('hooks.Stop = "run"', "expected tables"),
        ("[[hooks.Stop]]\nmatcher = 'x'", "needs a command"),
        ("[[hooks.Stop]]\ncommand = ''", "needs a command"),
        ("[[hooks.Stop]]\ncommand = ['a']", "needs a command"),
        ("[[hooks.PreToolUse]]\ncommand = 'a'\nmatcher = '('", "matcher"),
        ("[[hooks.PreToolUse]]\ncommand = 'a'\nmatcher = 3", "matcher"),
        ("[[hooks.Stop]]\ncommand = 'a'\ntimeout_s = 0", "timeout_s"),
        ("[[hooks.Stop]]\ncommand = 'a'\ntimeout_s = true", "timeout_s"),
        ("[[hooks.Stop]]\ncommand = 'a'\ntimeout_s = inf", "timeout_s"),
        ("[[hooks.Stop]]\ncommand = 'a'\ntimeuot_s = 3", "timeuot_s"),
        ("[[hooks.Stop]]\ncommand = 'a'\ntype = 'prompt'", "only command"),
        ("[[hooks.Stop]]\nhooks = ['a']", "expected tables"),
    ],
)
def test_a_guard_that_is_written_wrongly_is_refused_not_left_out(
    tmp_path: Path, text: str, part: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert part in str(caught.value) and "config.toml:" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("./check.sh --fast", ["check.sh"]),
        ("sh check.sh > log.txt", ["check.sh"]),
        ("python3 -u tools/lint.py data.json", ["tools/lint.py"]),
        ('"$CLAUDE_PROJECT_DIR"/tools/lint.py', ["tools/lint.py"]),
        (
            "A=1 timeout 10 bash -e ${AGENTCLI_PROJECT_DIR}/a.sh; cat b.sh | ./c",
            ["a.sh", "b.sh", "c"],
        ),
        ("sh -c 'cd x && ./d.sh'", ["d.sh"]),
        ("if true; then tools/run.sh; fi", ["tools/run.sh"]),
        ("touch log.txt; jq . >> hooks/log.json", []),
        ("notify-send done", []),
        ("/usr/bin/env ../outside.sh", []),
        ("echo 'unbalanced ./x.sh", ["x.sh"]),
        ("timeout 5s ./n.sh", ["n.sh"]),
        ("env -u FOO ./n.sh", ["n.sh"]),
        ("bash -o pipefail n.sh", ["n.sh"]),
        ("python3 -W ignore n.py", ["n.py"]),
        ("sh < n.sh", ["n.sh"]),
        ("$(pwd)/n.sh", ["n.sh"]),
        ("f=./n.sh; $f", ["n.sh"]),
        ('python3 "$(git rev-parse --show-toplevel)/n.py"', ["n.py"]),
        ("`git rev-parse --show-toplevel 2>/dev/null || pwd`/n.sh", ["n.sh"]),
        ("${CLAUDE_PROJECT_DIR:-.}/n.sh", ["n.sh"]),
        ("git commit -m done", []),
        ("prettier --write README.md", []),
        ("trap '' INT; sed -i '' x.txt && bash '' n.sh", ["n.sh"]),
    ],
)
def test_the_scripts_that_a_hook_runs_are_known(
    tmp_path: Path, command: str, found: list[str]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    scripts = scripts_of([HookConfig(HookEvent.STOP, command)], root, root)
    assert [str(script.relative_to(root)) for script in scripts] == found


@pytest.mark.spec("SEC-17")
def test_what_a_script_of_a_hook_leads_to_is_known(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "h").mkdir(parents=True)
    (root / "h/r.sh").write_text(". h/lib.sh\n$(dirname $0)/more.sh\n")
    for name in ("lib.sh", "more.sh", "m.py"):
        (root / "h" / name).write_text("")
    (root / "notify.sh").symlink_to("/usr/bin/env")
    (root / "out").symlink_to(tmp_path)
    (tmp_path / "far.sh").write_text("")

    def found(command: str) -> set[str]:
        scripts = scripts_of([HookConfig(HookEvent.STOP, command)], root, root)
        return {str(script.relative_to(root)) for script in scripts}

    assert found("cd h && ./r.sh") >= {"h/r.sh", "h/lib.sh", "h/more.sh"}
    assert "h/m.py" in found("python3 -m h.m")
    assert found("./notify.sh") == {"notify.sh"}
    assert found("out/far.sh") == {"out/far.sh"}


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("command", "may"),
    [
        ("./notify.sh", True),
        ("xargs -a /dev/null notify.sh", True),
        ("cat data | sh", True),
        ("$(git rev-parse --show-toplevel)/n.sh", True),
        ("$tool x", True),
        ("make notify", True),
        ("cd sub && tool", True),
        ("notify-send done", False),
        ("jq -r .prompt >> /var/log/x", False),
        ('"$HOME"/bin/tell', False),
    ],
)
def test_a_command_that_may_run_what_a_directory_holds(
    tmp_path: Path, command: str, may: bool
) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "data").write_text("")
    (root / "notify.sh").symlink_to("/usr/bin/make")
    assert may_run_from(command, root, root) is may


@pytest.mark.spec("SEC-1", "SEC-17")
@pytest.mark.parametrize(
    "command",
    [
        'python3 -c "import json"',
        "python3 -m json.tool",
        "node -e 'require(\"x\")'",
        "cat *.sh | sh",
        "sh *.sh",
        "sh >/tmp/log <later.sh",
        "ls | xargs sh",
        "find . -name '*.sh' -exec sh {} ;",
        "git commit -qam wip",
        "eslint --fix",
        "~/.local/bin/eslint .",
        "/usr/bin/make",
        "bash -c make",
        "env -Smake",
        "PATH=.:$PATH jq .",
        "PYTHONPATH=. python3 ~/hook.py",
        "trap make EXIT",
        "{ make; }",
        "f() { make; }; f",
        "alias x=make; x",
        "echo x ;>/tmp/f make",
        "echo x &>/tmp/f make",
        "tee >(sh)",
        "sh <<END\nmake\nEND",
        "somebodys-tool",
    ],
)
def test_a_doubt_is_a_yes(tmp_path: Path, command: str) -> None:
    assert may_run_from(command, tmp_path, tmp_path)


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    "command",
    [
        "cat >> /var/log/x 2>&1",
        'notify-send "done; ok" &>/dev/null',
        "jq -r .prompt | grep -q x && exit 2 || exit 0",
        'if [ -n "$X" ]; then notify-send "$X"; fi',
        "timeout 5s ~/bin/x",
        "bash -eu ~/x.sh --flag",
        "bash -c 'echo hi'",
        "python3 -u ~/h.py --mode x",
        "python3 -Ic 'import json'",
        "~/.venv/bin/python /opt/h.py",
        "X=1 nice -n 5 ~/t",
    ],
)
def test_what_is_certain_to_be_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert not may_run_from(command, root, root)


@pytest.mark.spec("SEC-2", "SEC-17")
def test_a_program_that_path_may_find_in_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (f"{tmp_path}/bin:/usr/bin", ".:/usr/bin", ":/usr/bin"):
        monkeypatch.setenv("PATH", path)
        assert may_run_from("cat /dev/null", tmp_path, tmp_path)
        assert not may_run_from("echo x", tmp_path, tmp_path)


@pytest.mark.spec("SEC-2", "SEC-17")
def test_a_program_that_a_version_manager_chooses_by_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``rust-toolchain.toml``, ``.tool-versions`` and ``mise.toml`` may name any directory."""
    shims, root = tmp_path / ".asdf/shims", tmp_path / "root"
    for directory in (shims, root):
        directory.mkdir(parents=True)
    (shims / "jq").write_text("#!/bin/sh\n")
    (shims / "jq").chmod(0o755)
    (tmp_path / "mise").touch(0o755)
    (tmp_path / "grep").symlink_to("mise")
    monkeypatch.setenv("PATH", f"{shims}:{tmp_path}:/usr/bin:/bin")
    for command in ("jq .x", "grep -q x", f"{tmp_path}/grep -q x"):
        assert may_run_from(command, root, root)
    assert not may_run_from("sort -u", root, root)


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("script", "runs"),
    [
        ("set -e\nnpm test\n", True),
        ("cd x && CI=1 make -s lint", True),
        ("if ! npx tsc; then exit 2; fi", True),
        ("exec pytest -q", True),
        ("echo $(cargo check)", True),
        ("# make sure that it is fine\ngit diff --quiet || exit 2", False),
        ("jq -r .tool_name | grep -q Bash && exit 2  # npm", False),
        ("go=1; task_name=x; just_this", False),
    ],
)
def test_a_script_that_has_a_build_file_obeyed(tmp_path: Path, script: str, runs: bool) -> None:
    (tmp_path / "x.sh").write_text(script)
    assert run_the_directory([tmp_path / "x.sh"]) is runs


@pytest.mark.spec("SEC-2", "SEC-17")
@pytest.mark.parametrize(
    ("command", "files", "is_safe", "is_open"),
    [
        ("python3 tools/x.py", {"tools/x.py": "import json"}, True, False),
        ("python3 tools/x.py", {"tools/x.py": "import y", "tools/y.py": ""}, False, True),
        ("python3 tools/x.py", {"tools/x.py": "import sys\nsys.path.insert(0, 'a')"}, False, True),
        ("python3 .agents/x.py", {".agents/x.py": "import y", ".agents/y.py": ""}, False, False),
        (
            "sh .agents/x.sh",
            {".agents/x.sh": "python3 -c 1; .agents/x.py", ".agents/x.py": "from .y import z"},
            False,
            True,
        ),
        ("sh tools/x.sh", {"tools/x.sh": "python3 -c 'import json'"}, True, False),
        ("sh tools/x.sh", {"tools/x.sh": "python3 $HERE/../lib/z.py"}, False, False),
        ("sh tools/x.sh", {"tools/x.sh": "python3 -m tools.y", "tools/y.py": ""}, False, True),
        ("sh tools/x.sh", {"tools/x.sh": "python3 -m json.tool"}, True, False),
        ("node x.js", {"x.js": "require('fs'); import p from 'node:path'"}, False, False),
        ("node x.js", {"x.js": "require('lodash')"}, False, True),
        ("jq .", {}, False, False),
    ],
)
def test_where_the_programs_of_a_hook_look_for_modules(
    tmp_path: Path, command: str, files: dict[str, str], is_safe: bool, is_open: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    hook = HookConfig(HookEvent.STOP, command)
    assert finds_modules(hook, tmp_path, tmp_path) == (is_safe, is_open)


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("./lib", {"tools/lib/index.js": "", "tools/lib.js": None}),
        ("./lib", {"tools/lib/index.js": "require('./deep')", "tools/lib/deep.js": ""}),
        ("../lib", {"lib.js": ""}),
        ("../lib.mjs", {"lib.mjs": ""}),
        ("./a/b", {"tools/a/b.ts": ""}),
        ("./a", {"tools/a/package.json": '{"main": "src/b.js"}', "tools/a/src/b.js": ""}),
    ],
)
def test_what_a_script_imports_by_its_path_is_a_script_of_the_hook(
    tmp_path: Path, name: str, files: dict[str, str | None]
) -> None:
    """``None``: it is not there yet, and would be taken then."""
    for path, text in {"tools/x.js": f"require('{name}')", **files}.items():
        if text is not None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
    found = scripts_of([HookConfig(HookEvent.STOP, "node tools/x.js")], tmp_path, tmp_path)
    assert {str(each.relative_to(tmp_path)) for each in found} >= {"tools/x.js", *files}


@pytest.mark.spec("SEC-2")
def test_a_script_in_a_directory_that_cannot_be_listed_may_take_what_is_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.py").write_text("import json")

    def refuse(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.listdir", refuse)
    hook = HookConfig(HookEvent.STOP, "python3 x.py")
    assert finds_modules(hook, tmp_path, tmp_path) == (False, True)
