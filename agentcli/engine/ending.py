"""How a turn ends when it does not end by itself: balance the history, rescue what is unsaved.

Law: one repair, the same after a cancel and after a fault; a failing store is contained (FAIL-4);
nothing that a person typed or saw is lost (FAIL-1).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from agentcli.domain.errors import AgentError, StoreError, TurnCancelled
from agentcli.domain.events import Notice, Outcome, ToolFinished
from agentcli.domain.history import RepairReason, repair_results
from agentcli.domain.messages import Usage
from agentcli.engine.ask import Requests
from agentcli.engine.conversation import Conversation, Emit
from agentcli.engine.tool_calls import ToolCalls

if TYPE_CHECKING:
    from agentcli.engine.finishing import Finishing

log = logging.getLogger(__name__)


class Ending:
    """Ends one turn. ``spent`` is what a reply cost that did not become a message."""

    def __init__(
        self, conversation: Conversation, requests: Requests, calls: ToolCalls, emit: Emit
    ) -> None:
        self._it = conversation
        self._requests = requests
        self._calls = calls
        self._emit = emit
        self.spent = Usage()

    async def conclude(
        self, cause: BaseException, detail: str, unsaved: str, *, begun: bool
    ) -> tuple[AgentError | None, str]:
        """Balance and store; the failure (``None`` for a cancel) and what could be saved nowhere.

        ``unsaved`` is typed text that is not stored yet; ``begun`` whether W0 was committed.
        """
        cancelled = isinstance(cause, TurnCancelled | asyncio.CancelledError)
        failure = None if cancelled else as_agent_error(cause)
        partial = self._requests.sampler.partial_text
        if begun:
            reason = RepairReason.CANCELLED if cancelled else RepairReason.CRASHED
            outcome = Outcome.CANCELLED if cancelled else Outcome.ERROR
            self._it.unbalanced = reason
            try:
                detail = detail if failure is None else failure.message
                await self.balance(outcome, detail, partial, reason)
            except Exception as store_failure:  # noqa: BLE001 - FAIL-4: a store may raise anything
                unsaved = partial
                if failure is None or not isinstance(failure, StoreError):
                    failure = as_agent_error(store_failure)
        if failure is None:
            return None, ""
        return failure, await self._rescue(unsaved)

    async def balance(
        self, outcome: Outcome, detail: str, partial: str, reason: RepairReason
    ) -> None:
        """The one repair: every pending call gets its result, on disk and then in memory.

        ``reason`` words the results: what failed was not cancelled by anybody (CAN-1, REC-1).
        """
        it, sampler = self._it, self._requests.sampler
        pending = it.history.pending
        runs = await it.store.tool_runs() if pending else {}
        details = self._calls.details
        results = repair_results(pending, runs, reason, details)
        spent = sampler.partial_usage
        await it.store.record_end(
            results,
            outcome,
            detail,
            partial,
            usage=spent if spent.is_known else None,
            model=it.model.id,
        )
        self.spent += spent
        sampler.forget()
        for result in results:
            it.history.append(result)
        for call, result in zip(pending, results, strict=True):
            elapsed_s = details[call.id].elapsed_s if call.id in details else 0.0
            display = runs[call.id].display if call.id in runs else ""
            self._emit(ToolFinished(call, result, result.status.value, elapsed_s, display))

    async def _rescue(self, text: str) -> str:
        """What only memory holds goes to a recovery file, or back to be shown (FAIL-1)."""
        if not text:
            return ""
        try:
            path = await self._it.store.rescue(text)
        except Exception:
            log.exception("nothing could be rescued")
            path = None
        if path is None:
            return text
        self._emit(Notice(f"what was not saved is in {path}"))
        return ""


def unwrapped(error: BaseException) -> BaseException:
    """The first fault in a group of faults; a fault of the store before any other."""
    while isinstance(error, BaseExceptionGroup):
        stored = [inner for inner in error.exceptions if isinstance(inner, StoreError)]
        error = stored[0] if stored else error.exceptions[0]
    return error


def as_agent_error(error: BaseException) -> AgentError:
    """``error`` as one that can be shown; a fault of ours goes to the log whole."""
    if isinstance(error, AgentError):
        return error
    log.error("the turn failed", exc_info=error)
    return AgentError(
        f"internal error: {type(error).__name__}: {error}", "this is a bug of agentcli; see the log"
    )


def finishing_of(conversation: Conversation) -> Finishing | None:
    """The rules of how the turn has to end; ``None`` when any answer ends it."""
    check, budget = conversation.answer_check, conversation.max_answers_without_tools
    if check is None and budget is None:
        return None
    from agentcli.engine.finishing import Finishing

    return Finishing(None if check is None else check(), budget)


def cancels() -> int:
    """How often somebody has cancelled the task that runs the turn."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
