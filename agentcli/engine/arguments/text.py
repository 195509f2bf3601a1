"""JSON from outside, read so that it can be stored and sent again (HIS-5, HIS-8).

Law: what ``loads`` returns survives ``json.dumps(..., allow_nan=False)``: no NaN, no infinite
number, no integer too long to print, no nesting deeper than ``MAX_DEPTH`` levels.
"""

from __future__ import annotations

import json
import math
from typing import Any

from agentcli.domain.clean import FEW_VALUES_CHARS, MAX_VALUES, count_values

MAX_DEPTH = 100


def loads(text: str, *, raw_controls: bool = False) -> Any:
    """The value of a JSON text; raises ``ValueError`` for anything else.

    ``raw_controls`` lets line ends and other control characters stand unescaped in strings.
    """
    if len(text) > FEW_VALUES_CHARS and count_values(text) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    try:
        value = json.loads(
            text, strict=not raw_controls, parse_constant=_not_json, parse_float=_finite
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not _is_shallow(value):
        raise ValueError("nested too deeply")
    return value


def _not_json(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return True
    return False
