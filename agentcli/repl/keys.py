"""Keys as people write them (``ctrl-g``, ``alt-x``, ``ctrl-x ctrl-e``) for prompt-toolkit.

Law: what cannot be a key, or is one already, is an error that names it, and the default stays;
nobody can take Enter, Esc, Ctrl-C or a letter away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition, Filter, is_searching, vi_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings import search
from prompt_toolkit.key_binding.key_bindings import _parse_key
from prompt_toolkit.keys import Keys

from agentcli.domain.errors import ConfigError, UsageError
from agentcli.ui.rows import cluster_before
from agentcli.ui.theme import DIM, Theme

_PREFIXES = (("ctrl-", "c-"), ("shift-", "s-"))
_HELP = "?"  # on an empty line alone
_TAKEN = frozenset({Keys.ControlM, Keys.ControlC, Keys.Escape})


def parse_keys(text: str) -> tuple[Keys | str, ...]:
    """The keys of one binding. Raises ``ConfigError``."""
    keys: list[Keys | str] = []
    for word in text.lower().split():
        plain = word
        if plain.startswith("alt-"):
            keys.append(Keys.Escape)
            plain = plain.removeprefix("alt-")
        for prefix, short in _PREFIXES:
            if plain.startswith(prefix):
                plain = short + plain.removeprefix(prefix)
        try:
            keys.append(_parse_key(plain))
        except ValueError:
            raise ConfigError(f"{word} is not a key", "write ctrl-g, alt-x or shift-tab") from None
    if not keys or (len(keys) == 1 and keys[0] in _TAKEN) or Keys.ControlC in keys:
        raise ConfigError(f"{text or 'nothing'} cannot be used for this", "choose another key")
    if len(keys[0]) == 1 and text != _HELP:
        raise ConfigError(f"{text} could not be typed any more", "choose a key such as alt-x")
    return tuple(keys)


def check_key_setting(name: str, text: str) -> None:
    """Refuse ``text`` as the value of the setting ``keys.ACTION``. Raises ``UsageError``."""
    if name.startswith("keys."):
        try:
            parse_keys(text)
        except ConfigError as error:
            raise UsageError(f"{name}: {error.message}", error.advice) from error


def key_table(
    wanted: Mapping[str, str], defaults: Mapping[str, str]
) -> tuple[dict[str, tuple[Keys | str, ...]], list[str]]:
    """The keys by action, and a line for each one that cannot be used."""
    usual = {name: parse_keys(keys) for name, keys in defaults.items()}
    table = dict(usual)
    problems = []
    for name, keys in wanted.items():
        if keys == defaults.get(name):
            continue
        if name not in defaults:
            problems.append(f"keys.{name}: no such action; there are {', '.join(defaults)}")
            continue
        try:
            table[name] = parse_keys(keys)
        except ConfigError as error:
            problems.append(f"keys.{name}: {error}")
    while table != usual and (clash := _clash(table, usual)):
        name, other = clash
        what = f"{wanted[name]} is the key of {other}; {defaults[name]} stays"
        problems.append(f"keys.{name}: {what}")
        table[name] = usual[name]
    return table, problems


def _clash(
    table: Mapping[str, tuple[Keys | str, ...]], usual: Mapping[str, tuple[Keys | str, ...]]
) -> tuple[str, str] | None:
    """An action whose own key is another's, or begins one; and that other."""
    for name, keys in table.items():
        for other, others in table.items():
            length = min(len(keys), len(others))
            is_same = name != other and keys[:length] == others[:length]
            if is_same and keys != usual[name]:
                return name, other
    return None


# --- keys that are bound in the live input ----------------------------------------------------

_PANEL_KEYS = {
    "up": "up", "down": "down", "c-p": "up", "c-n": "down", "left": "left", "right": "right",
    "home": "home", "end": "end", "pageup": "pageup", "pagedown": "pagedown", "tab": "tab",
    "backspace": "backspace", "c-u": "erase-line", "c-w": "erase-word",
}  # fmt: skip


class TakesKeys(Protocol):
    """What gets the keys that are bound here."""

    def idle_escape(self) -> None:
        """Esc while nothing runs."""

    def press(self, key: str, text: str = "", *, more: bool = False) -> None:
        """A key, as ``panel.Press``; ``more``: text came with it."""

    def leave_panel(self) -> bool:
        """Go without an answer; false when it cannot be left so."""

    def leave_when_done(self) -> None:
        """Ctrl-D where there is no way to leave."""


