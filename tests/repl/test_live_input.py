"""The input that is always there, as a person at a terminal sees and uses it."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from tests.repl.chat import Start, at_prompt
from tests.support.pty_driver import Terminal

pytestmark = pytest.mark.sampled


def busy(start: Start, tmp_path: Path, **env: str) -> Terminal:
    """A chat whose agent works until ``tmp_path/go`` exists."""
    terminal = start(**env)
    terminal.line(f"busy {tmp_path}/go")
    terminal.wait_for("busy\n")
    return terminal


def words_of(terminal: Terminal) -> list[str]:
    """The numbers of the flood's words; a word may be broken over two rows."""
    return re.findall(r"word(\d)", terminal.text().replace("\n", ""))


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_what_is_sent_while_the_agent_works_is_shown_as_waiting_and_then_done_in_order(
    start: Start, tmp_path: Path
) -> None:
    terminal = busy(start, tmp_path)
    terminal.line("say one")
    terminal.line("say two")
    terminal.wait_for(re.compile(r"Queued, sent after this step.*\n +└ say one\n +└ say two"))
    (tmp_path / "go").touch()
    terminal.wait_for("You said two.")
    at_prompt(terminal)
    assert "Queued" not in terminal.text()
    found = re.findall(r"> say \w+|You said \w+", terminal.text())
    assert found == ["> say one", "You said one", "> say two", "You said two"]


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_what_waits_can_be_seen_changed_and_taken_back(start: Start, tmp_path: Path) -> None:
    terminal = busy(start, tmp_path)
    for text in ("say one", "say two", "say three"):
        terminal.line(text)
    terminal.wait_for("└ say three")
    terminal.line("/queue edit 2 say changed")
    terminal.wait_for(re.compile(r"1  say one\n +2  say changed\n +3  say three"))
    terminal.line("/queue drop 1")
    terminal.wait_for(re.compile(r"1  say changed\n +2  say three"))
    terminal.key("up")
    terminal.wait_for("> say three")
    terminal.wait_gone("└ say three")
    terminal.line("/queue edit 9 x")
    terminal.wait_for(re.compile("say three/queue|number 9"))
    (tmp_path / "go").touch()
    terminal.wait_for("You said changed.")
    assert "You said one." not in terminal.text()


@pytest.mark.spec("UI-3", "CAN-13")
@pytest.mark.parametrize("key", ["ctrl-c", "esc"])
def test_what_is_typed_survives_a_cancel_in_the_input(start: Start, key: str) -> None:
    terminal = start()
    terminal.line("hang")
    terminal.wait_for("thinking about it")
    terminal.send("half a thought")
    terminal.wait_for("> half a thought")
    terminal.key(key)
    terminal.wait_for("Cancelled.")
    assert "> half a thought" in terminal.screen()
    terminal.wait_until(lambda: "$0.01" in terminal.title, what="the end of the turn")
    terminal.key("ctrl-c")
    at_prompt(terminal)


@pytest.mark.spec("UI-3")
def test_alt_enter_while_working_is_a_new_line_and_no_cancel(start: Start, tmp_path: Path) -> None:
    terminal = busy(start, tmp_path)
    terminal.send("say one")
    terminal.key("alt-enter")
    terminal.line("two")
    terminal.wait_for("└ say one two")
    (tmp_path / "go").touch()
    terminal.wait_for(re.compile(r"You said (\*\*)?one\s+two"))
    assert "Cancelled" not in terminal.text()


@pytest.mark.spec("UI-5")
def test_safe_commands_run_at_once_and_others_wait(start: Start, tmp_path: Path) -> None:
    terminal = busy(start, tmp_path)
    terminal.line("/status")
    terminal.wait_for("permissions  default")
    terminal.line("/model play/model-2")
    terminal.wait_for("/model waits until this is done; Esc stops it.")
    assert "answers from now on" not in terminal.text()
    (tmp_path / "go").touch()
    terminal.wait_for("play/model-2 answers from now on.")


