"""Keys as people write them."""

from __future__ import annotations

import pytest
from prompt_toolkit.keys import Keys

from agentcli.config.keys import ACTION_KEYS
from agentcli.domain.errors import ConfigError
from agentcli.repl.keys import key_table, parse_keys, shown_keys

DEFAULTS = {action: key for action, (key, _) in ACTION_KEYS.items()}


@pytest.mark.spec("UI-3")
@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("ctrl-g", (Keys.ControlG,)),
        ("Alt-x", (Keys.Escape, "x")),
        ("shift-tab", (Keys.BackTab,)),
        ("ctrl-x ctrl-e", (Keys.ControlX, Keys.ControlE)),
        ("f5", (Keys.F5,)),
    ],
)
def test_keys_are_read_as_they_are_written(text: str, keys: tuple[object, ...]) -> None:
    assert parse_keys(text) == keys


@pytest.mark.parametrize(
    "text",
    ["", "ctrl-nothing", "enter", "ctrl-c", "escape", "x", "alt-x ctrl-c", "ctrl-x ctrl-c y"],
)
def test_what_is_no_key_or_taken_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_keys(text)


@pytest.mark.spec("UI-3")
def test_a_key_that_cannot_be_used_is_named_and_the_default_stays() -> None:
    table, problems = key_table({"editor": "ctrl-x", "todos": "enter", "nosuch": "f1"}, DEFAULTS)
    assert table["editor"] == (Keys.ControlX,)
    assert table["todos"] == parse_keys(DEFAULTS["todos"])
    assert [problem.partition(":")[0] for problem in problems] == ["keys.todos", "keys.nosuch"]


def test_every_default_is_a_key() -> None:
    assert key_table({}, DEFAULTS)[0].keys() == ACTION_KEYS.keys()


@pytest.mark.spec("UI-4")
def test_the_keys_that_are_shown_are_those_of_the_user() -> None:
    wanted = {"todos": "alt-l", "editor": "zz"}
    shown = {what: key for key, what in shown_keys(wanted, DEFAULTS)}
    assert shown["the agent's list of things to do"] == "Alt-L"
    assert shown["write in your editor"] == "Ctrl-G"
    assert shown["next permission mode"] == "Shift-Tab"


@pytest.mark.spec("EXT-10")
@pytest.mark.parametrize(
    ("wanted", "problems"),
    [
        ({"todos": "ctrl-o"}, ["keys.todos: ctrl-o is the key of output; ctrl-t stays"]),
        ({"todos": "ctrl-o", "output": "ctrl-t"}, []),
        (
            {"search": "f3 x", "redraw": "f3"},
            ["keys.redraw: f3 is the key of search; ctrl-l stays"],
        ),
        ({"editor": "ctrl-b", "background": "ctrl-g"}, []),
        ({"help": "f1", "rewind": "alt-r", "leave": "ctrl-q"}, []),
    ],
)
def test_two_actions_have_no_key_in_common(wanted: dict[str, str], problems: list[str]) -> None:
    table, found = key_table({**DEFAULTS, **wanted}, DEFAULTS)
    assert found == problems
    assert len(set(table.values())) == len(table)
    assert key_table(DEFAULTS, DEFAULTS)[1] == []
