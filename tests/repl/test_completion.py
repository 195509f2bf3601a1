"""Completion: commands at the start, files after an @; what is offered reads as what it names."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from agentcli.app.files.mentions import find_mentions
from agentcli.repl import completion as file_index
from agentcli.repl import completion as fuzzy
from agentcli.repl.completion import ChatCompleter, FileIndex, PathList, make, project_files


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


@pytest.mark.spec("UI-4", "MCP-1")
def test_resources_of_servers_come_after_files_and_those_that_begin_so_first(project: Path) -> None:
    about = {"docs:text://app": "Read\x1b[31m me", "app:text://x": "", "db:row://1": "One"}
    completer = ChatCompleter(dict, project, resources=lambda: about)
    assert offered(completer, "see @app") == [
        "src/app.py", "docs/app.md", "app:text://x", "docs:text://app",
    ]  # fmt: skip
    (found,) = completer.get_completions(Document("@db:"), CompleteEvent())
    assert (found.text, found.start_position, found.display_meta_text) == ("db:row://1", -3, "One")
    (found,) = completer.get_completions(Document("@docs:t"), CompleteEvent())
    assert found.display_meta_text == "Read me"
    assert offered(completer, "/app") == []


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


# --- Fuzzy search: what matches, in which order, and that narrowing changes noth


PATHS = [
    "x/deep/config.py",
    "config.py",
    "my_config.py",
    "reconfigure.py",
    "src/config/a.py",
    "c/o/n/f.i.g",
    "zzz",
]


@pytest.mark.spec("UI-4")
def test_better_kinds_of_match_come_first() -> None:
    assert PathList(PATHS).search("config", 9) == [
        "config.py",
        "x/deep/config.py",
        "my_config.py",
        "reconfigure.py",
        "src/config/a.py",
        "c/o/n/f.i.g",
    ]


@pytest.mark.spec("UI-4")
@pytest.mark.parametrize(
    ("typed", "best"),
    [
        ("fb", "src/foo_bar.py"),
        ("cc", "src/ChatCompleter.py"),
        ("chatc", "src/ChatCompleter.py"),
        ("s/f", "src/foo_bar.py"),
        ("srcfoo", "src/foo_bar.py"),
        ("SRC/", "src/"),
        ("foo_bar", "src/foo_bar.py"),
        ("v2", "docs/api_v2.md"),
        ("é", "docs/été.md"),
    ],
)
def test_words_and_capitals_are_what_people_abbreviate(typed: str, best: str) -> None:
    paths = [
        *("src/", "src/foo_bar.py", "src/ChatCompleter.py", "docs/fabric.md", "docs/api_v2.md"),
        *("docs/accc.md", "a/s/d/f.py", "docs/été.md", "docs/chat_x.c"),
    ]
    assert PathList(paths).search(typed, 3)[0] == best


@pytest.mark.spec("UI-4")
def test_what_was_used_last_comes_first_among_equals() -> None:
    paths = PathList(["a/test_a.py", "b/test_bbb.py", "c/test_cccccc.py", "latest.py"])
    used = {"c/test_cccccc.py": 2, "b/test_bbb.py": 1, "latest.py": 3}
    assert paths.search("test", 4, used) == [
        *("c/test_cccccc.py", "b/test_bbb.py", "a/test_a.py", "latest.py")
    ]
    assert paths.search("", 2, used) == ["latest.py", "c/test_cccccc.py"]


@pytest.mark.spec("UI-4")
def test_before_anything_is_typed_the_upper_level_is_offered() -> None:
    paths = PathList(["src/", "src/a.py", "README.md", ".env", "docs/", "docs/x/y.md"])
    assert paths.search("", 4) == ["docs/", "src/", "README.md", ".env"]


@pytest.mark.spec("UI-4")
def test_many_shorter_paths_do_not_hide_a_better_match() -> None:
    crowd = [f"a{n:04}p.x" for n in range(2000)]
    paths = PathList([*crowd, "some/long/directory/app.py"])
    assert paths.search("app", 1) == ["some/long/directory/app.py"]


LETTERS = st.text(alphabet="abA/_.-é", min_size=1, max_size=8)


@given(st.lists(LETTERS, max_size=20), st.text(alphabet="abA/_é", max_size=5))
@settings(max_examples=150, deadline=None)
def test_typing_on_finds_the_same_as_searching_anew(paths: list[str], typed: str) -> None:
    kept = PathList(paths)
    for end in range(len(typed) + 1):
        found = kept.search(typed[:end], 50)
        assert found == PathList(paths).search(typed[:end], 50)
    letters = typed.lower()
    assert all(fuzzy.subsequence(letters).match(path.lower()) for path in found)
    if typed:
        matching = {path for path in paths if fuzzy.subsequence(letters).match(path.lower())}
        assert set(found) == matching


# --- The index of a project's files: what is in it, that nobody's code runs, tha


def git(cwd: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True)


def files_of(cwd: Path) -> list[str]:
    return sorted(project_files(cwd, threading.Event()))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("src/app.py", "src/deep/util.py", "ignored/x.py", "a b.txt", "bad\nname"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    (tmp_path / os.fsdecode(b"bad\xff")).touch()
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    return tmp_path


@pytest.mark.spec("UI-4")
def test_files_are_those_that_git_would_add_and_a_person_can_type(tree: Path) -> None:
    assert files_of(tree) == [".gitignore", "a b.txt", "src/app.py", "src/deep/util.py"]
    assert {"src/", "src/deep/"} <= set(make(tree, threading.Event()).paths)


@pytest.mark.spec("UI-4")
def test_a_deleted_file_is_not_offered(tree: Path) -> None:
    git(tree, "add", "src")
    (tree / "src/app.py").unlink()
    assert "src/app.py" not in files_of(tree)
    assert "src/deep/util.py" in files_of(tree)


@pytest.mark.spec("UI-4")
def test_without_git_the_directories_are_walked_and_ignore_files_honoured(tmp_path: Path) -> None:
    for name in ("a/b.txt", "node_modules/x.js", "out/c.o", ".github/ci.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.o\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert files_of(tmp_path) == [
        *(".github/", ".github/ci.yml", ".gitignore", "a/", "a/b.txt", "loop", "out/")
    ]


@pytest.mark.spec("UI-4")
def test_a_deleted_directory_has_no_files(tmp_path: Path) -> None:
    assert files_of(tmp_path / "gone") == []


@pytest.mark.spec("SEC-2")
def test_making_the_index_runs_none_of_the_repositorys_code(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tree.parent / "witness"
    for name in ("evil.sh", "git"):
        (tree / name).write_text(f"#!/bin/sh\ntouch {witness}\n")
        (tree / name).chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.sshCommand", "alias.ls-files"):
        git(tree, "config", key, str(tree / "evil.sh"))
    (tree / ".git/hooks").mkdir(exist_ok=True)
    (tree / "evil.sh").rename(tree / ".git/hooks/post-index-change")
    git(tree, "config", "core.fsmonitor", str(tree / ".git/hooks/post-index-change"))
    monkeypatch.setenv("PATH", f".:{tree}:{os.environ['PATH']}")
    monkeypatch.chdir(tree)
    assert "src/app.py" in files_of(tree)
    link = tree.parent / "bin"
    link.mkdir()
    (link / "git").symlink_to(tree / "git")
    monkeypatch.setenv("PATH", str(link))
    assert "src/app.py" in files_of(tree)
    assert not witness.exists()


async def _searches(tree: Path) -> None:
    index = FileIndex(tree)
    assert (await index.search("app", 5))[0] == "src/app.py"
    index.use("src/deep/util.py")
    assert (await index.search("", 5))[0] == "src/deep/util.py"
    index.close()


@pytest.mark.spec("UI-4")
def test_the_first_search_waits_for_the_index_and_use_is_remembered(tree: Path) -> None:
    asyncio.run(_searches(tree))


@pytest.mark.spec("UI-4")
def test_the_loop_goes_on_while_the_index_is_made(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    really = file_index.make

    def slow(cwd: Path, stop: threading.Event) -> object:
        assert may_end.wait(10)
        return really(cwd, stop)

    monkeypatch.setattr(file_index, "make", slow)

    async def main() -> list[str]:
        index = FileIndex(tree)
        search = asyncio.ensure_future(index.search("app", 5))
        for _ in range(5):  # the loop runs although the index cannot be made yet
            await asyncio.sleep(0)
        assert not search.done()
        may_end.set()
        return await search

    assert asyncio.run(main())[0] == "src/app.py"


@pytest.mark.spec("UI-4")
def test_a_new_file_is_found_when_the_index_is_old(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_index, "FRESH_S", 0.0)
    monkeypatch.setattr(file_index, "_PATIENCE", 0)
    monkeypatch.setattr(file_index, "WAIT_S", 10.0)

    async def main() -> None:
        index = FileIndex(tree)
        assert await index.search("brandnew", 5) == []
        (tree / "brandnew.py").touch()
        assert await index.search("brandnew", 5) == ["brandnew.py"]
        monkeypatch.setattr(file_index, "FRESH_S", 1e9)
        (tree / "brandnew2.py").touch()
        assert await index.search("brandnew", 5) == ["brandnew.py"]

    asyncio.run(main())


@pytest.mark.spec("SEC-13")
def test_the_index_is_bounded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_index, "MAX_FILES", 2)
    assert len(files_of(tree)) == 2
