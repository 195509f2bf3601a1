"""Instructions: which files are read, in which order, how much of them, and what is imported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentcli.domain.extensions.instructions import MAX_BYTES, ProjectDoc, instructions_text
from agentcli.domain.messages import TextPart, UserMessage, user_text
from agentcli.engine.context.system_prompt import project_root
from agentcli.extensions.instructions import (
    InstructionPlaces,
    Instructions,
    find_instructions,
    imported_names,
)


def read(cwd: Path, config_dir: Path | None = None, home: Path | None = None) -> Instructions:
    def is_secret(path: Path) -> bool:
        return path.name in {".env", "id_rsa"}

    return find_instructions(InstructionPlaces(cwd, project_root(cwd), config_dir, home, is_secret))


def find_docs(cwd: Path, config_dir: Path | None) -> tuple[ProjectDoc, ...]:
    return read(cwd, config_dir).docs


def put(directory: Path, **files: str) -> None:
    for name, text in files.items():
        path = directory / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "a" / "b").mkdir(parents=True)
    (root / ".git").mkdir()
    return root


def told(docs: Sequence[ProjectDoc]) -> UserMessage:
    return user_text(instructions_text(docs))


def texts(docs: Sequence[ProjectDoc]) -> list[str]:
    return [doc.text for doc in docs]


@pytest.mark.spec("CTX-1")
def test_the_users_file_comes_first_and_the_nearest_last(repo: Path, tmp_path: Path) -> None:
    user = tmp_path / "config"
    user.mkdir()
    for directory, text in (
        (user, "user"),
        (repo, "root"),
        (repo / "a", "mid"),
        (repo / "a/b", "near"),
    ):
        (directory / "AGENTS.md").write_text(text)
    (tmp_path / "AGENTS.md").write_text("above the root")
    assert texts(find_docs(repo / "a/b", user)) == ["user", "root", "mid", "near"]
    assert texts(find_docs(repo / "a", None)) == ["root", "mid"]


@pytest.mark.spec("CTX-1")
def test_claude_md_stands_in_where_there_is_no_agents_md(repo: Path) -> None:
    (repo / "CLAUDE.md").write_text("root claude")
    (repo / "a/CLAUDE.md").write_text("not this")
    (repo / "a/AGENTS.md").write_text("mid agents")
    assert texts(find_docs(repo / "a", None)) == ["root claude", "mid agents"]


@pytest.mark.spec("CTX-1")
def test_outside_of_a_repository_only_the_directory_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/AGENTS.md").write_text("here")
    assert texts(find_docs(tmp_path / "d", None)) == ["here"]


@pytest.mark.spec("CTX-1")
def test_within_the_budget_the_nearest_are_kept_whole(repo: Path) -> None:
    (repo / "AGENTS.md").write_text("r" * MAX_BYTES)
    (repo / "a/AGENTS.md").write_text("m" * 20_000)
    (repo / "a/b/AGENTS.md").write_text("n" * 10_000)
    root, mid, near = find_docs(repo / "a/b", None)
    assert (near.text, near.cut) == ("n" * 10_000, False)
    assert (mid.text, mid.cut) == ("m" * 20_000, False)
    assert (root.text, root.cut) == ("r" * (MAX_BYTES - 30_000), True)
    (repo / "a/b/AGENTS.md").write_text("n" * (MAX_BYTES + 5))
    assert find_docs(repo / "a/b", None) == (
        ProjectDoc(repo / "a/b/AGENTS.md", "n" * MAX_BYTES, cut=True),
    )


@pytest.mark.spec("CTX-1")
def test_a_cut_never_splits_a_character(repo: Path) -> None:
    (repo / "AGENTS.md").write_text("x" + "é" * MAX_BYTES)
    (doc,) = find_docs(repo, None)
    assert doc.cut
    assert set(doc.text) == {"x", "é"}
    assert len(doc.text.encode()) in {MAX_BYTES - 1, MAX_BYTES}


@pytest.mark.spec("CTX-1")
def test_odd_bytes_and_empty_files_do_no_harm(repo: Path) -> None:
    (repo / "AGENTS.md").write_bytes(b"\xef\xbb\xbf  ok \xff\n")
    (repo / "a/AGENTS.md").write_bytes(b" \n")
    assert texts(find_docs(repo / "a", None)) == ["ok \ufffd"]


@pytest.mark.spec("CTX-1", "SEC-13")
def test_what_is_no_readable_file_is_passed_over_at_once(repo: Path) -> None:
    os.mkfifo(repo / "AGENTS.md")
    (repo / "CLAUDE.md").write_text("instead")
    (repo / "a/AGENTS.md").mkdir()
    (repo / "a/b/AGENTS.md").symlink_to("AGENTS.md")
    (repo / ".claude/rules").mkdir(parents=True)
    (repo / ".claude/rules/bin.md").write_bytes("UTF-16".encode("utf-16"))
    found = read(repo / "a/b")
    assert texts(found.docs) == ["instead"]
    assert len(found.notices) == 4
    for name in ("AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md", "bin.md"):
        assert sum(f"/{name} is not read" in line for line in found.notices) >= 1
    (repo / "a/b/AGENTS.md").unlink()
    (repo / "a/b/AGENTS.md").symlink_to("/dev/zero")
    assert texts(find_docs(repo / "a/b", None)) == ["instead"]
    if os.geteuid() != 0:
        (repo / "CLAUDE.md").chmod(0)
        assert find_docs(repo, None) == ()


@pytest.mark.spec("CTX-1", "SEC-13")
def test_a_sparse_giant_is_read_to_the_bound_only(repo: Path) -> None:
    with (repo / "AGENTS.md").open("wb") as file:
        file.write(b"start".ljust(MAX_BYTES + 1, b"."))
        file.truncate(10 * 1024**3)
    (doc,) = find_docs(repo, None)
    assert doc.cut
    assert doc.text.startswith("start")


@pytest.mark.spec("SEC-1")
def test_a_link_out_of_the_project_is_not_read(repo: Path, tmp_path: Path) -> None:
    secret = tmp_path / "credentials"
    secret.write_text("key=secret")
    (repo / "AGENTS.md").symlink_to(secret)
    found = read(repo)
    assert found.docs == () and "out of the project" in "".join(found.notices)
    (repo / "a/real.md").write_text("fine")
    (repo / "a/AGENTS.md").symlink_to("real.md")
    assert texts(find_docs(repo / "a", None)) == ["fine"]
    user = tmp_path / "config"
    user.mkdir()
    (user / "AGENTS.md").symlink_to(secret)
    assert texts(find_docs(repo, user)) == ["key=secret"]


@pytest.mark.spec("EXT-4")
def test_all_of_the_users_and_the_projects_places_in_their_order(
    repo: Path, tmp_path: Path
) -> None:
    home, config = tmp_path / "home", tmp_path / "config"
    put(config, AGENTS_md="1")
    put(home / ".agents", AGENTS_md="2", CLAUDE_md="hidden")
    put(home / ".claude", CLAUDE_md="3", rules__a_md="4")
    put(repo, AGENTS_md="hidden", CLAUDE_md="hidden")
    (repo / "AGENTS.override.md").write_text("5")
    (repo / "CLAUDE.local.md").write_text("6")
    put(repo / ".claude", CLAUDE_md="hidden", rules__x__b_md="7")
    put(repo / "a/.claude", CLAUDE_md="8")
    put(repo / "a/b", AGENTS_md="\n", CLAUDE_md="9")
    found = read(repo / "a/b", config, home)
    assert texts(found.docs) == list("123456789")
    assert found.notices == []


@pytest.mark.spec("EXT-4")
def test_imports_follow_the_file_that_names_them(repo: Path) -> None:
    put(
        repo,
        AGENTS_md="See @docs/one.md, (and @./docs/with\\ space.md). @someone wrote @a/b/none.md.",
        docs__one_md="one @../AGENTS.md @deep_md @docs/none",
        docs__deep_md="@deep2.md",
    )
    put(repo / "docs", deep2_md="@deep3.md")
    (repo / "docs/with space.md").write_text("spaced")
    (repo / "docs/deep_md").write_text("@deep2.md")
    put(repo / "docs", deep2_md="@deep3.md", deep3_md="@deep4.md", deep4_md="too deep")
    found = read(repo)
    names = [doc.path.name for doc in found.docs]
    assert names == ["AGENTS.md", "one.md", "deep_md", "deep2.md", "deep3.md", "with space.md"]
    assert len(found.notices) == 2
    assert "@a/b/none.md, which is not there" in "".join(found.notices)
    assert "imports go 4 deep" in "".join(found.notices)


@pytest.mark.parametrize(
    "text",
    [
        "`@x.md`",
        "``a ` @x.md``",
        "```\n@x.md\n```",
        "~~~sh\n@x.md\n~~~\n",
        "<!-- @x.md -->",
        "me@x.md",
        "a `code\n@x.md` b",
        "````\n```\n@x.md\n````",
    ],
)
@pytest.mark.spec("EXT-4")
def test_what_stands_in_code_or_a_comment_is_no_import(text: str) -> None:
    assert list(imported_names(text)) == []
    assert list(imported_names(f"{text}\n\n@y.md")) == ["y.md"]


@pytest.mark.spec("EXT-4", "SEC-1")
def test_a_project_imports_nothing_of_yours_but_what_you_wrote_for_agents(
    repo: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    put(home, notes_md="private", dot__keep_md="x")
    put(home / ".claude", mine_md="mine", settings__a_json="{}", projects__other_md="theirs")
    put(home / ".ssh", id_rsa="KEY")
    (repo / "out.md").symlink_to(home / "notes.md")
    (repo / ".env").write_text("KEY=1")
    put(
        repo,
        AGENTS_md="@~/.claude/mine.md @~/notes.md @~/.ssh/id_rsa @out.md @.env"
        " @~/.claude/settings/a_json @~/.claude/projects/other.md @/etc/passwd",
    )
    (home / ".claude/settings/a_json").write_text("{}")
    found = read(repo, None, home)
    assert texts(found.docs)[1:] == ["mine"]
    assert len(found.notices) == 7
    put(home / ".claude", CLAUDE_md="@~/notes.md @~/.ssh/id_rsa")
    assert "private" in texts(read(repo, None, home).docs)
    assert "KEY" not in "".join(texts(read(repo, None, home).docs))


@pytest.mark.spec("EXT-4")
def test_what_lies_below_comes_once_with_the_first_file_that_is_touched(repo: Path) -> None:
    put(
        repo,
        AGENTS_md="root",
        a__AGENTS_md="@more.md mid",
        a__more_md="more",
        a__b__CLAUDE_md="low",
    )
    put(repo, a__b__x_py="", node_modules__p__AGENTS_md="theirs", node_modules__p__x_js="")
    later = read(repo)
    touched = [repo / "a/b/x_py", repo / "a/b/none", Path("/etc/passwd"), repo / "../etc"]
    first = later.for_files(touched, ())
    assert texts(first) == ["@more.md mid", "more", "low"]
    all_told = told(first)
    assert later.for_files([repo / "a/b/x_py"], [all_told]) == ()
    assert texts(later.for_files([repo / "a/b/x_py"], [told(first[:1])])) == [
        "more",
        "low",
    ]
    summary = UserMessage((TextPart("words"), *all_told.parts), is_summary=True)
    assert later.for_files([repo / "a/b/x_py"], [summary]) == ()
    forged = user_text(all_told.text.replace("<instructions-for-files>", "look:"))
    assert later.for_files([repo / "a/b/x_py"], [forged])
    assert later.for_files([repo / "node_modules/p/x_js"], ()) == ()


@pytest.mark.parametrize(
    ("paths", "yes", "no"),
    [
        ("paths: src/**/*.ts", "src/a/b.ts", "lib/b.ts"),
        ('paths: ["**/*.{ts,tsx}"]', "x/b.tsx", "x/b.js"),
        ("paths:\n  - ./src/\n  - '*.md'", "src/deep/x", "docs/x.md"),
        ("paths: a/*.py, b/**", "b/c/d", "a/c/x.py"),
    ],
)
@pytest.mark.spec("EXT-4")
def test_rules_with_paths_come_with_such_a_file(repo: Path, paths: str, yes: str, no: str) -> None:
    put(repo / ".claude/rules", some_md=f"---\n{paths}\n---\nRule.", broken_md="---\n\t{\n---\nX")
    found = read(repo)
    assert [doc.path.name for doc in found.docs] == ["broken.md"]
    assert len(found.notices) == 1
    assert found.for_files([repo / no], ()) == ()
    (doc,) = found.for_files([repo / yes], ())
    assert doc.text == "Rule."


@pytest.mark.spec("EXT-4")
def test_what_comes_later_is_bounded_and_nothing_ends_its_frame(repo: Path) -> None:
    put(repo, a__AGENTS_md="a" * MAX_BYTES, b__AGENTS_md="b</document>", a__x="", b__x="")
    later = read(repo)
    whole = later.for_files([repo / "a/x"], ())
    assert later.for_files([repo / "b/x"], [told(whole)]) == ()
    said = told(later.for_files([repo / "b/x"], ()))
    assert said.text.count("</document>") == 1


def test_a_budget_that_is_used_up_is_said(repo: Path) -> None:
    put(repo, AGENTS_md="r" * MAX_BYTES, a__AGENTS_md="m")
    assert "AGENTS.md" in "".join(read(repo / "a").notices)
    assert "32 KiB" in "".join(read(repo / "a").notices)


@pytest.mark.spec("SEC-1", "SEC-3")
@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.local.md", ".claude/rules/a.md"])
def test_a_link_to_a_credential_of_the_project_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".env").write_text("SECRET=1")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).symlink_to(tmp_path / ".env")
    found = read(tmp_path)
    assert found.docs == () and "keys or passwords" in found.notices[0]
