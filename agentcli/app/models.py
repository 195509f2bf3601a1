"""Which model answers: the half of ``compose`` that knows providers.

Laws: a name becomes a provider here and nowhere else; the user's own figures of a model win
over what a server says, and that wins over a guess; nothing here makes a start wait longer than
a moment, and only servers of the user's own are asked anything. A key that is in the keyring is
fetched for the first request, or for the first text that is stored and may hold it, off the loop.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.config.settings import Settings
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import (
    AgentError,
    ConfigError,
    ErrorKind,
    ProviderError,
    TurnCancelled,
    UsageError,
)
from agentcli.domain.ports import (
    ModelInfo,
    ModelRequest,
    Provider,
    ProviderConfig,
    StoredKey,
    ToolProtocol,
)
from agentcli.domain.secrecy import is_private_server, may_hold_secret
from agentcli.domain.stream import StreamEnd, StreamEvent, Tape
from agentcli.domain.values import frozen
from agentcli.providers import _registry
from agentcli.providers.models import table as _models

if TYPE_CHECKING:
    from agentcli.extensions.agents import AgentDefinition
    from agentcli.providers.models.local import KnownWindows, LocalModel, Window


Listener = Callable[[ModelInfo, str], None]
"""Told what a server says of its model by now, and a warning for the user or nothing."""


LOCAL_FIRST_TOKEN_S = 600.0
_UNAUTHORIZED = 401


@frozen
class Chosen:
    """Who answers, and lines for the user about it."""

    provider: Provider
    model: ModelInfo
    notices: tuple[str, ...] = ()


# --- by name -------------------------------------------------------------------------------


def _placed(settings: Settings, name: str) -> tuple[ProviderConfig, ModelInfo]:
    provider_name, model_name = _models.resolve(name, settings.providers)
    config = _registry.provider_config(provider_name, settings.env, settings.providers)
    return config, model_info(settings, provider_name, model_name)


def model_info(settings: Settings, provider: str, name: str) -> ModelInfo:
    """What is known of a model; the user's own figures win, also over a guess of the limit."""
    newer = _models.newer_rows(settings.paths.models_file)
    info = _models.model_info(provider, name, newer)
    wanted = settings.max_output_tokens or 0
    if wanted > info.max_output_tokens and not _models.is_in_table(provider, name, newer):
        info = replace(info, max_output_tokens=wanted)
    if info.supports_images and _models.is_in_table(provider, name, newer):
        info = replace(info, supports_documents=_takes_documents(settings, provider))
    overrides: Mapping[str, Any] = {
        **_ways(settings, provider),
        **settings.models.get(info.id, {}),
    }
    if not overrides:
        return info
    if any(key.endswith("_price") for key in overrides):
        overrides = {**overrides, "long_prompts": ()}  # theirs are the prices of all prompts
    if "tool_protocol" in overrides:
        overrides = {**overrides, "tool_protocol": ToolProtocol(overrides["tool_protocol"])}
    return replace(info, **overrides)


def models_by_name(settings: Settings) -> Callable[[str], ModelInfo | None]:
    """What is known of a model of the past, by ``provider/model``."""

    def find(name: str) -> ModelInfo | None:
        provider, slash, model = name.partition("/")
        return model_info(settings, provider, model) if slash else None

    return find


def _takes_documents(settings: Settings, provider: str) -> bool:
    """Whether the protocol has a place for PDFs (TOOL-16)."""
    try:
        config = _registry.provider_config(provider, settings.env, settings.providers)
    except ConfigError:
        return False
    return config.kind in {"anthropic", "openai-responses", "gemini"}


def _ways(settings: Settings, provider: str) -> Mapping[str, Any]:
    """How the provider's models are waited for and call tools, if not as usual (STR-3, STR-10).

    A server of one's own may have to load the model first, and reads a long prompt slowly; the
    first word of a whole reply is its last.
    """
    try:
        config = _registry.provider_config(provider, settings.env, settings.providers)
    except ConfigError:
        return {}
    is_own = is_private_server(config.base_url)
    ways: dict[str, Any] = {"tool_protocol": "auto"} if is_own else {}
    if is_own or not config.stream:
        ways["first_token_timeout_s"] = LOCAL_FIRST_TOKEN_S
    if config.tool_protocol:
        ways["tool_protocol"] = config.tool_protocol
    return {**ways, **config.waits}


