"""Sessions of other programs, and our own JSON, become sessions that can be continued."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.accounts import call_costs
from agentcli.domain.errors import UsageError
from agentcli.domain.history import CRASHED_TEXT
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.domain.session import LoadedSession, SessionStatus
from agentcli.engine.context.outgoing import check_request, prepare
from agentcli.store.catalogue.statistics import statistics_of
from agentcli.store.files import SessionFiles, ledger_of, read_session
from agentcli.store.imports.bring import ImportedSession, Importer
from agentcli.store.imports.draft import lawful
from agentcli.store.repair.check import check
from agentcli.store.sqlite import SqliteStore
from agentcli.ui.export import export_json, json_pieces
from tests.store.imports.made import (
    CLAUDE_ID,
    CODEX_ID,
    PLACE,
    claude_session,
    codex,
    codex_session,
    jsonl,
    opencode_session,
    reply,
    result,
    said,
    spoken,
    text,
    use,
)
from tests.store.sessions import finished_session, now
from tests.support.databases import opened

PROVIDERS = (("anthropic", "claude-opus-4-5"), ("openai", "gpt-5"), ("gemini", "gemini-3-pro"))
FILES = {
    "claude": jsonl(claude_session()),
    "codex": jsonl(codex_session()),
    "opencode": json.dumps(opencode_session(), indent=2).encode(),
}


@pytest.fixture
def importer(tmp_path: Path) -> Importer:
    return importer_in(tmp_path)


def importer_in(directory: Path) -> Importer:
    files = SessionFiles(
        directory / "sessions", directory / "catalogue.db", lambda text: f"s{hash(text)}"
    )
    return Importer(files, directory, lambda _: None, lambda text: text.replace("sk-secret", "***"))


def bring(importer: Importer, data: bytes, path: Path | None = None) -> ImportedSession:
    return importer.bring_in(importer.read(io.BytesIO(data), "the file", path))


def loaded(importer: Importer, done: ImportedSession, *, hidden: bool = False) -> LoadedSession:
    path = importer.files.path_of(done.id)
    assert check(path) == []
    return read_session(path, hidden=hidden)


def sent(session: LoadedSession) -> list[Message]:
    """What is sent, which every provider must take."""
    messages = list(session.history().messages)
    assert_continuable(messages)
    return messages


def assert_continuable(messages: Sequence[Message]) -> None:
    for provider, model in PROVIDERS:
        check_request(prepare([*messages, user_text("go on")], provider, model))


def calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    return [c for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]


@pytest.mark.spec("CLI-8")
def test_claude_code_threads_side_chains_and_summaries_keep_their_places(
    importer: Importer,
) -> None:
    done = bring(importer, FILES["claude"])
    shown = loaded(importer, done, hidden=True)
    assert (done.origin.format, done.origin.id, done.origin.cwd) == ("claude", CLAUDE_ID, PLACE)
    assert shown.info.origin == done.origin
    assert shown.info.title == "Fix [31mthe bug"
    assert (shown.info.cwd, shown.info.status) == (str(importer.cwd), SessionStatus.DONE)
    assert (shown.info.created_at, shown.info.updated_at) == (1767323041.0, 1767323059.0)
    assert shown.info.usage.output_tokens == 42
    by_text = {getattr(each.message, "text", ""): each for each in shown.messages}
    old = by_text["an old prompt"]
    assert (old.hidden_by, by_text["an old answer"].hidden_by) == (old.seq, old.seq + 1)
    summary = by_text["We looked for a bug in x.py."]
    assert isinstance(summary.message, UserMessage) and summary.message.is_summary
    assert by_text["a better prompt"].hidden_by == summary.seq
    first, second = calls_of([each.message for each in shown.messages])[:2]
    assert (first.name, first.arguments) == ("bash", {"command": "ls", "timeout_s": 5.0})
    assert (second.name, second.arguments) == ("read_file", {"path": "/w/x.py", "limit": 9})
    # one reply of two calls, then their results
    assert [type(each.message).__name__ for each in shown.messages[1:4]] == [
        "AssistantMessage", "ToolResult", "ToolResult",
    ]  # fmt: skip
    prompt = shown.messages[0].message
    assert isinstance(prompt, UserMessage) and isinstance(prompt.parts[1], ImagePart)
    rest = sent(loaded(importer, done))
    assert [getattr(each, "text", "") for each in rest[:2]] == [
        "We looked for a bug in x.py.",
        "/fix it",
    ]
    last = rest[-1]
    assert isinstance(last, ToolResult) and last.text.startswith(CRASHED_TEXT)


@pytest.mark.spec("CLI-8")
def test_a_side_chain_is_the_session_of_a_sub_agent(importer: Importer, tmp_path: Path) -> None:
    done = bring(importer, FILES["claude"])
    (agent,) = [info for info in now(importer.files.list()) if info.agent]
    assert (agent.agent, agent.parent_id, agent.title) == ("Explore", done.id, "find it")
    # later versions give each a file of its own
    records = [each for each in claude_session() if not each.get("isSidechain")]
    path = tmp_path / f"{CLAUDE_ID}.jsonl"
    path.write_bytes(jsonl(records))
    chain = [each for each in claude_session() if each.get("isSidechain")]
    beside = path.with_suffix("") / "subagents" / "agent-ag1.jsonl"
    beside.parent.mkdir(parents=True)
    beside.write_bytes(jsonl(chain))
    (beside.parent / "agent-other.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    again = bring(importer_in(tmp_path / "other"), path.read_bytes(), path)
    assert again.agents == 1
    elsewhere = beside.parent.rename(tmp_path / "elsewhere")
    beside.parent.symlink_to(elsewhere)  # links are not followed
    assert bring(importer_in(tmp_path / "third"), path.read_bytes(), path).agents == 0


@pytest.mark.spec("CLI-8")
def test_a_rollout_of_codex(importer: Importer) -> None:
    done = bring(importer, FILES["codex"])
    shown = loaded(importer, done, hidden=True)
    assert (done.origin.id, done.origin.model) == (CODEX_ID, "openai/gpt-5")
    texts = {getattr(each.message, "text", ""): each for each in shown.messages}
    assert "<environment_context>\n</environment_context>" not in texts
    assert texts["no, wrong"].hidden_by == texts["no, wrong"].seq
    calls = calls_of([each.message for each in shown.messages])
    assert [(call.name, call.arguments) for call in calls] == [
        ("bash", {"command": "ls -l", "timeout_s": 2.0}),
        ("apply_patch", {"patch": "*** Begin Patch"}),
        ("bash", {"command": "make"}),
    ]
    assert shown.info.usage.input_tokens == 30
    assert shown.info.usage.cache_read_tokens == 20
    rest = [getattr(each, "text", "") for each in sent(loaded(importer, done))]
    assert rest[:3] == ["The summary.", "go", "now write"]  # a prompt that was kept stays


@pytest.mark.spec("CLI-8")
def test_an_export_of_opencode(importer: Importer) -> None:
    done = bring(importer, b"Exporting session: ses_1\n" + FILES["opencode"])
    shown = sent(loaded(importer, done))
    assert [type(each).__name__ for each in shown] == [
        "UserMessage", "AssistantMessage", "ToolResult", "ToolResult",
        "AssistantMessage", "UserMessage", "AssistantMessage", "ToolResult",
    ]  # fmt: skip
    results = [each for each in shown if isinstance(each, ToolResult)]
    assert [(each.text.splitlines()[0], each.is_error) for each in results] == [
        ("a.txt", False),
        ("no such file", True),
        (CRASHED_TEXT, True),
    ]
    assert [call.name for call in calls_of(shown)] == ["bash", "read_file", "write_file"]
    assert done.title == "Listing files"
    with opened(importer.files.path_of(done.id)) as db:
        rows = db.execute("SELECT kind, output_tokens, cost_usd FROM usage").fetchall()
    assert rows == [("imported", 4, 0.25), ("imported", 4, 0.25)]


@pytest.mark.spec("CLI-8")
def test_our_own_export_comes_back_as_it_was(importer: Importer, tmp_path: Path) -> None:
    path = now(finished_session(tmp_path / "there", turns=2))
    original = read_session(path, hidden=True)
    done = bring(importer, "".join(json_pieces(export_json(original))).encode())
    copy = loaded(importer, done, hidden=True)
    parts = [each.message.parts for each in original.messages]
    assert [each.message.parts for each in copy.messages] == parts
    assert (copy.info.title, copy.info.turns) == (original.info.title, 2)
    assert (copy.info.usage, copy.info.cost_usd) == (original.info.usage, original.info.cost_usd)
    assert copy.info.origin is not None and copy.info.origin.id == original.info.id
    # milliseconds are what an export says
    assert copy.info.created_at == pytest.approx(original.info.created_at, abs=0.001)


@pytest.mark.spec("CLI-8", "CMP-3")
def test_what_a_compaction_folded_and_kept_comes_back_from_our_own_export(
    importer: Importer,
) -> None:
    def message(seq: int, role: str, words: str, **more: Any) -> dict[str, Any]:
        return {"seq": seq, "role": role, "content": [{"type": "text", "text": words}], **more}

    document = {
        "format": "agentcli-session/1",
        "session": {"id": "x", "title": "t", "created_at": "2026-01-02T03:04:05.000Z"},
        "messages": [
            message(1, "user", "old", hidden_by=4),
            message(2, "assistant", "older", hidden_by=4),
            message(3, "user", "kept"),
            message(4, "user", "summary", is_summary=True),
            message(5, "user", "wrong", hidden_by=5),
            message(6, "assistant", "lost", hidden_by=99),
        ],
    }
    done = bring(importer, json.dumps(document).encode())
    texts = [each.message.text for each in loaded(importer, done).messages]  # type: ignore[union-attr]
    assert texts == ["summary", "kept", "lost"]


@pytest.mark.spec("CLI-8")
@pytest.mark.parametrize("name", FILES)
def test_the_same_file_twice_is_one_session(importer: Importer, name: str) -> None:
    first = bring(importer, FILES[name])
    before = importer.files.path_of(first.id).read_bytes()
    second = bring(importer, FILES[name])
    assert (second.id, first.is_new, second.is_new) == (first.id, True, False)
    assert importer.files.path_of(first.id).read_bytes() == before


@pytest.mark.spec("CLI-8")
def test_a_session_that_has_grown_is_another_one(importer: Importer) -> None:
    first = bring(importer, FILES["codex"])
    grown = FILES["codex"] + jsonl([spoken("user", 20, "more")])
    assert bring(importer, grown).id != first.id


@pytest.mark.spec("SEC-16", "CLI-8")
def test_an_import_brings_nothing_that_acts(importer: Importer) -> None:
    done = bring(importer, FILES["claude"])

    async def foreign() -> tuple[str, ...]:
        store = await SqliteStore.open(importer.files.path_of(done.id), seal=importer.files.seal)
        try:
            return await store.drop_foreign(importer.cwd)
        finally:
            await store.aclose()

    assert now(foreign()) == ()
    with opened(importer.files.path_of(done.id)) as db:
        assert db.execute("SELECT key FROM kv").fetchall() == [("imported",)]
        for table in ("input_queue", "task", "schedule", "file_change", "event"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


@pytest.mark.spec("SEC-9")
def test_known_keys_do_not_come_along(importer: Importer) -> None:
    done = bring(importer, jsonl([codex_session()[0], spoken("user", 2, "use sk-secret now")]))
    assert b"sk-secret" not in importer.files.path_of(done.id).read_bytes()
    late = f"{'x' * 74} sk-secret"  # the bound of a title falls into the key
    done = bring(importer, jsonl([codex_session()[0], spoken("user", 2, late)]))
    assert b"sk-s" not in importer.files.path_of(done.id).read_bytes()
    assert "sk-s" not in done.title


# --- the law, whatever the file says ---------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_cut_and_any_order_can_be_continued(data: st.DataObject) -> None:
    records = data.draw(st.sampled_from([claude_session(), codex_session()]))
    order = data.draw(st.permutations(range(len(records))) | st.just(range(len(records))))
    chosen = [records[at] for at in order][: data.draw(st.integers(1, len(records)))]
    again = data.draw(st.lists(st.sampled_from(chosen), max_size=3))
    assert_lawful(jsonl([*chosen, *again]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a<\x00\x1b\ud800", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_value_in_any_place_can_be_continued(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from([claude_session(), codex_session(), [opencode_session()]]))
    for _ in range(data.draw(st.integers(1, 4))):
        spoil(document, data)
    assert_lawful(jsonl(document))


def spoil(value: Any, data: st.DataObject) -> None:
    """Put something else somewhere into ``value``."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            value = inner
            continue
        value[key] = data.draw(json_values)
        return


