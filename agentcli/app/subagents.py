"""Sub-agents of a session: each is a session of its own, with its own file and its own history.

Laws. A sub-agent never has more than its parent: the parent's policy itself (mode, rules and what
was granted), a part of its tools, its gates, transforms and hooks, what is left of its budget and
time. It starts no sub-agents; its approvals are the parent's to give. It puts questions to the
user in the background only, where they hold up nothing else (BG-9). It ends with the parent's turn
or its run, balanced, and what it has spent counts as the parent's (COST-1).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.models import chosen_by_call, model_named
from agentcli.app.queue import DurableQueue
from agentcli.app.session import Session
from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from agentcli.domain.errors import AgentError, ConfigError, UsageError
from agentcli.domain.events import (
    AgentEvent,
    ApprovalWaiting,
    AssistantRecorded,
    Failed,
    Notice,
    Outcome,
    Prompt,
    RetryWait,
    SubAgentEvent,
    ToolFinished,
    ToolRefused,
    ToolStarted,
    TurnSummary,
)
from agentcli.domain.history import History
from agentcli.domain.messages import Usage, user_text
from agentcli.domain.ports import (
    ApprovalAnswer,
    ApprovalRequest,
    Approver,
    ModelInfo,
    PermissionMode,
    Provider,
    Verdict,
)
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus
from agentcli.domain.tool_ports import SubTask, SubTaskReport
from agentcli.domain.tools import PREFIX, Tool, ToolBox, ToolDefinition, Workspace
from agentcli.domain.values import mutable
from agentcli.engine.conversation import Conversation
from agentcli.engine.limits import Spending, TurnLimits
from agentcli.engine.parts import SessionParts
from agentcli.store.files import SessionFiles, new_session_id
from agentcli.store.reads import SUBAGENT_KEY
from agentcli.store.sqlite import SqliteStore
from agentcli.tools.common.registry import known_names, standard_name

if TYPE_CHECKING:
    from agentcli.app.extensions.found import SessionExtensions
    from agentcli.app.options import SessionOptions
    from agentcli.config.settings import Settings
    from agentcli.domain.tools import Asker
    from agentcli.extensions.agents import AgentDefinition
    from agentcli.process.sandbox import SessionSandbox
    from agentcli.telemetry.observer import Observer

# --- what a sub-agent gets of its parent's --------------------------------------------------------


ASK = "ask_user"
EXPLORE = "explore"
MCP_CALL = "mcp_call"
# what belongs to the conversation with the user, and what would begin more of the same kind
WITHHELD = frozenset(
    {
        "task",
        ASK,
        "present_plan",
        "final_result",
        "spawn_background",
        "task_output",
        "task_cancel",
        "list_tasks",
        "project_memory",
    }
)


class Narrowed:
    """A part of a tool box: what ``only`` names by tool, group or pattern; nothing ``withheld``.

    Both are names of tools, groups or patterns. ``standard_name`` knows what other programs call a
    tool. A tool that is not in the box cannot be had by naming it.
    """

    def __init__(
        self,
        box: ToolBox,
        only: Sequence[str] | None,
        standard_name: Callable[[str], str],
        withheld: AbstractSet[str] = WITHHELD,
    ) -> None:
        self._box = box
        names = None if only is None else _all_names(only, standard_name)
        if names is not None and any(name.startswith(PREFIX) for name in names):
            from agentcli.app.extensions.served import WAYS

            names.update(WAYS)
        self._wanted, self._taken = names, _all_names(tuple(withheld), standard_name)
        self._definitions = tuple(filter(self._has, box.definitions))
        self._names = frozenset(each.name for each in self._definitions)

    def _has(self, tool: ToolDefinition) -> bool:
        if _is_named(tool, self._taken):
            return False
        return self._wanted is None or _is_named(tool, self._wanted)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """In the order of the box."""
        return self._definitions

    def get(self, name: str) -> Tool | None:
        """The tool, if it is in the part."""
        if not name.startswith(PREFIX):
            return self._box.get(name) if name in self._names else None
        tool = self._box.get(name) if MCP_CALL in self._names else None
        return tool if tool is not None and self._has(tool.definition) else None

    @property
    def deferred(self) -> tuple[ToolDefinition, ...]:
        """None: they were named, or are not there."""
        return ()

    def near(self, name: str) -> tuple[str, ...]:
        """Names like ``name`` in the part, best first."""
        return tuple(near for near in self._box.near(name) if near in self._names)


def _all_names(given: Sequence[str], standard_name: Callable[[str], str]) -> set[str]:
    """What is named, also as others name it; of ``Bash(git *)`` the tool."""
    bare = [name.partition("(")[0].strip() for name in given]
    return {*bare, *map(standard_name, bare)}


def _is_named(tool: ToolDefinition, names: set[str]) -> bool:
    return any(fnmatchcase(tool.name, name) or tool.group == name for name in names)


@dataclass(slots=True)
class NamedApprover:
    """Asks the parent's approver and says who wants to know, as a part of which call."""

    approver: Approver
    name: str
    call_id: str = ""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """The user's answer."""
        summary = f"{self.name}: {request.summary}"
        named = replace(request, summary=summary, within=self.call_id)
        return await self.approver.approve(named)


