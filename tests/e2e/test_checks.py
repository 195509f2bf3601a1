"""Checks after edits in the real program: real commands, real files, the next request."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.e2e.chat import Chat, leave
from tests.e2e.one_shot import check_sessions, one_shot
from tests.support.cli import Running, agent_env
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.processes import wait_until
from tests.support.replies import Call, call, calls
from tests.support.sandboxes import needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled

FREE = ("--permission-mode", "accept-edits", "--sandbox", "off")
# finds BAD, and notes that it ran and on what
LINT = """#!/bin/sh
echo "$@" >> "{log}"
grep -n BAD "$@" /dev/null | sed 's/^\\([^:]*\\):\\([0-9]*\\):/\\1:\\2:1: E1 /'
! grep -q BAD "$@"
"""


@pytest.fixture
def lint(home: Path, work: Path) -> Path:
    """The log of a check whose command is in the user's own settings."""
    log, script = home / "log", home / "lint.sh"
    script.write_text(LINT.replace("{log}", str(log)))
    script.chmod(0o755)
    configure(home, f'[[checks]]\nglob = "*.py"\ncheck = "{script}"\n')
    (work / "app.py").write_text("first BAD\nsecond\n")
    return log


def configure(home: Path, text: str) -> None:
    file = home / "agentcli/config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


def edit(path: str, old: str, new: str) -> Call:
    return Call("edit_file", {"path": path, "old_string": old, "new_string": new})


def told(server: ModelServer, number: int = -1) -> str:
    """The last thing that a request tells the model."""
    return facts_of(server.requests[number]).prompts[-1]


@pytest.mark.slow
@pytest.mark.spec("EXT-6")
@pytest.mark.parametrize(
    "protocol",
    [ANTHROPIC, *(pytest.param(p, marks=pytest.mark.slow) for p in (OPENAI, RESPONSES, GEMINI))],
)
def test_only_new_problems_go_to_the_model_once_for_a_batch(
    model_server: ModelServer, work: Path, lint: Path, protocol: str
) -> None:
    model_server.add(
        calls(
            edit("app.py", "second", "second BAD here"),
            Call("write_file", {"path": "new.py", "content": "fine\n"}),
            Call("write_file", {"path": "notes.txt", "content": "BAD\n"}),
        ),
        call(
            "edit_file", {"path": "app.py", "old_string": "first BAD", "new_string": "0\nfirst BAD"}
        ),
        "Done.",
    )
    done = one_shot(model_server, *FREE, "go on", protocol=protocol, cwd=work)
    assert done.code == 0, done.stderr
    assert "new problem in app.py" in done.stderr
    after = told(model_server, 1)
    assert "<checks>" in after and "app.py:2:1: E1 second BAD here" in after
    assert "first BAD" not in after and "notes.txt" not in after
    # before the first edit, once after each batch; what is known is not looked at again
    assert lint.read_text().splitlines() == ["app.py", "app.py new.py", "app.py"]
    assert "<checks>" not in str(facts_of(model_server.requests[2]).prompts[2:])
    check_sessions()


@pytest.mark.slow
@pytest.mark.spec("EXT-6")
def test_a_formatter_counts_as_the_tools_own_write(
    model_server: ModelServer, home: Path, work: Path
) -> None:
    configure(home, "[[checks]]\nglob = ['*.py']\nformat = \"sed -i 's/  */ /g' {files}\"\n")
    name = "it's  $HOME.py"
    model_server.add(
        call("write_file", {"path": name, "content": "a   =   1\n"}),
        call("edit_file", {"path": name, "old_string": "a = 1", "new_string": "a  =  2"}),
        "Done.",
    )
    done = one_shot(model_server, *FREE, "go on", cwd=work)
    assert done.code == 0 and "sed formatted" in done.stderr, done.stderr
    assert (work / name).read_text() == "a = 2\n"
    assert "+a = 1" in told(model_server, 1)
    assert not facts_of(model_server.requests[-1]).errors


