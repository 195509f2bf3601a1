"""The composition root: settings and options become a session. ``_build`` shows all of it.

Models and their providers are chosen in ``models``, its other half.

Law: nothing here is imported that the first request does not need (the import budget of DESIGN):
tools come as data, the chosen provider by name.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.background import SPAWN, RunsOfSession
from agentcli.app.boundary import (
    make_sandbox,
    policy_for,
)
from agentcli.app.extensions.found import SessionExtensions, find_extensions
from agentcli.app.listeners import EarlyImports, Listeners, code_map, telemetry
from agentcli.app.memory_start import project_memory
from agentcli.app.models import SessionModels, fallbacks
from agentcli.app.opening import Opener, session_files
from agentcli.app.options import SessionOptions
from agentcli.app.queue import DurableQueue, with_files
from agentcli.app.session import Session
from agentcli.app.toolset import TASK, SessionSearch, make_toolbox
from agentcli.app.trust import holds_credentials
from agentcli.config.redaction import Redactor
from agentcli.config.settings import Settings
from agentcli.domain.errors import HistoryViolation, UsageError
from agentcli.domain.events import QueueChanged
from agentcli.domain.files import real_text
from agentcli.domain.messages import ImagePart
from agentcli.domain.ports import (
    Approver,
    LongWait,
    ModelInfo,
    QueuedInput,
    QueueKind,
    ReminderTexts,
)
from agentcli.domain.sandbox import SandboxKind
from agentcli.domain.session import LoadedSession
from agentcli.domain.tools import Asker, Workspace
from agentcli.engine.context.system_prompt import (
    PromptParts,
    build_system_prompt,
    project_root,
)
from agentcli.engine.conversation import Conversation, Emit
from agentcli.engine.gates import plan_notice
from agentcli.engine.parts import Lazy, SessionParts
from agentcli.engine.sample import RetryPolicy
from agentcli.extensions.places import holds_instructions
from agentcli.policy.decision import Policy
from agentcli.process.sandbox import SessionSandbox
from agentcli.store.disk import runs_directory
from agentcli.store.files import SessionFiles
from agentcli.store.sqlite import SqliteStore
from agentcli.tools.common.registry import Registry

if TYPE_CHECKING:
    from agentcli.app.extensions.served import SessionServers
    from agentcli.app.keeping import EventKeeper
    from agentcli.app.subagents import ParentSession
    from agentcli.config.paths import Paths
    from agentcli.domain.extensions.hooks import HookConfig
    from agentcli.domain.extensions.instructions import ProjectDoc
    from agentcli.domain.extensions.keeping import Store
    from agentcli.domain.extensions.seams import Seams
    from agentcli.domain.history import History
    from agentcli.domain.tool_ports import EditChecks, SubAgents
    from agentcli.domain.tools import FileKeeper
    from agentcli.extensions.hooks import SessionHooks
    from agentcli.extensions.instructions import Instructions
    from agentcli.extensions.plugins import Plugins


READ_FILE = "read_file"


async def open_session(
    settings: Settings,
    options: SessionOptions,
    approver: Approver,
    asker: Asker | None = None,
    long_wait: LongWait | None = None,
) -> Session:
    """A session ready for its next turn: a new one, or an earlier one taken up.

    ``long_wait`` asks the user whether to wait for a rate limit that lasts; without it such a
    limit ends the turn with an error that says when to try again.

    Raises ``ConfigError``, ``UsageError`` or a ``StoreError``.
    """
    if settings.providers or settings.search_api_key_env:
        _hide_keys(settings)
    plugins = _plugins(settings.plugins) if settings.plugins else None
    if plugins is not None:
        options = replace(options, seams=options.seams.over(plugins.seams))
    if options.seams.store is not None:  # a file for what is no part of it, while it runs
        options = replace(options, no_session=True)
    files = session_files(settings)
    redactor = Redactor()
    settings.watch_secrets(redactor.add)
    store, loaded, _ = opened = await Opener(settings, options, files, redactor).open()
    try:
        extensions = await find_extensions(
            settings, options.cwd, options.mcp_config, is_strict=options.strict_mcp_config
        )
        if options.agent is not None:
            from agentcli.app.subagents import as_agent

            options = await as_agent(options, extensions)
        for server in extensions.servers:
            settings.know(server.secrets)
        extensions.watch = settings.know
        extras = plugins, extensions, redactor
        user = approver, asker, long_wait
        session = await _build(settings, options, files, opened, user, extras)
    except BaseException:
        for close in (*_closers(options, store, loaded.info.id), store.aclose):
            await close()
        if options.fork and store.created:  # a copy that nobody will find a use for
            await files.delete(loaded.info.id)
        raise
    session.extensions = extensions
    return session


async def _build(
    settings: Settings,
    options: SessionOptions,
    files: SessionFiles,
    opened: tuple[SqliteStore, LoadedSession, tuple[str, ...]],
    user: tuple[Approver, Asker | None, LongWait | None],
    extras: tuple[Plugins | None, SessionExtensions, Redactor],
) -> Session:
    """All that a session consists of. What is ``Lazy`` is made of the parts when it is needed."""
    (store, loaded, opening_notices), (approver, asker, long_wait) = opened, user
    plugins, extensions, redactor = extras
    info, seams, resumed = loaded.info, options.seams, store.created and bool(loaded.messages)
    EarlyImports(listeners := Listeners(info.id))

    def learned(known: ModelInfo, warning: str) -> None:
        """What a server says of its model by now: later requests go by it (CTX-3)."""
        if known.id == conversation.model.id:
            conversation.model = known
        if warning:
            listeners.notify(warning.removeprefix("warning: "))

    def keeper() -> FileKeeper:
        from agentcli.app.files.file_keeper import Keeper

        return Keeper(store.rewinds, workspace, listeners.notify, redactor.holds_known)

    def sub_agents() -> ParentSession:
        from agentcli.app.subagents import ParentSession

        closers = partial(_closers, replace(options, no_session=False))
        kept = (None if options.no_session else files, obeyed, observer)
        return ParentSession(conversation, store, extensions, closers, settings, *kept)

    def arrived(item: QueuedInput) -> None:
        """A message of a background run waits in the file (BG-5)."""
        queue.arrived(item)
        listeners.emit(QueueChanged(len(queue.waiting())))

    models = SessionModels(settings, learned, seams.provider, options.model_info, options.tape)
    chosen = await models.first(
        options.model, info.model if resumed else "", extensions.agents.get(options.agent or "")
    )
    fallback_ids, fallback_notices = (
        fallbacks(settings, chosen.model) if settings.fallback_models else ((), ())
    )
    if info.model != chosen.model.id:
        await store.set_model(chosen.model.id)
    toolbox, answer_check = make_toolbox(settings, options, chosen.model, extensions.agents)
    names = toolbox.list()
    runs = RunsOfSession(store, lambda: parts, listeners.emit, arrived, can_ask=options.interactive)
    has_runs = SPAWN in names or store.created  # what an earlier process has left is put right
    policy = policy_for(
        settings,
        options,
        (*extensions.readable, *(_made_by_runs(store) if has_runs else ())),
        obeyed := _server_files(settings, options),
    )
    workspace = Workspace(options.cwd, options.cwd, options.add_dirs, settings.paths.journals_dir)
    sandbox = await make_sandbox(
        settings,
        workspace,
        lambda: extensions.readable,
        obeyed,
        listeners.notify,
    )
    given, history, events = await _where_kept(settings, opened, seams, listeners)
    queue = await DurableQueue.load(
        store,
        turns_of_their_own=options.one_turn_each,
        sources={
            QueueKind.STEERING: seams.steering,
            QueueKind.FOLLOW_UP: seams.follow_ups,
        },
    )
    served = (
        _served(
            extensions,
            settings.paths,
            (workspace, info.id, asker, sandbox),
            toolbox,
            options.tools,
            listeners,
        )
        if extensions.servers
        else None
    )
    plugin_notices = _add_plugins(plugins, options, toolbox, listeners) if plugins else ()
    hooks = _hooks(
        settings,
        (extensions.hooks, seams.hooks),
        store,
        (workspace, sandbox, policy),
        listeners,
        lambda: conversation.model.id,
    )
    known, memory, about_memory = await project_memory(
        settings,
        store,
        (workspace, policy, toolbox),
        (listeners, lambda: conversation.quotes),
        lambda: parts.keeper() if parts.keeper else None,
        resumed=resumed,
    )
    observer, telemetry_notices = (
        telemetry(settings, listeners, redactor.redact_value) if settings.telemetry else (None, ())
    )
    later, docs, doc_notices = _instructions(settings, options.cwd)
    codes, end_map = code_map(
        settings,
        workspace.root,
        listeners,
        early=options.interactive and settings.background_map,
    )
    parts: SessionParts = SessionParts(
        store=given.messages,
        state=given.state,
        outputs=store,
        session_id=info.id,
        system=_system_prompt(
            docs,
            extensions.catalogue(chosen.model.context_tokens)
            if extensions.skills and READ_FILE in names
            else "",
            "\n\n".join(filter(None, (known, served.catalogue if served else ""))),
            options,
            info.created_at,
        ),
        documents=tuple(docs),
        later=later,
        skills=tuple(map(attrgetter("path"), extensions.skills)),
        toolbox=toolbox,
        policy=policy,
        workspace=workspace,
        sandbox=sandbox,
        approver=approver,
        ask=asker,
        long_wait=long_wait,
        queue=queue,
        attach=partial(with_files, workspace, listeners.notify),
        choose=models.choose,
        fallbacks=fallback_ids,
        small_model=settings.small_model or "",
        repair_image=_repair_image,
        max_output_tokens=settings.max_output_tokens,
        max_steps=settings.max_steps if options.max_steps is None else options.max_steps,
        max_budget_usd=options.max_budget_usd,
        pause_usd=options.pause_usd,
        # a job that is run again does not wait for a rate limit: the error says how long (SCALE-2)
        retry=RetryPolicy(max_retry_after_s=0.0) if options.begins_missing else RetryPolicy(),
        answer_check=answer_check,
        max_answers_without_tools=settings.max_answers_without_tools,
        gates=seams.gates,
        transforms=seams.transforms,
        reminders=seams.reminders or ReminderTexts(),
        wrap_up=seams.wrap_up,
        temperature=seams.temperature,
        request_fields=seams.request_fields,
        hooks=hooks,
        agents=partial(_run_agents, Lazy(sub_agents)) if TASK in names else None,
        servers=served.hub if served else None,
        keeper=Lazy(keeper) if seams.store is None else None,
        memory=memory,
        checks=_checks(settings, options, (workspace, sandbox), lambda: parts),
        codemap=codes,
        background=runs.runs if has_runs else None,
        search=SessionSearch(
            settings, lambda: conversation.model, store, lambda: conversation.spent
        ),
        editor=options.editor,
        moves=runs.moves() if has_runs and options.interactive else None,
        update_catalogue=None if options.no_session else partial(_update_catalogue, files, store),
        on_close=(
            *((lambda: hooks.aclose(conversation.end_reason),) if hooks else ()),
            runs.aclose,
            *((served.aclose,) if served is not None else ()),
            *((events.aclose,) if events is not None else ()),
            *((observer.aclose,) if observer is not None else ()),
            *end_map,
            *_closers(options, store, info.id),
            sandbox.aclose,
            *_hold_worktree(settings, options.cwd),
        ),
    )
    conversation: Conversation = Conversation(
        parts, history, chosen.provider, chosen.model, options.effort or settings.effort, info.turns
    )
    notices = [
        *opening_notices,
        *doc_notices,
        *chosen.notices,
        *fallback_notices,
        *extensions.notices,
        *(_budget_notice(chosen.model) if options.max_budget_usd is not None else ()),
        *(await plan_notice(store) if resumed and options.interactive else ()),
        *plugin_notices,
        *about_memory,
        *telemetry_notices,
        *(filter(None, [policy.take_auto_notice()]) if settings.sandbox == SandboxKind.OFF else ()),
    ]
    if hooks is not None:
        hooks.start("resume" if resumed else options.began)
    if resumed:
        notices += await runs.recover(fires_missed=options.interactive)
    loaded = replace(loaded, info=replace(info, model=chosen.model.id))
    return Session(loaded, store, queue, conversation, listeners, tuple(notices))


def _made_by_runs(store: SqliteStore) -> Sequence[Path]:
    """Where background runs leave what they make; a link may have come with the session file."""
    place = runs_directory(store.path)
    return () if place.is_symlink() else (place,)


async def _where_kept(
    settings: Settings,
    opened: tuple[SqliteStore, LoadedSession, tuple[str, ...]],
    seams: Seams,
    listeners: Listeners,
) -> tuple[Store, History, EventKeeper | None]:
    """The store, what is in it, and what keeps the events where that is wanted.

    Raises ``UsageError`` for messages that are no history.
    """
    store, loaded, _ = opened
    given: Store = seams.store or store
    if seams.store is not None:
        from agentcli.app.keeping import in_own_store

        history = await in_own_store(given, store)
    else:
        try:
            history = loaded.history()
        except HistoryViolation as error:
            what = "the prior messages are no history"
            raise UsageError(f"{what}: {error.message}", "see HIS-1") from error
    if not (settings.keep_events or seams.store is not None) or given.events is None:
        return given, history, None
    from agentcli.app.keeping import keep_events

    return given, history, keep_events(given.events, listeners)


def _checks(
    settings: Settings,
    options: SessionOptions,
    place: tuple[Workspace, SessionSandbox],
    parts: Callable[[], SessionParts],
) -> Lazy[EditChecks] | None:
    """What looks at edited files (EXT-6); a chat may have something to offer."""
    if not (options.interactive or settings.own_checks or settings.checks != "off"):
        return None

    def make() -> EditChecks:
        from agentcli.app.extensions.edit_checks import session_checks

        return session_checks(settings, options, place, parts().session_id, parts().keeper)

    return Lazy(make)


def _run_agents(
    parent: Lazy[ParentSession],
    emit: Emit,
    *,
    unattended: bool = False,
    ask: Asker | None = None,
) -> SubAgents:
    """The port of sub-agents for one turn."""
    from agentcli.app.subagents import Runner

    return Runner(parent(), emit, ask, unattended=unattended)


def _plugins(names: Sequence[str]) -> Plugins:
    """What the user's plugins bring."""
    from agentcli.extensions.plugins import load_plugins

    return load_plugins(names)


