"""Changing the user's file: its comments and its order stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentcli.config.keys import dotted, find_key, near_names, split_key
from agentcli.config.paths import REPAIR, Paths, read_text, write
from agentcli.config.settings import leaves, mistakes_in, validate
from agentcli.config.toml_file import Mistake, parse, parse_leniently, refusal
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
_BY_HAND = 'run "agent config edit" and set it by hand'
_STILL = "still to be repaired:"
_ASIDE = "agentcli keeps this line aside"


class Written(NamedTuple):
    """What was set, and what the user should know of it, a line each."""

    value: object
    warnings: tuple[str, ...] = ()


def set_value(paths: Paths, name: str, text: str) -> Written:
    """Set key ``name`` to the value that ``text`` stands for.

    A file with mistakes is repaired where they are about this key; the others are left to be
    repaired in the same way. Raises ``UsageError`` for an unknown key or an invalid value,
    ``ConfigError`` when the file is unreadable or nothing of it would be repaired; the file is
    then untouched.
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
    if path == ("checks",) and "[[checks]]" in before:
        raise ConfigError("this file has [[checks]] of its own", _BY_HAND)
    mistakes = mistakes_in(before, paths)
    after = _with_value_among(before, path, value, mistakes)
    left = mistakes_in(after, paths)
    if left and len(left) >= len(mistakes):
        refused = refusal(paths.config_file, left)
        advice = _how_to_repair(left) or refused.advice
        raise ConfigError(refused.headline, advice, refused.details)
    write(paths.config_file, after)
    return Written(value, tuple(f"{_STILL} line {each.line}: {each.what}" for each in left))


def _how_to_repair(mistakes: Sequence[Mistake]) -> str:
    """The command that repairs the first of the mistakes, when there is one."""
    key = next((each.key for each in mistakes if find_key(each.key)), None)
    if key is None or any(each.advice != REPAIR for each in mistakes):
        return ""
    return f'repair it first: "agent config set {dotted(key)} VALUE", or "agent config edit"'


def _with_value_among(
    text: str, path: tuple[str, ...], value: object, mistakes: Sequence[Mistake]
) -> str:
    """``text`` with the value, though some of its statements cannot be read.

    Those stand aside as comments meanwhile; the ones about this key are gone afterwards.
    """
    lines = text.split("\n")
    aside: dict[str, str] = {}
    is_read = any(leaf == path for leaf, _ in leaves(parse_leniently(text, Path())[0]))
    unread = sorted((each for each in mistakes if each.lines[0]), key=lambda each: each.lines)
    for number, each in reversed(list(enumerate(unread))):
        first, last = each.lines[0] - 1, each.lines[1]
        whole = "\n".join(lines[first:last])
        if each.key != path:
            mark = f"# {_ASIDE} {number:03}"
            aside[mark] = whole
            lines[first:last] = [mark]
        elif is_read:
            lines[first:last] = []
        else:
            is_read = True
            lines[first:last] = [f"{whole.partition('=')[0].strip()} = 0"]
    after = _with_value("\n".join(lines), path, value)
    if any(mark not in after for mark in aside):
        raise ConfigError(f"cannot set {dotted(path)} in this file", _BY_HAND)
    for mark, whole in aside.items():
        after = after.replace(mark, whole, 1)
    return after


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


def put_server(paths: Paths, name: str, entry: Mapping[str, Any] | None) -> None:
    """Write the MCP server ``name`` into the user's file; ``None`` takes it out.

    Raises ``ConfigError``; the file is then untouched.
    """
    text = read_text(paths.config_file) or ""
    validate(text, paths)
    if entry is not None:
        after = text
        for key, value in entry.items():
            after = _with_value(after, ("mcp", "servers", name, key), value)
    else:
        import tomlkit

        document: Any = tomlkit.parse(text)
        document["mcp"]["servers"].pop(name, None)
        if not document["mcp"]["servers"]:
            del document["mcp"]
        after = tomlkit.dumps(document)
    validate(after, paths)
    write(paths.config_file, after)


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
    """The error for a key that does not exist, with near names."""
    if split_key(name)[:1] == ("hooks",):
        return UsageError("hooks are not set one by one", 'write them with "agent config edit"')
    if split_key(name)[:1] == ("mcp",):
        return UsageError("MCP servers are not set one by one", "agent mcp add --help says how")
    if split_key(name)[:1] == ("checks",):
        return UsageError("checks are not set one by one", 'write them with "agent config edit"')
    near = near_names(split_key(name))
    advice = f"did you mean {' or '.join(near)}?" if near else "all keys: agent config show"
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
        raise ConfigError(f"cannot set {dotted(path)} in this file: {error}", _BY_HAND) from error
