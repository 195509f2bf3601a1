"""The only place that names concrete classes: settings and options become a session.

Models and their providers are chosen in ``models``, its other half.

Nothing here is imported that the first request does not need (the import budget of DESIGN):
tools come as data, the chosen provider by name.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.attachments import attach
from agentcli.app.backgrounding import equip
from agentcli.app.delegation import delegate
from agentcli.app.keeping import LazyKeeper
from agentcli.app.models import SessionModels, fallbacks
from agentcli.app.opening import Opener
from agentcli.app.options import SessionOptions
from agentcli.app.queue import DurableQueue
from agentcli.app.sandboxing import make_sandbox, sandbox_banner
from agentcli.app.session import Session
from agentcli.app.surroundings import Surroundings
from agentcli.app.toolset import Wishes, make_toolbox
from agentcli.config.redaction import Redactor
from agentcli.config.settings import Settings
from agentcli.domain.messages import ImagePart
from agentcli.domain.ports import (
    Approver,
    LongWait,
    ModelInfo,
)
from agentcli.domain.session import LoadedSession, SessionInfo
from agentcli.domain.tools import Asker, Workspace
from agentcli.engine.context.system_prompt import (
    PromptParts,
    build_system_prompt,
    find_docs,
    project_root,
)
from agentcli.engine.conversation import Conversation
from agentcli.engine.gates import plan_notice
from agentcli.engine.toolkit import Toolkit
from agentcli.policy.decision import Policy
from agentcli.store.files import SessionFiles
from agentcli.store.sqlite import SqliteStore

if TYPE_CHECKING:
    pass


async def open_session(
    settings: Settings,
    options: SessionOptions,
    approver: Approver,
    asker: Asker | None = None,
    long_wait: LongWait | None = None,
) -> Session:
    """A session ready for its next turn: a new one, or an earlier one taken up.

    ``long_wait`` asks a person whether to wait for a rate limit that lasts; without it such a
    limit ends the turn with an error that says when to try again.

    Raises ``ConfigError``, ``UsageError`` or a ``StoreError``.
    """
    _hide_keys(settings)
    files = session_files(settings)
    redactor = Redactor()
    settings.watch_secrets(redactor.add)
    opener = Opener(settings, options, files, redactor)
    store, loaded, notices = await opener.open()
    try:
        return await _assemble(
            settings, options, (store, loaded, notices), (approver, asker, long_wait), files
        )
    except BaseException:
        for close in (*_closers(options, store, loaded.info.id), store.aclose):
            await close()
        if options.fork and store.created:  # a copy that nobody will find a use for
            await files.delete(loaded.info.id)
        raise


async def _assemble(
    settings: Settings,
    options: SessionOptions,
    opened: tuple[SqliteStore, LoadedSession, tuple[str, ...]],
    people: tuple[Approver, Asker | None, LongWait | None],
    files: SessionFiles,
) -> Session:
    store, loaded, notices = opened
    resumed = bool(loaded.messages)
    models = SessionModels(settings)
    provider, model, model_notices = await models.first(
        options.model, loaded.info.model if resumed else ""
    )
    fallback_ids, fallback_notices = fallbacks(settings, model)
    if loaded.info.model != model.id:
        await store.set_model(model.id)
    mode = options.mode or settings.permission_mode
    toolbox, answer_check = make_toolbox(
        Wishes(
            mode,
            options.tools,
            settings.tools_off,
            options.interactive,
            options.result,
            options.own_tools,
            options.terminal,
            options.fallback,
        )
    )
    policy = policy_for(settings, options)
    workspace = Workspace(options.cwd, options.cwd, options.add_dirs)
    has_bash = any(tool.name == "bash" for tool in toolbox.definitions)
    sandbox = await make_sandbox(settings, workspace)
    kit = Toolkit(
        toolbox=toolbox,
        policy=policy,
        approver=people[0],
        workspace=workspace,
        state=store,
        outputs=store,
        ask=people[1],
        session_id=loaded.info.id,
        sandbox=sandbox,
        keeper=(keeper := LazyKeeper(store, workspace, lambda: settings.secrets)),
    )
    conversation = Conversation(
        history=loaded.history(),
        store=store,
        provider=provider,
        model=model,
        system=_system_prompt(settings, options, loaded.info.created_at),
        kit=kit,
        effort=options.effort or settings.effort,
        max_output_tokens=settings.max_output_tokens,
        answer_check=answer_check,
        max_answers_without_tools=settings.max_answers_without_tools,
        max_steps=settings.max_steps if options.max_steps is None else options.max_steps,
        max_budget_usd=options.max_budget_usd,
        turns=loaded.info.turns,
        fallbacks=fallback_ids,
        choose=models.choose,
        long_wait=people[2],
        gates=options.gates,
        transforms=options.transforms,
        repair_image=_repair_image,
        attach=partial(attach, workspace=workspace),
    )
    background = equip(kit, store, settings.paths.seal_file, interactive=options.interactive)
    closers = partial(_closers, replace(options, no_session=False))
    kept = None if options.no_session else files
    agent_notices = delegate(settings, conversation, toolbox, store, kept, closers)
    around = Surroundings(
        choose=models.choose,
        after_turn=_catalogue_update(files, store, options),
        on_close=(
            *((background.aclose,) if background is not None else ()),
            *_closers(options, store, loaded.info.id),
            sandbox.aclose,
        ),
        queue=await DurableQueue.load(store, turns_of_their_own=options.one_turn_each),
        resumed=loaded if resumed else None,
        notices=(
            *notices,
            *model_notices,
            *fallback_notices,
            *agent_notices,
            *_budget_notice(options.max_budget_usd, model),
            *await sandbox_banner(sandbox, wanted=options.interactive and has_bash),
            *(await plan_notice(store) if resumed and options.interactive else ()),
        ),
    )
    session = Session(replace(loaded.info, model=model.id), store, conversation, around)
    models.listener = session.learn_model
    keeper.tell = session.tell
    if background is not None:
        background.attach(*session.background_outlets())
    if settings.hooks or settings.plugins:
        from agentcli.app.extensions import Opened, extend

        opened_as = Opened(store.path, toolbox, options.tools is None, options.began)
        extend(settings, session, conversation, around, opened_as)
    if background is not None and resumed:
        around.notices = (
            *around.notices,
            *await background.recover(fires_missed=options.interactive),
        )
    return session


def policy_for(settings: Settings, options: SessionOptions) -> Policy:
    """The policy that a session begins with; raises ``UsageError`` for what is no rule."""
    policy = Policy(options.mode or settings.permission_mode)
    for kind in ("allow", "deny", "ask"):
        source = settings.sources.get(f"permissions.{kind}", "")
        policy.add_rules(kind, getattr(settings, kind), source)
    policy.add_rules("allow", options.allow, "--allow-tool")
    policy.add_rules("deny", options.deny, "--deny-tool")
    policy.yolo_twice = options.yolo_twice
    policy.own_directories = settings.paths.own_places(options.cwd)
    return policy


# --- the rest of the room ------------------------------------------------------------------


def session_files(settings: Settings) -> SessionFiles:
    """The directory of sessions."""
    return SessionFiles(settings.paths.sessions_dir, settings.paths.catalogue_file)


async def list_sessions(settings: Settings) -> Sequence[SessionInfo]:
    """A person's sessions, the most recently used first; not those of sub-agents."""
    return [info for info in await session_files(settings).list() if not info.agent]