@pytest.mark.slow
@pytest.mark.spec("EXT-6")
def test_a_formatter_that_prints_writes_as_a_tool_does(
    model_server: ModelServer, home: Path, work: Path
) -> None:
    configure(home, '[[checks]]\nglob = "*.txt"\nformat = "tr a-z A-Z < /dev/stdin; : -"\n')
    model_server.add(call("write_file", {"path": "a.txt", "content": "words\n"}), "Done.")
    done = one_shot(model_server, *FREE, "go on", cwd=work)
    assert done.code == 0, done.stderr
    assert (work / "a.txt").read_text() == "WORDS\n"


@pytest.mark.slow
@pytest.mark.spec("EXT-6")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "/nowhere/no-such-linter",
            "the check no-such-linter after edits: .*(?:not found|No such)",
        ),
        ("sleep 60 #", "the check sleep after edits: took longer than 0.3 s"),
        pytest.param(
            "kill -9 $$ #", "the check kill after edits: it ended", marks=pytest.mark.slow
        ),
    ],
)
def test_a_check_that_cannot_work_is_one_line_and_the_turn_goes_on(
    model_server: ModelServer, home: Path, work: Path, command: str, said: str
) -> None:
    configure(
        home,
        f'[[checks]]\nglob = "*"\ncheck = "{command}"\ntimeout_s = {0.3 if "sleep" in command else 10}\n',
    )
    (work / "a.txt").write_text("old\n")
    model_server.add(
        calls(edit("a.txt", "old", "new")), calls(edit("a.txt", "new", "newer")), "Done."
    )
    done = one_shot(model_server, *FREE, "go on", cwd=work)
    assert done.code == 0 and (work / "a.txt").read_text() == "newer\n"
    assert len(re.findall(said, done.stderr)) == 1, done.stderr
    assert "<checks>" not in str(model_server.requests[-1].body)


@pytest.mark.slow
@pytest.mark.spec("EXT-6", "CAN-6")
def test_ctrl_c_ends_a_check_and_the_edit_stays(
    model_server: ModelServer, home: Path, work: Path
) -> None:
    mark = home / "running"
    configure(
        home,
        f"[[checks]]\nglob = '*'\ncheck = \"touch '{mark}'; sleep 300 #\"\ntimeout_s = 300\n",
    )
    model_server.add(call("write_file", {"path": "a.txt", "content": "new\n"}))
    with Running("run", *FREE, "go on", env=agent_env(model_server), cwd=work) as running:
        wait_until(mark.exists, "the check never ran")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(10) == 130
    assert (work / "a.txt").read_text() == "new\n"
    check_sessions()
    model_server.add("Went on.")
    configure(home, "")
    again = one_shot(model_server, "-c", "go on", cwd=work)
    assert again.code == 0 and len(facts_of(model_server.requests[-1]).results) == 1


@pytest.mark.slow
@pytest.mark.spec("EXT-6", "REC-1")
def test_a_kill_while_checks_run_leaves_a_session_that_goes_on(
    model_server: ModelServer, home: Path, work: Path
) -> None:
    mark = home / "running"
    slow = f"touch '{mark}'; sleep 300 #"
    configure(home, f"[[checks]]\nglob = '*'\nformat = \"{slow}\"\ntimeout_s = 300\n")
    model_server.add(call("write_file", {"path": "a.txt", "content": "new\n"}))
    with Running("run", *FREE, "go on", env=agent_env(model_server), cwd=work) as running:
        wait_until(mark.exists, "the formatter never ran")
        running.process.kill()
        running.process.wait(10)
    configure(home, "")
    model_server.add(
        call("edit_file", {"path": "a.txt", "old_string": "new", "new_string": "x"}), "Done."
    )
    again = one_shot(model_server, "-c", *FREE, "go on", cwd=work)
    assert again.code == 0 and (work / "a.txt").read_text() == "x\n", again.stderr
    assert not facts_of(model_server.requests[-1]).errors
    check_sessions()


