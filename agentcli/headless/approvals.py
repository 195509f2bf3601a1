"""Who says yes in one shot: the user at the terminal, or nobody (CLI-7)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Verdict
from agentcli.headless.streams import (
    forget_typed_ahead,
    is_terminal,
    typed_line,
    write_error_line,
)

if TYPE_CHECKING:
    from agentcli.domain.ports import Approver
    from agentcli.domain.tools import Asker

    Attendants = tuple[Approver, Asker | None]

_LONGEST_RULE = 500  # characters; the model is told it, too
AUTO_OFFER = "do not ask for commands that stay in the sandbox"


def make_approver() -> Attendants:
    """An approver, and who answers questions: the user where there is a terminal to ask at."""
    if is_terminal(sys.stdin) and is_terminal(sys.stderr):
        terminal = AtTerminal()
        return terminal, terminal
    return Nobody(), None


class Nobody:
    """Refuses at once, and says which flag would have allowed the call."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Always ``UNATTENDED``."""
        if not request.offers:
            return ApprovalAnswer(
                Verdict.UNATTENDED,
                f"It needs an approval each time ({request.reason}) and there is nobody to give"
                " it.",
            )
        # to be pasted into a shell: a quote of the model's ends no word of it, and what cannot be
        # shown as it is would be another rule there
        rules = (rule for each in request.offers if _can_be_written(rule := each.rule))
        ways = ["--allow-tool '{}'".format(rule.replace("'", "'\\''")) for rule in rules]
        if request.offers_auto:
            ways.append("--permission-mode auto for all that the sandbox contains")
        ways.append("--yolo for all but protected places")
        return ApprovalAnswer(
            Verdict.UNATTENDED,
            "It needs an approval and there is nobody to give it. It can be allowed when the"
            f" program is started: {', or '.join(ways)}.",
        )


def _can_be_written(rule: str) -> bool:
    return len(rule) <= _LONGEST_RULE and rule.isprintable()


class AtTerminal:
    """Asks on stderr, reads a line from the terminal; one question at a time."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Yes, yes for this session, or no with a reason."""
        async with self._one_at_a_time:
            return await self._approve(request)

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """The user's answer; a number picks an option."""
        async with self._one_at_a_time:
            return await self._ask(question, options)

    async def _approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        from agentcli.ui.exact import detail_of, exact_line

        forget_typed_ahead()
        detail = detail_of(request)
        write_error_line(f"\n{exact_line(request.summary)} - {exact_line(request.reason)}")
        _write_marked(detail.lines)
        while True:
            write_error_line(_question(request, is_cut=detail.is_cut))
            answer = await typed_line()
            match answer.strip().lower():
                case "v" | "view" if detail.is_cut:
                    _write_marked(detail.whole.split("\n"))
                case "y" | "yes":
                    return ApprovalAnswer(Verdict.ONCE)
                case "s" | "session" if request.offers:
                    return ApprovalAnswer(Verdict.SESSION, rule=request.offers[0].rule)
                case "p" | "prefix" if len(request.offers) > 1:
                    return ApprovalAnswer(Verdict.SESSION, rule=request.offers[1].rule)
                case "a" | "auto" if request.offers_auto:
                    return ApprovalAnswer(Verdict.AUTO)
                case "" | "n" | "no" | "s" | "session":
                    return ApprovalAnswer(Verdict.NO)
                case _:
                    return ApprovalAnswer(Verdict.NO, answer.strip())

    async def _ask(self, question: str, options: Sequence[str]) -> str:
        from agentcli.ui.sanitize import clean, clean_line

        forget_typed_ahead()
        write_error_line(f"\n{clean(question)}")
        for position, option in enumerate(options, start=1):
            write_error_line(f"  {position}. {clean_line(option)}")
        answer = (await typed_line()).strip()
        if answer.isdecimal() and 0 < int(answer) <= len(options):
            return options[int(answer) - 1]
        return answer


def _write_marked(lines: Sequence[str]) -> None:
    """Lines behind a mark: what goes on in another row stands behind none (SEC-6)."""
    from agentcli.ui.rows import wrap
    from agentcli.ui.screen import size_of

    columns = size_of(sys.stderr).columns
    for line in lines:
        for row in wrap(f"| {line}".rstrip(" "), columns, "  ", exact=True):
            write_error_line(row)


def _question(request: ApprovalRequest, *, is_cut: bool) -> str:
    """The answers that there are, in a line."""
    from agentcli.ui.exact import rule_text

    once = "for this session" if request.per_session else "once"
    head = "Carry it out? y = yes" if request.is_plan else f"Allow? y = {once}"
    offers = () if request.per_session else request.offers
    for key, offer in zip("sp", offers, strict=False):
        rule = rule_text(offer.rule)
        head += (
            f", {key} = yes, and {rule}" if request.is_plan else f", {key} = this session ({rule})"
        )
    if request.offers_auto:
        head += f", a = {AUTO_OFFER}"
    view = ", v = view all of it first" if is_cut else ""
    return f"{head}{view}, anything else = no, and the model reads it"
