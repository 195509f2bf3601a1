"""The way into the program."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from agentcli.cli.entry import main


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
