"""Questions to the person while the agent works: approvals (SEC-6, UI-7) and ``ask_user``.

Law: what is shown is exactly what will run or change, whole, with every invisible character
spelt out; an answer counts only when it was given after the question could be read; no answer
is ever taken for a yes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from agentcli.domain.errors import AgentError
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Verdict
from agentcli.repl.desk import Desk
from agentcli.repl.front import Front
from agentcli.ui.diff import diff_lines, is_diff
from agentcli.ui.plan_lines import plan_lines
from agentcli.ui.sanitize import clean, clean_line, reveal
from agentcli.ui.screen import Screen
from agentcli.ui.theme import BOLD, DIM, WARNING, Theme

_T = TypeVar("_T")

_ANSWERS = {"y": "y", "s": "s", "n": "n", "r": "r"}
_ALWAYS = {"y": "y", "s": "s", "a": "a", "n": "n", "r": "r"}
_SAID = {"y": "Yes, once.", "s": "Yes, for this session.", "n": "No."}
_SAID_TO_PLAN = {"y": "Yes.", "s": "Yes, edits do not ask.", "n": "No, keep planning."}
_PLAN_COLUMNS = 80
_LETTERS = {"y": Verdict.ONCE, "s": Verdict.SESSION, "n": Verdict.NO}


def approval_lines(request: ApprovalRequest, theme: Theme) -> list[str]:
    """The question: what, in detail, why, and the answers."""
    if request.is_plan:
        return _plan_question(request, theme)
    title = f"? Allow this? {reveal(request.summary)}"
    lines = [theme.paint(title, BOLD | WARNING)]
    if is_diff(request.detail):
        lines += diff_lines(request.detail, theme, exact=True)
    else:
        lines += [f"  {line}".rstrip(" ") for line in _detail(request).split("\n")]
    if request.reason:
        lines.append(theme.paint(f"  Why it asks: {reveal(request.reason)}", DIM))
    rule = reveal(request.session_rule)
    lines += [
        "  y  yes, once",
        f"  s  yes, for this session ({rule})" if rule else "  s  yes, for this session",
        *(["  a  yes, always: this rule goes to your settings"] if request.lasting_rule else []),
        "  n  no     r  no, with a reason     Ctrl-C  cancel",
    ]
    return lines


def _plan_question(request: ApprovalRequest, theme: Theme) -> list[str]:
    return [
        theme.paint("? Carry out this plan?", BOLD | WARNING),
        *plan_lines(request.detail, theme, _PLAN_COLUMNS),
        "  y  yes; what changes something asks",
        f"  s  yes, and {reveal(request.session_rule)}",
        "  n  no, keep planning     r  no, with a reason     Ctrl-C  cancel",
    ]


def _detail(request: ApprovalRequest) -> str:
    """The tool's own preview; without one, the arguments as they are."""
    detail = request.detail
    command = request.call.arguments.get("command")
    if isinstance(command, str) and command not in detail:
        detail = f"{command}\n\n{detail}".rstrip()
    if not detail.strip():
        detail = json.dumps(request.call.arguments, ensure_ascii=False, indent=2)
    return reveal(detail.rstrip("\n"))


class Questions:
    """Satisfies ``Approver`` and ``Asker``. ``interrupt`` cancels the turn."""

    def __init__(
        self, screen: Screen, front: Callable[[], Front], interrupt: Callable[[], None]
    ) -> None:
        self._screen = screen
        self._front = front
        self._interrupt = interrupt
        self._one_at_a_time = asyncio.Lock()
        self.desk: Desk | None = None
        self.on_waiting: Callable[[str], None] = lambda _: None

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """The person's answer; "no" when the turn is cancelled meanwhile."""
        return await self._asking(request.summary, lambda: self._approve(request))

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """The person's answer to a question of the model; empty when there was none."""
        return await self._asking(question, lambda: self._ask(question, options))

    async def _asking(self, what: str, work: Callable[[], Awaitable[_T]]) -> _T:
        """Questions that come together are put one after the other."""
        async with self._one_at_a_time:
            self.on_waiting(what)
            return await work()

    async def _approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        screen, theme = self._screen, self._screen.theme
        answers = _ALWAYS if request.lasting_rule else _ANSWERS
        letter = await self._front().choose(
            answers, lambda: screen.print_block(approval_lines(request, theme))
        )
        if letter == "a":
            said = await self._write_down(request.lasting_rule)
            screen.print_block([theme.paint(f"  {said}", DIM)], gap=False)
            return ApprovalAnswer(Verdict.SESSION)
        if letter != "r":
            verdict = _LETTERS[letter]
            said = (_SAID_TO_PLAN if request.is_plan else _SAID)[letter]
            screen.print_block([theme.paint(f"  {said}", DIM)], gap=False)
            return ApprovalAnswer(verdict)
        reason = await self._front().line("  No, because: ")
        if reason is None:
            self._interrupt()
            return ApprovalAnswer(Verdict.NO)
        return ApprovalAnswer(Verdict.NO, reason.strip())

    async def _write_down(self, rule: str) -> str:
        """Keep ``rule`` for every session; what became of it, as a line."""
        if self.desk is None:
            return "Yes, for this session."
        try:
            await self.desk.allow_always(rule)
        except (AgentError, OSError) as error:
            return f"Yes, for this session; the rule could not be written: {clean_line(str(error))}"
        return f"Yes, always: {reveal(rule)} is in {reveal(str(self.desk.config_file))}"

    async def _ask(self, question: str, options: Sequence[str]) -> str:
        screen, theme = self._screen, self._screen.theme
        lines = [theme.paint(f"? {line}", BOLD) for line in clean(question).strip().split("\n")]
        lines += [f"  {at} {clean(option)}" for at, option in enumerate(options, 1)]
        screen.print_block(lines)
        answer = await self._front().line("  Your answer: ")
        if answer is None:
            self._interrupt()
            return ""
        chosen = answer.strip()
        if chosen.isdecimal() and 1 <= int(chosen) <= len(options):
            return options[int(chosen) - 1]
        return chosen
