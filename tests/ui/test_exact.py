"""What an approval shows of a text: all of it, or its head and tail and that there is more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.domain.messages import ToolCall
from agentcli.domain.ports import ApprovalRequest, GrantOffer
from agentcli.domain.reports import Explanation
from agentcli.ui.exact import (
    MAX_CHARS,
    MAX_LINE_CHARS,
    MAX_LINES,
    bounded,
    cut_line,
    detail_of,
    exact_line,
    exact_lines,
    explanation_lines,
    rule_text,
)
from agentcli.ui.theme import PLAIN

HIDDEN = [
    "\x1b[8m", "\r", "\x00", "\x08", "\x7f", "\x85", "\u200b", "\u200d", "\u202e", "\u2066",
    "\u00a0", "\u2003", "\u3000", "\ufeff", "\U000e0041", "\u2028", "\u00ad", "\u115f", "\u2800",
]  # fmt: skip


def request(command: str, detail: str = "") -> ApprovalRequest:
    return ApprovalRequest(ToolCall("c", "bash", {"command": command}), "Run", detail, "")


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_cannot_be_seen_is_spelt_out(hidden: str) -> None:
    (line,) = exact_lines(f"echo a{hidden}b")
    assert f"<U+{ord(hidden[0]):04X}>" in line
    assert hidden[0] not in line


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("rm x ", ["rm x<U+0020>"]), ("rm x \t", ["rm x<U+0020><U+0009>"]),
        ("rm x" + " " * 300, ["rm x<U+0020 x 300>"]), ("  if\n\tx", ["  if", "\tx"]),
        ("ls" + " " * 500 + "; rm x", ["ls<U+0020 x 500>; rm x"]),
        (" " * 90 + "rm x", ["<U+0020 x 90>rm x"]), ("\nrm x", ["<1 empty line>", "rm x"]),
        ("ls\n", ["ls", "<1 empty line>"]), ("ls\n\n\nx", ["ls", "", "", "x"]),
        ("ls" + "\n" * 400 + "rm x", ["ls", "<399 empty lines>", "rm x"]), ("", [""]),
    ],
)  # fmt: skip
def test_blanks_that_hide_something_are_counted(text: str, lines: list[str]) -> None:
    assert exact_lines(text) == lines


@pytest.mark.spec("SEC-6")
def test_the_tail_of_a_long_line_is_shown_and_the_middle_counted() -> None:
    line = "echo " + "x" * 1_000_000 + "; rm -rf ~"
    shown = detail_of(request(line, f"{line}\n\nin /work"))
    assert shown.is_cut
    assert shown.lines[0].startswith("echo xxx")
    assert shown.lines[0].endswith("xxx; rm -rf ~")
    assert "characters are not shown here>" in shown.lines[0]
    assert shown.lines[-1] == "in /work"
    assert line in shown.whole
    assert sum(map(len, shown.lines)) < MAX_CHARS


@pytest.mark.spec("SEC-6")
def test_many_lines_keep_their_head_and_tail() -> None:
    lines = [f"line {number}" for number in range(50_000)]
    shown = bounded(lines)
    assert (shown.lines[0], shown.lines[-1]) == (lines[0], lines[-1])
    assert f"<{50_000 - MAX_LINES:,} lines are not shown here>" in shown.lines
    assert shown.whole.split("\n") == lines


@pytest.mark.spec("SEC-6")
@given(st.lists(st.text(max_size=40).map(lambda text: text.replace("\n", "")), max_size=30))
def test_what_fits_is_shown_as_it_is(lines: list[str]) -> None:
    shown = bounded(lines)
    assert list(shown.lines) == lines
    assert not shown.is_cut


@pytest.mark.spec("SEC-6")
@given(st.text())
def test_no_line_holds_what_a_terminal_would_obey(text: str) -> None:
    for line in exact_lines(text):
        assert not any(ord(char) < 0x20 and char != "\t" for char in line)
        assert not {"\x7f", "\x9b", "\u202e", "\u200b"}.intersection(line)
        assert not line.endswith((" ", "\t"))


@pytest.mark.spec("SEC-6")
def test_the_command_comes_first_even_when_the_preview_leaves_it_out() -> None:
    assert detail_of(request("rm x", "in /work")).lines == ("rm x", "", "in /work")
    assert detail_of(request("rm x", "rm x\n\nin /work")).lines == ("rm x", "", "in /work")
    assert detail_of(request("rm x")).lines == ("rm x",)


@pytest.mark.spec("SEC-6")
def test_without_a_preview_the_arguments_are_shown() -> None:
    call = ToolCall("c", "mcp__x__y", {"path": "a\u200b"})
    shown = detail_of(ApprovalRequest(call, "Call", "", ""))
    assert '  "path": "a<U+200B>"' in shown.lines


def test_one_line_texts_have_no_line_breaks_and_an_end() -> None:
    assert exact_line("a\nb ") == "a<U+000A>b<U+0020>"
    assert len(cut_line("x" * 100_000)) < MAX_LINE_CHARS + 100
    assert rule_text("bash(ls -l)") == "bash(ls -l)"
    assert rule_text("bash(a\nb)") == rule_text(f"bash({'x' * 500})") == "bash: this very call"


# --- The policy's answer in lines


@pytest.mark.spec("SEC-3", "SEC-6")
def test_it_says_what_why_by_which_rule_and_hides_nothing() -> None:
    told = Explanation(
        "bash", "ask", "asked for by the rule bash(x *)", "x \u202eb", "bash(x *)", "f:1", "exec",
        "default", (GrantOffer("bash(x b)"), GrantOffer("bash(x *)", always=True)), "in the sandbox",
    )  # fmt: skip
    assert explanation_lines(told, PLAIN) == [
        "It asks: asked for by the rule bash(x *)",
        "  because of  x <U+202E>b",
        "  rule        bash(x *)  (f:1)",
        "  mode        default; it counts as running a command",
        "  runs        in the sandbox",
        "  session         bash(x b)",
        "  session, always bash(x *)",
    ]


def test_an_answer_without_a_rule_is_short() -> None:
    told = Explanation("read_file", "allow", "reads are free", "", "", "", "read", "plan")
    assert explanation_lines(told, PLAIN) == [
        "It runs without asking: reads are free",
        "  mode        plan; it counts as reading",
    ]


@pytest.mark.spec("SEC-6", "UI-7")
def test_a_long_rule_that_covers_more_than_a_call_is_not_told_as_this_very_call() -> None:
    place = "/deep" * 60
    for rule in (f"edit({place}/**)", f"bash(make {'x' * 250} *)"):
        text = rule_text(rule)
        assert "this very call" not in text and text.endswith("*)") and "not shown here" in text
    assert rule_text(f"bash(echo {'x' * 250})") == "bash: this very call"
