"""Reasoning of the Responses API as a ``ThinkingPart``, and back into an input item.

A part's signature is the JSON text of a *seal*: ``item`` is the reasoning item to send back and
``next`` says which item has to follow it (type, id, phase). A seal without ``item`` only keeps
what has no place in a ``TextPart``: the id and the phase of the message behind it.
https://developers.openai.com/api/docs/guides/reasoning. Law: every text of an item comes back as
it was sent; an item that a request without storage cannot resolve is never sent (HIS-4, HIS-7).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentcli.domain.messages import ThinkingPart

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# "status" is refused in input; "content" is the service's own, unless nothing is encrypted.
_KEPT = ("type", "id", "summary", "encrypted_content")
_NEXT = ("type", "id", "phase")

Json = dict[str, Any]


def seal(item: Mapping[str, Any] | None, following: Mapping[str, Any] | None) -> str | None:
    """The signature for a reasoning ``item`` and the item after it; ``None`` if there is no use.

    ``item`` is the service's own object, ``following`` too.
    """
    value: Json = {}
    if item is not None:
        kept = {key: item[key] for key in _KEPT if item.get(key) is not None}
        if not item.get("encrypted_content"):
            if not item.get("content"):
                return None
            kept["content"] = item["content"]
        kept.setdefault("summary", [])
        value["item"] = kept
    if following is not None:
        after = {key: text for key in _NEXT if isinstance(text := following.get(key), str)}
        value["next"] = after
        if item is None and "phase" not in after:
            return None
    return _ENCODER.encode(value) if value else None


def unseal(part: ThinkingPart) -> tuple[Json | None, Json] | None:
    """The reasoning item of ``part``, if it has one, and what follows it.

    ``None`` for a part that this protocol did not make.
    """
    if not part.signature or not part.signature.startswith("{"):
        return None
    try:
        value = json.loads(part.signature)
    except (ValueError, RecursionError):
        return None
    item, following = value.get("item"), value.get("next")
    if isinstance(item, dict) and item.get("type") != "reasoning":
        return None
    if not isinstance(item, dict) and not isinstance(following, dict):
        return None
    return (
        item if isinstance(item, dict) else None,
        following if isinstance(following, dict) else {},
    )
