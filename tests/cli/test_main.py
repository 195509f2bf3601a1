"""The command line as a whole: errors in a line, help for everything, odd surroundings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli import __version__
from agentcli.cli.completions import all_commands, help_text
from agentcli.headless.errors import MEANINGS
from tests.support.cli import AGENT, Finished, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import say

pytestmark = pytest.mark.sampled

OFFLINE = {"AGENTCLI_MODEL": "offline/assistant"}


def one_line_error(done: Finished, *told: str, code: int = 2) -> None:
    assert done.code == code, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for text in told:
        assert text in lines[0]


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize("args", [("--version",), ("-v",), ("run", "--version"), ("-v", "hello")])
def test_version_names_this_program(args: tuple[str, ...]) -> None:
    done = run_agent(*args)
    assert (done.code, done.stdout) == (0, f"agentcli {__version__}\n")


@pytest.mark.spec("CLI-1")
def test_both_entry_points_start_the_same_program() -> None:
    agent = Path(sys.executable).with_name("agent")
    assert agent.read_bytes() == agent.with_name("agentcli").read_bytes()


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--modle", "x"), "did you mean --model?"),
        (("run", "--maxturns", "3"), "did you mean --max-turns"),
        (("run", "--mode", "auto", "x"), "did you mean --permission-mode or --model?"),
        (("--output-format", "json", "hi"), "agent run or agent -p"),
        (("sesions", "list"), "did you mean sessions"),
        (("sessions", "lst"), "did you mean list"),
        (("pipeline",), "agent pipeline needs a command - one of: show, run"),
        (("config", "get"), "KEY is missing"),
        (("config", "get", "modle"), "did you mean model"),
        (("run", "-m"), "-m needs a value - see: agent run --help"),
        (("run", "--effort", "huge", "x"), "one of: none, minimal"),
        (("run", "-o", "xml", "x"), "one of: text, json, stream-json"),
        (("run", "--sandbox", "jail", "x"), "one of: auto, bwrap, landlock, off"),
        (("run", "--max-turns", "few", "x"), "a whole number"),
        (("run", "--timeout", "inf", "x"), "a number"),
        (("run", "--plan", "--yolo", "x"), "exclude each other"),
        (("run", "--continue", "--new", "x"), "exclude each other"),
        (("run", "--fork", "x"), "needs a session"),
        (("run", "--resume"), "agent sessions list"),
        (("run", "-C", "/no/such/dir", "x"), "no such directory"),
        (("run", "--add-dir", "/no/such/dir", "x"), "no such directory"),
        (("run", "--include-partial-messages", "x"), "stream-json"),
        (("-m", "x", "sessions"), "cannot stand before sessions"),
        (("completions", "tcsh"), "bash, zsh, fish"),
        (("run", "--debug", "/no/such/dir/file", "x"), "cannot write"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_command_line_is_one_line_with_advice_and_exit_code_2(
    args: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    one_line_error(run_agent(*args, env=agent_env(**OFFLINE), cwd=tmp_path), told)


@pytest.mark.spec("CLI-3", "MCP-1")
def test_a_file_of_servers_that_is_not_there_is_said_and_never_ignored() -> None:
    one_line_error(run_agent("run", "--mcp-config", "/nowhere.json", "hi"), "--mcp-config")


@pytest.mark.spec("CLI-3", "CLI-4", "CLI-11")
def test_every_option_and_command_has_help() -> None:
    for command in all_commands():
        assert command.help, command.words
        for option in command.options:
            assert option.help, (command.words, option.names)
    pages = (Path(__file__).parents[2] / "agentcli/docs/commands.md").read_text()
    cut = [line for line in pages.splitlines() if line.startswith("  ") and line.endswith("...")]
    assert not cut  # lists of commands say a whole sentence of each


@pytest.mark.spec("CLI-3")
def test_the_shared_options_are_all_there() -> None:
    root = {name for option in all_commands()[0].options for name in option.names}
    wanted = (
        "-m --model -c --continue -r --resume --session --fork --new -C --cd --add-dir"
        " --permission-mode --plan -y --yolo --dangerously-skip-permissions --allow-tool"
        " --deny-tool --tools --effort --system-prompt --append-system-prompt --mcp-config"
        " --no-session -v --version --verbose --debug"
    )
    assert set(wanted.split()) <= root


@pytest.mark.spec("CLI-4")
def test_the_options_of_one_shot_are_all_there() -> None:
    run = next(command for command in all_commands() if command.words == ("run",))
    names = {name for option in run.options for name in option.names}
    wanted = (
        "--output-format -o --input-format --include-partial-messages --json-schema"
        " --output-schema --max-turns --max-budget-usd --timeout --quiet"
    )
    assert set(wanted.split()) <= names


@pytest.mark.spec("CLI-6")
def test_help_lists_every_exit_code() -> None:
    for words in ((), ("run",)):
        text = help_text(words)
        for code, meaning in MEANINGS.items():
            assert f"{code.value}  {meaning}" in text


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize("args", [("--help",), ("-h",)], ids=" ".join)
def test_help_shows_options_and_commands(args: tuple[str, ...]) -> None:
    done = run_agent(*args)
    assert done.code == 0
    assert done.stdout.startswith("Usage: agent ")
    assert "--model" in done.stdout
    assert "sessions" in done.stdout


@pytest.mark.spec("CLI-2")
def test_no_prompt_at_all_is_a_usage_error() -> None:
    one_line_error(run_agent(), "no prompt")
    one_line_error(run_agent("run"), "no prompt")
    one_line_error(run_agent("run", input="  \n"), "no prompt")


# --- odd surroundings (CLI-12) -------------------------------------------------------------


@pytest.mark.spec("CLI-12")
def test_a_reader_that_leaves_ends_the_program_quietly() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(AGENT)} models | head -1; echo ${{PIPESTATUS[0]}}"],
        env=agent_env(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_reason_to_fail(closed: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(AGENT)} run 'hello there' {closed}"],
        env=agent_env(**OFFLINE),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    checked = run_agent("sessions", "check")
    assert checked.code == 0, checked


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1"])
def test_any_locale_will_do(locale: str, tmp_path: Path) -> None:
    env = agent_env(**OFFLINE, LC_ALL=locale, LANG=locale)
    done = run_agent("run", "grüße 日本", env=env, cwd=tmp_path)
    assert done.code == 0, done.stderr
    as_json = run_agent("run", "-o", "json", "grüße 日本", env=env, cwd=tmp_path)
    assert as_json.result["subtype"] == "success"


@pytest.mark.spec("CLI-12")
def test_arguments_that_are_no_utf8_are_no_reason_to_fail(tmp_path: Path) -> None:
    done = subprocess.run(
        [*AGENT, "run", b"caf\xe9"],
        env=agent_env(**OFFLINE),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.spec("CLI-12")
def test_a_narrow_terminal_still_shows_help() -> None:
    done = run_agent("--help", env=agent_env(COLUMNS="20"))
    assert done.code == 0
    assert "--model" in done.stdout


@pytest.mark.spec("CLI-12")
def test_a_deleted_working_directory_is_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {' '.join(AGENT)} run hi"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**agent_env(**OFFLINE), "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: the working directory no longer exists")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.spec("CLI-12")
def test_without_home_it_works_or_says_so_in_one_line(tmp_path: Path) -> None:
    env = agent_env(**OFFLINE, HOME=None, AGENTCLI_HOME=None, XDG_DATA_HOME=str(tmp_path))
    env |= {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    done = run_agent("run", "hi", env=env, cwd=tmp_path)
    assert done.code == 0, done.stderr


@pytest.mark.spec("CLI-12")
def test_a_home_that_cannot_be_written_is_one_line_and_not_needed_without_a_session(
    tmp_path: Path,
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    env = agent_env(**OFFLINE, AGENTCLI_HOME=str(blocker / "home"))
    done = run_agent("run", "hi", env=env, cwd=tmp_path)
    assert done.code == 74
    assert done.stderr.startswith("error: cannot write session file")
    assert done.stderr.endswith("could not be saved anywhere:\nhi\n")
    done = run_agent("run", "--no-session", "hi", env=env, cwd=tmp_path)
    assert done.code == 0, done.stderr


@pytest.mark.spec("CLI-11")
def test_a_traceback_goes_to_the_debug_file_only(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("model = \n")
    env = agent_env(AGENTCLI_HOME=str(tmp_path / "home"))
    debug = tmp_path / "debug.log"
    done = run_agent("run", "--debug", str(debug), "hi", env=env)
    one_line_error(done, "config.toml:1:9", code=78)
    assert "Traceback" in debug.read_text()
    assert debug.stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("CLI-3")
def test_the_debug_file_tells_how_a_run_went_and_nothing_of_what_was_said(tmp_path: Path) -> None:
    debug = tmp_path / "debug.log"
    done = run_agent("run", "--debug", str(debug), "a private question", env=agent_env())
    assert done.code == 0, done.stderr
    told = debug.read_text()
    for part in ("agentcli ", "turn_start", "assistant_recorded", "done"):
        assert part in told
    assert "private" not in told


@pytest.mark.spec("CLI-5", "CLI-6", "CAN-13")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_while_the_run_is_being_imported_has_its_result_too(
    number: signal.Signals, code: int
) -> None:
    program = (
        "import builtins, os, sys\n"
        "real = builtins.__import__\n"
        "def signalled(name, *rest, **named):\n"
        "    if name == 'agentcli.headless.one_shot':\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "    return real(name, *rest, **named)\n"
        "builtins.__import__ = signalled\n"
        "from agentcli.cli.entry import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "run", "-o", "stream-json", "hi"],
        env=agent_env(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == code, done
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["type"], result["subtype"]) == ("result", "cancelled")
    assert done.stderr == "error: cancelled\n"


@pytest.mark.spec("CLI-5", "CLI-6", "CLI-11")
@pytest.mark.parametrize(
    ("args", "has_result"),
    [
        (("-o", "json"), True),
        (("-ojson",), True),
        (("--output-format=stream-json",), True),
        (("--output-format", "json"), True),
        (("-o", "text"), False),
        (("-o", "text", "--", "-o", "json"), False),
        (("-o",), False),
    ],
)
def test_a_wrong_flag_has_a_result_where_one_was_asked_for(
    args: tuple[str, ...], has_result: bool
) -> None:
    done = run_agent("run", "--bogus", *args, env=agent_env())
    assert done.code == 2
    assert len(done.stderr.splitlines()) == 1
    if has_result:
        (line,) = done.lines
        assert line["terminal_reason"] == "usage_error" and "--bogus" in line["result"]
    else:
        assert done.stdout == ""


@pytest.mark.spec("CLI-13")
def test_the_name_of_a_command_is_no_prompt(model_server: ModelServer) -> None:
    env = agent_env(model_server)
    for words in (("pipeline", "it"), ("-m", "a/b", "pipeline", "x")):
        done = run_agent(*words, env=env)
        assert (done.code, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
    assert not model_server.requests
    model_server.default = say("Fine.")
    for words in (("run", "pipeline"), ("-p", "pipeline"), ("run", "--", "pipeline", "this")):
        assert run_agent(*words, env=env).stdout == "Fine.\n"


def test_leaving_runs_exit_handlers_and_takes_nothing_apart() -> None:
    code = """
import atexit, logging, sys
from agentcli.cli.main import run_app
class Torn:
    def __del__(self): print("torn down", flush=True)
torn = Torn()
atexit.register(print, "handler")
buffered = logging.handlers.MemoryHandler(9, target=logging.StreamHandler(sys.stdout))
logging.basicConfig(handlers=[buffered])
logging.warning("kept")
sys.argv = ["agent", "--version", "--verbose"]
run_app()
"""
    done = run_python("import logging.handlers\n" + code)

    assert "handler" in done.stdout
    assert "kept" in done.stdout
    assert "torn down" not in done.stdout


def test_a_thread_still_at_work_is_waited_for() -> None:
    done = run_python("""
import sys, threading
from agentcli.cli.main import run_app
may_end = threading.Event()
threading.Thread(target=lambda: (may_end.wait(), print("worked", flush=True))).start()
threading.Timer(0.01, may_end.set).start()
sys.argv = ["agent", "--version", "--verbose"]
run_app()
""")

    assert "worked" in done.stdout


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
