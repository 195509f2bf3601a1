"""The way into the program."""

from __future__ import annotations

import os
import subprocess
import sys
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