_ALIASES = ("haiku", "sonnet", "opus", "fable")
_NUMBER = r"\d+"


def model_named(name: str, present: ModelInfo) -> tuple[str, str]:
    """The model that a file of the user's means by ``name``, and a line where that is not clear.

    Empty: the one that answers, ``present``. ``haiku`` and its kind are the newest of the name that
    the provider of ``present`` has, as https://code.claude.com/docs/en/model-config has them.
    """
    wanted = name.strip().lower().partition("[")[0]
    if wanted in {"", "inherit", "default"}:
        return "", ""
    if wanted not in _ALIASES:
        return name.strip(), ""
    found = [
        info
        for info in _models.known_models()
        if info.provider == present.provider and wanted in info.name.split("-")
    ]
    if not found:
        problem = f"{present.provider} has no model that is called {wanted}: {present.id} answers"
        return "", problem
    newest = max(found, key=lambda info: [int(each) for each in re.findall(_NUMBER, info.name)])
    return newest.id, ""


def chosen_by_call(
    name: str,
    choose: Callable[[str], tuple[Provider, ModelInfo]],
    present: ModelInfo,
    others: Sequence[str],
) -> tuple[Provider, ModelInfo]:
    """What a call of the model means by ``name``. Raises ``ConfigError``.

    Of no other provider than those that the session or the user's settings, ``others``, send to:
    there may be keys for more (SEC-12).
    """
    wanted, problem = model_named(name, present)
    if problem:
        raise ConfigError(problem, "leave the model out")
    provider, model = choose(wanted or present.id)
    if not any(each.startswith(f"{model.provider}/") for each in (present.id, *others)):
        problem = f"{model.provider} is not the provider that the user has chosen"
        raise ConfigError(problem, f"name a model of {present.provider}, or none")
    return provider, model


def default_model(settings: Settings) -> str:
    """The configured model, else a provider's with a key, else a local server's, else ``offline``.

    CLI-10. May wait for a server of this machine: not for an event loop.
    """
    name = _first_choice(settings)
    found = None if name else _local_model(settings)
    return name or (found.model if found else _registry.OFFLINE_MODEL)


def fallbacks(settings: Settings, present: ModelInfo) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The models to try when ``present`` stays overloaded, and warnings about them.

    Raises ``ConfigError`` for a name that means nothing: better now than when it is needed.
    """
    source = settings.sources.get("fallback_models", "")
    where = "--fallback-model" if source == "command line" else "fallback_models"
    ids: dict[str, None] = {}
    warnings = []
    for name in settings.fallback_models:
        try:
            config, model = _placed(settings, name)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error.message}", error.advice) from error
        if model.id == present.id or model.id in ids:
            continue
        ids[model.id] = None
        if config.needs_key and not config.api_key and config.stored is None:
            missing = f"{config.key_env} is not set" if config.key_env else "it has no key"
            warnings.append(f"warning: the fallback model {model.id} cannot be used: {missing}")
    return tuple(ids), tuple(warnings)


def _first_choice(settings: Settings) -> str:
    """The configured model, else the first provider's with a key; empty where there is neither."""
    if settings.model:
        return settings.model
    name = _registry.default_model(settings.env, settings.providers)
    return "" if name == _registry.OFFLINE_MODEL else name


def _local_model(settings: Settings) -> LocalModel | None:
    from agentcli.providers.models.local import find_local_model

    return find_local_model(settings.env, settings.providers)


# --- for a session -------------------------------------------------------------------------


