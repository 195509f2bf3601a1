"""Amazon Bedrock with a bearer token: one address, three protocols, chosen by the model's name.

https://docs.aws.amazon.com/bedrock/latest/userguide/bedrock-mantle.html: Claude models speak
Anthropic's Messages below ``/anthropic``, OpenAI's GPT models Responses below ``/openai/v1``, all
others Chat Completions below ``/v1``. A base URL of the user's own stands for the part before.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentcli.providers._registry import create
from agentcli.wire.http import host_of

if TYPE_CHECKING:
    from agentcli.domain.cancel import CancelToken
    from agentcli.domain.ports import ModelRequest, Provider, ProviderConfig
    from agentcli.domain.stream import StreamEvent
    from agentcli.providers.models.ask import Figures, ServerClient

_CLAUDE = re.compile(r"(?:^|[./])anthropic\.|claude")
_GPT = re.compile(r"(?:^|[./])(?:openai\.)?gpt-\d")


class BedrockProvider:
    """The model's own protocol at Bedrock."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._inner: dict[str, Provider] = {}

    @property
    def name(self) -> str:
        """The part before the slash in ``provider/model``."""
        return self._config.name

    @property
    def host(self) -> str:
        """Where it is, for texts (STR-9)."""
        return host_of(self._config.base_url)

    def encode(self, request: ModelRequest) -> Any:
        """The body of the request in the model's protocol."""
        return self._for(request.model.name).encode(request)

    def stream(self, request: ModelRequest, cancel: CancelToken) -> AsyncIterator[StreamEvent]:
        """The reply."""
        return self._for(request.model.name).stream(request, cancel)

    async def aclose(self) -> None:
        """Release connections."""
        while self._inner:
            await self._inner.popitem()[1].aclose()

    def _for(self, model: str) -> Provider:
        kind, path = "openai", "/v1"
        if _CLAUDE.search(model):
            kind, path = "anthropic", "/anthropic"
        elif _GPT.search(model):
            kind, path = "openai-responses", "/openai/v1"
        if kind not in self._inner:
            root = self._config.base_url.rstrip("/").removesuffix("/v1").removesuffix("/openai")
            base_url = root.removesuffix("/anthropic") + path
            auth = self._config.auth or "bearer"
            config = replace(self._config, kind=kind, base_url=base_url, auth=auth)
            self._inner[kind] = create(config)
        return self._inner[kind]


def list_models(ask: ServerClient) -> Iterator[Figures]:
    """``GET /v1/models``: what the region offers."""
    return ask.chat_entries()


PROVIDER = BedrockProvider
