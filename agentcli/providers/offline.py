"""The assistant that is built in: a few fixed rules, no language model, no network.

It answers when there is no key and no local model, so that the program can be tried at once. Law:
it says what it is; what it understands goes through the same loop, tools, approvals and store as
a model's calls; the same request gets the same answer as long as the same programs are
there.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from typing import Any

from agentcli.domain.cancel import CancelToken
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ResultStatus,
    StopReason,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import ModelRequest, ProviderConfig
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)

WHAT_IT_IS = "I am the offline assistant: a few fixed rules, not a language model."
_READ, _LIST, _SEARCH = "read FILE", "list files [in DIR]", "search for TEXT [in DIR]"
_RUN, _EDIT, _WRITE = "run COMMAND", "edit FILE: replace OLD with NEW", "write FILE: CONTENT"
_FORMS = (_READ, _LIST, _SEARCH, _RUN, _EDIT, _WRITE)
A_REAL_ONE = (
    "For a real model: `agent auth login`, in the chat /login (or set ANTHROPIC_API_KEY,"
    " OPENAI_API_KEY, GEMINI_API_KEY, ...), or start Ollama: `ollama pull qwen3`, then"
    " `agent -m ollama/qwen3`."
)
HELP = "\n".join(
    [f"{WHAT_IT_IS} I understand:", "", *(f"- {form}" for form in _FORMS), "", A_REAL_ONE]
)
# the words that say what somebody is after, by the form that comes nearest
_NEAR = {
    _SEARCH: re.compile("search|find|where|grep|which|who|uses|look"),
    _RUN: re.compile("run|tests?|build|install|start|execute|compile|lint|deploy|commit"),
    _EDIT: re.compile("edit|change|fix|replace|rename|refactor|update|add|remove|delete"),
    _WRITE: re.compile("write|create|make|new|generate|save"),
    _LIST: re.compile("list|ls|files|directory|folders?|tree|what"),
    _READ: re.compile("read|show|open|view|cat|print|explain|summari[sz]e|describe"),
}
_GREETING = LazyPattern(
    r"(?:hi|hello|hey|help|\?|what can you do|who are you|what are you)[\s,.!?]*", re.IGNORECASE
)
# what bash knows by itself, so that it is on no PATH
_BUILTINS = LazyPattern(
    "alias|bg|break|case|cd|command|continue|declare|dirs|do|done|echo|elif|else|enable|esac|eval"
    "|exec|exit|export|false|fg|fi|for|function|getopts|hash|help|history|if|in|jobs|kill|let|local"
    "|logout|mapfile|popd|printf|pushd|pwd|read|readonly|return|select|set|shift|shopt|source|test"
    "|then|time|times|trap|true|type|typeset|ulimit|umask|unalias|unset|until|wait|while"
)
_ASSIGNMENTS = LazyPattern(r"(?:[A-Za-z_]\w*=\S*\s+)*")
_MAX_NAMED = 80
_MAX_SHOWN_LINES = 20
_MAX_SHOWN_CHARACTERS = 1_500
_SPECIAL = LazyPattern(r"[\\.^$*+?{}\[\]|()]")
_REMARK = LazyPattern(r"(?:\(.*\))?", re.DOTALL)
_WORD = LazyPattern(r"\s*\S+\s*")
_POLITE = LazyPattern(
    r"^(?:(?:hi|hello|hey|ok|okay|now|then|and|so|please|kindly|can you|could you|would you|"
    r"will you|i want you to|i'd like you to|let's|let us|go ahead and|just)\b[\s,:]*)+",
    re.IGNORECASE,
)
_QUOTES = ("`", '"', "'", "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}")
_CLOSED_SENTENCE = LazyPattern(r"^([`\"'].*[`\"'])[.!]$", re.DOTALL)
_TRAILING_POLITE = LazyPattern(r"[\s,]*(?:please|for me|thanks|thank you)[\s.!?]*$", re.IGNORECASE)

Found = tuple[str, dict[str, Any]]
_Rule = tuple[LazyPattern[str], Callable[[re.Match[str]], Found]]


def _unquoted(text: str) -> str:
    text = _CLOSED_SENTENCE.sub(r"\1", text.strip())
    for quote in _QUOTES:
        if len(text) > 1 and text[0] == quote[0] and text[-1] == quote[-1]:
            return text[1:-1]
    return text


def _path(text: str) -> str:
    return _unquoted(text.strip().rstrip("?!,;:").removesuffix(".") or text.strip())


_pattern = partial(LazyPattern[str], flags=re.IGNORECASE | re.DOTALL)
_IN_IT = LazyPattern(r"\s+(?:in|inside)(?:\s+(?:it|there))?[\s.!]*$", re.IGNORECASE)
_FILE_NOUN = (
    r"(?:(?:the|my|this|that|a|an|new)\s+)*(?:(?:file|contents?\s+of)\s+)*(?:the\s+file\s+)?"
    r"(?:(?:named|called)\s+)?"
)
_QUOTED = r"`[^`]+`|\"[^\"]+\"|'[^']+'"
_NAME = rf"(?P<path>{_QUOTED}|\S+)"
_LIKE_A_PATH = rf"(?P<path>{_QUOTED}|\S*[./]\S*)"
_OLD = rf"(?P<old>{_QUOTED}|.+?)"


def _search(match: re.Match[str]) -> Found:
    arguments = {"pattern": _SPECIAL.sub(r"\\\g<0>", _unquoted(match["text"]))}
    if match["dir"]:
        arguments["path"] = _path(match["dir"])
    return "grep_files", arguments


def _list(match: re.Match[str]) -> Found:
    directory = match["dir"]
    here = directory is None or _path(directory).lower() in {"", ".", "here"}
    return "list_directory", {} if here else {"path": _path(directory)}


def _edit(match: re.Match[str]) -> Found:
    arguments: dict[str, Any] = {
        "path": _path(match["path"]),
        "old_string": _unquoted(match["old"]),
        "new_string": _unquoted(match["new"]),
    }
    if match["all"]:
        arguments["replace_all"] = True
    return "edit_file", arguments


def _write(match: re.Match[str]) -> Found:
    path = _path(match["path"].rstrip(":"))
    content = match["content"]
    if match["how"]:  # with hello in it
        content = _IN_IT.sub("", content)
    return "write_file", {"path": path, "content": _unquoted(content)}


_RULES: tuple[_Rule, ...] = (
    (
        _pattern(
            rf"^(?:edit|change|modify|update)\s+{_FILE_NOUN}{_NAME}\s*[:,-]?\s*(?:and\s+|to\s+|by\s+)?"
            rf"replac(?:e|ing)\s+(?P<all>all\s+|every\s+)?{_OLD}\s+(?:with|by)\s+(?P<new>.+)$"
        ),
        _edit,
    ),
    (
        _pattern(
            r"^(?:in\s+(?P<path>\S+?)[:,]?\s+)replace\s+(?P<all>all\s+|every\s+)?"
            rf"{_OLD}\s+(?:with|by)\s+(?P<new>.+)$"
        ),
        _edit,
    ),
    (
        _pattern(
            rf"^replace\s+(?P<all>all\s+|every\s+)?{_OLD}\s+(?:with|by)\s+(?P<new>.+?)\s+in\s+"
            rf"{_FILE_NOUN}{_NAME}$"
        ),
        _edit,
    ),
    (
        _pattern(
            rf"^(?:create|write|make|add|save)\s+{_FILE_NOUN}{_NAME}\s*"
            r"(?::|\s(?P<how>with(?:\s+the)?(?:\s+(?:content|contents|text))?|containing|saying)\b:?)"
            r"[ \t]*\n?(?P<content>.+)$"
        ),
        _write,
    ),
    (
        _pattern(
            r"^(?:search|grep|look|find)\s+(?:for\s+)?(?:the\s+(?:text|string|word)\s+)?"
            r"(?P<text>`[^`]+`|\"[^\"]+\"|'[^']+'|.+?)"
            r"(?:\s+(?:in|under|inside|within)\s+(?:the\s+)?(?:directory\s+|folder\s+)?(?P<dir>\S+))?$"
        ),
        _search,
    ),
    (
        _pattern(
            r"^(?:(?:list|ls|show)\b(?:\s+(?:me|all|the|my|files?|directory|directories|folders?|"
            r"contents?|and))*|what(?:'s|\s+is|\s+files\s+are)\s+(?=in\b|under\b|here\b|there\b)(?:here|there)?)"
            r"\s*(?:(?:in|of|under)\s+(?:the\s+)?(?:directory\s+|folder\s+)?(?P<dir>\S+?)(?:\s+(?:directory|folder))?)?\s*[.?!]?$"
        ),
        _list,
    ),
    (
        _pattern(
            r"^(?:run|execute|exec|bash|shell|!)(?:\s+the\s+command\b)?\s*:?\s*(?P<command>.+)$"
        ),
        lambda match: ("bash", {"command": _unquoted(match["command"])}),
    ),
    (
        _pattern(rf"^(?:show|open|view|print|display)\s+(?:me\s+)?{_FILE_NOUN}{_LIKE_A_PATH}$"),
        lambda match: ("read_file", {"path": _path(match["path"])}),
    ),
    (
        _pattern(rf"^(?:read|cat)\s+(?:me\s+)?{_FILE_NOUN}{_NAME}$"),
        lambda match: ("read_file", {"path": _path(match["path"])}),
    ),
    (
        _pattern(r"^(?:ls|list)\s+(?:(?:the\s+)?(?:directory|folder)\s+)?(?P<dir>\S+)$"),
        _list,
    ),
)


def understand(text: str) -> Found | None:
    """The tool and arguments that a request means, or ``None``."""
    request = _POLITE.sub("", text.strip(), count=1)
    keeps_end = re.match(r"(?:create|write|make|add|save|run|execute)\b", request, re.IGNORECASE)
    if not keeps_end:
        request = _TRAILING_POLITE.sub("", request)
    for pattern, build in _RULES:
        match = pattern.match(request)
        if match is not None:
            found = build(match)
            return None if _no_program(found) else found
    return None


def _no_program(found: Found) -> str:
    """The first word of a command when it is a plain word that nobody here can run."""
    name, arguments = found
    if name != "bash":
        return ""
    words = _ASSIGNMENTS.sub("", arguments["command"], count=1).split(maxsplit=1)
    first = words[0] if words else ""
    is_plain = re.fullmatch(r"[A-Za-z][\w.+-]*", first) is not None
    return (
        first if is_plain and not _BUILTINS.fullmatch(first) and shutil.which(first) is None else ""
    )


def answer(messages: Sequence[Message], tool_names: Sequence[str]) -> str | Found:
    """What comes next in this conversation: a text, or a call."""
    while messages and isinstance(messages[-1], UserMessage) and not _said(messages[-1]):
        messages = messages[:-1]
    last = messages[-1] if messages else None
    if isinstance(last, ToolResult):
        return _summary(messages)
    said = _said(last) if isinstance(last, UserMessage) else ""
    if not said.strip() or _GREETING.fullmatch(said.strip()):
        return HELP
    found = understand(said)
    is_known = any(
        isinstance(each, AssistantMessage) and WHAT_IT_IS in each.text for each in messages
    )
    if found is None:
        return _declined(said, is_known=is_known)
    if found[0] not in tool_names:
        return f"That needs the tool {found[0]}, which is not available here.\n\n{HELP}"
    return found


def _declined(said: str, *, is_known: bool) -> str:
    """Names what was not understood, and the form that comes nearest to it."""
    request = " ".join(said.split())
    named = request if len(request) <= _MAX_NAMED else f"{request[: _MAX_NAMED - 3]}..."
    nearest = _nearest(request)
    run = re.match(
        r"(?:run|execute|exec)\s+(\w+)", _POLITE.sub("", request, count=1), re.IGNORECASE
    )
    problem = f'I did not understand "{named}".'
    if nearest == _RUN and run:
        problem += f' There is no program "{run[1]}": name the command itself.'
    if is_known:
        return f"{problem} The nearest form: `{nearest}`. Say `help` for all of them."
    others = ", ".join(f"`{form}`" for form in _FORMS)
    return (
        f"{problem} {WHAT_IT_IS}\n\nThe nearest form: `{nearest}`. All: {others}.\n\n{A_REAL_ONE}"
    )


def _nearest(request: str) -> str:
    """The form for what the request seems to be after, with its file where one is named."""
    words = re.findall(r"[a-z]+", request.lower())
    form = next(
        (form for word in words for form, known in _NEAR.items() if known.fullmatch(word)), _READ
    )
    path = re.search(r"[\w./-]*\w\.\w{1,8}\b|[\w.-]+/[\w./-]*", request)
    return form.replace("FILE", path[0]) if path and "FILE" in form else form


def _said(message: UserMessage) -> str:
    """What the user has said; the program's own remarks are in parentheses, and skipped."""
    for part in message.parts:
        if isinstance(part, TextPart) and not _REMARK.fullmatch(part.text.strip()):
            return part.text
    return ""


