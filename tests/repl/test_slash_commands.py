"""Slash commands on real sessions: what they show and what they change."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from agentcli.domain.errors import AgentError, ConfigError, UsageError
from agentcli.domain.messages import Usage
from agentcli.domain.ports import PermissionMode
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.repl import commands as registry
from agentcli.repl.clipboard import copy_by_program, osc_52
from agentcli.repl.slash.help import help_lines
from agentcli.repl.slash.usage import midnight, usage_lines
from agentcli.ui.theme import theme_for
from tests.repl.direct_chat import DirectChat, talk
from tests.support.model_server import ModelServer
from tests.support.replies import Call, Reply, Tokens, call
from tests.support.wire_facts import facts_of


@pytest.fixture(autouse=True)
def no_custom_commands() -> Iterator[None]:
    yield
    registry.use_custom(())


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def git(cwd: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.mark.spec("UI-5")
def test_copy_takes_the_last_answer_or_its_code(model_server: ModelServer, work: Path) -> None:
    answer = "Use this:\n\n```py\nx = 1\n```\n\nand\n\n~~~\nplain\n~~~"
    model_server.add(answer)

    async def body(chat: DirectChat) -> None:
        with pytest.raises(UsageError, match="no answer"):
            await chat.do("/copy")
        await chat.say("how?")
        assert "11 lines" in (await chat.do("/copy"))[0]
        assert chat.sent == [osc_52(answer)]
        await chat.do("/copy code")
        encoded = chat.sent[-1].removeprefix("\x1b]52;c;").removesuffix("\x07")
        assert base64.b64decode(encoded) == b"x = 1\n\nplain\n"
        chat.has_terminal = False
        with pytest.raises(AgentError, match="no clipboard"):
            await chat.do("/copy")
        with pytest.raises(UsageError, match="cannot copy"):
            await chat.do("/copy that")

    talk(DirectChat(work, model_server), body)


@pytest.mark.spec("UI-5", "SEC-2")
def test_a_clipboard_program_is_used_but_never_the_workspaces(tmp_path: Path, work: Path) -> None:
    places = tmp_path / "bin"
    for place in (places, work):
        place.mkdir(exist_ok=True)
        (place / "wl-copy").write_text(f"#!/bin/sh\n/bin/cat > {tmp_path}/copied-{place.name}\n")
        (place / "wl-copy").chmod(0o755)
    env = {"WAYLAND_DISPLAY": "w", "PATH": f"{work}:{places}"}
    assert copy_by_program("grüße", work, env)
    assert (tmp_path / "copied-bin").read_text() == "grüße"
    assert not (tmp_path / "copied-work").exists()
    assert not copy_by_program("x", work, {**env, "SSH_TTY": "/dev/pts/0"})
    assert not copy_by_program("x", work, {"PATH": str(places)})
    with pytest.raises(UsageError, match="too long"):
        osc_52("x" * 100_000)


@pytest.mark.spec("UI-5", "SEC-2")
def test_diff_shows_what_changed_since_the_last_commit_and_new_files(work: Path) -> None:
    async def body(chat: DirectChat) -> None:
        with pytest.raises(AgentError, match="no git repository"):
            await chat.do("/diff")
        git(work, "init", "-q")
        (work / "a.txt").write_text("one\ntwo\n")
        git(work, "add", ".")
        assert "    1 + one" in await chat.do("/diff")
        git(work, "commit", "-qm", "first")
        assert await chat.do("/diff") == ["Nothing has changed since the last commit."]
        (work / "a.txt").write_text("one\nTWO\n")
        (work / "sub").mkdir()
        (work / "sub/new \x1b[2Jfile").touch()
        shown = await chat.do("/diff")
        assert shown[0] == "a.txt"
        assert any(line.startswith("    2 - two") for line in shown)
        assert any(line.startswith("    2 + TWO") for line in shown)
        assert shown[-1] == "+ sub/new file (new)"
        assert await chat.do("/diff sub") == ["+ sub/new file (new)"]
        (work / "a.txt").write_text("".join(f"{n}\n" for n in range(3000)))
        assert any("more lines: git diff" in line for line in await chat.do("/diff"))

    talk(DirectChat(work), body)


@pytest.mark.spec("UI-5", "SEC-3")
def test_permissions_shows_mode_and_rules_and_sets_the_mode(work: Path, home: Path) -> None:
    config = home / "agentcli"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        '[permissions]\nallow = ["bash(git diff *)"]\ndeny = ["bash(rm *)"]\n'
    )

    async def body(chat: DirectChat) -> None:
        shown = await chat.do("/permissions")
        assert shown[0].startswith("> default")
        file = config / "config.toml"
        assert f"  bash(git diff *)  - {file}:2" in shown
        assert f"  bash(rm *)  - {file}:3" in shown
        assert "accept-edits" in (await chat.do("/permissions accept-edits"))[0]
        assert chat.session.mode is PermissionMode.ACCEPT_EDITS
        with pytest.raises(UsageError, match="no mode"):
            await chat.do("/permissions anything")

    talk(DirectChat(work), body)


@pytest.mark.spec("UI-5")
def test_effort_is_shown_and_set(model_server: ModelServer, work: Path) -> None:
    model_server.add("Yes.")

    async def body(chat: DirectChat) -> None:
        assert "auto" in (await chat.do("/effort"))[0]
        assert (await chat.do("/effort high"))[0] == "Reasoning effort: high"
        await chat.say("think")
        with pytest.raises(UsageError, match="no effort"):
            await chat.do("/effort enormous")
        await chat.do("/effort auto")
        assert chat.session.effort is None

    talk(DirectChat(work, model_server, AGENTCLI_MODEL="openai/gpt-5"), body)
    assert model_server.requests[0].body["reasoning_effort"] == "high"


@pytest.mark.spec("UI-5")
def test_fork_goes_on_in_a_copy_and_leaves_the_original(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add("First.", "In the copy.")

    async def body(chat: DirectChat) -> None:
        with pytest.raises(UsageError, match="nothing to copy"):
            await chat.do("/fork")
        await chat.say("begin")
        original = chat.session.id
        shown = await chat.do("/fork")
        assert shown == [
            "This is the copy: begin (copy)",
            f"Back to the original: /resume {original}",
        ]
        assert chat.session.id != original
        await chat.say("more")
        assert len((await chat.sessions.load(original)).messages) == 2
        assert len((await chat.session.load()).messages) == 4

    talk(DirectChat(work, model_server), body)


@pytest.mark.spec("UI-5", "TT-3")
def test_fork_at_a_message_that_is_chosen_or_named(model_server: ModelServer, work: Path) -> None:
    model_server.add(call("get_current_time"), "Second.", "In the copy.")

    async def body(chat: DirectChat) -> None:
        await chat.say("begin")
        original = chat.session.id
        chat.choice = 1
        shown = await chat.do("/fork at")
        assert chat.offered == [
            "1. You: begin", "2. Agent: get_current_time", ANY, "4. Agent: Second.",
        ]  # fmt: skip
        assert shown[0] == "This is the copy: begin (from message 2)"
        await chat.say("go on")
        last = model_server.requests[-1]
        assert "Cancelled by user" in str(last.body)
        assert facts_of(last).prompts[-1] == "go on"
        await chat.do(f"/resume {original}")
        assert (await chat.do("/fork at 4 by name"))[0] == "This is the copy: by name"
        with pytest.raises(UsageError, match="no message 9"):
            await chat.do("/fork at 9")
        with pytest.raises(UsageError, match="no message 'end'"):
            await chat.do("/fork at end")

    talk(DirectChat(work, model_server), body)


@pytest.mark.spec("UI-5", "UI-8")
def test_search_finds_sessions_by_what_was_said(model_server: ModelServer, work: Path) -> None:
    model_server.add("The heron eats fish.", "Nothing.")

    async def body(chat: DirectChat) -> None:
        await chat.say("what about birds")
        found = chat.session.id
        await chat.do("/new")
        await chat.say("something else")
        shown = await chat.do("/search her fish")
        assert shown == [] or found  # both words must stand there
        shown = await chat.do("/search heron fi")
        assert found in shown[0]
        assert "[heron]" in shown[1]
        assert shown[-1] == "Open one with /resume ID"
        assert await chat.do("/search zebra") == ["No session holds zebra."]
        with pytest.raises(UsageError, match="nothing to search for"):
            await chat.do("/search")

    talk(DirectChat(work, model_server), body)


@pytest.mark.spec("UI-5", "COST-1")
def test_usage_sums_by_day_and_week_and_says_what_is_unknown() -> None:
    now = time.mktime((2026, 5, 20, 12, 0, 0, 0, 0, -1))
    info = SessionInfo(
        "a", "t", "/w", now, now - 60, SessionStatus.DONE, 2, "p/m", "", Usage(100, 10), 0.5
    )
    infos = [
        info,
        replace(info, updated_at=midnight(now) - 1),
        replace(info, updated_at=midnight(now) - 8 * 86_400, cost_usd=None),
    ]
    assert usage_lines(infos, now) == [
        "today      1 session, 2 turns, 100 in, 10 out, cost $0.50",
        "7 days     2 sessions, 4 turns, 200 in, 20 out, cost $1.00",
        "all        3 sessions, 6 turns, 300 in, 30 out, cost $1.00 + unknown",
    ]
    assert usage_lines(infos[2:], now)[2].endswith(", cost unknown")
    assert usage_lines([], now)[0] == "today      0 sessions, 0 turns, no tokens"


@pytest.mark.spec("UI-5")
def test_usage_of_real_sessions(model_server: ModelServer, work: Path) -> None:
    model_server.add("One.")

    async def body(chat: DirectChat) -> None:
        await chat.say("hello")
        shown = await chat.do("/usage")
        assert shown[0].startswith("this one   1 turn, ")
        assert "1 session, 1 turn" in shown[1]

    talk(DirectChat(work, model_server), body)


@pytest.mark.spec("UI-5", "CLI-9")
def test_config_shows_what_was_chosen_and_writes_the_persons_file(work: Path) -> None:
    async def body(chat: DirectChat) -> None:
        shown = await chat.do("/config")
        assert any("/config all" in line for line in shown)
        assert len(await chat.do("/config all")) > len(shown)
        assert "theme" in (await chat.do("/config theme"))[0]
        assert "dark" in (await chat.do("/config theme dark"))[0]
        assert 'theme = "dark"' in chat.user.config_file.read_text()
        assert any("dark" in line for line in await chat.do("/config"))
        with pytest.raises(UsageError, match="no setting"):
            await chat.do("/config nosuch")
        with pytest.raises(AgentError):
            await chat.do("/config nosuch 1")

    talk(DirectChat(work), body)


@pytest.mark.spec("UI-5", "OPS-3")
def test_doctor_tells_what_it_checked(work: Path) -> None:
    async def body(chat: DirectChat) -> None:
        shown = await chat.do("/doctor")
        assert any(line.startswith("ok ") for line in shown), shown

    talk(DirectChat(work), body)


@pytest.mark.spec("UI-5", "CLI-17")
def test_review_shows_the_agent_what_has_changed_and_attaches_nothing(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add("No findings.")

    async def body(chat: DirectChat) -> None:
        git(work, "init", "-q")
        (work / "notes.txt").write_text("secret words\n")
        git(work, "add", "notes.txt")
        git(work, "commit", "-qm", "first")
        assert "Nothing has changed" in (await chat.do("/review"))[0]
        (work / "a.py").write_text("# see @notes.txt\n")
        await chat.do("/review")
        with pytest.raises(UsageError):
            await chat.do("/review nope")

    talk(DirectChat(work, model_server), body)
    (prompt,) = facts_of(model_server.requests[0]).prompts
    assert "=== a.py (added, +1 -0)" in prompt and "    1 +# see @notes.txt" in prompt
    assert "secret words" not in json.dumps(model_server.requests[0].body)


@pytest.mark.spec("UI-5", "CTX-1")
def test_init_asks_the_agent_for_agents_md(model_server: ModelServer, work: Path) -> None:
    model_server.add("Written.")

    async def body(chat: DirectChat) -> None:
        await chat.do("/init use uv")

    talk(DirectChat(work, model_server), body)
    (prompt,) = facts_of(model_server.requests[0]).prompts
    assert "AGENTS.md" in prompt
    assert prompt.endswith("Mind this as well: use uv")


@pytest.mark.spec("UI-5")
def test_every_command_of_this_version_is_there() -> None:
    names = {name for c in registry.all_commands() for name in (c.name, *c.aliases)}
    wanted = (
        "help new clear resume sessions search model effort permissions compact context cost usage"
        " status diff fork export copy init queue todos theme doctor config rename exit quit"
    )
    assert set(wanted.split()) <= names
    assert os.environ["AGENTCLI_HOME"]


@pytest.mark.spec("UI-5", "UI-8")
def test_what_a_sub_agent_said_is_found_under_the_session_it_worked_for(
    model_server: ModelServer, work: Path
) -> None:
    call = Call("task", {"description": "look", "prompt": "who sat there"})
    model_server.add(Reply(blocks=(call,)), "A kingfisher sat there.", "It was found.")

    async def body(chat: DirectChat) -> None:
        await chat.say("look for birds")
        parent = chat.session.id
        await chat.do("/new")
        shown = await chat.do("/search kingfisher sat")
        assert shown[0].startswith("look for birds  ")
        assert shown[0].endswith(parent)
        told = [line for line in shown if line.startswith("  task: ")]
        assert len(told) == 1
        assert "[kingfisher]" in told[0]
        assert sum("ago" in line or "now" in line for line in shown) == 1

    talk(DirectChat(work, model_server), body)


@pytest.mark.spec("UI-5", "UI-10")
def test_a_theme_that_is_chosen_is_kept_and_the_list_shows_which_it_is(work: Path) -> None:
    async def body(chat: DirectChat) -> None:
        chat.theme = theme_for(io.StringIO(), {}, "auto")
        shown = await chat.do("/theme dark")
        assert shown[0].startswith("Theme dark: ")
        assert shown[1].startswith("Saved: theme = ")
        assert 'theme = "dark"' in chat.user.config_file.read_text()
        assert [line for line in await chat.do("/theme") if line.startswith(">")] == ["> dark"]
        with pytest.raises(UsageError, match="no theme"):
            await chat.do("/theme pink")

    talk(DirectChat(work), body)


@pytest.mark.spec("UI-5", "UI-10")
def test_a_theme_that_cannot_be_kept_holds_for_the_chat(work: Path, home: Path) -> None:
    async def body(chat: DirectChat) -> None:
        (home / "agentcli").mkdir(parents=True)
        (home / "agentcli" / "config.toml").write_text("this is no TOML")
        chat.theme = theme_for(io.StringIO(), {}, "auto")
        shown = await chat.do("/theme light")
        assert shown[1].startswith("For this chat only; it could not be saved: ")
        assert chat.theme.name == "light"

    talk(DirectChat(work), body)


@pytest.mark.spec("UI-5", "TOOL-5")
def test_memory_shows_what_the_agent_keeps_and_the_persons_own_instructions(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add(
        call("kv_set", {"key": "build", "value": "make\x1b[2J -j4"}, id="one"), "Noted."
    )

    async def body(chat: DirectChat) -> None:
        assert "  nothing" in await chat.do("/memory")
        await chat.say("how is it built?")
        shown = "\n".join(await chat.do("/memory"))
        assert "build: make -j4" in shown and "\x1b" not in shown
        with pytest.raises(UsageError, match="nothing is kept"):
            await chat.do("/memory forget bulid")
        await chat.do("/memory forget build")
        assert "  nothing" in await chat.do("/memory")
        with pytest.raises(UsageError, match="cannot do"):
            await chat.do("/memory burn")
        assert "Nothing was changed." in (await chat.do("/memory edit"))[0]
        chat.edited = "Answer briefly.\n"
        await chat.do("/memory edit")
        file = chat.user.instructions_file
        assert file.read_text() == chat.edited
        assert file.stat().st_mode & 0o777 == 0o600
        await chat.do("/new")
        await chat.say("hello")

    model_server.add("Hi.")
    talk(DirectChat(work, model_server), body)
    assert "Answer briefly." in str(model_server.requests[-1].body)
    assert "Answer briefly." not in str(model_server.requests[0].body)


@pytest.mark.spec("UI-5")
def test_an_export_is_named_after_the_session(model_server: ModelServer, work: Path) -> None:
    model_server.add("Yes.")

    async def scenario(chat: DirectChat) -> None:
        await chat.say("hello")
        await chat.session.rename("Fix the Über parser / part 2!")
        for name in ("fix-the-über-parser-part-2.md", "fix-the-über-parser-part-2-2.md"):
            [line] = await chat.do("/export")
            assert line.endswith(name)
            assert (work / name).exists()

    talk(DirectChat(work, model_server), scenario)


@pytest.mark.spec("COST-1", "UI-13")
def test_cost_tells_in_a_users_words_what_was_used(model_server: ModelServer, work: Path) -> None:
    model_server.add("Yes.")

    async def scenario(chat: DirectChat) -> None:
        await chat.say("hello")
        told = "\n".join(await chat.do("/cost"))
        assert "Sent to the model" in told and "Written by the model" in told
        assert "cache" not in told and "tool result" not in told

    talk(DirectChat(work, model_server), scenario)


@pytest.mark.spec("COST-1", "COST-3", "UI-13")
def test_cost_names_the_most_expensive_tool_results(model_server: ModelServer, work: Path) -> None:
    for number in range(10):
        (work / f"n{number}.txt").write_text("words " * 10 * (number + 1))
        prompt = Tokens(0, 20, 3000 + 100 * number, 100)
        model_server.add(call("read_file", {"path": f"n{number}.txt"}, tokens=prompt))
    model_server.add("Done.")

    async def scenario(chat: DirectChat) -> None:
        await chat.say("read them")
        told = await chat.do("/cost")
        assert "10 tool results: $" in "\n".join(told)
        rows = [line for line in told if ".txt" in line]
        assert len(rows) == 8 and "again in 9 requests (" in rows[0] and "n0.txt" in rows[0]
        assert "and 2 more, which cost less" in told[-1]

    talk(DirectChat(work, model_server), scenario)


@pytest.mark.spec("CLI-10")
def test_a_model_without_a_key_is_not_switched_to(model_server: ModelServer, work: Path) -> None:
    async def scenario(chat: DirectChat) -> None:
        before = chat.session.model.id
        with pytest.raises(UsageError, match="/login mistral"):
            await chat.do("/model mistral/mistral-large-latest")
        assert chat.session.model.id == before
        with pytest.raises(ConfigError, match="did you mean claude-sonnet"):
            await chat.do("/model sonet")

    talk(DirectChat(work, model_server), scenario)


@pytest.mark.spec("UI-5")
def test_help_groups_every_command(work: Path) -> None:
    async def scenario(chat: DirectChat) -> None:
        lines = await chat.do("/help")
        assert "Yours" not in lines
        assert sum(line.startswith("  /") for line in lines) == len(registry.all_commands())

    registry.use_custom(())
    talk(DirectChat(work), scenario)


@pytest.mark.spec("UI-5", "UI-1")
@pytest.mark.parametrize("columns", [30, 40, 80, 120])
def test_help_fits_the_window(columns: int) -> None:
    rows = [("/a [ONE] [TWO]", "what it does in quite a few words, " * 3), ("/b", "short")]
    lines = help_lines(rows, columns)
    assert all(len(line) <= columns for line in lines)
    begin = lines[0].find("what it does")
    if columns >= 80:
        assert all(line.startswith(" " * begin) for line in lines[1:-1])
    assert " ".join(" ".join(lines).split()) == " ".join(f"{a} {b}" for a, b in rows).replace(
        "  ", " "
    )
