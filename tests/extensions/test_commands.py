"""Commands and skills in files: found, filled in, sent; never more than text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.app.extensions.calling import as_rule
from agentcli.app.files.attachments import attached_parts
from agentcli.app.files.mentions import naming_only_inside
from agentcli.domain.tools import Workspace
from agentcli.extensions.commands import Shell, fill_in, find_commands
from agentcli.extensions.skills import find_skills
from agentcli.repl import commands as registry
from agentcli.repl.commands import custom_command
from tests.extensions.places import place, write
from tests.repl.direct_chat import DirectChat, talk
from tests.support.model_server import ModelServer
from tests.support.wire_facts import facts_of


@pytest.fixture(autouse=True)
def no_custom_commands() -> Iterator[None]:
    yield
    registry.use_custom(())


@pytest.mark.spec("UI-5")
def test_names_help_and_which_one_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    head = '---\ndescription: "Review it"\nargument-hint: [FILE]\n---\n'
    write(first, "commands/look.md", f"{head}Look at $1.")
    write(first, "commands/git/commit.md", "# Write a commit message\n\nNow.")
    write(first, "skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Read PDFs\n---\nUse it.")
    write(second, "commands/look.md", "another")
    write(second, "commands/No Command.md", "x")
    write(second, "commands/empty.md", "---\nx: y\n---\n")
    write(second, "commands/notes.txt", "x")
    write(second, "commands/help.md", "not the program's")
    places = [place(first), place(second), place(tmp_path / "none")]
    found, warnings = find_commands(places, find_skills(places)[0])
    commands = [custom_command(each) for each in found]
    assert {c.name: (c.help, c.usage) for c in commands} == {
        "git:commit": ("Write a commit message (yours)", ""),
        "look": ("Review it (yours)", "[FILE]"),
        "pdf": ("Read PDFs (skill)", ""),
        "help": ("not the program's (yours)", ""),
    }
    assert len(warnings) == 1 and "empty.md': it has no text" in warnings[0]
    registry.use_custom(commands)
    assert registry.find("look") in commands
    assert registry.find("help") not in commands
    assert registry.parse("/git:commit now") == ("git:commit", "now")
    assert "git:commit" in registry.helps()
    assert registry.helps()["look"] == "[FILE] Review it (yours)"


@pytest.mark.spec("UI-5")
@pytest.mark.parametrize(
    ("body", "arguments", "sent"),
    [
        ("Do it.", "", "Do it."),
        ("Do it.", "now please", "Do it.\n\nnow please"),
        ("Fix $ARGUMENTS!", "a $1 b", "Fix a $1 b!"),
        ("$2 then $1, $3", "one two", "two then one, "),
        ("costs $10", "", "costs $10"),
        ("$HOME $x ${HOME}", "", "$HOME $x ${HOME}"),
        # https://code.claude.com/docs/en/skills: words in quotes, indices from 0, names
        ("[$1] [$2]", "'a b' \"c d\"", "[a b] [c d]"),
        ("[$1] [$2]", "don't stop", "[don't] [stop]"),
        ("$0 and $1", "a b", "a and b"),
        ("$ARGUMENTS[1], $1", "a b", "b, b"),
        (r"\$1 is $1, \$ARGUMENTS", "x", "$1 is x, $ARGUMENTS"),
        ("$issue on $branch, not $branches", "7 main", "7 on main, not $branches"),
        ("in ${DIR}, `!x`, ${OTHER}", "", "in /d, `!x`, ${OTHER}"),
        ("Say $ARGUMENTS", "$1 !`id` ${DIR}", "Say $1 !`id` ${DIR}"),
    ],
)
def test_arguments_are_put_in(body: str, arguments: str, sent: str) -> None:
    filled = fill_in(body, arguments, ("issue", "branch"), {"DIR": "/d"})
    assert "".join(map(str, filled)).strip() == sent.strip()


@pytest.mark.spec("EXT-3")
def test_commands_in_a_text_stand_by_themselves() -> None:
    body = "Log: !`git log $1`\nno!`x` !``\n```!\nls\npwd $ARGUMENTS\n```\nend"
    assert fill_in(body, "main") == (
        "Log: ", Shell("git log main"), "\nno!`x` !``\n", Shell("ls\npwd main"), "\nend",
    )  # fmt: skip
    assert fill_in("!`echo $ARGUMENTS`", "a !`id` b") == (Shell("echo a !`id` b"),)


@pytest.mark.spec("EXT-3", "SEC-13")
@pytest.mark.parametrize("text", ["```!\n", "!`", "$ARGUMENTS[", "$1", "```!\nx\n``"])
def test_long_texts_are_filled_in_at_once(text: str) -> None:
    assert fill_in(text * 50_000, "x")


@pytest.mark.spec("EXT-3")
@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("Bash(git add:*)", "bash(git add *)"),
        ("Bash", "bash"),
        ("Read", "read_file"),
        ("WebFetch(domain:example.org)", "web_fetch(example.org)"),
        ("Edit(src/**)", "edit_file(src/**)"),
        ("mcp__github__*", "mcp__github__*"),
        ("bash(ls)", "bash(ls)"),
    ],
)
def test_rules_of_claude_code_are_read_as_ours(written: str, rule: str) -> None:
    assert str(as_rule(written)) == rule


@pytest.mark.spec("EXT-3")
def test_what_a_file_allows_may_be_a_list_or_a_line(tmp_path: Path) -> None:
    for number, tools in enumerate(
        ["Bash(git add:*), Bash(git status:*), Read", "Bash(git add:*) Bash(git status:*) Read",
         "[Bash(git add:*), 'Bash(git status:*)', Read]"]
    ):  # fmt: skip
        write(tmp_path, f"commands/c{number}.md", f"---\nallowed-tools: {tools}\n---\nx")
    found, warnings = find_commands([place(tmp_path)])
    assert not warnings
    assert {each.allowed_tools for each in found} == {
        ("Bash(git add:*)", "Bash(git status:*)", "Read")
    }


@pytest.mark.spec("SEC-13", "SEC-1")
def test_odd_files_are_named_and_hide_no_other(tmp_path: Path) -> None:
    tmp_path = tmp_path / "commands"
    tmp_path.mkdir()
    os.mkfifo(tmp_path / "fifo.md")
    (tmp_path / "big.md").write_text("x" * 300_000)
    (tmp_path / "binary.md").write_bytes(b"a\0b")
    write(tmp_path, "good.md", "Do it.")
    (tmp_path / "loop").symlink_to(tmp_path)
    found, warnings = find_commands([place(tmp_path.parent)])
    assert [command.name for command in found] == ["good"]
    assert len(warnings) == 3


@pytest.mark.spec("UI-5", "EXT-1")
def test_a_command_is_sent_as_it_is_by_now(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    model_server.add("One.", "Two.")
    path = write(home, "agentcli/commands/shout.md", "Say $ARGUMENTS loudly")
    brew = write(home, ".agents/skills/brew/SKILL.md", "Heat water.")

    async def body(chat: DirectChat) -> None:
        path.write_text("Say $ARGUMENTS twice")
        await chat.do("/shout hello")
        await chat.do("/brew tea")
        expected = f"Follow the skill brew. Its files are in {brew.parent}.\n\nHeat water.\n\ntea"
        assert facts_of(model_server.requests[1]).prompts[-1] == expected

    talk(DirectChat(tmp_path, model_server), body)
    assert facts_of(model_server.requests[0]).prompts == ["Say hello twice"]


@pytest.mark.spec("SEC-1", "UI-5")
def test_a_command_file_attaches_nothing_from_outside_of_the_workspace(tmp_path: Path) -> None:
    root, key = tmp_path / "work", tmp_path / "home" / "id_rsa"
    root.mkdir()
    key.parent.mkdir()
    key.write_text("PRIVATE")
    (root / "a.txt").write_text("alpha")
    (root / "door").symlink_to(key)
    workspace = Workspace(root, root)

    def of(body: str, typed: str = "") -> str:
        return naming_only_inside("".join(map(str, fill_in(body, typed))), typed, workspace)

    assert of("See @a.txt and me@example.org.") == "See @a.txt and me@example.org."
    for name in (str(key), "../home/id_rsa", "door", f"@{key}", f"@@@@@@@{key}", f'"{key}"'):
        parts = attached_parts(of(f"See @{name}, then @a.txt"), workspace)
        assert "PRIVATE" not in str(parts)
    for body, typed in (("See $1", f"@{key}"), ("See", f"@{key}")):
        assert "PRIVATE" in str(attached_parts(of(body, typed), workspace))
    for body, typed in (
        ("See @$1/../../home/id_rsa", "a"),
        (f"See @{key} and $1", f"@{key}.pub"),
        (f"See @{key} and $1", f"me@{key}"),
    ):
        assert "PRIVATE" not in str(attached_parts(of(body, typed), workspace))
