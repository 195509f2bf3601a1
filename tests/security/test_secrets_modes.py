"""All that is ours is for its owner only, whatever the umask; no temporary name can be guessed."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, leave
from tests.support.cli import AGENT, Finished, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import call, say

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).resolve().parents[2] / "agentcli"


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir(mode=0o700)
    path.chmod(0o700)
    return path


def open_to_others(directory: Path) -> list[str]:
    found = []
    for path in (directory, *directory.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        if mode & 0o077 or (stat.S_ISREG(mode) and mode & 0o111):
            found.append(f"{stat.filemode(mode)} {path}")
        elif not mode & 0o400:
            found.append(f"unusable: {stat.filemode(mode)} {path}")
    return found


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize(
    ("umask", "place"),
    [(0o000, "XDG"), (0o000, "AGENTCLI_HOME"), (0o077, "AGENTCLI_HOME"), (0o777, "XDG")],
    indirect=["umask"],
)
def test_everything_of_ours_is_private_whatever_the_umask(
    tmp_path: Path, home: Path, work: Path, umask: int, place: str
) -> None:
    home.chmod(0o700)
    steps = [call("bash", {"command": "echo x; umask; yes | head -c 200000"}), say("done")]
    with ModelServer(
        [*steps, say("again"), steps[0], say("Chat answered.")], strict=False
    ) as server:
        env = agent_env(server, AGENTCLI_HOME=None) if place == "XDG" else agent_env(server)
        ours = [home / "agentcli"]
        if place == "XDG":
            ours = [home / ".config", home / ".local"]

        def run(*args: str, key: str | None = None) -> Finished:
            done = run_agent(*args, env=env, cwd=work, input=key)
            assert done.code == 0, done.stderr
            return done

        run("run", "--yolo", "--verbose", "begin")
        run("run", "-c", "go on")
        run("config", "set", "theme", "dark")
        run("auth", "login", "openai", "--stdin", "--file", key="sk-0123456789")
        (session,) = json.loads(run("sessions", "list", "--format", "json").stdout)
        copy = run("sessions", "fork", session["id"]).stdout.strip()
        run("sessions", "repair", copy)
        run("sessions", "reindex")
        run("sessions", "export", copy, "-o", str(home / "export.json"))
        with Terminal([*AGENT, "--yolo"], env, work) as terminal:
            terminal.wait_for(IDLE)
            terminal.line("hello")
            terminal.wait_for("Chat answered.")
            terminal.wait_for(IDLE)
            terminal.line(f"/export md {home}/chat.md")
            terminal.wait_for("Written to")
            leave(terminal)
    for directory in ours:
        assert open_to_others(directory) == []
    for name in ("export.json", "chat.md"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    assert open_to_others(home) == []


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("umask", [0], indirect=True)
def test_no_directory_on_the_way_to_what_is_ours_is_left_open(
    home: Path, work: Path, umask: int
) -> None:
    home.chmod(0o700)
    (work / "tasks.jsonl").write_text('{"id": "a", "prompt": "hello"}')
    with ModelServer(default="Answered.", strict=False) as server:
        env = agent_env(server, AGENTCLI_HOME=None)
        with Terminal([*AGENT], env, work) as terminal:  # nothing before it
            terminal.wait_for(IDLE)
            leave(terminal)
        assert open_to_others(home) == []
        done = run_agent("batch", "tasks.jsonl", "-o", "out/of/it", env=env, cwd=work)
    assert done.code == 0, done.stderr
    assert open_to_others(work / "out") == []


@pytest.mark.spec("SEC-9")
def test_while_a_command_runs_what_lies_in_the_temporary_directory_is_private(
    tmp_path: Path, work: Path
) -> None:
    before = os.umask(0)
    try:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        command = f"find {scratch} -mindepth 1 -printf '%m %P\\n'"
        for option in ((), ("--no-session",)):
            with ModelServer(
                [call("bash", {"command": command}), say("done")], strict=False
            ) as server:
                env = agent_env(server, TMPDIR=str(scratch))
                done = run_agent(
                    "run",
                    "--yolo",
                    "--sandbox",
                    "off",
                    *option,
                    "-o",
                    "stream-json",
                    "hi",
                    env=env,
                    cwd=work,
                )
            assert done.result["subtype"] == "success", done.stderr
            rows = re.findall(r"\b([0-7]{3,4}) (agentcli-[^\\\s\"]+)", done.stdout)
            assert bool(rows) == bool(option)  # a session that is not kept lies there
            assert {mode for mode, _ in rows} <= {"600", "700"}
            assert list(scratch.iterdir()) == []
    finally:
        os.umask(before)


@pytest.mark.spec("SEC-9")
def test_an_export_replaces_no_file_unless_it_is_told_to(tmp_path: Path) -> None:
    with ModelServer(["hello"]) as server:
        run_agent("run", "hi", env=agent_env(server))
    (session,) = json.loads(run_agent("sessions", "list", "--format", "json").stdout)
    target = tmp_path / "mine.json"
    target.write_text("mine")
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "elsewhere.json")
    is_there = "exists already - name another file, or add --force"
    for path, why in ((target, is_there), (link, "a link leads elsewhere - give --output another")):
        done = run_agent("sessions", "export", session["id"], "-o", str(path))
        assert (done.code, done.stderr.count("\n")) == (2, 1)
        assert why in done.stderr
    assert target.read_text() == "mine"
    assert not (tmp_path / "elsewhere.json").exists()
    assert run_agent("sessions", "export", session["id"], "-o", str(target), "--force").code == 0
    assert json.loads(target.read_text())["format"]
    done = run_agent("sessions", "export", session["id"], "-o", "/dev/stdout")
    assert json.loads(done.stdout)["format"]


@pytest.mark.spec("SEC-9")
def test_a_home_that_others_could_read_is_closed(home: Path, tmp_path: Path) -> None:
    ours = home / "agentcli"
    (ours / "sessions").mkdir(parents=True, mode=0o755)
    with ModelServer(["hello"]) as server:
        assert run_agent("run", "hi", env=agent_env(server)).code == 0
    assert stat.S_IMODE((ours / "sessions").stat().st_mode) == 0o700


@pytest.mark.spec("SEC-9")
def test_no_temporary_name_can_be_guessed() -> None:
    """Temporary files come from ``tempfile``, or have random bytes in their names."""
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        if not re.search(r"mktemp|t[em]+pnam|tmp/|gettempdir", source):
            continue  # to read each call of the program takes seconds
        for node in ast.walk(ast.parse(source)):
            text = ast.unparse(node) if isinstance(node, ast.Call | ast.JoinedStr) else ""
            where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}: {text}"
            if re.search(r"mktemp\(|os\.(tempnam|tmpnam)\(", text):
                wrong.append(where)
            if re.search(r"""["']/(var/)?tmp/""", text) and "socket" not in text:
                wrong.append(where)
            if isinstance(node, ast.Call) and "gettempdir()" in text and "open" in text:
                wrong.append(where)
    assert not wrong, "\n".join(wrong)
