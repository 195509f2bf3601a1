"""Every key of ``config.toml``: type, default, what it is for, whether a project may say it.

``KEYS`` is the one list of them: ``settings`` reads by it, ``edit`` writes by it, ``agent config``
shows it. A key is a dotted path; ``providers.NAME.*`` and ``models.NAME.*`` hold for every name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import partial

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import Effort, PermissionMode
from agentcli.domain.values import frozen

# --- what a value may be --------------------------------------------------------------------

# Law: a value that is wrong is refused in words that hold nothing of a key.

# a comma that does not stand between brackets: rules hold commas of their own
_OUTER_COMMA = r",(?![^(]*\))"


class KeyKind(StrEnum):
    """The type of a key's value; the text is how users are told of it."""

    TEXT = "a text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    LIST = "a list of texts"
    PLACES = "a list of paths that begin with ~/ or /"
    URL = "an http:// or https:// address"
    TEXTS = "a table of texts"
    HEADERS = "a table of HTTP headers, NAME = a text of one line"


_TABLES = frozenset({KeyKind.TEXTS, KeyKind.HEADERS})
_HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
# what the program itself has to say of a request
_OWN_HEADERS = frozenset(
    {"host", "content-length", "content-type", "connection", "transfer-encoding", "accept-encoding"}
)
_LISTS = frozenset({KeyKind.LIST, KeyKind.PLACES})
_PLACE = r"~?/+[^/]"


