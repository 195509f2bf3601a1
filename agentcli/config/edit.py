"""Changing the user's file: its comments and its order stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentcli.config.paths import Paths, write
from agentcli.config.settings import all_names, find_key, near_names, validate
from agentcli.config.toml_file import parse, read_text, split_key
from agentcli.domain.errors import ConfigError, UsageError

TEMPLATE = """\
# Settings of agentcli. "agent config show" lists every key, its value and where it comes from.
# model = "anthropic/claude-sonnet-4-5"
# permission_mode = "default"

# A server of your own that speaks the OpenAI protocol:
# [providers.local]
# kind = "openai"
# base_url = "http://127.0.0.1:8000/v1"
"""


def set_value(paths: Paths, name: str, text: str) -> object:
    """Set key ``name`` to the value that ``text`` stands for; returns the value.

    Raises ``UsageError`` for an unknown key or an invalid value, ``ConfigError`` when the file
    is unreadable or would not be valid afterwards; the file is then untouched.
    """
    path = split_key(name)
    key = find_key(path)
    if key is None:
        raise unknown_key(name)
    try:
        value = key.parse(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}", key.help) from error
    before = read_text(paths.config_file) or ""
    parse(before, paths.config_file)  # the error with line and column, before any change
    after = _with_value(before, path, value)
    validate(after, paths)
    write(paths.config_file, after)
    return value


def add_rule(paths: Paths, kind: str, rule: str) -> None:
    """Write ``rule`` to the rules of ``kind``: "allow", "ask" or "deny" (SEC-3, UI-7).

    Raises ``ConfigError`` as ``set_value`` does; a rule that is there already stays one.
    """
    known = _rules(paths, kind)
    if rule not in known:
        _write_rules(paths, {kind: [*known, rule]})


def remove_rule(paths: Paths, rule: str) -> bool:
    """Take ``rule`` out of the rules of every kind; false when it was in none."""
    found = {
        kind: [each for each in known if each != rule]
        for kind in ("allow", "ask", "deny")
        if rule in (known := _rules(paths, kind))
    }
    if found:
        _write_rules(paths, found)
    return bool(found)


def _rules(paths: Paths, kind: str) -> list[str]:
    text = read_text(paths.config_file) or ""
    validate(text, paths)
    return list(parse(text, paths.config_file).get("permissions", {}).get(kind, []))


def _write_rules(paths: Paths, changed: Mapping[str, Sequence[str]]) -> None:
    import tomlkit

    after = read_text(paths.config_file) or ""
    for kind, rules in changed.items():
        array = tomlkit.array()
        array.extend(rules)
        after = _with_value(after, ("permissions", kind), array)
    validate(after, paths)
    write(paths.config_file, after)


def unknown_key(name: str) -> UsageError:
    """The error for a key that does not exist: near names, else all of them."""
    if split_key(name)[:1] == ("hooks",):
        return UsageError("hooks are not set one by one", 'write them with "agent config edit"')
    near = near_names(split_key(name))
    advice = f"did you mean {' or '.join(near)}?" if near else "keys: " + ", ".join(all_names())
    return UsageError(f"unknown key {name}", advice)


def _with_value(text: str, path: tuple[str, ...], value: object) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        table: Any = document
        for index, part in enumerate(path[:-1]):
            if part not in table:
                # [providers] itself stays implicit: only the innermost table has a header
                table[part] = tomlkit.table(is_super_table=index < len(path) - 2)
            table = table[part]
        table[path[-1]] = value
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, AttributeError) as error:
        advice = 'run "agent config edit" and set it by hand'
        raise ConfigError(f"cannot set {'.'.join(path)} in this file: {error}", advice) from error
