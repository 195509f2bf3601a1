"""What is writable, read-only, hidden or must not come into being: as the disk has it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.process import sandbox_places
from agentcli.process.git_config import programs_of
from agentcli.process.sandbox_places import Around, OwnPlaces, Places, find_places
from agentcli.process.sandbox_watch import TreeWatch


def git(*args: str, cwd: Path) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *args], check=True, cwd=cwd, capture_output=True)


def repository(path: Path) -> Path:
    path.mkdir(parents=True)
    git("init", "-q", ".", cwd=path)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=path)
    return path


def places(*roots: Path, home: Path, own: OwnPlaces | None = None) -> Places:
    known = TreeWatch(roots).learn()
    return find_places(roots, home, own or OwnPlaces(), known.repositories, known.scripts)


@pytest.mark.spec("SEC-7")
def test_hooks_and_configuration_are_read_only_also_in_repositories_below(
    tmp_path: Path, home: Path
) -> None:
    top = repository(tmp_path / "top")
    below = repository(top / "libs" / "one")
    found = places(top, home=home)
    for root in (top, below):
        assert root / ".git" in found.pinned
        assert {root / ".git" / "hooks", root / ".git" / "config"} <= set(found.read_only)


@pytest.mark.spec("SEC-7")
def test_hooks_that_are_not_there_stay_away(tmp_path: Path, home: Path) -> None:
    top = repository(tmp_path / "top")
    for path in (top / ".git" / "hooks").iterdir():
        path.unlink()
    (top / ".git" / "hooks").rmdir()
    assert places(top, home=home).empty == (top / ".git" / "hooks",)


@pytest.mark.spec("SEC-7")
def test_a_repository_without_its_head_is_still_protected(tmp_path: Path, home: Path) -> None:
    top = repository(tmp_path / "top")
    (top / ".git" / "HEAD").unlink()
    assert top / ".git" / "hooks" in places(top, home=home).read_only


@pytest.mark.spec("SEC-7")
def test_a_linked_working_tree_can_be_committed_in_but_its_hooks_stay(
    tmp_path: Path, home: Path
) -> None:
    main = repository(tmp_path / "main")
    git("worktree", "add", "-q", str(tmp_path / "tree"), cwd=main)
    found = places(tmp_path / "tree", home=home)
    assert found.writable == (tmp_path / "tree", main / ".git")
    assert {main / ".git" / "hooks", main / ".git" / "config"} <= set(found.read_only)
    assert tmp_path / "tree" / ".git" in found.read_only
    assert {main / ".git" / name for name in ("HEAD", "worktrees")} <= set(found.read_only)
    assert found.reopened == (main / ".git" / "worktrees" / "tree",)
    both = find_places([tmp_path / "tree", main], home, OwnPlaces())
    assert not both.reopened and main / ".git" / "worktrees" not in both.read_only
    alone = places(main, home=home)
    assert main / ".git" / "worktrees" / "tree" in alone.read_only


@pytest.mark.spec("SEC-7")
def test_a_git_file_opens_no_directory_that_does_not_know_of_it(tmp_path: Path, home: Path) -> None:
    victim = repository(tmp_path / "victim")
    git("worktree", "add", "-q", str(tmp_path / "tree"), cwd=victim)
    mine = tmp_path / "mine"
    mine.mkdir()
    for target in (victim / ".git", victim / ".git" / "worktrees" / "tree", home):
        (mine / ".git").write_text(f"gitdir: {target}\n")
        assert places(mine, home=home).writable == (mine,)


@pytest.mark.spec("SEC-7")
def test_secrets_are_hidden_unless_the_workspace_is_in_them(tmp_path: Path, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".netrc").touch()
    assert {home / ".ssh", home / ".netrc"} <= set(places(home, home=home).hidden)
    elsewhere = places(tmp_path / "elsewhere", home=home)
    assert home in elsewhere.homes
    assert not {home / ".ssh", home / ".netrc"} & {*elsewhere.seen, *elsewhere.hidden}
    (home / ".ssh" / "work").mkdir()
    assert home / ".ssh" not in places(home / ".ssh" / "work", home=home).hidden


@pytest.mark.spec("SEC-7")
def test_a_link_is_hidden_where_it_leads(tmp_path: Path, home: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (home / ".ssh").symlink_to(keys)
    (tmp_path / "work").mkdir()
    assert keys in places(tmp_path / "work", home=home).hidden


@pytest.mark.spec("SEC-7")
def test_in_a_home_directory_start_up_files_are_read_only_and_none_is_born(home: Path) -> None:
    (home / ".bashrc").touch()
    found = places(home, home=home)
    assert home / ".bashrc" in found.read_only
    assert {home / ".profile", home / ".ssh", home / ".agents"} <= set(found.unborn)


@pytest.mark.spec("SEC-17")
def test_what_others_run_is_read_only_where_it_is(tmp_path: Path, home: Path) -> None:
    top = repository(tmp_path / "top")
    (top / "a").mkdir()
    (top / "a" / ".envrc").touch()
    (top / ".husky" / "_").mkdir(parents=True)
    (top / ".husky" / "pre-commit").touch()
    found = set(places(top, home=home).read_only)
    assert {top / "a" / ".envrc", top / ".husky" / "pre-commit"} <= found
    assert top / ".husky" not in found, "its own files are husky's"


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[core]\n\tfilemode = true\n[user]\nname = A\n", 0),
        ("[core]\neol = lf\x0c[user]\nfsmonitor = x\n", 1),
        ("[user][core]\nfsmonitor = x\n", 1),
        ("[user] [core] fsmonitor = x\n", 1),
        ("[core]fsmonitor\n", 1),
        ("\ufeff[core]\nfsmonitor=x\n", 1),
        ("[CORE]\n FSMonitor = x\r\n", 1),
        ('[remote "a]b"]\nurl = x\n', 0),
        ('[remote "a"]\nurl = x \\\n[core]\nmirror=x\n', 0),
        ('[branch "a"]\nmerge = x\nvscode-merge-base = x\n', 0),
        ('[branch "a"]\nnew = x\n[remote "a"]\nnew = x\n[submodule "a"]\nnew = x\n', 3),
        ("[extensions]\nrefStorage = reftable\nobjectFormat = sha256\n", 0),
        ("[extensions]\nrefStorage = files:///tmp/x\nnew = true\n", 2),
        ("[core\n] fsmonitor = x", None),
        ('[submodule "x"]\nupdate = !x\n', 1),
        ("[include]\npath = x\n", 1),
    ],
)  # fmt: skip
def test_configuration_is_read_as_git_reads_it(text: str, found: int | None) -> None:
    told = programs_of(text.encode())
    programs = None if told is None else [each for each in told if each[:2] != ("remote", "url")]
    assert (None if programs is None else len(programs)) == found


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    "text",
    [
        "[core]\neol = lf\x0c[user]\nfsmonitor = x\n",
        "[user][core]\nfsmonitor = x\n",
        "[user] [core] fsmonitor = x # why\n",
        '[remote "a\\"]b"]\nurl = x\n[core] fsmonitor = x\n',
        "[core]\n\tFSMONITOR=x\r\n",
        '[core "sub"]\nfsmonitor = no\n[core]\nfsmonitor = x\n',
    ],
)
def test_what_git_itself_takes_from_it_is_found(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(text.encode())
    done = subprocess.run(
        ["git", "config", "--file", str(file), "core.fsmonitor"], check=False, capture_output=True
    )
    programs = programs_of(text.encode())
    assert done.stdout.strip() == b"x"
    assert programs is None or ("core", "fsmonitor") in [entry[:2] for entry in programs]


@pytest.mark.spec("SEC-4", "SEC-18")
def test_a_command_that_only_reads_sees_programs_and_no_caches_of_downloads(
    tmp_path: Path, home: Path
) -> None:
    for name in (".cargo/bin", ".cache/pip", ".m2/repository"):
        (home / name).mkdir(parents=True)
    found = places(repository(tmp_path / "top"), home=home)
    cache = {home.resolve() / ".cache/pip", home.resolve() / ".m2/repository"}
    assert cache <= set(found.seen)
    assert home.resolve() / ".cargo/bin" in found.frozen().seen
    assert cache.isdisjoint(found.frozen().seen)


@pytest.mark.spec("SEC-4", "SEC-18")
def test_commands_in_a_row_in_a_part_of_a_large_repository_do_not_look_around_again_each(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = repository(tmp_path / "top")
    (top / "part").mkdir()
    (top / ".env").touch()
    looks: list[Path] = []

    def credentials(place: Path) -> Iterator[Path]:
        looks.append(place)
        time.sleep(0.02)
        yield place / ".env"

    around, own = Around([top / "part"], home), OwnPlaces(credentials=credentials)
    for _ in range(3):
        found = find_places([top / "part"], home, own, around=around)
        assert found.hidden == (top / ".env",) and found.listed == (top,)
    assert looks == [top]
    monkeypatch.setattr(sandbox_places, "_REST", 0)
    again = Around([top / "part"], home)
    for _ in range(3):
        again.shown(own)
    assert looks == [top] * 4


@pytest.mark.spec("SEC-13", "SEC-17")
def test_links_are_followed_as_far_as_a_look_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_places, "_MOST_LINKS", 5)
    places = [tmp_path / name for name in ("a", "b", "gone", "c")]
    for place in (places[0], places[1], places[3]):
        place.mkdir()
        for number in range(3):
            (place / f"{number}").symlink_to("../x")
    found = sandbox_places.other_names(map(str, places), [tmp_path])
    assert [real for real, _ in found] == [str(tmp_path / "x")] * 5
    assert {Path(link).parent for _, link in found} == {places[0], places[1]}


@pytest.mark.spec("SEC-18")
def test_what_is_worked_in_has_the_name_that_the_user_gives_it(tmp_path: Path, home: Path) -> None:
    work, more = tmp_path / "work", tmp_path / "more"
    for each in (work, more):
        each.mkdir()
    (home / "lib").symlink_to(more)
    (work / "link").symlink_to(home)  # a command may have put it there
    names = [work, home / "lib", work / "link" / "lib"]
    around = Around([work, more], home, names)
    found = find_places([work, more], home, OwnPlaces(), around=around)
    assert found.links == ((str(home / "lib"), str(more)),)
    (work / "link").unlink()
    (work / "link").symlink_to(home / ".ssh")
    now = find_places([work, more], home, OwnPlaces(), around=around)
    assert now.writable == (work, more) and now.links == found.links
    assert not find_places([work, more], home, OwnPlaces()).links
