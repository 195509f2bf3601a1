"""Model servers of the user's own: which answer on this machine, how large their windows are.

The first that answers is the default for a user without a key (CLI-10). A local server often runs
a model with less than it was made for, and Ollama's endpoint for Chat Completions cuts what does
not fit without a word (CTX-3). Law: only addresses of this machine, servers that are local by
name, and what the user's own configuration or environment names, are asked; every wait is bounded;
what does not answer like a model server is none; what is not known for certain is said so, and
is not remembered.

Sources: https://docs.ollama.com/api (show, ps) and /context-length;
https://lmstudio.ai/docs/developer/rest; llama.cpp ``tools/server/README.md`` (``GET /props``);
https://docs.vllm.ai (``max_model_len`` in ``/v1/models``).
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from agentcli.domain.clean import digest
from agentcli.domain.errors import AgentError, ConfigError
from agentcli.domain.ports import ModelInfo, ProviderConfig
from agentcli.providers._registry import BUILT_IN, provider_config
from agentcli.providers.models.table import LOCAL_CONTEXT_TOKENS, is_in_table

if TYPE_CHECKING:
    from agentcli.providers.models.ask import ServerClient


WITHIN_S = 0.2
SMALL_TOKENS = 16_384
"""Instructions, tools, a few files and their changes: with less, little work can be done."""
_MAX_TOKENS = 10**9
_NUM_CTX = re.compile(r"(?m)^\s*num_ctx\s+(\d+)\s*$")
_OLLAMA_ENV = "start Ollama with OLLAMA_CONTEXT_LENGTH=32768, or set num_ctx in a Modelfile"
_OLLAMA_FILE = "raise num_ctx in its Modelfile (PARAMETER num_ctx 32768, then ollama create)"
_LLAMACPP = "start llama-server with a larger -c; its slots (-np) share it"
_LMSTUDIO = "load the model with a larger context length"
_VLLM = "start vLLM with a larger --max-model-len"
_OTHER_MODEL = "choose a model with a larger window"
_ADVICE = (_OTHER_MODEL, _OLLAMA_ENV, _OLLAMA_FILE, _LLAMACPP, _LMSTUDIO, _VLLM)
REMEMBERED_S = 24 * 3600.0
MAX_REMEMBERED = 100
MAX_REMEMBERED_CHARS = 20_000
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class LocalModel(NamedTuple):
    """The first model of a server that answered. ``model`` is ``provider/model``."""

    model: str
    host: str


def find_local_model(
    env: Mapping[str, str], custom: Mapping[str, ProviderConfig]
) -> LocalModel | None:
    """The first server, in the order of preference, that answers and has a model. Blocks."""
    from agentcli.providers.models.ask import ask_all
    from agentcli.wire.http import host_of, load_httpx

    configs = {config.name: config for config in _candidates(env, custom)}
    started_at = time.monotonic()
    doors = ask_all({name: _door(config) for name, config in configs.items()}, WITHIN_S).found
    left_s = WITHIN_S - (time.monotonic() - started_at)
    open_doors = [config for name, config in configs.items() if doors.get(name)]
    if not open_doors:
        return None
    load_httpx()  # not part of the wait: the conversation needs it as well
    answers = ask_all({c.name: _first_model(c, left_s) for c in open_doors}, left_s).found
    for config in open_doors:
        if model := answers.get(config.name):
            return LocalModel(f"{config.name}/{model}", host_of(config.base_url))
    return None


def _candidates(
    env: Mapping[str, str], custom: Mapping[str, ProviderConfig]
) -> Iterator[ProviderConfig]:
    """What the user has set up, then what servers of this kind do by default."""
    for name in dict.fromkeys((*custom, *BUILT_IN)):
        try:
            config = provider_config(name, env, custom)
        except ConfigError:
            continue
        url = urlsplit(config.base_url)
        row = BUILT_IN.get(name)
        named = name in custom or bool(row and env.get(row.base_env))
        may_ask = url.hostname in LOOPBACK or (named and bool(row and row.is_local))
        if config.kind == "openai" and url.scheme == "http" and not config.needs_key and may_ask:
            yield config


def _door(config: ProviderConfig) -> Callable[[], bool]:
    """Whether anybody listens: a refusal comes at once, and most ports refuse."""
    url: SplitResult = urlsplit(config.base_url)

    def is_open() -> bool:
        try:
            socket.create_connection((url.hostname or "", url.port or 80), WITHIN_S).close()
        except (OSError, ValueError):
            return False
        return True

    return is_open


def _first_model(config: ProviderConfig, within_s: float) -> Callable[[], str]:
    from agentcli.providers.models.ask import ServerClient, chat_models, ollama_models

    # Ollama is asked in its own words where it does not know the others'
    ways = (chat_models, ollama_models) if config.name == "ollama" else (chat_models,)

    def first() -> str:
        ask = ServerClient(config, within_s, is_direct=True)
        for way in ways:
            try:
                names = [str(figures["name"]) for figures in way(ask)]
            except AgentError:
                continue
            if names:
                return next((name for name in names if "embed" not in name.lower()), names[0])
        return ""

    return first


# --- windows -------------------------------------------------------------------------------


class Window(NamedTuple):
    """``is_certain``: this is what the server will use for us; otherwise a careful guess.

    ``is_told`` is false for a guess that rests on nothing the server said of this size.
    ``advice`` is how to make it larger.
    """

    tokens: int
    is_certain: bool = True
    is_told: bool = True
    advice: str = _OTHER_MODEL


def asks_about(config: ProviderConfig, model: str) -> bool:
    """Whether the server may be asked: a local one, and nothing that the table knows."""
    row = BUILT_IN.get(config.name)
    if not config.base_url.startswith(("http://", "https://")):
        return False
    if row is not None and row.is_local:
        return True
    is_own = row is None or not config.needs_key
    is_here = urlsplit(config.base_url).hostname in LOOPBACK
    return is_own and is_here and config.kind == "openai" and not is_in_table(config.name, model)


def find_window(config: ProviderConfig, model: str, *, is_loaded: bool = False) -> Window | None:
    """The window of ``model``, or ``None`` when nothing could be learnt in time. Blocks.

    ``is_loaded`` says that the model has just answered us: what runs now is what we get.
    """
    from agentcli.providers.models.ask import ServerClient, ask_all
    from agentcli.wire.http import load_httpx

    load_httpx()  # not part of the wait: the conversation needs it as well
    ask = ServerClient(config, WITHIN_S, is_direct=True)
    names = (config.name,) if config.name in _QUESTIONS else tuple(_QUESTIONS)
    questions: dict[str, Callable[[], Window | None]] = {
        name: lambda name=name: _QUESTIONS[name](ask, model, is_loaded)  # type: ignore[misc]  # mypy has no type for a lambda's default
        for name in names
    }
    windows = [window for window in ask_all(questions, WITHIN_S).found.values() if window]
    return max(windows, key=lambda window: (window.is_certain, window.is_told), default=None)


def local_window(ask: ServerClient, model: str) -> Window | None:
    """The window as a server that is local by name gives it. Raises ``AgentError``."""
    question = _QUESTIONS.get(ask.config.name)
    return question(ask, model, False) if question else None  # noqa: FBT003 - not loaded by us


class KnownWindows:
    """What servers have said of their windows within a day; ``text`` is how it is kept.

    A model at an address stands there as a digest, since an address may hold a password. A window
    that is too small is asked for each time: its user is about to change it. Of a text that is
    damaged, or not ours, what makes no sense is nothing.
    """

    def __init__(self, text: str, now_s: float) -> None:
        self._now_s = now_s
        self._rows: dict[str, tuple[float, int, int]] = {}
        with suppress(ValueError, RecursionError):
            kept = json.loads(text) if len(text) <= MAX_REMEMBERED_CHARS else None
            for key, row in kept.items() if isinstance(kept, dict) else ():
                if _is_remembered(row, now_s):
                    self._rows[key] = tuple(row)

    def get(self, config: ProviderConfig, model: str) -> Window | None:
        """The window of ``model`` at that address, if it was learnt within a day."""
        row = self._rows.get(_server_key(config, model))
        return Window(row[1], advice=_ADVICE[row[2]]) if row else None

    def put(self, config: ProviderConfig, model: str, window: Window | None) -> bool:
        """Remember it, or forget what was known; whether anything has changed."""
        key = _server_key(config, model)
        if window is None or not window.is_certain or window.tokens < SMALL_TOKENS:
            return self._rows.pop(key, None) is not None
        self._rows[key] = (self._now_s, window.tokens, _ADVICE.index(window.advice))
        for oldest in sorted(self._rows, key=lambda each: self._rows[each])[:-MAX_REMEMBERED]:
            del self._rows[oldest]
        return True

    @property
    def text(self) -> str:
        """All of it."""
        return json.dumps(self._rows)


def _server_key(config: ProviderConfig, model: str) -> str:
    return digest(f"{config.name}\0{config.base_url}\0{model}")


def _is_remembered(row: Any, now_s: float) -> bool:
    match row:
        case [float(at), int(tokens), int(advice)]:
            return (
                0 <= now_s - at < REMEMBERED_S
                and (_count(tokens) or 0) >= SMALL_TOKENS
                and 0 <= advice < len(_ADVICE)
            )
    return False


def with_window(info: ModelInfo, window: Window) -> ModelInfo:
    """``info`` with the window that was found; a reply must leave room for the prompt."""
    tokens = window.tokens
    output = min(info.max_output_tokens, max(tokens // 2, 1))
    return replace(info, context_tokens=tokens, max_output_tokens=output)


def small_window_warning(info: ModelInfo, window: Window) -> str:
    """One line for the user when the window is too small to work in; else empty."""
    if not window.is_told or window.tokens >= SMALL_TOKENS:
        return ""
    silent = ", and Ollama cuts what does not fit without a word" if _is_silent(window) else ""
    return (
        f"warning: {info.id} runs with a window of {window.tokens:,} tokens; the agent needs at"
        f" least {SMALL_TOKENS:,}{silent} - {window.advice}"
    )


def _is_silent(window: Window) -> bool:
    """Whether it is Ollama that says nothing when a prompt does not fit."""
    return window.advice in {_OLLAMA_ENV, _OLLAMA_FILE}


def _ollama(ask: ServerClient, model: str, is_loaded: bool) -> Window | None:  # noqa: FBT001 - one signature for all four
    """Ollama: what the model was made for, what its Modelfile says, and what is running."""
    root = ask.server_root
    shown = ask.get(f"{root}/api/show", body={"model": model})
    running = None
    with suppress(AgentError):
        running = _running(ask.get(f"{root}/api/ps"), model)
    return ollama_window(shown, running, is_loaded=is_loaded) if isinstance(shown, dict) else None


def ollama_window(
    shown: Mapping[str, Any], running: int | None = None, *, is_loaded: bool = False
) -> Window | None:
    """The window by the answer of ``/api/show`` and by the model's row in ``/api/ps``.

    A Modelfile's ``num_ctx`` wins over the server's own setting. That one cannot be asked for; it
    shows in what is running: before our first request perhaps as another program wanted it,
    afterwards (``is_loaded``) as we get it.
    """
    largest = _largest(shown.get("model_info"))
    parameters = shown.get("parameters")
    match = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    num_ctx = _count(int(match[1])) if match else None
    advice = _OLLAMA_FILE if num_ctx else _OLLAMA_ENV
    if shown.get("remote_host") or shown.get("remote_model"):  # runs in Ollama's cloud, in full
        return Window(largest) if largest else None
    tokens, is_certain = running, is_loaded
    if num_ctx and not (running and is_loaded):
        tokens, is_certain = min(num_ctx, largest or num_ctx), True
    if tokens is None:
        return _at_most(largest)
    return Window(tokens, is_certain, advice=_OTHER_MODEL if tokens == largest else advice)


def _lmstudio(ask: ServerClient, model: str, _is_loaded: bool) -> Window | None:  # noqa: FBT001 - as above
    """LM Studio: a model that is not loaded yet gets what its settings say, which nobody tells."""
    entry = _entry(ask.get(f"{ask.server_root}/api/v0/models"), model)
    largest = _count(entry.get("max_context_length"))
    loaded = _count(entry.get("loaded_context_length"))
    if loaded and entry.get("state") != "not-loaded":
        return Window(loaded, advice=_OTHER_MODEL if loaded == largest else _LMSTUDIO)
    return _at_most(largest)


def _llamacpp(ask: ServerClient, _model: str, _is_loaded: bool) -> Window | None:  # noqa: FBT001 - as above
    """llama.cpp: ``/props`` tells what one slot has."""
    value = ask.get(f"{ask.server_root}/props")
    if not isinstance(value, dict):
        return None
    settings = value.get("default_generation_settings")
    inner = settings.get("n_ctx") if isinstance(settings, dict) else None
    tokens = _count(inner) or _count(value.get("n_ctx"))
    return Window(tokens, advice=_LLAMACPP) if tokens else None


def _vllm(ask: ServerClient, model: str, _is_loaded: bool) -> Window | None:  # noqa: FBT001 - as above
    """vLLM, and every other server that puts the window into the list of models."""
    for entry in ask.chat_entries():
        if entry["name"] == model and "context_tokens" in entry:
            return Window(entry["context_tokens"], advice=_VLLM)
    return None


_QUESTIONS: Mapping[str, Callable[[ServerClient, str, bool], Window | None]] = {
    "ollama": _ollama,
    "lmstudio": _lmstudio,
    "llamacpp": _llamacpp,
    "vllm": _vllm,
}


def _at_most(largest: int | None) -> Window | None:
    """Nothing is loaded: what the model could take, up to what such servers usually give."""
    if largest is None:
        return None
    is_limit = largest < LOCAL_CONTEXT_TOKENS
    return Window(min(largest, LOCAL_CONTEXT_TOKENS), is_certain=False, is_told=is_limit)


# --- values from outside -------------------------------------------------------------------


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 < value < _MAX_TOKENS else None


def _largest(model_info: Any) -> int | None:
    """``llama.context_length``: the key's beginning is the architecture's name."""
    if not isinstance(model_info, dict):
        return None
    architecture = model_info.get("general.architecture")
    own = _count(model_info.get(f"{architecture}.context_length"))
    others = (_count(v) for k, v in model_info.items() if str(k).endswith(".context_length"))
    return own or next((count for count in others if count), None)


def _running(value: Any, model: str) -> int | None:
    """The window of ``model`` among those that are loaded; a bare name means ``:latest``."""
    wanted = model if ":" in model else f"{model}:latest"
    rows = value.get("models") if isinstance(value, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and wanted in {row.get("name"), row.get("model")}:
            return _count(row.get("context_length"))
    return None


def _entry(value: Any, model: str) -> Mapping[str, Any]:
    rows = value.get("data") if isinstance(value, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("id") == model:
            return row
    return {}
