"""What a server's refusal means: status, headers and body to a ``ProviderError`` (STR-1, STR-9).

Pure; knows no HTTP library. Law: the text names the provider and the URL's host and says what to
do; it holds no key, no user name of a URL and no control character, and is one line. What cannot
be understood, and a moment that has passed, is no wait that was asked for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import ProviderConfig
from agentcli.domain.secrecy import is_secret
from agentcli.domain.values import frozen
from agentcli.providers._registry import BUILT_IN, COMMAND
from agentcli.wire.http import Endpoint, Refusal

# https://cloud.google.com/apis/design/errors, https://ai.google.dev/gemini-api/docs/troubleshooting
_GOOGLE_KINDS = {
    "INVALID_ARGUMENT": ErrorKind.BAD_REQUEST,
    "FAILED_PRECONDITION": ErrorKind.BAD_REQUEST,
    "OUT_OF_RANGE": ErrorKind.BAD_REQUEST,
    "NOT_FOUND": ErrorKind.BAD_REQUEST,
    "UNAUTHENTICATED": ErrorKind.AUTH,
    "PERMISSION_DENIED": ErrorKind.AUTH,
    "API_KEY_INVALID": ErrorKind.AUTH,
    "RESOURCE_EXHAUSTED": ErrorKind.RATE_LIMIT,
    "UNAVAILABLE": ErrorKind.OVERLOADED,
    "INTERNAL": ErrorKind.SERVER,
    "UNKNOWN": ErrorKind.SERVER,
    "ABORTED": ErrorKind.SERVER,
    "DATA_LOSS": ErrorKind.SERVER,
    "DEADLINE_EXCEEDED": ErrorKind.SERVER,
}
_DAILY_ADVICE = (
    "the quota of the day is used up; it is renewed at midnight Pacific time: use another model"
    " or raise the plan"
)
_DURATION = LazyPattern(r"(\d+(?:\.\d+)?)s")
_MAX_TEXT = 400
# Status codes of RFC 9110, and 529, which Anthropic sends when overloaded.
_REDIRECTS = range(300, 400)
_CLIENT_ERRORS = range(400, 500)
_SERVER_ERRORS = range(500, 600)
_PAYMENT_REQUIRED = 402
_FORBIDDEN = 403
_NOT_FOUND = 404
_RATE_LIMITED = 429
_OVERLOADED = 529
_STATUS_DIGITS = 3

_KIND_OF_TYPE = {
    "overloaded_error": ErrorKind.OVERLOADED,
    "server_is_overloaded": ErrorKind.OVERLOADED,
    "slow_down": ErrorKind.OVERLOADED,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "rate_limit_exceeded": ErrorKind.RATE_LIMIT,
    "insufficient_quota": ErrorKind.RATE_LIMIT,
    "api_error": ErrorKind.SERVER,
    "server_error": ErrorKind.SERVER,
    "internal_server_error": ErrorKind.SERVER,
    "timeout_error": ErrorKind.SERVER,
    "authentication_error": ErrorKind.AUTH,
    "permission_error": ErrorKind.AUTH,
    "billing_error": ErrorKind.AUTH,
    "invalid_api_key": ErrorKind.AUTH,
    "not_found_error": ErrorKind.BAD_REQUEST,
    "invalid_request_error": ErrorKind.BAD_REQUEST,
    "request_too_large": ErrorKind.CONTEXT_OVERFLOW,
    "context_length_exceeded": ErrorKind.CONTEXT_OVERFLOW,
    **_GOOGLE_KINDS,
}
_KIND_OF_STATUS = {
    401: ErrorKind.AUTH,
    _PAYMENT_REQUIRED: ErrorKind.AUTH,
    _FORBIDDEN: ErrorKind.AUTH,
    408: ErrorKind.SERVER,
    409: ErrorKind.SERVER,
    413: ErrorKind.CONTEXT_OVERFLOW,
    425: ErrorKind.SERVER,
    _RATE_LIMITED: ErrorKind.RATE_LIMIT,
    _OVERLOADED: ErrorKind.OVERLOADED,
}
# Patterns are compiled when an error needs them, not at start-up.
# "Please try again in 1.898s", "... in 28ms", "... in 6m0s", "... in 1 hour and 5 minutes"
_PART = r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)"
_TRY_AGAIN = rf"(?i)try again in ((?:{_PART}(?:,|\s|and)*)+)(?![a-z\d])"
_LONGEST_S = 1e9
# How servers say that a conversation does not fit (STR-13). A row: who, by their documentation,
# source or issue tracker, and a pattern. Law: a row is what only such a complaint says; a limit of
# the output ("max_tokens is too large") is none.
OVERFLOWS: tuple[tuple[str, str], ...] = (
    ("OpenAI, Azure, DeepSeek, OpenRouter, vLLM, SGLang", r"maximum context length"),
    ("OpenAI (chat)", r"context[ _-]?length[ _-]?exceeded|input tokens? exceeds?"),
    ("OpenAI (responses), Codex", r"exceeds the context window"),
    ("Anthropic, Vertex", r"prompt is too long|exceed context limit"),
    ("Gemini, Vertex", r"token count.{0,60}exceeds"),
    ("Gemini (size of the request)", r"payload size exceeds the limit"),
    ("Bedrock", r"input is too long|too many input tokens"),
    ("vLLM (vllm/v1/engine/processor.py)", r"prompt.{0,40}longer than the maximum model length"),
    ("vLLM (older)", r"too long to fit into the model"),
    ("SGLang (tokenizer_manager.py)", r"longer than the model's context length"),
    (
        "TGI and Together (router/src/validation.rs)",
        r"inputs`? tokens \+ `?max_new_tokens`? must be",
    ),
    ("TGI (router/src/validation.rs)", r"inputs`? must have less than \d+ tokens"),
    ("llama.cpp (tools/server), Ollama", r"exceeds? the (available )?context (size|length)"),
    ("Ollama (server/prompt.go, llm/server.go)", r"exceed(ed|s) max(imum)? context length"),
    ("LM Studio", r"context length of only|greater than the context length|context the overflows"),
    ("TabbyAPI (backends/exllamav3)", r"greater than (the )?max_seq_len|exceeds? max_seq_len"),
    ("Moonshot, Kimi", r"exceeded model token limit"),
    ("Mistral", r"too large for model with \d+ maximum context"),
    ("Groq, Cerebras", r"reduce the length of (the|your) (messages|prompt|input)"),
    ("xAI", r"maximum prompt length"),
    ("MiniMax", r"context window exceeds limit"),
    ("z.ai, GLM", r"prompt exceeds max(imum)? length|model_context_window_exceeded"),
    ("Qwen (DashScope)", r"range of input length should be"),
    ("GitHub Models, Copilot", r"prompt token count of \d+ exceeds the limit"),
    ("Cohere", r"too many tokens: (the )?total number of tokens"),
    ("KoboldCpp, Docker Model Runner", r"configured context size is \d+"),
    ("others", r"maximum (input|context) length|context[ _-]?(window|size|limit) (is )?exceed"),
    ("others", r"exceeds? the (maximum|available|model'?s).{0,20}(input|prompt|context)"),
    ("others", r"too many (input |prompt )?tokens in|context (length|window) was exceeded"),
)
_BILLING = (
    r"(?i)insufficient_quota|exceeded your current quota|credit balance"
    r"|insufficient (balance|credit)|billing|payment required"
)
# Codes of a reply that failed by what was asked: no use in asking again.
_CLIENT_FAULT = r"(?:invalid|image|unsupported|empty)_|\w+_policy\b"
_KEY_LIKE = r"\b(?:(?:sk|pk|rk|gsk)[-_][\w*.\-]{6,}|xai-\w{20,}|AIza[\w\-]{20,}|Bearer +\S+)"
_UNPRINTABLE = r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]+"
_TAGS = r"(?is)<(script|style)\b(?:.*?</\1>|.*)|<[^<>]*>"
_TITLE = r"(?i)<title[^<>]*>([^<]*)</title>"


@frozen
class Complaint:
    """What an error body says: its machine-readable type and code, and its text.

    ``retry_after_s`` is the wait that the body asks for; ``is_daily`` tells a limit that stays
    for the day.
    """

    type: str = ""
    code: str = ""
    text: str = ""
    retry_after_s: float | None = None
    is_daily: bool = False

    @property
    def everything(self) -> str:
        """All of it, to search in."""
        return f"{self.type} {self.code} {self.text}"

    @property
    def needs_money(self) -> bool:
        """Whether the account has run dry. Google says so of limits that pass by themselves too."""
        passes = self.is_daily or self.retry_after_s is not None
        return not passes and re.search(_BILLING, self.everything) is not None


def read_complaint(body: bytes | str | Mapping[str, Any]) -> Complaint:
    """The error that ``body`` describes: JSON in any of the usual shapes, HTML or plain text."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return Complaint(text=_plain(body))
    else:
        value = body
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        return Complaint(text=_plain(str(value or "")))
    error = value.get("error", value)
    if not isinstance(error, Mapping):
        error = {**value, "message": str(error)}
    text = error.get("message") or error.get("detail") or error.get("msg") or ""
    if not isinstance(text, str):
        with suppress(RecursionError):  # of a depth that can be read and not be written
            text = json.dumps(text, ensure_ascii=False)
    metadata = error.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("raw"), str):
        text = f"{text}: {metadata['raw']}"
    facts = google_facts(error)
    kind = _word(error.get("type")) or facts.type
    code, text = _word(error.get("code")), _plain(text) if isinstance(text, str) else ""
    return Complaint(kind, code, text, facts.retry_after_s, facts.is_daily)


