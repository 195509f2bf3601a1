"""``/compact``: summarise what is old, now; ``/compact undo`` takes it back (CMP-3, CMP-4)."""

from __future__ import annotations

from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import Compacted
from agentcli.repl.commands import Chat, SlashCommand

NOTHING = "There is nothing to summarise yet: the last turn always stays word for word."
_UNDONE = "The summary was taken back: the conversation is whole again."
_NOTHING_TO_UNDO = "There is no summary to take back."


async def _run(chat: Chat, arguments: str) -> None:
    if arguments.strip().lower() == "undo":
        chat.show([_UNDONE if await chat.session.undo_compaction() else _NOTHING_TO_UNDO])
        return
    ended = False

    async def compact(token: CancelToken) -> Compacted | None:
        nonlocal ended
        done = await chat.session.compact(arguments.strip(), token)
        ended = True
        return done

    done = await chat.work(compact, "Summarising the conversation")
    if done is not None:
        from agentcli.ui.session_lines import compacted_lines

        chat.show(compacted_lines(done, chat.theme))
    elif ended:
        chat.show([NOTHING])


COMMAND = SlashCommand(
    "compact", "summarise what is old; undo takes it back", _run, "[WHAT TO KEEP|undo]"
)
