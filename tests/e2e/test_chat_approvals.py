"""Questions in the chat: yes, yes for the session, no, no with a reason (UI-7)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.cli import AGENT, agent_env
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import Call, Reply, call
from tests.support.sandboxes import needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


def answer(terminal: Terminal, shown: str, key: str) -> None:
    """Wait until the question about ``shown`` can be answered, and answer it."""
    terminal.wait_for(shown)
    terminal.confirm(key)


@pytest.mark.spec("UI-7", "SEC-3")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_yes_runs_this_call_and_asks_again_for_the_next(
    model_server: ModelServer, chat: Chat, work: Path, protocol: str
) -> None:
    model_server.add(
        call("bash", {"command": "touch one"}), call("bash", {"command": "touch two"}), "Done."
    )
    terminal = chat(protocol=protocol)
    terminal.line("make them")
    answer(terminal, "touch one", "y")
    terminal.wait_for("touch two")
    assert (work / "one").exists() and not (work / "two").exists()
    terminal.confirm("y")
    terminal.wait_for("Done.")
    assert (work / "two").exists()
    leave(terminal)


@pytest.mark.spec("UI-7")
def test_yes_for_the_session_does_not_ask_for_the_same_again(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    again = {"command": "echo x >> marks"}
    model_server.add(call("bash", again), call("bash", again), "Done.")
    terminal = chat()
    terminal.line("twice")
    answer(terminal, "echo x", "s")
    terminal.wait_for("Done.")
    assert (work / "marks").read_text() == "x\nx\n"
    assert terminal.text().count("you: yes, for this session") == 1
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-7")
def test_yes_always_is_a_rule_in_the_settings_that_the_next_chat_keeps(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    again = {"command": "echo x >> marks"}
    model_server.add(call("bash", again), "First.", call("bash", again), "Second.")
    terminal = chat()
    terminal.line("once")
    answer(terminal, "echo x", "a")
    terminal.wait_for("First.")
    assert "you: yes, always: bash(echo x >> marks) is in" in terminal.text()
    leave(terminal)
    terminal = chat()
    terminal.line("twice")
    terminal.wait_for("Second.")
    assert (work / "marks").read_text() == "x\nx\n"
    assert "yes, once" not in terminal.text()
    leave(terminal)


@pytest.mark.spec("UI-7", "CAN-1")
def test_no_is_told_to_the_model_as_a_refusal_and_the_turn_goes_on(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(call("bash", {"command": "touch made"}, id="one"), "As you like.")
    terminal = chat()
    terminal.line("make it")
    answer(terminal, "touch made", "n")
    terminal.wait_for("As you like.")
    told = facts_of(model_server.requests[1]).results["one"]
    assert "Cancelled" not in told and not (work / "made").exists()
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-7")
def test_a_reason_for_the_no_reaches_the_model(model_server: ModelServer, chat: Chat) -> None:
    model_server.add(call("bash", {"command": "touch made"}, id="one"), "I will.")
    terminal = chat()
    terminal.line("make it")
    answer(terminal, "touch made", "r")
    terminal.wait_for("because")
    terminal.line("use a subdirectory")
    terminal.wait_for("I will.")
    assert "use a subdirectory" in facts_of(model_server.requests[1]).results["one"]
    assert terminal.text().count("use a subdirectory") == 1
    leave(terminal)


@pytest.mark.spec("UI-7", "SEC-6")
def test_an_edit_is_shown_as_a_diff_before_it_is_made(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    (work / "a.txt").write_text("old line\n")
    model_server.add(
        call("read_file", {"path": "a.txt"}),
        call("edit_file", {"path": "a.txt", "old_string": "old", "new_string": "new"}),
        "Edited.",
    )
    terminal = chat()
    terminal.line("edit")
    terminal.wait_for("new line")
    assert (work / "a.txt").read_text() == "old line\n"
    answer(terminal, "old line", "y")
    terminal.wait_for("Edited.")
    assert (work / "a.txt").read_text() == "new line\n"
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "UI-7")
def test_not_to_be_asked_about_the_sandbox_holds_from_the_same_answer_on(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    needs("landlock")
    outside = work.parent / "outside"
    two = Reply((Call("bash", {"command": "touch one"}), Call("bash", {"command": "touch two"})))
    beyond = call("bash", {"command": f"touch {outside}", "access": "outside"}, id="out")
    model_server.add(two, call("bash", {"command": "touch three"}), beyond, "Done.")
    terminal = chat("--sandbox", "landlock", cols=120)
    terminal.line("make them")
    answer(terminal, "touch one", "m")
    answer(terminal, f"touch {outside}", "n")
    terminal.wait_for("Done.")
    assert {path.name for path in work.iterdir()} == {"one", "two", "three"}
    assert not outside.exists()
    terminal.wait_for("auto mode · sandbox · ")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-7", "UI-13")
def test_an_edit_that_cannot_be_made_is_not_asked_about(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    (work / "a.txt").write_text("one\n")
    edit = call("edit_file", {"path": "a.txt", "old_string": "two", "new_string": "x"})
    model_server.add(edit, "It is not there.")
    terminal = chat()
    terminal.line("change two")
    terminal.wait_for("It is not there.")
    assert "the text to replace is not in the file" in terminal.text()
    (told,) = facts_of(model_server.requests[-1]).results.values()
    assert "old_string is not in the file" in told
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-3")
def test_the_status_line_says_whether_yolo_has_a_boundary(chat: Chat) -> None:
    terminal = chat("--yolo", cols=120)
    terminal.wait_for("yolo mode · no boundary · ")
    leave(terminal)
    needs("landlock")
    terminal = chat("--yolo", "--sandbox", "landlock", cols=120)
    terminal.wait_for("yolo mode · sandbox · ")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("cols", [80, 40])
def test_the_words_of_a_sub_agents_task_push_no_command_out_of_sight(
    model_server: ModelServer, chat: Chat, cols: int
) -> None:
    command = "touch made-by-the-sub-agent"
    task = call("task", {"description": "tidy up the notes " * 11, "prompt": "x"})
    model_server.add(task, call("bash", {"command": command, "access": "outside"}))
    terminal = chat(cols=cols)
    terminal.line("go")
    terminal.wait_for("Enter confirms")
    seen = " ".join(" ".join(terminal.screen()).split())
    assert command in seen or "v shows all" in seen


@pytest.mark.slow
@pytest.mark.spec("SEC-6", "UI-7")
@pytest.mark.parametrize("said", ["a better way is to use make", "s it there?", "a test", "yes we"])
def test_a_sentence_that_begins_with_the_letter_of_a_choice_answers_nothing_line_by_line(
    model_server: ModelServer, chat: Chat, work: Path, said: str
) -> None:
    model_server.add(call("bash", {"command": "touch made"}))
    terminal = chat(until=re.compile("^>$", re.MULTILINE), TERM="dumb")
    terminal.line("go")
    terminal.wait_for("Answer:")
    terminal.line(said)
    terminal.wait_for(re.compile("question still waits|you: yes"))
    assert "you: yes" not in terminal.text() and not (work / "made").exists()


def _patch(*operations: str) -> dict[str, str]:
    first = "*** Update File: a.txt\n@@\n-old line\n+new line\n"
    return {"patch": "".join(["*** Begin Patch\n", first, *operations, "*** End Patch\n"])}


_SCRIPT = "#!/bin/bash\necho HIDDEN\n"
_MODE = "diff --git a/s.sh b/s.sh\nold mode 100644\nnew mode 100755\n"
_EDIT = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old line\n+new line\n"
CHANGES = {
    "a NUL": (call("write_file", {"path": "n.sh", "content": f"{_SCRIPT}# \0"}), "echo HIDDEN"),
    "over bytes": (call("write_file", {"path": "bytes", "content": _SCRIPT}), "echo HIDDEN"),
    "a NUL in a patch": (
        call("apply_patch", _patch("*** Add File: n.sh\n+#!/bin/sh\n+echo HIDDEN\n+# \0\n")),
        "echo HIDDEN",
    ),
    "much": (call("write_file", {"path": "n.sh", "content": "x\n" * 99_000 + _SCRIPT}), "echo HIDDEN"),
    "a mode": (call("apply_patch", {"patch": _EDIT + _MODE}), "100755: s.sh"),
    "nothing deleted": (call("apply_patch", _patch("*** Delete File: empty\n")), "empty (deleted)"),
    "a link deleted": (call("apply_patch", _patch("*** Delete File: link\n")), "link (deleted)"),
    "much deleted": (call("apply_patch", _patch("*** Delete File: huge\n")), "huge (deleted)"),
    "bytes deleted": (call("apply_patch", _patch("*** Delete File: bytes\n")), "(deleted)"),
    "nothing made": (call("apply_patch", _patch("*** Add File: none\n")), "\nnone\n"),
    "a move": (
        call("apply_patch", _patch("*** Update File: s.sh\n*** Move to: t.sh\n")),
        "rename from s.sh",
    ),
    "blanks": (call("write_file", {"path": "n.sh", "content": "x \\  \n"}), "x \\<U+0020 x 2>"),
    "line ends": (call("write_file", {"path": "b.txt", "content": "old\r\n"}), "old<U+000D>"),
}  # fmt: skip


def _lay_out(work: Path) -> None:
    for name, text in {"a.txt": "old line\n", "b.txt": "old\n", "s.sh": "x\n", "empty": ""}.items():
        (work / name).write_text(text)
    (work / "bytes").write_bytes(b"\0\1\2\3" * 50)
    (work / "link").symlink_to("a.txt")
    with (work / "huge").open("wb") as file:
        file.truncate(17 * 1024 * 1024)


@pytest.mark.slow
@pytest.mark.spec("SEC-6", "UI-7")
@pytest.mark.parametrize(("rows", "columns"), [(2, 80), (1, 80), (3, 20), (2, 9)])
def test_a_command_that_no_window_shows_is_not_approved(
    model_server: ModelServer, chat: Chat, work: Path, rows: int, columns: int
) -> None:
    command = "echo one > made\n" + "true\n" * 5 + "touch ran"
    model_server.add(call("bash", {"command": command}), "It was done.")
    terminal = chat()
    terminal.line("go")
    terminal.wait_for("Enter confirms")
    terminal.resize(rows, columns)
    terminal.wait_for("larger")
    for key in ("y", "s", "a"):
        terminal.line(key)
    terminal.resize(30, 80)
    terminal.wait_for("touch ran")
    assert not (work / "made").exists()
    terminal.confirm("y")
    terminal.wait_for("It was done.")
    assert (work / "ran").exists()


@pytest.mark.slow
@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("name", CHANGES)
def test_nothing_that_an_edit_changes_is_left_out_of_what_is_shown(
    model_server: ModelServer, chat: Chat, work: Path, name: str
) -> None:
    _lay_out(work)
    edit, wanted = CHANGES[name]
    model_server.add(edit)
    terminal = chat(rows=50, cols=120)
    terminal.line("go")
    terminal.wait_for("Enter confirms")
    assert wanted in "\n".join(terminal.screen()).partition("Allow this?")[2]


@pytest.mark.spec("SEC-3", "UI-7")
@pytest.mark.parametrize("yes", ["y", "s"])
def test_a_yes_in_plan_mode_runs_and_grants_nothing_that_plan_mode_refuses(
    model_server: ModelServer, chat: Chat, work: Path, yes: str
) -> None:
    touch = call("bash", {"command": "touch made"}, id="one")
    again = call("bash", {"command": "touch made"}, id="two")
    model_server.add(touch, "I will plan.", again, "As you like.")
    terminal = chat()
    terminal.line("make it")
    terminal.wait_for("Enter confirms")
    for mode in ("accept-edits", "auto", "plan"):
        terminal.key("shift-tab")
        terminal.wait_for(f"{mode} mode ·")
    terminal.confirm(yes)
    terminal.wait_for("I will plan.")
    assert "plan mode allows reads only" in facts_of(model_server.requests[1]).results["one"]
    terminal.wait_for(IDLE)
    terminal.key("shift-tab")
    terminal.wait_for("4-5 · default · ")
    terminal.line("go on")
    answer(terminal, "Enter confirms", "n")
    terminal.wait_for("As you like.")
    assert not (work / "made").exists()
    leave(terminal)


@pytest.mark.spec("SEC-6", "UI-7")
def test_where_a_command_goes_on_in_another_row_is_seen_line_by_line_too(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    command = f"echo {'a' * 69} Why it asks: it only reads\ntouch made"
    model_server.add(call("bash", {"command": command}), "As you like.")
    terminal = chat(until=">", TERM="dumb")
    terminal.line("go")
    terminal.wait_for("Answer:")
    rows = terminal.screen()
    before = rows[rows.index("  touch made") - 1]
    assert before.endswith("it asks: it only reads") and not before.startswith(" ")
    terminal.line("n")
    terminal.wait_for("As you like.")
    assert not (work / "made").exists()


@pytest.mark.spec("SEC-6", "CLI-7")
def test_at_a_terminal_one_shot_shows_which_rows_are_lines_of_a_command(
    model_server: ModelServer, work: Path
) -> None:
    command = f"echo {'a' * 72} | sh -c x; echo b"
    model_server.add(call("bash", {"command": command}), "As you like.")
    with Terminal([*AGENT, "run", "go"], agent_env(model_server, ANTHROPIC), work) as terminal:
        terminal.wait_for("Allow?")
        rows = terminal.screen()
        terminal.line("n")
        terminal.wait_for("As you like.")
        terminal.wait_exit()
    at = next(at for at, row in enumerate(rows) if row.startswith("| echo aaa"))
    assert rows[at + 1] == "  | sh -c x; echo b"
