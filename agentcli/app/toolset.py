"""Which tools a session has; a part of ``compose`` (TOOL-5, LOOP-3).

Law: the list depends on how the session was started and not on what happens in it: it is part
of the cached prefix of every request.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from agentcli.app.options import SessionOptions
from agentcli.config.settings import Settings
from agentcli.domain.errors import ConfigError, ProviderError, UsageError
from agentcli.domain.ports import ModelInfo, PermissionMode, ProviderConfig, ReminderTexts, cost_usd
from agentcli.domain.values import mutable
from agentcli.engine.gates import PRESENT_PLAN
from agentcli.providers._registry import provider_config, with_stored_key
from agentcli.tools.common.registry import Registry

if TYPE_CHECKING:
    from agentcli.domain.extensions.web import SearchAnswer
    from agentcli.domain.ports import SessionStore
    from agentcli.engine.finishing import AnswerCheck, ResultShape
    from agentcli.engine.limits import Spending
    from agentcli.extensions.agents import AgentDefinition


R = TypeVar("R")
TASK = "task"
SEARCH = "web_search"
_UNAUTHORIZED = 401
SEARCHING_KINDS = frozenset({"anthropic", "openai-responses", "gemini"})
_ENGINE_KEYS = (("brave", "BRAVE_API_KEY"), ("tavily", "TAVILY_API_KEY"), ("exa", "EXA_API_KEY"))
MAX_LISTED_CHARS = 4_000


def make_toolbox(
    settings: Settings,
    options: SessionOptions,
    model: ModelInfo | None = None,
    agents: Mapping[str, AgentDefinition] | None = None,
) -> tuple[Registry, Callable[[], AnswerCheck] | None]:
    """The tools, and how a turn has to end when a result was asked for (CTRL-5).

    ``present_plan`` is there where plan mode may be: in every chat, whose mode can change between
    two requests, and in a run that starts in it, unless its result has another shape. With
    ``model``, which answers, ``web_search`` is there where anything can search. ``agents`` are
    those that the user has defined. Raises ``UsageError`` for an unknown name and for one that is
    taken.
    """
    mode = options.mode or settings.permission_mode
    may_plan = options.interactive or mode is PermissionMode.PLAN
    plans = may_plan and options.result is None and not options.terminal
    only = options.tools
    if plans and only is not None:
        only = (*only, PRESENT_PLAN)
    toolbox = Registry.builtin(only, settings.tools_off)
    if not plans:
        toolbox.unregister(PRESENT_PLAN)
    if model is not None and _way(settings, model)[0] is not None:
        toolbox.offer(SEARCH)
    try:
        for tool in options.own_tools:
            toolbox.register(tool)
    except ValueError as error:
        raise UsageError(str(error), "give yours another name") from None
    if agents and TASK in toolbox.list():
        toolbox.describe(TASK, listing(agents))
    if options.result is None and not options.terminal:
        return toolbox, None
    return toolbox, _terminal_tools(toolbox, options)


def _terminal_tools(toolbox: Registry, options: SessionOptions) -> Callable[[], AnswerCheck]:
    """What has to end a turn. Raises ``UsageError`` for an unknown tool or fallback."""
    from agentcli.engine.finishing import Fallback, ParametersShape, TerminalTools

    try:
        fallback = Fallback(options.fallback)
    except ValueError:
        known = ", ".join(item.value for item in Fallback)
        raise UsageError(f"fallback cannot be {options.fallback!r}", f"one of: {known}") from None
    shapes: dict[str, ResultShape] = {}
    definitions = {definition.name: definition for definition in toolbox.definitions}
    for name in options.terminal:
        if name not in definitions:
            known = ", ".join(sorted(definitions)) or "none"
            raise UsageError(f"there is no tool {name!r} to end a turn", f"there are: {known}")
        shapes[name] = ParametersShape(
            definitions[name].parameters, takes_words=fallback is Fallback.EAGER
        )
    if options.result is not None:
        from agentcli.tools.common.final_result import FinalResult

        tool = FinalResult(options.result)
        try:
            toolbox.register(tool)
        except ValueError as error:
            raise UsageError(str(error), "give yours another name") from None
        shapes[tool.definition.name] = options.result
    reminders = options.seams.reminders or ReminderTexts()
    return TerminalTools(shapes, fallback, reminders=reminders).begin


# --- searching the web (EXT-8) ---------------------------------------------------------------


@mutable
class SessionSearch:
    """Searches for one session; see ``domain.tools.WebSearch``.

    ``model`` is the one that answers now: its provider searches where no engine is set up, and
    what that costs is added to what the turn has ``spent`` (COST-2).
    """

    settings: Settings
    model: Callable[[], ModelInfo]
    store: SessionStore
    spent: Callable[[], Spending]

    @property
    def where(self) -> str:
        """Who gets the queries."""
        from agentcli.wire.http import host_of

        config, _ = _way(self.settings, self.model())
        return f"{config.name} ({host_of(config.base_url)})" if config else "nobody"

    async def search(
        self, query: str, allowed: Sequence[str], blocked: Sequence[str]
    ) -> SearchAnswer:
        """What is found; raises ``AgentError``."""
        from agentcli.providers._web_search import Domains, search_engine, search_with

        config, is_engine = _way(self.settings, self.model())
        if config is None:
            advice = "set search.url to a SearXNG server, or search.engine and its key"
            raise ConfigError("nothing is set up that searches the web", advice)
        domains = Domains(tuple(allowed), tuple(blocked))
        if is_engine:
            return await in_daemon(partial(search_engine, config.name, config, query, domains))
        model = self.model()

        def ask() -> SearchAnswer:
            for_now = with_stored_key(config)
            try:
                return search_with(for_now, model.name, query, domains)
            except ProviderError as error:  # a key that has changed is asked for again (EXT-7)
                stored = config.stored
                if error.status != _UNAUTHORIZED or stored is None:
                    raise
                if not stored.renew(for_now.api_key):
                    raise
            renewed = replace(config, api_key=stored.get())
            return search_with(renewed, model.name, query, domains)

        found = await in_daemon(ask)
        cost = cost_usd(model, found.usage) if found.usage.is_known else 0.0
        if cost is not None and found.cost_usd is not None:
            cost += found.cost_usd
        self.spent().add_elsewhere(found.usage, cost)
        await self.store.add_usage(model.id, found.usage, cost, kind="search")
        return found


def _way(settings: Settings, model: ModelInfo) -> tuple[ProviderConfig | None, bool]:
    """What searches, and whether it is an engine: one that is named, the model's, a key's."""
    named, own_url = settings.search_engine, settings.search_url or ""
    if named == "provider" or (named == "auto" and not own_url):
        try:
            config = provider_config(model.provider, settings.env, settings.providers)
            if config.kind in SEARCHING_KINDS and (config.api_key or config.stored):
                return config, False
        except ConfigError:  # it is told when the model is asked
            pass
        if named == "provider":
            return None, False
    if named == "auto":
        named = "searxng" if own_url else "off"
        for keyed, variable in _ENGINE_KEYS:
            if named == "off" and settings.env.get(variable, "").strip():
                named = keyed
    if named == "off":
        return None, False
    from agentcli.providers._web_search import ENGINES

    engine = ENGINES[named]
    variable = settings.search_api_key_env or engine.key_env
    url, key = own_url or engine.base_url, settings.env.get(variable, "").strip()
    if not url or (engine.key_env and not key):
        return None, False
    return ProviderConfig(named, "openai", url, variable, key, needs_key=False), True


async def in_daemon(work: Callable[[], R]) -> R:
    """``work`` in a thread that no exit waits for; a cancel leaves it to its own limit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def end(result: R | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("R", result))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the work is awaited
            failure = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(end, result, failure)

    threading.Thread(target=run, name="search", daemon=True).start()
    return await done


# --- sub-agents ----------------------------------------------------------------------------


def listing(definitions: Mapping[str, AgentDefinition]) -> str:
    """The agents as the model is told of them, in the description of the tool, bounded."""
    lines = ["Agents:"]
    left = MAX_LISTED_CHARS
    for definition in definitions.values():
        line = f"- {definition.name}: {definition.description}"
        left -= len(line)
        if left < 0:
            line = f"- {definition.name}"
        lines.append(line)
    return "\n".join(lines)