class Unattended:
    """For work in the background: nobody is there to be asked."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """What is not allowed already is refused."""
        del request
        return ApprovalAnswer(Verdict.UNATTENDED, "nobody can be asked from the background")


@dataclass(slots=True)
class PatientAsker:
    """Puts a question of the sub-agent; the time that the answer takes is not its own."""

    asker: Asker
    limits: Callable[[], TurnLimits]

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """The user's answer."""
        began = time.monotonic()
        try:
            return await self.asker.ask(question, options)
        finally:
            limits = self.limits()
            if limits.deadline is not None:
                limits.deadline += time.monotonic() - began


@dataclass(slots=True)
class Meter:
    """Adds what a sub-agent spends to the parent's turn, as it goes (COST-1, COST-2).

    ``usage`` and ``cost_usd`` are what was added so far.
    """

    parent: Spending
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0

    def outside(self) -> float | None:
        """What of the shared budget others have spent, in USD; ``None``: nobody knows."""
        if self.parent.cost_usd is None or self.cost_usd is None:
            return None
        return self.parent.cost_usd - self.cost_usd

    def read(self, usage: Usage, cost_usd: float | None) -> None:
        """The sub-agent's sums are now these; without any tokens known nothing was spent."""
        if not usage.is_known:
            return
        known = self.cost_usd is not None and cost_usd is not None
        more = (cost_usd or 0.0) - (self.cost_usd or 0.0) if known else None
        self.parent.add_elsewhere(usage - self.usage, more)
        self.usage, self.cost_usd = usage, cost_usd


log = logging.getLogger(__name__)

MAX_AT_ONCE = 5
MAX_STEPS = 100
TIME_LIMIT_S = 1800.0
_NOTE = (
    "You are a sub-agent: another agent gave you the task below and sees nothing of your work but"
    " your final message. {asking} Do the task and nothing beside it, then answer with"
    " everything that was asked for: findings with file and line, what you changed, what is left."
)
_NOBODY = "Nobody can be asked."
_MAY_ASK = f"The user may take long to answer what you ask with {ASK}: only what you cannot decide."

Emit = Callable[[AgentEvent], None]
Progress = Callable[[str], None]
Close = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class ParentSession:
    """What sub-agents need of the session that starts them.

    ``closers`` gives what ends the processes of a session; ``files`` is ``None`` where nothing is
    kept; no command changes what is ``obeyed``. ``observer`` reports what they do; ``told`` are the
    agents whose notices were given.
    """

    conversation: Conversation
    store: SqliteStore
    extensions: SessionExtensions
    closers: Callable[[SqliteStore, str], Sequence[Close]]
    settings: Settings
    files: SessionFiles | None
    obeyed: tuple[Path, ...] = ()
    observer: Observer | None = None
    told: set[str] = field(default_factory=set)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_AT_ONCE))


