"""What comes from outside without measure: bounded memory, an answer, an end (SEC-13).

Each row runs the program in a process of its own, which tells what it held at most. Files are in
``test_file_bounds.py``, pages of the web with ``web_fetch``. Servers of tools (MCP) do not exist
yet: their rows come with them.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentcli.store.files import SessionFiles
from tests.security.hostile_server import JSON, MB, STREAM, Body, bomb, endless, hostile
from tests.store.sessions import make
from tests.support.cli import AGENT, MODELS, agent_env
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.processes import wait_until
from tests.support.replies import call, say
from tests.support.work_processes import commands_below

pytestmark = [pytest.mark.spec("SEC-13"), pytest.mark.timeout(90), pytest.mark.slow]
MAX_RESIDENT_KB = 300 * 1024
ENDS_WITHIN_S = 30
DEEP = 100_000


@dataclass(frozen=True)
class Result:
    """A process that has ended: what it said and how much it held."""

    code: int
    stdout: str
    stderr: str


# a process forgets with ``exec`` what it held before, but not in ``ru_maxrss``: so it is started
# by a small one, never by the process of the tests
_LAUNCHER = """
import json, os, sys
told = os.open(sys.argv[1], os.O_WRONLY)
pid = os.fork()
if pid == 0:
    os.close(told)
    os.execv(sys.argv[2], sys.argv[2:])
os.write(told, b"%d\\n" % pid)
_, status, usage = os.wait4(pid, 0)
os.write(told, json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss]).encode())
"""


class Measured:
    """``agent ARGS`` as a process whose memory is known when it has ended."""

    def __init__(
        self,
        *args: str,
        env: dict[str, str],
        cwd: Path,
        input: Path | None = None,  # noqa: A002 - subprocess.run's name
        argv: Sequence[str] = AGENT,
    ) -> None:
        place = Path(tempfile.mkdtemp(dir=cwd.parent))
        self._out, self._err, pipe = place / "out", place / "err", place / "told"
        os.mkfifo(pipe)
        with (
            self._out.open("wb") as out,
            self._err.open("wb") as err,
            (input or Path("/dev/null")).open("rb") as given,
        ):
            self._launcher = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _LAUNCHER, str(pipe), *argv, *args],
                env=env, cwd=cwd, stdin=given, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        self._told = pipe.open("rb")
        self.pid = int(self._told.readline())

    def ended(self, within_s: float = ENDS_WITHIN_S, most_kb: int = MAX_RESIDENT_KB) -> Result:
        """Wait for the end, kept to the bound; the memory is within its own."""
        try:
            self._launcher.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._launcher.pid, signal.SIGKILL)
            self._launcher.wait()
            err = self._err.read_text("utf-8", "replace")[-2000:]
            raise AssertionError(f"still running after {within_s} s\n{err}") from None
        with self._told as told:
            code, resident = json.loads(told.read())
        out, err = (path.read_text("utf-8", "replace") for path in (self._out, self._err))
        assert resident // (1024 if sys.platform == "darwin" else 1) < most_kb, resident
        assert "Traceback" not in err, err[-2000:]
        assert len(err) < 50_000
        return Result(code, out, err)

    def said(self, text: str) -> bool:
        """Whether it has written ``text`` by now."""
        return text in self._out.read_text("utf-8", "replace")

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._launcher.poll() is None


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def env_of(url: str, **more: str) -> dict[str, str]:
    keys = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url}
    return agent_env(None, ANTHROPIC, **keys, AGENTCLI_MODEL=MODELS[ANTHROPIC], **more)


def only_error(done: Result) -> str:
    """The one line of error, with its advice."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and len(errors[0]) < 3000, done.stderr[-3000:]
    return errors[0]


# --- streams ------------------------------------------------------------------------------------

