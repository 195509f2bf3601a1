"""One review of changes: a turn for each part, one review at the end (CLI-17).

Law: what was found before a limit, an error or Ctrl-C is written all the same, and said to be a
part. Nobody is asked: a call that would need an approval is refused, and makes the review no
failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.domain.errors import ConfigError
from agentcli.domain.events import Outcome, TurnSummary
from agentcli.domain.messages import TextPart, Usage, UserMessage
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Verdict
from agentcli.domain.reports import Review, Severity
from agentcli.domain.values import frozen
from agentcli.headless.errors import ExitCode
from agentcli.headless.one_shot import OneShot, RunRequest
from agentcli.headless.result import Redact, RunEnd, RunFacts, Subtype, TextOutput, failed
from agentcli.headless.streams import write_error_line

if TYPE_CHECKING:
    from agentcli.app.files.changes import ChangeSet
    from agentcli.app.session import Session
    from agentcli.headless.approvals import Attendants
    from agentcli.headless.one_shot import OpenSession

_NO_PART = RunEnd(Subtype.SUCCESS, ExitCode.OK, "completed", TurnSummary(Outcome.DONE))


@frozen
class ReviewRequest:
    """What a review is asked for; see ``RunRequest``.

    ``write`` gets the review, once. ``fail_on`` is the least severity that fails the run,
    ``is_kept`` whether the session can be resumed.
    """

    changes: ChangeSet
    prepare: Callable[[], tuple[Path, OpenSession]]
    write: Callable[[Review], None]
    redact: Redact
    redact_known: Redact
    focus: str = ""
    fail_on: Severity | None = None
    max_budget_usd: float | None = None
    timeout_s: float | None = None
    quiet: bool = False
    is_kept: bool = True


class ReviewShot(OneShot):
    """One run of ``agent review``."""

    def __init__(self, request: ReviewRequest) -> None:
        super().__init__(
            RunRequest(
                prepare=request.prepare,
                redact=request.redact,
                redact_known=request.redact_known,
                only_result=True,
                timeout_s=request.timeout_s,
                quiet=request.quiet,
            )
        )
        self._asked = request
        self._output: ReviewOutput = ReviewOutput(request)

    def _message(self) -> UserMessage | None:
        return None  # it takes the session to know how much the model can read

    def _attendants(self) -> Attendants:
        return StaysInside(), None

    async def _work(self, session: Session, message: UserMessage | None) -> RunEnd:
        del message
        from agentcli.app.files.review import listed, parts_of

        if session.model.provider == "offline":
            return failed(
                ConfigError("a review needs a model", "agent auth login, or start a local server")
            )
        asked, ends = self._asked, list[RunEnd]()
        parts, notes = parts_of(asked.changes, session.model.context_tokens, asked.focus)
        last = _NO_PART
        for position, part in enumerate(parts):
            if len(parts) > 1 and not asked.quiet:
                write_error_line(f"part {position + 1} of {len(parts)}")
            self._terminal = None
            last = await self._turn(session, UserMessage((TextPart(part.text),)), self._token)
            ends.append(last)
            rest = parts[position if last.is_error else position + 1 :]
            if rest and not last.is_error and self._would_pass_budget(ends):
                last = _out_of_budget(last.summary)
            if last.is_error:
                missing = [name for each in rest for name in each.files]
                notes = (*notes, f"stopped before all was looked at: {listed(missing)}")
                break
        return await self._reviewed(session, ends, last, notes)

    def _would_pass_budget(self, ends: Sequence[RunEnd]) -> bool:
        """Whether another part that costs what the others did is more than the budget."""
        budget, spent = self._asked.max_budget_usd, _cost(ends)
        return bool(budget and spent and spent * (1 + 1 / len(ends)) > budget)

    async def _reviewed(
        self, session: Session, ends: Sequence[RunEnd], last: RunEnd, notes: Sequence[str]
    ) -> RunEnd:
        """How the run ends, with the review made of what the parts have delivered."""
        from agentcli.app.files.review import findings_of, listed

        asked = self._asked
        delivered = [end.summary.structured for end in ends if end.summary.structured is not None]
        findings, dropped = await asyncio.to_thread(findings_of, delivered, asked.changes)
        if refused := [event.call.name for event in self._facts.refused]:
            notes = (*notes, f"calls that were refused: {listed(refused)}")
        if delivered or not ends:
            self._output.review = Review(
                what=asked.changes.what,
                files=len(asked.changes.files),
                findings=findings,
                summary="\n\n".join(str(each["summary"]).strip() for each in delivered),
                notes=(*notes, *dropped),
                is_complete=not last.is_error,
                model=session.model.id,
                session_id=session.id if asked.is_kept else "",
                cost_usd=_cost(ends),
            )
        used = sum((end.summary.usage for end in ends), start=Usage())
        last = replace(last, summary=replace(last.summary, usage=used))
        if last.is_error or asked.fail_on is None:
            return last
        if all(each.severity.rank > asked.fail_on.rank for each in findings):
            return last
        message = f"there are findings of severity {asked.fail_on} or worse"
        return replace(last, code=ExitCode.FAILED, message=message)


class ReviewOutput(TextOutput):
    """The review, once, at the end; progress on stderr."""

    def __init__(self, request: ReviewRequest) -> None:
        super().__init__(request.redact_known, quiet=request.quiet, only_result=True)
        self._asked = request
        self.review: Review | None = None

    def ended(self, end: RunEnd, facts: RunFacts, *, more: bool = False) -> None:
        """Write it, and what it has cost."""
        del more
        if self.review is None:
            return
        self._asked.write(self.review)
        if self._asked.quiet:
            return
        from agentcli.ui.wording import cost_said, duration, tokens

        spent = f"{tokens(end.summary.usage)}, {cost_said(self.review.cost_usd)}"
        write_error_line(f"{self.review.model}: {spent}, {duration(facts.duration_s)}")
        if self.review.session_id:
            write_error_line(f"go on with it: agent --resume {self.review.session_id}")


class StaysInside:
    """Refuses what asks: a review reads what is in the project and nothing else."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Always ``NO``."""
        del request
        return ApprovalAnswer(Verdict.NO, "A review only reads what is in the project.")


def _out_of_budget(summary: TurnSummary) -> RunEnd:
    message = "stopped at the budget - give --max-budget-usd more"
    return RunEnd(Subtype.MAX_BUDGET, ExitCode.LIMIT, "max_budget_usd", summary, message)


def _cost(ends: Sequence[RunEnd]) -> float | None:
    costs = [end.summary.cost_usd for end in ends]
    return None if None in costs else sum(filter(None, costs))
