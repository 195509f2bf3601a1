"""``/model``: see or change who answers."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line


async def _run(chat: Chat, arguments: str) -> None:
    if arguments:
        provider = chat.sessions.lacks_key(arguments)
        if provider:
            present = chat.session.model.id
            raise UsageError(
                f"{provider} has no key here; {present} goes on answering",
                f"store one in another terminal: agent auth login {provider}",
            )
        model = await chat.session.switch_model(arguments)
        chat.show([f"{clean_line(model.id)} answers from now on."])
        return
    current = chat.session.model.id
    lines = [f"Model: {clean_line(current)}"]
    others = [name for name in chat.sessions.known_models() if name != current]
    if others:
        lines += ["Others:", *(f"  {clean_line(name)}" for name in others)]
    chat.show([*lines, "Change it with /model provider/model"])


COMMAND = SlashCommand("model", "see or change the model", _run, "[provider/model]")