def _add_plugins(
    plugins: Plugins, options: SessionOptions, toolbox: Registry, listeners: Listeners
) -> Sequence[str]:
    """What of plugins is no seam: tools, observers, and lines for the user.

    Their tools are there where no list of tools was asked for.
    """
    plugins.say = listeners.notify
    for tool in plugins.tools if options.tools is None else ():
        try:
            toolbox.register(tool)
        except ValueError as error:
            plugins.warnings.append(f"warning: a tool of a plugin was left out: {error}")
    for observer in plugins.observers:
        listeners.add(observer)
    return plugins.warnings


def _served(
    extensions: SessionExtensions,
    paths: Paths,
    place: tuple[Workspace, str, Asker | None, SessionSandbox],
    toolbox: Registry,
    only: Sequence[str] | None,
    listeners: Listeners,
) -> SessionServers | None:
    """The MCP servers; ``only`` are the tools that were asked for."""
    from agentcli.app.extensions.served import session_servers

    return session_servers(extensions, paths, place, toolbox, only, listeners)


def _are_steady(place: tuple[Workspace, SessionSandbox, Policy], paths: Iterable[str]) -> bool:
    """Whether each name leads to its own file, and nothing inside can change that (SEC-5). Blocks.

    What put a link there may have ended since.
    """
    workspace, sandbox, policy = place
    named = [os.path.normpath(workspace.cwd / each) for each in paths]
    is_led_away = policy.contained and any(real_text(each) != each for each in named)
    return sandbox.is_quiet and not is_led_away