@pytest.mark.slow
@pytest.mark.spec("UI-1", "UI-5")
def test_what_a_command_says_does_not_cut_the_answer_in_two(start: Start) -> None:
    terminal = start()
    terminal.line("flood 400")
    terminal.wait_for("Working")
    terminal.line("/cost")
    terminal.wait_for("The end.", scrolled=True)
    at_prompt(terminal)
    words = words_of(terminal)
    assert words == [str(n % 7) for n in range(400) if n % 90 != 89]
    assert "Nothing was used yet." in terminal.text() or "turns" in terminal.text()


@pytest.mark.spec("UI-3")
def test_a_paste_of_ten_thousand_lines_is_folded_and_sent_whole(start: Start) -> None:
    terminal = start()
    terminal.send("count ")
    terminal.paste("\n".join(f"line {n}" for n in range(10_000)))
    terminal.wait_for("> count [Pasted text #1 +9,999 lines]")
    terminal.key("enter")
    terminal.wait_for("10000 lines, the last is line 9999")
    assert "more lines" in terminal.text()
    at_prompt(terminal)
    terminal.paste("x" * 5000)
    terminal.wait_for("[Pasted text #2 +5,000 characters]")
    terminal.key("backspace")
    at_prompt(terminal)


@pytest.mark.spec("UI-4")
def test_a_question_mark_on_an_empty_line_shows_the_keys_until_the_next_key(start: Start) -> None:
    terminal = start()
    terminal.send("?")
    terminal.wait_for("next permission mode")
    terminal.send("?")
    terminal.wait_gone("next permission mode")
    terminal.send("?")
    terminal.wait_for("next permission mode")
    terminal.send("why?")
    terminal.wait_for("> why?")
    assert "next permission mode" not in terminal.text()


@pytest.mark.spec("UI-3", "UI-6")
def test_shift_tab_cycles_the_permission_modes_also_while_it_works(
    start: Start, tmp_path: Path
) -> None:
    terminal = busy(start, tmp_path)
    for mode in ("accept-edits mode", "auto mode", "plan mode", "· default ·"):
        terminal.key("shift-tab")
        terminal.wait_until(lambda mode=mode: mode in last_line(terminal), what=mode)


def last_line(terminal: Terminal) -> str:
    return next((line for line in reversed(terminal.screen()) if line), "")


@pytest.mark.spec("UI-6")
def test_the_status_line_tells_model_mode_context_cost_and_title(start: Start) -> None:
    terminal = start()
    assert last_line(terminal) == "play/model-1 · default · ? for keys"
    terminal.line("say hello")
    terminal.wait_for("You said hello.")
    terminal.wait_until(lambda: "$0.01" in last_line(terminal))
    terminal.line("/rename my work")
    terminal.wait_until(lambda: "my work" in last_line(terminal))
    named = "agentcli: my work · play/model-1 · default · $0.01"
    terminal.wait_until(lambda: terminal.title == named, what="the title")
    terminal.key("shift-tab")
    changed = named.replace("default", "accept-edits mode")
    terminal.wait_until(lambda: terminal.title == changed, what="the changed title")


@pytest.mark.spec("UI-3")
def test_ctrl_t_shows_and_hides_the_list_of_things_to_do(start: Start) -> None:
    terminal = start()
    terminal.key("ctrl-t")
    terminal.wait_for("[x] first thing")
    terminal.key("ctrl-t")
    terminal.wait_gone("[x] first thing")


@pytest.mark.spec("UI-3")
def test_another_key_can_be_chosen(start: Start) -> None:
    terminal = start(PLAY_TODOS_KEY="alt-l")
    terminal.key("alt-l")
    terminal.wait_for("[x] first thing")


@pytest.mark.slow
@pytest.mark.spec("UI-2")
def test_ctrl_o_opens_the_whole_output_in_the_pager(start: Start) -> None:
    terminal = start(PAGER="/bin/cat")
    terminal.key("ctrl-o")
    terminal.wait_for("No tool was called yet.")
    terminal.line("tool ls")
    terminal.wait_for("exit 0")
    at_prompt(terminal)
    terminal.key("ctrl-o")
    terminal.wait_until(lambda: terminal.text().count("second line") == 2)
    at_prompt(terminal)
    terminal.line("say after")
    terminal.wait_for("You said after.")


