"""Which kind of line: thematic breaks, whatever their length."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui import markdown_syntax
from agentcli.ui.markdown_syntax import LineKind, classify, is_open, spans
from agentcli.ui.sanitize import clean
from agentcli.ui.theme import BOLD, CODE, DIM, ITALIC, LINK


def kind_of(line: str) -> LineKind:
    return classify(line, code_from=4).kind


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("***", LineKind.RULE), ("- - -", LineKind.RULE), ("_\t_ _  ", LineKind.RULE), ("**", LineKind.TEXT),
        ("- -", LineKind.BULLET), ("+ + +", LineKind.BULLET), ("*-*", LineKind.TEXT), ("--- x", LineKind.TEXT),
        ("-", LineKind.BULLET), ("* * a", LineKind.BULLET), ("    ***", LineKind.INDENTED),
    ],
)  # fmt: skip
def test_a_thematic_break_is_three_or_more_of_one_mark(line: str, kind: LineKind) -> None:
    assert kind_of(line) is kind


@pytest.mark.spec("SEC-13", "UI-1")
@pytest.mark.parametrize("mark", ["*", "-", "_", "* ", "`", "#", ">", "1", "|"])
def test_a_very_long_line_of_marks_is_classified_in_little_memory(mark: str) -> None:
    line = mark * (400_000 // len(mark))
    tracemalloc.start()
    try:
        kind_of(line)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(line)


# --- Inline Markdown


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**a *b* c**", [("a ", BOLD), ("b", BOLD | ITALIC), (" c", BOLD)]),
        ("***x***", [("x", BOLD | ITALIC)]),
        ("**a *b***", [("a ", BOLD), ("b", BOLD | ITALIC)]),
        ("`` a`b ``", [("a`b", CODE)]),
        ("`**x**`", [("**x**", CODE)]),
        ("*a `*` b*", [("a ", ITALIC), ("*", ITALIC | CODE), (" b", ITALIC)]),
        ("[a **b**](u)", [("a ", LINK), ("b", LINK | BOLD), (" (u)", DIM)]),
        ('[a](u(v)w "t")', [("a", LINK), (" (u(v)w)", DIM)]),
        ("[](u)", [("u", LINK)]),
        ("<http://x>", [("http://x", LINK)]),
        ("__init__ a__b__c", [("init", BOLD), (" a__b__c", 0)]),
        ("* a * ** b **", [("* a * ** b **", 0)]),
        (
            "see https://e.org/a_b?x=1&y=2, or (http://e.org/c_(d)).",
            [
                ("see ", 0), ("https://e.org/a_b?x=1&y=2", LINK), (", or (", 0),
                ("http://e.org/c_(d)", LINK), (").", 0),
            ],
        ),
        ("**at https://e.org/**", [("at ", BOLD), ("https://e.org/", BOLD | LINK)]),
        ("`http://x` xhttp://y", [("http://x", CODE), (" xhttp://y", 0)]),
        ("[a](http://x)", [("a", LINK), (" (http://x)", DIM)]),
    ],
)  # fmt: skip
def test_what_each_construct_amounts_to(text: str, expected: list[tuple[str, int]]) -> None:
    assert spans(text) == expected


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words", False), ("a **b", True), ("a **b** c", False), ("`x", True), ("[a](b", True),
        ("[a] b", False), ("2 * 3", False), ("snake_case", False), ("_x", True), ("end\\", True),
        ("<b class", True), ("a < b", False),
    ],
)  # fmt: skip
def test_what_later_text_could_change_is_known(text: str, expected: bool) -> None:
    assert is_open(text) is expected


SIMPLE = st.lists(
    st.sampled_from(
        ["word ", "`code`", " `a b` ", "**bold**", " **b c** ", "*", " * ", "_", "a_b", "!", "& ", "<",
         "x", ".", " ", "é", "``", "(", "**", "~", "\\"]
    ),
    max_size=8,
).map("".join)  # fmt: skip


@pytest.mark.spec("UI-1")
@settings(max_examples=400)
@given(SIMPLE)
def test_what_is_told_without_the_parser_is_what_it_says(text: str) -> None:
    simple = markdown_syntax._simple(text, 0)
    if simple is not None:
        parsed = markdown_syntax._styled(markdown_syntax._inline(text), 0)
        joined: list[tuple[str, int]] = []
        for part, style in parsed:
            if joined and joined[-1][1] == style:
                part = joined.pop()[0] + part
            joined.append((part, style))
        assert [
            (a.strip() if n in {0, len(joined) - 1} else a, b) for n, (a, b) in enumerate(joined)
        ] == [(a.strip() if n in {0, len(simple) - 1} else a, b) for n, (a, b) in enumerate(simple)]


@pytest.mark.spec("SEC-10")
def test_an_entity_is_no_way_to_a_control_character() -> None:
    shown = "".join(text for text, _ in spans("&#27;[2J&#x9b;1m&#13;&#127;&#x85;&#x202e;"))
    assert "[2J" in shown
    assert clean(shown) == shown
