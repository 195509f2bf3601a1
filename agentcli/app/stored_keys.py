"""A provider whose key is still in the keyring: fetched for its first request, off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError
from agentcli.domain.ports import ModelRequest, Provider, ProviderConfig, StoredKey
from agentcli.domain.stream import StreamEvent

Create = Callable[[ProviderConfig], Provider]


def create_with_key(config: ProviderConfig, create: Create) -> Provider:
    """The provider; where its key has to be fetched first, that is done when it is needed."""
    if config.stored is None or config.api_key:
        return create(config)
    return _Locked(config, config.stored, create)


class _Locked:
    """Until its first request it has no key; from then on it is the provider itself."""

    def __init__(self, config: ProviderConfig, stored: StoredKey, create: Create) -> None:
        self._config = config
        self._stored = stored
        self._create = create
        self._inner = create(config)
        self._is_open = False

    @property
    def name(self) -> str:
        """The part before the slash in ``provider/model``."""
        return self._inner.name

    @property
    def host(self) -> str:
        """Where it is, for texts (STR-9)."""
        return str(getattr(self._inner, "host", ""))

    def stream(self, request: ModelRequest, cancel: CancelToken) -> AsyncIterator[StreamEvent]:
        """The reply of the provider itself."""
        return (
            self._inner.stream(request, cancel) if self._is_open else self._first(request, cancel)
        )

    def encode(self, request: ModelRequest) -> Any:
        """The body of the request; what a refusal's places are looked up in (HIS-8)."""
        return getattr(self._inner, "encode")(request)  # noqa: B009 - not of every provider

    async def aclose(self) -> None:
        """Release connections."""
        await self._inner.aclose()

    async def _first(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        try:
            key = await asyncio.to_thread(self._stored.get)
        except asyncio.CancelledError:
            self._stored.stop()
            raise
        except ConfigError as error:
            raise ProviderError(
                error.message,
                error.advice,
                kind=ErrorKind.AUTH,
                provider=self.name,
                host=self.host,
            ) from error
        if not self._is_open:
            keyless, self._inner = self._inner, self._create(replace(self._config, api_key=key))
            self._is_open = True
            await keyless.aclose()
        async with aclosing(self._inner.stream(request, cancel)) as events:  # type: ignore[type-var]  # providers' are generators
            async for event in events:
                yield event
