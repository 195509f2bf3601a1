"""``/permissions``: what runs without asking, and why; change the mode and the rules (SEC-3)."""

from __future__ import annotations

from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.ports import PermissionMode
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui.exact import exact_line, explanation_lines, rule_text
from agentcli.ui.sanitize import clean_line, reveal
from agentcli.ui.theme import BOLD, DIM, WARNING

_MODES = {
    PermissionMode.DEFAULT: "reading in the workspace is free, everything else asks",
    PermissionMode.ACCEPT_EDITS: "edits in the workspace are free as well",
    PermissionMode.AUTO: "commands in the sandbox and edits in the workspace are free",
    PermissionMode.PLAN: "it reads and plans; nothing is changed",
    PermissionMode.YOLO: "only protected places, destructive commands and your rules ask",
}
_YOLO_TWICE = "only protected places and your rules ask, destructive commands run"
_KINDS = {"allow": "run without asking", "ask": "always ask", "deny": "never run"}


async def _run(chat: Chat, arguments: str) -> None:
    word, _, rest = arguments.strip().partition(" ")
    rest = rest.strip()
    if not word and chat.theme.live:
        await _choose_mode(chat)
    elif not word:
        chat.show(_overview(chat))
    elif word == "explain" and rest:
        chat.show(explanation_lines(await chat.session.explain(rest), chat.theme))
    elif word in _KINDS and rest:
        await _add(chat, word, rest)
    elif word == "remove" and rest:
        await _remove(chat, rest)
    elif word in {*_KINDS, "remove", "explain"}:
        example = "npm test" if word == "explain" else "bash(npm test)"
        raise UsageError(f"/permissions {word} of what?", f"for example: {word} {example}")
    else:
        _set_mode(chat, arguments.strip().lower())


async def _choose_mode(chat: Chat) -> None:
    """The rules, then the modes to choose from."""
    if rules := _rule_lines(chat):
        chat.show(rules[1:])
    modes = list(_MODES)
    rows = [PickRow(mode.value, _what(chat, mode)) for mode in modes]
    at = await chat.choose("Which permission mode?", rows, modes.index(chat.session.mode))
    if at is not None:
        _set_mode(chat, modes[at])


def _set_mode(chat: Chat, name: str) -> None:
    try:
        mode = PermissionMode(name)
    except ValueError:
        names = ", ".join([*(mode.value for mode in PermissionMode), *_KINDS, "remove", "explain"])
        raise UsageError(f"there is no mode {reveal(name)!r}", f"use one of: {names}") from None
    chat.session.set_mode(mode)
    line = f"Permission mode {mode}: {_what(chat, mode)}."
    chat.show([chat.theme.paint(line, WARNING) if mode is PermissionMode.YOLO else line])


def _what(chat: Chat, mode: PermissionMode) -> str:
    is_twice = mode is PermissionMode.YOLO and chat.session.policy.yolo_twice
    return _YOLO_TWICE if is_twice else _MODES[mode]


async def _add(chat: Chat, kind: str, rule: str) -> None:
    """In force at once, and written down for the sessions to come."""
    file = chat.user.config_file
    chat.session.policy.add_rules(kind, [rule], str(file))
    said = f"{rule_text(rule)}: calls that it covers {_KINDS[kind]} from now on"
    try:
        await chat.user.add_rule(kind, rule)
    except (AgentError, OSError) as error:
        chat.session.policy.unwritten.append((kind, rule))
        chat.show([f"{said}, in this session: it could not be written: {clean_line(str(error))}"])
        return
    chat.show([f"{said}. It is in {reveal(str(file))}"])


async def _remove(chat: Chat, rule: str) -> None:
    """Gone at once; from the user's file too, if it is there."""
    user = chat.user
    written = await user.remove_rule(rule)
    if not chat.session.policy.remove_rule(rule) and not written:
        raise UsageError(f"there is no rule {reveal(rule)}", "/permissions lists them")
    where = f"from {user.config_file}" if written else "for this session only"
    chat.show([f"{rule_text(rule)} is removed {reveal(where)}."])


def _overview(chat: Chat) -> list[str]:
    session, paint = chat.session, chat.theme.paint
    lines: list[str] = []
    for mode in _MODES:
        here, what = mode is session.mode, _what(chat, mode)
        lines.append(paint(f"{'>' if here else ' '} {mode:<13} {what}", BOLD if here else 0))
    lines += _rule_lines(chat)
    how = "MODE, allow|ask|deny RULE, remove RULE, explain COMMAND; Shift-Tab changes the mode."
    return [*lines, paint(f"/permissions {how}", DIM)]


def _rule_lines(chat: Chat) -> list[str]:
    """The rules and where they come from; the sandbox."""
    session, paint = chat.session, chat.theme.paint
    lines: list[str] = []
    rules = session.policy
    groups = (
        (_KINDS["deny"], rules.deny),
        (_KINDS["ask"], rules.ask),
        (_KINDS["allow"], rules.allow),
        ("Allowed for this session", rules.granted),
    )
    for name, found in groups:
        if found:
            lines += ["", paint(name if name[0] == "A" else f"These {name}:", BOLD)]
            for rule in found:
                place = f"in {rule.directory}" if rule.directory is not None else rule.source
                parts = (place, "in the sandbox" if rule.is_inside else "")
                source = ", ".join(filter(None, parts))
                note = paint(f"  - {reveal(source)}", DIM) if source else ""
                lines.append(f"  {exact_line(str(rule), 400)}{note}")
    if session.sandbox is not None and session.boundary:
        is_in = session.boundary == "sandbox"
        kind = f"in a sandbox ({session.sandbox.state.kind})" if is_in else "without a sandbox"
        lines += ["", f"Commands run {kind}; see /sandbox."]
    return lines


COMMAND = SlashCommand(
    "permissions",
    "what runs without asking and why; change the mode and the rules",
    _run,
    "[MODE | allow|ask|deny|remove RULE | explain COMMAND]",
    while_working=True,
    completes=lambda _: (*_MODES, *_KINDS, "remove", "explain"),
)