def _summary(messages: Sequence[Message]) -> str:
    results: list[ToolResult] = []
    calls: dict[str, ToolCall] = {}
    for message in reversed(messages):
        if isinstance(message, ToolResult):
            results.append(message)
            continue
        if isinstance(message, AssistantMessage):
            calls = {call.id: call for call in message.tool_calls}
        break
    return "\n\n".join(_one(result, calls.get(result.call_id)) for result in reversed(results))


def _one(result: ToolResult, call: ToolCall | None) -> str:
    what = result.name
    subject = _subject(call) if call is not None else ""
    if subject:
        what += f" ({subject})"
    text = result.text.strip("\n")
    if result.status is ResultStatus.REFUSED and text.startswith(f"{result.name} was not run"):
        return f"{what} was refused: nothing was done."  # the rest is for a model
    lines = text.splitlines()
    shown = "\n".join(lines[:_MAX_SHOWN_LINES])[:_MAX_SHOWN_CHARACTERS]
    rest = len(lines) - len(shown.splitlines())
    more = f"\n... and {rest} more lines" if rest > 0 else ""
    verdict = "failed" if result.is_error else "is done"
    fence = "````" if "```" in shown else "```"
    body = f":\n\n{fence}\n{shown}{more}\n{fence}" if shown else "."
    return f"{what} {verdict}{body}"