def project_files(root: Path, stopped: Callable[[], bool]) -> Iterator[str]:
    """What is below a directory without git, for completing names; see ``walk_project``."""
    from agentcli.tools.search.worker import walk_project

    return walk_project(str(root), stopped)


def _system_prompt(settings: Settings, options: SessionOptions, created_at: float) -> str:
    cwd = options.cwd
    return build_system_prompt(
        PromptParts(
            cwd=cwd,
            date=time.strftime("%Y-%m-%d", time.localtime(created_at)),
            is_git=(project_root(cwd) / ".git").exists(),
            docs=find_docs(cwd, settings.paths.config_dir),
            replacement=options.system_prompt,
            appendix=options.append_system_prompt,
        )
    )


async def _repair_image(image: ImagePart) -> ImagePart | None:
    """The decoder is loaded when an image needs it."""
    from agentcli.tools.files.images import mend_image

    return await mend_image(image)


def _catalogue_update(
    files: SessionFiles, store: SqliteStore, options: SessionOptions
) -> Callable[[], Awaitable[None]]:
    async def update() -> None:
        if not options.no_session and store.created:
            await files.touch(await store.info())

    return update


def _closers(
    options: SessionOptions, store: SqliteStore, session_id: str
) -> tuple[Callable[[], Awaitable[None]], ...]:
    async def end_processes() -> None:
        processes = sys.modules.get("agentcli.process.run")
        if processes is not None:
            await processes.end_processes(session_id)

    async def forget() -> None:
        await store.aclose()
        await asyncio.to_thread(shutil.rmtree, store.path.parent, ignore_errors=True)

    return (end_processes, forget) if options.no_session else (end_processes,)


def _hide_keys(settings: Settings) -> None:
    """No command sees the keys of the user's own providers either (SEC-8)."""
    names = [config.key_env for config in settings.providers.values() if config.key_env]
    if names:
        from agentcli.process.environment import hide_variables

        hide_variables(names)


def _budget_notice(budget_usd: float | None, model: ModelInfo) -> tuple[str, ...]:
    """A limit that cannot be kept is not kept in silence (COST-2)."""
    if budget_usd is None or None not in (model.input_price, model.output_price):
        return ()
    what = f"warning: the price of {model.id} is unknown, so --max-budget-usd cannot be kept"
    key = f'models."{model.id}".input_price'
    return (f"{what} - set it: agent config set '{key}' USD, and output_price",)