@dataclass(slots=True)
class Runner:
    """Satisfies ``SubAgents`` for one turn, whose events go to ``emit``.

    ``unattended``: beside the user's turns, where nobody is asked; ``asker`` takes its questions.
    """

    parent: ParentSession
    emit: Emit
    asker: Asker | None = None
    unattended: bool = False

    async def run(
        self, task: SubTask, call_id: str, cancel: CancelToken, progress: Progress
    ) -> SubTaskReport:
        """Do ``task`` to its end; ends soon after ``cancel`` is set."""
        parent = self.parent.conversation
        places = nullcontext() if self.unattended else self.parent.places

        def stopped() -> bool:
            return cancel.cancelled

        async with places:
            if cancel.cancelled:
                return SubTaskReport(is_cancelled=True)
            meter = Meter(parent.spent)
            told = ""
            try:
                tree = await self._own_tree(self._definition(task.agent), stopped)
                try:
                    if tree is not None:
                        from agentcli.app.boundary import insist

                        await insist(self.parent.settings, tree.sandbox)
                    session, conversation = await self._session(task, call_id, meter, tree)
                    work = _Work(session, conversation, meter, call_id, progress, self.emit)
                    try:
                        report = await work.run(task, cancel, parent.limits.deadline)
                    finally:
                        await uninterruptible(self._close(work))
                finally:
                    if tree is not None:
                        parent.parts.policy.roots.remove(tree.workspace.root)
                        told = f"\n\n[{await uninterruptible(tree.leave())}]"
            except AgentError as error:
                if stopped():
                    return SubTaskReport(is_cancelled=True)
                return SubTaskReport(problem=f"The agent could not start: {error}")
            return replace(report, text=f"{report.text}{told}")

    async def _own_tree(
        self, definition: AgentDefinition | None, stopped: Callable[[], bool]
    ) -> OwnTree | None:
        """Its own worktree, if it wants one and there can be one. Raises ``ConfigError``."""
        parts = self.parent.conversation.parts
        reads_only = parts.policy.mode is PermissionMode.PLAN
        if definition is None or not definition.isolation or reads_only:
            return None
        made: list[OwnTree] = []

        def make() -> None:
            parent, workspace = self.parent, parts.workspace
            seen = parent.extensions
            given = (parent.settings, workspace, lambda: seen.readable, parent.obeyed)
            made.append(make_own_tree(*given, stopped))

        try:  # a thread cannot be left behind: it ends soon after the cancel, with nothing made
            await uninterruptible(asyncio.to_thread(make))
        except asyncio.CancelledError:
            for tree in made:
                await uninterruptible(tree.leave())
            raise
        except UsageError as error:
            what = f"{definition.name} wants a worktree of its own, but {error.message}"
            if what not in self.parent.told:
                self.parent.told.add(what)
                self.emit(Notice(f"the agent {what}: it works in the session's directory"))
        for tree in made:
            parts.policy.roots.append(tree.workspace.root)
            tree.sandbox.follow(parts.sandbox)
        return made[0] if made else None

    async def _session(
        self, task: SubTask, call_id: str, meter: Meter, tree: OwnTree | None
    ) -> tuple[Session, Conversation]:
        """A session for ``task``, whose file does not exist yet. Raises ``AgentError``."""
        parent = self.parent.conversation
        given = parent.parts
        definition = self._definition(task.agent)
        provider, model = self._model(task, definition)
        now = time.time()
        info = SessionInfo(
            id=new_session_id(),
            title=" ".join(task.description.split()),
            cwd=str((tree.workspace if tree else given.workspace).cwd),
            created_at=now,
            updated_at=now,
            status=SessionStatus.NEW,
            turns=0,
            model=model.id,
            parent_id=given.session_id,
        )
        store = self.parent.store.beside(info)
        mark = {"agent": definition.name if definition else "task", "call_id": call_id}
        await store.set(SUBAGENT_KEY, mark)
        only = definition.tools if definition else None
        withheld = WITHHELD if self.asker is None else WITHHELD - {ASK}
        withheld |= frozenset(definition.not_tools if definition else ())
        toolbox = Narrowed(given.toolbox, only, standard_name, withheld)
        note = _NOTE.format(asking=_MAY_ASK if toolbox.get(ASK) else _NOBODY)
        system = (
            given.system,
            note,
            tree.note if tree else "",
            *(await self._texts(definition) if definition else ()),
        )
        approver = Unattended() if self.unattended else given.approver
        queue = DurableQueue(store)
        parts = SessionParts(
            store=store,
            state=store,
            outputs=store,
            session_id=info.id,
            parent_id=given.session_id,
            reminders=given.reminders,
            temperature=given.temperature,
            request_fields=given.request_fields,
            system="\n\n".join(filter(None, system)),
            toolbox=toolbox,
            ask=PatientAsker(self.asker, lambda: conversation.limits) if self.asker else None,
            later=given.later,
            policy=given.policy,
            workspace=tree.workspace if tree else given.workspace,
            sandbox=tree.sandbox if tree else given.sandbox,
            is_beside=self.unattended,
            approver=NamedApprover(approver, f"{mark['agent']} ({info.title})", call_id),
            approval_lock=given.approval_lock,
            queue=queue,
            choose=given.choose,
            fallbacks=given.fallbacks,
            retry=given.retry,
            repair_image=given.repair_image,
            max_output_tokens=given.max_output_tokens,
            max_steps=min(given.max_steps or MAX_STEPS, MAX_STEPS),
            max_budget_usd=parent.limits.max_budget_usd,
            outside_usd=meter.outside,
            gates=given.gates,
            transforms=given.transforms,
            hooks=given.hooks.of_agent(mark["agent"], info.id, store.path) if given.hooks else None,
            search=given.search,
            keeper=None if tree else given.keeper,
            checks=None if tree else given.checks,
            update_catalogue=self._catalogue_update(store),
            on_close=self.parent.closers(store, info.id),
        )
        effort = (definition.effort if definition else None) or parent.effort
        conversation: Conversation = Conversation(parts, History(), provider, model, effort)
        session = Session(LoadedSession(info, ()), store, queue, conversation)
        if (observer := self.parent.observer) is not None:
            session.add_listener(observer.within(call_id, info.id, mark["agent"]).on_event)
        return session, conversation

    def _definition(self, name: str) -> AgentDefinition | None:
        if not name.strip():
            return None
        known = self.parent.extensions.agents
        if found := known.get(name.strip().lower()):
            return found
        there = f"there are: {', '.join(sorted(known))}" if known else "leave the field out"
        raise ConfigError(f"there is no agent {name!r}", there)

    async def _texts(self, definition: AgentDefinition) -> tuple[str, ...]:
        """What the agent is told beside its task: its own text, and that of its skills."""
        text, problems = await asyncio.to_thread(self.parent.extensions.texts, definition.skills)
        if problems and definition.name not in self.parent.told:
            self.parent.told.add(definition.name)
            self.emit(Notice(f"the agent {definition.name} {'; '.join(problems)}"))
        return definition.prompt, text

    def _model(
        self, task: SubTask, definition: AgentDefinition | None
    ) -> tuple[Provider, ModelInfo]:
        """The call's model, else the definition's, else the one that answers the parent."""
        present, parts = self.parent.conversation.model, self.parent.conversation.parts
        if task.model.strip():
            others = (*parts.fallbacks, parts.small_model)
            return chosen_by_call(task.model, self._choose, present, others)
        if definition is not None and definition.model:
            name, problem = model_named(definition.model, present)
            if problem and f"model {definition.name}" not in self.parent.told:
                self.parent.told.add(f"model {definition.name}")
                self.emit(Notice(f"the agent {definition.name}: {problem}"))
            try:
                return self._choose(name or present.id)
            except ConfigError as error:
                text = f"the model of the agent {definition.name} cannot be used: {error}"
                self.emit(Notice(text))
        small = parts.small_model
        if small and definition is not None and definition.name.casefold() == EXPLORE:
            try:
                return self._choose(small)
            except ConfigError as error:
                if "small model" not in self.parent.told:
                    self.parent.told.add("small model")
                    self.emit(Notice(f"small_model cannot be used: {error}"))
        return self._choose(present.id)

    def _choose(self, name: str) -> tuple[Provider, ModelInfo]:
        choose = self.parent.conversation.parts.choose
        if choose is None:
            raise ConfigError("no model can be chosen in this session")
        return choose(name)

    def _catalogue_update(self, store: SqliteStore) -> Close:
        async def update() -> None:
            if self.parent.files is not None and store.created:
                await self.parent.files.touch(*await store.stamped_info())

        return update

    async def _close(self, work: _Work) -> None:
        """End what it has left running; its sums go into the parent's file (COST-1)."""
        try:
            await work.session.aclose()
        except (AgentError, OSError):
            log.warning("a sub-agent's session was not closed", exc_info=True)
        work.count()
        meter = work.meter
        if not meter.usage.is_known:
            return
        try:
            await self.parent.store.add_usage(
                work.conversation.model.id, meter.usage, meter.cost_usd, kind="subagent"
            )
        except AgentError:
            log.warning("a sub-agent's tokens were not stored", exc_info=True)


