"""Going back in real sessions: real files, real commands, a real service (TT-1, TT-2)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.files import file_keeper
from agentcli.app.files.rewinding import RewindRefused
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.messages import TextPart, UserMessage
from agentcli.domain.rewind import ABSENT, FileKind, FileState, RewindPoint, RewindScope
from agentcli.store.repair.check import check
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.replies import Call, calls
from tests.support.rivals import Talk, talk

Body = Callable[[Talk], Awaitable[Any]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (path / "a.txt").write_text("one\n")
    return path


def edit(old: str, new: str, name: str = "a.txt") -> Call:
    return Call("edit_file", {"path": name, "old_string": old, "new_string": new})


def play(server: ModelServer, work: Path, body: Body, **more: Any) -> Any:
    return talk(server, ANTHROPIC, work, body, **more)


async def points(it: Talk) -> list[RewindPoint]:
    return list(await it.session.rewind_points())


def texts(it: Talk) -> list[str]:
    return [m.text for m in it.session.history.messages if m.text]


@pytest.mark.spec("TT-1", "TT-2")
def test_undo_takes_the_prompt_and_its_changes_back_and_redo_brings_them_again(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add(
        "Hello.", calls(Call("read_file", {"path": "a.txt"})), calls(edit("one", "two")), "Done."
    )
    (work / "a.txt").chmod(0o640)

    async def body(it: Talk) -> None:
        await it.say("hi")
        await it.say("change it")
        assert (work / "a.txt").read_text() == "two\n"
        before = texts(it)
        first, second = await points(it)
        assert (first.text, second.text, second.files) == ("hi", "change it", 1)
        done = await it.session.rewind(second.seq)
        assert (done.text, list(done.files)) == ("change it", [work / "a.txt"])
        assert (work / "a.txt").read_text() == "one\n"
        assert (work / "a.txt").stat().st_mode & 0o777 == 0o640
        assert texts(it) == ["hi", "Hello."]
        again = await it.session.redo()
        assert again is not None and again.messages == done.messages
        assert (work / "a.txt").read_text() == "two\n" and texts(it) == before
        assert await it.session.redo() is None
        await it.session.rewind(second.seq)
        model_server.add("Fine.")
        await it.say("something else")
        assert await it.session.redo() is None, "something was said since"
        sent = str(model_server.requests[-1].body)
        assert "change it" not in sent and "something else" in sent
        path = it.session._store.path  # type: ignore[attr-defined]
        assert check(path) == []

    play(model_server, work, body)


@pytest.mark.spec("TT-2")
def test_chat_or_files_alone_and_the_model_is_told_of_files(
    model_server: ModelServer, work: Path
) -> None:
    write = Call("write_file", {"path": "new/b.txt", "content": "made"})
    model_server.add(calls(write), "Done.", "I see.")

    async def body(it: Talk) -> None:
        await it.say("make it")
        (point,) = await points(it)
        await it.session.rewind(point.seq, RewindScope.FILES)
        assert not (work / "new/b.txt").exists()
        assert "Done." in texts(it)
        await it.say("and now?")
        assert "took back your changes" in str(model_server.requests[-1].body)
        await it.session.rewind(point.seq, RewindScope.CHAT)
        assert texts(it) == [] and not (work / "new/b.txt").exists()

    play(model_server, work, body)


@pytest.mark.spec("TT-2")
@pytest.mark.parametrize("when", ["after", "between"])
def test_what_somebody_else_has_changed_since_is_refused_with_the_difference(
    model_server: ModelServer, work: Path, when: str
) -> None:
    other = Call("write_file", {"path": "b.txt", "content": "b"})
    model_server.add(
        calls(Call("read_file", {"path": "a.txt"})), calls(edit("one", "two"), other), "Done."
    )
    model_server.add(
        calls(Call("read_file", {"path": "a.txt"})), calls(edit("two", "three")), "Done."
    )

    async def body(it: Talk) -> None:
        await it.say("first")
        if when == "between":
            (work / "a.txt").write_text("two\nmine\n")
        await it.say("second")
        if when == "after":
            (work / "a.txt").write_text("three\nmine\n")
        now = (work / "a.txt").read_text()
        first = (await points(it))[0]
        with pytest.raises(RewindRefused, match="not by the agent") as refused:
            await it.session.rewind(first.seq)
        assert refused.value.differences
        if when == "after":
            assert "+mine" in refused.value.differences
        assert (work / "a.txt").read_text() == now and (work / "b.txt").exists()
        assert len(await points(it)) == 2
        await it.session.rewind(first.seq, RewindScope.CHAT)
        assert texts(it) == [] and (work / "a.txt").read_text() == now

    play(model_server, work, body)


@pytest.mark.spec("TT-1")
@pytest.mark.parametrize("git", [True, False])
def test_what_a_command_changes_is_found_and_taken_back(
    model_server: ModelServer, work: Path, git: bool
) -> None:
    (work / "gone.txt").write_text("gone")
    (work / "link").symlink_to("a.txt")
    (work / "big").write_bytes(os.urandom(3000))
    if git:
        subprocess.run(["git", "init", "-q"], cwd=work, check=True)
        (work / ".gitignore").write_text("ignored\n")
    before = {p.name: p.read_bytes() for p in work.iterdir() if p.is_file()}
    script = "sed -i s/one/two/ a.txt; rm gone.txt link; echo x > new.txt; echo y >> big; mkdir d; echo z > d/e"
    model_server.add(calls(Call("bash", {"command": script})), "Done.")
    index = (work / ".git/index").exists()

    async def body(it: Talk) -> None:
        await it.say("go")
        (point,) = await points(it)
        assert point.files == 6
        await it.session.rewind(point.seq)
        assert {p.name: p.read_bytes() for p in work.iterdir() if p.is_file()} == before
        assert os.readlink(work / "link") == "a.txt"
        assert not (work / "d/e").exists()
        await it.session.redo()
        assert (work / "new.txt").read_text() == "x\n" and not (work / "gone.txt").exists()

    play(model_server, work, body)
    assert (work / ".git/index").exists() == index


@pytest.mark.spec("TT-1", "SEC-13")
def test_a_workspace_that_is_too_large_is_not_watched_and_that_is_said_once(
    model_server: ModelServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_keeper, "MAX_FILES", 3)
    for number in range(5):
        (work / f"{number}.txt").touch()
    for name in ("x", "y"):
        model_server.add(calls(Call("bash", {"command": f"echo 1 > {name}"})), "Done.")

    async def body(it: Talk) -> None:
        await it.say("go")
        assert any("too large" in notice for notice in it.notices)
        await it.say("go on")
        assert not any("too large" in notice for notice in it.notices)
        assert [point.files for point in await points(it)] == [0, 0]

    play(model_server, work, body)


@pytest.mark.spec("TT-1", "SEC-9")
def test_what_cannot_be_kept_is_said_and_cannot_be_brought_back(
    model_server: ModelServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_keeper, "MAX_FILE_BYTES", 10)
    (work / "a.txt").write_text("one and more than is kept\n")
    model_server.add(
        calls(Call("read_file", {"path": "a.txt"})), calls(edit("one", "two")), "Done."
    )

    async def body(it: Talk) -> None:
        await it.say("go")
        assert any("cannot bring back" in notice for notice in it.notices)
        (point,) = await points(it)
        with pytest.raises(RewindRefused, match="too large"):
            await it.session.rewind(point.seq)
        assert (work / "a.txt").read_text().startswith("two")

    play(model_server, work, body)


@pytest.mark.spec("TT-1", "SEC-9")
def test_a_file_with_a_key_in_it_is_not_copied_into_the_session(
    model_server: ModelServer, work: Path
) -> None:
    from tests.support.cli import KEY

    (work / "settings.txt").write_text(f"KEY={KEY}\n")
    model_server.add(calls(Call("bash", {"command": "echo more >> settings.txt"})), "Done.")

    async def body(it: Talk) -> Path:
        await it.say("go")
        (point,) = await points(it)
        assert point.files == 1
        with pytest.raises(RewindRefused, match="held a key"):
            await it.session.rewind(point.seq)
        found: Path = it.session._store.path  # type: ignore[attr-defined]
        return found

    path = play(model_server, work, body)
    assert KEY.encode() not in path.read_bytes()


@pytest.mark.spec("TT-2")
def test_a_file_that_cannot_be_written_changes_nothing(
    model_server: ModelServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Call("write_file", {"path": "b.txt", "content": "b"})
    two = Call("write_file", {"path": "c.txt", "content": "c"})
    model_server.add(calls(one, two), "Done.")

    def fails(path: Path, state: object) -> None:
        if path.name == "c.txt" and not fails_done:
            fails_done.append(True)
            raise OSError(28, "No space left on device", str(path))
        put(path, state)  # type: ignore[arg-type]

    fails_done: list[bool] = []
    put = file_keeper._put

    async def body(it: Talk) -> None:
        await it.say("go")
        (point,) = await points(it)
        monkeypatch.setattr(file_keeper, "_put", fails)
        with pytest.raises(AgentError, match="nothing was changed"):
            await it.session.rewind(point.seq)
        assert (work / "b.txt").read_text() == "b" and (work / "c.txt").read_text() == "c"
        assert len(await points(it)) == 1

    play(model_server, work, body)


@pytest.mark.spec("TT-2")
def test_an_unknown_message_is_refused(model_server: ModelServer, work: Path) -> None:
    async def body(it: Talk) -> None:
        assert await points(it) == []
        assert await it.session.redo() is None
        with pytest.raises(UsageError, match="no such message"):
            await it.session.rewind(99)

    play(model_server, work, body)


@pytest.mark.spec("TT-2", "CMP-3")
def test_a_summary_stays_when_what_came_after_it_is_taken_back(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add(*(f"Answer {n}." for n in range(4)))

    async def body(it: Talk) -> None:
        for number in range(4):
            await it.say(f"question {number} " + "word " * 400)
        model_server.add("A summary of what was said.")
        await it.session.compact()
        visible = texts(it)
        last = (await points(it))[-1]
        await it.session.rewind(last.seq)
        assert texts(it)[0] == visible[0]
        assert await it.session.redo() is not None
        assert texts(it) == visible
        assert check(it.session._store.path) == []  # type: ignore[attr-defined]

    play(model_server, work, body)


@pytest.mark.spec("TT-2")
def test_two_undos_go_back_twice_and_two_redos_bring_both_again_after_a_restart(
    model_server: ModelServer, work: Path
) -> None:
    for number in (1, 2):
        write = Call("write_file", {"path": f"{number}.txt", "content": "x"})
        model_server.add(calls(write), f"Done {number}.")

    async def undo(it: Talk) -> str:
        return (await it.session.rewind((await points(it))[-1].seq)).text

    async def first(it: Talk) -> tuple[str, list[str]]:
        await it.say("one")
        await it.say("two")
        before = texts(it)
        assert [await undo(it), await undo(it)] == ["two", "one"]
        assert texts(it) == [] and sorted(os.listdir(work)) == ["a.txt"]
        return it.session.id, before

    session_id, before = play(model_server, work, first)

    async def second(it: Talk) -> None:
        assert await it.session.redo() is not None
        assert sorted(os.listdir(work)) == ["1.txt", "a.txt"]
        assert await it.session.redo() is not None
        assert sorted(os.listdir(work)) == ["1.txt", "2.txt", "a.txt"]
        assert texts(it) == before and await it.session.redo() is None

    play(model_server, work, second, resume=session_id)


@pytest.mark.spec("TT-2", "UI-4")
def test_what_comes_back_is_what_was_typed_without_what_was_told_beside_it(
    model_server: ModelServer, work: Path
) -> None:
    write = Call("write_file", {"path": "b.txt", "content": "x"})
    model_server.add(calls(write), "Done.", "Seen.")

    async def body(it: Talk) -> None:
        await it.say("make it")
        await it.session.rewind((await points(it))[0].seq, RewindScope.FILES)
        parts = (TextPart("look at it"), TextPart('<attached file="a.txt">one</attached>'))
        await it.say(UserMessage(parts))
        assert "took back your changes" in str(model_server.requests[-1].body)
        assert [point.text for point in await points(it)] == ["make it", "look at it"]
        done = await it.session.rewind((await points(it))[1].seq)
        assert done.text == "look at it"

    play(model_server, work, body)


@pytest.mark.spec("TT-2")
def test_files_are_taken_back_once_and_nothing_is_no_rewind(
    model_server: ModelServer, work: Path
) -> None:
    write = Call("write_file", {"path": "b.txt", "content": "x"})
    model_server.add(calls(write), "Done.")

    async def body(it: Talk) -> None:
        await it.say("make it")
        (point,) = await points(it)
        await it.session.rewind(point.seq, RewindScope.FILES)
        again = await it.session.rewind(point.seq, RewindScope.FILES)
        assert (again.messages, list(again.files)) == (0, [])
        assert (await points(it))[0].files == 0
        done = await it.session.redo()
        assert done is not None and list(done.files) == [work / "b.txt"]
        assert await it.session.redo() is None

    play(model_server, work, body)


@pytest.mark.spec("TT-2")
def test_a_large_new_file_is_not_called_somebody_elses(
    model_server: ModelServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_keeper, "MAX_WATCHED_BYTES", 10)
    model_server.add(calls(Call("bash", {"command": "echo 0123456789abc > big"})), "Done.")

    async def body(it: Talk) -> None:
        await it.say("go")
        (point,) = await points(it)
        with pytest.raises(RewindRefused, match="nobody can tell"):
            await it.session.rewind(point.seq)
        (work / "big").unlink()
        await it.session.rewind(point.seq)
        assert await points(it) == []

    play(model_server, work, body)


@pytest.mark.spec("TT-2", "SEC-5")
def test_a_rewind_does_not_write_through_a_directory_that_became_a_link(
    model_server: ModelServer, work: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "d").mkdir()
    (work / "d/f").write_text("one")
    (outside / "f").write_text("two")
    model_server.add(calls(Call("bash", {"command": "printf two > d/f"})), "Done.")

    async def body(it: Talk) -> None:
        await it.say("go")
        (work / "d/f").unlink()
        (work / "d").rmdir()
        (work / "d").symlink_to(outside)
        with pytest.raises(AgentError):
            await it.session.rewind((await points(it))[0].seq)
        assert (outside / "f").read_text() == "two"

    play(model_server, work, body)


@pytest.mark.spec("TT-2", "CMP-3")
def test_going_back_past_summaries_brings_back_what_they_stood_for(
    model_server: ModelServer, work: Path
) -> None:
    async def body(it: Talk) -> None:
        for number in range(6):
            model_server.add(f"Answer {number}.")
            await it.say(f"question {number} " + "word " * 400)
            if number in {3, 5}:
                model_server.add(f"A summary at {number}.")
                assert await it.session.compact() is not None
        visible = texts(it)
        found = await points(it)
        assert [point.text[:10] for point in found] == [f"question {n}" for n in range(6)]
        done = await it.session.rewind(found[1].seq)
        assert [text[:10] for text in texts(it)] == ["question 0", "Answer 0."]
        assert done.text.startswith("question 1")
        path = it.session._store.path  # type: ignore[attr-defined]
        assert check(path) == []
        again = await it.session.redo()
        assert again is not None and again.messages == done.messages
        assert texts(it) == visible and check(path) == []
        await it.session.undo_compaction()
        await it.session.undo_compaction()
        assert len(texts(it)) == 12

    play(model_server, work, body)


@pytest.mark.spec("TT-2", "CMP-3")
def test_a_summary_that_was_taken_back_meanwhile_ends_what_can_be_brought_back(
    model_server: ModelServer, work: Path
) -> None:
    async def body(it: Talk) -> None:
        for number in range(8):
            model_server.add(f"Answer {number}.")
            await it.say(f"question {number} " + "word " * 400)
            if number in {3, 7}:
                model_server.add(f"A summary at {number}.")
                assert await it.session.compact() is not None
        await it.session.rewind((await points(it))[4].seq)
        assert texts(it)[0].startswith("[Summary")
        assert await it.session.undo_compaction()
        assert [text[:10] for text in texts(it)[:2]] == ["question 0", "Answer 0."]
        assert await it.session.redo() is None
        assert len(texts(it)) == 8
        assert check(it.session._store.path) == []  # type: ignore[attr-defined]

    play(model_server, work, body)


@pytest.mark.spec("TT-2", "REC-1")
def test_a_rewind_that_was_killed_half_way_can_be_done_again(
    model_server: ModelServer, work: Path
) -> None:
    names = ("b.txt", "c.txt")
    writes = [Call("write_file", {"path": name, "content": "x"}) for name in names]
    model_server.add(calls(*writes), "Done.")

    async def body(it: Talk) -> None:
        await it.say("go")
        (work / "b.txt").unlink()  # put back, when the power went
        await it.session.rewind((await points(it))[0].seq)
        assert os.listdir(work) == ["a.txt"]

    play(model_server, work, body)


@pytest.mark.spec("TT-2", "SEC-3", "SEC-5")
@pytest.mark.parametrize("where", ["{home}/.bashrc", "{work}/.git/hooks/pre-commit", "{out}/x"])
def test_a_session_file_writes_nowhere_that_would_have_been_asked_about(
    model_server: ModelServer, work: Path, home: Path, where: str
) -> None:
    target = Path(where.format(home=home, work=work, out=work.parent))
    model_server.add("Hello.")

    async def body(it: Talk) -> None:
        await it.say("hi")
        store = it.session._store
        ids = await store.rewinds.keep("evil", {target: FileState(FileKind.FILE, b"evil", 0o755)})
        await store.rewinds.settle(dict.fromkeys(ids.values(), ABSENT))
        (point,) = await points(it)
        with pytest.raises(RewindRefused, match="not written by going back"):
            await it.session.rewind(point.seq)
        assert not target.exists() and texts(it) == ["hi", "Hello."]

    play(model_server, work, body)
