"""Searches of the web: by the model's own service, or by an engine of the user's (EXT-8).

A search is a request of its own: a provider's server tool runs beside the conversation, so that
nothing of it (encrypted pages, citations) has to come back with later requests, and a gateway that
has none costs one failed call. Law: an answer is hostile text, bounded, with its sources as plain
addresses; a key goes to its own service only.

Sources: https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool,
https://developers.openai.com/api/docs/guides/tools-web-search,
https://ai.google.dev/gemini-api/docs/google-search, https://docs.searxng.org/dev/search_api.html,
https://api-dashboard.search.brave.com, https://docs.tavily.com, https://docs.exa.ai.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit

from agentcli.domain.clean import as_object, as_text
from agentcli.domain.errors import AgentError
from agentcli.domain.extensions.web import SearchAnswer, WebHit
from agentcli.domain.messages import Usage
from agentcli.domain.ports import ProviderConfig
from agentcli.providers._base import HttpProvider, openai_usage, token_count
from agentcli.providers._errors import auth_headers
from agentcli.providers._registry import create
from agentcli.providers.models.ask import ServerClient

WITHIN_S = 90.0
MAX_HITS = 10
MAX_SNIPPET_CHARS = 600
MAX_ANSWER_CHARS = 12_000
MAX_SEARCHES = 5
_MAX_READ_CHARS = 10_000  # of a title or a snippet with its marks
USD_PER_SEARCH = 0.01
"""Anthropic and OpenAI: 10 USD for 1,000; Google's and others' are not told in the answer."""
_PRICED = frozenset({"anthropic", "openai-responses"})
_ASKED = (
    "Search the web and answer from what you find, briefly and with facts, figures and dates. Name"
    " your sources. Search for:\n\n"
)

Json = Mapping[str, Any]


class SearchEngine(NamedTuple):
    """A service that searches; ``key_env`` is empty where none is needed."""

    base_url: str
    key_env: str


ENGINES: Mapping[str, SearchEngine] = {
    "searxng": SearchEngine("", ""),
    "brave": SearchEngine("https://api.search.brave.com", "BRAVE_API_KEY"),
    "tavily": SearchEngine("https://api.tavily.com", "TAVILY_API_KEY"),
    "exa": SearchEngine("https://api.exa.ai", "EXA_API_KEY"),
}


class Domains(NamedTuple):
    """Hosts that results have to come from, and may not."""

    allowed: Sequence[str]
    blocked: Sequence[str]

    def let(self, url: str) -> bool:
        """Whether a result of this address may be shown."""
        host = (urlsplit(url).hostname or "").lower()
        if any(_is_of(host, each) for each in self.blocked):
            return False
        return not self.allowed or any(_is_of(host, each) for each in self.allowed)


def _is_of(host: str, domain: str) -> bool:
    return f".{host}".endswith(f".{domain.lower().removeprefix('*.').strip('.')}")


def search_engine(name: str, config: ProviderConfig, query: str, domains: Domains) -> SearchAnswer:
    """What the engine ``name`` at ``config`` finds. Blocks; raises ``AgentError``."""
    ask = ServerClient(config, WITHIN_S)
    found = _ENGINE_CALLS[name](ask, query, domains)
    hits = [hit for hit in found if hit.url and domains.let(hit.url)]
    return SearchAnswer("", tuple(hits[:MAX_HITS]))


def search_with(config: ProviderConfig, model: str, query: str, domains: Domains) -> SearchAnswer:
    """What the provider's own tool finds for ``model``. Blocks; raises ``AgentError``."""
    call = _PROVIDER_CALLS.get(config.kind)
    if call is None:
        raise AgentError(f"{config.name} has no search of its own", "set search.url")
    found = call(ServerClient(config, WITHIN_S), model, query, domains)
    searches = found.searches if config.kind in _PRICED else None
    cost = None if searches is None else searches * USD_PER_SEARCH
    unique = {hit.url: hit for hit in reversed(found.hits) if hit.url}
    hits = tuple(hit for hit in reversed(unique.values()))[: 2 * MAX_HITS]
    return SearchAnswer(found.text[:MAX_ANSWER_CHARS], hits, found.usage, cost)