def assert_lawful(data: bytes) -> None:
    importer = Importer(
        SessionFiles(Path("/nowhere"), Path("/nowhere")), Path(), lambda _: None, str
    )
    try:
        draft = importer.read(io.BytesIO(data), "it")
    except UsageError:
        return  # one clear line
    for each in (draft, *(agent for _, _, agent in draft.agents)):
        assert_continuable([found.message for found in lawful(each)])


def test_results_that_came_late_and_names_used_twice_find_their_calls(importer: Importer) -> None:
    records = [
        said("u1", None, 1, "a"),
        reply("a1", "u1", 2, "m1", use("t", "Bash", command="1")),
        reply("a2", "a1", 3, "m2", use("t", "Bash", command="2")),
        said("r1", "a2", 4, [result("t", "one"), result("t", "two"), result("t", "three")]),
    ]
    done = bring(importer, jsonl(records))
    session = loaded(importer, done)
    results = [each for each in sent(session) if isinstance(each, ToolResult)]
    assert [each.text for each in results] == ["one", "two"]
    assert len({each.call_id for each in results}) == 2
    assert [note.text.splitlines()[-1] for note in session.notes] == ["three"]
    assert dict(done.left_out) == {"tool result without its call, kept as a note": 1}


# --- bounds ----------------------------------------------------------------------------------