@frozen
class Key:
    """One key. ``minimum`` bounds numbers; ``choices`` lists all that is valid, if it is a list.

    ``shared``: a trusted project may say it too; ``added``: it then adds to the user's list, and
    takes nothing of theirs away. What a project may never set, trusted or not: where keys are
    sent, what code is loaded, how the user likes the screen.
    """

    kind: KeyKind
    help: str
    default: object = None
    choices: tuple[str, ...] = ()
    minimum: float = 0
    shared: bool = False
    added: bool = False

    def check(self, value: object) -> str:
        """Why ``value`` is not valid: "expected ..."; empty when it is."""
        if not self._has_type(value):
            return f"expected {self.expected}, not {shown(value)}"
        if self.choices and value not in self.choices:
            return f"expected {self.expected}, not {shown(value)}"
        if isinstance(value, (int, float)) and not self.minimum <= value < float("inf"):
            return f"expected {self.expected}, not {shown(value)}"
        return ""

    @property
    def expected(self) -> str:
        """What is valid, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind in {KeyKind.WHOLE, KeyKind.NUMBER}:
            return f"{self.kind} of at least {self.minimum:g}"
        return str(self.kind)

    def _has_type(self, value: object) -> bool:
        match value:
            case bool():
                return self.kind is KeyKind.FLAG
            case int() | float():
                is_whole = isinstance(value, int) and self.kind is KeyKind.WHOLE
                return is_whole or self.kind is KeyKind.NUMBER
            case list() if self.kind in _LISTS:
                is_places = self.kind is KeyKind.PLACES
                return all(
                    isinstance(item, str) and (re.match(_PLACE, item) or not is_places)
                    for item in value
                )
            case str() if self.kind is KeyKind.URL:
                return value.startswith(("http://", "https://"))
            case dict() if self.kind in _TABLES:
                is_header = self.kind is KeyKind.HEADERS
                return all(_is_entry(*each, is_header=is_header) for each in value.items())
        return self.kind is KeyKind.TEXT and isinstance(value, str)

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
                case KeyKind.FLAG:
                    return {"true": True, "false": False}.get(text.lower(), text)
                case KeyKind.WHOLE:
                    return int(text)
                case KeyKind.NUMBER:
                    return float(text)
                case _ if self.kind in _TABLES or (self.kind in _LISTS and text.startswith("[")):
                    return json.loads(text)
                case KeyKind.LIST | KeyKind.PLACES:
                    return [item.strip() for item in re.split(_OUTER_COMMA, text) if item.strip()]
        except ValueError:
            pass
        return text


def _is_entry(name: str, value: object, *, is_header: bool) -> bool:
    if not isinstance(value, str) or not value.isprintable():
        return False
    usable = (
        re.fullmatch(_HEADER_NAME, name) and name.lower() not in _OWN_HEADERS and value.isascii()
    )
    return bool(name) and bool(usable or not is_header)


def shown(value: object) -> str:
    """A value that is not valid, for a message; of a table only the names."""
    if isinstance(value, dict):  # a value in it may be a key
        return f"one with {', '.join(map(str, value))}"[:80] if value else "an empty one"
    return json.dumps(value, default=str, ensure_ascii=False)[:80]


# --- keys that hold for a name ----------------------------------------------------------------

WAIT_KEYS: Mapping[str, Key] = {
    "first_token_timeout_s": Key(
        KeyKind.NUMBER, "Longest wait for the first word of a reply, in seconds", minimum=1
    ),
    "idle_timeout_s": Key(KeyKind.NUMBER, "Longest silence within a reply, in seconds", minimum=1),
    "max_attempts": Key(KeyKind.WHOLE, "How often one reply is asked for", minimum=1),
}
"""What a provider, or one model, may be waited for (STR-3)."""

TOOL_PROTOCOL = Key(
    KeyKind.TEXT,
    "How models call tools: as the API has it, in their text, or either",
    choices=("auto", "native", "text"),
)

PROVIDER_KEYS: Mapping[str, Key] = {
    "kind": Key(KeyKind.TEXT, "The wire protocol: anthropic, openai or openai-responses"),
    "api": Key(
        KeyKind.TEXT,
        "Which API of a server that speaks like OpenAI's",
        choices=("chat", "responses"),
    ),
    "base_url": Key(KeyKind.URL, "Where the server is"),
    "api_key_env": Key(KeyKind.TEXT, "Name of the environment variable that holds the key"),
    "api_key_command": Key(
        KeyKind.TEXT, "Command that prints the key; asked again when the key is refused"
    ),
    "auth": Key(
        KeyKind.TEXT,
        "How the key is sent; by default as the API has it",
        choices=("bearer", "x-api-key", "none"),
    ),
    "headers": Key(
        KeyKind.HEADERS, "More headers of every request; ${NAME} is a variable of the environment"
    ),
    "query": Key(
        KeyKind.TEXTS, "What is added to every address, as ?NAME=VALUE; ${NAME} as in headers"
    ),
    "stream": Key(KeyKind.FLAG, "Take replies as they are written, or whole", default=True),
    "tool_protocol": TOOL_PROTOCOL,
    **WAIT_KEYS,
}

MODEL_KEYS: Mapping[str, Key] = {
    "context_tokens": Key(KeyKind.WHOLE, "Size of the context window, in tokens", minimum=1),
    "max_output_tokens": Key(KeyKind.WHOLE, "Longest reply, in tokens", minimum=1),
    "input_price": Key(KeyKind.NUMBER, "USD per million input tokens"),
    "output_price": Key(KeyKind.NUMBER, "USD per million output tokens"),
    "cache_read_price": Key(KeyKind.NUMBER, "USD per million tokens read from the cache"),
    "cache_write_price": Key(KeyKind.NUMBER, "USD per million tokens written to the cache"),
    "tool_protocol": TOOL_PROTOCOL,
    **WAIT_KEYS,
}


# --- what can be set ---------------------------------------------------------------------------

THEMES = ("auto", "dark", "light", "high-contrast", "daltonized", "none")
ACTION_KEYS: Mapping[str, tuple[str, str]] = {
    "background": ("ctrl-b", "send the running command to the background"),
    "complete": ("tab", "next completion"),
    "editor": ("ctrl-g", "write in the editor"),
    "help": ("?", "these keys, on an empty line"),
    "image": ("ctrl-v", "take an image from the clipboard"),
    "leave": ("ctrl-d", "leave, on an empty line"),
    "mode": ("shift-tab", "next permission mode"),
    "newline": ("ctrl-j", "new line"),
    "output": ("ctrl-o", "the whole session, at the last tool call"),
    "recall": ("up", "queued and earlier prompts, on an empty line"),
    "redraw": ("ctrl-l", "draw the screen again"),
    "rewind": ("escape escape", "go back to an earlier prompt, on an empty line"),
    "search": ("ctrl-r", "search earlier prompts"),
    "suspend": ("ctrl-z", "suspend"),
    "todos": ("ctrl-t", "show or hide the list of things to do"),
}
"""What can be given another key in the chat: its key and what it does."""


_rules = partial(Key, KeyKind.LIST, default=(), shared=True, added=True)
KEYS: Mapping[str, Key] = {
    "model": Key(KeyKind.TEXT, "The model to use, as provider/model", shared=True),
    "small_model": Key(
        KeyKind.TEXT,
        "Model for summaries and for agents named explore; without it the one that answers",
        shared=True,
    ),
    "fallback_models": Key(
        KeyKind.LIST, "Models to go on with when the first one stays overloaded", (), shared=True
    ),
    "effort": Key(
        KeyKind.TEXT,
        "How hard the model should think",
        choices=tuple(map(str, Effort)),
        shared=True,
    ),
    "permission_mode": Key(
        KeyKind.TEXT,
        "What runs without asking",
        str(PermissionMode.DEFAULT),
        tuple(map(str, PermissionMode)),
        shared=True,
    ),
    "sandbox": Key(
        KeyKind.TEXT, "What limits commands", "auto", ("auto", "bwrap", "landlock", "off")
    ),
    "sandbox_network": Key(
        KeyKind.FLAG, "Commands in the sandbox have the network without asking", default=False
    ),
    "sandbox_hosts": Key(
        KeyKind.LIST, "Hosts that commands in the sandbox reach without asking", ()
    ),
    "sandbox_readable": Key(
        KeyKind.PLACES, "What else of your home directory commands in the sandbox may read", ()
    ),
    "sandbox_variables": Key(KeyKind.LIST, "Credentials in the environment that it passes on", ()),
    "max_steps": Key(
        KeyKind.WHOLE, "Model requests in one turn; 0 means no limit", 200, shared=True
    ),
    "max_output_tokens": Key(
        KeyKind.WHOLE, "Longest reply of the model, in tokens", minimum=1, shared=True
    ),
    "max_answers_without_tools": Key(
        KeyKind.WHOLE,
        "Answers in a row without a tool call, in a turn that must use tools",
        minimum=1,
        shared=True,
    ),
    "theme": Key(KeyKind.TEXT, "Colours", "auto", THEMES),
    "thinking": Key(
        KeyKind.TEXT,
        "Long thinking on the screen: its beginning, or all",
        "folded",
        ("folded", "full"),
    ),
    "statusline.command": Key(
        KeyKind.TEXT, "Command whose output stands at the bottom of the chat"
    ),
    "notifications": Key(
        KeyKind.TEXT, "How a long turn says that it has ended", "bell", ("bell", "desktop", "off")
    ),
    "editing_mode": Key(KeyKind.TEXT, "Keys of the input line", "emacs", ("emacs", "vi")),
    "screen_reader": Key(KeyKind.FLAG, "Line by line, nothing is ever redrawn", default=False),
    "background_reacts": Key(
        KeyKind.FLAG, "In an idle chat the agent reacts when a background run ends", default=True
    ),
    **{
        f"keys.{action}": Key(KeyKind.TEXT, f"Key for: {what}", key)
        for action, (key, what) in ACTION_KEYS.items()
    },
    "permissions.allow": _rules("Rules for calls that run without asking"),
    "permissions.ask": _rules("Rules for calls that always ask"),
    "permissions.deny": _rules("Rules for calls that never run"),
    "tools.off": _rules("Tools or groups of tools that are switched off"),
    "search.engine": Key(
        KeyKind.TEXT,
        "What searches the web: the model's own service, or an engine; auto takes what there is",
        "auto",
        ("auto", "provider", "searxng", "brave", "tavily", "exa", "off"),
    ),
    "search.url": Key(KeyKind.URL, "Where the engine is; a SearXNG server needs no more"),
    "search.api_key_env": Key(
        KeyKind.TEXT, "Name of the environment variable that holds the engine's key"
    ),
    "keep_events": Key(
        KeyKind.FLAG,
        "Keep what a session says, for `agent sessions events ID`",
        default=False,
    ),
    "checks": Key(
        KeyKind.TEXT,
        "Formatters and linters after edits: those that the project is set up for, or none",
        "off",
        ("auto", "off"),
        shared=True,
    ),
    "memory": Key(KeyKind.FLAG, "Sessions know what earlier ones were told", default=True),
    "background_map": Key(KeyKind.FLAG, "A chat makes a repository's map early", default=True),
    "telemetry": Key(KeyKind.FLAG, "Traces and metrics go to your OTLP collector", default=False),
    "telemetry_content": Key(KeyKind.FLAG, "They hold what was said and done too", default=False),
    "models_url": Key(
        KeyKind.URL,
        "Where `agent models --refresh` fetches windows and prices from, in the form of models.dev",
        "https://models.dev/api.json",
    ),
    "plugins": Key(KeyKind.LIST, "Python plugins to load, by the name of their entry point", ()),
}

TABLES: Mapping[str, Mapping[str, Key]] = {"providers": PROVIDER_KEYS, "models": MODEL_KEYS}
_NAMED_DEPTH = 3
_SHORTEST_WORD = 4
_SEGMENT = LazyPattern(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


def find_key(path: tuple[str, ...]) -> Key | None:
    """The key at ``path``, or ``None``."""
    if len(path) == _NAMED_DEPTH and path[0] in TABLES:
        return TABLES[path[0]].get(path[2])
    return KEYS.get(".".join(path))


def near_names(path: tuple[str, ...]) -> list[str]:
    """Up to three keys like ``path``, best first, else some that hold its last word."""
    from difflib import get_close_matches

    if len(path) == _NAMED_DEPTH and path[0] in TABLES:
        near = get_close_matches(path[2], list(TABLES[path[0]]), n=3, cutoff=0.5)
        return [".".join((*path[:2], name)) for name in near]
    tables = (f"{table}.NAME.{key}" for table, keys in TABLES.items() for key in keys)
    names = [*KEYS, *tables]
    near = get_close_matches(".".join(path), names, n=3, cutoff=0.6)
    is_word = len(path[-1]) >= _SHORTEST_WORD
    return near or [name for name in names if is_word and path[-1] in name][:3]


def split_key(text: str) -> tuple[str, ...]:
    """A dotted key, quoted parts allowed: ``models."ollama/qwen3".context_tokens``."""
    return tuple(a or b or c for a, b, c in _SEGMENT.findall(text))


def dotted(path: tuple[str, ...]) -> str:
    """``path`` as it is written: parts that are not plain words are quoted."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in path)
