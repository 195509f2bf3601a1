"""Every key of ``config.toml``: its type, its default, what it is for. The one list of them.

``settings`` reads by it, ``edit`` writes by it, ``agent config`` shows it. A key is a dotted
path; ``providers.NAME.*`` and ``models.NAME.*`` hold for every name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from agentcli.domain.ports import Effort, PermissionMode

# a comma that does not stand between brackets: rules hold commas of their own
_OUTER_COMMA = re.compile(r",(?![^(]*\))")


class Kind(StrEnum):
    """The type of a key's value; the text is how it is told to a person."""

    TEXT = "a text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    LIST = "a list of texts"
    URL = "an http:// or https:// address"


class Key(NamedTuple):
    """One key. ``minimum`` bounds numbers; ``choices`` lists all that is valid, if it is a list."""

    kind: Kind
    help: str
    default: object = None
    choices: tuple[str, ...] = ()
    minimum: float = 0

    def check(self, value: object) -> str:
        """Why ``value`` is not valid: "expected ..."; empty when it is."""
        if not self._has_type(value):
            return f"expected {self.expected}, not {_shown(value)}"
        if self.choices and value not in self.choices:
            return f"expected {self.expected}, not {_shown(value)}"
        if isinstance(value, (int, float)) and not self.minimum <= value < float("inf"):
            return f"expected {self.expected}, not {_shown(value)}"
        return ""

    @property
    def expected(self) -> str:
        """What is valid, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind in {Kind.WHOLE, Kind.NUMBER}:
            return f"{self.kind} of at least {self.minimum:g}"
        return str(self.kind)

    def _has_type(self, value: object) -> bool:
        if isinstance(value, bool):
            return self.kind is Kind.FLAG
        match value:
            case int():
                return self.kind in {Kind.WHOLE, Kind.NUMBER}
            case float():
                return self.kind is Kind.NUMBER
            case list():
                return self.kind is Kind.LIST and all(isinstance(item, str) for item in value)
            case str():
                is_url = value.startswith(("http://", "https://"))
                return self.kind is Kind.TEXT or (self.kind is Kind.URL and is_url)
        return False

    def parse(self, text: str) -> object:
        """``text`` of the command line as a value of this key; raises ``ValueError``."""
        value = self._parsed(text.strip())
        problem = self.check(value)
        if problem:
            raise ValueError(problem)
        return value

    def _parsed(self, text: str) -> object:
        """``text`` read as this kind; a text that cannot be read so stays one, to be refused."""
        try:
            match self.kind:
                case Kind.FLAG:
                    return {"true": True, "false": False}.get(text.lower(), text)
                case Kind.WHOLE:
                    return int(text)
                case Kind.NUMBER:
                    return float(text)
                case Kind.LIST if text.startswith("["):
                    return json.loads(text)
                case Kind.LIST:
                    return [item.strip() for item in _OUTER_COMMA.split(text) if item.strip()]
        except ValueError:
            pass
        return text


def _shown(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)[:80]


THEMES = ("auto", "dark", "light", "high-contrast", "daltonized", "none")
ACTION_KEYS: Mapping[str, tuple[str, str]] = {
    "background": ("ctrl-b", "send the running command to the background"),
    "editor": ("ctrl-g", "write in the editor"),
    "image": ("ctrl-v", "take an image from the clipboard"),
    "mode": ("shift-tab", "next permission mode"),
    "newline": ("ctrl-j", "new line"),
    "output": ("ctrl-o", "the whole output of the last tool call"),
    "suspend": ("ctrl-z", "suspend"),
    "todos": ("ctrl-t", "show or hide the list of things to do"),
}
"""What can be given another key in the chat: its key and what it does."""

KEYS: Mapping[str, Key] = {
    "model": Key(Kind.TEXT, "The model to use, as provider/model"),
    "fallback_models": Key(
        Kind.LIST, "Models to go on with when the first one stays overloaded", ()
    ),
    "effort": Key(
        Kind.TEXT, "How hard the model should think", choices=tuple(str(e) for e in Effort)
    ),
    "permission_mode": Key(
        Kind.TEXT,
        "What runs without asking",
        str(PermissionMode.DEFAULT),
        tuple(str(mode) for mode in PermissionMode),
    ),
    "sandbox": Key(Kind.TEXT, "What limits commands", "auto", ("auto", "bwrap", "landlock", "off")),
    "sandbox_network": Key(
        Kind.FLAG, "Commands in the sandbox have the network without asking", default=False
    ),
    "max_steps": Key(Kind.WHOLE, "Model requests in one turn; 0 means no limit", 200),
    "max_output_tokens": Key(Kind.WHOLE, "Longest reply of the model, in tokens", minimum=1),
    "max_answers_without_tools": Key(
        Kind.WHOLE, "Answers in a row without a tool call, in a turn that must use tools", minimum=1
    ),
    "theme": Key(Kind.TEXT, "Colours", "auto", THEMES),
    "notifications": Key(
        Kind.TEXT, "How a long turn says that it has ended", "bell", ("bell", "desktop", "off")
    ),
    "editing_mode": Key(Kind.TEXT, "Keys of the input line", "emacs", ("emacs", "vi")),
    "screen_reader": Key(Kind.FLAG, "Line by line, nothing is ever redrawn", default=False),
    "background_reacts": Key(
        Kind.FLAG, "In an idle chat the agent reacts when a background run ends", default=True
    ),
    **{
        f"keys.{action}": Key(Kind.TEXT, f"Key for: {what}", key)
        for action, (key, what) in ACTION_KEYS.items()
    },
    "permissions.allow": Key(Kind.LIST, "Rules for calls that run without asking", ()),
    "permissions.ask": Key(Kind.LIST, "Rules for calls that always ask", ()),
    "permissions.deny": Key(Kind.LIST, "Rules for calls that never run", ()),
    "tools.off": Key(Kind.LIST, "Tools or groups of tools that are switched off", ()),
    "plugins": Key(Kind.LIST, "Python plugins to load, by the name of their entry point", ()),
}

PROVIDER_KEYS: Mapping[str, Key] = {
    "kind": Key(Kind.TEXT, "The wire protocol: anthropic, openai or openai-responses"),
    "api": Key(
        Kind.TEXT, "Which API of a server that speaks like OpenAI's", choices=("chat", "responses")
    ),
    "base_url": Key(Kind.URL, "Where the server is"),
    "api_key_env": Key(Kind.TEXT, "Name of the environment variable that holds the key"),
}

MODEL_KEYS: Mapping[str, Key] = {
    "context_tokens": Key(Kind.WHOLE, "Size of the context window, in tokens", minimum=1),
    "max_output_tokens": Key(Kind.WHOLE, "Longest reply, in tokens", minimum=1),
    "input_price": Key(Kind.NUMBER, "USD per million input tokens"),
    "output_price": Key(Kind.NUMBER, "USD per million output tokens"),
    "cache_read_price": Key(Kind.NUMBER, "USD per million tokens read from the cache"),
    "cache_write_price": Key(Kind.NUMBER, "USD per million tokens written to the cache"),
}

TABLES: Mapping[str, Mapping[str, Key]] = {"providers": PROVIDER_KEYS, "models": MODEL_KEYS}
_NAMED_DEPTH = 3


def find_key(path: tuple[str, ...]) -> Key | None:
    """The key at ``path``, or ``None``."""
    if len(path) == _NAMED_DEPTH and path[0] in TABLES:
        return TABLES[path[0]].get(path[2])
    return KEYS.get(".".join(path))


def all_names() -> list[str]:
    """Every key as it is written, with NAME where any name may stand."""
    named = [f"{table}.NAME.{key}" for table, keys in TABLES.items() for key in keys]
    return [*KEYS, *named]


def near_names(path: tuple[str, ...]) -> list[str]:
    """Keys like ``path``, best first; empty when nothing is like it."""
    from difflib import get_close_matches

    if len(path) == _NAMED_DEPTH and path[0] in TABLES:
        near = get_close_matches(path[2], list(TABLES[path[0]]), n=3, cutoff=0.5)
        return [".".join((*path[:2], name)) for name in near]
    return get_close_matches(".".join(path), all_names(), n=3, cutoff=0.6)