def _hooks(
    settings: Settings,
    others: tuple[Sequence[HookConfig], Sequence[HookConfig]],
    store: SqliteStore,
    place: tuple[Workspace, SessionSandbox, Policy],
    listeners: Listeners,
    model: Callable[[], str],
) -> SessionHooks | None:
    """The user's hooks and the project's, and ``others``: of plugins, of the caller.

    The session's end waits for theirs.
    """
    of_plugins, given = others
    if not (settings.hooks or of_plugins or given):
        return None
    from agentcli.app.trust import contained_hooks, is_changed
    from agentcli.extensions.hooks import HookFacts, SessionHooks
    from agentcli.process.program import run_program

    workspace, sandbox, policy = place
    own = contained_hooks((*settings.hooks, *of_plugins), workspace.cwd, settings.project)
    changed: Callable[[], bool] = bool
    if settings.project:
        changed = _told_once(partial(is_changed, settings, workspace.cwd), listeners.notify)
    facts = HookFacts(
        listeners.session_id,
        store.path,
        workspace.cwd,
        lambda: policy.mode,
        project_root(workspace.cwd),
        model,
        changed,
        partial(_are_steady, place),
    )
    hooks = SessionHooks((*own, *given), facts, partial(run_program, sandbox=sandbox))
    listeners.add(hooks.on_event)
    return hooks


