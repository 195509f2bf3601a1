"""``/model``: see or change who answers."""

from __future__ import annotations

from collections.abc import Sequence

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import ModelInfo
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line


async def _run(chat: Chat, arguments: str) -> None:
    name = arguments
    if not name or (chat.theme.live and not _is_exact(chat, name)):
        name = await _chosen(chat, name)
    if name:
        await _switch(chat, name)


async def _switch(chat: Chat, name: str) -> None:
    provider = chat.sessions.lacks_key(name)
    if provider:
        present = chat.session.model.id
        raise UsageError(
            f"{provider} has no key here; {present} goes on answering",
            f"store one with /login {provider}",
        )
    model = await chat.session.switch_model(name)
    chat.show([f"{clean_line(model.id)} answers from now on."])


def _is_exact(chat: Chat, name: str) -> bool:
    """A whole name, which may be one that no table knows; or one that nothing is like."""
    ids = [info.id for info, _ in chat.sessions.known_models()]
    return (
        "/" in name
        or any(name in {each, each.partition("/")[2]} for each in ids)
        or not any(_fits(each, name) for each in ids)
    )


def _fits(model_id: str, words: str) -> bool:
    return all(word in model_id for word in words.lower().split())


async def _chosen(chat: Chat, words: str) -> str:
    """The model that the user picks among those that hold ``words``; the only one is it."""
    current = chat.session.model.id
    models = [each for each in chat.sessions.known_models() if _fits(each[0].id, words)]
    if words and len(models) == 1:
        return models[0][0].id
    if not chat.theme.live:
        ready = [info.id for info, is_ready in models if is_ready and info.id != current]
        lines = [f"Model: {clean_line(current)}", "Ready:", *(f"  {name}" for name in ready)]
        rest = len(models) - len(ready) - 1
        more = f" ({rest} more have no key here: agent models)" if rest > 0 else ""
        chat.show([*lines, f"Change it with /model provider/model{more}"])
        return ""
    at = await chat.choose("Which model answers?", _rows(models, current), _place(models, current))
    return "" if at is None else models[at][0].id


def _rows(models: Sequence[tuple[ModelInfo, bool]], current: str) -> list[PickRow]:
    rows = []
    for info, is_ready in models:
        ready = "now" if info.id == current else "ready" if is_ready else "no key"
        window = f"{wording.count(info.context_tokens)} window"
        rows.append(PickRow(clean_line(info.id), f"{ready} · {_price(info)} · {window}"))
    return rows


def _place(models: Sequence[tuple[ModelInfo, bool]], current: str) -> int:
    return next((at for at, (info, _) in enumerate(models) if info.id == current), 0)


def _price(info: ModelInfo) -> str:
    if info.input_price is None or info.output_price is None:
        return "price unknown"
    return f"${info.input_price:g}/${info.output_price:g} per M"


def _names(chat: Chat) -> Sequence[str]:
    return [info.id for info, _ in chat.sessions.known_models()]


COMMAND = SlashCommand(
    "model", "see or change the model", _run, "[provider/model]", completes=_names
)
