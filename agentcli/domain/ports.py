"""What the engine needs of the rooms around it: Protocols and the values that pass through them.

Approvals, models, the seams of the loop, the input queue, the session's file.
Tools have a file of their own (``domain.tools``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import AgentError, PersistenceError, ProviderError
from agentcli.domain.events import Outcome
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.stream import StreamEvent, Tape
from agentcli.domain.tools import RunIdentity, ToolDefinition
from agentcli.domain.values import frozen

# --- approval ------------------------------------------------------------------------------


class PermissionMode(StrEnum):
    """What runs without asking (SEC-3)."""

    DEFAULT = "default"
    ACCEPT_EDITS = "accept-edits"
    AUTO = "auto"
    PLAN = "plan"
    YOLO = "yolo"

    def no_freer_than(self, other: PermissionMode) -> PermissionMode:
        """The one of the two that lets less run unasked."""
        return min(self, other, key=_BY_FREEDOM.index)


_BY_FREEDOM = (
    PermissionMode.PLAN,
    PermissionMode.DEFAULT,
    PermissionMode.ACCEPT_EDITS,
    PermissionMode.AUTO,
    PermissionMode.YOLO,
)


@frozen
class GrantOffer:
    """A rule that a yes may grant beyond this call, as it would be written (UI-7).

    ``session``: it can hold for this session; ``always``: it can be written down for all of them.
    """

    rule: str
    session: bool = True
    always: bool = False


@frozen
class ApprovalRequest:
    """A call that needs a yes.

    ``offers`` are the rules that the user may grant with it, the narrowest first: this very call,
    then its like; empty where it asks every time. ``offers_auto``: the sandbox would contain it,
    and the user may choose not to be asked about such calls (``Verdict.AUTO``).

    ``per_session``: a yes holds for the session, by the first of ``offers``.

    ``is_plan``: ``detail`` is a plan in Markdown; a yes ends plan mode, and one "for this
    session" lets edits in the workspace run without asking.

    ``within`` is the id of the call that this one is a part of, a sub-agent's; else empty.
    """

    call: ToolCall
    summary: str
    detail: str
    reason: str
    offers: tuple[GrantOffer, ...] = ()
    offers_auto: bool = False
    per_session: bool = False
    is_plan: bool = False
    within: str = ""

    @property
    def beside_command(self) -> str:
        """What there is to see but the command: the tool's preview, else the other arguments."""
        given = self.call.arguments
        command = given.get("command")
        has_command = isinstance(command, str)
        if self.detail.strip():
            return self.detail.removeprefix(command or "") if has_command else self.detail
        others = {name: given[name] for name in given if name != "command" or not has_command}
        if has_command and not others:
            return ""
        import json

        return json.dumps(others, ensure_ascii=False, indent=2)


class Verdict(StrEnum):
    """The user's answer.

    ``AUTO``: yes, and mode ``auto`` from now on. ``UNATTENDED``: nobody could be asked.
    """

    ONCE = "once"
    SESSION = "session"
    AUTO = "auto"
    NO = "no"
    UNATTENDED = "unattended"


@frozen
class ApprovalAnswer:
    """``reason`` is for the model when the verdict is no.

    ``rule`` is what "for this session" grants: one of the request's offers, or what the user made
    of it; empty for the first offer.
    """

    verdict: Verdict
    reason: str = ""
    rule: str = ""


class Approver(Protocol):
    """Asks the user, or says that there is none (CLI-7)."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """The answer. May take for ever; the engine cancels the wait with the turn (CAN-9)."""


# --- providers -----------------------------------------------------------------------------


class Effort(StrEnum):
    """How hard the model should think."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"

    @property
    def is_much(self) -> bool:
        """Whether it is medium or more."""
        return self not in {Effort.NONE, Effort.MINIMAL, Effort.LOW}


class ToolProtocol(StrEnum):
    """How a model calls tools (STR-10)."""

    AUTO = "auto"
    NATIVE = "native"
    TEXT = "text"


@frozen
class LongPromptPrices:
    """What a whole request costs whose prompt is longer than ``above_tokens``, cached included."""

    above_tokens: int
    input_price: float | None
    output_price: float | None
    cache_read_price: float | None
    cache_write_price: float | None