_START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message",'
    b'"role":"assistant","model":"claude","content":[],"usage":{"input_tokens":1,'
    b'"output_tokens":1}}}\n\n'
)
_TEXT = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
)
_DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"%s"}}\n\n'
)
STREAMS: dict[str, Body] = {
    "line": endless(_START + b"data: ", b"x" * 1000),
    "event": endless(_START, b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxx\n"),
    "text": endless(_START + _TEXT, _DELTA % (b"word " * 2000)),
    "nested event": endless(_START + b"data: ", b"[" * DEEP),
    "nested objects": endless(_START + b"data: ", b'{"a":' * DEEP),
    "web page": endless(b"<html>", b"<p>"),
    "document": endless(b"{", b'"a":1,'),
}


@pytest.mark.spec("SEC-13", "OPS-1")
@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_without_bounds_is_ended_in_bounded_memory(work: Path, stream: str) -> None:
    kinds = {"web page": b"content-type: text/html\r\n", "document": JSON}
    with hostile(STREAMS[stream], headers=kinds.get(stream, STREAM)) as server:
        run = Measured(
            "run", "--timeout", "8", "-o", "text", "go", env=env_of(server.url), cwd=work
        )
        done = run.ended()
    assert done.code in {1, 3, 75}
    only_error(done)


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, gzip"], ids=["once", "twice"])
@pytest.mark.parametrize(
    ("status", "kind"), [(200, "stream"), (200, "document"), (400, "document")]
)
@pytest.mark.parametrize("protocol", MODELS)
def test_a_compressed_reply_that_unpacks_to_gigabytes_is_given_up(
    work: Path, protocol: str, status: int, kind: str, coding: bytes
) -> None:
    head = _START + b"data: " if kind == "stream" else b'{"error":{"message":"'
    packed = bomb(head, b"x", 5000)
    if coding != b"gzip":
        packed = gzip.compress(packed)
    headers = (STREAM if kind == "stream" else JSON) + b"content-encoding: %s\r\n" % coding
    with hostile(lambda: [packed], status=status, headers=headers) as server:
        env = env_of(server.url) | {"AGENTCLI_MODEL": MODELS[protocol]}
        env |= {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        env |= {"GEMINI_API_KEY": "k", "GEMINI_BASE_URL": server.url}
        done = Measured("run", "--timeout", "8", "go", env=env, cwd=work).ended()
    assert done.code in {1, 3, 75}
    only_error(done)


@pytest.mark.parametrize("protocol", MODELS)
def test_a_small_reply_that_holds_millions_of_values_is_given_up(work: Path, protocol: str) -> None:
    packed = gzip.compress(b"[" + b"[]," * (5 * MB) + b"[]]")
    assert len(packed) < MB // 10
    with hostile(lambda: [packed], headers=JSON + b"content-encoding: gzip\r\n") as server:
        env = env_of(server.url) | {"AGENTCLI_MODEL": MODELS[protocol]}
        env |= {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        env |= {"GEMINI_API_KEY": "k", "GEMINI_BASE_URL": server.url}
        done = Measured("run", "--timeout", "8", "go", env=env, cwd=work).ended()
        listed = Measured("models", env=env, cwd=work).ended()
    assert done.code in {1, 3, 75}
    only_error(done)
    assert listed.code == 0


@pytest.mark.parametrize("kind", ["stream", "document"])
def test_names_and_wide_texts_of_one_reply_are_held_in_bounded_memory(
    work: Path, kind: str
) -> None:
    # one character beyond the basic plane makes four bytes of each of a text's
    pairs = ",".join(f'"\u0100{each:x}":"\u0100{each % 16:x}"' for each in range(960_000))
    reply = f'{{{pairs},"x":"\U0001f600"}}'.encode()
    body, headers = (reply, JSON) if kind == "document" else (b"data: %s\n\n" % reply, STREAM)
    with hostile(lambda: [body], headers=headers) as server:
        run = Measured("run", "--timeout", "6", "go", env=env_of(server.url), cwd=work)
        done = run.ended()
    assert done.code in {1, 3, 75}
    only_error(done)


def test_names_and_ids_of_events_are_held_in_bounded_memory(work: Path) -> None:
    wide = b"x" * (16 * MB - 100) + "\U0001f600".encode()
    text = b"y" * (15 * MB) + "\U0001f600".encode()
    body = (_START, _TEXT, *[_DELTA % (b"y" * 60_000)] * 250,
            b"id: ", wide, b"\nevent: ", wide, b"\n", _DELTA.partition(b"\n")[2] % text)  # fmt: skip
    with hostile(lambda: body) as server:
        done = Measured("run", "go", env=env_of(server.url), cwd=work).ended()
    assert done.code == 1
    only_error(done)


def test_arguments_that_hold_millions_of_values_go_back_to_the_model(
    model_server: ModelServer, work: Path
) -> None:
    many = '{"path": [' + "[]," * (4 * MB) + "[]]}"
    model_server.add(call("read_file", raw=many, piece=MB, id="one"), say("I see."))
    env = agent_env(model_server, ANTHROPIC)
    done = Measured("run", "go", env=env, cwd=work).ended()
    assert (done.code, done.stdout) == (0, "I see.\n"), done.stderr[-2000:]


@pytest.mark.parametrize("tool", ["apply_patch", "edit_file"])
def test_arguments_of_millions_of_lines_are_held_in_bounded_memory(
    model_server: ModelServer, work: Path, tool: str
) -> None:
    (work / "a.txt").write_text("here\n")
    lines = "+b\n" * 3_500_000
    arguments = {
        "apply_patch": {"patch": f"*** Begin Patch\n*** Add File: x\n{lines}*** End Patch"},
        "edit_file": {"path": "a.txt", "old_string": lines, "new_string": ""},
    }
    model_server.add(call(tool, arguments[tool], piece=MB), *[say("I see.")] * 2)
    env = agent_env(model_server, ANTHROPIC)
    args = "run", "--permission-mode", "accept-edits", "go"
    assert Measured(*args, env=env, cwd=work).ended().stdout == "I see.\n"


def test_a_name_of_megabytes_goes_back_to_the_model(model_server: ModelServer, work: Path) -> None:
    model_server.add(call("n" * (7 * MB), {}), say("I see."))
    done = Measured("run", "go", env=agent_env(model_server, ANTHROPIC), cwd=work).ended()
    assert (done.code, done.stdout) == (0, "I see.\n"), done.stderr[-2000:]


@pytest.mark.parametrize("status", [400, 500])
def test_the_body_of_an_error_is_not_read_to_an_end_that_never_comes(
    work: Path, status: int
) -> None:
    with hostile(endless(b'{"error":"', b"e" * 1000), status=status, headers=JSON) as server:
        run = Measured("run", "--timeout", "6", "go", env=env_of(server.url), cwd=work)
        done = run.ended()
        assert server.sent < 200 * MB
    assert done.code in {1, 3, 75}
    only_error(done)


def test_headers_without_end_are_given_up(work: Path) -> None:
    with hostile(endless(b"", b"x-more: and more\r\n"), headers=b"x-first: 1") as server:
        server.head = server.head[:-2]
        run = Measured("run", "--timeout", "4", "go", env=env_of(server.url), cwd=work)
        done = run.ended()
    assert done.code in {1, 3, 75}
    only_error(done)


@pytest.mark.spec("SEC-13", "CAN-1")
@pytest.mark.parametrize("stream", ["comment", "events"])
def test_ctrl_c_is_heard_while_a_stream_floods(work: Path, stream: str) -> None:
    body = endless(_START, b": nothing\n" if stream == "comment" else b'data: {"type":"ping"}\n\n')
    with hostile(body) as server:
        run = Measured("run", "go", env=env_of(server.url), cwd=work)
        assert server.asked.wait(20)
        while server.sent < 4 * MB:
            assert run.runs
        os.kill(run.pid, signal.SIGINT)
        done = run.ended(5)
    assert done.code == 130


def test_a_list_of_models_without_end_is_one_warning(work: Path) -> None:
    with hostile(endless(b'{"data":[', b'{"id":"m"},'), headers=JSON) as server:
        done = Measured("models", env=env_of(server.url), cwd=work).ended()
        assert server.sent < 200 * MB
    assert done.code == 0
    assert [line for line in done.stderr.splitlines() if line.startswith("warning: ")]


@pytest.mark.spec("SEC-13", "MCP-6")
def test_answers_that_are_read_at_once_are_held_in_bounded_memory(work: Path) -> None:
    rows = ",".join(f'{{"{each:05x}\U0001f600":1.5}}' for each in range(370_000))
    together = threading.Barrier(4)

    def answer() -> list[bytes]:
        with suppress(threading.BrokenBarrierError):
            together.wait(0.5)
        return [f'{{"data":[{rows}]}}'.encode()]

    with hostile(answer, headers=JSON) as server:
        env = env_of(server.url) | {"AGENTCLI_MODEL": "mine/x"}
        config = Path(env["AGENTCLI_HOME"]) / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f'[providers.mine]\nkind = "openai"\nbase_url = "{server.url}/v1"\n')
        done = Measured("run", "--timeout", "4", "go", env=env, cwd=work).ended()
    assert done.code in {1, 3, 75}


def test_names_of_models_are_no_longer_than_names(work: Path) -> None:
    rows = ",".join(f'{{"id":"{each}{"x" * 1_900}\U0001f600"}}' for each in range(1_000))
    pages = f'{{"data":[{rows}],"has_more":true,"last_id":"a"}}'.encode()
    with hostile(lambda: [pages], headers=JSON) as server:
        done = Measured("models", env=env_of(server.url), cwd=work).ended()
    assert done.code == 0 and "xxxx" not in done.stdout


def test_a_login_whose_server_never_ends_its_head_can_be_interrupted(work: Path) -> None:
    with hostile(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")) as server:
        server.head = b""
        env = env_of(server.url)
        Measured("mcp", "add", "far", "--url", f"{server.url}/mcp", env=env, cwd=work).ended()
        run = Measured("mcp", "login", "far", env=env, cwd=work)
        assert server.asked.wait(20)
        os.kill(run.pid, signal.SIGINT)
        assert run.ended(5).code == 130


# --- depth --------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["[", '{"a":'], ids=["arrays", "objects"])
def test_arguments_of_any_depth_go_back_to_the_model(
    model_server: ModelServer, work: Path, opening: str
) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    deep = '{"path": ' + opening * DEEP + "1" + closing * DEEP + "}"
    model_server.add(
        call("read_file", raw=deep, piece=50_000, id="one"),
        call("read_file", raw=opening * DEEP, piece=50_000, id="two"),
        "I see.",
    )
    done = Measured("run", "go", env=agent_env(model_server), cwd=work).ended()
    assert (done.code, done.stdout) == (0, "I see.\n"), done.stderr


def test_messages_on_stdin_of_any_depth_or_length_are_skipped(
    model_server: ModelServer, work: Path
) -> None:
    model_server.default = say("Fine.")
    good = json.dumps({"type": "user", "message": {"role": "user", "content": "hello"}})
    given = work.parent / "given"
    with given.open("w") as file:
        file.write("[" * DEEP + '\n{"type":"user","message":' + "[" * DEEP + "\n")
        for _ in range(100):
            file.write("x" * MB)
        file.write(f"\n{good}\n")
    args = ("run", "--input-format", "stream-json", "-o", "stream-json", "--verbose")
    env = agent_env(model_server)
    done = Measured(*args, env=env, cwd=work, input=given).ended(60)
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["result"] == "Fine."
    assert len(model_server.requests) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [("config.toml", "deep"), ("trust.json", "deep"), ("credentials.json", "deep"),
     ("AGENTS.md", "huge"), ("config.toml", "huge"), ("credentials.json", "huge"),
     ("history", "huge")],
)  # fmt: skip
def test_our_own_files_may_be_deep_or_huge(
    model_server: ModelServer, work: Path, home: Path, name: str, kind: str
) -> None:
    model_server.default = say("Fine.")
    (home / "agentcli").mkdir(mode=0o700)
    with (home / "agentcli" / name).open("w") as file:
        file.write("a = " + "[" * DEEP if name.endswith(".toml") else "[" * DEEP)
        if kind == "huge":
            file.truncate(400 * MB)
    (work / ".agents").mkdir()
    (work / ".agents" / "config.toml").write_text("[" * DEEP)
    done = Measured("run", "go", env=agent_env(model_server), cwd=work).ended()
    if done.code:
        assert done.code == 78 and name in only_error(done)
    else:
        assert done.stdout == "Fine.\n"


def test_a_schema_of_any_depth_is_one_line(model_server: ModelServer, work: Path) -> None:
    (work / "deep.json").write_text('{"items":' * DEEP + "{}" + "}" * DEEP)
    args = ("run", "--json-schema", "deep.json", "go")
    done = Measured(*args, env=agent_env(model_server), cwd=work).ended()
    assert done.code == 2
    only_error(done)


# --- sessions of others -------------------------------------------------------------------------

COMMANDS = (*(("sessions", each) for each in ("list", "show", "check", "fork")), ("doctor",))


@pytest.mark.parametrize("row", ["deep body", "huge body", "huge title", "huge blob", "huge note"])
def test_a_hostile_session_file_is_an_error_in_bounded_memory(
    work: Path, home: Path, row: str
) -> None:
    directory = home / "agentcli" / "sessions"
    session_id = make(SessionFiles(directory, home / "agentcli" / "catalogue.db"), "hello")
    huge = "CAST(zeroblob(150000000) AS TEXT)"
    changes = {
        "deep body": ("UPDATE message SET body = ? WHERE seq = 1", ("[" * DEEP,)),
        "huge body": (f"UPDATE message SET body = {huge} WHERE seq = 1", ()),
        "huge title": (f"UPDATE session SET title = {huge}", ()),
        "huge blob": ("UPDATE blob SET data = zeroblob(150000000), size = 150000000", ()),
        "huge note": (
            f"INSERT INTO note (after_seq, created_at, kind, text) VALUES (1, 1, 'partial', {huge})",
            (),
        ),
    }
    db = sqlite3.connect(directory / f"{session_id}.db")
    db.execute(*changes[row])
    db.commit()
    db.close()
    env = agent_env(None, AGENTCLI_MODEL="offline")
    for command in COMMANDS:
        args = command if command[-1] in {"list", "doctor"} else (*command, session_id)
        done = Measured(*args, env=env, cwd=work).ended()
        if done.code and "error: " in done.stderr:
            assert done.code == 74 and "repair" in only_error(done), (args, done)
    done = Measured("run", "--session", session_id, "go", env=env, cwd=work).ended()
    assert done.code == 74 or row == "huge blob", done


def test_a_session_file_of_gigabytes_is_repaired_in_bounded_memory(work: Path, home: Path) -> None:
    directory = home / "agentcli" / "sessions"
    session_id = make(SessionFiles(directory, home / "agentcli" / "catalogue.db"), "hello")
    with (directory / f"{session_id}.db").open("r+b") as file:
        file.truncate(400 * MB)
        file.write(b"not SQLite's")
    env = agent_env(None, AGENTCLI_MODEL="offline")
    done = Measured("sessions", "repair", session_id, env=env, cwd=work).ended()
    assert done.code == 0 and "repaired: 5 message(s)" in done.stderr


_MANY = {
    "message": "INSERT INTO message (seq, created_at, role, body)"
    " VALUES ((SELECT max(seq) + 1 FROM message), 1, 'user', ?)",
    "note": "INSERT INTO note (after_seq, created_at, kind, text) VALUES (1, 1, 'partial', ?)",
    "event": "INSERT INTO event (created_at, type, data) VALUES (1, 'text', ?)",
}


@pytest.mark.parametrize("table", _MANY)
def test_many_long_rows_of_a_session_file_are_not_held_together(
    work: Path, home: Path, table: str
) -> None:
    """Each row is within its own bound; what is read of them one by one is."""
    directory = home / "agentcli" / "sessions"
    session_id = make(SessionFiles(directory, home / "agentcli" / "catalogue.db"), "hello")
    text = "some words of a line\n" * (40 * MB // 21)
    body = {"note": text, "event": json.dumps({"text": text})}.get(
        table, json.dumps({"v": 1, "parts": [{"type": "text", "text": text}]})
    )
    with contextlib.closing(sqlite3.connect(directory / f"{session_id}.db")) as db, db:
        for _ in range(8):
            db.execute(_MANY[table], (body,))
    env = agent_env(None, AGENTCLI_MODEL="offline")
    looks = {"check": (session_id, 0), "search": ("nowhere", 1), "events": (session_id, 0)}
    for command, (arg, code) in looks.items():
        done = Measured("sessions", command, arg, env=env, cwd=work).ended()
        assert done.code == code, (command, done.stderr)
    whole = (
        ("sessions", "fork", session_id), ("run", "--session", session_id, "go"),
        ("replay", session_id),
    )  # fmt: skip
    for args in whole:
        done = Measured(*args, env=env, cwd=work).ended()
        if table == "message":
            assert done.code == 74 and "holds more than 128 MB" in only_error(done)
        else:
            assert done.code == 0, done.stderr


def test_a_session_file_of_very_many_messages_is_not_gone_on_with(work: Path, home: Path) -> None:
    directory = home / "agentcli" / "sessions"
    session_id = make(SessionFiles(directory, home / "agentcli" / "catalogue.db"), "hello")
    body = json.dumps({"v": 1, "parts": [{"type": "text", "text": "hi"}]})
    with contextlib.closing(sqlite3.connect(directory / f"{session_id}.db")) as db, db:
        db.execute(
            "WITH RECURSIVE number (n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM number WHERE n <"
            " 330000) INSERT INTO message (seq, created_at, role, body)"
            " SELECT n, 1, 'user', ? FROM number",
            (body,),
        )
    env = agent_env(None, AGENTCLI_MODEL="offline")
    for args in (("sessions", "fork", session_id), ("run", "--session", session_id, "go")):
        done = Measured(*args, env=env, cwd=work).ended()
        assert done.code == 74 and "or 320,000" in only_error(done)
    done = Measured("stats", env=env, cwd=work).ended()
    assert done.code == 0 and "1 session cannot be read" in done.stderr, done
    exported = Measured("sessions", "export", session_id, env=env, cwd=work).ended()
    assert exported.code == 74 and "read it: agent sessions show" in only_error(exported)


_LONG = 4 * MB
MAX_EXPORT_KB = 110 * 1024  # what the program needs for itself, and a few times a long row


def _long_session(directory: Path, session_id: str) -> None:
    """Texts, a message of calls with their results, what was shown beside them, and notes."""
    text = ("x" * 99 + "\n") * (_LONG // 100)
    said = json.dumps({"v": 1, "parts": [{"type": "text", "text": text}]})
    names = [f"c{number}" for number in range(8)]
    calls = [{"type": "tool_call", "id": name, "name": "bash", "arguments": {}} for name in names]
    with contextlib.closing(sqlite3.connect(directory / f"{session_id}.db")) as db, db:
        for _ in names:
            db.execute(_MANY["message"], (said,))
            db.execute(_MANY["note"], (text,))
        db.execute(
            "INSERT INTO message (seq, created_at, role, body) VALUES (50, 1, 'assistant', ?)",
            (json.dumps({"v": 1, "parts": calls}),),
        )
        for seq, name in enumerate(names, 51):
            body = json.dumps(json.loads(said) | {"call_id": name, "name": "bash", "status": "ok"})
            db.execute(
                "INSERT INTO message VALUES (?, 'tool', ?, 1, NULL, NULL, NULL)", (seq, body)
            )
            db.execute(
                "INSERT INTO tool_run (call_id, name, status, message_seq, result_seq, display, line)"
                " VALUES (?, 'bash', 'finished', 50, ?, ?, ?)",
                (name, seq, text[::-1], text),
            )


@pytest.mark.spec("SEC-13", "CLI-8")
@pytest.mark.parametrize("export_format", ["md", "html", "json", "atif"])
def test_a_session_is_exported_row_after_row(work: Path, home: Path, export_format: str) -> None:
    directory = home / "agentcli" / "sessions"
    session_id = make(SessionFiles(directory, home / "agentcli" / "catalogue.db"), "hello")
    _long_session(directory, session_id)
    env = agent_env(None, AGENTCLI_MODEL="offline")
    command = ("sessions", "export", session_id, "--format", export_format)
    done = Measured(*command, env=env, cwd=work).ended(within_s=60, most_kb=MAX_EXPORT_KB)
    assert done.code == 0, done.stderr
    assert len(done.stdout) > 16 * _LONG  # the texts and the results, whole
    again = Measured(*command, "-o", "file", env=env, cwd=work)
    assert again.ended(within_s=60, most_kb=MAX_EXPORT_KB).code == 0
    assert (work / "file").read_text() == done.stdout


_WIDE = {
    "rewind": "INSERT INTO rewind (created_at, newest_seq, messages) VALUES (1, 99, ?)",
    "event": "INSERT INTO event (created_at, type, data) VALUES (1, 'text', ?)",
    "value": "INSERT INTO kv (key, value) VALUES ('todos', ?)",
    "message": "UPDATE message SET checksum = NULL, body = json_set(body, '$.more', json(?))"
    " WHERE seq = 1",
}


@pytest.mark.parametrize("row", _WIDE)
def test_a_row_of_a_session_file_that_holds_millions_of_values_is_damage(
    work: Path, home: Path, row: str
) -> None:
    directory = home / "agentcli" / "sessions"
    session_id = make(SessionFiles(directory, home / "agentcli" / "catalogue.db"), "hello")
    with contextlib.closing(sqlite3.connect(directory / f"{session_id}.db")) as db, db:
        db.execute(_WIDE[row], ("[" + ",".join(["[1,1,1]"] * 4_000_000) + "]",))
    env = agent_env(None, AGENTCLI_MODEL="offline")
    fork = ("sessions", "fork", session_id, *(("--at", "1") if row == "rewind" else ()))
    run = ("run", "--session", session_id, "go")
    for args in (("sessions", "check", session_id), ("sessions", "events", session_id), fork, run):
        done = Measured(*args, env=env, cwd=work).ended()
        assert done.code in {0, 1, 74}, (args, done.stderr)
        assert "please report" not in done.stderr, (args, done.stderr)
    checked = Measured("sessions", "check", session_id, env=env, cwd=work).ended()
    assert checked.code and "1,000,000 values" in checked.stdout + checked.stderr, checked
    repaired = Measured("sessions", "repair", session_id, env=env, cwd=work).ended()
    assert repaired.code == 0, repaired.stderr
    assert Measured("sessions", "check", session_id, env=env, cwd=work).ended().code == 0


def test_a_journal_of_a_batch_in_which_a_task_has_put_millions_of_values_is_damage(
    model_server: ModelServer, work: Path
) -> None:
    model_server.default = say("Fine.")
    (work / "tasks.jsonl").write_text('{"prompt": "go"}\n')
    args = ("batch", "tasks.jsonl", "-o", "out")
    env = agent_env(model_server)
    assert Measured(*args, env=env, cwd=work).ended().code == 0
    (journal,) = (work / "out").glob("*journal*")
    with journal.open("a") as file:
        file.write('{"x": [' + ",".join(["[1,1,1]"] * 6_000_000) + "]}\n")
    done = Measured(*args, env=env, cwd=work).ended()
    assert done.code and "damaged" in only_error(done), done


# --- what a person's own files run --------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "head -c 1000000000 /dev/zero",
        "head -c 1000000000 /dev/zero 1>&2",
        """yes '{"a":' | head -n 100000 | tr -d '\\n'""",
        "yes | head -n 100000 | tr -d '\\n' | tr y '['",
    ],
    ids=["stdout", "stderr", "objects", "arrays"],
)
def test_a_hook_that_prints_without_bounds_is_bounded(
    model_server: ModelServer, work: Path, home: Path, command: str
) -> None:
    model_server.default = say("Fine.")
    (home / "agentcli").mkdir(mode=0o700)
    (home / "agentcli" / "config.toml").write_text(
        f"[[hooks.UserPromptSubmit]]\ncommand = {json.dumps(command)}\n"
    )
    done = Measured("run", "go", env=agent_env(model_server), cwd=work).ended()
    assert (done.code, done.stdout) == (0, "Fine.\n"), done.stderr[:2000]


def test_a_catastrophic_matcher_of_a_hook_meets_no_name_that_a_model_makes_up(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    (home / "agentcli").mkdir(mode=0o700)
    hooks = "".join(
        f"[[hooks.{event}]]\nmatcher = '(\\w+\\w+)+!'\ncommand = 'true'\n"
        for event in ("PreToolUse", "PostToolUse", "PermissionRequest", "Notification")
    )
    (home / "agentcli" / "config.toml").write_text(hooks)
    model_server.add(
        call("a" * 60, {"path": "x"}),
        call("list_directory", {"path": "."}),
        call("bash", {"command": "touch made"}),
        "I see.",
    )
    done = Measured("run", "go", env=agent_env(model_server), cwd=work).ended()
    assert "I see." in done.stdout, done.stderr[:2000]


@pytest.mark.spec("SEC-13", "CAN-1", "TOOL-10")
@pytest.mark.parametrize("kind", ["time", "depth"])
def test_a_catastrophic_pattern_can_be_cancelled_and_a_deep_one_is_refused(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    """Its own end after a while is proved with the search (``tests/tools/test_search.py``)."""
    (work / "file").write_text("a" * 5000 + "!\n")
    pattern = "(a|aa)+$" if kind == "time" else "(" * 5000
    model_server.add(call("grep_files", {"pattern": pattern, "path": "."}), "I see.")
    env = agent_env(model_server, PATH=str(work))  # without rg it is Python's engine
    run = Measured("run", "-o", "stream-json", "go", env=env, cwd=work)
    if kind == "depth":
        done = run.ended()
        assert done.code == 0 and "I see." in done.stdout
        return
    wait_until(lambda: run.said('"grep_files"'), "the search has begun")
    os.kill(run.pid, signal.SIGINT)
    assert run.ended(5).code == 130
    assert commands_below(work) == {}


def _pdf(stream: bytes) -> bytes:
    """One page that draws what ``stream`` unfolds to; readers find the objects by themselves."""
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /Font"
            b" << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
        ),
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream),
    )
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % each for each in enumerate(objects, 1))
    return b"%PDF-1.4\n" + body + b"trailer << /Size 5 /Root 1 0 R >>\nstartxref\n0\n%%EOF"


