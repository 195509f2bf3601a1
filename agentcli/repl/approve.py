"""Questions to the user while the agent works: approvals (SEC-6, UI-7) and ``ask_user``.

Law: what is shown is exactly what will run or change, with every invisible character spelt out;
where there is no room for all of it, it says so and all of it can be viewed; only a choice that was
confirmed is a yes. A question leaves one line, in the place of its own call.
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
from agentcli.repl.panel import Choice, Choices, PanelSubject, Picker, PickRow, wrapped
from agentcli.ui.diff import diff_lines, is_diff
from agentcli.ui.exact import (
    ExactText,
    bounded,
    cut_line,
    detail_of,
    exact_line,
    exact_lines,
    marked,
    rule_text,
    with_counted_runs,
)
from agentcli.ui.render import plan_lines
from agentcli.ui.rows import Row, fit_row, wrap_line
from agentcli.ui.sanitize import clean, clean_line, reveal
from agentcli.ui.screen import Screen
from agentcli.ui.theme import DIM, Theme

_T = TypeVar("_T")

_MAX_REASON = 400
_MAX_PAINTED = 300_000  # of a diff; a longer one is shown as it is
_MAX_TITLE = 300
_TITLE_COMMAND = 60
_BEGIN = 20  # characters by which arguments are known again
# what they show is a diff that we have made; any other text may only look like one
_SHOWN_AS_DIFF = frozenset({"apply_patch", "delete_file", "edit_file", "write_file"})
WAIT = "Wait, then go on by itself"
STOP = "Stop here"
_WAITS = frozenset({WAIT.lower(), "y", "yes", "wait", "ok"})
_AUTO = "yes, and do not ask for commands that stay in the sandbox (mode auto)"
_FOR_REASON = "waiting for your reason; Enter sends it, Esc goes back"
_FOR_RULE = "the rule; Enter keeps it, Esc goes back"


class ApprovalPanel(Choices):
    """What would run or change, why it asks, and the choices."""

    unseen = "r"

    def __init__(self, request: ApprovalRequest, theme: Theme) -> None:
        self.request = request
        self._theme = theme
        self._laid_out: tuple[int, list[Row], list[Row]] = (0, [], [])
        title, self._exact = _asked(request, theme)
        super().__init__(
            PanelSubject(
                title,
                lambda columns: self._rows(columns)[0],
                self._exact.is_cut,
                self._exact.size,
                lambda columns: self._rows(columns)[1],
            ),
            _choices(request),
            refusal="n",
            views=True,
            shows=reveal if request.is_plan else rule_text,
        )

    def _rows(self, columns: int) -> tuple[list[Row], list[Row]]:
        """Of what would run or change, and of what is said of it: where, and why it asks."""
        if self._laid_out[0] != columns:
            request, theme = self.request, self._theme
            lines = self._exact.lines
            end = len(lines) - min(_lines_told(request), len(lines))
            rows = [row for line in lines[:end] for row in self._wrapped(line, columns)]
            told = [row for line in lines[end:] for row in self._wrapped(line, columns)]
            if request.is_plan:
                plan = plan_lines(request.detail, theme, columns)
                rows = [row for line in plan for row in wrapped(line, columns, 2)]
            elif request.reason:
                why = exact_line(request.reason, _MAX_REASON)
                why = theme.paint(f"  Why it asks: {why}", DIM)
                told += [fit_row(row, columns) for row in marked(why, columns, theme)]
            self._laid_out = columns, rows, told
        return self._laid_out[1:]

    def _wrapped(self, line: str, columns: int) -> list[Row]:
        """Rows of a line; that one goes on is seen: another line would be another command."""
        if _is_shown_as_diff(self.request):  # it goes on below its code, as in the chat
            rows = wrap_line(line, columns, self._theme.symbols.wrap, exact=True)
        else:
            rows = marked(line, columns, self._theme)
        return [fit_row(row, columns) for row in rows]

    def paged(self, columns: int) -> list[str]:
        """All of it, for a pager that is as wide: a row that goes on a line is seen there, too."""
        lines = (f"  {line}".rstrip(" ") for line in self._exact.whole.split("\n"))
        return [row for line in lines for row in marked(line, columns, self._theme)]


def _lines_told(request: ApprovalRequest) -> int:
    """How many lines stand behind a command: where it would run, and what else is told of it."""
    told = request.beside_command.strip("\n")
    is_command = isinstance(request.call.arguments.get("command"), str)
    return 1 + len(exact_lines(told)) if told and is_command else 0


def _is_shown_as_diff(request: ApprovalRequest) -> bool:
    is_short = len(request.detail) <= _MAX_PAINTED
    return request.call.name in _SHOWN_AS_DIFF and is_short and is_diff(request.detail)


def _asked(request: ApprovalRequest, theme: Theme) -> tuple[str, ExactText]:
    """The title, and what is shown below it; what the title says in full is not said twice."""
    if request.is_plan:
        return "Carry out this plan?", ExactText((), reveal(request.detail))
    summary = exact_line(request.summary, _MAX_TITLE)
    detail = _detail(request, theme)
    command = request.call.arguments.get("command")
    if request.call.name == "bash" and isinstance(command, str):
        if (
            len(command) <= _TITLE_COMMAND
            and summary.count("Run ") == 1  # a task's name may say what looks like a command, too
            and command == exact_line(command)
            and (f"Run {command}" in summary or f"`{command}`" in summary)
        ):
            rest = list(detail.lines[1:])
            while rest and not rest[0].strip():
                del rest[0]
            return f"Allow this? {summary}", ExactText(tuple(rest), detail.whole, detail.is_cut)
        who, runs, _ = summary.partition("Run ")
        summary = f"{who if runs else ''}Run this command"
    return f"Allow this? {_without_arguments(summary, request.detail)}", detail


def _without_arguments(summary: str, detail: str) -> str:
    """``summary`` up to the arguments that ``detail`` begins with, as those of a server's tool."""
    if not detail.startswith("{"):
        return summary
    import json

    try:
        arguments, _ = json.JSONDecoder().raw_decode(detail)
    except ValueError:
        return summary
    begin = json.dumps(arguments, ensure_ascii=False)[:_BEGIN]
    return summary.partition(f" {begin}")[0]


