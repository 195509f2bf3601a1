"""Secrets taken out of text, before it is stored, logged or shown (SEC-9).

Laws. A value that is known goes in every form in which it travels (plain, in JSON, in an address,
in base64), and as its larger part, where a bound has cut it. Only what ``is_secret`` is known: a
dummy key, a short one or one of a local server changes nothing. What merely stands where keys stand
goes from our own texts: logs, errors, settings that are shown. In data (exports, what a run prints)
only keys go, known ones or by their form, in session files only known ones; what the model is sent
and a result in a shape that was asked for are never changed.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.secrecy import (
    KEYS,
    is_called_credential,
    is_plain_address,
    is_private_server,
    is_secret,
)

_SHORTEST_BASE64 = 8
_SHORTEST_WEAK = 8
_HIDDEN = "[redacted]"
_LOCAL_SERVICES = frozenset({"OLLAMA", "LMSTUDIO", "VLLM", "LLAMACPP"})
_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;"))
_ADDRESS = LazyPattern(r"(?<=://)([^/\s@]*)@")
# where keys stand
_PLACES = r"""(?ix)
    (?<=bearer\ )[A-Za-z0-9._~+/=\-]{6,}
    | (?<=basic\ )[A-Za-z0-9+/=]{6,}
    | (?<=://)[^/\s:@]*:[^/\s@]+(?=@)            # user:password in an address
    """
_NAMES = (
    r"x-api-key|x-goog-api-key|api[_-]?key|authorization|access[_-]?token|refresh[_-]?token"
    r"|client[_-]?secret|secret|password"
)
_FIELDS = (
    rf"(?i)((?:{_NAMES})"
    r"[\"']?\s*[:=]\s*[\"']?)(?!bearer |basic )[^\s\"',;&}<]{4,}"
)
_QUERY = r"(?i)([?&](?:key|token|access_token|sig|signature)=)[^\s\"'&#]{6,}"
# what follows is no part of an escape of JSON, which would be none any more
_NO_ESCAPE = r"(?<!\\)(?<!\\u)(?<!\\u.)(?<!\\u..)(?<!\\u...)"
# bytes in base64, whose chance likeness to a key must not break them
_OPAQUE = frozenset({"signature", "redacted", "data"})


class Redactor:
    """Takes secrets out of text: those it knows by value, and whatever looks like one.

    ``source`` gives more values, asked once, when there is a text to redact. ``weak`` is for texts
    of our own alone: what it gives and what is added goes from them though it is no secret.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        source: Callable[[], Iterable[str]] | None = None,
        weak: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        self._known: set[str] = set()
        self._ordered: list[str] = []
        self._cut: list[tuple[str, str, str]] = []
        self._source = source
        self._weak = weak
        self._too_weak: set[str] = set()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Know more values, in every form in which they travel; those that are no secrets, not."""
        for secret in secrets:
            if is_secret(secret):
                forms, most = set(_forms(secret)), len(secret) // 2 + 1
                self._known |= forms
                if is_secret(secret[:most]) and is_secret(secret[-most:]):
                    plain = (form for form in forms if not {*'"\\'} & {*form})  # whole in JSON
                    self._cut = sorted({*self._cut, *map(_halved, plain)}, reverse=True)
            elif self._weak is not None and _is_key_like(secret):
                self._too_weak.add(secret)
        self._ordered = sorted(self._known, key=len, reverse=True)

    def redact(self, text: str) -> str:
        """``text``, one of ours, with ``[redacted]`` for each secret and whatever may be one."""
        if not text:
            return text
        text = re.sub(KEYS, _HIDDEN, self.redact_known(text))
        for value in (*(self._weak() if self._weak else ()), *self._too_weak):
            text = text.replace(value, _HIDDEN)
        text = re.sub(_PLACES, _HIDDEN, text)
        text = re.sub(_QUERY, rf"\1{_HIDDEN}", text)
        return re.sub(_FIELDS, rf"\1{_HIDDEN}", text)

    def redact_known(self, text: str) -> str:
        """``text`` without the known values only: for what must stay true otherwise."""
        self._ask_source()
        for secret in self._ordered:
            if secret in text:
                text = text.replace(secret, _HIDDEN)
        for first, last, secret in self._cut:
            if first in text:
                text = _without(text, first, secret)
            if last in text:
                text = re.sub(_NO_ESCAPE + re.escape(last), _HIDDEN, text)
        return text

    def holds_known(self, data: bytes) -> bool:
        """Whether a known value stands in ``data``, whole, in one of its forms or as UTF-16."""
        self._ask_source()
        text = data.replace(b"\0", b"").decode("latin-1")
        return any(secret in text for secret in self._ordered)

    def _ask_source(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            self.add(source())

    def redact_data(self, value: Any, name: str = "") -> Any:
        """JSON data without keys, known ones or by their form, and otherwise as it is."""
        match value:
            case str() if name in _OPAQUE:
                return self.redact_known(value)
            case str():
                return re.sub(KEYS, _hidden_if_secret, self.redact_known(value))
            case list() | tuple():
                return [self.redact_data(item, name) for item in value]
            case Mapping():
                return {
                    self.redact_known(key): self.redact_data(item, key)
                    for key, item in value.items()
                }
        return value

    def redact_value(self, value: Any, name: str = "") -> Any:
        """JSON data without secrets in its texts; ``name`` is the field that holds it."""
        match value:
            case str() if name in _OPAQUE:
                return self.redact_known(value)
            case str() if value and re.fullmatch(_NAMES, name, re.IGNORECASE):
                return _HIDDEN
            case str():
                return self.redact(value)
            case list() | tuple():
                return [self.redact_value(item, name) for item in value]
            case Mapping():
                return {
                    self.redact_known(key): self.redact_value(item, key)
                    for key, item in value.items()
                }
        return value


def environment_secrets(env: Mapping[str, str], named: Mapping[str, str] = {}) -> tuple[str, ...]:
    """The values in ``env`` that must never be shown: keys, tokens, passwords in addresses.

    ``named`` are variables that hold a key whatever they are called, with their server's address.
    """
    found: dict[str, None] = {}
    for name, value in env.items():
        text = value.strip()  # as it is sent
        if not text:
            continue
        upper = name.upper()
        if upper.startswith("OTEL_EXPORTER_OTLP_") and upper.endswith("_HEADERS"):
            found.update(dict.fromkeys(header_secrets(text)))
        elif (name in named or is_called_credential(name, text)) and not is_plain_address(text):
            if is_secret(text, is_local=_is_of_local_server(upper, env, named.get(name, ""))):
                found[text] = None
        elif "://" in text:
            found.update(dict.fromkeys(address_secrets(text)))
    return tuple(found)


def weak_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Values in ``env`` that are called keys and are none to keep from data (``is_secret``)."""
    called = [text.strip() for name, text in env.items() if is_called_credential(name, text)]
    return tuple(each for each in called if _is_key_like(each) and not is_plain_address(each))


def _is_key_like(text: str) -> bool:
    return len(text) >= _SHORTEST_WEAK and not text.isalpha()


def _is_of_local_server(name: str, env: Mapping[str, str], address: str) -> bool:
    service = name.removesuffix("_API_KEY")
    address = address or env.get(f"{service}_BASE_URL", "")
    return is_private_server(address) if address else service in _LOCAL_SERVICES


def address_secrets(url: str) -> tuple[str, ...]:
    """The password in ``url``, as it stands there and as it is meant."""
    from urllib.parse import unquote

    passwords = [user.partition(":")[2] for user in _ADDRESS.findall(url)]
    forms = (form for text in passwords if text for form in {text, unquote(text)})
    return tuple(form for form in forms if is_secret(form))


def _halved(secret: str) -> tuple[str, str, str]:
    """What more than half of it begins with, what that ends with, and the whole."""
    most = len(secret) // 2 + 1
    return secret[:most], secret[-most:], secret


def _without(text: str, first: str, secret: str) -> str:
    """``text`` without what begins as the secret does, as far as it is the same."""
    pieces: list[str] = []
    done = 0
    while (at := text.find(first, done)) >= 0:
        pieces += (text[done:at], _HIDDEN)
        done = at + len(first)
        for char in secret[len(first) :]:
            if text[done : done + 1] != char:
                break
            done += 1
    return "".join((*pieces, text[done:]))


def _hidden_if_secret(found: re.Match[str]) -> str:
    return _HIDDEN if found[0].startswith("-----") or is_secret(found[0]) else found[0]


def header_secrets(text: str) -> tuple[str, ...]:
    """Values of headers in the form of W3C baggage, ``name=value,…``, as OpenTelemetry takes them.

    https://opentelemetry.io/docs/specs/otel/protocol/exporter/#specifying-headers-via-environment-variables
    """
    from urllib.parse import unquote

    values = [entry.partition("=")[2].strip() for entry in text.split(",")]
    forms = {form for value in values for form in (value, unquote(value))}
    words = {word for form in forms for word in (form, *form.split())}  # "Bearer KEY"
    return tuple(sorted(filter(is_secret, words)))


def _forms(secret: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus

    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    for is_ascii in (False, True):
        in_json = json.dumps(secret, ensure_ascii=is_ascii)[1:-1]
        yield in_json
        yield in_json.replace("/", r"\/")  # as PHP writes it
        for chars in ("<>&", "<>&'+"):  # as Go does, and .NET
            for form in (r"\u{:04x}", r"\u{:04X}"):
                known = in_json if "'" not in chars else in_json.replace(r"\"", form.format(34))
                yield known.translate({ord(char): form.format(ord(char)) for char in chars})
    yield raw.decode("latin-1")  # bytes are looked through as such
    for in_address in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
        yield in_address
        yield re.sub("%..", lambda found: found[0].lower(), in_address)
    in_html = secret
    for char, entity in _ENTITIES:
        in_html = in_html.replace(char, entity)
    yield in_html
    for before in range(3):
        # what stays the same whatever stands before and after it
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        text = b2a_base64(b"\0" * before + raw, newline=False).decode("ascii")[first:last]
        if len(text) >= _SHORTEST_BASE64:
            yield text
            yield text.replace("+", "-").replace("/", "_")