@pytest.mark.spec("SEC-13", "TOOL-16")
@pytest.mark.timeout(120)
def test_a_small_pdf_that_unfolds_to_a_huge_page_is_given_up(
    model_server: ModelServer, work: Path
) -> None:
    stream = zlib.compress(b"BT /F1 12 Tf (%s) Tj ET" % (b"a" * 30 * MB), 9)
    (work / "f.pdf").write_bytes(_pdf(stream))
    model_server.add(call("read_file", {"path": "f.pdf"}), "I see.")
    done = Measured("run", "go", env=agent_env(model_server), cwd=work).ended(100)
    assert done.stdout == "I see.\n", done.stderr


@pytest.mark.spec("SEC-13", "TOOL-7")
def test_a_notebook_of_millions_of_cells_is_text(model_server: ModelServer, work: Path) -> None:
    (work / "f.ipynb").write_bytes(b'{"nbformat":4,"cells":[{}' + b",{}" * 2_700_000 + b"]}")
    edit = {"path": "f.ipynb", "new_source": "x", "mode": "insert"}
    model_server.add(call("read_file", {"path": "f.ipynb"}), call("edit_notebook", edit), "I see.")
    args = ("run", "--permission-mode", "accept-edits", "go")
    done = Measured(*args, env=agent_env(model_server), cwd=work).ended()
    assert done.stdout == "I see.\n", done.stderr