def _choices(request: ApprovalRequest) -> list[Choice]:
    """The answers that are offered."""
    reason, view = Choice("r", "no, with a reason"), Choice("v", "view all of it")
    if request.is_plan:
        edits = [Choice("s", f"yes, and {reveal(offer.rule)}") for offer in request.offers[:1]]
        no = Choice("n", "no, keep planning")
        return [
            Choice("y", "yes; what changes something asks"),
            *edits,
            no,
            Choice("r", "no, with a reason"),
            view,
        ]
    session = tuple(offer.rule for offer in request.offers if offer.session)
    always = tuple(offer.rule for offer in request.offers if offer.always)
    found = [Choice("y", "yes, for this session" if request.per_session else "yes, once")]
    if session and not request.per_session:
        found.append(Choice("s", "yes, for this session", session))
    if always:
        found.append(Choice("a", "yes, always, in every session (saved in config.toml)", always))
    if request.offers_auto:
        found.append(Choice("m", _AUTO))
    return [*found, Choice("n", "no"), reason, view]


def _detail(request: ApprovalRequest, theme: Theme) -> ExactText:
    """What would run or change, as far as a screen can show it."""
    if not _is_shown_as_diff(request):
        detail = detail_of(request)
        lines = tuple(f"  {line}".rstrip(" ") for line in detail.lines)
        return ExactText(lines, detail.whole, detail.is_cut)
    spelt = [with_counted_runs(line) for line in request.detail.split("\n")]
    cut = [cut_line(line) for line in spelt]
    # escapes are not cut
    shown = bounded(
        diff_lines(
            "\n".join(cut), theme, named=exact_line(request.summary, _MAX_TITLE), exact=True
        ),
        sys.maxsize,
    )
    is_cut = shown.is_cut or cut != spelt
    return ExactText(shown.lines, reveal(request.detail), is_cut)


