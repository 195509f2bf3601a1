"""Choices that only Enter confirms, and lists that are filtered by what is typed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.repl.panel import (
    FLOW_S,
    GUARD_S,
    VIEW_S,
    Choice,
    Choices,
    PanelMode,
    PanelSubject,
    Picker,
    PickRow,
    Press,
    wrapped,
)
from agentcli.ui.rows import Row
from agentcli.ui.screen import Size
from agentcli.ui.theme import PLAIN

KEYS = {"\r": "enter", "<up>": "up", "<down>": "down", "<right>": "right", "<tab>": "tab"}
EDGE = "bash(pytest *)"


class Typing:
    """The panel and the input as a user's keys reach them; ``at`` is the time."""

    def __init__(self, panel: Choices, at: float = 10.0, text: str = "") -> None:
        self.panel, self.at, self.text = panel, at, text
        self.sent: list[str] = []
        panel.open(at, has_text=bool(text))

    def press(self, keys: Iterable[str], *, wait: float = 1.0) -> Typing:
        """Each after ``wait`` seconds."""
        typed = list(keys)
        for at, key in enumerate(typed):
            self.at += wait
            if self.text and key == "\r":
                self._send()
            elif self.text:
                self.text += key
            else:
                more = wait == 0 and any(each not in KEYS for each in typed[at + 1 :])
                press = Press(KEYS.get(key, "char"), key)
                given_back = self.panel.press(press, self.at, more=more)
                self.text += given_back.text
                if given_back.sends:
                    self._send()
        return self

    def _send(self) -> None:
        self.sent.append(self.text)
        self.text = ""
        self.panel.text_sent()


def choices(rows: int = 3) -> Choices:
    body = [Row(f"row {number}", 6) for number in range(rows)]
    return Choices(
        PanelSubject("Allow this? Run make", lambda _: body),
        [
            Choice("y", "yes, once"),
            Choice("s", "yes, for this session", ("bash(pytest -q)", EDGE)),
            Choice("a", "yes, always", ("bash(pytest -q)", EDGE)),
            Choice("n", "no"),
            Choice("r", "no, with a reason"),
            Choice("v", "view all of it"),
        ],
        refusal="n",
        views=True,
    )


@pytest.mark.spec("UI-7")
@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["\r"], "y"), (["y", "\r"], "y"), (["N", "\r"], "n"), (["3", "\r"], "a"),
        (["<down>", "\r"], "s"), (["a", "n", "\r"], "n"), (["y"], ""), (["a", "s"], ""),
    ],
)  # fmt: skip
def test_keys_move_and_enter_confirms(keys: list[str], answer: str) -> None:
    assert Typing(choices()).press(keys).panel.answer == answer


@pytest.mark.spec("UI-7")
def test_what_is_no_choice_goes_to_the_input_with_all_before_it_and_never_answers() -> None:
    user = Typing(choices()).press("actually, stop")
    assert user.text == "actually, stop"
    assert user.panel.chosen.letter == "n"
    user.press("\r")
    assert user.sent == ["actually, stop"] and not user.panel.answer
    user.press("\r")
    assert user.panel.answer == "n"


@pytest.mark.spec("UI-7")
@pytest.mark.parametrize("word", ["say", "any", "navy", "array", "yy", "an"])
def test_a_word_of_choices_is_a_word(word: str) -> None:
    user = Typing(choices()).press(word, wait=FLOW_S / 2).press("\r")
    assert user.sent == [word] and not user.panel.answer


@pytest.mark.spec("UI-7")
def test_what_is_typed_as_it_appears_goes_to_the_input_and_enter_is_dropped() -> None:
    user = Typing(choices()).press(["\r", "<down>", "y"], wait=GUARD_S / 4)
    assert user.text == "y" and not user.panel.answer
    again = Typing(choices()).press("\r", wait=GUARD_S * 0.9)
    assert not again.panel.answer
    assert again.press("\r").panel.answer == "y"


@pytest.mark.spec("SEC-6", "UI-7")
def test_lines_that_keep_coming_since_before_it_appeared_answer_nothing() -> None:
    user = Typing(choices()).press(["y", "\r"] * 20, wait=0.1)
    assert not user.panel.answer
    user.press(["y"]).press(["\r"])
    assert user.panel.answer == "y"


@pytest.mark.spec("UI-7")
def test_with_a_draft_in_the_input_the_selection_is_the_one_that_does_no_harm() -> None:
    user = Typing(choices(), text="half a thought").press(["\r", "\r"])
    assert user.sent == ["half a thought"]
    assert user.panel.answer == "n"


