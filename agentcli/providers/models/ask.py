"""Questions to servers beside the conversation: how they are asked, and how a list of models reads.

Law: every question is bounded in time and size, all are asked at once, and nothing waits for a
straggler, not even the exit of the program; a redirect is never followed, so a key goes to the
host it was meant for and to no other (SEC-1). A failure is an ``AgentError`` without a secret.
Of a list only what a server says outright is taken over; an entry that is not understood is left
out, never an error; a list has an end, whatever the server says.

A provider module may export ``list_models``, a function like those here; the protocols that are
built in have theirs below.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from agentcli import __version__
from agentcli.domain.clean import as_object, count_values, read_json
from agentcli.domain.errors import AgentError
from agentcli.domain.ports import ProviderConfig
from agentcli.providers._errors import (
    auth_headers,
    check_key,
    endpoint_of,
    refusals_in_words,
    with_own_headers,
)
from agentcli.wire.http import Endpoint, Refusal, fetch, network_error

Figures = dict[str, Any]
"""Fields of ``ModelInfo``: the ``name``, and what else the server tells."""
ListModels = Callable[["ServerClient"], Iterable[Figures]]

MAX_PAGES = 20
CATALOGUE_S = 60.0
_NOT_MODIFIED = 304
MAX_MODELS = 5_000
# several answers are read at once
MAX_LIST_BYTES = 2 * 1024 * 1024
MAX_LIST_VALUES = 100_000
_PER_MILLION = 1_000_000
_MAX_TOKENS = 10**9
_MAX_NAME = 200
# Where compatible servers put the size of the window: vLLM, Groq, Mistral, LM Studio, OpenRouter
# and Together, in this order.
_WINDOW_FIELDS = (
    "max_model_len",
    "context_window",
    "max_context_length",
    "loaded_context_length",
    "context_length",
)
_OUTPUT_FIELDS = ("max_completion_tokens", "max_output_tokens")
_OTHER_TYPES = frozenset({"embedding", "embeddings", "image", "audio", "moderation", "rerank"})
# OpenAI lists everything it sells; what is no chat model is told only by its name.
_NOT_FOR_CHAT = (
    "audio", "babbage", "dall-e", "davinci", "embedding", "image", "moderation", "realtime",
    "search", "sora", "transcribe", "tts", "whisper",
)  # fmt: skip
log = logging.getLogger(__name__)

T = TypeVar("T")


class AskResults(NamedTuple, Generic[T]):
    """What came back, in the order of the questions; each is in exactly one of the two."""

    found: dict[str, T]
    failed: dict[str, AgentError]


def ask_all(questions: Mapping[str, Callable[[], T]], within_s: float) -> AskResults[T]:
    """Ask all at once and wait ``within_s`` seconds in all. Blocks; Ctrl-C interrupts it.

    Each question has a thread that the program's exit does not wait for: a name server that says
    nothing cannot be interrupted in any other way.
    """
    answers: SimpleQueue[tuple[str, T | AgentError]] = SimpleQueue()

    def ask(name: str, question: Callable[[], T]) -> None:
        try:
            answers.put((name, question()))
        except AgentError as error:
            answers.put((name, error))
        except Exception as error:
            log.warning("%s gave an answer that cannot be read", name, exc_info=True)
            answers.put((name, AgentError(f"{name} gave an unreadable answer: {error}")))

    for name, question in questions.items():
        threading.Thread(target=ask, args=(name, question), name=f"ask-{name}", daemon=True).start()
    came: dict[str, T | AgentError] = {}
    deadline = time.monotonic() + within_s
    while len(came) < len(questions):
        try:
            name, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        came[name] = answer
    result = AskResults[T]({}, {})
    for name in questions:
        late = AgentError(f"{name} did not answer within {within_s:g} s", "try again")
        answered = came.get(name, late)
        if isinstance(answered, AgentError):
            result.failed[name] = answered
        else:
            result.found[name] = answered
    return result


class ServerClient:
    """Asks one provider's server. Blocks: for threads, not for an event loop.

    ``is_direct`` goes through no proxy, as is right for a server of this machine.
    """

    def __init__(
        self, config: ProviderConfig, timeout_s: float, *, is_direct: bool = False
    ) -> None:
        self.config = config
        self._timeout_s = timeout_s
        self._is_direct = is_direct

    @property
    def server_root(self) -> str:
        """A local server's address without the part that makes it compatible with OpenAI."""
        return models_url(self.config.base_url).removesuffix("/models").removesuffix("/v1")

    def chat_entries(self) -> Iterator[Figures]:
        """The models of a list in OpenAI's form."""
        return chat_entries(self.get(models_url(self.config.base_url)))

    def get(self, url: str, headers: Mapping[str, str] | None = None, *, body: Any = None) -> Any:
        """The JSON value at ``url``; with ``body`` it is a POST. Raises ``AgentError``.

        Without ``headers`` the key goes along as a bearer token.
        """
        key = self.config.api_key
        endpoint = endpoint_of(self.config, url)
        if key:
            check_key(self.config, endpoint)
        headers = with_own_headers(
            auth_headers(self.config) if headers is None else headers, self.config
        )
        common = {"accept": "application/json", "user-agent": f"agentcli/{__version__}"}
        with refusals_in_words(endpoint):
            content = fetch(
                endpoint,
                {**common, **headers},
                body,
                timeout_s=self._timeout_s,
                is_direct=self._is_direct,
            )
        if len(content) > MAX_LIST_BYTES or count_values(content) > MAX_LIST_VALUES:
            raise network_error(endpoint, "sent a list that is too large", endpoint.address_advice)
        try:
            return read_json(content)
        except ValueError:
            what = "answered with something that is not JSON"
            raise network_error(endpoint, what, endpoint.address_advice) from None