@pytest.mark.spec("SEC-13", "CLI-8")
def test_a_line_without_end_is_passed_over(
    importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.store.imports.reading.MAX_LINE_BYTES", 4096)
    long = spoken("user", 3, "x" * 10_000)
    data = jsonl([codex_session()[0], spoken("user", 2, "short"), long, spoken("user", 4, "end")])
    done = bring(importer, data)
    assert [getattr(each, "text", "") for each in sent(loaded(importer, done))] == ["short", "end"]
    assert list(done.left_out) == ["line longer than 0 MB"]


@pytest.mark.spec("SEC-13", "CLI-8")
@pytest.mark.parametrize("is_escaped", [False, True])
def test_a_line_that_one_character_makes_four_times_as_large_is_passed_over(
    importer: Importer, monkeypatch: pytest.MonkeyPatch, *, is_escaped: bool
) -> None:
    monkeypatch.setattr("agentcli.store.imports.reading.MAX_WIDTH_BYTES", 30_000)
    heads = [codex_session()[0], spoken("user", 2, "short"), spoken("user", 3, "x" * 10_000)]
    wide = json.dumps(spoken("user", 4, "y" * 10_000 + "\U0001f600"), ensure_ascii=is_escaped)
    done = bring(importer, jsonl(heads) + wide.encode() + b"\n" + jsonl([spoken("user", 5, "end")]))
    texts = [getattr(each, "text", "") for each in sent(loaded(importer, done))]
    assert texts == ["short", "x" * 10_000, "end"]
    assert list(done.left_out) == ["line that is too large with the characters it has"]


_SHORT = jsonl([codex_session()[0], spoken("user", 2, "short")])


def _lists(count: int) -> bytes:
    return b"[0" + b",[]" * count + b"]"


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    ("pieces", "is_known"),
    [
        (
            lambda: [_SHORT, b'{"type": "response_item", "payload": "', b"x" * (100 << 20), b'"}'],
            True,
        ),
        (lambda: [_SHORT, b'{"type": "response_item", "payload": ', _lists(8_000_000), b"}"], True),
        (
            lambda: [
                _SHORT,
                b'{"type": "response_item", "payload": "',
                b"x" * (31 << 20),
                b'\xf0\x9f\x98\x80"}',
            ],
            True,
        ),
        (lambda: [b'"', b"x" * (24 << 20), b'"\n'] * 20, False),
        (lambda: [b'{"x": [0', *[b"\n,", _lists(8_000_000)] * 2, b"]}"], False),
        (lambda: [b'{"x": "', b'\\",' * 8_000_000, b'\n"}'], False),
    ],
    ids=[
        *(
            "a line of 100 MB",
            "a line of lists",
            "a line with an emoji",
            "long lines",
            "many lists",
        ),
        "commas in a text",
    ],
)
def test_a_hostile_file_costs_no_such_memory(
    tmp_path: Path, pieces: Callable[[], Iterable[bytes]], is_known: bool
) -> None:
    import tracemalloc

    path = tmp_path / "it.jsonl"
    with path.open("wb") as file:
        file.writelines(pieces())
    tracemalloc.start()
    with path.open("rb") as stream, nullcontext() if is_known else pytest.raises(UsageError):
        importer_in(tmp_path).read(stream, "it")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 << 20


