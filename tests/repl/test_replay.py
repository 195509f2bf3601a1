"""What was said before is shown as it was: the end when resuming, all of it in the transcript."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence

import pytest

from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.session import (
    LoadedSession,
    Note,
    SessionInfo,
    SessionPage,
    SessionStatus,
    StoredMessage,
)
from agentcli.repl.replay import REPLAY_LINES, Transcript, replay_lines
from agentcli.ui.rows import plain
from agentcli.ui.screen import Size
from agentcli.ui.theme import Theme

SIZE = Size(60, 20)
DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old\n+new\n"
CALL = ToolCall("c", "bash", {"command": "make test"})


def theme() -> Theme:
    return Theme(color=True, attributes=True, live=True)


def said(status: ResultStatus = ResultStatus.OK, output: str = "x") -> list[Message]:
    return [
        user_text("the question"),
        AssistantMessage(
            (ThinkingPart("thought one\nthought two"), TextPart("I **run** it"), CALL)
        ),
        ToolResult("c", "bash", (TextPart(output),), status),
        AssistantMessage((TextPart("It is done."),)),
    ]


def stored(messages: Sequence[Message]) -> tuple[StoredMessage, ...]:
    return tuple(StoredMessage(at, 0, message) for at, message in enumerate(messages, 1))


def run(**more: str) -> dict[str, ToolRun]:
    return {"c": ToolRun("c", "bash", RunStatus.FINISHED, 1.0, 3.5, line="Run make test", **more)}


def loaded(messages: Sequence[Message], notes: Sequence[Note] = (), **more: str) -> LoadedSession:
    info = SessionInfo("id", "t", "/w", 0, 0, SessionStatus.CRASHED, 1, "p/m")
    return LoadedSession(info, stored(messages), tuple(notes), run(**more))


def shown(session: LoadedSession) -> str:
    return "\n".join(plain(line) for line in replay_lines(session, theme(), SIZE))


@pytest.mark.spec("UI-8")
def test_a_resumed_conversation_is_drawn_as_it_was() -> None:
    text = shown(loaded(said(), outcome="exit 0"))
    order = ("the question", "thought one", "I run it", "Run make test", "exit 0", "It is done.")
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "**" not in text
    assert "2.5 s" in text


@pytest.mark.spec("UI-8", "UI-2")
def test_a_change_is_drawn_as_its_diff_again() -> None:
    text = shown(loaded(said(), display=DIFF))
    assert "- old" in text and "+ new" in text


@pytest.mark.spec("UI-8", "CAN-5")
def test_a_reply_that_had_begun_is_shown_and_said_to_be_cut() -> None:
    text = shown(loaded(said(), [Note(4, 0, "partial", "half a rep")]))
    assert text.index("It is done.") < text.index("half a rep") < text.index("cut off here")


@pytest.mark.spec("UI-8")
def test_of_a_long_session_the_newest_is_shown_and_the_rest_is_one_key_away() -> None:
    many = [
        m
        for n in range(200)
        for m in (user_text(f"question {n}"), AssistantMessage((TextPart(f"answer {n}."),)))
    ]
    lines = [plain(line) for line in replay_lines(loaded(many), theme(), SIZE)]
    assert len(lines) <= REPLAY_LINES + 1
    assert "Ctrl-O shows the whole session" in lines[0]
    assert "answer 199." in lines[-1]
    assert "question 0" not in "\n".join(lines)


@pytest.mark.spec("UI-8", "CMP-3", "BG-5")
def test_what_nobody_has_said_is_not_shown_as_said() -> None:
    summary = UserMessage((TextPart("what came before"),), is_summary=True)
    told = user_text('<background-run run_id="bg_1" status="succeeded">\n</background-run>')
    text = shown(loaded([summary, *said(), told]))
    assert "what came before" not in text and "summarised" in text
    assert "Ctrl-O shows the whole session" in text
    assert "bg_1" not in text


# --- the transcript -----------------------------------------------------------------------------


def transcript(
    messages: Sequence[Message],
    raw: bytes | None = None,
    *,
    painted: bool = True,
    size: Size = SIZE,
    **more: str,
) -> tuple[Transcript, io.BytesIO]:
    file = io.BytesIO()
    made = Transcript(file, theme(), size, painted=painted)

    async def pages() -> AsyncIterator[SessionPage]:
        for at, each in enumerate(stored(messages)):  # a page each: a call and its result apart
            yield SessionPage((each,), (), run(**more) if at == 1 else {})

    async def raw_output(_call_id: str) -> bytes | None:
        return raw

    asyncio.run(made.write_all(pages(), raw_output))
    return made, file


def lines_of(made: Transcript, file: io.BytesIO, *, folded: bool) -> list[str]:
    lines = []
    for place in (made.folded if folded else made.whole)[:-1]:
        file.seek(place)
        lines.append(plain(file.readline().decode()).rstrip("\n"))
    return lines


@pytest.mark.spec("UI-12", "TOOL-3")
def test_the_transcript_has_every_output_whole() -> None:
    output = "".join(f"line {n}\n" for n in range(3000)).encode()
    made, file = transcript(said(), output, outcome="exit 0")
    lines = lines_of(made, file, folded=False)
    assert [line for line in lines if line.startswith("line ")] == [
        f"line {n}" for n in range(3000)
    ]
    assert any("I run it" in line for line in lines)


@pytest.mark.spec("UI-12")
def test_thinking_is_folded_to_its_head_or_shown() -> None:
    made, file = transcript(said())
    folded, whole = (lines_of(made, file, folded=yes) for yes in (True, False))
    assert "Thinking (2 lines)" in folded
    assert not any("thought" in line for line in folded)
    assert [line for line in whole if line not in folded] == ["  thought one", "  thought two"]


@pytest.mark.spec("UI-12", "UI-2")
def test_it_opens_at_the_last_call() -> None:
    made, file = transcript([*said(), user_text("and now?"), AssistantMessage((TextPart("Ok."),))])
    file.seek(made.last_call)
    assert "Run make test" in plain(file.readline().decode())


@pytest.mark.spec("UI-12")
@pytest.mark.parametrize("folded", [True, False])
def test_what_is_in_sight_stays_there_when_it_is_laid_out_for_another_width(folded: bool) -> None:
    told = [
        *said(),
        user_text("a prompt of many words " * 20),
        AssistantMessage((TextPart("Ok."),)),
    ]
    wide, wide_file = transcript(told)
    narrow, narrow_file = transcript(told, size=Size(30, 20))
    lines = lines_of(wide, wide_file, folded=folded)
    others = lines_of(narrow, narrow_file, folded=folded)
    assert max(map(len, others)) <= 30
    for line in ("● Run make test", "◆ Ok."):
        block, at = wide.line_in_block(lines.index(line), is_folded=folded)
        assert others[narrow.line_of_block(block, at, is_folded=folded)] == line


@pytest.mark.spec("UI-12", "UI-13")
def test_what_a_refusal_says_to_the_model_is_not_shown() -> None:
    made, file = transcript(said(ResultStatus.REFUSED, "Do not try again: ask the user."))
    text = "\n".join(lines_of(made, file, folded=False)[1:])
    assert text.count("Do not try again") <= 1


@pytest.mark.spec("SEC-10", "UI-12")
def test_a_transcript_for_other_pagers_is_plain_and_never_has_sequences_of_others() -> None:
    evil = b"\x1b]0;evil\x07\x1b[2Jok\n"
    for painted in (True, False):
        _, file = transcript(said(output="\x1b[31mred"), evil, painted=painted)
        data = file.getvalue()
        assert b"\x1b]" not in data and b"\x1b[2J" not in data
        assert painted or b"\x1b" not in data