@frozen
class ModelInfo:
    """A model and its limits; prices in USD per million tokens, ``None`` where unknown.

    ``long_prompts`` are the prices of longer prompts, the shortest first. ``supports_documents``:
    PDFs go to it as they are (TOOL-16).

    ``first_token_timeout_s`` bounds the wait for the first output of a reply, ``idle_timeout_s``
    any silence after it, ``max_attempts`` how often one reply is asked for (STR-3); ``None`` leaves
    them to the retry policy. ``tool_protocol`` is ``None`` for a model that is known to call tools,
    and to think, natively.
    """

    provider: str
    name: str
    context_tokens: int = 128_000
    max_output_tokens: int = 8_192
    supports_images: bool = True
    supports_thinking: bool = False
    input_price: float | None = None
    output_price: float | None = None
    cache_read_price: float | None = None
    cache_write_price: float | None = None
    first_token_timeout_s: float | None = field(default=None, kw_only=True)
    idle_timeout_s: float | None = field(default=None, kw_only=True)
    max_attempts: int | None = field(default=None, kw_only=True)
    tool_protocol: ToolProtocol | None = field(default=None, kw_only=True)
    long_prompts: tuple[LongPromptPrices, ...] = field(default=(), kw_only=True)
    supports_documents: bool = field(default=False, kw_only=True)

    @property
    def id(self) -> str:
        """``provider/model``."""
        return f"{self.provider}/{self.name}"


def prices_of(model: ModelInfo, usage: Usage) -> ModelInfo | LongPromptPrices:
    """The prices that hold for one request of ``usage``."""
    given = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    prompt = sum(tokens or 0 for tokens in given)
    longer = [each for each in model.long_prompts if prompt > each.above_tokens]
    return longer[-1] if longer else model


def cost_usd(model: ModelInfo, usage: Usage) -> float | None:
    """What ``usage`` of one request costs at list price, in USD; ``None`` if a figure is unknown.

    A cache count that the provider did not report is taken for none (COST-1).
    """
    if not usage.is_known:
        return None
    total = 0.0
    prices = prices_of(model, usage) if model.long_prompts else model
    for tokens, price in (
        (usage.input_tokens, prices.input_price),
        (usage.output_tokens, prices.output_price),
        (usage.cache_read_tokens or 0, prices.cache_read_price),
        (usage.cache_write_tokens or 0, prices.cache_write_price),
    ):
        if tokens == 0 or price == 0:
            continue
        if tokens is None or price is None:
            return None
        total += tokens * price
    return total / 1_000_000


@frozen
class ModelRequest:
    """One request. ``messages`` already satisfies ``domain.history.check_request``.

    ``fields`` are put into the body as they are. ``tool_choice`` is the tool that has to be called,
    ``*`` for any of them, empty where the model may answer in words (LOOP-14).
    """

    model: ModelInfo
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    max_output_tokens: int | None = None
    effort: Effort | None = None
    temperature: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    tool_choice: str = ""


class Provider(Protocol):
    """A model API."""

    @property
    def name(self) -> str:
        """The part before the slash in ``provider/model``."""

    @property
    def host(self) -> str:
        """Where it is, for texts (STR-9); empty where it needs no network."""

    def encode(self, request: ModelRequest) -> Any:
        """The body of the request: what a refusal's places are looked up in (HIS-8).

        Pure. ``None`` for a provider that sends none.
        """

    def stream(self, request: ModelRequest, cancel: CancelToken) -> AsyncIterator[StreamEvent]:
        """The reply, one attempt; raises ``ProviderError``. Retries are the engine's."""

    async def aclose(self) -> None:
        """Release connections."""


RepairImage = Callable[[ImagePart], Awaitable[ImagePart | str]]
"""Makes an image that providers take of one that they do not, or says why not (HIS-8).

Empty: there is no more to say of it than its headers do.
"""


class StoredKey(Protocol):
    """A key that the user has stored (SEC-9)."""

    @property
    def place(self) -> str:
        """Where it stands: ``keyring`` or ``file``."""

    @property
    def at_hand(self) -> bool:
        """Whether ``get`` answers at once."""

    def get(self) -> str:
        """The key. May wait for seconds: not for an event loop. Raises ``ConfigError``."""

    def stop(self) -> None:
        """End a ``get`` that waits in another thread."""

    def renew(self, refused: str) -> bool:
        """The server refused the key ``refused``: whether ``get`` may now give another one."""


@frozen
class ProviderConfig:
    """How to reach a provider. ``kind`` names the wire protocol: ``anthropic``, ``openai``, ....

    ``api`` chooses where OpenAI's protocol has two forms: ``chat`` or ``responses``; empty means
    what suits the address.

    ``api_key`` never appears in a ``repr``, a log or a file (SEC-9). ``key_env`` is the name of
    the environment variable it came from, for advice. ``stored`` is the key to use where the
    environment has none. ``waits`` are fields of ``ModelInfo`` for all of its models (STR-3).
    Without ``stream`` whole replies are asked for (CTRL-9). ``tool_protocol`` is one for all of its
    models; empty means what suits each (STR-10). ``headers`` and ``query`` go along with every
    request; ``auth`` is how the key is sent: ``bearer``, ``x-api-key``, ``none``, or empty for what
    is usual (EXT-7). ``tape`` keeps the replies, or serves kept ones (TT-4).
    """

    name: str
    kind: str
    base_url: str = ""
    key_env: str = ""
    api_key: str = field(default="", repr=False)
    needs_key: bool = True
    api: str = ""
    stored: StoredKey | None = field(default=None, repr=False, compare=False)
    waits: Mapping[str, float] = field(default_factory=dict)
    stream: bool = True
    tool_protocol: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: str = ""
    tape: Tape | None = field(default=None, repr=False, compare=False)