@pytest.mark.spec("UI-2", "TOOL-3")
def test_ctrl_o_shows_what_the_model_was_not_told(start: Start) -> None:
    terminal = start(PAGER="/bin/cat")
    terminal.line("tool whole")
    terminal.wait_for("exit 0")
    at_prompt(terminal)
    terminal.key("ctrl-o")
    terminal.wait_for("100 %\nthe middle\nsecond line")
    at_prompt(terminal)
    assert " 10 %" not in terminal.text()


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_ctrl_g_opens_the_editor_with_the_text(
    start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    editor = tmp_path_factory.mktemp("bin") / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s, edited" "$(cat "$1")" > "$1.new"\nmv "$1.new" "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    terminal = start(EDITOR=str(editor))
    terminal.send("say x")
    terminal.wait_for("> say x")
    terminal.key("ctrl-g")
    terminal.wait_for("> say x, edited")
    terminal.key("enter")
    terminal.wait_for("You said x, edited.")


@pytest.mark.spec("UI-3", "SEC-2")
def test_an_editor_in_the_workspace_is_not_run(start: Start, tmp_path: Path) -> None:
    evil = tmp_path / "nano"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/owned\n")
    evil.chmod(0o755)
    terminal = start(EDITOR="nano", PATH=f"{tmp_path}:/nonexistent")
    terminal.key("ctrl-g")
    terminal.wait_for("no editor was found")
    assert not (tmp_path / "owned").exists()


@pytest.mark.slow
@pytest.mark.spec("UI-4")
def test_an_exclamation_mark_runs_a_command_and_tells_or_does_not(start: Start) -> None:
    terminal = start()
    terminal.line("!ls -l")
    terminal.wait_for("with your next message")
    assert "out of ls -l, told" not in terminal.text()  # only the end of long output
    assert "earlier lines (Ctrl-O shows all)" in terminal.text()
    terminal.line("!!wait")
    terminal.wait_for(re.compile(r"wait · \d s\n +live line"))
    terminal.key("ctrl-c")
    terminal.wait_for("the agent does not see it")
    at_prompt(terminal)


@pytest.mark.spec("UI-3")
def test_vi_keys(start: Start) -> None:
    terminal = start(PLAY_EDITING_MODE="vi")
    terminal.send("say abcd")
    terminal.wait_for("> say abcd")
    terminal.key("esc")
    terminal.wait_for("vi: normal")
    terminal.send("xiZ")
    terminal.wait_for("> say abZc")
    terminal.key("enter")
    terminal.wait_for("You said abZc.")


@pytest.mark.spec("UI-6")
@pytest.mark.parametrize(
    ("how", "wanted"), [("bell", b"\x07"), ("desktop", b"\x1b]9;"), ("off", b"")]
)
def test_an_approval_that_waits_calls_the_person(start: Start, how: str, wanted: bytes) -> None:
    terminal = start(PLAY_NOTIFICATIONS=how)
    before = len(terminal.raw)
    terminal.line("approve make")
    terminal.wait_for("Enter confirms")
    said = re.sub(rb"\x1b\]2;[^\x07]*\x07", b"", terminal.raw[before:])
    assert (wanted in said) if wanted else (b"\x07" not in said)


@pytest.mark.spec("UI-7")
def test_an_approval_waits_for_an_empty_line_and_then_takes_a_key(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.line(f"busyapprove {tmp_path}/go")
    terminal.wait_for("busy\n")
    terminal.send("say yes")
    terminal.wait_for("> say yes")
    (tmp_path / "go").touch()
    terminal.wait_for("empty it to choose")
    terminal.wait_for("Enter queues")
    terminal.key("enter")
    terminal.wait_for("└ say yes")
    assert "verdict" not in terminal.text()
    terminal.confirm("y")
    terminal.wait_for("verdict once")
    terminal.wait_for("You said yes.")


@pytest.mark.spec("UI-2")
def test_a_call_that_is_over_at_once_never_shows_as_running(start: Start) -> None:
    terminal = start()
    terminal.line("tool ls")
    terminal.wait_for("exit 0")
    at_prompt(terminal)
    assert terminal.raw.count(b"Run ls") == 1


@pytest.mark.slow
@pytest.mark.spec("STR-2")
def test_the_wait_before_a_retry_counts_down(start: Start) -> None:
    terminal = start()
    terminal.line("retry")
    terminal.wait_for("Retrying in 4 s (2/3)")
    terminal.wait_for("Retrying in 2 s (2/3)")
    terminal.key("esc")
    terminal.wait_for("Cancelled.")
    assert "Retrying" not in terminal.text()


@pytest.mark.slow
@pytest.mark.spec("UI-10")
def test_the_colours_can_be_changed_and_switched_off(start: Start) -> None:
    terminal = start()
    terminal.line("/theme none")
    terminal.wait_for("Theme none")
    before = len(terminal.raw)
    terminal.line("fail")
    terminal.wait_for("set PLAY_API_KEY")
    assert not re.search(rb"\x1b\[[\d;]*\b(3[0-8]|9[0-7])\b[\d;]*m", terminal.raw[before:])
    terminal.line("/theme nosuch")
    terminal.wait_for("use one of: auto")


@pytest.mark.slow
@pytest.mark.spec("UI-10")
def test_a_screen_reader_gets_lines_that_are_never_redrawn(start: Start) -> None:
    terminal = start(PLAY_SCREEN_READER="1", ready=">")
    terminal.line("say **x**")
    terminal.wait_for("You said x.")
    terminal.line("tool ls")
    terminal.wait_for("exit 0")
    assert b"\x1b[2J" not in terminal.raw
    assert b"2026" not in terminal.raw


@pytest.mark.slow
@pytest.mark.spec("UI-1")
def test_a_long_answer_is_written_once_and_nothing_is_cleared(start: Start) -> None:
    terminal = start(ROWS="24", COLS="80")
    before = len(terminal.raw)
    terminal.line("flood 3000")
    terminal.wait_for("The end.")
    at_prompt(terminal)
    raw = terminal.raw[before:]
    shown = sum(len(line) + 1 for line in terminal.text().split("\n"))
    assert len(raw) < 3 * shown
    assert raw.count(b"\x1b[2J") == 0
    frames = re.split(rb"\x1b\[\?2026[hl]", raw)
    clearing = [frame for frame in frames if b"\x1b[J" in frame]
    assert len(clearing) <= 4
    for frame in clearing:  # what a frame clears it draws again
        assert b"> " in frame.split(b"\x1b[J")[1]
    words = words_of(terminal)
    assert words == [str(n % 7) for n in range(3000) if n % 90 != 89]


@pytest.mark.slow
@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize("size", [(40, 15), (200, 50), (80, 10), (500, 200)])
def test_a_resize_in_mid_stream_leaves_every_word_once(start: Start, size: tuple[int, int]) -> None:
    terminal = start(ROWS="24", COLS="80")
    terminal.line("flood 1500")
    terminal.wait_for("word6 word0 word1", scrolled=True)
    terminal.resize(size[1], size[0])
    terminal.wait_for("The end.")
    at_prompt(terminal)
    assert terminal.text().count("Ask or tell") == 1
    if size[0] >= 80:  # made narrower, the emulator drops what does not fit
        words = words_of(terminal)
        assert words == [str(n % 7) for n in range(1500) if n % 90 != 89]


@pytest.mark.slow
@pytest.mark.spec("OPS-1")
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (500, 200)])
def test_any_window_is_survived(start: Start, size: tuple[int, int]) -> None:
    terminal = start()
    terminal.resize(size[1], size[0])
    terminal.line("say in there")
    terminal.line("tool ls")
    terminal.resize(30, 100)
    terminal.line("say out again")
    terminal.wait_for("You said out again.")
    terminal.key("ctrl-d")
    assert terminal.wait_exit() == 0
    assert terminal.restored