@pytest.mark.spec("UI-7", "UI-13")
def test_an_answer_in_the_middle_of_lines_that_come_at_once_is_text() -> None:
    user = Typing(choices()).press([]).press(["<down>"])
    user.at += 1
    user.press(["y", "\r", "l", "s"], wait=0)
    assert user.text == "y\rls".replace("\r", "\n") and not user.panel.answer


@pytest.mark.spec("UI-7")
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=2),
                min_size=1, max_size=20), st.floats(0.001, FLOW_S * 0.9))  # fmt: skip
def test_no_sentence_grants_anything(sentences: list[str], wait: float) -> None:
    user = Typing(choices())
    user.at += GUARD_S
    for sentence in sentences:
        user.press([*sentence, "\r"], wait=wait)
        assert not user.panel.answer
    assert user.sent == sentences


@pytest.mark.spec("UI-7")
def test_another_rule_is_offered_and_it_can_be_edited() -> None:
    user = Typing(choices()).press(["s", "<right>"])
    assert user.panel.chosen.rule == EDGE and not user.panel.answer
    user.press(["<tab>"])
    assert (user.panel.answer, user.panel.edits) == ("s", True)


@pytest.mark.spec("UI-7")
def test_who_comes_back_to_the_choices_may_move_at_once_but_not_confirm() -> None:
    user = Typing(choices()).press(["s", "<tab>"])
    user.panel.open(user.at, has_text=False)
    user.press(["<right>", "\r"], wait=GUARD_S / 4)
    assert user.panel.chosen.rule == EDGE and not user.panel.answer


@pytest.mark.spec("UI-7")
def test_v_shows_all_after_a_pause_and_is_a_letter_of_a_word_before() -> None:
    user = Typing(choices()).press(["v"])
    assert user.panel.due == user.at + VIEW_S and not user.panel.answer
    user.panel.tick(user.at + VIEW_S)
    assert user.panel.answer == "v"
    other = Typing(choices()).press(["v", "e"])
    assert other.text == "ve" and other.panel.due is None


@pytest.mark.spec("UI-7", "OPS-1")
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12), (20, 6), (10, 3), (1, 1)])
def test_the_subject_and_the_choices_are_seen_in_every_window(size: tuple[int, int]) -> None:
    user = Typing(choices(500)).press(["n"])
    rows, cursor = user.panel.rows(Size(*size), PLAIN, 99.0, mode=PanelMode())
    assert 0 < len(rows) <= size[1] and 0 <= cursor < len(rows)
    if size[1] >= 24:
        text = "\n".join(row.text for row in rows)
        assert text.startswith("Allow this? Run make") and "row 0" in text and "row 499" in text
        assert "more rows; v shows all" in text and "> 4 n  no" in text
    assert all(row.width <= size[0] for row in rows)


@pytest.mark.spec("SEC-6", "UI-7")
@pytest.mark.parametrize("key", ["y", "s", "a"])
@pytest.mark.parametrize("columns", [8, 10, 20, 40, 80])
def test_no_yes_counts_where_neither_the_subject_is_seen_nor_that_there_is_more(
    columns: int, key: str
) -> None:
    for lines, subject in itertools.product(range(1, 13), [0, 1, 500]):
        user = Typing(choices(subject))
        user.press([key])
        rows, cursor = user.panel.rows(Size(columns, lines), PLAIN, 99.0, mode=PanelMode())
        text = "".join(row.text for row in rows).replace(" ", "")
        is_seen = "Allowthis?Runmake" in text and (
            "row0" in text or "…5" in text or "…1" in text or not subject
        )
        assert 0 < len(rows) <= lines and 0 <= cursor < len(rows)
        assert is_seen != ("larger" in text)
        user.press(["\r"])
        assert user.panel.answer == (key if is_seen else "")
        assert Typing(user.panel).press(["n", "\r"]).panel.answer == "n"


@pytest.mark.spec("SEC-6", "UI-7")
def test_what_was_viewed_may_be_answered_in_a_window_that_is_too_small_for_it() -> None:
    user = Typing(choices(500))
    user.panel.rows(Size(40, 1), PLAIN, 99.0, mode=PanelMode())
    assert user.press(["v", "\r"]).panel.answer == "v"
    again = Typing(user.panel, at=user.at + 5)
    user.panel.rows(Size(40, 1), PLAIN, 99.0, mode=PanelMode())
    assert again.press(["y", "\r"]).panel.answer == "y"


