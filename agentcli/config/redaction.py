"""Secrets taken out of text, before it is stored, logged or shown (SEC-9)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_SHORTEST_SECRET = 6
_HIDDEN = "[redacted]"
# what keys look like, for those that were never told to us
_PATTERNS = r"""(?ix)
    \b(?:sk|pk|rk)-[A-Za-z0-9_\-]{8,}            # OpenAI, Anthropic and many more
    | \bAIza[0-9A-Za-z_\-]{20,}                  # Google
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bxox[abprs]-[A-Za-z0-9\-]{10,}
    | \bAKIA[0-9A-Z]{16}\b
    | (?<=bearer\ )[A-Za-z0-9._~+/=\-]{6,}
    | (?<=basic\ )[A-Za-z0-9+/=]{6,}
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)            # user:password in an address
    """
_FIELDS = (
    r"(?i)((?:x-api-key|x-goog-api-key|api[_-]?key|authorization|access[_-]?token|secret|password)"
    r"[\"']?\s*[:=]\s*[\"']?)(?!bearer |basic )[^\s\"',;&}]{4,}"
)


class Redactor:
    """Takes secrets out of text: those it knows by value, and whatever looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Know more values, also as they stand in JSON text.

        Very short ones are no secrets and would garble everything.
        """
        for secret in secrets:
            if len(secret) >= _SHORTEST_SECRET:
                self._known |= {secret, json.dumps(secret, ensure_ascii=False)[1:-1]}

    def redact(self, text: str) -> str:
        """``text`` with ``[redacted]`` in the place of each secret."""
        text = re.sub(_PATTERNS, _HIDDEN, self.redact_known(text))
        return re.sub(_FIELDS, rf"\1{_HIDDEN}", text)

    def redact_known(self, text: str) -> str:
        """``text`` without the known values only: for what must stay true otherwise."""
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text
