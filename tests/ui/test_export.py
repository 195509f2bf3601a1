"""Exports: a JSON form for programs, Markdown and one HTML page for people (CLI-8)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.accounts import Ledger, UsageRow
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.session import (
    LoadedSession,
    Note,
    SessionInfo,
    SessionStatus,
    StoredMessage,
)
from agentcli.ui import export
from agentcli.ui.export import iso_time, session_object

AT = 1_800_000_000.25
PNG = b"\x89PNG"
EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b]0;t\x07 & \"'"


def session(*messages: Message, title: str = "A title", **fields: object) -> LoadedSession:
    values: dict[str, object] = {
        "usage": Usage(1200, 34, 5),
        "cost_usd": 0.125,
        "status": SessionStatus.CANCELLED,
        "detail": "cancelled by the user",
    }
    info = SessionInfo(
        id="0198-id",
        title=title,
        cwd="/work",
        created_at=AT,
        updated_at=AT + 60,
        turns=1,
        model="anthropic/m",
        **{**values, **fields},
    )
    stored = tuple(StoredMessage(n, AT + n, m) for n, m in enumerate(messages, 1))
    return LoadedSession(
        info,
        stored,
        (Note(len(stored), AT + 9, "partial", "half an ans"),),
        {"c1": ToolRun("c1", "bash", RunStatus.FINISHED, AT, AT + 1.5, display="-old\n+new")},
    )


WHOLE = session(
    UserMessage((TextPart("Look **here**:"), ImagePart("image/png", PNG))),
    AssistantMessage(
        (
            ThinkingPart("Let me think", "sig"),
            ThinkingPart("", None, "sealed"),
            TextPart("I run it.\n\n```python\nprint('<b>')\n```\n# Next\nUse `ls -l`."),
            ToolCall("c1", "bash", {"command": "ls | head"}),
            ToolCall("c2", "bash", {}, '{"broken'),
        ),
        "anthropic",
        "m",
        StopReason.TOOL_USE,
    ),
    ToolResult("c1", "bash", (TextPart("a.txt"), ImagePart("image/png", PNG))),
    ToolResult("c2", "bash", (TextPart("invalid"),), ResultStatus.ERROR),
)


def export_json_text(session: LoadedSession) -> str:
    return "".join(export.json_pieces(export.export_json(session)))


def export_json(session: LoadedSession) -> Any:
    return json.loads(export_json_text(session))


def export_markdown(session: LoadedSession) -> str:
    return "".join(export.export_markdown(session))


def export_html(session: LoadedSession, ledger: Ledger | None = None) -> str:
    return "".join(export.export_html(session, ledger))


@pytest.mark.spec("CLI-8")
def test_the_json_form_is_the_documented_one() -> None:
    image = {"type": "image", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    assert export_json(WHOLE) == {
        "format": "agentcli-session/1",
        "session": {
            "id": "0198-id",
            "title": "A title",
            "cwd": "/work",
            "created_at": "2027-01-15T08:00:00.250Z",
            "updated_at": "2027-01-15T08:01:00.250Z",
            "state": "cancelled",
            "turns": 1,
            "model": "anthropic/m",
        },
        "messages": [
            {
                "seq": 1,
                "role": "user",
                "content": [{"type": "text", "text": "Look **here**:"}, image],
            },
            {
                "seq": 2,
                "role": "assistant",
                "content": [
                    {"type": "thinking", "text": "Let me think", "signature": "sig"},
                    {"type": "thinking", "text": "", "signature": None, "redacted": "sealed"},
                    {
                        "type": "text",
                        "text": "I run it.\n\n```python\nprint('<b>')\n```\n# Next\nUse `ls -l`.",
                    },
                    {
                        "type": "tool_call",
                        "id": "c1",
                        "name": "bash",
                        "arguments": {"command": "ls | head"},
                    },
                    {
                        "type": "tool_call",
                        "id": "c2",
                        "name": "bash",
                        "arguments": {},
                        "malformed": '{"broken',
                    },
                ],
            },
            {
                "seq": 3,
                "role": "tool",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_call_id": "c1",
                        "name": "bash",
                        "content": [{"type": "text", "text": "a.txt"}, image],
                        "is_error": False,
                        "status": "ok",
                    }
                ],
            },
            {
                "seq": 4,
                "role": "tool",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_call_id": "c2",
                        "name": "bash",
                        "content": [{"type": "text", "text": "invalid"}],
                        "is_error": True,
                        "status": "error",
                    }
                ],
            },
        ],
        "tool_runs": [
            {
                "call_id": "c1",
                "name": "bash",
                "status": "finished",
                "started_at": "2027-01-15T08:00:00.250Z",
                "finished_at": "2027-01-15T08:00:01.750Z",
            }
        ],
        "usage": {
            "input_tokens": 1200,
            "output_tokens": 34,
            "cache_read_tokens": 5,
            "cache_write_tokens": None,
            "reasoning_tokens": None,
            "cost_usd": 0.125,
        },
    }


@pytest.mark.spec("CLI-8")
def test_an_object_of_a_list_has_the_documented_keys() -> None:
    assert list(session_object(WHOLE.info)) == [
        "id",
        "title",
        "cwd",
        "created_at",
        "updated_at",
        "state",
        "turns",
        "model",
    ]


def test_json_text_can_be_written_whatever_was_said() -> None:
    for value in ("plain é", "lone \ud800", "\0"):
        text = export_json_text(session(UserMessage((TextPart(value),))))
        text.encode()
        assert json.loads(text)["messages"][0]["content"][0]["text"] == value


@pytest.mark.parametrize("seconds", [-1e18, 1e18, float("nan"), float("inf")])
def test_an_absurd_time_is_no_crash(seconds: float) -> None:
    assert iso_time(seconds) == "1970-01-01T00:00:00.000Z"
    odd = session(UserMessage((TextPart("x"),)))
    odd = LoadedSession(odd.info, (StoredMessage(1, seconds, odd.messages[0].message),))
    assert "unknown time" in export_markdown(odd)
    assert "unknown time" in export_html(odd)


class Page(HTMLParser):
    """Tags that were opened and not closed, all attributes, all text."""

    VOID = {"meta", "img", "br"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.mark.spec("CLI-8")
def test_the_page_shows_all_that_was_said_and_folds_calls() -> None:
    text = export_html(WHOLE)
    page = Page(text)
    assert page.open == []
    for shown in (
        "A title",
        "I run it.",
        "print('<b>')",
        "ls | head",
        "a.txt",
        "invalid",
        "half an ans",
        "Let me think",
        "cancelled by the user",
        "$0.1250",
        "1.5 s",
        '{"broken',
    ):
        assert shown in page.words, shown
    assert {"details", "summary", "code", "h3", "b", "img"} <= page.tags
    assert "prefers-color-scheme: dark" in text
    assert text.count("<details") == 3


@pytest.mark.spec("CLI-8")
def test_the_page_needs_no_network_and_runs_its_own_script_alone() -> None:
    text = export_html(WHOLE)
    page = Page(text)
    assert not page.tags & {"link", "iframe", "object", "form"}
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}';" in policy
    for name, value in page.attributes:
        if name in {"src", "srcset"}:
            assert str(value).startswith("data:image/png;base64,")
        if name == "href":
            assert re.fullmatch(r"#m\d+", str(value))


@pytest.mark.spec("CLI-8", "COST-1")
def test_the_page_has_contents_and_a_cost_for_each_reply() -> None:
    rows = (
        UsageRow("step", AT, "x/y", Usage(1000, 20, 500), 0.25, 2),
        UsageRow("step", AT, "x/y", Usage(10, None), None, 5),
    )
    told = session(
        UserMessage((TextPart("first <b>question"),)),
        AssistantMessage((TextPart("first answer"),)),
        UserMessage((TextPart("x" * 500),)),
        UserMessage((ImagePart("image/png", PNG),)),
        AssistantMessage((TextPart("second answer"),)),
    )
    page = export_html(told, Ledger((), rows))
    links = re.findall(r'<li><a href="#(m\d+)">(.*?)</a>(.*)</li>', page)
    assert [(place, text[:20]) for place, text, _ in links] == [
        ("m1", "first &lt;b&gt;quest"),
        ("m3", "x" * 20),
        ("m4", "(no text)"),
    ]
    assert len(links[1][1]) == 80
    assert "$0.2500" in links[0][2] and not links[2][2]
    assert all(f'id="{place}"' in page for place, _, _ in links)
    assert "$0.2500 (so far $0.2500) · 1,500 in, 20 out" in page
    assert "unknown · 10 in, unknown out" in page


@pytest.mark.spec("SEC-10", "CLI-8")
def test_hostile_text_stays_text() -> None:
    hostile = session(
        UserMessage((TextPart(EVIL), ImagePart('x" onload="alert(3)', PNG))),
        AssistantMessage(
            (
                ThinkingPart(EVIL),
                TextPart(f"`{EVIL}` **{EVIL}**\n# {EVIL}\n```{EVIL}\n{EVIL}\n```"),
                ToolCall("c1", EVIL, {EVIL: EVIL}),
            )
        ),
        ToolResult("c1", EVIL, (TextPart(EVIL),)),
        title=EVIL,
        detail=EVIL,
    )
    text = export_html(hostile)
    page = Page(text)
    assert page.open == []
    assert text.count("<script") == 1
    assert {name for name, _ in page.attributes} <= {
        "aria-label",
        "href",
        "id",
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "alt",
        "src",
    }
    for document in (text, export_markdown(hostile)):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", document)


@pytest.mark.spec("CLI-8")
def test_markdown_keeps_fences_whole() -> None:
    text = export_markdown(
        session(
            UserMessage((TextPart("go"),)),
            AssistantMessage((ToolCall("c1", "bash", {"command": "cat x.md"}),)),
            ToolResult("c1", "bash", (TextPart("````\ncode\n````"),)),
        )
    )
    assert "\n`````\n````\ncode\n````\n`````\n" in text
    assert text.startswith("# A title\n")
    assert "<details><summary>bash cat x.md · ok · 1.5 s</summary>" in text
    assert "Cut short: seen, but not part of the conversation" in text
    assert text.endswith("\n")


def test_an_empty_session_exports() -> None:
    empty = LoadedSession(session(title="").info, ())
    assert export_json(empty)["messages"] == []
    assert export_markdown(empty).startswith("# Session\n")
    assert Page(export_html(empty)).open == []


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("`*#~ \n<&a\\")), st.text())
def test_any_text_makes_a_well_formed_page(first: str, second: str) -> None:
    page = Page(
        export_html(session(UserMessage((TextPart(first),)), AssistantMessage((TextPart(second),))))
    )
    assert page.open == []
    assert page.tags <= {
        "html", "head", "meta", "title", "style", "body", "header", "h1", "dl", "dt", "dd",
        "main", "section", "h2", "h3", "p", "pre", "code", "b", "div",
        "span", "nav", "ol", "li", "a", "script",
    }  # fmt: skip


def test_a_long_line_of_marks_is_no_burden() -> None:
    for marks in ("`" * 200_000, "**" * 100_000, "`a" * 100_000, "#" * 200_000):
        assert export_html(session(UserMessage((TextPart(marks),))))


@pytest.mark.spec("CLI-8", "TOOL-8")
@pytest.mark.parametrize("write", [export_markdown, export_html])
def test_a_diff_that_the_model_saw_too_is_shown_once(write: Callable[[LoadedSession], str]) -> None:
    told = "Edited f.txt at line 1 (+1 -1).\n-old\n+new"
    text = write(
        session(
            AssistantMessage((ToolCall("c1", "edit_file", {}),), "anthropic", "m"),
            ToolResult("c1", "edit_file", (TextPart(told),)),
        )
    )
    assert text.count("-old") == 1
    assert "at line 1" in text


COMPACTED = LoadedSession(
    WHOLE.info,
    (
        StoredMessage(1, AT, UserMessage((TextPart("first question"),)), hidden_by=4),
        StoredMessage(2, AT, AssistantMessage((TextPart("first answer"),)), hidden_by=4),
        StoredMessage(3, AT, UserMessage((TextPart("second question"),))),
        StoredMessage(4, AT, UserMessage((TextPart("what came before"),), is_summary=True)),
        StoredMessage(
            5, AT, UserMessage((TextPart("an older one"),), is_summary=True), hidden_by=5
        ),
    ),
)


@pytest.mark.spec("CMP-3")
def test_the_whole_conversation_is_exported_and_what_was_folded_is_marked() -> None:
    page, text = export_html(COMPACTED), export_markdown(COMPACTED)
    for written in (page, text):
        for words in ("first question", "first answer", "second question", "what came before"):
            assert words in written
        assert written.count("· folded into a summary") == 2
        assert written.count("· taken back") == 1
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert [line.split(" · ")[0] for line in headings] == [
        "## You", "## Agent", "## You", "## Summary", "## Summary",
    ]  # fmt: skip
    assert page.count('class="you folded"') == 1


@pytest.mark.spec("CMP-3", "CLI-8")
def test_the_json_form_tells_of_a_compaction_beside_the_documented_keys() -> None:
    messages = export_json(COMPACTED)["messages"]
    assert [message.get("hidden_by") for message in messages] == [4, 4, None, None, 5]
    assert [message.get("is_summary", False) for message in messages] == [False] * 3 + [True] * 2
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "user",
        "user",
        "user",
    ]
    assert all({"hidden_by", "is_summary"}.isdisjoint(m) for m in export_json(WHOLE)["messages"])
