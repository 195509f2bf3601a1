"""Which variables a command may see, and where programs are looked up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.app.files.safe_git import find_git
from agentcli.process import environment as _environment
from agentcli.process.environment import base_environment, find_program, hide_variables, may_pass


@pytest.mark.spec("SEC-8")
@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "OPENAI_API_KEY",
        "OPENAI_API_KEY_2",
        "AZURE_OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "REPLICATE_API_TOKEN",
        "OPENROUTER_API_KEY",
        "MISTRAL_API_KEY",
        "GROQ_APIKEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "SOME_NEW_VENDOR_API_KEY",
        "mistral_api_key",
    ],
)
def test_keys_of_providers_are_secret(name: str) -> None:
    assert not may_pass(name)
    assert name not in base_environment({name: "x"})


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "GITHUB_TOKEN", "KEYBOARD", "SSH_AUTH_SOCK", "MONKEY"]
)
def test_what_commands_need_is_kept(name: str) -> None:
    assert base_environment({name: "x"})[name] == "x"


@pytest.mark.spec("SEC-8")
@pytest.mark.parametrize(
    "name",
    [
        "BASH_ENV",
        "ENV",
        "BASH_FUNC_ls%%",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_X",
        "POSIXLY_CORRECT",
        "GREP_OPTIONS",
        "PS_PERSONALITY",
        "I_WANT_A_BROKEN_PS",
        "GCONV_PATH",
        "LOCPATH",
        "NLSPATH",
        "DYLD_INSERT_LIBRARIES",
        "PROMPT_COMMAND",
        "RIPGREP_CONFIG_PATH",
        "GIT_TRACE2_EVENT",
    ],
)
def test_what_would_run_something_else_is_dropped(name: str) -> None:
    assert name not in base_environment({name: "x"})


@pytest.mark.spec("SEC-4", "SEC-8")
def test_no_locale_makes_a_backslash_half_a_character() -> None:
    for value in ("zh_CN.GBK", "zh_TW.Big5", "ja_JP.Shift_JIS", "ja_JP.SJIS", "zh_CN.gb18030"):
        for name in ("LANG", "LC_ALL", "LC_CTYPE"):
            assert name not in base_environment({name: value})
    for value in ("de_DE.UTF-8", "C", "ja_JP.eucJP", ""):
        assert base_environment({"LANG": value})["LANG"] == value
    assert base_environment({"NOTE": "about GBK"})["NOTE"] == "about GBK"


@pytest.mark.spec("SEC-8")
def test_the_key_name_of_a_configured_provider_can_be_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_environment, "_hidden", set())
    assert "MY_GATEWAY" in base_environment({"MY_GATEWAY": "x"})
    hide_variables(["MY_GATEWAY"])
    assert "MY_GATEWAY" not in base_environment({"MY_GATEWAY": "x"})


@pytest.mark.spec("TOOL-11")
def test_there_is_no_pager_editor_colour_or_prompt() -> None:
    env = base_environment({"PAGER": "less", "EDITOR": "vi", "TERM": "xterm", "FORCE_COLOR": "1"})
    assert (env["PAGER"], env["GIT_PAGER"], env["EDITOR"], env["TERM"]) == (
        "cat",
        "cat",
        "true",
        "dumb",
    )
    assert env["NO_COLOR"] == "1"
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert "FORCE_COLOR" not in env
    assert env["PATH"]


@pytest.mark.spec("SEC-2")
def test_programs_are_found_outside_the_workspace_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, outside, links = tmp_path / "work", tmp_path / "bin", tmp_path / "links"
    for directory in (workspace, outside, links):
        directory.mkdir()
    for path in (workspace / "tool", outside / "tool"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (outside / "not-executable").write_text("")
    (links / "tool").symlink_to(workspace / "tool")
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f":.:{workspace}:{links}:{outside}")
    assert find_program("tool", [workspace]) == str(outside / "tool")
    assert find_program("tool", []) == str(workspace / "tool")
    assert find_program("not-executable", []) is None


@pytest.mark.spec("SEC-2")
@pytest.mark.skipif(os.getuid() == 0, reason="root may look everywhere")
def test_a_directory_of_path_that_may_not_be_looked_into_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0)
    monkeypatch.setenv("PATH", f"{shut}:/bin")
    assert find_program("sh", [tmp_path]) == "/bin/sh"


@pytest.mark.spec("SEC-2")
def test_no_version_manager_runs_what_the_workspace_names_in_the_place_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``.tool-versions`` with ``ripgrep path:./x``: https://asdf-vm.com/manage/configuration.html"""
    own, shims, more = tmp_path / "bin", tmp_path / "there/shims", tmp_path / "links"
    for directory in (own, shims, more):
        directory.mkdir(parents=True)
    for path in (own / "mise", own / "rg", own / "git", shims / "rg", shims / "git"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (more / "rg").symlink_to(own / "mise")
    monkeypatch.setenv("PATH", f"{shims}:{more}:{own}")
    assert find_program("rg", [tmp_path / "work"]) == str(own / "rg")
    assert find_program("rg", [tmp_path / "work"], is_theirs=True) == str(shims / "rg")
    found = find_git(tmp_path / "work")
    assert found is not None and found.program == str(own / "git")
    monkeypatch.setenv("PATH", f"{shims}:{more}")
    assert find_program("rg", []) is None and find_git(tmp_path / "work") is None