# --- by protocol ---------------------------------------------------------------------------


def anthropic_models(ask: ServerClient) -> Iterator[Figures]:
    """``GET /v1/models``, page by page: https://platform.claude.com/docs/en/api/models/list."""
    from agentcli.providers.anthropic import API_VERSION, messages_url

    url = messages_url(ask.config.base_url).removesuffix("/messages") + "/models?limit=1000"
    headers = {"anthropic-version": API_VERSION, **auth_headers(ask.config, "x-api-key")}
    after = ""
    for _ in range(MAX_PAGES):
        page = ask.get(url + after, headers)
        yield from claude_entries(page)
        last = page.get("last_id") if isinstance(page, dict) and page.get("has_more") else None
        if not isinstance(last, str) or not last:
            return
        after = f"&after_id={quote(last, safe='')}"


def chat_models(ask: ServerClient) -> Iterator[Figures]:
    """``GET /v1/models`` of OpenAI and of the servers that are compatible with it."""
    host = urlsplit(ask.config.base_url).hostname or ""
    return chat_entries(ask.get(models_url(ask.config.base_url)), is_openai=_is_openai(host))


def gemini_models(ask: ServerClient) -> Iterator[Figures]:
    """``GET /v1beta/models``, page by page: https://ai.google.dev/api/models#v1beta.models.list."""
    base = ask.config.base_url.rstrip("/").removesuffix("/openai").removesuffix("/models")
    base = base if urlsplit(base).path.strip("/") else f"{base}/v1beta"
    headers = auth_headers(ask.config, "x-goog-api-key")
    more = ""
    for _ in range(MAX_PAGES):
        url = f"{base}/models?pageSize=1000{more}"
        page = ask.get(url, headers)
        yield from gemini_entries(page)
        token = page.get("nextPageToken") if isinstance(page, dict) else None
        if not isinstance(token, str) or not token:
            return
        more = f"&pageToken={quote(token, safe='')}"


def ollama_models(ask: ServerClient) -> Iterator[Figures]:
    """``GET /api/tags``: what has been pulled."""
    value = ask.get(f"{ask.server_root}/api/tags")
    for entry in _entries(value, "models"):
        name = _name(entry.get("name") or entry.get("model"))
        if name:
            yield {"name": name}


FOR_KIND: Mapping[str, ListModels] = {
    "anthropic": anthropic_models,
    "openai": chat_models,
    "openai-responses": chat_models,
    "gemini": gemini_models,
}
# Vertex has no list of what a key may use.
FOR_NAME: Mapping[str, ListModels | None] = {"ollama": ollama_models, "vertex": None}


# --- what a list says ----------------------------------------------------------------------


def claude_entries(value: Any) -> Iterator[Figures]:
    """The models of one page of Anthropic's list."""
    for entry in _entries(value, "data"):
        if name := _name(entry.get("id")):
            found: Figures = {"name": name}
            _put(found, "context_tokens", _count(entry.get("max_input_tokens")))
            _put(found, "max_output_tokens", _count(entry.get("max_tokens")))
            abilities = entry.get("capabilities")
            if isinstance(abilities, dict):
                _put(found, "supports_images", _supported(abilities.get("image_input")))
                _put(found, "supports_thinking", _supported(abilities.get("thinking")))
            yield found


