"""Where the tokens of the next request go (CMP-5). Looks and changes nothing.

Law: the parts add up to the whole: where the provider has reported the whole, each part is
scaled to it.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence

from agentcli.domain.extensions.instructions import documents_in, documents_of, framed
from agentcli.domain.messages import AssistantMessage, Message, ToolResult, Usage
from agentcli.domain.ports import cost_usd
from agentcli.domain.reports import ContextPart, ContextReport, HeavyResult
from agentcli.engine.context.window import FULL, of_text, of_tools
from agentcli.engine.conversation import Conversation

HEAVIEST = 5
_ABOUT_CHARS = 60

SYSTEM = "system prompt"
DOCUMENTS = "instructions"
TOOLS = "tool definitions"
SUMMARY = "summary"
USER = "your messages"
ASSISTANT = "answers and calls"
RESULTS = "tool results"


def report(conversation: Conversation) -> ContextReport:
    """The context as the next request would have it."""
    tools = conversation.parts.toolbox.definitions
    conversation.context.look(
        conversation.history, conversation.parts.system, tools, conversation.model
    )
    messages, sizes = conversation.history.messages, conversation.context.gauge.sizes
    given = tuple(documents_in(conversation.parts.system))
    documents = [of_text(framed([doc])) for doc in given]
    later = [(doc, of_text(framed([doc]))) for doc in documents_of(conversation.history.messages)]
    counted = {
        SYSTEM: [max(0, of_text(conversation.parts.system) - sum(documents))],
        DOCUMENTS: documents[:],
        TOOLS: [of_tools([tool]) for tool in tools],
        SUMMARY: [],
        USER: [],
        ASSISTANT: [],
        RESULTS: [],
    }
    for message, size in zip(messages, sizes, strict=True):
        counted[_kind(message)].append(size)
    whole = sum(map(sum, counted.values()))
    scale = conversation.context.used / whole if whole else 1.0
    window = conversation.context.window(conversation.model)
    return ContextReport(
        model=conversation.model.id,
        window=window,
        used=conversation.context.used,
        compacts_at=int(FULL * window),
        is_measured=conversation.context.gauge.is_measured,
        parts=tuple(
            ContextPart(name, round(sum(found) * scale), len(found))
            for name, found in counted.items()
            if found
        ),
        heaviest=_heaviest(conversation, messages, sizes, scale),
        left_out=len(conversation.context.pruner),
        instructions=(
            *((doc.name, size) for doc, size in zip(given, documents, strict=True)),
            *((doc.name, size) for doc, size in later),
        ),
    )


def _kind(message: Message) -> str:
    if isinstance(message, ToolResult):
        return RESULTS
    if isinstance(message, AssistantMessage):
        return ASSISTANT
    if message.is_instructions:
        return DOCUMENTS
    return SUMMARY if message.is_summary else USER


def _heaviest(
    conversation: Conversation, messages: Sequence[Message], sizes: Sequence[int], scale: float
) -> tuple[HeavyResult, ...]:
    """The results that cost most in every request."""
    results = [index for index, message in enumerate(messages) if isinstance(message, ToolResult)]
    chosen = heapq.nlargest(HEAVIEST, results, key=lambda index: sizes[index])
    about = _arguments(messages)
    found = []
    for index in chosen:
        message = messages[index]
        tokens = round(sizes[index] * scale)
        if isinstance(message, ToolResult) and tokens:
            again = cost_usd(conversation.model, Usage(0, 0, tokens, 0))
            left_out = conversation.context.pruner.left_out(message.call_id)
            line = about.get(message.call_id, "")
            found.append(HeavyResult(message.call_id, message.name, line, tokens, again, left_out))
    return tuple(found)


def _arguments(messages: Sequence[Message]) -> dict[str, str]:
    """What each call was about: its first argument that is a text, in a line."""
    found: dict[str, str] = {}
    for message in messages:
        for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
            texts = [value for value in call.arguments.values() if isinstance(value, str)]
            text = texts[0] if texts else json.dumps(call.arguments) if call.arguments else ""
            found[call.id] = " ".join(text[: 4 * _ABOUT_CHARS].split())[:_ABOUT_CHARS]
    return found
