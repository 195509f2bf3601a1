"""Every test gets an empty home of its own: nothing of the person who runs them is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_server import ModelServer

# nothing listens there: a model server on this machine must not answer in a test (CLI-10)
_LOCAL_SERVERS = ("OLLAMA_HOST", "LMSTUDIO_BASE_URL", "VLLM_BASE_URL", "LLAMACPP_BASE_URL")
_KEPT = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "VIRTUAL_ENV", "CI", "PYTHONPATH")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary HOME and AGENTCLI_HOME, and no key, proxy or setting of the real one."""
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(("PYTEST_", "COV_")):
            monkeypatch.delenv(name)
    for name in _LOCAL_SERVERS:
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("AGENTCLI_HOME", str(path / "agentcli"))
    return path


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A strict model service on the loopback interface; the test fails if it had to refuse."""
    with ModelServer() as server:
        yield server
    assert not server.violations, server.violations