@pytest.mark.spec("UI-7")
def test_the_keys_of_a_choice_are_whole_in_a_narrow_window() -> None:
    user = Typing(choices())

    def hint(now: float = 99.0) -> list[str]:
        rows, _ = user.panel.rows(Size(40, 24), PLAIN, now, mode=PanelMode())
        return [row.text for row in rows[-2:]]

    assert hint(user.at) == ["", ""]
    assert hint() == ["Enter confirms · Esc stops the agent", "other keys are typed"]
    user.press(["s"])
    important, others = hint()
    assert important == "Enter confirms · Esc stops the agent"
    assert others == "← → another rule · Tab edits the rule"


@pytest.mark.spec("UI-7")
def test_where_all_can_be_seen_there_is_nothing_to_view() -> None:
    rows, _ = choices(3).rows(Size(80, 24), PLAIN, 99.0, mode=PanelMode())
    text = "\n".join(row.text for row in rows)
    assert "row 2" in text and "view all" not in text


@pytest.mark.spec("SEC-6", "UI-7")
def test_what_a_long_title_has_no_room_for_stands_with_what_is_asked_about() -> None:
    title = "Allow this? agent (" + "word " * 50 + "): Run the-command"
    panel = Choices(PanelSubject(title, lambda _: [Row("where", 5)]), choices().choices, refusal="n",
                    views=True)  # fmt: skip
    for columns in (80, 40, 20):
        rows, _ = panel.rows(Size(columns, 40), PLAIN, 99.0, mode=PanelMode())
        text = " ".join(row.text.strip() for row in rows)
        assert "the-command" in text or "v shows all" in text


@pytest.mark.spec("UI-7")
@pytest.mark.parametrize(
    ("said", "answer", "rule"),
    [("a", "a", "bash(pytest -q)"), (f"s {EDGE}", "s", EDGE), ("a bash(make *)", "a", "bash(make *)"),
     ("a better way", "", ""), ("a test", "", ""), ("s it (there)?", "", "")],
)  # fmt: skip
def test_a_rule_may_follow_the_letter_of_a_line_and_nothing_else(
    said: str, answer: str, rule: str
) -> None:
    panel = choices()
    assert panel.answer_line(said) is bool(answer)
    assert panel.answer == answer and (not answer or panel.chosen.rule == rule)


def test_a_long_line_is_wrapped_below_its_beginning() -> None:
    rows = wrapped("> 2 s  yes, for this session: bash(x)", 24, indent=7)
    assert [row.text for row in rows] == ["> 2 s  yes, for this", "       session: bash(x)"]


# --- Lists


def typed(picker: Picker, keys: Iterable[str], at: float = 20.0) -> Picker:
    for key in keys:
        picker.press(Press(KEYS.get(key, "char"), key), at, more=False)
    return picker


ROWS = [PickRow("anthropic/claude-sonnet", "ready"), PickRow("openai/gpt", "no key"),
        PickRow("openai/sonnet-like", "no key")]  # fmt: skip


@pytest.mark.spec("UI-11")
@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["\r"], 0), ([*"sonnet", "\r"], 0), ([*"open", "<down>", "\r"], 2),
        ([*"no key gpt", "\r"], 1), ([*"zzz", "\r"], None), (["<up>", "\r"], 0),
    ],
)  # fmt: skip
def test_a_list_is_filtered_by_what_is_typed(keys: list[str], answer: int | None) -> None:
    assert typed(Picker("Which?", ROWS), keys).answer == answer


@pytest.mark.spec("UI-11")
def test_a_free_answer_is_offered_below_what_fits() -> None:
    colours = [PickRow("red"), PickRow("blue")]
    assert typed(Picker("?", colours, free="say"), [*"bl", "\r"]).answer == 1
    assert typed(Picker("?", colours, free="say"), [*"bl", "<down>", "\r"]).said == "bl"
    assert typed(Picker("?", colours, free="say"), [*"green", "\r"]).said == "green"
    assert typed(Picker("?", colours, free="say"), ["2", "\r"]).answer == 1


@pytest.mark.spec("UI-7")
def test_a_question_without_options_takes_no_text_that_was_begun_before_it() -> None:
    picker = Picker("", [], free="say")
    picker.open(0.0, has_text=False)
    assert picker.press(Press("char", "h"), 0.1, more=False).text == "h"
    assert picker.press(Press("char", "i"), 0.4, more=False).text == "i"
    assert picker.press(Press("enter"), 0.45, more=False) == ("", False)
    picker.tick(0.5)
    assert not picker.is_answered
    picker.tick(0.8)
    assert picker.is_answered and picker.answer is None and not picker.said


