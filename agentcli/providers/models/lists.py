"""How each protocol lists its models (``agent models``), and what such a list says of each.

A provider module may export ``list_models``, a function like those here; the protocols that are
built in have theirs below. Law: only what a server says outright is taken over; an entry that is
not understood is left out, never an error; a list has an end, whatever the server says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from agentcli.providers.models.ask import Asker

Figures = dict[str, Any]
"""Fields of ``ModelInfo``: the ``name``, and what else the server tells."""
ListModels = Callable[["Asker"], Iterable[Figures]]

MAX_PAGES = 20
MAX_MODELS = 5_000
_PER_MILLION = 1_000_000
_MAX_TOKENS = 10**9
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


# --- by protocol ---------------------------------------------------------------------------


def anthropic_models(ask: Asker) -> Iterator[Figures]:
    """``GET /v1/models``, page by page: https://platform.claude.com/docs/en/api/models/list."""
    from agentcli.providers.anthropic import API_VERSION, messages_url

    url = messages_url(ask.config.base_url).removesuffix("/messages") + "/models?limit=1000"
    key = ask.config.api_key
    headers = {"anthropic-version": API_VERSION, **({"x-api-key": key} if key else {})}
    after = ""
    for _ in range(MAX_PAGES):
        page = ask.get(url + after, headers)
        yield from claude_entries(page)
        last = page.get("last_id") if isinstance(page, dict) and page.get("has_more") else None
        if not isinstance(last, str) or not last:
            return
        after = f"&after_id={quote(last, safe='')}"


def chat_models(ask: Asker) -> Iterator[Figures]:
    """``GET /v1/models`` of OpenAI and of the servers that are compatible with it."""
    host = urlsplit(ask.config.base_url).hostname or ""
    return chat_entries(ask.get(models_url(ask.config.base_url)), is_openai=_is_openai(host))


def gemini_models(ask: Asker) -> Iterator[Figures]:
    """``GET /v1beta/models``, page by page: https://ai.google.dev/api/models#v1beta.models.list."""
    base = ask.config.base_url.rstrip("/").removesuffix("/openai").removesuffix("/models")
    base = base if urlsplit(base).path.strip("/") else f"{base}/v1beta"
    key = ask.config.api_key
    more = ""
    for _ in range(MAX_PAGES):
        url = f"{base}/models?pageSize=1000{more}"
        page = ask.get(url, {"x-goog-api-key": key} if key else {})
        yield from gemini_entries(page)
        token = page.get("nextPageToken") if isinstance(page, dict) else None
        if not isinstance(token, str) or not token:
            return
        more = f"&pageToken={quote(token, safe='')}"


def ollama_models(ask: Asker) -> Iterator[Figures]:
    """``GET /api/tags``: what has been pulled."""
    value = ask.get(f"{server_root(ask.config.base_url)}/api/tags")
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
FOR_NAME: Mapping[str, ListModels] = {"ollama": ollama_models}


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
        top = top if isinstance(top, dict) else {}
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


def server_root(base_url: str) -> str:
    """A local server's address without the part that makes it compatible with OpenAI."""
    return models_url(base_url).removesuffix("/models").removesuffix("/v1")


# --- values from outside -------------------------------------------------------------------


def _entries(value: Any, key: str) -> Iterator[dict[str, Any]]:
    rows = value.get(key) if isinstance(value, dict) else value
    for row in (rows if isinstance(rows, list) else [])[:MAX_MODELS]:
        if isinstance(row, dict):
            yield row


def _name(value: Any) -> str:
    is_name = isinstance(value, str) and value.isprintable() and not value.isspace()
    return value.strip() if is_name else ""


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