# --- providers' own tools -----------------------------------------------------------------


class _Found(NamedTuple):
    text: str
    hits: list[WebHit]
    usage: Usage
    searches: int


def _asked_of(ask: ServerClient, model: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to ``body``, whole, from where the provider's requests go."""
    plain = replace(ask.config, stream=False, query={})  # the query is added when it is sent
    provider = cast("HttpProvider", create(plain))
    return as_object(ask.get(provider.endpoint(model).url, provider.headers(body), body=body))


def _anthropic(ask: ServerClient, model: str, query: str, domains: Domains) -> _Found:
    tool: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
    tool["max_uses"] = MAX_SEARCHES
    if domains.allowed:  # the API takes one of the two
        tool["allowed_domains"] = list(domains.allowed)
    elif domains.blocked:
        tool["blocked_domains"] = list(domains.blocked)
    body = {
        "model": model,
        "stream": False,
        "max_tokens": 4_096,
        "messages": [{"role": "user", "content": [{"type": "text", "text": _ASKED + query}]}],
        "tools": [tool],
    }
    value = _asked_of(ask, model, body)
    texts, hits = [], []
    for block in _objects(value.get("content")):
        if block.get("type") == "text":
            texts.append(as_text(block.get("text")))
        elif block.get("type") == "web_search_tool_result":
            results = block.get("content")
            if isinstance(results, dict) and not texts:
                what = as_text(results.get("error_code")) or "no reason given"
                raise AgentError(f"the service says {what}", "try again, or another query")
            hits += [_hit(each, "title", "url", "page_age") for each in _objects(results)]
    usage = as_object(value.get("usage"))
    used = Usage(
        token_count(usage.get("input_tokens")),
        token_count(usage.get("output_tokens")),
        token_count(usage.get("cache_read_input_tokens")),
        token_count(usage.get("cache_creation_input_tokens")),
    )
    count = token_count(as_object(usage.get("server_tool_use")).get("web_search_requests"))
    return _Found("".join(texts), hits, used, count or 0)


def _responses(ask: ServerClient, model: str, query: str, domains: Domains) -> _Found:
    tool: dict[str, Any] = {"type": "web_search"}
    if domains.allowed:
        tool["filters"] = {"allowed_domains": list(domains.allowed)}
    asked = _ASKED + query + "".join(f"\nNothing from {each}." for each in domains.blocked)
    message = {"role": "user", "content": [{"type": "input_text", "text": asked}]}
    body = {
        "model": model,
        "stream": False,
        "store": False,
        "input": [{"type": "message", **message}],
        "tools": [tool],
    }
    value = _asked_of(ask, model, body)
    texts, hits, count = [], [], 0
    for item in _objects(value.get("output")):
        count += item.get("type") == "web_search_call"
        for part in _objects(item.get("content")):
            texts.append(as_text(part.get("text")))
            hits += [_hit(each, "title", "url") for each in _objects(part.get("annotations"))]
    usage = openai_usage(as_object(value.get("usage")), "input", "output")
    return _Found("".join(texts), [hit for hit in hits if domains.let(hit.url)], usage, count)


def _gemini(ask: ServerClient, model: str, query: str, domains: Domains) -> _Found:
    sites = " OR ".join(f"site:{each}" for each in domains.allowed)
    without = "".join(f" -site:{each}" for each in domains.blocked)
    asked = f"{_ASKED}{query} {sites}{without}".strip()
    body = {
        "contents": [{"role": "user", "parts": [{"text": asked}]}],
        "tools": [{"google_search": {}}],
    }
    value = _asked_of(ask, model, body)
    candidate = next(_objects(value.get("candidates")), {})
    parts = _objects(as_object(candidate.get("content")).get("parts"))
    text = "".join(as_text(part.get("text")) for part in parts if not part.get("thought"))
    grounding = as_object(candidate.get("groundingMetadata"))
    chunks = [as_object(each.get("web")) for each in _objects(grounding.get("groundingChunks"))]
    hits = [_hit(each, "title", "uri") for each in chunks]
    usage = as_object(value.get("usageMetadata"))
    used = Usage(
        token_count(usage.get("promptTokenCount")), token_count(usage.get("candidatesTokenCount"))
    )
    return _Found(text, hits, used, 0)


_PROVIDER_CALLS: Mapping[str, Callable[[ServerClient, str, str, Domains], _Found]] = {
    "anthropic": _anthropic,
    "openai-responses": _responses,
    "gemini": _gemini,
}


# --- engines ------------------------------------------------------------------------------


def _searxng(ask: ServerClient, query: str, domains: Domains) -> Iterator[WebHit]:
    base = ask.config.base_url.rstrip("/").removesuffix("/search")
    asked = urlencode({"q": _with_sites(query, domains), "format": "json"})
    value = as_object(ask.get(f"{base}/search?{asked}", {}))
    for each in _objects(value.get("results")):
        yield _hit(each, "title", "url", "content")


def _brave(ask: ServerClient, query: str, domains: Domains) -> Iterator[WebHit]:
    asked = quote(_with_sites(query, domains), safe="")
    url = f"{ask.config.base_url.rstrip('/')}/res/v1/web/search?count={MAX_HITS}&q={asked}"
    value = as_object(ask.get(url, {"x-subscription-token": ask.config.api_key}))
    for each in _objects(as_object(value.get("web")).get("results")):
        yield _hit(each, "title", "url", "description")


def _tavily(ask: ServerClient, query: str, domains: Domains) -> Iterator[WebHit]:
    body = {
        "query": query,
        "max_results": MAX_HITS,
        "include_domains": list(domains.allowed),
        "exclude_domains": list(domains.blocked),
    }
    value = as_object(ask.get(f"{ask.config.base_url.rstrip('/')}/search", body=body))
    for each in _objects(value.get("results")):
        yield _hit(each, "title", "url", "content")


def _exa(ask: ServerClient, query: str, domains: Domains) -> Iterator[WebHit]:
    body: dict[str, Any] = {
        "query": query,
        "numResults": MAX_HITS,
        "contents": {"text": {"maxCharacters": MAX_SNIPPET_CHARS}},
    }
    if domains.allowed:
        body["includeDomains"] = list(domains.allowed)
    elif domains.blocked:
        body["excludeDomains"] = list(domains.blocked)
    url = f"{ask.config.base_url.rstrip('/')}/search"
    value = as_object(ask.get(url, auth_headers(ask.config, "x-api-key"), body=body))
    for each in _objects(value.get("results")):
        yield _hit(each, "title", "url", "text")


_ENGINE_CALLS: Mapping[str, Callable[[ServerClient, str, Domains], Iterator[WebHit]]] = {
    "searxng": _searxng,
    "brave": _brave,
    "tavily": _tavily,
    "exa": _exa,
}


def _with_sites(query: str, domains: Domains) -> str:
    sites = " OR ".join(f"site:{each}" for each in domains.allowed)
    return f"{query} {sites}".strip() + "".join(f" -site:{each}" for each in domains.blocked)


# --- values from outside ------------------------------------------------------------------


def _hit(entry: Json, title: str, url: str, snippet: str = "") -> WebHit:
    address = as_text(entry.get(url)).strip()
    if not re.fullmatch(r"https?://[^\s\x00-\x20\x7f]{1,2000}", address):
        address = ""
    more = _line(entry.get(snippet))[:MAX_SNIPPET_CHARS] if snippet else ""
    return WebHit(_line(entry.get(title))[:300], address, more)


def _line(value: object) -> str:
    text = re.sub(r"<[^<>]{0,200}>", "", as_text(value)[:_MAX_READ_CHARS])
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _objects(value: object) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
