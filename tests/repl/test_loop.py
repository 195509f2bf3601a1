"""The chat at a real terminal, with a session that plays (``chat_program``)."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.repl.chat import Start, at_prompt

pytestmark = pytest.mark.sampled


@pytest.mark.spec("UI-1")
def test_the_answer_is_shown_as_rendered_markdown(start: Start) -> None:
    terminal = start()
    terminal.line("say hello")
    terminal.wait_for("You said hello.")
    assert b"\x1b[1mhello" in terminal.raw


@pytest.mark.spec("CLI-2")
def test_a_first_prompt_is_sent_without_being_typed(start: Start) -> None:
    terminal = start("--first", "say at once", ready="You said at once.")
    assert "> say at once" in terminal.text()


@pytest.mark.spec("UI-2")
def test_a_tool_call_is_a_line_with_outcome_duration_and_preview(start: Start) -> None:
    terminal = start()
    terminal.line("tool ls")
    terminal.wait_for("exit 0 · 1.2 s")
    lines = terminal.screen()
    at = next(n for n, line in enumerate(lines) if line.startswith("● Run ls"))
    assert [line.strip() for line in lines[at + 1 : at + 4]] == [
        "└ exit 0 · 1.2 s",
        "first line",
        "second line",
    ]


@pytest.mark.slow
@pytest.mark.spec("UI-2")
def test_a_running_command_shows_its_last_lines(start: Start) -> None:
    terminal = start()
    terminal.line("tool wait")
    terminal.wait_for(re.compile(r"Run wait · [\d.]+ s\n +first line\n +second line"))


@pytest.mark.spec("CAN-13")
@pytest.mark.parametrize("key", ["ctrl-c", "esc"])
def test_ctrl_c_or_esc_while_working_cancels_and_keeps_the_chat(start: Start, key: str) -> None:
    terminal = start()
    terminal.line("hang")
    terminal.wait_for("thinking about it")
    terminal.key(key)
    terminal.wait_for("Cancelled.")
    at_prompt(terminal)
    terminal.line("say still here")
    terminal.wait_for("You said still here.")


@pytest.mark.spec("CAN-13")
def test_sigint_from_outside_is_ctrl_c(start: Start) -> None:
    terminal = start()
    terminal.line("hang")
    terminal.wait_for("thinking about it")
    terminal.kill(signal.SIGINT)
    terminal.wait_for("Cancelled.")
    at_prompt(terminal)
    terminal.kill(signal.SIGINT)
    terminal.wait_for("To leave, press Ctrl-C again")


@pytest.mark.spec("CAN-13")
def test_a_second_ctrl_c_during_a_cancel_forces(start: Start) -> None:
    terminal = start()
    terminal.line("stubborn")
    terminal.wait_for("I will not stop")
    terminal.key("ctrl-c")
    terminal.wait_for("Stopping")
    assert "it was forced" not in terminal.text()
    terminal.key("ctrl-c")
    terminal.wait_for("it was forced")
    at_prompt(terminal)


@pytest.mark.spec("CAN-13")
def test_ctrl_c_at_the_empty_prompt_hints_and_then_leaves(start: Start) -> None:
    terminal = start()
    terminal.key("ctrl-c")
    terminal.wait_for("To leave, press Ctrl-C again")
    terminal.key("ctrl-c")
    assert terminal.wait_exit() == 0
    assert terminal.restored


@pytest.mark.spec("CAN-13")
def test_ctrl_c_clears_what_was_typed(start: Start) -> None:
    terminal = start()
    terminal.send("half a thought")
    terminal.wait_for("> half a thought")
    terminal.key("ctrl-c")
    terminal.wait_gone("half a thought")
    at_prompt(terminal)
    assert "To leave" not in terminal.text()


@pytest.mark.slow
@pytest.mark.spec("CAN-13", "UI-9")
def test_ctrl_d_on_the_empty_prompt_leaves_and_says_how_to_come_back(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.line("say x")
    terminal.wait_for("You said x.")
    at_prompt(terminal)
    terminal.key("ctrl-d")
    assert terminal.wait_exit() == 0
    text = terminal.text()
    assert re.search(r"Resume with: agent resume [0-9a-f-]{36}\n", text + "\n")
    assert "1 turn · 100 in, 5 out · cost $0.01" in text
    assert (tmp_path / "closed").exists()


@pytest.mark.spec("CAN-13")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
@pytest.mark.parametrize("state", ["idle", "working"])
def test_end_signals_cancel_close_the_session_and_exit(
    start: Start, tmp_path: Path, state: str, number: int, code: int
) -> None:
    terminal = start()
    if state == "working":
        terminal.line("hang")
        terminal.wait_for("thinking about it")
    terminal.kill(number)
    assert terminal.wait_exit() == code
    assert (tmp_path / "closed").exists()
    assert terminal.restored
    if state == "working":
        assert "Cancelled" in terminal.text()


@pytest.mark.slow
@pytest.mark.spec("OPS-1")
@pytest.mark.parametrize("state", ["idle", "working", "asking"])
def test_a_window_that_is_closed_ends_the_chat(start: Start, tmp_path: Path, state: str) -> None:
    terminal = start()
    if state == "working":
        terminal.line("hang")
        terminal.wait_for("thinking about it")
    elif state == "asking":
        terminal.line("ask")
        terminal.wait_for("Your answer:")
    terminal.hang_up()
    assert terminal.wait_exit() == 129
    assert (tmp_path / "closed").exists()


@pytest.mark.spec("OPS-1")
def test_the_terminal_is_restored_after_a_bug(start: Start) -> None:
    terminal = start()
    terminal.line("crash")
    assert terminal.wait_exit() == 1
    assert terminal.restored


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_text_typed_while_the_agent_works_is_in_the_next_prompt(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.line(f"busy {tmp_path}/go")
    terminal.wait_for("busy\n")
    terminal.send("next thought")
    terminal.wait_for("> next thought")
    (tmp_path / "go").touch()
    terminal.wait_gone("Esc or Ctrl-C stops")
    assert "> next thought" in terminal.screen()


@pytest.mark.spec("UI-3")
def test_a_message_sent_while_the_agent_works_is_the_next_turn(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.line(f"busy {tmp_path}/go")
    terminal.wait_for("busy\n")
    terminal.line("say second")
    (tmp_path / "go").touch()
    terminal.wait_for("You said second.")


@pytest.mark.spec("UI-3")
def test_a_message_sent_before_the_first_prompt_is_not_lost(start: Start) -> None:
    terminal = start(ready="")
    terminal.line("say early")
    terminal.wait_for("You said early.")


@pytest.mark.spec("UI-3")
def test_what_was_queued_waits_after_a_cancel_and_goes_with_the_next_enter(start: Start) -> None:
    terminal = start()
    terminal.line("hang")
    terminal.wait_for("thinking about it")
    terminal.line("say one")
    terminal.line("say two")
    terminal.wait_for("say two")
    terminal.key("ctrl-c")
    terminal.wait_for("sent with the next Enter")
    at_prompt(terminal)
    assert "You said" not in terminal.text()
    terminal.key("enter")
    terminal.wait_for("You said two.")
    text = terminal.text()
    assert text.index("> say one") < text.index("You said one.") < text.index("> say two")
    assert "Queued" not in text


@pytest.mark.spec("UI-3")
@pytest.mark.parametrize("new_line", ["ctrl-j", "alt-enter", "\\"])
def test_several_lines_are_one_message(start: Start, new_line: str) -> None:
    terminal = start()
    terminal.send("echo one")
    if new_line == "\\":
        terminal.line("\\")
    else:
        terminal.key(new_line)
    terminal.line("two")
    terminal.wait_for("echo one\n  two!")


@pytest.mark.spec("UI-3")
def test_a_paste_of_many_lines_is_one_message(start: Start) -> None:
    terminal = start()
    terminal.paste("echo alpha\nbeta\ngamma")
    terminal.wait_for("gamma")
    assert "gamma!" not in terminal.text()
    terminal.key("enter")
    terminal.wait_for("echo alpha\n  beta\n  gamma!")


@pytest.mark.spec("UI-13")
def test_a_burst_of_lines_that_is_not_marked_as_a_paste_is_one_message(start: Start) -> None:
    terminal = start()
    terminal.send("".join(f"count {number}\r" for number in range(200)))
    terminal.wait_for("200 lines, the last is count 199")
    at_prompt(terminal)
    assert terminal.text().count("lines, the last is") == 1


@pytest.mark.spec("UI-3")
def test_a_paste_while_the_agent_works_is_not_sent_line_by_line(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.line(f"busy {tmp_path}/go")
    terminal.wait_for("busy\n")
    terminal.paste("say alpha\nbeta")
    (tmp_path / "go").touch()
    terminal.wait_for("> say alpha")
    terminal.wait_for("beta")
    assert "You said" not in terminal.text()


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_earlier_prompts_survive_a_restart_and_are_found_with_ctrl_r(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.line("say a needle in hay")
    terminal.wait_for("You said a needle in hay.")
    at_prompt(terminal)
    terminal.key("ctrl-d")
    assert terminal.wait_exit() == 0
    assert next(tmp_path.rglob("history")).stat().st_mode & 0o777 == 0o600
    again = start()
    again.key("ctrl-r")
    again.send("needle")
    again.wait_for("say a needle in hay")


@pytest.mark.spec("UI-7")
@pytest.mark.parametrize(
    ("keys", "verdict"), [("y", "once"), ("", "once"), ("2", "session"), ("s", "session"),
                          ("\x1b[B", "session"), ("n", "no")]
)  # fmt: skip
def test_a_choice_is_moved_to_and_confirmed(start: Start, keys: str, verdict: str) -> None:
    terminal = start()
    terminal.line("approve rm -rf build")
    terminal.wait_for("Enter confirms")
    assert "rm -rf build" in terminal.text()
    assert "in /work" in terminal.text()
    terminal.confirm(keys)
    terminal.wait_for(f"verdict {verdict} reason ''")
    at_prompt(terminal)


@pytest.mark.spec("UI-7")
def test_a_no_may_carry_a_reason_for_the_model(start: Start) -> None:
    terminal = start()
    terminal.line("approve rm -rf build")
    terminal.confirm("r")
    terminal.wait_for("waiting for your reason")
    terminal.key("esc")
    terminal.confirm("r")
    terminal.wait_for("because:")
    terminal.line("use make clean")
    terminal.wait_for("verdict no reason 'use make clean'")


@pytest.mark.spec("UI-7", "CAN-9")
def test_ctrl_c_at_an_approval_is_no_and_cancels(start: Start) -> None:
    terminal = start()
    terminal.line("approve rm -rf build")
    terminal.wait_for("Enter confirms")
    terminal.key("ctrl-c")
    terminal.wait_for("Cancelled.")
    assert "verdict" not in terminal.text()
    at_prompt(terminal)


@pytest.mark.spec("UI-7")
def test_an_answer_given_right_after_another_counts(start: Start) -> None:
    terminal = start()
    for number in (1, 2, 3):
        terminal.line(f"approve make {number}")
        terminal.wait_for(f"Allow this? Run make {number}")
        terminal.confirm("y")
        terminal.wait_until(lambda: terminal.text().count("verdict once") == number)
        at_prompt(terminal)


@pytest.mark.spec("UI-7")
def test_keys_typed_before_an_approval_appears_do_not_answer_it(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.line(f"busyapprove {tmp_path}/go")
    terminal.wait_for("busy\n")
    terminal.send("yes y")
    terminal.wait_for("> yes y")
    (tmp_path / "go").touch()
    terminal.wait_for("empty it to choose")
    terminal.send("y")
    terminal.wait_for("> yes yy")
    assert "verdict" not in terminal.text()
    terminal.key("ctrl-u")
    terminal.wait_for(re.compile(r"> \d n  no$", re.MULTILINE))
    terminal.key("ctrl-c")
    terminal.wait_for("Cancelled.")
    assert "verdict" not in terminal.text()


@pytest.mark.spec("SEC-6")
def test_an_approval_spells_out_what_cannot_be_seen(start: Start) -> None:
    terminal = start()
    terminal.paste("approve echo \u202egpj.exe")
    terminal.key("enter")
    terminal.wait_for("echo <U+202E>gpj.exe")


@pytest.mark.slow
@pytest.mark.spec("TOOL-5")
def test_a_question_of_the_model_is_answered_by_number_or_in_words(start: Start) -> None:
    terminal = start()
    terminal.line("ask")
    terminal.wait_for("Enter answers")
    terminal.line("2")
    terminal.wait_for("answer 'blue'")
    at_prompt(terminal)
    terminal.line("ask")
    terminal.wait_for("Enter answers")
    terminal.line("green")
    terminal.wait_for("answer 'green'")


@pytest.mark.spec("STR-2")
def test_a_retry_wait_is_shown_and_can_be_cancelled(start: Start) -> None:
    terminal = start()
    terminal.line("retry")
    terminal.wait_for("Retrying in 4 s (2/3) · overloaded · Ctrl-C to stop")
    terminal.key("ctrl-c")
    terminal.wait_for("Cancelled.")


@pytest.mark.spec("STR-9")
def test_an_error_is_shown_with_its_advice(start: Start) -> None:
    terminal = start()
    terminal.line("fail")
    terminal.wait_for("✗ no key")
    terminal.wait_for("set PLAY_API_KEY")
    at_prompt(terminal)


@pytest.mark.spec("UI-8", "REC-4")
def test_an_interrupted_session_is_resumed_with_what_there_is_to_know(start: Start) -> None:
    terminal = start("--interrupted")
    text = terminal.text()
    assert "Resumed: fix the parser" in text
    assert "1 h ago, 2 turns; it was cancelled." in text
    assert "> please fix it" in text
    assert "It is fixed." in text


@pytest.mark.spec("UI-5")
def test_an_unknown_command_names_near_ones_and_keeps_the_text(start: Start) -> None:
    terminal = start()
    terminal.line("/sesions now")
    terminal.wait_for("There is no command /sesions. Did you mean /sessions")
    terminal.wait_until(lambda: terminal.text().count("> /sesions now") == 2)


@pytest.mark.spec("UI-10")
@pytest.mark.parametrize("how", [{"TERM": "dumb"}, {"PLAY_SCREEN_READER": "1"}])
def test_what_was_typed_line_by_line_is_not_printed_again(start: Start, how: Any) -> None:
    terminal = start("--first", "say zero", ready="You said", **how)
    terminal.wait_for("> say zero")
    terminal.line("say one")
    terminal.wait_for("You said one")
    terminal.line("/status")
    terminal.wait_until(lambda: terminal.text().count("model-1") == 2)
    assert terminal.text().count("> say one") == 1
    assert terminal.text().count("> /status") == 1


@pytest.mark.slow
@pytest.mark.spec("UI-10", "UI-7")
def test_line_by_line_the_answer_to_a_question_stands_below_its_call(start: Start) -> None:
    terminal = start(PLAY_SCREEN_READER="1", ready=">", COLS="40")
    terminal.line("callapprove make")
    terminal.wait_for("Answer:")
    terminal.line("y")
    terminal.wait_for("exit 0")
    shown = terminal.text()
    assert "Tool: Run make\n  You: yes, once\n  Result: exit 0" in shown
    terminal.line("markdown")
    terminal.wait_for("That is all.")
    shown = terminal.text()
    said = shown[shown.index("Two things") :]
    assert not set("`*|") & set(said)
    assert "file: parser.py\nlines: 120" in said
    assert "The parser reads one line too many, so\nthat a paragraph" in said


@pytest.mark.spec("UI-5")
def test_an_unknown_command_is_refused_at_once_while_the_agent_works(start: Start) -> None:
    terminal = start()
    terminal.line("busy never")
    terminal.wait_for(re.compile("^◆ busy$", re.MULTILINE))
    terminal.line("/xyzzy")
    terminal.wait_for("There is no command /xyzzy. /help lists the commands.")
    terminal.wait_for("> /xyzzy")


@pytest.mark.spec("UI-5")
def test_a_path_at_the_start_is_a_message(start: Start) -> None:
    terminal = start()
    terminal.line("/etc/hosts what is it")
    terminal.wait_for("You said what is it.")


@pytest.mark.spec("UI-5")
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/help", "new line"),
        ("/sessions", "fix the parser"),
        ("/model play/model-2", "play/model-2 answers from now on."),
        ("/model nope", "no model nope - see /model"),
        ("/cost", "Nothing was used yet."),
        ("/status", "permissions  default"),
        ("/rename my work", "This session is now called my work"),
        ("/rename", "a session needs a name"),
        ("/todos", "[x] first thing"),
        ("/new", "A new session."),
        ("/clear", "A new session."),
        ("/resume 0190aaaa", "Resumed: fix the parser"),
        ("/resume nothing", "no session nothing"),
        ("/export", "Written to"),
        ("/export pdf", "cannot export as 'pdf'"),
        ("/export ~nobody.at.all/x.md", "cannot find the home"),
    ],
)
def test_slash_commands_do_what_they_say(start: Start, command: str, shown: str) -> None:
    terminal = start()
    terminal.line(command)
    terminal.wait_for(shown)
    at_prompt(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-5")
@pytest.mark.parametrize("command", ["/exit", "/quit"])
def test_leaving_by_command(start: Start, command: str) -> None:
    terminal = start()
    terminal.line(command)
    assert terminal.wait_exit() == 0


@pytest.mark.spec("UI-5")
def test_an_export_is_a_private_file_that_is_never_overwritten(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.line("/export json out.json")
    terminal.wait_for("Written to")
    assert "hello export" in (tmp_path / "out.json").read_text()
    assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o600
    terminal.line("/export json out.json")
    terminal.wait_for("exists already")


@pytest.mark.slow
@pytest.mark.spec("UI-8")
def test_the_picker_is_searched_by_typing_and_opened_with_enter(start: Start) -> None:
    terminal = start()
    terminal.line("/resume")
    terminal.wait_for("Resume which session?")
    terminal.send("docs")
    terminal.wait_for("1 found")
    terminal.key("enter")
    terminal.wait_for("Resumed: write the docs")
    at_prompt(terminal)
    terminal.line("/resume")
    terminal.wait_for("2 found")
    terminal.key("esc")
    at_prompt(terminal)


@pytest.mark.spec("UI-4")
def test_commands_and_files_are_completed(start: Start, tmp_path: Path) -> None:
    (tmp_path / "unusual_name.py").touch()
    terminal = start()
    terminal.send("/stat")
    terminal.wait_for("session, directory, model")
    terminal.key("ctrl-c")
    terminal.send("look at @unus")
    terminal.wait_for(re.compile(r"\n +unusual_name\.py"))
    terminal.key("tab")
    terminal.wait_for("> look at @unusual_name.py")


@pytest.mark.slow
@pytest.mark.spec("UI-10")
def test_a_dumb_terminal_gets_plain_text(start: Start) -> None:
    terminal = start(TERM="dumb", ready="\n>")
    terminal.line("say **x**")
    terminal.wait_for("You said x.")
    terminal.line("tool ls")
    terminal.wait_for("exit 0 · 1.2 s")
    terminal.line("tool wait")
    terminal.wait_for("● Run wait")
    terminal.key("ctrl-c")
    terminal.wait_for("Cancelled.")
    assert b"\x1b[" not in terminal.raw.replace(b"\x1b[?2004h", b"").replace(b"\x1b[?2004l", b"")
    terminal.key("ctrl-d")
    assert terminal.wait_exit() == 0


@pytest.mark.spec("CAN-13", "OPS-1")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)]
)
def test_signals_reach_the_prompt_of_a_dumb_terminal(
    number: signal.Signals, code: int, start: Start
) -> None:
    terminal = start(TERM="dumb", ready="\n>")
    terminal.process.send_signal(number)
    if number is signal.SIGINT:
        terminal.wait_for("To leave, press Ctrl-C again")
        terminal.process.send_signal(number)
    assert terminal.wait_exit() == code


@pytest.mark.spec("CAN-13")
def test_ctrl_c_at_the_prompt_of_a_dumb_terminal_clears_then_hints_then_leaves(
    start: Start,
) -> None:
    terminal = start(TERM="dumb", ready="\n>")
    terminal.send("half a line")
    terminal.key("ctrl-c")
    terminal.wait_for("half a line\n>")
    terminal.line("say more")
    terminal.wait_for(re.compile(r"You said more\.[^>]*\n>\s*$"))
    terminal.key("ctrl-c")
    terminal.wait_for("To leave, press Ctrl-C again")
    terminal.key("ctrl-c")
    assert terminal.wait_exit() == 0


@pytest.mark.slow
@pytest.mark.spec("UI-10")
def test_no_color_leaves_no_colour_but_bold(start: Start) -> None:
    terminal = start(NO_COLOR="1")
    terminal.line("say `x` **y**")
    terminal.wait_for("You said x y.")
    terminal.line("fail")
    terminal.wait_for("set PLAY_API_KEY")
    assert not re.search(rb"\x1b\[[\d;]*\b(3[0-7]|9[0-7]|4[0-7])\b[\d;]*m", terminal.raw)


@pytest.mark.spec("CLI-12", "UI-1")
def test_twenty_columns_and_resizing_leave_the_text_whole(start: Start) -> None:
    terminal = start(COLS="20", ROWS="20", ready="> Ask")
    terminal.line("stream 60")
    terminal.wait_for("word59")
    terminal.resize(20, 60)
    terminal.line("say after")
    terminal.wait_for("You said after.")
    terminal.resize(5, 10)
    terminal.resize(30, 100)
    terminal.line("say big again")
    terminal.wait_for("You said big again.")


def context_switches(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return sum(int(n) for n in re.findall(r"ctxt_switches:\s+(\d+)", text))


@pytest.mark.slow
@pytest.mark.spec("UI-1")
def test_an_idle_chat_writes_nothing_and_never_wakes(start: Start) -> None:
    terminal = start()
    terminal.line("say x")
    terminal.wait_for("You said x.")
    at_prompt(terminal)
    terminal.send("half a thought")
    terminal.wait_for("> half a thought")
    pid = terminal.process.pid
    counts = []
    for _ in range(6):
        time.sleep(0.5)  # the measurement itself: how often the program wakes up in that time
        counts.append((context_switches(pid), len(terminal.raw)))
    assert counts[-1] == counts[2]


@pytest.mark.spec("UI-12", "UI-10")
@pytest.mark.parametrize("how", [{"TERM": "dumb"}, {"PLAY_SCREEN_READER": "1"}])
def test_line_by_line_the_transcript_is_a_command(start: Start, how: dict[str, str]) -> None:
    terminal = start("--interrupted", ready=">", **how)
    terminal.line("/transcript")
    terminal.wait_for("all that it printed", scrolled=True)
    assert "It is fixed." in terminal.text()
