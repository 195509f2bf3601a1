"""The way into the program."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentcli.cli.entry import main
from tests.support.cli import agent_env


@pytest.mark.spec("CLI-6", "OPS-1")
def test_ctrl_c_while_the_program_is_still_loading_is_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_app() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "agentcli.cli.main", SimpleNamespace(run_app=run_app))  # type: ignore[arg-type] # a stand-in
    monkeypatch.setattr(sys, "argv", ["agent", "doctor"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130


@pytest.mark.spec("CLI-12", "CLI-11")
@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [
        (">&-", 0, ""),
        ("> /dev/full", 1, "error: standard output: No space left on device"),
        ("| true", 0, ""),
    ],
)
def test_a_version_that_nobody_can_read_is_no_traceback(
    redirection: str, code: int, told: str
) -> None:
    done = subprocess.run(
        [
            "bash",
            "-o",
            "pipefail",
            "-c",
            f'"$0" -m agentcli --version {redirection}',
            sys.executable,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.partition(" - ")[0].rstrip("\n")) == (code, told)


# what nothing has imported when our first line runs
PLANTED = ("typing", "asyncio", "sqlite3", "typer", "httpx", "rich", "yaml", "evil")


@pytest.mark.sampled
@pytest.mark.spec("SEC-2", "SEC-19")
@pytest.mark.parametrize(
    "python_path",
    [None, "", ":/x", "lib", "{link}", "{here}/lib:/x", "{library}:{here}/lib", "{library}::/x"],
    ids=lambda text: f"path={text}",
)
def test_nothing_is_imported_from_the_working_directory(
    tmp_path: Path, python_path: str | None
) -> None:
    work, link = tmp_path / "work", tmp_path / "link"
    info = work / "evil-1.0.dist-info"
    info.mkdir(parents=True)
    (work / "lib").mkdir()
    link.symlink_to(work)
    for name in PLANTED:
        for place in (work, work / "lib"):
            text = "print('from the repository')\nraise SystemExit(9)\n"
            (place / f"{name}.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agentcli.plugins]\nevil = evil\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('plugins = ["evil"]\n')
    env = agent_env(AGENTCLI_HOME=str(home), AGENTCLI_MODEL="offline", PYTHONSAFEPATH=None)
    start = ["-m", "agentcli"]
    if python_path:  # ":/x" is PYTHONPATH="$PYTHONPATH:/x" where it was empty
        env["PYTHONPATH"] = python_path.format(
            link=link, here=work, library=Path(os.__file__).parent
        )
        start = ["-P", "-c", "from agentcli.cli.entry import main; main()"]
    elif python_path is not None:
        env["PYTHONPATH"] = python_path
    done = subprocess.run(
        [sys.executable, *start, "run", "list files"],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "from the repository" not in done.stdout + done.stderr
    assert "there is no plugin 'evil'" in done.stderr


# what Python, a script of pip's and "-m" import before that
PLANTED_EARLY = (
    "encodings/__init__",
    "importlib/__init__",
    "agentcli/__init__",
    "agentcli/__main__",
    "sitecustomize",
    "usercustomize",
    "contextlib",
    "types",
    "re",
    "os",
    *PLANTED,
)
ROOT = Path(__file__).parents[2]
INSTALLED = Path(sys.executable).with_name("agent")
PYTHON = f"python3.{sys.version_info.minor}"


def plant(work: Path, names: tuple[str, ...]) -> Path:
    """Fill ``work`` with modules, and give the file that each of them would write to."""
    ran = work.parent / "ran"
    for name in names:
        file = work / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"open({str(ran)!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    return ran


def start(command: list[str | Path], work: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=work,
        env=agent_env(
            AGENTCLI_HOME=str(work.parent / "home"),
            AGENTCLI_MODEL="offline",
            PYTHONSAFEPATH=None,
            **env,
        ),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=25,
        check=False,
    )


@pytest.mark.sampled
@pytest.mark.spec("SEC-2", "SEC-19")
@pytest.mark.parametrize(
    "python_path",
    [":", None, ".", ":/x", "lib", "{here}", "{link}", "/x:{here}/lib"],
    ids=lambda text: f"path={text}",
)
@pytest.mark.parametrize("words", ["--version", "run 'list files'", "doctor", "batch tasks.jsonl"])
def test_the_installed_program_imports_nothing_from_the_working_directory(
    tmp_path: Path, words: str, python_path: str | None
) -> None:
    work, link = tmp_path / "work", tmp_path / "link"
    ran = plant(work, PLANTED_EARLY)
    plant(work / "lib", PLANTED_EARLY)
    (work / "tasks.jsonl").write_text('{"prompt": "list files"}\n')
    link.symlink_to(work)
    env = {}
    if python_path is not None:
        env["PYTHONPATH"] = python_path.format(here=work, link=link)
    for program in (INSTALLED, INSTALLED.with_name("agentcli")):
        done = start([program, *shlex.split(words)], work, **env)
        assert "Traceback" not in done.stderr
        assert done.returncode == 0 or words == "doctor", done.stderr
    assert not ran.exists() and not (work / "lib/ran").exists()


@pytest.mark.spec("SEC-2", "SEC-19")
@pytest.mark.parametrize("options", [["-m"], ["-u", "-m"]], ids=" ".join)
def test_the_module_as_a_program_is_not_that_of_the_working_directory(
    tmp_path: Path, options: list[str]
) -> None:
    ran = plant(tmp_path / "work", PLANTED_EARLY)
    done = start(
        [sys.executable, *options, "agentcli", "--version"], tmp_path / "work", PYTHONPATH="/x"
    )
    assert (done.returncode, done.stderr, ran.exists()) == (0, "", False)
    assert done.stdout.startswith("agentcli ")


@pytest.mark.spec("SEC-2", "SEC-19")
@pytest.mark.parametrize("name", ["PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"])
@pytest.mark.parametrize("place", ["", "{here}/"], ids=["relative", "absolute"])
def test_no_variable_names_another_environment_as_the_program_s_own(
    tmp_path: Path, name: str, place: str
) -> None:
    """Python reads these two in spite of ``-E``: they are its own where it starts itself."""
    work, ran = tmp_path / "work", tmp_path / "ran"
    packages = work / f"lib/{PYTHON}/site-packages"
    packages.mkdir(parents=True)
    (packages / "evil.pth").write_text(f"import os; open({str(ran)!r}, 'w')\n")
    (work / "bin").mkdir()
    (work / "bin/python").symlink_to(sys.executable)
    (work / "pyvenv.cfg").write_text(f"home = {work}/bin\n")
    done = start([INSTALLED, "--version"], work, **{name: place.format(here=work) + "bin/python"})
    assert done.stdout.startswith("agentcli "), done.stderr
    assert not ran.exists()


@pytest.mark.spec("SEC-19")
def test_the_program_is_found_by_links_and_by_names_without_a_directory(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "far").mkdir()
    (tmp_path / "bin/agent").symlink_to("../far/agent")
    (tmp_path / "far/agent").symlink_to(INSTALLED)
    for command in (["bin/agent"], [tmp_path / "bin/agent"], ["sh", "-c", "PATH=bin; agent -v"]):
        done = start([*command, "--version"], tmp_path)
        assert done.stdout.startswith("agentcli "), done.stderr
    done = start(["sh", "agent", "--version"], INSTALLED.parent)
    assert done.stdout.startswith("agentcli "), done.stderr


@pytest.mark.spec("SEC-19", "OPS-1")
def test_a_python_that_is_not_beside_the_program_comes_from_path_but_never_from_here(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    ran = plant(work, PLANTED_EARLY)
    (work / PYTHON).write_text(f"#!/bin/sh\necho ran > {ran}\n")
    (work / PYTHON).chmod(0o755)
    own = tmp_path / ".local/bin/agent"
    own.parent.mkdir(parents=True)
    own.write_bytes(INSTALLED.read_bytes())
    own.chmod(0o755)
    nothing = start([own, "--version"], work)
    info = tmp_path / f".local/lib/{PYTHON}/site-packages/agentcli-1.0.dist-info"
    info.mkdir(parents=True)
    here = start([own, "--version"], work, PATH=".")
    for refused in (nothing, here):
        assert refused.returncode == 1
        assert refused.stderr == (
            f"error: no Python for {own} was found - "
            "install agentcli again: pipx install agentcli\n"
        )
    (info.parent / "all.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    venv = work / ".venv/bin"
    venv.mkdir(parents=True)
    (venv.parent / "pyvenv.cfg").touch()
    (venv / PYTHON).symlink_to(work / PYTHON)
    (work / "bin").mkdir()
    (work / "bin" / PYTHON).symlink_to(work / PYTHON)
    path = f"{venv}/:{work}/bin:{sys.base_prefix}/bin:{os.defpath}"
    found = start([own, "--version"], work, PATH=path, HOME=str(tmp_path))
    assert found.stdout.startswith("agentcli "), found.stderr
    assert not ran.exists()


@pytest.mark.spec("CLI-1")
@pytest.mark.skipif(sys.platform != "linux", reason="where a process says its name")
def test_the_process_has_the_name_of_the_program(tmp_path: Path) -> None:
    opening = (
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}'
    )
    with subprocess.Popen(
        [INSTALLED, "acp"],
        env=agent_env(AGENTCLI_HOME=str(tmp_path), AGENTCLI_MODEL="offline"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as editor:
        assert editor.stdin is not None and editor.stdout is not None
        editor.stdin.write(opening + "\n")
        editor.stdin.flush()
        assert '"id":1' in editor.stdout.readline().replace(" ", "")
        assert Path(f"/proc/{editor.pid}/comm").read_text() == "agent\n"
        editor.stdin.close()


@pytest.mark.spec("SEC-2", "SEC-19")
def test_the_process_that_asks_the_keyring_imports_nothing_from_there_either(
    tmp_path: Path,
) -> None:
    work, ran = tmp_path / "work", tmp_path / "ran"
    (work / "lib").mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    for name in ("json", "keyring"):
        (work / f"lib/{name}.py").write_text(f"open({str(ran)!r}, 'w')\nraise SystemExit(9)\n")
    (tmp_path / "theirs/keyring.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'asked')!r}).touch()\n"
    )
    path = f"{work}/lib:{tmp_path}/theirs"
    env = agent_env(AGENTCLI_HOME=str(tmp_path / "home"), PYTHONPATH=path)
    script = "from agentcli.cli.entry import main; main()"
    subprocess.run(
        [sys.executable, "-P", "-c", script, "doctor"],
        cwd=work,
        env=env,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (tmp_path / "asked").exists() and not ran.exists()