class _Work:
    """One sub-agent's turn, as the parent sees it."""

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        meter: Meter,
        call_id: str,
        progress: Progress,
        emit: Emit,
    ) -> None:
        self.session = session
        self.conversation = conversation
        self.meter = meter
        self._call_id = call_id
        self._progress = progress
        self._emit = emit
        self._error: AgentError | None = None
        self._summary: TurnSummary | None = None

    async def run(
        self, task: SubTask, cancel: CancelToken, deadline: float | None
    ) -> SubTaskReport:
        """From the prompt to the end, at the latest at ``deadline``."""
        token = CancelToken()

        def pass_on() -> None:
            token.cancel(CancelReason.PARENT, force=cancel.forced)

        remove = cancel.add_callback(pass_on)
        self.session.add_listener(self._heard)
        self._progress(f"session {self.session.id}\n")
        limit = time.monotonic() + TIME_LIMIT_S
        deadline = limit if deadline is None else min(deadline, limit)
        try:
            prompt = Prompt(user_text(task.prompt))
            self._summary = await self.session.run(prompt, token, deadline=deadline)
        except AgentError as error:
            return self._report(f"The agent could not work: {error}")
        finally:
            remove()
        return self._ended(self._summary)

    def count(self) -> None:
        """Bring the parent's sums up to date."""
        spent = self._summary or self.conversation.spent
        self.meter.read(spent.usage, spent.cost_usd)

    def _ended(self, summary: TurnSummary) -> SubTaskReport:
        match summary.outcome:
            case Outcome.CANCELLED:
                return self._report("", is_cancelled=True)
            case Outcome.ERROR:
                return self._report(f"The agent failed: {self._error or 'the reason is unknown'}")
            case Outcome.MAX_STEPS | Outcome.TIMED_OUT:
                return self._report(f"The agent was stopped at its limit of {summary.limit}.")
            case Outcome.MAX_TOKENS:
                return self._report("The agent's answer was cut at the model's output limit.")
            case _ if not summary.text.strip():
                return self._report("The agent ended without an answer.")
            case _:
                return self._report("")

    def _report(self, problem: str, *, is_cancelled: bool = False) -> SubTaskReport:
        summary = self._summary or TurnSummary(Outcome.ERROR)
        return SubTaskReport(
            text=summary.text,
            problem=problem,
            session_id=self.session.id,
            is_cancelled=is_cancelled,
            steps=summary.steps,
        )

    def _heard(self, event: AgentEvent) -> None:
        """A listener of the sub-agent's session."""
        match event:
            case AssistantRecorded() | ToolFinished():
                self.count()
                self._emit(SubAgentEvent(self._call_id, event))
            case ToolStarted():
                self._progress(f"{event.summary}\n")
            case ApprovalWaiting() | ToolRefused():
                self._emit(event)
            case RetryWait():
                self._progress(f"{event.error.message}: again in {event.delay_s:.0f} s\n")
            case Notice():
                self._emit(Notice(f"sub-agent: {event.text}", event.is_warning))
            case Failed():
                self._error = event.error
            case _:
                pass


