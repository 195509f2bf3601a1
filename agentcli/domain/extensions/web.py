"""What a search of the web gives (EXT-8)."""

from __future__ import annotations

from dataclasses import field

from agentcli.domain.messages import Usage
from agentcli.domain.values import frozen


@frozen
class WebHit:
    """A page that a search has found, as others describe it."""

    title: str
    url: str
    snippet: str = ""


@frozen
class SearchAnswer:
    """What a search has found; ``usage`` are tokens, ``cost_usd`` what the searching itself cost.

    ``text`` is what a model made of it; an engine has none.
    """

    text: str
    hits: tuple[WebHit, ...]
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
