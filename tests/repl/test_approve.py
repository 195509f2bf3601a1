"""What an approval shows: all of it."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence

import pytest
from wcwidth import wcwidth

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import ToolCall
from agentcli.domain.ports import ApprovalRequest, GrantOffer
from agentcli.repl.approve import STOP, WAIT, ApprovalPanel, Questions
from agentcli.repl.panel import PanelMode, Press
from agentcli.ui.rows import Row
from agentcli.ui.screen import Size
from agentcli.ui.theme import PLAIN
from tests.repl.conftest import Start


def offers(rule: str, *, always: bool = False) -> tuple[GrantOffer, ...]:
    return (GrantOffer(rule, session=True, always=always),) if rule else ()


def shown(detail: str, command: str = "", rule: str = "") -> str:
    arguments = {"command": command} if command else {"path": "a\u200b.py"}
    call = ToolCall("c", "bash" if command else "write_file", arguments)
    request = ApprovalRequest(call, "Run it", detail, "writes files", offers(rule))
    return "\n".join(ApprovalPanel(request, PLAIN).lines(PLAIN))


@pytest.mark.spec("SEC-6", "UI-7")
def test_the_tail_of_a_long_command_is_not_hidden() -> None:
    command = "echo " + "x" * 5000 + "; rm -rf ~"
    assert command in shown(f"{command}\n\nin /work", command)


@pytest.mark.spec("SEC-6", "UI-7")
def test_the_command_is_shown_even_when_the_preview_leaves_it_out() -> None:
    text = shown(
        "in /work",
        "rm -rf \u202e~ \U0001bca0\U00013430\ufff0\U0001d159\U00016fe4 a\ufe0f \u2764\ufe0f",
    )
    assert (
        "rm -rf <U+202E>~ <U+1BCA0><U+13430><U+FFF0><U+1D159><U+16FE4> a<U+FE0F> \u2764\ufe0f"
        in text
    )
    assert "in /work" in text


@pytest.mark.spec("SEC-6")
def test_without_a_preview_the_arguments_are_shown() -> None:
    assert '"path": "a<U+200B>.py"' in shown("")


@pytest.mark.spec("SEC-6")
def test_what_a_tool_is_told_beside_a_command_is_shown_with_it() -> None:
    call = ToolCall("c", "run_on", {"command": "ls\nid", "host": "production", "as_root": True})
    text = "\n".join(ApprovalPanel(ApprovalRequest(call, "Run on", "", ""), PLAIN).lines(PLAIN))
    assert "  ls\n  id\n" in text
    assert '"host": "production"' in text and '"as_root": true' in text


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("mark", ["\u21aa ", ""])
@pytest.mark.parametrize("columns", range(20, 100, 7))
def test_a_line_that_goes_on_does_not_look_like_two_commands(columns: int, mark: str) -> None:
    one = "echo 'This clears the directory of the build, as the others do it,' " + "rm -rf ~/" * 9

    def rows(command: str) -> list[str]:
        call = ToolCall("c", "bash", {"command": f"{command}"})
        panel = ApprovalPanel(ApprovalRequest(call, "Run it", "", ""), PLAIN)
        shown = panel.rows(Size(columns, 60), PLAIN, 1.0, mode=PanelMode()).rows
        return [row.text for row in shown]

    spaces = [at for at, char in enumerate(one) if char == " "]
    two = [f"{one[:at]}\n{mark}{one[at + 1 :]}" for at in spaces]
    assert all(rows(each) != rows(one) for each in two)


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("name", ["bash", "edit_file"])
@pytest.mark.parametrize("columns", [20, 40, 80])
def test_in_the_pager_a_line_that_goes_on_does_not_look_like_two(name: str, columns: int) -> None:
    text = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b " + "Why it asks: it only reads " * 9
    arguments = {"command": text} if name == "bash" else {}
    panel = ApprovalPanel(ApprovalRequest(ToolCall("c", name, arguments), "", text, ""), PLAIN)
    rows = panel.paged(columns)
    assert sum(not row.startswith(PLAIN.symbols.wrap) for row in rows) == text.count("\n") + 1
    assert all(row.startswith((f"{PLAIN.symbols.wrap} ", "  ")) for row in rows)
    assert max(map(len, rows)) <= columns


@pytest.mark.spec("SEC-6")
def test_the_end_of_a_command_of_many_lines_is_seen_in_a_small_window() -> None:
    call = ToolCall("c", "bash", {"command": "x\n" * 300 + "rm -rf ~"})
    reason = "it runs a command that is not understood: it is too long to be judged by anybody"
    request = ApprovalRequest(call, "Run", "\n\nin /work, in the sandbox", reason, offers("bash"))
    panel = ApprovalPanel(request, PLAIN)
    rows = panel.rows(Size(80, 21), PLAIN, 1.0, mode=PanelMode()).rows
    assert "  rm -rf ~" in [row.text for row in rows]


@pytest.mark.spec("SEC-6")
def test_no_row_is_wider_where_a_terminal_gives_marks_columns_of_their_own() -> None:
    call = ToolCall("c", "bash", {"command": "echo " + "\U0001d165" * 60 + " ; rm -rf x"})
    panel = ApprovalPanel(ApprovalRequest(call, "Run it", "", ""), PLAIN)
    rows = panel.rows(Size(40, 30), PLAIN, 1.0, mode=PanelMode()).rows
    assert max(len(row.text) for row in rows) <= 40


@pytest.mark.spec("SEC-6")
def test_where_the_reason_goes_on_it_looks_like_no_line_of_the_command() -> None:
    call = ToolCall("c", "bash", {"command": "x\n" * 300 + "rm -rf ~"})
    panel = ApprovalPanel(ApprovalRequest(call, "Run", "", "it runs a command: touch made"), PLAIN)
    shown = panel.rows(Size(40, 18), PLAIN, 1.0, mode=PanelMode()).rows
    assert f"{PLAIN.symbols.wrap} made" in [row.text for row in shown]


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize(
    ("command", "size"),
    [("x\n" * 4_999 + "rm -rf ~", "5,000 lines"), ("x" * 29_999 + ";", "30,000 characters")],
)
def test_how_much_is_not_shown_is_not_told_of_what_is_cut_already(command: str, size: str) -> None:
    call = ToolCall("c", "bash", {"command": command})
    panel = ApprovalPanel(ApprovalRequest(call, "Run it", "", "it runs"), PLAIN)
    rows = [row.text for row in panel.rows(Size(80, 24), PLAIN, 1.0, mode=PanelMode()).rows]
    assert any(row.endswith(f" of {size}; v shows all") for row in rows)


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("echo 'a\tb'", "echo 'a    b'"),
        ("cat <<-A\n\tA\nrm -rf x\nA", "cat <<-A\n    A\nrm -rf x\nA"),
        (f"echo {'a' * 60}\t{'b' * 60}", f"echo {'a' * 60}    {'b' * 60}"),
    ],
)
def test_a_tab_is_not_shown_as_blanks(one: str, other: str) -> None:
    def rows(command: str, columns: int) -> list[str]:
        call = ToolCall("c", "bash", {"command": command})
        panel = ApprovalPanel(ApprovalRequest(call, "Run it", "", ""), PLAIN)
        shown = panel.rows(Size(columns, 40), PLAIN, 0.0, mode=PanelMode()).rows
        return [row.text for row in shown]

    assert all(rows(one, columns) != rows(other, columns) for columns in range(20, 160, 7))
    assert "x<U+0009>y" in shown("", "echo x\ty")
    assert "\n      x\n" in shown("", "if a; then\n\tx\nfi")


@pytest.mark.spec("SEC-6")
def test_a_diff_shows_invisible_characters_and_no_escapes() -> None:
    text = shown("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\u200b\x1b[8m\n")
    assert "1 + b<U+200B><U+001B>[8m" in text


@pytest.mark.spec("SEC-6")
def test_a_task_whose_name_looks_like_a_command_does_not_stand_in_its_place() -> None:
    call = ToolCall("c", "bash", {"command": "rm -rf src"})
    for name in ("list): Run `ls`, not `rm -rf src`", "list"):
        asked = (f"task ({name}): Run `rm -rf src`", "rm -rf src\n\nin /work, in the sandbox", "")
        lines = ApprovalPanel(ApprovalRequest(call, *asked), PLAIN).lines(PLAIN)
        assert ("Run `ls`" in lines[0]) is False, name
        assert ("  rm -rf src" in lines) is (name != "list")


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("name", ["bash", "spawn_background", "mcp__x__run"])
def test_what_only_looks_like_a_diff_is_shown_to_the_letter(name: str) -> None:
    command = "diff a b; touch one\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\n+b\nrm -rf two\nindex 1; touch three"
    arguments = {"command": command} if name == "bash" else {"tool": "bash"}
    call = ToolCall("c", name, arguments)
    request = ApprovalRequest(call, "Run it", f"{command}\n\nin /work", "")
    lines = ApprovalPanel(request, PLAIN).lines(PLAIN)
    assert [f"  {line}" for line in command.split("\n")] == lines[1:9]


@pytest.mark.spec("SEC-6")
def test_a_mark_that_makes_an_emoji_is_seen_where_there_is_none() -> None:
    command = "./\u00e9\ufe0f; ./\u65e5\ufe0f; \ufe0fls; echo \u2764\ufe0f\ufe0f \U0001f3f3\ufe0f"
    text = shown(command, command)
    assert "./\u00e9<U+FE0F>; ./\u65e5<U+FE0F>; <U+FE0F>ls" in text
    assert "echo \u2764\ufe0f<U+FE0F> \U0001f3f3\ufe0f" in text


@pytest.mark.spec("UI-7")
def test_the_arguments_of_a_servers_tool_are_not_said_twice() -> None:
    call = ToolCall("c", "mcp_call", {"server": "ex", "tool": "add"})
    asked = ('ex: add {"first": 2, "second": …', '{\n  "first": 2,\n  "second": 30\n}\nAdds.')
    lines = ApprovalPanel(ApprovalRequest(call, *asked, ""), PLAIN).lines(PLAIN)
    assert lines[:3] == ["Allow this? ex: add", "  {", '    "first": 2,']


@pytest.mark.spec("UI-7")
def test_it_says_why_and_what_for_this_session_would_allow() -> None:
    text = shown("x", rule="bash(rm *)")
    assert "Why it asks: writes files" in text
    assert "yes, for this session: bash(rm *)" in text


@pytest.mark.spec("SEC-6")
def test_a_command_of_a_megabyte_is_bounded_and_all_of_it_can_be_viewed() -> None:
    text = shown("", "echo " + "x\n" * 500_000 + "rm -rf ~")
    assert len(text) < 30_000
    assert "rm -rf ~\n" in text
    assert "v  view all of it" in text
    assert "v  view" not in shown("", "ls")


@pytest.mark.spec("SEC-6")
def test_a_diff_names_what_is_deleted_and_what_is_moved() -> None:
    text = shown(
        "--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
        "--- a/old.py\n+++ b/new.py\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/made\n@@ -0,0 +1 @@\n+x\n"
    )
    assert "\ngone.py (deleted)\n" in text
    assert "\nold.py -> new.py\n" in text
    assert "\nmade\n" in text and "/dev/null" not in text


@pytest.mark.spec("SEC-6")
def test_no_run_of_blanks_pushes_a_part_of_a_diff_away() -> None:
    text = shown("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b" + " " * 5000 + "; evil\n")
    assert "1 + b<U+0020 x 5000>; evil" in text
    assert "v  view all" not in text


@pytest.mark.spec("SEC-6")
def test_a_long_line_of_a_diff_keeps_its_tail() -> None:
    text = shown("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+" + "b" * 100_000 + "; evil\n")
    assert "; evil" in text
    assert len(text) < 30_000
    assert "v  view all" in text


@pytest.mark.spec("UI-1", "UI-7")
def test_a_long_line_of_a_diff_goes_on_below_its_code() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+    total = price * quantity + shipping\n"
    request = ApprovalRequest(ToolCall("c", "edit_file", {}), "Edit x", diff, "", ())
    panel = ApprovalPanel(request, PLAIN)
    rows = panel.rows(Size(30, 24), PLAIN, 0.0, mode=PanelMode())
    shown = [row.text for row in rows.rows]
    at = shown.index("    1 +     total = price *")
    assert shown[at + 1].lstrip(" ").startswith(PLAIN.symbols.wrap)
    assert shown[at + 1].index("quantity") == shown[at].index("+") + 2


@pytest.mark.spec("SEC-6", "UI-7")
@pytest.mark.parametrize("lines", [8, 10, 14])
@pytest.mark.parametrize("key", ["", "down"])
def test_the_subject_is_seen_beside_long_rules_in_a_small_window(lines: int, key: str) -> None:
    command = "rm -rf build && make all CFLAGS=-O2 && " + "echo word && " * 6 + "true"
    call = ToolCall("c", "bash", {"command": command})
    given = offers(f"bash({command})", always=True)
    panel = ApprovalPanel(ApprovalRequest(call, "Run it", command, "why", given), PLAIN)
    panel.open(0.0, has_text=False)
    for columns in (120, 40):  # from wide to narrow
        if key:
            panel.press(Press(key), 1.0, more=False)
        rows = panel.rows(Size(columns, lines), PLAIN, 2.0, mode=PanelMode())
    shown = [row.text for row in rows.rows]
    assert len(shown) <= lines
    assert shown[1].strip().startswith("rm -rf build" if lines > 10 or not key else "")
    assert shown[rows.cursor].startswith(">")


@pytest.mark.spec("SEC-6", "UI-7")
@pytest.mark.parametrize(("columns", "lines"), [(200, 48), (80, 22), (60, 18), (40, 12)])
@pytest.mark.parametrize("separator", [" && echo word", "\necho line"])
def test_the_end_of_a_long_command_is_seen_beside_why_it_asks(
    columns: int, lines: int, separator: str
) -> None:
    command = separator.lstrip("& \n") + separator * 300 + "; rm -rf ~"
    call = ToolCall("c", "bash", {"command": command})
    reason = f"it runs a command: {command[:200]}"
    detail = f"{command}\n\nin /work/with/a/long/name, OUTSIDE the sandbox"
    request = ApprovalRequest(call, "Run it", detail, reason, offers("bash(echo *)", always=True))
    panel = ApprovalPanel(request, PLAIN)
    panel.open(0.0, has_text=False)
    rows = panel.rows(Size(columns, lines), PLAIN, 2.0, mode=PanelMode())
    shown = [row.text for row in rows.rows]
    assert len(shown) <= lines
    assert shown[1].strip().startswith("echo") and any(row.endswith("rm -rf ~") for row in shown)
    is_all = sum(row.count("echo") for row in shown) > 300
    assert is_all or any("; v shows all" in row for row in shown)
    assert lines < 20 or any("OUTSIDE" in row for row in shown)


@pytest.mark.spec("UI-7", "SEC-3")
def test_what_asks_every_time_offers_no_lasting_yes() -> None:
    assert "for this session" not in shown("x", rule="")


@pytest.mark.spec("UI-7")
def test_always_shows_the_rule_that_is_written() -> None:
    call = ToolCall("c", "bash", {"command": "make"})
    request = ApprovalRequest(call, "Run make", "", "", offers("bash(make)", always=True))
    text = "\n".join(ApprovalPanel(request, PLAIN).lines(PLAIN))
    assert "  3 a  yes, always, in every session (saved in config.toml): bash(make)\n" in text


@pytest.mark.spec("SEC-6", "UI-7")
def test_the_reason_stays_one_line() -> None:
    call = ToolCall("c", "bash", {"command": "ls"})
    request = ApprovalRequest(call, "Run", "", "it runs a command: a\n  y  yes, once" + "x" * 9999)
    (why,) = [line for line in ApprovalPanel(request, PLAIN).lines(PLAIN) if "Why it asks" in line]
    assert "a<U+000A>  y" in why
    assert len(why) < 500


@pytest.mark.slow
@pytest.mark.spec("SEC-6", "UI-7")
def test_all_of_a_long_command_can_be_viewed_before_the_answer(start: Start) -> None:
    terminal = start(PAGER="/bin/cat")

    def text() -> str:
        return re.sub(r"[\r\n]+ *", "", terminal.text())

    terminal.send("longapprove")
    terminal.key("enter")
    terminal.wait_for("v shows all")
    assert "line1500;" not in text()
    assert "line2999; tail" in text()
    terminal.wait_for("Enter confirms")
    terminal.send("v")
    terminal.wait_until(lambda: "line1500;" in text())
    terminal.wait_for("Allow this?")
    terminal.confirm("y")
    terminal.wait_for("verdict once")


@pytest.mark.spec("SEC-6", "UI-7", "UI-10")
def test_line_by_line_only_a_choice_and_enter_answer(start: Start) -> None:
    terminal = start(PAGER="/bin/cat", TERM="dumb", ready=">")
    terminal.line("longapprove")
    terminal.wait_for("v  view all of it")
    terminal.wait_for("Answer:")
    terminal.line("v")
    terminal.wait_until(lambda: b"line1500;" in terminal.raw)
    terminal.wait_until(lambda: terminal.raw.count(b"Answer:") == 2)
    terminal.line("yonder is a better way")
    terminal.wait_until(lambda: terminal.raw.count(b"Answer:") == 3)
    assert b"the question still waits" in terminal.raw
    assert "verdict" not in terminal.text()
    terminal.line("y")
    terminal.wait_for("verdict once")


# --- Only a clear yes lets the chat wait


class Answered(Questions):
    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def ask(self, question: str, options: Sequence[str]) -> str:
        self.asked.append((question, tuple(options)))
        return self.text


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(
    ("said", "waits"),
    [(WAIT, True), ("y", True), ("Yes ", True), ("wait", True), ("", False), (STOP, False),
     ("no", False), ("n", False), ("3", False), ("why?", False)],
)  # fmt: skip
def test_only_a_clear_yes_waits(said: str, waits: bool) -> None:
    user = Answered(said)
    error = ProviderError(
        "p at h limits the rate of requests (429)", "retry after 14:05, in 42 min",
        kind=ErrorKind.RATE_LIMIT,
    )  # fmt: skip
    assert asyncio.run(user.offer(error, 2520.0)) is waits
    ((question, options),) = user.asked
    assert "p at h" in question and "14:05, in 42 min" in question
    assert options == (WAIT, STOP)


@pytest.mark.spec("UI-7")
def test_one_line_stays_in_the_place_of_the_call_that_asked(start: Start) -> None:
    terminal = start()
    terminal.line("agents make")
    terminal.confirm("y")
    terminal.wait_until(lambda: terminal.text().count("finished") == 2)
    text = terminal.text()
    assert "Allow this?" not in text
    assert (
        text.index("Agent t1") < text.index("Agent t2") < text.index("you: yes, once (scout: Run")
    )


@pytest.mark.spec("UI-7")
def test_a_rule_can_be_edited_and_a_wrong_one_is_not_taken(start: Start) -> None:
    terminal = start()
    terminal.line("approve make clean")
    terminal.wait_for("Enter confirms")
    terminal.send("s")
    terminal.wait_for("Tab edits the rule")
    terminal.key("tab")
    terminal.wait_for("Rule: bash(x)")
    terminal.send("(")
    terminal.wait_for("Rule: bash(x)(")
    terminal.key("enter")
    terminal.wait_for("not a permission rule")
    terminal.wait_for("Rule: bash(x)(")
    terminal.key("backspace")
    terminal.key("backspace")
    terminal.send(" *)")
    terminal.wait_for("Rule: bash(x *)")
    terminal.key("enter")
    terminal.wait_for("yes, for this session: bash(x *)   or bash(x)")
    terminal.wait_for("Enter confirms")
    terminal.key("enter")
    terminal.wait_for("you: yes, for this session: bash(x *)")


WORDS = ("yes", "no", "say", "any", "always", "stop", "r", "a", "why", "view", "navy", "1", "it")


@pytest.mark.spec("UI-7")
@pytest.mark.parametrize("number", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_sentences_typed_into_an_open_approval_grant_nothing(start: Start, number: int) -> None:
    chance = random.Random(7)
    terminal = start()
    terminal.line("approve rm -rf build")
    terminal.wait_for("Enter confirms")
    for at in range(number):
        words = chance.choices(WORDS, k=chance.randint(2, 5))
        terminal.line(" ".join(words))
        shown = f"└ {' '.join(words)}" if at < 3 else f"… {at - 2} more"
        terminal.wait_for(shown)
    assert "verdict" not in terminal.text()
    assert "Allow this? Run rm -rf build" in terminal.text()
    terminal.key("esc")
    terminal.wait_for("Cancelled.")
    assert "verdict" not in terminal.text()


@pytest.mark.spec("UI-7")
def test_what_is_pasted_into_an_open_approval_grants_nothing(start: Start) -> None:
    terminal = start()
    terminal.line("approve rm -rf build")
    terminal.wait_for("Enter confirms")
    for text in ("y", "yes\nyes\n", "1"):
        terminal.paste(text)
        terminal.wait_for("Enter queues your text")
        terminal.line("")
        terminal.wait_for("Enter confirms")
    assert "> 1 y" not in terminal.text(), "the selection is back at the one that does no harm"
    terminal.line("")
    terminal.wait_for("verdict no")


@pytest.mark.spec("UI-7")
def test_keys_pressed_as_an_approval_appears_grant_nothing(start: Start) -> None:
    terminal = start(PLAY_GUARD_S="3600")
    terminal.line("approve rm -rf build")
    terminal.wait_for("Allow this?")
    terminal.key("enter")
    terminal.send("y")
    terminal.wait_for("\n> y")
    terminal.line("")
    terminal.wait_for("└ y")
    terminal.key("enter")
    terminal.key("esc")
    terminal.wait_for("Cancelled.")
    assert "verdict" not in terminal.text()


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"rm -rf /tmp/{'x' * 73} /srv", f"rm -rf /tmp/{'x' * 73}/srv"),
        (f"touch {'x' * 28} /srv", f"touch {'x' * 28}/srv"),
        (f"rm -rf /{'数' * 39} 据", f"rm -rf /{'数' * 39}据"),
        (f"echo '{'a' * 60}{' ' * 30}b'", f"echo '{'a' * 60}{' ' * 31}b'"),
    ],
)
def test_commands_that_differ_by_a_blank_differ_in_every_window(one: str, other: str) -> None:
    def rows(command: str, columns: int) -> list[Row]:
        call = ToolCall("c", "bash", {"command": command})
        panel = ApprovalPanel(ApprovalRequest(call, f"Run `{command}`", "", ""), PLAIN)
        return panel.rows(Size(columns, 40), PLAIN, 0.0, mode=PanelMode()).rows

    assert all(rows(one, columns) != rows(other, columns) for columns in range(20, 160))


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("columns", [20, 40, 80])
@pytest.mark.parametrize("lines", [16, 200])
def test_no_row_of_a_question_is_wider_than_the_window_whatever_a_terminal_joins(
    columns: int, lines: int
) -> None:
    signs = ("\U0001f1e9a", "a" + "\U0001f3fb" * 40, "\U0001f1e9\U0001f1ea", "\U0001b123", "\u754c")
    for sign in signs:
        command = f"touch x\n{sign * 100}"
        call = ToolCall("c", "bash", {"command": command})
        request = ApprovalRequest(
            call, f"Run {command}", command, "why", offers(f"bash({sign * 60})")
        )
        panel = ApprovalPanel(request, PLAIN)
        for row in panel.rows(Size(columns, lines), PLAIN, 9.0, mode=PanelMode()).rows:
            assert sum(max(0, wcwidth(char)) for char in row.text) <= columns, ascii(row.text)


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("tabs", range(7))
@pytest.mark.parametrize("columns", [30, 40, 80])
def test_the_tail_of_a_line_behind_tabs_is_not_hidden(columns: int, tabs: int) -> None:
    for size in range(columns):
        text = "\t" * tabs + "x" * size + ";evil"
        detail = f"--- a/m\n+++ b/m\n@@ -1 +1 @@\n-{text}\n+{text}\n"
        call = ToolCall("c", "edit_file", {"path": "m"})
        panel = ApprovalPanel(ApprovalRequest(call, "Edit m", detail, "why", ()), PLAIN)
        rows = panel.rows(Size(columns, 200), PLAIN, 9.0, mode=PanelMode()).rows
        seen = re.sub(r"\W", "", "".join(row.text for row in rows))
        assert seen.count("x" * size + "evil") == 2, (size, rows)
