"""What is read of a repository by itself is read where it was judged (SEC-5).

A process that was left running in the sandbox may put a link in the place of a directory, again and
again, while instructions, skills, attached files and the map of the project are read outside of it.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from agentcli.app.files.attachments import attached_parts
from agentcli.app.files.changes import open_repository
from agentcli.app.files.mentions import naming_only_inside, typed_or_inside
from agentcli.cli import redacting
from agentcli.codemap.index import MapIndex
from agentcli.domain.errors import AgentError
from agentcli.domain.files import refuse_links
from agentcli.domain.tools import Workspace
from agentcli.extensions.checks import _contents
from agentcli.extensions.front_matter import Unusable
from agentcli.extensions.instructions import InstructionPlaces, find_instructions
from agentcli.extensions.places import ExtensionPlace
from agentcli.extensions.skills import find_skills, text_of
from agentcli.repl.slash import export
from tests.security.swapper import swapping

pytestmark = pytest.mark.sampled

CANARY = "CANARY-4711"
TRIES = 400
SKILL = "---\nname: d\ndescription: what it is\n---\n"
Reader = Callable[[Path], Callable[[], str]]


def instructions(root: Path) -> Callable[[], str]:
    places = InstructionPlaces(root / "d", root)
    return lambda: str(find_instructions(places).docs)


def imports(root: Path) -> Callable[[], str]:
    ends = ("", ".", ",", ";", ":", "!", "?", "..", "!!", ",,", "??", ";;", "::", "...", "!?")
    (root / "AGENTS.md").write_text("\n".join(f"@d/f.md{end}" for end in ends))
    places = InstructionPlaces(root, root)
    return lambda: str(find_instructions(places).docs)


def skill(root: Path) -> Callable[[], str]:
    place = ExtensionPlace(root / ".agents", "project", in_repository=True, root=root)
    (found,), _ = find_skills([place])

    def read() -> str:
        try:
            return text_of(found)
        except Unusable:
            return ""

    return read


def attached(root: Path) -> Callable[[], str]:
    workspace = Workspace(root, root)
    may = typed_or_inside("", workspace, lambda _: False)
    return lambda: str(attached_parts("See @d/f.md and @d", workspace, None, may))


def symbols(root: Path) -> Callable[[], str]:
    index = MapIndex(root.parent / "map.db", root)
    return lambda: index._content("d/f.md")[0].decode()


def checked(root: Path) -> Callable[[], str]:
    return lambda: str(_contents([root / "d/f.md"]))


def lines(root: Path) -> Callable[[], str]:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    repository = open_repository(root)
    return lambda: CANARY * (repository.line_count("d/f.md", "") == CANARY_LINES)


CANARY_LINES = 7


@pytest.mark.spec("SEC-5", "SEC-3")
@pytest.mark.parametrize(
    "reader",
    [instructions, imports, skill, attached, symbols, checked, lines],
    ids=lambda each: each.__name__,
)
def test_what_is_judged_in_the_project_is_never_read_elsewhere(
    tmp_path: Path, reader: Reader
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for place, text in ((root / "d", "inside\n"), (outside, f"{CANARY}\n" * CANARY_LINES)):
        place.mkdir(parents=True)
        (place / "f.md").write_text(text)
        (place / "AGENTS.md").write_text(text)
        (place / "SKILL.md").write_text(SKILL + text)
    (outside / f"{CANARY}.txt").touch()
    (root / ".agents" / "skills").mkdir(parents=True)
    (root / ".agents" / "skills" / "d").symlink_to(root / "d")
    read = reader(root)
    (root / "l").symlink_to(outside)
    with swapping(root / "d", root / "l"):
        found = [text for _ in range(TRIES) if CANARY in (text := read())]
    assert not found, found[0]


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize("module", [export, redacting], ids=["chat", "command line"])
def test_what_the_user_has_written_to_a_file_is_not_led_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "d").mkdir(parents=True)
    outside.mkdir()
    monkeypatch.chdir(root)

    def and_then(path: Path) -> Path:
        place = refuse_links(path)
        (root / "d").rename(root / "before")
        (root / "d").symlink_to(outside)
        return place

    monkeypatch.setattr(module, "refuse_links", and_then)
    with pytest.raises((OSError, AgentError)):
        if module is export:
            export.write(Path("d/f.md"), CANARY)
        else:
            redacting.write_private(Path("d/f.md"), [CANARY], replace=False)
    assert not any(outside.iterdir())


@pytest.mark.spec("SEC-5")
def test_what_is_written_to_a_pipe_is_not_led_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    os.mkfifo(tmp_path / "f.md")

    def is_plain(mode: int) -> bool:
        (tmp_path / "f.md").unlink()
        (tmp_path / "f.md").symlink_to(outside)
        return stat.S_IFMT(mode) == stat.S_IFREG

    monkeypatch.setattr(stat, "S_ISREG", is_plain)
    with pytest.raises(OSError):
        redacting.write_private(tmp_path / "f.md", [CANARY], replace=True)
    assert not outside.read_text()


@pytest.mark.spec("SEC-5", "EXT-3")
def test_what_is_typed_behind_a_command_is_no_more_than_its_name_says(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "a.md").touch()
    (root / ".env").touch()
    (root / "link.md").symlink_to("../a.md")
    (root / "note.md").symlink_to(".env")
    workspace = Workspace(root, root)
    typed = "@link.md @note.md @.env @../a.md"
    text = naming_only_inside(typed, typed, workspace, lambda path: path.name == ".env")
    assert text == "link.md note.md @.env @../a.md"
