"""A reply whose calls or thinking may stand in its text (STR-10, STR-11), and asking for such.

What is quoted is no call: words that already stand in a tool result or in what the user wrote are
not run because the model repeats them at the end of its answer. What is a call goes the way of
every call, through policy and approval.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    StopReason,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ModelRequest, ToolProtocol
from agentcli.domain.stream import (
    ProviderNote,
    StreamEnd,
    StreamEvent,
    TextDelta,
    TextWasThinking,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
)
from agentcli.providers._base import HttpProvider
from agentcli.providers.text_calls.scan import LONE_CLOSERS, CallScan, ThinkingSplit, begun

# Ollama says "does not support tools", vLLM "requires --enable-auto-tool-choice", llama.cpp "tools
# param requires --jinja flag", OpenRouter "No endpoints found that support tool use"
_NO_TOOLS = re.compile(
    r"(?:tool|function)(?:s|_choice|[ _-]?(?:use|call(?:s|ing)?|choice|list))?\b[^.]{0,60}?"
    r"\b(?:not (?:be )?(?:supported|allowed|permitted|enabled|available)|unsupported|requires? --"
    r"|unrecognized|unexpected)"
    r"|(?:not support|unsupported|no endpoints found that support|unrecognized|unexpected)"
    r"[^.]{0,60}?\b(?:tool|function[ _-]?call)",
    re.IGNORECASE,
)
_NEVER_ABOUT_TOOLS = frozenset(
    {ErrorKind.AUTH, ErrorKind.RATE_LIMIT, ErrorKind.CONTEXT_OVERFLOW, ErrorKind.OVERLOADED}
)
_ASK = """

# Tools
You can call these tools. Each line is one tool with the JSON schema of its arguments:
<tools>
{tools}
</tools>
To call a tool, end your reply with a call of exactly this form, and wait for its result:
<tool_call>
{{"name": "the tool", "arguments": {{"argument": "value"}}}}
</tool_call>
For several calls write several such blocks, one after the other, and nothing after them. \
Results come back in <tool_response> blocks; never write those yourself."""


class TextReplies:
    """What one provider has learned about its models: those that refuse a list of tools."""

    def __init__(self) -> None:
        self._refusing: set[str] = set()

    async def read(
        self, provider: HttpProvider, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The reply to ``request`` with calls and thinking in their place; one attempt."""
        protocol, name = request.model.tool_protocol, request.model.name
        as_text = protocol is ToolProtocol.TEXT
        if protocol is ToolProtocol.AUTO:
            as_text = name in self._refusing
        if not as_text:
            has_begun = False
            try:
                async for event in _read(provider.reply(request, cancel), request, as_text=False):
                    has_begun = True
                    yield event
            except ProviderError as error:
                fits = protocol is ToolProtocol.AUTO and bool(request.tools) and not has_begun
                if not fits or not _refuses_tools(error):
                    raise
            else:
                return
            self._refusing.add(name)
            yield ProviderNote(
                f"{name} takes no list of tools here: its tools are described in words"
                ' (to choose: tool_protocol = "text")'
            )
        plain = textual(request)
        async for event in _read(provider.reply(plain, cancel), request, as_text=True):
            yield event


def _refuses_tools(error: ProviderError) -> bool:
    return error.kind not in _NEVER_ABOUT_TOOLS and bool(_NO_TOOLS.search(error.message))


async def _read(
    events: AsyncIterator[StreamEvent], request: ModelRequest, *, as_text: bool
) -> AsyncGenerator[StreamEvent, None]:
    reading = Reading(request, as_text=as_text)
    try:
        async for event in events:
            for one in reading.take(event):
                yield one
    except ProviderError:
        for one in reading.rest():
            yield one
        raise
    for one in reading.rest():
        yield one