@pytest.mark.spec("SEC-13")
def test_a_file_holds_a_bounded_number_of_values(
    importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.store.imports.reading.MAX_HELD_VALUES", 1_000)
    records = [said(f"u{n}", None, 1, "x", more=[[]] * 400) for n in range(5)]
    done = bring(importer, jsonl(records))
    assert done.left_out == {"rest of the file, beyond 1,000 values": 1}


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("word", ["a word and ", "a word and \U0001f600"])
def test_a_file_of_200_megabytes_is_taken_as_far_as_memory_goes(tmp_path: Path, word: str) -> None:
    path = tmp_path / "it.jsonl"
    text = word * 100_000
    size = 0
    with path.open("wb") as file:
        while size < 200_000_000:
            size += file.write(jsonl([said(f"u{size}", None, 1, text)]))
    script = (
        "import subprocess, sys; from tests.support.memory import *\n"
        "subprocess.run([sys.executable, '-m', 'agentcli', *sys.argv[1:]], check=True)\n"
        "print(children_peak_kib())"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, "sessions", "import", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(run.stdout.split()[-1]) < 300 * 1024
    assert "rest of the file, beyond 128 MB of text" in run.stderr


@pytest.mark.spec("SEC-13")
def test_what_a_file_and_its_sub_agents_hold_is_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.store.imports.reading.MAX_HELD_BYTES", 100_000)
    path = tmp_path / f"{CLAUDE_ID}.jsonl"
    path.write_bytes(jsonl([said("u1", None, 1, "x" * 40_000)]))
    for number in range(4):
        lines = jsonl([said(f"a{number}", None, 1, "y" * 40_000, isSidechain=True)])
        (tmp_path / f"agent-{number}.jsonl").write_bytes(lines)
    with path.open("rb") as stream:
        draft = importer_in(tmp_path).read(stream, path.name, path)
    assert len(draft.agents) == 1
    assert draft.left_out == {"rest of the file, beyond 0 MB of text": 3}


@pytest.mark.spec("SEC-13")
def test_a_file_makes_a_bounded_number_of_sessions(
    importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.store.imports.formats.claude.MAX_AGENTS", 2)
    chains = [said(f"a{n}", None, 1, "x", isSidechain=True, agentId=f"g{n}") for n in range(5)]
    done = bring(importer, jsonl([said("u1", None, 1, "x"), *chains]))
    assert done.agents == 2
    assert done.left_out == {"sub-agent beyond the first 2": 3}


@pytest.mark.spec("CLI-8", "SEC-13")
def test_what_repeats_itself_is_read_in_the_time_that_its_size_takes(importer: Importer) -> None:
    count = 6_000
    records = [said("u0", None, 1, "hello")]
    records += [
        reply(f"u{n + 1}", f"u{n}", 2, "one", use("same", "Bash", command="ls"))
        for n in range(count)
    ]
    lines = importer.read(io.BytesIO(jsonl(records)), "claude")
    session = loaded(importer, importer.bring_in(lines))
    calls = calls_of(session.history().messages)
    assert len({call.id for call in calls}) == len(calls) == count
    summary = [codex("compacted", 3, message="So far."), spoken("user", 4, "And?")] * count
    lines = importer.read(io.BytesIO(jsonl([*codex_session(), *summary])), "codex")
    (told,) = (name for name in lines.left_out if "compaction or roll-back" in name)
    assert lines.left_out[told] > count - 400


@pytest.mark.spec("CLI-8", "SEC-13")
def test_a_long_line_with_a_million_commas_in_its_text_is_read(importer: Importer) -> None:
    long = 'one, "two", ' * 400_000
    done = bring(importer, jsonl([codex_session()[0], spoken("user", 2, long)]))
    assert not done.left_out


@pytest.mark.spec("CLI-8")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"not json",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"a": 1}',
        b"\xff\xfe\x00",
        b"SQLite format 3\x00" + bytes(200),
        b'{"format": "agentcli-session/9"}',
        jsonl([codex("session_meta", 1, id="x", cwd="/")]),
    ],
)
def test_what_is_no_session_is_one_clear_line(importer: Importer, data: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        bring(importer, data)
    assert caught.value.advice
    assert "\n" not in str(caught.value)


@pytest.mark.spec("CLI-8")
def test_deep_arguments_numbers_without_end_and_broken_pictures_are_left_out(
    importer: Importer,
) -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    picture = {"type": "base64", "media_type": "image/png", "data": "%%%"}
    records = [
        said("u1", None, 1, [text("a"), {"type": "image", "source": picture}]),
        reply("a1", "u1", 2, "m1", use("t1", "X", deep=deep)),
        reply("a2", "u1", 3, "m2", use("t2", "X", big=10**400, nan=float("nan"))),
    ]
    records.append(reply("a3", "a2", 4, "m3", use("t3", "X", huge="HUGE")))
    done = bring(importer, jsonl(records).replace(b'"HUGE"', b"1e999"))
    messages = sent(loaded(importer, done))
    assert messages[0].text == "a\n[attachment left out: image/png]"  # type: ignore[union-attr]
    assert done.left_out["unreadable line"] == 1
    calls = [each for m in messages if isinstance(m, AssistantMessage) for each in m.tool_calls]
    assert calls[-1].arguments == {"huge": "1e999"}
    json.dumps([dict(call.arguments) for call in calls], allow_nan=False)


@pytest.mark.spec("COST-1", "CLI-8")
def test_results_cost_what_they_cost_elsewhere_and_statistics_count_none_of_it(
    importer: Importer,
) -> None:
    usage = {"input_tokens": 100, "output_tokens": 20}
    later = {"input_tokens": 200, "cache_read_input_tokens": 120, "output_tokens": 5}
    records = [
        said("u1", None, 1, "hi"),
        reply("a1", "u1", 2, "m1", use("t1", "Bash", command="ls")),
        said("u2", "a1", 3, [result("t1", "words " * 200)]),
        reply("a2", "u2", 4, "m2", text("done")),
    ]
    records[1]["message"]["usage"], records[3]["message"]["usage"] = usage, later
    path = importer.files.path_of(bring(importer, jsonl(records)).id)
    cost = call_costs(ledger_of(path), lambda _: None)["t1"].result
    assert (cost.added_tokens, cost.unknown, cost.cost_usd) == (200, 1, None)
    found = statistics_of([path])
    assert (found.turns, found.total.requests, found.by_tool) == (0, 0, {})


@pytest.mark.spec("COST-1", "CLI-8")
def test_a_sum_of_an_imported_session_is_the_cost_of_no_reply(
    importer: Importer, tmp_path: Path
) -> None:
    path = now(finished_session(tmp_path / "own"))
    exported = "".join(json_pieces(export_json(read_session(path, hidden=True)))).encode()
    done = bring(importer, exported)
    rows = ledger_of(importer.files.path_of(done.id)).rows
    assert [(row.kind, row.before) for row in rows] == [("imported", 0)]