@frozen
class SessionModels:
    """The models of one session. ``learned`` hears when a server's window becomes known.

    ``given`` is a provider of the embedding program's, ``info`` what it says of its model.
    ``tape`` keeps the replies; one that serves kept ones asks nobody and needs no key (TT-4).
    """

    settings: Settings
    learned: Listener
    given: Provider | None = None
    info: ModelInfo | None = None
    tape: Tape | None = None

    def choose(self, name: str) -> tuple[Provider, ModelInfo]:
        """The provider and the model of a name (``ConfigError``); own servers tell the window."""
        if self.given is not None and name.startswith(f"{self.given.name}/"):
            return self._given(self.given, name)
        config, model = _placed(self.settings, name)
        if self.tape is not None:
            config = replace(config, tape=self.tape)
            if self.tape.is_offline:
                kind, base_url = self.tape.place(config.name) or (config.kind, config.base_url)
                if kind not in _registry.module_names():
                    what = f"the record speaks {kind!r}, which is no protocol that is known here"
                    raise ConfigError(what, "give a file that agent run --record has written")
                config = replace(config, kind=kind, base_url=base_url or config.base_url)
                return _registry.create(replace(config, stored=None, needs_key=False)), model
        is_asked = self._is_to_be_asked(config, model)
        if config.stored is None and not is_asked:
            return _registry.create(config), model
        learned = self.learned if is_asked else None
        return _Prepared(config, learned, self.settings.paths.windows_file), model

    async def first(
        self, wanted: str | None, earlier: str, agent: AgentDefinition | None = None
    ) -> Chosen:
        """The model to start with; a resumed session falls back when its own cannot be used.

        ``earlier`` is the resumed session's, ``agent`` who the session is, if that is one of the
        user's: it may ask for a model where nobody else does. The offline assistant is nobody's
        choice: it gives way to a real model as soon as there is one.
        """
        chosen = await self._first(wanted, earlier)
        if agent is not None and wanted is None:
            name, problem = model_named(agent.model, chosen.model)
            said = (f"the agent {agent.name}: {problem}",) if problem else chosen.notices
            chosen = replace(chosen, notices=said) if not name else await self._first(name, "")
        provider, notices = chosen.provider, chosen.notices
        if not isinstance(provider, _Prepared) or provider.is_settled:
            return chosen
        model, warning = await provider.measured(chosen.model)
        return Chosen(provider, model, (*notices, warning) if warning else notices)

    def _given(self, provider: Provider, name: str) -> tuple[Provider, ModelInfo]:
        """The program's own provider: it stays the program's to close."""
        model = name.partition("/")[2] or "default"
        info = self.info or model_info(self.settings, provider.name, model)
        return _NotClosed(provider), info

    async def _first(self, wanted: str | None, earlier: str) -> Chosen:
        if self.given is not None and (wanted is None or "/" not in wanted):
            return Chosen(*self._given(self.given, f"{self.given.name}/{wanted or ''}"))
        if wanted is None and self.tape is not None and self.tape.model:
            wanted = self.tape.model
        if wanted is not None:
            return Chosen(*self.choose(wanted))
        if earlier not in {"", _registry.OFFLINE_MODEL}:
            try:
                return Chosen(*self.choose(earlier))
            except ConfigError as error:
                other = await self._default()
                notice = f"{error.message}: {other.model.id} answers instead"
                return replace(other, notices=(notice,))
        return await self._default()

    async def _default(self) -> Chosen:
        if name := _first_choice(self.settings):
            try:
                return Chosen(*self.choose(name))
            except ConfigError as error:
                source = self.settings.sources.get("model", "")
                if source in {"", "command line"}:
                    raise
                raise ConfigError(f"{error.message} ({source})", error.advice) from error
        found = await asyncio.to_thread(_local_model, self.settings)
        if found is None:
            return Chosen(*self.choose(_registry.OFFLINE_MODEL), (_OFFLINE_NOTICE,))
        notice = f"No key is set: {found.model} at {found.host} answers."
        return Chosen(*self.choose(found.model), (notice,))

    def _is_to_be_asked(self, config: ProviderConfig, model: ModelInfo) -> bool:
        row = _registry.BUILT_IN.get(config.name)
        is_local = row is not None and row.is_local and bool(config.base_url)
        if not (is_local or (config.kind == "openai" and config.base_url.startswith("http:"))):
            return False  # without importing anything
        from agentcli.providers.models.local import asks_about

        is_set = "context_tokens" in self.settings.models.get(model.id, {})
        return not is_set and asks_about(config, model.name)


