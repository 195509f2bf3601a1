"""What of Claude Code's settings holds here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentcli.config.claude import ClaudeFile, understood
from agentcli.config.paths import Paths
from agentcli.config.project import Project, read_project
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.extensions.hooks import HookEvent
from agentcli.policy.decision import parse_rule


def put(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))


def hook(command: str, **fields: Any) -> dict[str, Any]:
    return {"type": "command", "command": command, **fields}


def groups(command: str, matcher: str = "", **fields: Any) -> list[dict[str, Any]]:
    return [{"matcher": matcher, "hooks": [hook(command, **fields)]}]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


def load(home: Path, project: Project | None = None) -> Settings:
    paths = Paths(home / "c", home / "d", home / "s")
    return load_settings(paths, {"HOME": str(home)}, project=project)


@pytest.mark.spec("EXT-9")
def test_hooks_of_the_home_and_of_a_trusted_project_hold_those_of_the_project_contained(
    home: Path, root: Path
) -> None:
    put(home / ".claude/settings.json", {"hooks": {"Stop": groups("a", timeout=5)}})
    put(root / ".claude/settings.json", {"hooks": {"PreToolUse": groups("b", "Bash|Edit")}})
    put(
        root / ".claude/settings.local.json",
        {"hooks": {"SubagentStop": groups("c", args=["x y"], **{"async": True, "if": "Bash(ls)"})}},
    )
    mine, theirs, local = load(home, read_project(root, str(home))).hooks
    assert (mine.event, mine.command, mine.limit_s, mine.contained) == (
        HookEvent.STOP, "a", 5, False,
    )  # fmt: skip
    assert (theirs.matcher, theirs.limit_s, theirs.contained) == ("Bash|Edit", 600, True)
    assert (local.command, local.unawaited, local.condition) == ("c 'x y'", True, "Bash(ls)")
    assert all(each.is_claude for each in (mine, theirs, local))
    assert load(home).hooks == (mine,)


@pytest.mark.spec("EXT-9", "SEC-17")
def test_only_what_counts_here_is_what_is_trusted_and_the_scripts_with_it(
    home: Path, root: Path
) -> None:
    file = root / ".claude/settings.json"
    put(file, {"model": "x", "permissions": {"allow": ["Bash(ls)"]}})
    assert read_project(root, str(home)) is None
    said = {"hooks": {"Stop": groups('"$CLAUDE_PROJECT_DIR"/.claude/hooks/check.sh')}}
    put(root / ".claude/hooks/check.sh", "true")
    put(file, said)

    def fingerprint() -> str:
        found = read_project(root, str(home))
        assert found is not None and found.brings_anything
        return found.fingerprint

    before = fingerprint()
    put(file, {**said, "model": "y", "permissions": {"allow": ["Bash(ls)", "Bash(rm)"]}})
    assert fingerprint() == before
    put(root / ".claude/hooks/check.sh", "false")
    changed = fingerprint()
    assert changed != before
    put(file, {**said, "disableAllHooks": True})
    assert fingerprint() not in {before, changed}
    assert read_project(home, str(home)) is None


@pytest.mark.spec("EXT-9", "SEC-3")
def test_what_they_forbid_is_forbidden_and_what_they_allow_is_not_allowed(
    home: Path, root: Path
) -> None:
    rules = [
        "Bash(rm:*)",
        "Read(./.env)",
        "Grep(x)",
        "Edit(/src/**)",
        "WebFetch(domain:x.org)",
        "mcp__gh",
    ]
    put(home / "c/config.toml", '[permissions]\ndeny = ["task"]\n')
    put(home / ".claude/settings.json", {"permissions": {"deny": rules, "allow": ["Bash"]}})
    put(root / ".claude/settings.json", {"permissions": {"ask": ["Bash(git push *)", "Skill(x)"]}})
    found = load(home, read_project(root, str(home)))
    assert found.deny == (
        "task", "bash(rm)", "bash(rm *)", "read_file(.env/**)", "grep_files(.env/**)",
        "symbols(.env/**)", "references(.env/**)", "grep_files(x/**)", "grep_files(**/x/**)", f"edit({home}/.claude/src/**)",
        "web_fetch(x.org)", "mcp__gh", "mcp__gh__*",
    )  # fmt: skip
    assert found.ask == ("bash(git push)", "bash(git push *)")
    assert found.allow == ()
    assert all(parse_rule(rule) for rule in (*found.deny, *found.ask))
    assert ["'Skill(x)' has no counterpart" in line for line in found.warnings] == [True]


@pytest.mark.spec("EXT-9")
def test_hooks_can_be_switched_off_a_project_switches_off_its_own_alone(
    home: Path, root: Path
) -> None:
    mine = {"hooks": {"Stop": groups("mine")}, "statusLine": hook("line")}
    put(home / ".claude/settings.json", mine)
    put(root / ".claude/settings.json", {"hooks": {"Stop": groups("theirs")}})
    put(root / ".claude/settings.local.json", {"disableAllHooks": True})
    found = load(home, read_project(root, str(home)))
    assert [each.command for each in found.hooks] == ["mine"]
    assert found.statusline_command == "line"
    put(home / ".claude/settings.json", {**mine, "disableAllHooks": True})
    found = load(home, read_project(root, str(home)))
    assert (found.hooks, found.statusline_command) == ((), None)


@pytest.mark.parametrize(
    "document",
    [
        "", "{", "[]", "[" * 100_000, {"hooks": 3}, {"hooks": {"Stop": 3}}, {"hooks": {"Nope": []}},
        {"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}},
        {"hooks": {"WorktreeCreate": groups("x")}}, {"hooks": {"Stop": groups("x", "(")}},
        {"hooks": {"Stop": [{"hooks": [hook("")]}]}}, {"permissions": {"deny": [3]}},
    ],
)  # fmt: skip
@pytest.mark.spec("EXT-9")
def test_what_cannot_be_used_is_one_warning_and_blocks_nothing(home: Path, document: Any) -> None:
    put(home / ".claude/settings.json", document)
    found = load(home)
    assert len(found.warnings) == 1
    assert found.hooks == ()


def test_a_file_that_is_none_waits_for_nobody(home: Path) -> None:
    (home / ".claude").mkdir(parents=True)
    os.mkfifo(home / ".claude/settings.json")
    assert len(load(home).warnings) == 1


def test_the_status_line_of_a_project_does_not_count(root: Path) -> None:
    text = json.dumps({"statusLine": hook("evil")})
    assert understood(ClaudeFile(root / "settings.json", text), root=root).status_line == ""