# --- a session that is an agent itself ------------------------------------------------------------


async def as_agent(options: SessionOptions, extensions: SessionExtensions) -> SessionOptions:
    """``options`` of a session that is the user's agent ``options.agent`` itself.

    What was asked for besides comes first; the agent's tools are all that it has, and what it shall
    not do is denied. Raises ``UsageError`` where there is no such agent.
    """
    wanted = (options.agent or "").strip().lower()
    found = extensions.agents.get(wanted)
    if found is None:
        import difflib

        near = difflib.get_close_matches(wanted, extensions.agents, n=2)
        there = ", ".join(sorted(extensions.agents))
        advice = f"did you mean {' or '.join(near)}?" if near else f"there are: {there or 'none'}"
        raise UsageError(f"there is no agent {options.agent!r}", advice)
    text, problems = await asyncio.to_thread(extensions.texts, found.skills)
    extensions.notices += tuple(f"the agent {found.name} {problem}" for problem in problems)
    texts = (found.prompt, text, options.append_system_prompt)
    tools = options.tools

    def as_rule(named: str) -> str:
        """``Bash(git push *)`` as a rule of ours."""
        tool, parenthesis, pattern = named.strip().partition("(")
        return standard_name(tool) + parenthesis + pattern

    if tools is None and found.tools is not None:
        bare = [name.partition("(")[0].strip() for name in found.tools]
        tools = known_names([name if "*" in name else standard_name(name) for name in bare])
    return replace(
        options,
        agent=wanted,
        append_system_prompt="\n\n".join(filter(None, texts)),
        effort=options.effort or found.effort,
        tools=tools,
        deny=(*options.deny, *map(as_rule, found.not_tools)),
    )


