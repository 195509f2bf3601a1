"""Every test gets an empty home of its own: nothing of the user who runs them is read or written.

Which tests run: all but those marked ``slow`` with the README's command, all of them in
``.ci/run``. ``sampled`` is for tests with many cases: the first case of each test always runs, the
others are ``slow``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.model_server import ModelServer

# nothing listens there: a model server on this machine must not answer in a test (CLI-10)
_LOCAL_SERVERS = ("OLLAMA_HOST", "LMSTUDIO_BASE_URL", "VLLM_BASE_URL", "LLAMACPP_BASE_URL")
_KEPT = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "VIRTUAL_ENV", "CI", "PYTHONPATH")

# how long an example takes on a busy machine is no fault
settings.register_profile("agentcli", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("agentcli")

# What ignores a signal (``nohup``, a job in the background) passes that on to what it starts, and
# tests send signals to what they start; a handler is not passed on.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a ``sampled`` test the first case always runs; the others are ``slow``."""
    sampled: set[str] = set()
    for item in items:
        if item.get_closest_marker("sampled") is None:
            continue
        test = item.nodeid.partition("[")[0]
        if test in sampled:
            item.add_marker(pytest.mark.slow)
        sampled.add(test)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What was collected stays to the end: no collection of garbage looks at it.

    Every worker reads every test module, and the first run of a checkout rewrites each of them. So
    each imports its share before the rest: of the others it then finds most rewritten on disk. What
    cannot be imported is reported where it is collected.
    """
    gc.disable()
    worker, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{end}", "") for end in ("", "_COUNT"))
    if worker and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        modules = sorted(Path(__file__).parent.rglob("test_*.py"))
        for path in modules[int(worker.removeprefix("gw")) :: int(workers)]:
            name = path.relative_to(session.config.rootpath).with_suffix("").as_posix()
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(name.replace("/", "."))
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New empty directories. pytest's own way lists all earlier ones each time."""
    base = tmp_path_factory.mktemp("tests")

    def make() -> Iterator[Path]:
        for number in count():
            path = base / str(number)
            path.mkdir(mode=0o700)
            yield path

    return make()


@pytest.fixture
def tmp_path(numbered: Iterator[Path]) -> Path:
    """An empty directory of the test's own."""
    return next(numbered)


@pytest.fixture(autouse=True)
def home(numbered: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary HOME and AGENTCLI_HOME, and no key, proxy or setting of the real one."""
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(("PYTEST_", "COV_")):
            monkeypatch.delenv(name)
    for name in _LOCAL_SERVERS:
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    path = next(numbered)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("AGENTCLI_HOME", str(path / "agentcli"))
    return path


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A strict model service on the loopback interface; the test fails if it had to refuse."""
    with ModelServer() as server:
        yield server
    assert not server.violations, server.violations