def _subject(call: ToolCall) -> str:
    for key in ("path", "command", "pattern"):
        value = call.arguments.get(key)
        if isinstance(value, str) and value:
            first = value.splitlines()[0]
            return first if len(first) < 60 else first[:57] + "..."  # noqa: PLR2004 - one line
    return ""


class OfflineProvider:
    """See the module."""

    host = ""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config

    @property
    def name(self) -> str:
        """The part before the slash in ``provider/model``."""
        return self._config.name

    def encode(self, request: ModelRequest) -> None:
        """Nothing is sent."""
        del request

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The answer, in small pieces. It costs no tokens, and says so."""
        reply = answer(request.messages, [tool.name for tool in request.tools])
        for event in _events(reply, len(request.messages)):
            if cancel.cancelled:
                return
            yield event

    async def aclose(self) -> None:
        """Nothing is held open."""


def _events(reply: str | Found, position: int) -> Iterator[StreamEvent]:
    if isinstance(reply, str):
        for piece in _WORD.findall(reply):
            yield TextDelta(0, piece)
    else:
        name, arguments = reply
        yield ToolCallStart(0, f"offline_{position}", name)
        yield ToolCallDelta(0, json.dumps(arguments, ensure_ascii=False))
    yield UsageReport(Usage(0, 0, 0, 0, 0))
    yield StreamEnd(StopReason.END_TURN if isinstance(reply, str) else StopReason.TOOL_USE)


PROVIDER = OfflineProvider
