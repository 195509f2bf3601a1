"""What a run owes before it begins: a signal is never lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

DROPPED = """
import os, signal
from agentcli.headless.result_due import Stopped, dropped_signal, early_signals

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(10))

early_signals(["run", "hi"])
assert dropped_signal() is None
Finalized()
print(dropped_signal().name)
"""


@pytest.mark.spec("CLI-5", "OPS-1")
def test_a_signal_whose_exception_python_drops_is_not_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("SIGTERM\n", "")