async def know_key(provider: Provider, text: str, token: CancelToken) -> None:
    """Fetch the key of ``provider`` before ``text`` is stored, where that may hold it (SEC-9).

    Only once: a key that cannot be had then stays unknown until the first request.
    """
    if not isinstance(provider, _Prepared) or not provider.is_key_unknown:
        return
    if may_hold_secret(text):
        from agentcli.engine.race import Reaper, race

        with suppress(ProviderError, TurnCancelled):
            await race(provider.know_key(), token, Reaper())


class _NotClosed:
    """A provider that belongs to somebody else."""

    def __init__(self, provider: Provider) -> None:
        members = ("name", "host", "encode", "stream")
        if lacking := [each for each in members if not hasattr(provider, each)]:
            what = f"the provider {type(provider).__name__} has no {', no '.join(lacking)}"
            raise UsageError(what, "see: agent help library, Seams")
        self.name, self.host = provider.name, provider.host
        self.encode = provider.encode
        self._provider = provider

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """Its reply; what it raises that is no ``ProviderError`` is one."""
        try:
            events = self._provider.stream(request, cancel)
            async with AsyncExitStack() as stack:
                if hasattr(events, "aclose"):  # generators have it
                    stack.push_async_callback(events.aclose)
                async for event in events:
                    yield event
        except AgentError:
            raise
        except (Exception, SystemExit) as error:
            raise ProviderError(
                f"the provider {self.name} failed: {type(error).__name__}: {error}",
                "correct the provider that the program supplies",
                kind=ErrorKind.OTHER,
                provider=self.name,
            ) from error

    async def aclose(self) -> None:
        """Its owner closes it."""


