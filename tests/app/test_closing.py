"""The end of a session, whatever is being imported at that moment."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HALF_IMPORTED = """
import asyncio, sys, threading
from importlib.machinery import PathFinder
from types import SimpleNamespace
from agentcli.app import compose

NAME = "agentcli.process.run"
assert NAME not in sys.modules
begun, go_on = threading.Event(), threading.Event()

class Slow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != NAME:
            return None
        spec = PathFinder.find_spec(name, path)
        whole = spec.loader.exec_module
        def halfway(module):
            begun.set()
            assert go_on.wait(10)
            whole(module)
        spec.loader.exec_module = halfway
        return spec

sys.meta_path.insert(0, Slow)
importing = threading.Thread(target=__import__, args=(NAME,))
importing.start()
assert begun.wait(10) and NAME in sys.modules
threading.Timer(0.2, go_on.set).start()
(end,) = compose._closers(SimpleNamespace(no_session=False), None, "a-session")
asyncio.run(end())
importing.join()
"""


@pytest.mark.spec("CAN-10")
def test_processes_are_ended_although_what_ends_them_is_just_being_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HALF_IMPORTED], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