def chat_entries(value: Any, *, is_openai: bool = False) -> Iterator[Figures]:
    """The models of a list in OpenAI's form, with the fields that compatible servers add."""
    for entry in _entries(value, "data"):
        name = _name(entry.get("id")).removeprefix("models/")
        if not name or entry.get("type") in _OTHER_TYPES or _cannot_chat(entry):
            continue
        if is_openai and any(word in name for word in _NOT_FOR_CHAT):
            continue
        found: Figures = {"name": name}
        top = entry.get("top_provider")
        top = as_object(top)
        _put(found, "context_tokens", _first_count(entry, _WINDOW_FIELDS))
        output = _first_count(entry, _OUTPUT_FIELDS) or _first_count(top, _OUTPUT_FIELDS)
        _put(found, "max_output_tokens", output)
        _put_prices(found, entry.get("pricing"))
        _put_abilities(found, entry)
        yield found


def gemini_entries(value: Any) -> Iterator[Figures]:
    """The models of one page of Google's list that generate text."""
    for entry in _entries(value, "models"):
        name = _name(entry.get("name")).removeprefix("models/")
        methods = entry.get("supportedGenerationMethods")
        if not name or (isinstance(methods, list) and "generateContent" not in methods):
            continue
        found: Figures = {"name": name}
        _put(found, "context_tokens", _count(entry.get("inputTokenLimit")))
        _put(found, "max_output_tokens", _count(entry.get("outputTokenLimit")))
        _put(found, "supports_thinking", _flag(entry.get("thinking")))
        yield found


# --- addresses -----------------------------------------------------------------------------


def models_url(base_url: str) -> str:
    """The list under the base URL of Chat Completions or Responses; a bare host means ``/v1``."""
    from agentcli.providers.openai import completions_url

    base = base_url.rstrip("/").removesuffix("/responses")
    return completions_url(base).removesuffix("/chat/completions") + "/models"


# --- values from outside -------------------------------------------------------------------


def _entries(value: Any, key: str) -> Iterator[dict[str, Any]]:
    rows = value.get(key) if isinstance(value, dict) else value
    for row in (rows if isinstance(rows, list) else [])[:MAX_MODELS]:
        if isinstance(row, dict):
            yield row


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_NAME or not value.isprintable():
        return ""
    return value.strip()


def _count(value: Any) -> int | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return int(value) if 0 < value < _MAX_TOKENS else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _supported(value: Any) -> bool | None:
    return _flag(value.get("supported")) if isinstance(value, dict) else None


def _first_count(entry: Mapping[str, Any], fields: Iterable[str]) -> int | None:
    return next((count for name in fields if (count := _count(entry.get(name)))), None)


def _put(found: Figures, name: str, value: Any) -> None:
    if value is not None:
        found[name] = value


def _cannot_chat(entry: Mapping[str, Any]) -> bool:
    abilities = entry.get("capabilities")
    return isinstance(abilities, dict) and abilities.get("completion_chat") is False


def _put_prices(found: Figures, pricing: Any) -> None:
    """OpenRouter: USD per token, as text."""
    if not isinstance(pricing, dict):
        return
    fields = {
        "input_price": "prompt",
        "output_price": "completion",
        "cache_read_price": "input_cache_read",
        "cache_write_price": "input_cache_write",
    }
    for ours, theirs in fields.items():
        text = pricing.get(theirs)
        try:
            price = float(text) * _PER_MILLION if isinstance(text, str) else -1.0
        except ValueError:
            continue
        if 0 <= price < _PER_MILLION:
            found[ours] = round(price, 6)


def _put_abilities(found: Figures, entry: Mapping[str, Any]) -> None:
    abilities = entry.get("capabilities")
    if isinstance(abilities, dict):  # Mistral
        _put(found, "supports_images", _flag(abilities.get("vision")))
        _put(found, "supports_thinking", _flag(abilities.get("reasoning")))
    architecture = entry.get("architecture")
    if isinstance(architecture, dict):  # OpenRouter
        inputs = architecture.get("input_modalities")
        if isinstance(inputs, list):
            found["supports_images"] = "image" in inputs
    parameters = entry.get("supported_parameters")
    if isinstance(parameters, list):
        found["supports_thinking"] = "reasoning" in parameters