_CHANGED = (
    "the directory's own files have changed since you trusted them: its hooks run in the sandbox,"
    " or not at all, and what they allow does not count; to decide: /trust in the chat, or start"
    ' "agent" there again'
)


def _told_once(is_changed: Callable[[], bool], notify: Callable[[str], None]) -> Callable[[], bool]:
    """``is_changed`` for a thread; the user is told the first time that it is so (SEC-17)."""
    loop, is_told = asyncio.get_running_loop(), False

    def look() -> bool:
        nonlocal is_told
        found = is_changed()
        if found and not is_told:
            is_told = True
            loop.call_soon_threadsafe(notify, _CHANGED)
        return found

    return look


def _server_files(settings: Settings, options: SessionOptions) -> tuple[Path, ...]:
    """What the user's own MCP servers run of the project: nobody changes it unasked (SEC-17)."""
    has_book = os.path.exists(settings.paths.servers_file)  # noqa: PTH110 - never raises
    if not (settings.mcp_servers or options.mcp_config or has_book):
        return ()
    from agentcli.app.extensions.servers import server_files

    places, is_strict = (options.cwd, *options.add_dirs), options.strict_mcp_config
    return server_files(settings, options.mcp_config, places, is_strict=is_strict)


# --- the rest of the room ------------------------------------------------------------------


