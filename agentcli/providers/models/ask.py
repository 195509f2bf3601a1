"""Questions to servers beside the conversation: which models there are, how large a window is.

Law: every question is bounded in time and size, all are asked at once, and nothing waits for a
straggler, not even the exit of the program; a redirect is never followed, so a key goes to the
host it was meant for and to no other (SEC-1). A failure is an ``AgentError`` without a secret.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from agentcli.domain.errors import AgentError, ConfigError, ErrorKind, ProviderError
from agentcli.domain.ports import ProviderConfig
from agentcli.providers._errors import Endpoint, status_error, unusable_key
from agentcli.providers._registry import BUILT_IN
from agentcli.wire.http import load_httpx, transport_error

if TYPE_CHECKING:
    import httpx

MAX_BYTES = 8 * 1024 * 1024
_SUCCESS = range(200, 300)
log = logging.getLogger(__name__)

T = TypeVar("T")


class Answers(NamedTuple, Generic[T]):
    """What came back, in the order of the questions; each is in exactly one of the two."""

    found: dict[str, T]
    failed: dict[str, AgentError]


def ask_all(questions: Mapping[str, Callable[[], T]], within_s: float) -> Answers[T]:
    """Ask all at once and wait ``within_s`` seconds in all. Blocks; Ctrl-C interrupts it.

    Each question has a thread that the program's exit does not wait for: a name server that says
    nothing cannot be interrupted in any other way.
    """
    answers: SimpleQueue[tuple[str, T | AgentError]] = SimpleQueue()

    def ask(name: str, question: Callable[[], T]) -> None:
        try:
            answers.put((name, question()))
        except AgentError as error:
            answers.put((name, error))
        except Exception as error:
            log.warning("%s gave an answer that cannot be read", name, exc_info=True)
            answers.put((name, AgentError(f"{name} gave an unreadable answer: {error}")))

    for name, question in questions.items():
        threading.Thread(target=ask, args=(name, question), name=f"ask-{name}", daemon=True).start()
    came: dict[str, T | AgentError] = {}
    deadline = time.monotonic() + within_s
    while len(came) < len(questions):
        try:
            name, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        came[name] = answer
    result = Answers[T]({}, {})
    for name in questions:
        late = AgentError(f"{name} did not answer within {within_s:g} s", "try again")
        answered = came.get(name, late)
        if isinstance(answered, AgentError):
            result.failed[name] = answered
        else:
            result.found[name] = answered
    return result


class Asker:
    """Asks one provider's server. Blocks: for threads, not for an event loop.

    ``is_direct`` goes through no proxy, as is right for a server of this machine.
    """

    def __init__(
        self, config: ProviderConfig, timeout_s: float, *, is_direct: bool = False
    ) -> None:
        self.config = config
        self._timeout_s = timeout_s
        self._is_direct = is_direct

    def get(self, url: str, headers: Mapping[str, str] | None = None, *, body: Any = None) -> Any:
        """The JSON value at ``url``; with ``body`` it is a POST. Raises ``AgentError``.

        Without ``headers`` the key goes along as a bearer token.
        """
        endpoint = self._endpoint(url)
        key = self.config.api_key
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise unusable_key(endpoint)
        response, content = self._exchange(endpoint, self._headers(headers), body)
        if response.status_code not in _SUCCESS:
            raise status_error(endpoint, response.status_code, response.headers, content)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise _unreadable(endpoint, "answered with something that is not JSON") from None

    def _exchange(
        self, endpoint: Endpoint, headers: dict[str, str], body: Any
    ) -> tuple[httpx.Response, bytes]:
        load_httpx()
        import httpx

        method = "GET" if body is None else "POST"
        try:
            with (
                self._client(endpoint.url) as client,
                client.stream(method, endpoint.url, headers=headers, json=body) as response,
            ):
                return response, _read(endpoint, response)
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise ConfigError(f"{endpoint.label} has no usable address", "check it") from None
        except httpx.TimeoutException:
            raise _unreadable(endpoint, "did not answer in time") from None
        except httpx.TransportError as error:
            raise transport_error(endpoint, error, streaming=False) from error
        except httpx.DecodingError:
            raise _unreadable(endpoint, "sent an answer that cannot be decoded") from None
        except (OSError, ImportError, ValueError) as error:  # certificates, SOCKS, a bad proxy
            raise ConfigError(
                f"{endpoint.label} cannot be asked: {type(error).__name__}",
                "check SSL_CERT_FILE and the proxy variables",
            ) from error

    def _client(self, url: str) -> httpx.Client:
        import httpx

        # as in ``_http``: a plain address needs no certificate authorities
        verify = True if url[:6].lower() == "https:" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.Client(
            verify=verify,
            timeout=self._timeout_s,
            trust_env=not self._is_direct,
            follow_redirects=False,
        )

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        from agentcli import __version__

        given = dict(headers or {})
        if headers is None and self.config.api_key:
            given["authorization"] = f"Bearer {self.config.api_key}"
        return {"accept": "application/json", "user-agent": f"agentcli/{__version__}", **given}

    def _endpoint(self, url: str) -> Endpoint:
        config = self.config
        row = BUILT_IN.get(config.name)
        return Endpoint(
            config.name,
            url,
            config.key_env,
            row.base_env if row is not None else "",
            secrets=(config.api_key,) if config.api_key else (),
        )


def _read(endpoint: Endpoint, response: httpx.Response) -> bytes:
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > MAX_BYTES:
            raise _unreadable(endpoint, "sent more than 8 MB")
    return bytes(content)


def _unreadable(endpoint: Endpoint, what: str) -> ProviderError:
    return ProviderError(
        f"{endpoint.label} {what}",
        endpoint.address_advice,
        kind=ErrorKind.NETWORK,
        provider=endpoint.provider,
        host=endpoint.host,
    )