# --- a worktree of its own ------------------------------------------------------------------------


@mutable
class OwnTree:
    """A worktree in which a sub-agent works alone (EXT-3). ``note`` is what it is told of that."""

    workspace: Workspace
    sandbox: SessionSandbox
    note: str
    end: Callable[[], str]

    async def leave(self) -> str:
        """The worktree goes if it is clean; what its parent is told of it."""
        await self.sandbox.aclose()
        return await asyncio.to_thread(self.end)


def make_own_tree(
    settings: Settings,
    workspace: Workspace,
    readable: Callable[[], Sequence[Path]],
    obeyed: tuple[Path, ...],
    stopped: Callable[[], bool],
) -> OwnTree:
    """A worktree of the repository of ``workspace``; blocks until it is there, or ``stopped``.

    Raises ``UsageError`` where there can be none, and ``ConfigError``.
    """
    from agentcli.app.boundary import session_sandbox
    from agentcli.app.worktrees.book import Worktrees
    from agentcli.app.worktrees.repository import repository_at

    trees = Worktrees(settings.paths)
    stay = trees.enter(repository_at(workspace.cwd), None, stopped)
    own = replace(workspace, root=stay.directory, cwd=stay.directory)
    tree = stay.tree
    note = (
        f"You work in a git worktree of your own: your working directory is {stay.directory}, on"
        f" the branch {tree.branch}, whatever was said above. Change nothing outside of it. Only"
        " what you commit on that branch can be merged: commit what you hand over."
    )

    def end() -> str:
        try:
            state = trees.leave(stay)
        except AgentError as error:
            return f"Its worktree {tree.path} is kept: {error}"
        if state is None:
            return "It worked in a worktree of its own and left nothing there."
        merge = f" To take over what it has committed: git merge {state.head}."
        is_left = state.changed or state.untracked
        return (
            f"It worked in the worktree {tree.path}, which is kept: {state.text()}."
            f"{merge if state.commits else ''}"
            f"{' What it has not committed is in that directory only.' if is_left else ''}"
            f" /undo does not reach there. To remove it: agent worktrees remove {tree.name}"
        )

    return OwnTree(own, session_sandbox(settings, own, readable, obeyed), note, end)