class Reading:
    """Turns the events of one reply into those that it means; pure."""

    def __init__(self, request: ModelRequest, *, as_text: bool) -> None:
        self._request = request
        self._as_text = as_text
        self._split = ThinkingSplit()
        self._scan = self._new_scan(is_off=request.model.tool_protocol is ToolProtocol.NATIVE)
        self._blocks: dict[tuple[type, int], int] = {}
        self._text_index = 0
        self._tail = ""
        self._may_have_thought = True
        self._has_ended = self._is_answer_due = False
        self._count = 0

    def _new_scan(self, *, is_off: bool) -> CallScan:
        tools = {tool.name: tool.parameters for tool in self._request.tools}
        return CallScan(tools, as_asked=self._as_text, is_off=is_off)

    def take(self, event: StreamEvent) -> list[StreamEvent]:
        """What ``event`` means for the reply."""
        if isinstance(event, TextDelta):
            self._text_index = event.index
            thinking, text = self._split.feed(event.text)
            # what is held back is a sign of life too
            return self._spoken(thinking, text) or [TextDelta(self._block(TextDelta), "")]
        if isinstance(event, ToolCallStart):
            self._may_have_thought = False
            held = [*self._held_text(), *self._text(self._scan.give_up())]
            return [*held, replace(event, index=self._block(ToolCallStart, event.index))]
        if isinstance(event, ToolCallDelta):
            return [replace(event, index=self._block(ToolCallStart, event.index))]
        if isinstance(event, ThinkingDelta | ThinkingSeal):
            self._may_have_thought = False
            return [replace(event, index=self._block(ThinkingDelta, event.index))]
        if isinstance(event, StreamEnd):
            return self._end(event)
        return [event]

    def rest(self) -> list[StreamEvent]:
        """What is held back of a reply that has broken off."""
        if self._has_ended:
            return []
        return [*self._held_text(), *self._text(self._scan.give_up())]

    def _end(self, event: StreamEnd) -> list[StreamEvent]:
        self._has_ended = True
        out = self._held_text()
        if event.stop_reason is StopReason.REFUSAL:
            return [*out, *self._text(self._scan.give_up()), event]
        cut = event.stop_reason is StopReason.MAX_TOKENS
        text, calls, written = self._scan.finish(cut=cut)
        out += self._text(text)
        if calls and self._is_quoted(written):
            out += self._text(written)
            calls = []
        for call in calls:
            index = self._new_block()
            out += [ToolCallStart(index, "", call.name), ToolCallDelta(index, call.arguments)]
        stop = StopReason.TOOL_USE if calls and not cut else event.stop_reason
        return [*out, StreamEnd(stop)]

    def _held_text(self) -> list[StreamEvent]:
        """What the split of thinking and the look-out for a lone closer hold back."""
        thinking, text = self._split.finish()
        out = self._spoken(thinking, text)
        tail, self._tail = self._tail, ""
        return [*out, *self._text(self._scan.feed(tail))]

    def _spoken(self, thinking: str, text: str) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if thinking:
            self._may_have_thought = False
            out.append(ThinkingDelta(self._block(ThinkingDelta), thinking))
        if self._is_answer_due:
            text = text.lstrip()
            self._is_answer_due = not text
        if text and not self._may_have_thought:
            out += self._text(self._scan.feed(self._tail + text))
            self._tail = ""
        elif text:
            out += self._before_closer(self._tail + text)
        return out

    def _before_closer(self, text: str) -> list[StreamEvent]:
        """``text``, unless it ends thinking whose beginning was not sent."""
        at, closer = min(
            ((text.find(word), word) for word in LONE_CLOSERS if word in text),
            default=(len(text) - begun(text, LONE_CLOSERS), ""),
        )
        out = self._text(self._scan.feed(text[:at]))
        self._tail = text[at + len(closer) :]
        if not closer:
            return out
        if self._scan.is_within_code:
            out += self._text(self._scan.feed(closer))
            rest, self._tail = self._tail, ""
            return [*out, *self._before_closer(rest)]
        self._may_have_thought = False
        out += self._text(self._scan.give_up())
        block = self._blocks.pop((TextDelta, self._text_index), None)
        if block is not None:
            out.append(TextWasThinking(block))
        self._scan = self._new_scan(is_off=self._request.model.tool_protocol is ToolProtocol.NATIVE)
        answer, self._tail = self._tail.lstrip(), ""
        self._is_answer_due = not answer
        return [*out, *self._text(self._scan.feed(answer))]

    def _text(self, text: str) -> list[StreamEvent]:
        return [TextDelta(self._block(TextDelta), text)] if text else []

    def _block(self, kind: type, index: int | None = None) -> int:
        """The block of ours for a block of the reply: what was one may have become two."""
        key = (kind, self._text_index if index is None else index)
        if key not in self._blocks:
            self._blocks[key] = self._new_block()
        return self._blocks[key]

    def _new_block(self) -> int:
        self._count += 1
        return self._count - 1

    def _is_quoted(self, written: str) -> bool:
        """Whether the call stands word for word in what the model was given to read."""
        words = "".join(written.split())
        given = (
            message.text
            for message in self._request.messages
            if isinstance(message, ToolResult | UserMessage)
        )
        return any(words in "".join(text.split()) for text in given)


# --- asking in words ------------------------------------------------------------------------


def textual(request: ModelRequest) -> ModelRequest:
    """``request`` for a server that takes no tools: described in words, results as text."""
    system = request.system
    if request.tools:
        lines = (
            json.dumps(
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
                ensure_ascii=False,
            )
            for tool in request.tools
        )
        system += _ASK.format(tools="\n".join(lines))
        if request.tool_choice:
            named = "a tool" if request.tool_choice == "*" else request.tool_choice
            system += f"\nYour next reply has to call {named}."
    messages = tuple(_as_text(message) for message in request.messages)
    return replace(request, system=system, messages=messages, tools=(), tool_choice="")


def _as_text(message: Message) -> Message:
    if isinstance(message, ToolResult):
        # a result cannot end its own block
        text = message.text.replace("</tool_response", "<\\/tool_response")
        images = [part for part in message.parts if isinstance(part, ImagePart)]
        status = "" if message.status.value == "ok" else f' status="{message.status.value}"'
        block = f'<tool_response name="{message.name}"{status}>\n{text}\n</tool_response>'
        return UserMessage((TextPart(block), *images))
    if isinstance(message, AssistantMessage) and message.tool_calls:
        return replace(
            message,
            parts=tuple(
                TextPart(_written(part)) if isinstance(part, ToolCall) else part
                for part in message.parts
            ),
        )
    return message


def _written(call: ToolCall) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    name = json.dumps(call.name)
    return f'\n<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>\n'
