"""What Google's services add to an error: a status word, a reason, when to try again.

https://cloud.google.com/apis/design/errors and https://ai.google.dev/gemini-api/docs/troubleshooting.
Law: pure; whatever is not as documented counts as not there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentcli.domain.errors import ErrorKind

KIND_OF_STATUS = {
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
DAILY_ADVICE = (
    "the quota of the day is used up; it is renewed at midnight Pacific time: use another model"
    " or raise the plan"
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")


class GoogleFacts(NamedTuple):
    """``type`` is the reason where it says more than the status, else the status word.

    ``is_daily``: the limit does not pass today.
    """

    type: str = ""
    retry_after_s: float | None = None
    is_daily: bool = False


def google_facts(error: Mapping[str, Any]) -> GoogleFacts:
    """What a ``google.rpc.Status`` says beyond code and message; nothing for other errors."""
    status = error.get("status")
    if not isinstance(status, str) or status not in KIND_OF_STATUS:
        return GoogleFacts()
    retry_after_s: float | None = None
    is_daily = False
    for detail in _details(error.get("details")):
        kind = str(detail.get("@type", "")).rpartition("google.rpc.")[2]
        if kind == "RetryInfo":
            retry_after_s = _seconds(detail.get("retryDelay"))
        elif kind == "ErrorInfo" and detail.get("reason") in KIND_OF_STATUS:
            status = str(detail["reason"])
        elif kind == "QuotaFailure":
            ids = (str(each.get("quotaId", "")) for each in _details(detail.get("violations")))
            is_daily = is_daily or any("PerDay" in name for name in ids)
    return GoogleFacts(status, None if is_daily else retry_after_s, is_daily)


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