def _word(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _plain(text: str) -> str:
    if text.lstrip()[:1] == "<":
        title = re.search(_TITLE, text)
        text = title.group(1) if title else re.sub(_TAGS, " ", text)
    return " ".join(re.sub(_UNPRINTABLE, " ", text).split())[:_MAX_TEXT]


def redact(text: str, endpoint: Endpoint) -> str:
    """``text`` without the endpoint's secrets and without anything shaped like a key."""
    for secret in endpoint.secrets:
        if secret:
            text = text.replace(secret, "[key]")
    return re.sub(_KEY_LIKE, "[key]", text)


def status_error(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes
) -> ProviderError:
    """The error for an HTTP answer that is not a success."""
    complaint = read_complaint(body)
    kind = _kind(status, complaint)
    retryable = None
    if headers.get("x-should-retry") == "false" or (
        kind is ErrorKind.RATE_LIMIT and (complaint.is_daily or complaint.needs_money)
    ):
        retryable = False
    wait_s = parse_retry_after(headers)
    wait_s = _wait_said(kind, complaint) if wait_s is None else wait_s
    return _error(endpoint, kind, complaint, status, wait_s, retryable)


@contextmanager
def refusals_in_words(endpoint: Endpoint) -> Iterator[None]:
    """A ``Refusal`` becomes the ``ProviderError`` of ``status_error``."""
    try:
        yield
    except Refusal as no:
        raise status_error(endpoint, no.status, no.headers, no.body) from None


def event_error(endpoint: Endpoint, value: Mapping[str, Any]) -> ProviderError:
    """The error for an error object inside a stream that began as a success (STR-8)."""
    complaint = read_complaint(value)
    status = (
        int(complaint.code)
        if complaint.code.isdecimal() and len(complaint.code) == _STATUS_DIGITS
        else None
    )
    kind = _kind(status, complaint)
    retryable = False if complaint.is_daily or complaint.needs_money else None
    return _error(endpoint, kind, complaint, status, _wait_said(kind, complaint), retryable)


def _wait_said(kind: ErrorKind, complaint: Complaint) -> float | None:
    """The wait that the body asks for: in a field of its own, or in words."""
    if complaint.retry_after_s is not None or kind is not ErrorKind.RATE_LIMIT:
        return complaint.retry_after_s
    return wait_in_text(complaint.text)


def _kind(status: int | None, complaint: Complaint) -> ErrorKind:
    """Overload beats the status, the status beats the body's type, an overflow beats both."""
    kind = _KIND_OF_TYPE.get(complaint.code) or _KIND_OF_TYPE.get(complaint.type)
    if kind is None and re.match(_CLIENT_FAULT, complaint.code):
        kind = ErrorKind.BAD_REQUEST
    if kind is not ErrorKind.OVERLOADED:
        kind = _KIND_OF_STATUS.get(status or 0) or _kind_of_class(status, kind)
    says_overloaded = "overload" in complaint.text.lower()
    if kind is ErrorKind.SERVER and says_overloaded:
        kind = ErrorKind.OVERLOADED
    if kind in {ErrorKind.BAD_REQUEST, ErrorKind.SERVER} and _is_overflow(complaint):
        kind = ErrorKind.CONTEXT_OVERFLOW
    if kind is ErrorKind.BAD_REQUEST and complaint.needs_money:
        kind = ErrorKind.AUTH
    return kind


def _is_overflow(complaint: Complaint) -> bool:
    said = f"{complaint.code} {complaint.text}"
    return any(re.search(pattern, said, re.IGNORECASE) for _, pattern in OVERFLOWS)


def _kind_of_class(status: int | None, by_type: ErrorKind | None) -> ErrorKind:
    if status in _SERVER_ERRORS:
        return ErrorKind.SERVER
    if status in _CLIENT_ERRORS:
        return by_type or ErrorKind.BAD_REQUEST
    if status is None:
        return by_type or ErrorKind.SERVER
    return ErrorKind.OTHER


def _error(
    endpoint: Endpoint,
    kind: ErrorKind,
    complaint: Complaint,
    status: int | None,
    retry_after_s: float | None,
    retryable: bool | None,  # noqa: FBT001 - passed on to ProviderError, where it is named
) -> ProviderError:
    said = redact(complaint.text, endpoint)
    what = _WHAT[kind]
    if status in _REDIRECTS:
        what = "answered with a redirect, which is not followed"
    elif status == _NOT_FOUND:
        what = "does not know this model or address"
    number = f" ({status})" if status is not None else ""
    message = f"{endpoint.label} {what}{number}"
    if said:
        message += f": {said.rstrip('.')}"
    return ProviderError(
        message,
        _advice(endpoint, kind, complaint, status),
        kind=kind,
        provider=endpoint.provider,
        host=endpoint.host,
        status=status,
        retry_after_s=retry_after_s,
        retryable=retryable,
    )


_WHAT = {
    ErrorKind.RATE_LIMIT: "limits the rate of requests",
    ErrorKind.AUTH: "refused access",
    ErrorKind.CONTEXT_OVERFLOW: "says that the conversation is too long for the model",
    ErrorKind.BAD_REQUEST: "rejected the request",
    ErrorKind.SERVER: "failed",
    ErrorKind.OVERLOADED: "is overloaded",
    ErrorKind.NETWORK: "cannot be reached",
    ErrorKind.STALLED: "stopped sending",
    ErrorKind.EMPTY: "sent an empty reply",
    ErrorKind.OTHER: "answered in an unexpected way",
}


def _advice(endpoint: Endpoint, kind: ErrorKind, complaint: Complaint, status: int | None) -> str:
    if complaint.is_daily:
        return _DAILY_ADVICE
    if complaint.needs_money or status == _PAYMENT_REQUIRED:
        return "the account has no credit left; check its plan and billing"
    if status == _NOT_FOUND:
        model = f"the model name {endpoint.model!r}" if endpoint.model else "the model name"
        where = endpoint.base_env or "base_url"
        return f"check {model} (`agent models` lists known ones) and {where}"
    if status == _FORBIDDEN:
        return f"the key in {endpoint.key_name} may not use this model or service"
    if kind is ErrorKind.AUTH:
        other = f", or store another: agent auth login {endpoint.provider}"
        is_printed = COMMAND in endpoint.key_name
        return f"check {endpoint.key_name}{'' if is_printed else other}"
    return _ADVICE.get(kind) or endpoint.address_advice


_ADVICE = {
    ErrorKind.CONTEXT_OVERFLOW: "start a new session or use a model with a larger context window",
    ErrorKind.RATE_LIMIT: "try again in a moment",
    ErrorKind.OVERLOADED: "try again in a moment",
    ErrorKind.SERVER: "try again in a moment",
    ErrorKind.BAD_REQUEST: "change the request or the model",
}


def endpoint_of(config: ProviderConfig, url: str, model: str = "") -> Endpoint:
    """Where requests of a provider go, for texts."""
    row = BUILT_IN.get(config.name)
    key_env = config.key_env
    if config.stored is not None:
        key_env = f"the key that was stored with: agent auth login {config.name}"
        if config.stored.place == COMMAND:
            key_env = f"the {COMMAND} of [providers.{config.name}]"
    secrets = (config.api_key, *config.headers.values(), *config.query.values())
    return Endpoint(
        config.name,
        _with_query(url, config.query),
        key_env,
        row.base_env if row else "",
        model,
        tuple(filter(is_secret, secrets)),
    )


def _with_query(url: str, query: Mapping[str, str]) -> str:
    """``url`` with the user's own parameters, which replace those of the same name."""
    if not query:
        return url
    parts = urlsplit(url)
    kept = [pair for pair in parse_qsl(parts.query) if pair[0] not in query]
    return parts._replace(query=urlencode([*kept, *query.items()])).geturl()


def auth_headers(config: ProviderConfig, usual: str = "bearer") -> dict[str, str]:
    """The header that carries the key: as the settings say, else ``usual`` (EXT-7)."""
    how = config.auth or usual
    if not config.api_key or how == "none":
        return {}
    if how == "bearer":
        return {"authorization": f"Bearer {config.api_key}"}
    return {how: config.api_key}


def with_own_headers(headers: Mapping[str, str], config: ProviderConfig) -> dict[str, str]:
    """``headers`` with the user's, which win; what is a list in Anthropic's API stays one."""
    own = dict(config.headers)
    if {"anthropic-beta"} <= headers.keys() & own.keys():
        own["anthropic-beta"] = f"{headers['anthropic-beta']},{own['anthropic-beta']}"
    return {**headers, **own}


def check_key(config: ProviderConfig, endpoint: Endpoint) -> None:
    """Raises ``ProviderError`` for a key that is missing or fits into no HTTP header."""
    key = config.api_key
    if not key and config.needs_key:
        raise missing_key(endpoint)
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise unusable_key(endpoint)


def missing_key(endpoint: Endpoint) -> ProviderError:
    """The error for a provider that needs a key and has none."""
    env = endpoint.key_env
    message = f"{env} is not set" if env else f"provider {endpoint.provider} has no API key"
    how = f"set {env}" if env else "set api_key_env in its configuration"
    how += f", or: agent auth login {endpoint.provider}"
    return ProviderError(
        message,
        f"{endpoint.label} needs an API key: {how}, or use a local model (ollama/MODEL)",
        kind=ErrorKind.AUTH,
        provider=endpoint.provider,
        host=endpoint.host,
    )


def unusable_key(endpoint: Endpoint) -> ProviderError:
    """The error for a key that cannot be put into an HTTP header."""
    return ProviderError(
        f"{endpoint.key_name} is not a usable key: it holds a space, a line break or a character "
        "outside ASCII",
        f"copy the key for {endpoint.label} again",
        kind=ErrorKind.AUTH,
        provider=endpoint.provider,
        host=endpoint.host,
    )


# --- what Google adds: a status word, a reason, when to try again ---------------------------


@frozen
class _GoogleFacts:
    """``type`` is the reason where it says more than the status, else the status word.

    ``is_daily``: the limit does not pass today.
    """

    type: str = ""
    retry_after_s: float | None = None
    is_daily: bool = False


def google_facts(error: Mapping[str, Any]) -> _GoogleFacts:
    """What a ``google.rpc.Status`` says beyond code and message; nothing for other errors."""
    status = error.get("status")
    if not isinstance(status, str) or status not in _GOOGLE_KINDS:
        return _GoogleFacts()
    retry_after_s: float | None = None
    is_daily = False
    for detail in _details(error.get("details")):
        kind = str(detail.get("@type", "")).rpartition("google.rpc.")[2]
        if kind == "RetryInfo":
            retry_after_s = _seconds(detail.get("retryDelay"))
        elif kind == "ErrorInfo" and str(detail.get("reason")) in _GOOGLE_KINDS:
            status = str(detail["reason"])
        elif kind == "QuotaFailure":
            ids = (str(each.get("quotaId", "")) for each in _details(detail.get("violations")))
            is_daily = is_daily or any("PerDay" in name for name in ids)
    return _GoogleFacts(status, None if is_daily else retry_after_s, is_daily)


def _details(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))