def bind_panel(bindings: KeyBindings, has_keys: Filter, taker: TakesKeys) -> None:
    """Give ``taker`` all keys that a panel knows."""
    for key, name in _PANEL_KEYS.items():
        bindings.add(key, filter=has_keys)(lambda _, name=name: taker.press(name))

    @bindings.add("?", filter=has_keys)
    @bindings.add(Keys.Any, filter=has_keys)
    def _any(event: KeyPressEvent) -> None:
        if event.data.isprintable():
            taker.press("char", event.data)

    @bindings.add("enter", filter=has_keys)
    def _enter(event: KeyPressEvent) -> None:
        taker.press("enter", more=text_follows(event))

    @bindings.add("c-d", filter=has_keys)
    def _leave(_event: KeyPressEvent) -> None:
        if not taker.leave_panel():
            taker.leave_when_done()

    @bindings.add("c-j", filter=has_keys)
    @bindings.add("escape", "enter", filter=has_keys)
    def _new_line(_event: KeyPressEvent) -> None:
        taker.press("char", "\n")


def bind_idle_escape(bindings: KeyBindings, idle: Filter, alone: Filter, taker: TakesKeys) -> None:
    """Esc while nothing runs. A lone one is no prefix: what is typed after it stands as it is."""

    @bindings.add("escape", filter=idle & alone & ~vi_mode, eager=True)
    def _once(_event: KeyPressEvent) -> None:
        taker.idle_escape()

    empty = Condition(lambda: not get_app().current_buffer.text)

    @bindings.add("escape", "escape", filter=idle & empty)
    def _twice(_event: KeyPressEvent) -> None:
        taker.idle_escape()
        taker.idle_escape()


def bind_moves(
    bindings: KeyBindings,
    keys: Mapping[str, tuple[Keys | str, ...]],
    focused: Filter,
    rewind: Callable[[], None],
) -> None:
    """The search of earlier prompts, a new drawing, and the way back where Esc Esc is not it."""
    searching = search.start_reverse_incremental_search
    bindings.add(*keys["search"], filter=focused & ~is_searching)(searching)
    bindings.add(*keys["redraw"])(lambda event: event.app.renderer.clear())
    if keys["rewind"] != (Keys.Escape, Keys.Escape):
        empty = Condition(lambda: not get_app().current_buffer.text)
        bindings.add(*keys["rewind"], filter=focused & empty)(lambda _: rewind())


def text_follows(event: KeyPressEvent) -> bool:
    """Whether text came together with this key: a paste that is not marked as one."""
    waiting = event.key_processor.input_queue
    return any(key.key == key.data and key.data.isprintable() for key in waiting)


def bind_compound_backspace(bindings: KeyBindings, focused: Filter) -> None:
    """Backspace takes a compound emoji, or a letter with its marks, as one."""

    def before() -> int:
        return cluster_before(get_app().current_buffer.document.text_before_cursor)

    @bindings.add("backspace", filter=focused & Condition(lambda: before() > 1))
    def _delete(event: KeyPressEvent) -> None:
        event.current_buffer.delete_before_cursor(before())


# --- the keys of the chat, in one list: ``?`` and ``/help`` show it -------------------------------

# an action in braces stands for the key that it has
_KEYS: Sequence[tuple[str, str]] = (
    ("Enter", "send; while it works: queue"),
    ("Alt-Enter, {newline}", "new line; also \\ Enter"),
    ("Esc, Ctrl-C", "stop the agent; again: at once"),
    ("{rewind}", "when empty: go back to an earlier prompt"),
    ("Ctrl-C, {leave}", "when empty: leave"),
    ("{recall}, Down, {search}", "queued and earlier prompts"),
    ("{mode}", "next permission mode"),
    ("{output}", "the whole session, at the last tool call"),
    ("{background}", "the running command: to the background"),
    ("{todos}", "the agent's list of things to do"),
    ("{editor}", "write in your editor"),
    ("{redraw}, {suspend}", "redraw, suspend"),
    ("@file, {image}", "a file; the clipboard's image"),
    ("!command", "run it and show it to the model; !! only run"),
    ("{help}", "on an empty line: these keys"),
)


def shown_keys(wanted: Mapping[str, str], defaults: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Each key as the user has it, and what it does."""
    usable = dict(defaults)
    for name, keys in wanted.items():
        own = name in usable and keys != usable[name]
        if own and not key_table({name: keys}, defaults)[1]:
            usable[name] = keys
    names = {name: " ".join(map(_capital, keys.split())) for name, keys in usable.items()}
    return [(keys.format_map(names), what) for keys, what in _KEYS]


def _capital(key: str) -> str:
    """``ctrl-o`` as ``Ctrl-O``."""
    key = "esc" if key == "escape" else key
    return "-".join(part.capitalize() for part in key.split("-"))


def key_lines(keys: Sequence[tuple[str, str]], theme: Theme) -> list[str]:
    """A line for each key."""
    width = max(len(key) for key, _ in keys)
    return [f"  {key:<{width}}  {theme.paint(what, DIM)}" for key, what in keys]
