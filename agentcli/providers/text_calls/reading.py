"""A reply whose calls or thinking may stand in its text (STR-10, STR-11), and asking for such.

What is quoted is no call: words that already stand in a tool result or in what the user wrote are
not run because the model repeats them at the end of its answer. What is a call goes the way of
every call, through policy and approval.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

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
from agentcli.domain.patterns import LazyPattern
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
from agentcli.providers.text_calls.forms import FORMS, Form, NoCall, Offer, WrittenCall, read_calls

# Ollama says "does not support tools", vLLM "requires --enable-auto-tool-choice", llama.cpp "tools
# param requires --jinja flag", OpenRouter "No endpoints found that support tool use"
_NO_TOOLS = LazyPattern(
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


Reply = Callable[[ModelRequest, CancelToken], AsyncGenerator[StreamEvent, None]]


class TextReplies:
    """What one provider has learned about its models: those that refuse a list of tools."""

    def __init__(self) -> None:
        self._refusing: set[str] = set()

    async def read(
        self, reply: Reply, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The reply to ``request`` with calls and thinking in their place; one attempt."""
        protocol, name = request.model.tool_protocol, request.model.name
        as_text = protocol is ToolProtocol.TEXT
        if protocol is ToolProtocol.AUTO:
            as_text = name in self._refusing
        if not as_text:
            has_begun = False
            try:
                async with aclosing(_read(reply, request, cancel)) as events:
                    async for event in events:
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
        async with aclosing(_read(reply, request, cancel, as_text=True)) as events:
            async for event in events:
                yield event


def _refuses_tools(error: ProviderError) -> bool:
    return error.kind not in _NEVER_ABOUT_TOOLS and bool(_NO_TOOLS.search(error.message))


async def _read(
    reply: Reply, request: ModelRequest, cancel: CancelToken, *, as_text: bool = False
) -> AsyncGenerator[StreamEvent, None]:
    reading = ReplyReading(request, as_text=as_text)
    try:
        async with aclosing(reply(textual(request) if as_text else request, cancel)) as events:
            async for event in events:
                for one in reading.take(event):
                    yield one
    except ProviderError:
        for one in reading.rest():
            yield one
        raise
    for one in reading.rest():
        yield one


class ReplyReading:
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
        out: list[StreamEvent] = []
        for _ in range(_MOST_CLOSERS):
            at, closer = min(
                ((text.find(word), word) for word in LONE_CLOSERS if word in text),
                default=(len(text) - begun(text, LONE_CLOSERS), ""),
            )
            out += self._text(self._scan.feed(text[:at]))
            self._tail = text[at + len(closer) :]
            if not closer:
                return out
            if not self._scan.is_within_code:
                return [*out, *self._was_thinking()]
            out += self._text(self._scan.feed(closer))
            text, self._tail = self._tail, ""
        self._may_have_thought = False
        return [*out, *self._text(self._scan.feed(text))]

    def _was_thinking(self) -> list[StreamEvent]:
        """All that came before was thinking; what is left of the text is the answer."""
        self._may_have_thought = False
        out = self._text(self._scan.give_up())
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


# --- text as it comes ------------------------------------------------------------------------

# Law: text is held back only while it may be the start of a form; it is handed out once, whole and
# in order, or becomes calls. Within a code block, inline code or a quote nothing is a form.

# A longer text is looked at again when it has grown by a quarter: the work stays linear.
_SMALL = 2_048
# characters around what begins like a call, over all of a reply: more of it is text (SEC-13)
_MOST_LOOKED_AT = 50_000_000
_MAX_HELD = 4_000_000
_MOST_CLOSERS = (
    100  # of thinking, within code and in one piece of text: then no more are looked for
)
_FENCE = LazyPattern(r"\s*(`{3,}|~{3,})")
_CODE_INDENT = 4

# (opening, closing): Qwen, DeepSeek, GLM, Kimi and many others; Magistral; Command A; Seed; Kimi-VL
_THINKING = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
)
LONE_CLOSERS = ("</think>", "[/THINK]", "</seed:think>", "◁/think▷")
"""What ends thinking whose beginning stands in the prompt, for templates that put it there."""


def begun(text: str, words: Iterable[str]) -> int:
    """How many of the last characters of ``text`` may be the start of one of ``words``."""
    longest = 0
    for word in words:
        for size in range(min(len(word) - 1, len(text)), longest, -1):
            if text.endswith(word[:size]):
                longest = size
                break
    return longest


