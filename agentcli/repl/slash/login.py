"""``/login``: keep the key of a provider without leaving the chat (SEC-9).

Law: the key is typed into ``agent auth login``, which has the terminal; the chat never sees it.
"""

from __future__ import annotations

from contextlib import suppress

from agentcli.domain.errors import ConfigError
from agentcli.repl.commands import Chat, SlashCommand, check_can_reload
from agentcli.repl.panel import PickRow
from agentcli.ui.sanitize import clean_line


async def _run(chat: Chat, arguments: str) -> None:
    check_can_reload(chat)
    provider = arguments.strip() or await _chosen(chat)
    if not provider or not await chat.log_in(provider):
        return
    before = chat.session.model.id
    await chat.reload()
    if chat.session.model.provider == "offline":
        with suppress(ConfigError):  # a provider of the user's own has no default model
            await chat.session.switch_model(provider)
    now = chat.session.model.id
    answers = "goes on answering" if now == before else "answers from now on"
    chat.show([f"{clean_line(now)} {answers}; /model changes that."])


async def _chosen(chat: Chat) -> str:
    providers = chat.sessions.providers_with_keys()
    if not chat.theme.live:
        chat.show([f"Store a key with /login PROVIDER: {', '.join(map(clean_line, providers))}"])
        return ""
    rows = [
        PickRow(clean_line(name), "has a key" if has else "") for name, has in providers.items()
    ]
    at = await chat.choose("Which provider's key do you have?", rows)
    return "" if at is None else list(providers)[at]


COMMAND = SlashCommand(
    "login",
    "store a provider's key",
    _run,
    "[PROVIDER]",
    completes=lambda chat: list(chat.sessions.providers_with_keys()),
)
