"""Commands and skills in files: found, filled in, sent; never more than text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.app.attachments import attached_parts
from agentcli.app.mentions import naming_only_inside
from agentcli.domain.tools import Workspace
from agentcli.extensions.commands import find_commands, substitute
from agentcli.repl import commands as registry
from agentcli.repl.commands import custom_command
from tests.repl.direct_chat import DirectChat, talk
from tests.support.model_server import ModelServer
from tests.support.wire_facts import facts_of


@pytest.fixture(autouse=True)
def no_custom_commands() -> Iterator[None]:
    yield
    registry.use_custom(())


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.spec("UI-5")
def test_names_help_and_which_one_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    head = '---\ndescription: "Review it"\nargument-hint: [FILE]\n---\n'
    write(first, "commands/review.md", f"{head}Look at $1.")
    write(first, "commands/git/commit.md", "# Write a commit message\n\nNow.")
    write(first, "skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Read PDFs\n---\nUse it.")
    write(second, "commands/review.md", "another")
    write(second, "commands/No Command.md", "x")
    write(second, "commands/empty.md", "---\nx: y\n---\n")
    write(second, "commands/notes.txt", "x")
    write(second, "commands/help.md", "not the program's")
    found, warnings = find_commands([first, second, tmp_path / "none"])
    commands = [custom_command(each) for each in found]
    assert {c.name: (c.help, c.usage) for c in commands} == {
        "git:commit": ("Write a commit message (yours)", ""),
        "review": ("Review it (yours)", "[FILE]"),
        "pdf": ("Read PDFs (skill)", ""),
        "help": ("not the program's (yours)", ""),
    }
    assert len(warnings) == 1 and "empty.md': it has no text" in warnings[0]
    registry.use_custom(commands)
    assert registry.find("review") in commands
    assert registry.find("help") not in commands
    assert registry.parse("/git:commit now") == ("git:commit", "now")
    assert "git:commit" in registry.helps()


@pytest.mark.spec("UI-5")
@pytest.mark.parametrize(
    ("body", "arguments", "sent"),
    [
        ("Do it.", "", "Do it."),
        ("Do it.", "now please", "Do it.\n\nnow please"),
        ("Fix $ARGUMENTS!", "a $1 b", "Fix a $1 b!"),
        ("$2 then $1, $3", "one two", "two then one, "),
        ("costs $10", "", "costs 0"),
        ("$HOME $x", "", "$HOME $x"),
    ],
)
def test_arguments_are_put_in(body: str, arguments: str, sent: str) -> None:
    assert substitute(body, arguments) == sent


@pytest.mark.spec("SEC-13", "SEC-1")
def test_odd_files_are_named_and_hide_no_other(tmp_path: Path) -> None:
    tmp_path = tmp_path / "commands"
    tmp_path.mkdir()
    os.mkfifo(tmp_path / "fifo.md")
    (tmp_path / "big.md").write_text("x" * 300_000)
    (tmp_path / "binary.md").write_bytes(b"a\0b")
    write(tmp_path, "good.md", "Do it.")
    (tmp_path / "loop").symlink_to(tmp_path)
    found, warnings = find_commands([tmp_path.parent])
    assert [command.name for command in found] == ["good"]
    assert len(warnings) == 3


@pytest.mark.spec("UI-5")
def test_a_command_is_sent_as_it_is_by_now(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    model_server.add("One.", "Two.")

    async def body(chat: DirectChat) -> None:
        config = chat.user.config_file.parent
        path = write(config, "commands/shout.md", "Say $ARGUMENTS loudly")
        skill = write(home, ".agents/skills/brew/SKILL.md", "Heat water.")
        registry.use_custom(map(custom_command, (await chat.user.custom_commands())[0]))
        path.write_text("Say $ARGUMENTS twice")
        await chat.do("/shout hello")
        await chat.do("/brew tea")
        expected = f"Follow the skill brew. Its files are in {skill.parent}.\n\nHeat water.\n\ntea"
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
        return naming_only_inside(substitute(body, typed), typed, workspace)

    assert of("See @a.txt and me@example.org.") == "See @a.txt and me@example.org."
    for name in (str(key), "../home/id_rsa", "door", f"@{key}", f"@@@@@@@{key}", f'"{key}"'):
        parts = attached_parts(of(f"See @{name}, then @a.txt"), workspace)
        assert "PRIVATE" not in str(parts)
    for body, typed in (("See $1", f"@{key}"), ("See", f"@{key}")):
        assert "PRIVATE" in str(attached_parts(of(body, typed), workspace))
    parts = attached_parts(of("See @$1/../../home/id_rsa", "a"), workspace)
    assert "PRIVATE" not in str(parts)
