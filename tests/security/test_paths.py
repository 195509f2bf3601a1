"""The path law under attack: what was judged is what is opened, however it is swapped meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.messages import ResultStatus
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, PermissionMode, Verdict
from agentcli.domain.tools import ToolOutput, Workspace, WouldFail
from agentcli.process.run import end_processes
from agentcli.tools.common.registry import Registry
from tests.security.swapper import swapping
from tests.support.cli import agent_env, run_agent
from tests.support.turns import Answers, PlayedProvider, World, calls, says
from tests.tools.in_a_room import Room, failed, ok, text_of

pytestmark = pytest.mark.sampled

CANARY = "CANARY-4711"
TOOLS = Registry.builtin(["files"])


class Place:
    """A directory, a link that is put in its place, and a canary behind the link."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.there = base / "there"
        self.directory = self.there / "d"
        self.link = self.there / "l"
        self.outside = base / "outside"
        for directory, content in ((self.directory, "inside\n"), (self.outside, f"{CANARY}\n")):
            for name in ("f", "g", "sub/f"):
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).write_text(content)
        (self.outside / f"{CANARY}.txt").write_text("")
        (self.outside / "empty").mkdir()
        self.link.symlink_to(self.outside)
        self.before = snapshot(self.outside)

    def swap(self) -> None:
        self.directory.rename(self.there / "spare")
        self.link.rename(self.directory)

    def assert_canary_is_well(self, *texts: str) -> None:
        assert snapshot(self.outside) == self.before
        assert not any(CANARY in text for text in texts), texts


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (
            path.read_bytes() if path.is_file() else b"",
            path.lstat().st_mode,
        )
        for path in sorted(directory.rglob("*"))
    }


def patch(*lines: str) -> dict[str, str]:
    return {"patch": "\n".join(("*** Begin Patch", *lines, "*** End Patch"))}


