"""The way into the program."""

from __future__ import annotations

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