class _Prepared:
    """A provider of which something is found out on the way: its key, its model's real window.

    A key in the keyring, or one that a command prints, is fetched for the first request; one that
    the server refuses is fetched once more where it may have changed (EXT-7). The window of a
    model on the user's own server (CTX-3) is asked for before the first request, and once more
    after the first reply when it was not certain: a model that was not loaded has no window yet.
    The text of the reply is out by then. ``is_settled``: there is no window to be asked for.
    What is certain is kept in the file ``known`` for a day, unless the server refuses so much.
    """

    def __init__(self, config: ProviderConfig, learned: Listener | None, known: Path) -> None:
        self._config = config
        self._known = known
        self._is_remembered = False
        self._inner = _registry.create(config)
        self._key = None if config.api_key else config.stored
        self._used = config.api_key
        self._learned = learned
        self._warned = ""
        self._asking = asyncio.Lock()
        self._was_asked = False
        self.is_settled = learned is None

    @property
    def name(self) -> str:
        """The part before the slash in ``provider/model``."""
        return self._inner.name

    @property
    def host(self) -> str:
        """Where it is, for texts (STR-9)."""
        return self._inner.host

    def encode(self, request: ModelRequest) -> Any:
        """The body of the request; what a refusal's places are looked up in (HIS-8)."""
        return self._inner.encode(request)

    def stream(self, request: ModelRequest, cancel: CancelToken) -> AsyncIterator[StreamEvent]:
        """The reply of the provider itself."""
        if self._config.stored is None and self.is_settled and not self._is_remembered:
            return self._inner.stream(request, cancel)
        return self._watched(request, cancel)

    async def aclose(self) -> None:
        """Release connections."""
        await self._inner.aclose()

    async def measured(self, model: ModelInfo, *, is_loaded: bool = False) -> tuple[ModelInfo, str]:
        """``model`` with its real window where the server tells it, and a new warning or none."""
        from agentcli.providers.models.local import small_window_warning, with_window

        window = await asyncio.to_thread(self._window, model.name, is_loaded=is_loaded)
        self.is_settled = is_loaded or bool(window and window.is_certain)
        if window is None:
            return model, ""
        known = with_window(model, window)
        warning = small_window_warning(known, window)
        is_new = warning != self._warned
        self._warned = warning
        return known, warning if is_new else ""

    def _window(self, model: str, *, is_loaded: bool) -> Window | None:
        """What is known of it, else what the server says. Blocks."""
        from agentcli.providers.models.local import find_window

        known = None if is_loaded else self._remembered().get(self._config, model)
        self._is_remembered = known is not None
        if known is not None:
            return known
        found = find_window(self._config, model, is_loaded=is_loaded)
        self._remember(model, found)
        return found

    def _remembered(self) -> KnownWindows:
        from agentcli.providers.models.local import MAX_REMEMBERED_CHARS, KnownWindows

        text = b""
        with suppress(OSError), self._known.open("rb") as file:
            text = file.read(MAX_REMEMBERED_CHARS + 1)
        return KnownWindows(text.decode(errors="replace"), time.time())

    def _remember(self, model: str, window: Window | None) -> None:
        from agentcli.config.paths import write

        known = self._remembered()
        if known.put(self._config, model, window):
            with suppress(AgentError):  # it is asked for again next time
                write(self._known, known.text)

    async def _watched(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        model = request.model
        async with aclosing(self._with_key(request, cancel)) as events:
            async for event in events:
                if isinstance(event, StreamEnd) and not self.is_settled and self._learned:
                    known, warning = await self.measured(model, is_loaded=True)
                    if known != model or warning:
                        self._learned(known, warning)
                yield event

    async def _with_key(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The reply; a key that the server does not know is asked for again, once."""
        renewed = False
        while True:
            if self._key is not None:
                await self._fetch(self._key)
            try:
                async with aclosing(self._inner.stream(request, cancel)) as events:  # type: ignore[type-var]  # providers' are generators
                    async for event in events:
                        yield event
            except ProviderError as error:
                if self._is_remembered and error.kind is ErrorKind.CONTEXT_OVERFLOW:
                    await asyncio.to_thread(self._remember, request.model.name, None)
                stored, is_unknown = self._config.stored, error.status == _UNAUTHORIZED
                if renewed or not is_unknown or stored is None or not stored.renew(self._used):
                    raise
                renewed, self._key = True, stored
            else:
                return

    @property
    def is_key_unknown(self) -> bool:
        """Whether it has a key that is yet to be fetched, and ``know_key`` was not in vain."""
        return self._key is not None and not self._key.at_hand and not self._was_asked

    async def know_key(self) -> None:
        """Fetch the key, if that was not tried before. Raises ``ProviderError``."""
        async with self._asking:
            if self._key is not None and self.is_key_unknown:
                try:
                    await self._fetch(self._key)
                finally:
                    self._was_asked = True

    async def _fetch(self, stored: StoredKey) -> None:
        """From now on it is the provider with its key."""
        try:
            key = await asyncio.to_thread(stored.get)
        except asyncio.CancelledError:
            stored.stop()
            raise
        except ConfigError as error:
            raise ProviderError(
                error.message,
                error.advice,
                kind=ErrorKind.AUTH,
                provider=self.name,
                host=self.host,
            ) from error
        if self._key is not None:
            self._key, self._used = None, key
            keyless = self._inner
            self._inner = _registry.create(replace(self._config, api_key=key))
            await keyless.aclose()


_OFFLINE_NOTICE = (
    "No model yet: answers come from a small offline demo. For a real one:"
    " `agent auth login` (in the chat: /login), or start Ollama."
)


# --- which models can be used --------------------------------------------------------------------


def is_ready(settings: Settings, provider: str) -> bool:
    """Whether the provider can be used now: its key is there, or it needs none."""
    try:
        config = _registry.provider_config(provider, settings.env, settings.providers)
    except ConfigError:
        return False
    return not config.needs_key or _registry.has_key(provider, settings.env, settings.providers)


def listed_models(settings: Settings) -> tuple[ModelInfo, ...]:
    """The models of the tables; of resellers only where they can be used."""
    known = {info.provider for info in _models.known_models()}
    newer = _models.newer_rows(settings.paths.models_file)
    wanted = {
        name: rows for name, rows in newer.items() if name in known or is_ready(settings, name)
    }
    return _models.known_models(wanted)


def providers_with_keys(settings: Settings) -> Mapping[str, bool]:
    """The providers that a key can be stored for, and whether they have one."""
    env, custom = settings.env, settings.providers
    names = _registry.login_names(custom)
    return {name: _registry.has_key(name, env, custom) for name in names}


def lacks_key(settings: Settings, name: str) -> str:
    """The provider of the model ``name`` if its key is missing; else, or unknown: empty."""
    try:
        provider, _ = _models.resolve(name, settings.providers)
    except ConfigError:
        return ""
    return "" if is_ready(settings, provider) else provider