class LongWait(Protocol):
    """Asks the user whether to wait for a rate limit that lasts longer than the cap (STR-2)."""

    async def offer(self, error: ProviderError, delay_s: float) -> bool:
        """Whether to wait ``delay_s`` seconds and go on; cancelled with the turn."""


# --- seams of the loop ---------------------------------------------------------------------


@frozen
class StepFacts:
    """What gates and transforms may look at before a step (CTRL-9).

    ``tools`` are the names of the turn's tools, ``messages`` the history as stored, ``usage`` what
    the turn has used by now.
    """

    step: int
    tools: frozenset[str]
    wrapping_up: bool = False
    messages: tuple[Message, ...] = ()
    usage: Usage = field(default_factory=Usage)
    model: ModelInfo | None = None
    run: RunIdentity = field(default_factory=RunIdentity)


@frozen
class GateAnswer:
    """The tools that a gate lets through in the coming step: by name, none if empty (CTRL-4).

    A ``required`` gate that ``outranks`` sets advisory answers of a lower priority aside.
    """

    allow: Collection[str]
    required: bool = False
    outranks: bool = False


@frozen
class ReminderTexts:
    """What a model is told that ends a turn too early (CTRL-5, CTRL-6).

    ``result``: it answered in words where a terminal tool was asked for; ``question``: it asked
    where nobody answers; ``use_tools``: it has used no tool. ``{tools}`` in a text stands for the
    names of the terminal tools, ``{why}`` for what is wrong with the answer as a result.
    """

    result: str = (
        "(An answer in words does not end this task. If there is work left, go on with it; when"
        " you are done, call {tools} with the result, in the shape that its schema asks for.{why})"
    )
    question: str = (
        "(Nobody can answer questions in this run. Decide yourself, go on, and call {tools} with"
        " the result when you are done.)"
    )
    use_tools: str = "(Words alone do not do this task: use the tools, then answer.)"


InputSource = Callable[[], Sequence[str] | Awaitable[Sequence[str]]]
"""What else is to be said to the model by now, oldest first; asked where the queue is (CTRL-1)."""

WrapUpSignal = Callable[[], str | None]
"""Why the agent should finish now, in words for the model; ``None`` or empty: it need not."""


class ToolGate(Protocol):
    """May narrow the tools of a step. The higher ``priority`` wins where gates exclude each other.

    The tool list itself stays the same for a turn (LOOP-3): a call outside is refused. A gate that
    raises ends the turn with its error, before anything runs.
    """

    @property
    def name(self) -> str:
        """How the gate is called in reports."""

    @property
    def priority(self) -> int:
        """Higher goes first."""

    def allow(self, facts: StepFacts) -> GateAnswer | None:
        """What may be called, or ``None`` for no opinion."""


class ContextTransform(Protocol):
    """Changes the copy of the history that one request carries; never what is stored (CTRL-8)."""

    @property
    def name(self) -> str:
        """How the transform is called in reports."""

    def apply(self, messages: Sequence[Message], facts: StepFacts) -> Sequence[Message]:
        """The messages to send; the same object where nothing was changed."""


# --- what waits ----------------------------------------------------------------------------


class QueueKind(StrEnum):
    """When queued text is delivered: after this step's tools, or when all is done (CTRL-1)."""

    STEERING = "steering"
    FOLLOW_UP = "follow_up"


class QueueSource(StrEnum):
    """Who says it: the user, or the program of its background runs (BG-5)."""

    USER = "user"
    BACKGROUND = "background"


@frozen
class QueuedInput:
    """Text that waits in the session file. ``created_at`` is in seconds since 1970, UTC.

    ``others`` are the ids of further rows whose text it holds: they are delivered as one (BG-5).
    ``is_earlier``: an earlier process has left it, as the file says.
    """

    id: int
    kind: QueueKind
    text: str
    created_at: float
    source: QueueSource = QueueSource.USER
    others: tuple[int, ...] = ()
    is_earlier: bool = field(default=False, compare=False)

    @property
    def ids(self) -> tuple[int, ...]:
        """The rows that become a message together."""
        return (self.id, *self.others)

    def is_among(self, waiting: Sequence[QueuedInput]) -> bool:
        """Whether all of it still waits, as it is."""
        return self in waiting or (
            bool(self.source is QueueSource.BACKGROUND)
            and any(set(self.ids) <= set(item.ids) and self.text in item.text for item in waiting)
        )