def cases(at: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """What a model may do with files, in the directory ``at``."""
    update = (f"*** Update File: {at}/f", "@@", "-inside", "+changed")
    canary = (f"*** Update File: {at}/f", "@@", f"-{CANARY}", "+changed")
    return {
        "read": ("read_file", {"path": f"{at}/f"}),
        "write": ("write_file", {"path": f"{at}/f", "content": "changed\n"}),
        "create": ("write_file", {"path": f"{at}/new", "content": "new\n"}),
        "create below": ("write_file", {"path": f"{at}/empty/a/b", "content": "new\n"}),
        "edit": ("edit_file", {"path": f"{at}/f", "old_string": "\n", "new_string": "x\n"}),
        "delete": ("delete_file", {"path": f"{at}/f"}),
        "delete below": ("delete_file", {"path": f"{at}/sub/f"}),
        "patch": ("apply_patch", patch(*update)),
        "patch what is outside": ("apply_patch", patch(*canary)),
        "patch add": ("apply_patch", patch(f"*** Add File: {at}/new/x", "+new")),
        "patch delete": ("apply_patch", patch(f"*** Delete File: {at}/g", *update)),
        "patch move to": ("apply_patch", patch(update[0], f"*** Move to: {at}/sub/m", *update[1:])),
        "list": ("list_directory", {"path": at}),
        "stat": ("stat_file", {"path": f"{at}/{CANARY[:6]}x"}),
        "near names": ("read_file", {"path": f"{at}/{CANARY}.tx"}),
        "glob": ("glob_files", {"pattern": "**", "path": at}),
        "glob by its pattern": ("glob_files", {"pattern": f"{at}/**"}),
        "grep": ("grep_files", {"pattern": "CANARY-|inside", "path": at}),
        "grep a file": ("grep_files", {"pattern": "CANARY-|inside", "path": f"{at}/f"}),
    }


NAMES = sorted(cases("x"))


# --- a swap between the judgement and the use ------------------------------------------------


class SwapsFirst(Answers):
    """A person who says yes a moment after the directory was swapped."""

    def __init__(self, swap: Callable[[], None]) -> None:
        super().__init__()
        self.swap = swap

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.requests.append(request)
        self.swap()
        return ApprovalAnswer(Verdict.ONCE)


def turn(place: Place, case: tuple[str, dict[str, Any]], approver: Answers, root: Path) -> World:
    """The call in a real turn of a session in ``root``."""
    wanted = calls(("a", case[0], json.dumps(case[1])))
    world = World(PlayedProvider(wanted, says("x")), approver=approver, mode=PermissionMode.DEFAULT)
    world.set(toolbox=TOOLS, workspace=Workspace(root, root))

    async def body() -> None:
        await world.run()
        await end_processes()

    asyncio.run(body())
    return world


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize("name", NAMES)
def test_a_directory_swapped_for_a_link_before_the_yes_is_not_followed(
    name: str, tmp_path: Path
) -> None:
    place = Place(tmp_path / "place")
    root = tmp_path / "root"
    root.mkdir()
    approver = SwapsFirst(place.swap)
    world = turn(place, cases(str(place.directory))[name], approver, root)
    assert len(approver.requests) == 1
    (result,) = world.results
    assert result.status is ResultStatus.ERROR
    shown = result.text.replace(f"{place.directory}/{CANARY}", "")
    assert "changed while it was being judged" in shown or "No file" in shown
    place.assert_canary_is_well(shown.replace(f"{place.outside}/{CANARY}", ""))
    assert not any(path.name.startswith(".agentcli") for path in tmp_path.rglob("*"))


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize("name", [n for n in NAMES if "outside" not in n and n != "near names"])
def test_what_a_person_approved_outside_of_the_workspace_is_done(name: str, tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    (place.directory / "CANARYx").write_text("")
    root = tmp_path / "root"
    root.mkdir()
    world = turn(place, cases(str(place.directory))[name], Answers(Verdict.ONCE), root)
    assert world.results[0].status is ResultStatus.OK, world.results[0].text
    place.assert_canary_is_well(world.results[0].text)


@pytest.mark.spec("SEC-5", "SEC-6", "TOOL-8")
@pytest.mark.parametrize("name", ["write", "edit", "create", "delete"])
def test_a_file_that_changes_before_the_yes_is_not_changed_unseen(
    name: str, tmp_path: Path
) -> None:
    place = Place(tmp_path / "place")
    case = cases(str(place.directory))[name]
    path = Path(case[1]["path"])

    def edit() -> None:
        path.write_text("mine in the meantime\n")

    approver = SwapsFirst(edit)
    world = turn(place, case, approver, place.there)
    assert world.results[0].status is ResultStatus.ERROR
    assert "Nothing was written" in world.results[0].text
    assert path.read_text() == "mine in the meantime\n"


# --- a swap at any moment ----------------------------------------------------------------------


@pytest.mark.spec("SEC-5")
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, "") for name in NAMES] + [(n, "python") for n in NAMES if n[:4] in {"glob", "grep"}],
)
def test_a_directory_that_is_swapped_all_the_time_leads_nowhere(
    name: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool_name, arguments = cases("d")[name]
    searches = tool_name in {"grep_files", "glob_files"}
    if engine:
        monkeypatch.setenv("PATH", "/nonexistent")
    place = Place(tmp_path / "place")
    room = Room(place.there)
    tool = TOOLS.get(tool_name)
    assert tool is not None
    args = tool.parse(arguments)

    async def attempts() -> list[str]:
        texts = []
        for _ in range(12 if searches else 120):
            ctx = room.context()
            ctx.judged = tool.paths(args, room.workspace)
            if not all(path.is_relative_to(place.there) for path in ctx.judged):
                continue  # the policy asks
            try:
                texts.append(await tool.preview(args, ctx))
            except WouldFail as said:
                texts.append(str(said))
            texts.append(text_of(await tool.run(args, ctx)))
            room.ledger.seen.clear()
        await end_processes()
        return texts

    with swapping(place.directory, place.link):
        texts = asyncio.run(attempts())
    own = (str(part) for part in (CANARY[:6] + "x", f"{CANARY}.tx ", f"-{CANARY}"))
    stripped = [_without(text, *own) for text in texts]
    place.assert_canary_is_well(*(_told(text) for text in stripped))


def _without(text: str, *pieces: str) -> str:
    for piece in pieces:
        text = text.replace(piece, "")
    return text


def _told(text: str) -> str:
    """What a tool says apart from the arguments, which it may repeat."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if f"d/{CANARY}.tx" not in line and line != CANARY)


# --- forms of paths ------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place")


def read(room: Room, path: str) -> ToolOutput:
    tool = TOOLS.get("read_file")
    assert tool is not None
    args = tool.parse({"path": path})
    ctx = room.context()
    ctx.judged = tool.paths(args, room.workspace)
    return asyncio.run(tool.run(args, ctx))


@pytest.mark.spec("SEC-5")
def test_every_form_of_a_path_is_judged_as_the_file_that_it_means(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Workspace(place.there, place.there)
    sibling = place.base / "there-too"
    sibling.mkdir()
    (sibling / "f").write_text("x")
    monkeypatch.setenv("HOME", str(place.outside))
    monkeypatch.chdir(place.outside)
    handle = os.open(place.outside, os.O_RDONLY)
    tool = TOOLS.get("read_file")
    assert tool is not None
    forms = [
        "l/f",
        "l/../outside/f",
        "d/../l/f",
        "d/../../outside/f",
        f"{place.there}/../outside/f",
        f"{place.there}-too/f",
        "../there-too/f",
        "~/f",
        f"/proc/self/root{place.outside}/f",
        "/proc/self/cwd/f",
        f"/dev/fd/{handle}/f",
        f"/proc/{os.getpid()}/fd/{handle}/f",
        f"/{place.outside}/f",
        f"{place.outside}//.//f",
    ]
    try:
        for form in forms:
            (judged,) = tool.paths(tool.parse({"path": form}), space)
            assert judged in {place.outside / "f", sibling / "f"}, form
            assert not space.contains(judged), form
    finally:
        os.close(handle)


@pytest.mark.spec("SEC-5")
def test_a_workspace_that_is_itself_reached_by_a_link_works(place: Place) -> None:
    (place.base / "alias").symlink_to(place.there)
    room = Room(place.base / "alias")
    assert "inside" in ok(read(room, "d/f"))
    assert "inside" in ok(read(room, f"{place.base}/alias/d/f"))
    assert "inside" in ok(read(room, f"{place.there}/d/f"))
    assert "d/" in ok(room.run(TOOLS.get("list_directory")))
    ok(room.run(TOOLS.get("write_file"), path="new/deep/file", content="x\n"))
    assert (place.there / "new/deep/file").read_text() == "x\n"


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize(
    "name", ["caf\u00e9", os.fsdecode(b"\xff\xfe"), " ", "-rf", "a\nb", "\u202e"]
)
def test_odd_names_pass_the_judgement(place: Place, name: str) -> None:
    (place.directory / name).mkdir()
    (place.directory / name / name).write_text("odd\n")
    room = Room(place.there)
    assert "odd" in ok(read(room, f"d/{name}/{name}"))


@pytest.mark.spec("SEC-5")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_mount_within_the_workspace_is_a_directory_like_others(place: Place) -> None:
    mounted = subprocess.run(
        ["/bin/mount", "--bind", place.outside, place.directory], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert CANARY in ok(read(Room(place.there), "d/f"))
    finally:
        subprocess.run(["/bin/umount", place.directory], check=True)


@pytest.mark.spec("SEC-5")
def test_a_working_directory_that_is_deleted_meanwhile_is_an_error(place: Place) -> None:
    room = Room(place.there)
    place.there.rename(place.base / "gone")
    assert "no longer exists" in failed(read(room, "d/f"))


@pytest.mark.spec("SEC-5", "CLI-9")
def test_a_further_directory_of_the_workspace_is_free_and_kept_to(place: Place) -> None:
    space = Workspace(place.there / "sub", place.there / "sub", (place.directory,))
    assert space.contains(place.directory / "f")
    assert not space.contains(place.link / "f")


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("name", ["d/l", "l/f", "l/new"])
@pytest.mark.parametrize(
    "line",
    [
        ("run", "hi", "--debug"),
        ("map", "--force", "-o"),
        ("stats", "--html"),
        ("run", "hi", "--record"),
        ("batch", "tasks.jsonl", "-o"),
    ],
    ids=" ".join,
)
def test_no_file_that_the_user_names_is_written_through_a_link(
    place: Place, line: tuple[str, ...], name: str
) -> None:
    (place.directory / "l").symlink_to(place.outside / "empty/new")
    (place.there / "tasks.jsonl").write_text('{"prompt": "hi"}')
    env = agent_env(None, AGENTCLI_MODEL="offline")
    done = run_agent(*line, name, env=env, cwd=place.there)
    assert done.code == 2, done.stderr
    assert snapshot(place.outside) == place.before