@pytest.mark.spec("SEC-13")
def test_an_answer_of_any_depth_is_given_again(model_server: ModelServer, work: Path) -> None:
    model_server.default = say("[" * DEEP, piece=20_000)
    args = ("run", "--session-id", "00000000-0000-4000-8000-000000000000", "go")
    answers = [Measured(*args, env=agent_env(model_server), cwd=work).ended() for _ in range(2)]
    assert [done.code for done in answers] == [0, 0], answers[1].stderr
    assert answers[0].stdout == answers[1].stdout


def test_a_rule_with_a_catastrophic_pattern_decides_at_once(
    model_server: ModelServer, work: Path
) -> None:
    paths = ("a/" * 1500 + "b", "a" * 4000)
    model_server.add(
        *(call("write_file", {"path": path, "content": "x"}) for path in paths), "I see."
    )
    rules = [f"write_file({'**/' * 40}x)", f"write_file({'*a' * 40}x)", f"bash({'*a' * 40}x)"]
    args = [part for rule in rules for part in ("--allow-tool", rule)]
    done = Measured("run", *args, "go", env=agent_env(model_server), cwd=work).ended()
    assert done.code == 4, done.stderr


_COMMANDS_PROGRAM = """
import sys
from pathlib import Path
from agentcli.extensions.commands import find_commands
from agentcli.extensions.places import ExtensionPlace
print(len(find_commands([ExtensionPlace(Path(sys.argv[1]), "yours")])[0]))
"""


def test_very_many_commands_are_not_all_read(work: Path) -> None:
    directory = work / "commands"
    directory.mkdir()
    (directory / "c0.md").write_text("do it")
    for number in range(1, 20_000):
        (directory / f"c{number}.md").symlink_to("c0.md")
    argv = [sys.executable, "-c", _COMMANDS_PROGRAM, str(work)]
    done = Measured(env=agent_env(), cwd=work, argv=argv).ended()
    assert done.code == 0 and 0 < int(done.stdout) <= 1_000