# --- store ---------------------------------------------------------------------------------


class RunStatus(StrEnum):
    """Life of a tool call in the store: pending until it is about to run (W2)."""

    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@frozen
class ToolRun:
    """The stored row of a call. ``result`` is set when it has finished out of order.

    ``display`` is what the user was shown of the result, for example a diff; ``line`` said what
    the call does, ``outcome`` how it ended.
    """

    call_id: str
    name: str
    status: RunStatus
    started_at: float | None = None
    finished_at: float | None = None
    result: ToolResult | None = None
    display: str = ""
    line: str = ""
    outcome: str = ""

    @property
    def took_s(self) -> float | None:
        """Seconds from start to end; ``None``: unknown, as of a call that died with the program."""
        if self.started_at is None or self.finished_at is None:
            return None
        if self.status is RunStatus.INTERRUPTED:  # finished_at is when the next start closed it
            return None
        return max(0.0, self.finished_at - self.started_at)


@frozen
class RecordedResult:
    """A result with what goes beside it into the store; see ``ToolRun``."""

    result: ToolResult
    raw: bytes | None = None
    display: str = ""
    line: str = ""
    outcome: str = ""


class SessionStore(Protocol):
    """One session's file. Every method is one transaction; raises ``PersistenceError``."""

    async def record_prompt(
        self,
        message: UserMessage | None,
        *,
        queued: Sequence[int] = (),
        begins_turn: bool = True,
    ) -> int:
        """W0: the user's message (if any) and the state "running". Returns its seq.

        ``queued`` are the rows of the input queue that become this message, delivered in the
        same transaction. Text that is delivered within a turn does not begin one.
        """

    async def record_assistant(
        self,
        message: AssistantMessage,
        calls: Sequence[ToolCall],
        *,
        final: Outcome | None,
        wasted: Usage | None = None,
    ) -> int:
        """W1: the message, one pending row per call, its usage; with ``final`` the turn's end.

        ``wasted`` are the tokens of attempts at this reply that did not become it (COST-1).
        """

    async def record_running(self, call: ToolCall) -> None:
        """W2: the call is about to take effect."""

    async def record_result(self, done: RecordedResult, in_order: Sequence[ToolResult]) -> None:
        """W3: ``done`` has finished. ``in_order`` are the results whose turn has come.

        Empty when an earlier call of the batch still runs: the result is then parked in the
        call's row, and listed in ``in_order`` of the later commit that makes it a message.
        """

    async def record_end(
        self,
        results: Sequence[ToolResult],
        outcome: Outcome,
        detail: str,
        partial: str,
        *,
        usage: Usage | None = None,
        model: str = "",
    ) -> None:
        """Close a turn: results that balance the history, why it ended, what was seen of a reply.

        ``partial`` is kept for display only (CAN-5). ``usage`` is what a request cost whose
        reply did not become a message, ``model`` who made it (``provider/model``); ``None``
        when there was no such request (COST-1).
        """

    async def record_compaction(
        self,
        summary: UserMessage,
        folded: Sequence[int],
        total: int,
        *,
        usage: Usage,
        model: str,
    ) -> int:
        """Put ``summary`` before the history and hide what it stands for (CMP-3); its seq.

        ``folded`` are indices into the history as sent, which has ``total`` messages. ``usage``
        is what the summary cost, ``model`` who wrote it (``provider/model``).
        """

    async def add_usage(
        self, model: str, usage: Usage, cost_usd: float | None, *, kind: str
    ) -> None:
        """Tokens spent outside of a recorded step, for example ``kind="compaction"``."""

    async def tool_runs(self) -> Mapping[str, ToolRun]:
        """The rows of calls that have no result message, by call id."""

    async def rescue(self, text: str) -> str | None:
        """Save what would be lost to a file beside the session; its path, or ``None`` (FAIL-1)."""


class Contained:
    """A store that raises nothing but ``AgentError``: whatever goes wrong is a failed write."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        if not callable(method):
            return method

        async def call(*args: Any, **more: Any) -> Any:
            try:
                return await method(*args, **more)
            except AgentError:
                raise
            except (Exception, SystemExit) as error:
                where = getattr(self.store, "path", type(self.store).__name__)
                raise PersistenceError(
                    f"the session could not be kept in {where}: {type(error).__name__}: {error}",
                    "nothing was done after that; correct the store, or use another one",
                ) from error

        return call


def contained(store: Any) -> Any:
    """``store`` as the engine uses it (FAIL-4)."""
    return store if isinstance(store, Contained) else Contained(store)


@frozen
class EndRecorded:
    """What the registry of background runs has put down of an end (BG-5).

    ``changed`` is false where the attempt was stale; ``message`` now waits in the queue.
    """

    changed: bool
    message: QueuedInput | None = None