def _is_openai(host: str) -> bool:
    return host.endswith(("openai.com", "openai.azure.com"))


# --- the public catalogue (EXT-7) ------------------------------------------------------------

# models.dev's names of providers -> ours
_CATALOGUE = {
    "anthropic": "anthropic", "openai": "openai", "google": "gemini", "mistral": "mistral",
    "deepseek": "deepseek", "xai": "xai", "groq": "groq", "moonshotai": "moonshot",
    "togetherai": "together", "cerebras": "cerebras", "openrouter": "openrouter",
    "amazon-bedrock": "bedrock", "azure": "azure",
}  # fmt: skip
_PRICES = ("input", "output", "cache_read", "cache_write")
_MAX_TIERS = 4


def fetch_catalogue(url: str, etag: str, today: str) -> str | None:
    """The models of the catalogue at ``url`` as the text of a table; ``None``: nothing is new.

    Blocks. Asked for by the user only (SEC-12); form: https://models.dev/api.json. Raises
    ``AgentError``.
    """
    endpoint = Endpoint("the model catalogue", url, base_env="models_url")
    headers = {"accept": "application/json", "user-agent": f"agentcli/{__version__}"}
    if etag:
        headers["if-none-match"] = etag
    answered: dict[str, str] = {}
    try:
        content = fetch(endpoint, headers, timeout_s=CATALOGUE_S, answered=answered)
    except Refusal as refusal:
        if refusal.status == _NOT_MODIFIED and etag:
            return None
        what = f"answered with status {refusal.status}"
        raise network_error(endpoint, what, "try again later, or set models_url") from None
    try:
        value = read_json(content)
    except ValueError:
        value = None
    lines = list(_catalogue_lines(value))
    if not lines:
        what = "sent something that is no list of models"
        raise network_error(endpoint, what, "check models_url, or try again later")
    tag = answered.get("etag", "")
    tag = tag if tag.isprintable() and len(tag) <= _MAX_NAME else ""
    return "\n".join([f"# {today}: from {endpoint.host}", f"# etag {tag}", *lines]) + "\n"


def _catalogue_lines(value: Any) -> Iterator[str]:
    for theirs, ours in _CATALOGUE.items():
        known = value.get(theirs) if isinstance(value, dict) else None
        models = known.get("models") if isinstance(known, dict) else None
        entries = list(models.items())[:MAX_MODELS] if isinstance(models, dict) else []
        rows = [row for name, entry in entries if (row := _catalogue_row(name, entry))]
        if rows:
            yield f"[{ours}]"
            yield from rows


def _catalogue_row(name: str, entry: Any) -> str:
    """One row of the table; empty for a model that is not for chats with tools, or not sound."""
    is_name = name.isprintable() and " " not in name and 0 < len(name) <= _MAX_NAME
    if not isinstance(entry, dict) or not is_name or name[0] in "#[" or not entry.get("tool_call"):
        return ""
    limits, media, cost = (
        found if isinstance(found := entry.get(key), dict) else {}
        for key in ("limit", "modalities", "cost")
    )
    window, output = _count(limits.get("context")), _count(limits.get("output"))
    inputs = media.get("input")
    if window is None or output is None:
        return ""
    flags = "i" * (isinstance(inputs, list) and "image" in inputs)
    flags += "t" * (entry.get("reasoning") is True)
    tiers = cost.get("tiers")
    steps: dict[int, str] = {}
    for tier in tiers[:_MAX_TIERS] if isinstance(tiers, list) else ():
        size = _count(tier["tier"].get("size")) if _is_context_tier(tier) else None
        if size is not None:
            prices = (_price(tier.get(each, cost.get(each))) for each in _PRICES)
            steps[size] = f"{size}:{','.join(prices)}"
    base = [_price(cost.get(each)) for each in _PRICES]
    fields = [name, str(window), str(min(window, output)), *base, flags or "-"]
    return " ".join([*fields, *(steps[size] for size in sorted(steps))])


def _is_context_tier(tier: Any) -> bool:
    kind = tier.get("tier") if isinstance(tier, dict) else None
    return isinstance(kind, dict) and kind.get("type") == "context"


def _price(value: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.10g}" if is_number and 0 <= value < _PER_MILLION else "-"
