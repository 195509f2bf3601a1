"""Keys as people write them (``ctrl-g``, ``alt-x``, ``ctrl-x ctrl-e``) for prompt-toolkit.

Law: what cannot be a key is an error that names it; nobody can take Enter, Esc or Ctrl-C away.
"""

from __future__ import annotations

from collections.abc import Mapping

from prompt_toolkit.key_binding.key_bindings import _parse_key
from prompt_toolkit.keys import Keys

from agentcli.domain.errors import ConfigError

DEFAULTS: Mapping[str, str] = {
    "background": "ctrl-b",
    "editor": "ctrl-g",
    "image": "ctrl-v",
    "mode": "shift-tab",
    "newline": "ctrl-j",
    "output": "ctrl-o",
    "suspend": "ctrl-z",
    "todos": "ctrl-t",
}
_PREFIXES = (("ctrl-", "c-"), ("shift-", "s-"))
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
            raise ConfigError(f"{word} is no key", "write ctrl-g, alt-x or shift-tab") from None
    if not keys or (len(keys) == 1 and keys[0] in _TAKEN):
        raise ConfigError(f"{text or 'nothing'} cannot be used for this", "choose another key")
    return tuple(keys)


def key_table(wishes: Mapping[str, str]) -> tuple[dict[str, tuple[Keys | str, ...]], list[str]]:
    """The keys by action, and a line for each wish that cannot be granted."""
    table = {name: parse_keys(keys) for name, keys in DEFAULTS.items()}
    problems = []
    for name, keys in wishes.items():
        if name not in DEFAULTS:
            problems.append(f"keys.{name}: there are {', '.join(DEFAULTS)}")
            continue
        try:
            table[name] = parse_keys(keys)
        except ConfigError as error:
            problems.append(f"keys.{name}: {error}")
    return table, problems