@pytest.mark.spec("UI-11")
def test_a_question_takes_nothing_that_was_typed_as_it_appeared() -> None:
    picker = Picker("?", ROWS, free="say")
    picker.open(20.0, has_text=False)
    assert picker.press(Press("char", "x"), 20.1, more=False).text == "x"
    picker.press(Press("enter"), 20.2, more=False)
    assert not picker.is_answered
    assert typed(picker, ["\r"], at=21.0).answer == 0


@pytest.mark.spec("UI-11")
def test_the_cursor_previews_and_what_is_not_shown_is_counted() -> None:
    seen: list[int] = []
    picker = Picker("?", [PickRow(f"row {n}") for n in range(50)], on_move=seen.append)
    typed(picker, ["<down>", "<down>"])
    assert seen == [1, 2]
    rows, _ = picker.rows(Size(80, 12), PLAIN, 0.0, mode=PanelMode())
    assert len(rows) == 12 and "40 more" in rows[-1].text


@pytest.mark.spec("UI-11")
def test_notes_of_a_list_stand_below_each_other_and_near_its_words() -> None:
    long = "a-provider/with-a-name-that-is-longer-than-half-of-the-window"
    picker = Picker("?", [PickRow("one", "free"), PickRow("three", "$2"), PickRow("none")])
    rows = picker.rows(Size(60, 10), PLAIN, 0.0, mode=PanelMode()).rows
    assert [row.text for row in rows[1:4]] == ["> one    free", "  three  $2", "  none"]
    picker = Picker("?", [PickRow("one", "free"), PickRow(long, "$2")])
    rows = picker.rows(Size(40, 10), PLAIN, 0.0, mode=PanelMode()).rows
    assert rows[1].text == "> one" + " " * 19 + "free"


@pytest.mark.spec("UI-1", "UI-11")
def test_a_note_that_is_cut_is_told_whole_for_the_chosen_row_and_the_list_does_not_move() -> None:
    note = "reading in the workspace is free, all else asks"
    picker = Picker(
        "?", [PickRow("default", note), PickRow("plan", "short"), PickRow("yolo", note)]
    )

    def shown() -> list[str]:
        return [row.text for row in picker.rows(Size(40, 12), PLAIN, 0.0, mode=PanelMode()).rows]

    first = shown()
    assert first[1].endswith("…") and " ".join(" ".join(first[4:6]).split()) == note
    assert first[-1] == "↑↓ choose · type to search · Esc leaves"
    typed(picker, ["<down>"])
    second = shown()
    assert len(second) == len(first) and second[4:6] == ["", ""]
    wide = picker.rows(Size(80, 12), PLAIN, 0.0, mode=PanelMode()).rows
    assert len(wide) == 5
    picker = Picker("?", [PickRow(f"row {n}", note) for n in range(50)])
    for lines in range(1, 14):
        rows, cursor = picker.rows(Size(40, lines), PLAIN, 0.0, mode=PanelMode())
        assert len(rows) <= lines and (lines < 3 or rows[cursor].text.startswith("> row 0"))
    picker = Picker("?", [PickRow("a long answer " * 4 + "with its end")], free="say")
    assert "with its end" in " ".join(shown())


@pytest.mark.spec("UI-11", "UI-7")
@pytest.mark.parametrize("begun", [True, False])
def test_enter_of_a_text_that_was_begun_before_a_question_answers_nothing(begun: bool) -> None:
    picker = Picker("?", ROWS, free="say")
    picker.open(20.0, has_text=begun)
    if not begun:
        picker.press(Press("char", "x"), 20.4, more=False)
    picker.press(Press("enter"), 21.0, more=False)
    assert not picker.is_answered
    picker.press(Press("enter"), 21.1, more=False)
    assert not picker.is_answered
    assert typed(picker, ["\r"], at=22.0).answer == 0


@pytest.mark.spec("UI-7")
def test_an_enter_that_is_held_down_answers_nothing() -> None:
    panel = choices()
    panel.open(20.0, has_text=False)
    for tenth in range(1, 30):
        panel.press(Press("enter"), 20.0 + tenth / 10, more=False)
    assert not panel.is_answered
    panel.press(Press("enter"), 24.0, more=False)
    assert panel.is_answered