@pytest.mark.slow
@pytest.mark.spec("CAN-13")
def test_ctrl_d_while_the_agent_works_leaves_when_it_is_done(start: Start, tmp_path: Path) -> None:
    terminal = busy(start, tmp_path)
    terminal.key("ctrl-d")
    terminal.wait_for("leaving when the agent is done")
    terminal.send("x")
    terminal.wait_gone("leaving when the agent is done")
    terminal.key("ctrl-u")
    terminal.key("ctrl-d")
    terminal.wait_for("leaving when the agent is done")
    (tmp_path / "go").touch()
    assert terminal.wait_exit() == 0
    assert terminal.restored


@pytest.mark.spec("UI-3")
def test_ctrl_l_redraws_and_keeps_what_was_there_in_the_scrollback(start: Start) -> None:
    terminal = start()
    terminal.line("say keep me")
    terminal.wait_for("You said keep me.")
    at_prompt(terminal)
    terminal.send("draft")
    terminal.key("ctrl-l")
    terminal.wait_gone("You said keep me.")
    terminal.wait_for("> draft")
    assert "You said keep me." in terminal.text()


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_up_brings_back_earlier_prompts_and_ctrl_r_finds_them(start: Start) -> None:
    terminal = start()
    for text in ("say first", "say second"):
        terminal.line(text)
        terminal.wait_for(f"You {text.replace('say', 'said')}.")
        at_prompt(terminal)
    terminal.key("up")
    terminal.wait_for("> say second")
    terminal.key("up")
    terminal.wait_for(re.compile(r"\n> say first\nplay"))
    terminal.key("ctrl-c")
    terminal.key("ctrl-r")
    terminal.send("sec")
    terminal.wait_for("search: sec")
    terminal.wait_for(re.compile(r"\n> say second\nsearch"))
    terminal.key("enter")
    terminal.key("enter")
    terminal.wait_until(lambda: terminal.text().count("You said second.") == 2)


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde"


