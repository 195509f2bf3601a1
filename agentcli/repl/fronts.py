"""Which front a terminal gets."""

from __future__ import annotations

from agentcli.app.library import UserFiles
from agentcli.repl import _slash_registry as registry
from agentcli.repl.completion import ChatCompleter
from agentcli.repl.front import Actions, Front
from agentcli.repl.prompts import Prompts
from agentcli.repl.session_facts import SessionFacts
from agentcli.repl.terminal import Terminal
from agentcli.repl.turn_view import TurnView


def make_front(
    terminal: Terminal, view: TurnView, actions: Actions, facts: SessionFacts, user: UserFiles
) -> Front:
    """The live input where the terminal can show it, else line by line."""
    completer = ChatCompleter(registry.helps, user.cwd)
    prompts = Prompts(user.history_file, user.redact)
    if not terminal.theme.live:
        from agentcli.repl.line_front import LineFront

        return LineFront(terminal, view, actions, completer, prompts)
    from agentcli.repl.live_front import LiveFront, Typing
    from agentcli.repl.live_region import Shown
    from agentcli.repl.prompt import prompt_history

    typing = Typing(
        completer=completer,
        history=prompt_history(prompts),
        vi=user.settings.editing_mode == "vi",
        cwd=user.cwd,
        keys=user.settings.chat_keys,
        images=None if user.history_file is None else user.history_file.parent / "images",
    )
    return LiveFront(terminal, view, actions, Shown(facts.status, facts.queue), typing)