class Questions:
    """Satisfies ``library.AsksUser``. ``interrupt`` cancels the turn.

    ``on_answered`` gets the id of the call that asked, what it would do, and the line that
    remains. No pager is run from the workspace (SEC-2).
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
        self.on_answered: Callable[[str, str, str], None] = lambda *_: None

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
        panel = ApprovalPanel(request, self._screen.theme)
        while True:
            await self._input.choose(panel)
            if not panel.is_answered:
                return ApprovalAnswer(Verdict.NO)
            if panel.edits:
                await self._edit_rule(panel)
            elif panel.answer == "v":
                await self._view(panel)
            elif panel.answer == "r":
                reason = await self._input.line("No, because: ", panel, hint=_FOR_REASON)
                if reason is not None:
                    said = clean_line(reason.strip())
                    self._note(request, f"no: {said}" if said else "no")
                    return ApprovalAnswer(Verdict.NO, reason.strip())
            else:
                return await self._answer(request, panel.chosen)

    async def _answer(self, request: ApprovalRequest, choice: Choice) -> ApprovalAnswer:
        rule = choice.rule
        if choice.letter == "n":
            self._note(request, "no")
            return ApprovalAnswer(Verdict.NO)
        if choice.letter == "a":
            self._note(request, await self._write_down(rule))
            return ApprovalAnswer(Verdict.SESSION, rule=rule)
        if choice.letter == "m":
            self._note(request, _AUTO)
            return ApprovalAnswer(Verdict.AUTO)
        if choice.letter == "s":
            said = choice.text if request.is_plan else f"{choice.text}: {rule_text(rule)}"
            self._note(request, said)
            return ApprovalAnswer(Verdict.SESSION, rule=rule)
        self._note(request, "yes" if request.is_plan else choice.text)
        return ApprovalAnswer(Verdict.ONCE)

    def _note(self, request: ApprovalRequest, said: str) -> None:
        summary = exact_line(request.summary, _MAX_TITLE)
        if request.within:  # a sub-agent's: it stands with the call that runs the sub-agent
            said = f"{said} ({summary})"
        self.on_answered(request.within or request.call.id, summary, said)

    async def _edit_rule(self, panel: ApprovalPanel) -> None:
        """Let the user write the rule of the choice; one that cannot be used is not taken."""
        choice, written = panel.chosen, panel.chosen.rule
        while True:
            line = await self._input.line("Rule: ", panel, start=written, hint=_FOR_RULE)
            written = (line or "").strip()
            if not written:
                return
            try:
                rule = self._user.checked_rule(written)
                break
            except AgentError as error:
                self._screen.print_aside([clean_line(str(error))])
        choice.rules, choice.at = (rule, *(each for each in choice.rules if each != rule)), 0

    async def _view(self, panel: ApprovalPanel) -> None:
        """All of it in the pager; where there is none, on the screen.

        In a window that is made narrower meanwhile the pager marks what it cuts off (``-S``).
        """
        rows = await asyncio.to_thread(panel.paged, self._screen.columns)
        text, cwd = "\n".join((*rows, "")), self._user.cwd
        async with self._input.aside():
            paged = await asyncio.to_thread(page_text, text, cwd, os.environ, less="S")
        if not paged:
            self._screen.print_block(rows)

    async def _write_down(self, rule: str) -> str:
        """Keep ``rule`` for every session; what became of it, as a line."""
        try:
            await self._user.add_rule("allow", rule)
        except (AgentError, OSError) as error:
            return f"yes, for this session; the rule could not be written: {clean_line(str(error))}"
        return f"yes, always: {rule_text(rule)} is in {reveal(str(self._user.config_file))}"

    async def _ask(self, question: str, options: Sequence[str]) -> str:
        lines = [f"? {line}" for line in clean(question).strip().split("\n")]
        rows = [PickRow(clean_line(option)) for option in options]
        title = "Your answer:" if options else ""
        panel = Picker(title, rows, free="say", subject=lambda: lines)
        await self._input.choose(panel)
        if not options and panel.is_answered and not panel.said:
            panel.said = (await self._input.line("Your answer: ", panel) or "").strip()
            if not panel.said:
                self._interrupt()
        return panel.said if panel.answer is None else options[panel.answer]