class ThinkingSplit:
    """Splits thinking off the start of a reply's text (STR-11)."""

    def __init__(self) -> None:
        self._held = ""
        self._closer = ""
        self._has_thought = False
        self._is_answer = False

    def feed(self, text: str) -> tuple[str, str]:
        """Thinking and answer that ``text`` brings; thinking comes first."""
        if self._is_answer:
            return "", text
        self._held += text
        thinking = ""
        while not self._is_answer:
            if self._closer:
                before, closer, after = self._held.partition(self._closer)
                if not closer:
                    keep = begun(self._held, (self._closer,))
                    cut = len(self._held) - keep
                    thinking += self._held[:cut]
                    self._held = self._held[cut:]
                    return thinking, ""
                thinking += before
                self._held, self._closer, self._has_thought = after, "", True
            start = self._held.lstrip()
            pair = next((pair for pair in _THINKING if start.startswith(pair[0])), None)
            if pair is not None:
                self._held, self._closer = start[len(pair[0]) :], pair[1]
            elif len(self._held) < _SMALL and any(pair[0].startswith(start) for pair in _THINKING):
                return thinking, ""
            else:
                self._is_answer = True
        return thinking, self._rest()

    def finish(self) -> tuple[str, str]:
        """What was held back: thinking that was not closed, or text."""
        return (self._held, "") if self._closer else ("", self._rest())

    def _rest(self) -> str:
        held, self._held = self._held, ""
        return held.lstrip() if self._has_thought else held


class CallScan:
    """Finds the calls that end a reply. ``as_asked``: the prompt has asked for calls as text."""

    def __init__(
        self, tools: Mapping[str, Mapping[str, Any]], *, as_asked: bool, is_off: bool = False
    ) -> None:
        self._tools = tools
        self._as_asked = as_asked
        self._is_off = is_off or not tools
        self._all = tuple(form for form in FORMS if as_asked or not form.asked)
        self._choose(self._all)
        self._held = ""
        self._is_candidate = False
        self._next_look = self._opener_size = self._looked_at = 0
        self._line = ""
        self._fence = ""
        self._has_text = False

    @property
    def is_within_code(self) -> bool:
        """Whether what comes next stands in a code block, in inline code or in a quote."""
        line = self._line
        return bool(
            self._fence
            or line.count("`") % 2
            or line.lstrip().startswith(">")
            or (line and not line.strip() and len(line.expandtabs(4)) >= _CODE_INDENT)
        )

    def feed(self, text: str) -> str:
        """The text that is surely no call."""
        self._held += text
        if self._is_off:
            return self.give_up()
        return self._scan(last=False, cut=False)[0]

    def finish(self, *, cut: bool) -> tuple[str, list[WrittenCall], str]:
        """The rest: text, and the calls that end the reply with what was written for them."""
        if self._is_off:
            return self.give_up(), [], ""
        return self._scan(last=True, cut=cut)

    def give_up(self) -> str:
        """All that is held back, as text; nothing is looked for any more."""
        self._is_off = True
        self._is_candidate = False
        return self._release(len(self._held))

    def _choose(self, forms: tuple[Form, ...]) -> None:
        self._forms = forms
        openers = sorted({form.opener for form in forms}, key=len, reverse=True)
        self._openers = tuple(openers)
        self._pattern = LazyPattern("|".join(map(re.escape, openers)))

    def _scan(self, *, last: bool, cut: bool) -> tuple[str, list[WrittenCall], str]:
        out: list[str] = []
        offer = Offer(self._tools, last, cut)
        while self._held:
            if self._is_candidate:
                if not last and len(self._held) < self._next_look:
                    break
                try:
                    calls = self._read(offer)
                except NoCall:
                    self._is_candidate = False
                    out.append(self._release(self._opener_size))
                    continue
                if last and calls:
                    held, self._held = self._held, ""
                    return "".join(out), calls, held
                size = len(self._held)
                self._next_look = size + 1 if size < _SMALL else size * 5 // 4
                break
            if self._has_text and not self._as_asked and len(self._forms) == len(self._all):
                self._choose(tuple(form for form in self._all if not form.at_start))
            found = self._pattern.search(self._held)
            if found is None:
                keep = 0 if last else begun(self._held, self._openers)
                out.append(self._release(len(self._held) - keep))
                break
            out.append(self._release(found.start()))
            self._opener_size = len(found[0])
            self._looked_at += len(self._held) + len(self._line)
            if self._looked_at > _MOST_LOOKED_AT:
                out.append(self.give_up())
                break
            if self._may_begin(found[0]):
                self._is_candidate, self._next_look = True, 0
            else:
                out.append(self._release(self._opener_size))
        return "".join(out), [], ""

    def _read(self, offer: Offer) -> list[WrittenCall] | None:
        if len(self._held) > _MAX_HELD:
            raise NoCall
        calls = read_calls(self._held, self._forms, offer)
        if offer.last and not calls:
            raise NoCall
        return calls

    def _may_begin(self, opener: str) -> bool:
        if self.is_within_code:
            return False
        if any(form.at_start for form in self._forms if form.opener == opener):
            return not self._line.strip() if self._as_asked else not self._has_text
        return True

    def _release(self, size: int) -> str:
        """The first ``size`` characters of what is held; keeps track of lines and fences."""
        text, self._held = self._held[:size], self._held[size:]
        self._has_text = self._has_text or bool(text.strip())
        *whole, rest = text.split("\n")
        for line in whole:
            self._end_line(self._line + line)
            self._line = ""
        self._line += rest
        return text

    def _end_line(self, line: str) -> None:
        found = _FENCE.match(line)
        if found is None:
            return
        mark = found[1]
        if not self._fence:
            self._fence = mark
        elif mark.startswith(self._fence) and not line[found.end() :].strip():
            self._fence = ""


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