def _seconds(value: object) -> float | None:
    """A ``google.protobuf.Duration`` in JSON: ``12s``, ``0.5s``; also its two-number form."""
    if isinstance(value, Mapping):
        value = f"{value.get('seconds', 0)}s"
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = float(match[1]) if match else math.inf
    return seconds if math.isfinite(seconds) else None


# --- how long to wait: in headers, or only in the text of a refusal (STR-2) ------------------


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as the server asks: ``retry-after-ms``, seconds or an HTTP date.

    ``None`` when absent, absurd or, by our clock, in the past: where a clock is wrong nobody shall
    be asked without a pause. Never negative. The caller caps it.
    """
    milliseconds = _finite(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    seconds = _finite(value)
    if seconds is not None:
        return seconds
    from email.utils import parsedate_to_datetime
    from time import time

    try:
        seconds = parsedate_to_datetime(value).timestamp() - time()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return seconds if seconds > 0 else None


def wait_in_text(text: str) -> float | None:
    """Seconds to wait as a refusal's text puts it, or ``None``."""
    found = re.search(_TRY_AGAIN, text)
    if found is None:
        return None
    parts = re.findall(rf"(?i){_PART}", found[1])
    seconds = sum(float(number) * _unit_s(unit.lower()) for number, unit in parts)
    return seconds if seconds <= _LONGEST_S else None


def _unit_s(unit: str) -> float:
    if unit.startswith(("ms", "milli")):
        return 0.001
    return {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[unit[0]]


def _finite(value: str) -> float | None:
    """A number of at least 0 in plain digits, else ``None``: a negative wait is no wait either."""
    number = float(value) if re.fullmatch(r"\s*\+?[0-9]+(\.[0-9]*)?\s*", value) else float("inf")
    return number if number < float("inf") else None
