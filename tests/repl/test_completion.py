"""Completion: commands at the start, files after an @; what is offered reads as what it names."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from agentcli.app.mentions import find_mentions
from agentcli.repl.completion import ChatCompleter


def offered(completer: ChatCompleter, text: str) -> list[str]:
    async def main() -> list[str]:
        found = completer.get_completions_async(Document(text), CompleteEvent())
        return [completion.text async for completion in found]

    both = [found.text for found in completer.get_completions(Document(text), CompleteEvent())]
    assert asyncio.run(main()) == both
    return both


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("src/app.py", "src/util.py", "docs/app.md", "ignored/x.py", "odd\u202ename"):
        path = root / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True, capture_output=True)
    (root / ".gitignore").write_text("ignored/\n")
    return root


@pytest.mark.spec("UI-4")
def test_commands_come_with_their_help_and_only_at_the_start(tmp_path: Path) -> None:
    completer = ChatCompleter(lambda: {"help": "keys", "model": "m"}, tmp_path)
    found = list(completer.get_completions(Document("/he"), CompleteEvent()))
    assert [(item.text, item.display_meta_text) for item in found] == [("/help", "keys")]
    assert offered(completer, "/") == ["/help", "/model"]
    assert offered(completer, "say /he") == []
    assert offered(completer, "/help me") == []


@pytest.mark.spec("UI-4")
def test_files_are_those_that_git_would_add(project: Path) -> None:
    completer = ChatCompleter(dict, project)
    assert offered(completer, "look at @app") == ["src/app.py", "docs/app.md"]
    assert offered(completer, "@ignored") == []
    assert offered(completer, "@sr")[0] == "src/"
    assert offered(completer, "mail@app") == []
    assert offered(completer, "two lines\n(@util") == ["src/util.py"]


@pytest.mark.spec("UI-4")
@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("a b.txt", "@a b"),
        ("a b.txt", '@"a b'),
        ("a b.txt", "@a\\ b"),
        ('say "hi".md', '@"say'),
        ("back\\slash", "@back"),
        ("naïve/日本語.txt", "@日本"),
        ("(paren).txt", "@paren"),
        ("it's.txt", "@its"),
        ("ends.", "@ends"),
        ("line:12", "@line"),
        ("@types/x.d.ts", "@@types"),
    ],
)
def test_what_is_completed_names_the_file(project: Path, name: str, typed: str) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).touch()
    completer = ChatCompleter(dict, project)
    buffer = Buffer(document=Document(f"see {typed if typed != '@a b' else '@ab'}"))
    found = [*completer.get_completions(buffer.document, CompleteEvent())]
    chosen = next(each for each in found if not each.text.rstrip('"').endswith("/"))
    buffer.apply_completion(chosen)
    (readings,) = find_mentions(f"{buffer.text} please")
    assert name in [mention.path for mention in readings]
    assert readings[0].path == name


@pytest.mark.spec("UI-4")
def test_a_directory_with_a_space_leaves_the_quote_open(project: Path) -> None:
    (project / "my dir").mkdir()
    (project / "my dir/file.txt").touch()
    completer = ChatCompleter(dict, project)
    assert offered(completer, "@mydir")[0] == '"my dir/'
    assert offered(completer, '@"my dir/fi') == ['"my dir/file.txt"']


@pytest.mark.spec("UI-4")
def test_paths_elsewhere_are_listed_step_by_step(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.parent / "notes.txt").touch()
    monkeypatch.setenv("HOME", str(project))
    completer = ChatCompleter(dict, project)
    assert offered(completer, "@../no") == ["../notes.txt"]
    assert offered(completer, f"@{project.parent}/proj") == [f"{project.parent}/project/"]
    assert offered(completer, "@~") == ["~/"]
    assert offered(completer, "@~/sr") == ["~/src/"]
    assert offered(completer, "@./sr") == ["./src/"]
    assert offered(completer, "@/no/such/dir/x") == []
    assert offered(completer, "@~nobody-of-that-name/x") == []


@pytest.mark.spec("UI-4")
def test_what_was_sent_is_offered_first(project: Path) -> None:
    completer = ChatCompleter(dict, project)

    async def first(text: str) -> str:
        found = completer.get_completions_async(Document(text), CompleteEvent())
        return [completion.text async for completion in found][0]  # noqa: RUF015 - awaits

    async def main() -> None:
        assert await first("@app") == "src/app.py"
        completer.used("look at @docs/app.md please")
        assert await first("@app") == "docs/app.md"
        completer.close()

    asyncio.run(main())


@pytest.mark.spec("SEC-6")
def test_what_reorders_text_is_spelt_out(project: Path) -> None:
    (found,) = ChatCompleter(dict, project).get_completions(Document("@odd"), CompleteEvent())
    assert "\u202e" not in found.display_text
