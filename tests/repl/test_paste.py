"""Folded pastes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.app.mentions import find_mentions
from agentcli.repl.paste import FOLD_CHARS, FOLD_LINES, Pastes


@pytest.mark.spec("UI-3")
def test_a_short_paste_is_itself_and_a_long_one_a_sign() -> None:
    pastes = Pastes()
    assert pastes.fold("one\ntwo") == "one\ntwo"
    assert pastes.fold("\n".join("x" * 10_000)) == "[Pasted text #1 +9,999 lines]"
    assert pastes.fold("y" * (FOLD_CHARS + 1)) == "[Pasted text #2 +2,001 characters]"


@pytest.mark.spec("UI-3")
@settings(max_examples=50)
@given(st.lists(st.text("ab\n[]#1 ", max_size=40), max_size=4))
def test_signs_stand_for_what_was_pasted(texts: list[str]) -> None:
    pastes = Pastes()
    long = [text + "\n" * FOLD_LINES for text in texts]
    typed = " and ".join(map(pastes.fold, long))
    assert pastes.expand(typed) == " and ".join(long)


@pytest.mark.spec("UI-3")
def test_a_sign_that_was_edited_or_never_given_is_text() -> None:
    pastes = Pastes()
    sign = pastes.fold("\n" * 20)
    assert pastes.expand(sign[:-1]) == sign[:-1]
    assert pastes.expand("[Pasted text #7 +3 lines]") == "[Pasted text #7 +3 lines]"
    assert pastes.sign_before(f"look: {sign}") == len(sign)
    assert pastes.sign_before(f"{sign} ") == 0
    assert pastes.sign_before("[Pasted text #7 +3 lines]") == 0
    assert pastes.sign_before("]") == 0


@pytest.mark.spec("UI-3")
def test_the_sign_of_an_image_names_its_file_when_it_is_sent() -> None:
    pastes = Pastes()
    sign = pastes.image(Path('/tmp/a "b" [c].png'))
    assert sign == '[Image #1 a "b" _c_.png]'
    expanded = pastes.expand(f"look at{sign}and say")
    assert expanded == 'look at @"/tmp/a \\"b\\" [c].png" and say'
    assert next(find_mentions(expanded))[0].path == '/tmp/a "b" [c].png'
    assert pastes.sign_before(f"x {sign}") == len(sign)
    assert pastes.expand(sign.replace("a", "o")) == sign.replace("a", "o")
    assert pastes.image(Path("/tmp/2.png")) == "[Image #2 2.png]"
    pastes.forget()
    assert pastes.expand(sign) == sign
