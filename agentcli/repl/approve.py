"""Questions to the user while the agent works: approvals (SEC-6, UI-7) and ``ask_user``.

Law: what is shown is exactly what will run or change, whole, with every invisible character
spelt out; an answer counts only when it was given after the question could be read; no answer
is ever taken for a yes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from agentcli.app.user_files import UserFiles
from agentcli.domain.errors import AgentError, ProviderError
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Verdict
from agentcli.repl.actions import ChatInput
from agentcli.repl.outside import page_text
from agentcli.ui.diff import diff_lines, is_diff
from agentcli.ui.exact import (
    ExactText,
    bounded,
    cut_line,
    detail_of,
    exact_line,
    rule_text,
    with_counted_runs,
)
from agentcli.ui.render import plan_lines
from agentcli.ui.sanitize import clean, clean_line, reveal
from agentcli.ui.screen import Screen
from agentcli.ui.theme import BOLD, DIM, WARNING, Theme

_T = TypeVar("_T")

_SAID = {"y": "Yes, once.", "s": "Yes, for this session.", "n": "No."}
_SAID_TO_PLAN = {"y": "Yes.", "s": "Yes, edits do not ask.", "n": "No, keep planning."}
_PLAN_COLUMNS = 80
_MAX_REASON = 400
_MAX_TITLE = 300
# what they show is a diff that we have made; any other text may only look like one
_SHOWN_AS_DIFF = frozenset({"apply_patch", "delete_file", "edit_file", "write_file"})
WAIT = "Wait, then go on by itself"
STOP = "Stop here"
_WAITS = frozenset({WAIT.lower(), "y", "yes", "wait", "ok"})
_LETTERS = {"y": Verdict.ONCE, "s": Verdict.SESSION, "n": Verdict.NO}


def approval_lines(request: ApprovalRequest, theme: Theme) -> list[str]:
    """The question: what, in detail, why, and the answers."""
    if request.is_plan:
        return _plan_question(request, theme)
    detail = _detail(request, theme)
    lines = [_title(request, theme), *detail.lines]
    if request.reason:
        why = exact_line(request.reason, _MAX_REASON)
        lines.append(theme.paint(f"  Why it asks: {why}", DIM))
    return [*lines, *_answer_lines(request, is_cut=detail.is_cut)]


def _title(request: ApprovalRequest, theme: Theme) -> str:
    return theme.paint(f"? Allow this? {exact_line(request.summary, _MAX_TITLE)}", BOLD | WARNING)


def _answer_lines(request: ApprovalRequest, *, is_cut: bool) -> list[str]:
    lines = ["  y  yes, once"]
    if request.offers:
        lines.append(f"  s  yes, for this session ({rule_text(request.offers[0].rule)})")
    if lasting := _lasting(request):
        lines.append(f"  a  yes, always: {rule_text(lasting)} goes to your settings")
    if is_cut:
        lines.append("  v  view all of it first; a part is not shown above")
    lines.append("  n  no     r  no, with a reason     Ctrl-C  cancel")
    return lines


def _lasting(request: ApprovalRequest) -> str:
    """The rule that "always" writes down; empty where there is none."""
    return next((offer.rule for offer in request.offers if offer.always), "")


def _answers(request: ApprovalRequest, *, is_cut: bool) -> dict[str, str]:
    offered = {"y": True, "s": bool(request.offers), "a": bool(_lasting(request)),
               "v": is_cut, "n": True, "r": True}  # fmt: skip
    return {key: key for key, is_offered in offered.items() if is_offered}


def _plan_question(request: ApprovalRequest, theme: Theme) -> list[str]:
    return [
        theme.paint("? Carry out this plan?", BOLD | WARNING),
        *plan_lines(request.detail, theme, _PLAN_COLUMNS),
        "  y  yes; what changes something asks",
        *(f"  s  yes, and {reveal(offer.rule)}" for offer in request.offers[:1]),
        "  n  no, keep planning     r  no, with a reason     Ctrl-C  cancel",
    ]


def _detail(request: ApprovalRequest, theme: Theme) -> ExactText:
    """What would run or change, as far as a screen can show it."""
    if request.call.name not in _SHOWN_AS_DIFF or not is_diff(request.detail):
        detail = detail_of(request)
        lines = tuple(f"  {line}".rstrip(" ") for line in detail.lines)
        return ExactText(lines, detail.whole, detail.is_cut)
    spelt = [with_counted_runs(line) for line in request.detail.split("\n")]
    cut = [cut_line(line) for line in spelt]
    # escapes are not cut
    shown = bounded(diff_lines("\n".join(cut), theme, exact=True), sys.maxsize)
    is_cut = shown.is_cut or cut != spelt
    return ExactText(shown.lines, reveal(request.detail), is_cut)


class Questions:
    """Satisfies ``library.AsksUser``. ``interrupt`` cancels the turn.

    No pager is run from the workspace (SEC-2).
    """

    def __init__(
        self,
        screen: Screen,
        user: UserFiles,
        chat_input: ChatInput,
        interrupt: Callable[[], None],
    ) -> None:
        self._screen = screen
        self._user = user
        self._input = chat_input
        self._interrupt = interrupt
        self._one_at_a_time = asyncio.Lock()
        self.on_waiting: Callable[[str], None] = lambda _: None

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """The user's answer; "no" when the turn is cancelled meanwhile."""
        return await self._asking(request.summary, lambda: self._approve(request))

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """The user's answer to a question of the model; empty when there was none."""
        return await self._asking(question, lambda: self._ask(question, options))

    async def offer(self, error: ProviderError, delay_s: float) -> bool:
        """Whether to wait for a rate limit that lasts (STR-2); only a clear yes is a yes."""
        del delay_s
        question = f"{error.message}; {error.advice}. Wait for it?"
        answer = await self.ask(question, (WAIT, STOP))
        return answer.strip().lower() in _WAITS

    async def _asking(self, what: str, work: Callable[[], Awaitable[_T]]) -> _T:
        """Questions that come together are put one after the other."""
        async with self._one_at_a_time:
            self.on_waiting(what)
            return await work()

    async def _approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        screen, theme = self._screen, self._screen.theme
        letter = await self._chosen(request)
        if letter == "a":
            rule = _lasting(request)
            said = await self._write_down(rule)
            screen.print_block([theme.paint(f"  {said}", DIM)], gap=False)
            return ApprovalAnswer(Verdict.SESSION, rule=rule)
        if letter != "r":
            verdict = _LETTERS[letter]
            said = (_SAID_TO_PLAN if request.is_plan else _SAID)[letter]
            screen.print_block([theme.paint(f"  {said}", DIM)], gap=False)
            return ApprovalAnswer(verdict)
        reason = await self._input.line("  No, because: ")
        if reason is None:
            self._interrupt()
            return ApprovalAnswer(Verdict.NO)
        return ApprovalAnswer(Verdict.NO, reason.strip())

    async def _chosen(self, request: ApprovalRequest) -> str:
        """The letter that was pressed; the whole is shown as often as it is asked for."""
        screen, theme = self._screen, self._screen.theme
        detail = _detail(request, theme)
        is_cut = detail.is_cut and not request.is_plan
        answers = _answers(request, is_cut=is_cut)
        whole = approval_lines(request, theme)
        letter = await self._input.choose(answers, lambda: screen.print_block(whole))
        again = [_title(request, theme), *_answer_lines(request, is_cut=is_cut)]
        while letter == "v":
            await self._view(detail.whole)
            letter = await self._input.choose(answers, lambda: screen.print_block(again))
        return letter

    async def _view(self, text: str) -> None:
        """All of it in the pager; where there is none, on the screen."""
        async with self._input.aside():
            paged = await asyncio.to_thread(page_text, f"{text}\n", self._user.cwd, os.environ)
        if not paged:
            self._screen.print_block(text.split("\n"))

    async def _write_down(self, rule: str) -> str:
        """Keep ``rule`` for every session; what became of it, as a line."""
        try:
            await self._user.add_rule("allow", rule)
        except (AgentError, OSError) as error:
            return f"Yes, for this session; the rule could not be written: {clean_line(str(error))}"
        return f"Yes, always: {rule_text(rule)} is in {reveal(str(self._user.config_file))}"

    async def _ask(self, question: str, options: Sequence[str]) -> str:
        screen, theme = self._screen, self._screen.theme
        lines = [theme.paint(f"? {line}", BOLD) for line in clean(question).strip().split("\n")]
        lines += [f"  {at} {clean_line(option)}" for at, option in enumerate(options, 1)]
        screen.print_block(lines)
        answer = await self._input.line("  Your answer: ")
        if answer is None:
            self._interrupt()
            return ""
        chosen = answer.strip()
        if chosen.isdecimal() and 1 <= int(chosen) <= len(options):
            return options[int(chosen) - 1]
        return chosen