def _instructions(
    settings: Settings, cwd: Path
) -> tuple[Lazy[Instructions], Sequence[ProjectDoc], Sequence[str]]:
    """What the user and the project have written down for agents (CTX-1, EXT-4).

    With it what holds from the start, and lines for the user.
    """
    config_dir, root = settings.paths.config_dir, project_root(cwd)
    text = settings.env.get("HOME", "")
    home = Path(text) if text.startswith("/") else None

    def find() -> Instructions:
        from agentcli.extensions.instructions import InstructionPlaces, find_instructions

        places = InstructionPlaces(cwd, root, config_dir, home, holds_credentials)
        return find_instructions(places)

    instructions, upwards = Lazy(find), (cwd, *cwd.parents)
    own = (config_dir, home, home / ".agents") if home else (config_dir,)
    if not holds_instructions((*own, *upwards[: upwards.index(root) + 1])):
        return instructions, (), ()
    found = instructions()
    return instructions, found.docs, found.notices


def _system_prompt(
    docs: Sequence[ProjectDoc],
    skills: str,
    servers: str,
    options: SessionOptions,
    created_at: float,
) -> str:
    cwd = options.cwd
    return build_system_prompt(
        PromptParts(
            cwd=cwd,
            date=time.strftime("%Y-%m-%d", time.localtime(created_at)),
            is_git=(project_root(cwd) / ".git").exists(),
            docs=docs,
            skills="\n\n".join(filter(None, (skills, servers))),
            replacement=options.system_prompt,
            appendix=options.append_system_prompt,
        )
    )


async def _repair_image(image: ImagePart) -> ImagePart | str:
    """The decoder is loaded when an image needs it."""
    from agentcli.tools.files.images import reencode_image

    return await reencode_image(image)


async def _update_catalogue(files: SessionFiles, store: SqliteStore) -> None:
    if store.created:
        await files.touch(*await store.stamped_info())


def _closers(
    options: SessionOptions, store: SqliteStore, session_id: str
) -> tuple[Callable[[], Awaitable[None]], ...]:
    async def end_processes() -> None:
        if "agentcli.process.run" in sys.modules:  # or on the way: then the import waits for it
            from agentcli.process.run import end_processes as end

            await end(session_id)

    async def forget() -> None:
        await store.aclose()
        await asyncio.to_thread(shutil.rmtree, store.path.parent, ignore_errors=True)

    return (end_processes, forget) if options.no_session else (end_processes,)


def _hide_keys(settings: Settings) -> None:
    """No command sees the keys of the user's own providers either (SEC-8)."""
    from agentcli.process.environment import hide_keys, hide_variables

    hide_variables(settings.key_variables)
    if settings.stored is not None:
        hide_keys(settings.stored.known.values())
        settings.stored.watchers.append(hide_keys)


def _budget_notice(model: ModelInfo) -> tuple[str, ...]:
    """A limit that cannot be kept is not kept in silence (COST-2)."""
    if None not in (model.input_price, model.output_price):
        return ()
    what = f"warning: the price of {model.id} is unknown, so --max-budget-usd cannot be kept"
    key = f'models."{model.id}".input_price'
    return (f"{what} - set it: agent config set '{key}' USD, and output_price",)


def _hold_worktree(settings: Settings, cwd: Path) -> tuple[Callable[[], Awaitable[None]], ...]:
    """Where ``cwd`` is in a worktree, that stays for as long as the session is open (SCALE-1)."""
    if not settings.paths.worktree_records_dir.is_dir():
        return ()
    from agentcli.app.worktrees.book import Worktrees

    give_back = Worktrees(settings.paths).hold(cwd)

    async def release() -> None:
        give_back()

    return (release,)