@pytest.mark.spec("EXT-6", "SEC-1")
@pytest.mark.parametrize("trust", [False, True])
def test_checks_of_a_project_run_only_where_it_is_trusted(
    model_server: ModelServer, work: Path, trust: bool
) -> None:
    (work / ".agents").mkdir()
    (work / ".agents/config.toml").write_text('[[checks]]\nglob = "*"\ncheck = "touch ran #"\n')
    model_server.add(call("write_file", {"path": "a.txt", "content": "new\n"}), "Done.")
    options = ("--trust",) if trust else ()
    done = one_shot(model_server, *FREE, *options, "go on", cwd=work)
    assert done.code == 0, done.stderr
    assert (work / "ran").exists() is trust


@pytest.mark.slow
@pytest.mark.spec("EXT-6", "SEC-1", "SEC-17")
@pytest.mark.parametrize(
    "command",
    [
        "sh lint.sh",
        *(pytest.param(c, marks=pytest.mark.slow) for c in ("./lint.sh", "make", "X=1 npx x")),
    ],
)
def test_what_may_run_an_unknown_directorys_code_does_not_run_without_a_sandbox(
    model_server: ModelServer, home: Path, work: Path, command: str
) -> None:
    configure(home, f'[[checks]]\nglob = "*"\ncheck = "{command} #"\n')
    (work / "lint.sh").write_text("#!/bin/sh\ntouch ran\n")
    (work / "lint.sh").chmod(0o755)
    (work / "Makefile").write_text("all:\n\ttouch ran\n")
    model_server.add(call("write_file", {"path": "a.txt", "content": "new\n"}), "Done.")
    done = one_shot(model_server, *FREE, "go on", cwd=work)
    assert done.code == 0 and "which is not trusted" in done.stderr
    assert not (work / "ran").exists()


@pytest.mark.slow
@pytest.mark.spec("EXT-6", "SEC-7")
def test_a_check_is_contained(model_server: ModelServer, home: Path, work: Path) -> None:
    needs("landlock")
    outside = home / "outside"
    configure(home, f"[[checks]]\nglob = '*'\ncheck = \"touch inside; touch '{outside}' #\"\n")
    model_server.add(call("write_file", {"path": "a.txt", "content": "new\n"}), "Done.")
    done = one_shot(
        model_server, "--permission-mode", "accept-edits", "--sandbox", "landlock", "go", cwd=work
    )
    assert done.code == 0, done.stderr
    assert (work / "inside").exists() and not outside.exists()


@pytest.mark.slow
@pytest.mark.spec("EXT-6", "TT-2")
def test_the_chat_says_what_was_found_and_undo_takes_the_formatting_back(
    model_server: ModelServer, home: Path, work: Path, chat: Chat, lint: Path
) -> None:
    file = home / "agentcli/config.toml"
    text = file.read_text()
    file.write_text(f'permission_mode = "accept-edits"\n{text}format = "sed -i s/tabs/spaces/"\n')
    before = (work / "app.py").read_text()
    model_server.add(calls(edit("app.py", "second", "tabs BAD")), "Done.")
    terminal = chat("--sandbox", "off")
    terminal.line("go on")
    terminal.wait_for("1 new problem in app.py")
    terminal.wait_for("Done.")
    assert (work / "app.py").read_text() == "first BAD\nspaces BAD\n"
    terminal.line("/undo")
    wait_until(lambda: (work / "app.py").read_text() == before, "it was not undone")
    terminal.wait_for("Taken back")
    terminal.key("ctrl-c")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("EXT-6")
def test_a_chat_offers_what_the_project_is_set_up_for_once(
    model_server: ModelServer, work: Path, chat: Chat, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ruff").write_text("#!/bin/sh\necho ran > ran\n")
    (programs / "ruff").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    (work / "ruff.toml").touch()
    for number in range(2):
        content = call("write_file", {"path": f"{number}.py", "content": "x = 1\n"})
        model_server.add(content, f"Done {number}.")
        terminal = chat("--permission-mode", "accept-edits", "--sandbox", "off", PATH=path)
        terminal.line("go on")
        terminal.wait_for(f"Done {number}.")
        assert ("agent config set checks auto" in terminal.text().replace("\n", " ")) is (
            number == 0
        )
        leave(terminal)
    assert not (work / "ran").exists()
