"""The log: where it goes, and what never gets into it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.cli.logging_setup import MAX_LOG_BYTES, REDACTOR, start_logging
from agentcli.domain.errors import UsageError
from tests.support.cli import KEY, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import fails

log = logging.getLogger("agentcli.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.spec("SEC-9")
def test_no_secret_reaches_the_file_by_message_argument_or_traceback(tmp_path: Path) -> None:
    REDACTOR.add(["canary-value-1"])
    start_logging(log_file=tmp_path / "state" / "log")
    log.warning("key %s", "canary-value-1")
    try:
        raise ValueError("header Bearer canary-token-22")
    except ValueError:
        log.exception("failed with sk-canary-key-3333")
    text = (tmp_path / "state" / "log").read_text()
    assert "canary" not in text
    assert text.count("[redacted]") >= 3
    assert "Traceback" in text


@pytest.mark.spec("SEC-9")
def test_the_log_is_private_and_made_on_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "state" / "log"
    start_logging(log_file=path)
    assert not path.parent.exists()
    log.warning("something")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.spec("SEC-13")
def test_a_large_log_is_put_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        file.truncate(MAX_LOG_BYTES + 1)
    start_logging(log_file=path)
    log.warning("new")
    assert path.stat().st_size < 1000
    assert path.with_name("log.1").stat().st_size == MAX_LOG_BYTES + 1


@pytest.mark.spec("FAIL-2")
def test_a_log_that_cannot_be_written_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    start_logging(log_file=tmp_path / "file" / "log")
    log.warning("one")
    log.warning("two")
    assert capsys.readouterr().err == ""


def test_a_debug_file_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        start_logging(debug_file=str(tmp_path / "no" / "file"))


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.spec("SEC-9", "CLI-11")
@pytest.mark.parametrize("status", [401, 400, 500])
def test_a_failing_request_leaves_no_key_anywhere(tmp_path: Path, status: int) -> None:
    with ModelServer(default=fails(status), strict=False) as server:
        env = agent_env(server)
        done = run_agent(
            "run", "-o", "stream-json", "--timeout", "1", "--debug", "d.log", "hi", env=env,
            cwd=tmp_path,
        )  # fmt: skip
    files = [path for path in Path(env["AGENTCLI_HOME"]).rglob("*") if path.is_file()]
    text = done.stdout + done.stderr + (tmp_path / "d.log").read_text()
    text += "".join(path.read_bytes().decode("latin-1") for path in files)
    assert KEY not in text
    assert done.code != 0
