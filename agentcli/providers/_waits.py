"""How long a server asks us to wait: in headers, or only in the text of its refusal (STR-2).

Pure. Law: what cannot be understood, and a moment that has passed, is no wait that was asked for;
a wait is never negative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Compiled when an error needs it, not at start-up.
# "Please try again in 1.898s", "... in 28ms", "... in 6m0s", "... in 1 hour and 5 minutes"
_PART = r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)"
_TRY_AGAIN = rf"(?i)try again in ((?:{_PART}(?:,|\s|and)*)+)(?![a-z\d])"
_LONGEST_S = 1e9


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
