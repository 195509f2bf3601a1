"""Secrets taken out of text, before it is stored, logged or shown (SEC-9).

Law: a value that is known goes in every form in which it travels (plain, in JSON, in an address,
in base64); what only looks like a key goes where text is for reading: logs, errors, exports.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_SHORTEST_SECRET = 6
_SHORTEST_WORD = 16  # a password that is a plain word would garble all that is written
_SHORTEST_BASE64 = 8
_HIDDEN = "[redacted]"
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")
_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;"))
_ADDRESS = re.compile(r"(?<=://)([^/\s@]*)@")
# what keys look like, for those that were never told to us
_PATTERNS = r"""(?ix)
    \b(?:sk|pk|rk)-[A-Za-z0-9_\-]{8,}            # OpenAI, Anthropic and many more
    | \b[sr]k_(?:live|test)_[A-Za-z0-9]{10,}
    | \bAIza[0-9A-Za-z_\-]{20,}                  # Google
    | \bya29\.[0-9A-Za-z_\-]{20,}
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[0-9A-Za-z_\-]{16,}
    | \bxox[abeprs]-[A-Za-z0-9\-]{10,}
    | \b(?:gsk|hf|npm)_[A-Za-z0-9]{20,} | \bxai-[A-Za-z0-9]{20,}
    | \bA(?:KI|SI)A[0-9A-Z]{16}\b
    | \beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}    # a signed web token
    | -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY-----(?:(?!-----END)[\s\S])*(?:-----END[^-]*-----)?
    | (?<=bearer\ )[A-Za-z0-9._~+/=\-]{6,}
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
# bytes in base64, whose chance likeness to a key must not break them
_OPAQUE = frozenset({"signature", "redacted", "data"})


class Redactor:
    """Takes secrets out of text: those it knows by value, and whatever looks like one.

    ``source`` gives more values, asked once, when there is a text to redact.
    """

    def __init__(
        self, secrets: Iterable[str] = (), source: Callable[[], Iterable[str]] | None = None
    ) -> None:
        self._known: set[str] = set()
        self._ordered: list[str] = []
        self._source = source
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Know more values, in every form in which they travel.

        Very short ones are no secrets and would garble everything.
        """
        for secret in secrets:
            if len(secret) >= _SHORTEST_SECRET:
                self._known.update(_forms(secret))
        self._ordered = sorted(self._known, key=len, reverse=True)

    def redact(self, text: str) -> str:
        """``text`` with ``[redacted]`` in the place of each secret."""
        text = re.sub(_PATTERNS, _HIDDEN, self.redact_known(text))
        text = re.sub(_QUERY, rf"\1{_HIDDEN}", text)
        return re.sub(_FIELDS, rf"\1{_HIDDEN}", text)

    def redact_known(self, text: str) -> str:
        """``text`` without the known values only: for what must stay true otherwise."""
        if self._source is not None:
            source, self._source = self._source, None
            self.add(source())
        for secret in self._ordered:
            if secret in text:
                text = text.replace(secret, _HIDDEN)
        return text

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


def environment_secrets(env: Mapping[str, str], named: Iterable[str] = ()) -> tuple[str, ...]:
    """The values in ``env`` that must never be shown: keys, tokens, passwords in addresses.

    ``named`` are variables that hold a key whatever they are called.
    """
    sure = set(named)
    found: dict[str, None] = {}
    for name, value in env.items():
        text = value.strip()  # as it is sent
        if not text:
            continue
        upper = name.upper()
        is_sure = name in sure or upper.endswith("API_KEY")
        if is_sure or (upper.endswith(_SECRET_NAMES) and not _is_word(text)):
            found[text] = None
        elif "://" in text:
            found.update(dict.fromkeys(address_secrets(text)))
    return tuple(found)


def address_secrets(url: str) -> tuple[str, ...]:
    """The password in ``url``, as it stands there and as it is meant."""
    from urllib.parse import unquote

    passwords = [user.partition(":")[2] for user in _ADDRESS.findall(url)]
    return tuple(form for text in passwords if text for form in {text, unquote(text)})


def _is_word(text: str) -> bool:
    return text.isalpha() and len(text) < _SHORTEST_WORD


def _forms(secret: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus

    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield raw.decode("latin-1")  # bytes are looked through as such
    yield quote(raw)
    yield quote(raw, safe="")
    yield quote_plus(raw)
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