@pytest.mark.slow
@pytest.mark.spec("UI-3", "UI-4")
def test_a_dropped_image_is_a_sign_and_is_attached_when_it_is_sent(
    start: Start, tmp_path: Path
) -> None:
    image = tmp_path / "a shot.png"
    image.write_bytes(PNG)
    terminal = start()
    terminal.send("say see ")
    terminal.paste(f"{image}".replace(" ", "\\ ") + " ")
    terminal.wait_for("> say see [Image #1 a shot.png]")
    terminal.send("x")
    terminal.wait_for("> say see [Image #1 a shot.png]x")
    terminal.key("backspace")
    terminal.key("backspace")
    terminal.wait_for(re.compile(r"> say see$", re.MULTILINE))
    terminal.paste(image.as_uri())
    terminal.wait_for("[Image #2 a shot.png]")
    terminal.key("enter")
    terminal.wait_for(re.compile(r"the\s+image\s+that\s+follows"))


@pytest.mark.spec("UI-3")
def test_ctrl_v_takes_an_image_from_the_clipboard_or_says_why_not(
    start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bin_directory = tmp_path_factory.mktemp("bin")
    terminal = start(PATH=f"{bin_directory}:/usr/bin:/bin")
    terminal.key("ctrl-v")
    terminal.wait_for("nothing here can read images")
    (bin_directory / "image").write_bytes(PNG)
    program = bin_directory / "pngpaste"
    program.write_text(f"#!/bin/sh\ncat {bin_directory}/image\n")
    program.chmod(0o755)
    terminal.send("say ")
    terminal.key("ctrl-v")
    terminal.wait_for(re.compile(r"> say \[Image #1 clipboard-\w+\.png\]"))
    terminal.key("enter")
    terminal.wait_for(re.compile(r"the\s+image\s+that\s+follows"))


@pytest.mark.spec("UI-3")
@pytest.mark.parametrize("editing", ["emacs", "vi"])
def test_esc_twice_on_an_empty_line_runs_rewind(start: Start, editing: str) -> None:
    terminal = start(PLAY_EDITING_MODE=editing)
    terminal.send("\x1b\x1b")
    terminal.wait_for("Go back to before")
    terminal.wait_for("the second thing")
    terminal.key("up")
    terminal.key("enter")
    terminal.wait_for("Taken back: 2 messages")
    terminal.wait_for("> the first thing")


@pytest.mark.spec("UI-3")
def test_esc_twice_in_a_text_or_while_the_agent_works_rewinds_nothing(start: Start) -> None:
    terminal = start()
    terminal.send("some text\x1b\x1b")
    terminal.key("ctrl-u")
    at_prompt(terminal)
    terminal.line("hang")
    terminal.wait_for("thinking about it")
    terminal.send("\x1b")
    terminal.wait_for("Cancelled")
    at_prompt(terminal)
    terminal.line("say more")
    terminal.wait_for("You said more.")
    assert "Go back to" not in terminal.text()


@pytest.mark.slow
@pytest.mark.spec("UI-2", "UI-8")
def test_ctrl_o_after_a_resume_opens_the_last_call_of_that_session(start: Start) -> None:
    terminal = start(PAGER="/bin/cat")
    terminal.line("/resume 0190aaaa")
    terminal.wait_for("Resumed: fix the parser")
    at_prompt(terminal)
    terminal.key("ctrl-o")
    terminal.wait_for("all that it printed")
    at_prompt(terminal)


@pytest.mark.spec("UI-3", "UI-11")
def test_tab_and_enter_send_and_arrows_and_enter_take_the_row(start: Start, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    terminal = start()
    terminal.send("/statu")
    terminal.wait_for("\n  /status")
    terminal.key("tab")
    terminal.wait_for("> /status")
    terminal.key("enter")
    terminal.wait_for("permissions  default")
    at_prompt(terminal)
    terminal.send("say @not")
    terminal.wait_for("\n  notes.txt")
    terminal.key("down")
    terminal.wait_for("> say @notes.txt\n> notes.txt")
    terminal.key("enter")
    terminal.wait_gone("\n> notes.txt")
    terminal.send("now")
    terminal.wait_for("> say @notes.txt now")


@pytest.mark.spec("UI-11")
def test_the_menu_says_how_many_more_there_are(start: Start) -> None:
    terminal = start()
    terminal.send("/")
    terminal.wait_for(re.compile(r"… \d+ more: type on"))


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_down_gives_back_to_the_queue_what_up_has_taken(start: Start, tmp_path: Path) -> None:
    terminal = busy(start, tmp_path)
    terminal.line("say one")
    terminal.wait_for("└ say one")
    terminal.key("up")
    terminal.wait_gone("└ say one")
    terminal.wait_for("> say one")
    terminal.key("down")
    terminal.wait_for("└ say one")
    (tmp_path / "go").touch()
    terminal.wait_for("You said one.")


@pytest.mark.spec("UI-3")
def test_what_is_typed_right_after_esc_stands_as_it_is(start: Start) -> None:
    terminal = start()
    terminal.send("/statu")
    terminal.wait_for("\n  /status")
    terminal.key("esc")
    terminal.wait_gone("\n  /status")
    terminal.send("/")
    terminal.wait_for("> /statu/")


@pytest.mark.spec("UI-3")
def test_backspace_removes_what_is_seen_as_one_character(start: Start) -> None:
    terminal = start()
    terminal.send("say ")
    for compound in (
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f44d\U0001f3fd",
    ):
        terminal.send(compound)
        terminal.wait_for(f"> say {compound[0]}")
        terminal.key("backspace")
        terminal.wait_gone(f"> say {compound[0]}")
    terminal.send("ok")
    terminal.wait_for("> say ok")


@pytest.mark.spec("UI-3")
def test_what_is_typed_during_the_start_is_shown_once(start: Start) -> None:
    terminal = start(ready="")
    terminal.send("say early")
    terminal.wait_for("> say early")
    assert terminal.text().count("say early") == 1


@pytest.mark.spec("UI-4")
def test_a_command_that_needs_a_terminal_says_so(start: Start) -> None:
    terminal = start()
    terminal.line("!vim x")
    terminal.wait_for("vim needs a terminal of its own")


@pytest.mark.slow
@pytest.mark.spec("UI-4")
def test_a_command_that_was_begun_while_the_agent_worked_is_one_when_it_is_done(
    start: Start, tmp_path: Path
) -> None:
    terminal = busy(start, tmp_path)
    terminal.send("!ls")
    terminal.wait_for("> !ls")
    (tmp_path / "go").touch()
    terminal.wait_gone("Working")
    terminal.line("")
    terminal.wait_for("(the agent sees it with your next message)")
