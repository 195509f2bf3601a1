"""What the real services refuse: pure checks of a request body, in the services' own words.

``check_anthropic`` and ``check_openai`` return the first complaint or ``None``. They are the
second opinion on ``agentcli.domain.history``: they know nothing of the program, only of the
services. Where a service is more lenient than the law in SPEC (HIS-1 to HIS-6), the law wins.
"""

from __future__ import annotations

import json
from typing import Any

from tests.support.strict_anthropic import Issued, check_anthropic
from tests.support.strict_gemini import check_gemini
from tests.support.strict_openai import check_openai
from tests.support.strict_responses import check_responses
from tests.support.strict_shared import Problem

__all__ = [
    "Issued",
    "Problem",
    "check_anthropic",
    "check_gemini",
    "check_openai",
    "check_responses",
    "parse_body",
]


def parse_body(raw: bytes) -> tuple[Any, str | None]:
    """The JSON value of a request body, or what is wrong with it (lone surrogates included)."""
    try:
        value = json.loads(raw.decode("utf-8"))
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        return None, f"no low surrogate in string: character {error.start}"
    except ValueError as error:
        return None, str(error)
    if not isinstance(value, dict):
        return None, "the body is not an object"
    return value, None
