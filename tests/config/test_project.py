"""What a project brings: read as data, within bounds, and never more than it may say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentcli.config.paths import Paths
from agentcli.config.project import Project, read_project
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import ConfigError
from agentcli.domain.extensions.hooks import HookConfig, HookEvent
from agentcli.domain.ports import PermissionMode


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work/.agents").mkdir(parents=True)
    return tmp_path / "work"


def project_of(root: Path, text: str) -> Project:
    (root / ".agents/config.toml").write_text(text)
    project = read_project(root, "")
    assert project is not None
    return project


def settings_with(root: Path, text: str, own: str = "") -> Settings:
    paths = Paths(root.parent, root.parent, root.parent)
    paths.config_file.write_text(own)
    return load_settings(paths, {}, project=project_of(root, text))


@pytest.mark.spec("SEC-1")
def test_a_project_without_anything_of_its_own_needs_no_trust(tmp_path: Path, root: Path) -> None:
    assert read_project(tmp_path, "") is None
    (root / ".agents/notes.txt").touch()
    assert read_project(root, "") is None


@pytest.mark.spec("SEC-1")
def test_the_home_directory_is_the_persons_own_and_no_project(root: Path) -> None:
    (root / ".agents/commands").mkdir()
    (root / ".agents/commands/mine.md").write_text("do it")
    assert read_project(root, "") is not None
    assert read_project(root, str(root)) is None


@pytest.mark.spec("SEC-1")
def test_what_it_holds_is_listed(root: Path) -> None:
    for name in ("commands/ship.md", "commands/more/x.md", "skills/pdf/SKILL.md", "agents/a.md"):
        file = root / ".agents" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("text")
    project = project_of(root, "")
    assert dict(project.names) == {
        "commands": ("ship", "more/"),
        "skills": ("pdf",),
        "agents": ("a",),
    }


@pytest.mark.spec("SEC-1")
def test_the_fingerprint_is_of_the_meaning(root: Path) -> None:
    first = project_of(root, 'model = "a/b"\n[permissions]\nallow = ["bash(make)"]\n')
    spaced = project_of(root, '# why\nmodel="a/b"\npermissions.allow = [ "bash(make)" ]\n')
    other = project_of(root, 'model = "a/b"\n[permissions]\nallow = ["bash(make *)"]\n')
    assert first.fingerprint == spaced.fingerprint != other.fingerprint


@pytest.mark.spec("SEC-1")
def test_a_changed_hook_is_another_fingerprint(root: Path) -> None:
    hook = '[[hooks.Stop]]\ncommand = "{}"\n'
    found = {project_of(root, hook.format(c)).fingerprint for c in ("./check", "./check -q")}
    assert len(found) == 2


@pytest.mark.spec("SEC-1", "SEC-17")
@pytest.mark.parametrize(
    "name",
    [".agents/commands/ship.md", ".agents/skills/pdf/scripts/run.py", ".agents/agents/a.md",
     "tools/check.sh", "own.sh"],
)  # fmt: skip
def test_a_changed_file_that_would_take_effect_is_another_fingerprint(
    root: Path, name: str
) -> None:
    own = [HookConfig(HookEvent.STOP, "sh own.sh")]
    (root / ".agents/config.toml").write_text("[[hooks.Stop]]\ncommand = 'tools/check.sh'\n")
    file = root / name
    marks = []
    for change in (lambda: None, lambda: file.write_text("one"), lambda: file.write_text("two")):
        file.parent.mkdir(parents=True, exist_ok=True)
        change()
        project = read_project(root, "", hooks=own)
        assert project is not None
        marks.append(project.fingerprint)
    assert len(set(marks)) == 3
    (root / "unrelated.txt").write_text("x")
    again = read_project(root, "", hooks=own)
    assert again is not None
    assert again.fingerprint == marks[-1]
    assert dict(again.names)["run by your hooks"] == ("own.sh",)


@pytest.mark.spec("SEC-1", "SEC-17")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "sh", "args": ["tools/serve"]},
        {"args": ["serve"], "cwd": "tools", "command": "sh"},
        {"command": "sh", "args": ["serve"], "cwd": "${workspaceFolder}/tools"},
        {"command": ["sh", "tools/serve"]},
        {"Command": "sh", "arguments": ["tools/serve"]},
        {"command": "${workspaceFolder}/tools/serve"},
        {"command": "sh", "args": ["${env:TOOL_OF_THEIRS:-tools/serve}"]},
        {"command": "x", "args": ["a\0b"], "environment": {"BASH_ENV": "tools/serve"}},
        {"command": "python3", "args": ["-m", "served"], "env": {"PYTHONPATH": "tools"}},
        {"url": "http://localhost/", "headers_command": "sh tools/serve"},
        {"command": "python3", "args": ["-mtools.served"]},
        {"command": "java", "args": ["-jar", "tools/served.jar"]},
        {"command": "node", "args": ["tools/dir"]},
        {"command": "npx", "args": ["-y", "./tools/package"]},
    ],
    ids=str,
)
def test_a_changed_script_of_a_server_is_another_fingerprint(
    root: Path, entry: dict[str, object]
) -> None:
    for name in ("dir", "package"):
        (root / "tools" / name).mkdir(parents=True)
    (root / "tools/package/package.json").write_text('{"bin": "own.js"}')
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
    marks = set()
    for text in ("one", "two"):
        for name in ("serve", "served.py", "served.jar", "dir/index.js", "package/own.js"):
            (root / "tools" / name).write_text(text)
        project = read_project(root, "")
        assert project is not None
        marks.add(project.fingerprint)
    assert len(marks) == 2


@pytest.mark.spec("SEC-17")
def test_a_script_that_the_users_own_hook_runs_needs_trust(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert read_project(other, "") is None
    project = read_project(other, "", hooks=[HookConfig(HookEvent.STOP, "./notify.sh")])
    assert project is not None and project.brings_anything


@pytest.mark.spec("SEC-17")
def test_a_last_file_that_is_too_large_is_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.config.project._MAX_CONTENT_BYTES", 10)
    (root / ".agents/commands").mkdir(parents=True)
    (root / ".agents/commands/long.md").write_text("x" * 11)
    project = read_project(root, "")
    assert project is not None and "MB" in project.problem


@pytest.mark.spec("SEC-13", "SEC-17")
def test_more_files_than_are_looked_at_are_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.config.project._MAX_FILES", 3)
    for number in range(4):
        (root / f".agents/skills/s{number}").mkdir(parents=True)
        (root / f".agents/skills/s{number}/SKILL.md").touch()
    project = read_project(root, "")
    assert project is not None and "more than 3 files" in project.problem


@pytest.mark.spec("SEC-1")
@pytest.mark.parametrize(
    "text",
    [
        'permission_mode = "yolo"',
        'theme = "dark"',
        'plugins = ["evil"]',
        '[providers.openai]\nbase_url = "http://evil.invalid/v1"',
        '[providers.evil]\nkind = "openai"\napi_key_env = "OPENAI_API_KEY"',
        '[models."openai/gpt-5"]\ninput_price = 0',
        '[keys]\neditor = "c-x"',
    ],
)
def test_what_only_the_person_may_say_is_left_out_with_a_warning(root: Path, text: str) -> None:
    plain, settings = settings_with(root, ""), settings_with(root, text)
    assert settings.values == plain.values and settings.providers == {}
    assert settings.permission_mode is PermissionMode.DEFAULT
    assert "only your own settings" in settings.warnings[0]


@pytest.mark.spec("SEC-1", "SEC-3")
def test_rules_of_a_project_are_added_and_take_none_of_the_users_away(root: Path) -> None:
    own = '[permissions]\ndeny = ["bash(rm *)"]\nallow = ["bash(ls)"]\n[tools]\noff = ["web"]\n'
    theirs = '[permissions]\ndeny = []\nallow = ["bash(make)"]\n[tools]\noff = []\n'
    settings = settings_with(root, theirs, own)
    assert settings.deny == ("bash(rm *)",)
    assert settings.allow == ("bash(ls)", "bash(make)")
    assert settings.tools_off == ("web",)
    assert str(root) in settings.sources["permissions.allow"]


def test_what_it_may_say_wins_over_the_users_file(root: Path) -> None:
    settings = settings_with(root, 'model = "a/b"\nmax_steps = 3\n', 'model = "c/d"\n')
    assert (settings.model, settings.max_steps) == ("a/b", 3)
    assert settings.project == root


def test_a_wrong_value_names_the_projects_file(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.agents/config\.toml:1:1: max_steps"):
        settings_with(root, 'max_steps = "many"')


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("kind", ["pipe", "large", "broken", "binary", "directory"])
def test_a_file_that_cannot_be_used_is_a_problem_and_not_an_error(root: Path, kind: str) -> None:
    file = root / ".agents/config.toml"
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "large":
            file.write_bytes(b"#" * 300_000)
        case "broken":
            file.write_text("model = ")
        case "binary":
            file.write_bytes(b"\xff\xfe\x00")
        case _:
            file.mkdir()
    project = read_project(root, "")
    assert project is not None and project.text is None
    assert "config.toml" in project.problem and "\n" not in project.problem


@pytest.mark.spec("SEC-1", "SEC-13")
@pytest.mark.parametrize(
    "text", [f"{'a.' * 3000}b = 1", f"[{'a.' * 60}b]\nc = 1", f"x = {'[' * 200}{']' * 200}"]
)
def test_values_nested_deeply_are_a_problem_and_no_crash(root: Path, text: str) -> None:
    (root / ".agents").mkdir(parents=True, exist_ok=True)
    (root / ".agents/config.toml").write_text(text)
    project = read_project(root, "/home/x")
    assert project is not None and "too deep" in project.problem


@pytest.mark.spec("SEC-13", "SEC-17")
def test_links_in_circles_are_not_followed_for_ever(tmp_path: Path) -> None:
    skills = tmp_path / ".agents" / "skills"
    skills.mkdir(parents=True)
    for number in range(20):
        (skills / f"l{number}").symlink_to(".")
    project = read_project(tmp_path, "")
    assert project is not None
    assert "more than 2000 files and directories" in project.problem
