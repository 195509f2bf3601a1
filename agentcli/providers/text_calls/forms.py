"""The forms in which models write tool calls into their text (STR-10): ``FORMS``, a row for each.

To add a form: one row, with a reader if none here fits. Law: a reader looks at the text from its
opener on, and says that there is no call (``NoCall``), that more has to come (``None``), or which
calls there are and where they end. Only a tool that was offered can be called. Arguments that
are not JSON are handed on as they came: the engine repairs or refuses them (LOOP-9, LOOP-12).

Sources: the models' chat templates and the parsers that servers keep for them:
https://github.com/vllm-project/vllm/tree/main/vllm/tool_parsers and
https://github.com/ggml-org/llama.cpp/blob/master/common/chat.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen

# a start that says nothing yet of what it is
_MAX_HEADER = 256
_MOST_CLOSERS = 200  # of an element: each is looked at with all that stands before it
# an unfinished call has to be seen as such: this is no JSON object
_CUT = "{"
_DECODER = json.JSONDecoder(strict=False)
_NAME_KEYS = ("name", "tool_name", "tool", "action", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input")
_FIRST_KEYS = frozenset({*_NAME_KEYS, *_ARGUMENT_KEYS, "id", "type", "tool_call_id"})
_FIRST_KEY = LazyPattern(r'[\[\s]*\{\s*"(\w*)"')
_LOOSE_NAME = LazyPattern(r'"(?:name|tool_name|tool|action)"\s*:\s*"([^"\\]+)"')
_LOOSE_ARGUMENTS = LazyPattern(rf'"(?:{"|".join(_ARGUMENT_KEYS)})"\s*:\s*')
_SPACE = LazyPattern(r"\s*")
_NAME_START = LazyPattern(r"""\s*+([\w.:/-]*+)(?:"|\s*+)\Z""")
_BETWEEN = LazyPattern(r"[\s;,]*")


class NoCall(Exception):
    """What stands here is text."""


@frozen
class WrittenCall:
    """A call as it was written; ``arguments`` should be the JSON text of an object."""

    name: str
    arguments: str


@frozen
class Offer:
    """The tools that may be called, name -> JSON schema, and how far the reply is.

    ``last``: no more text comes. ``cut``: because the output limit was reached.
    """

    tools: Mapping[str, Mapping[str, Any]]
    last: bool = False
    cut: bool = False

    def check(self, name: str) -> str:
        """``name``; raises ``NoCall`` when there is no such tool."""
        if name not in self.tools:
            raise NoCall
        return name

    def check_start(self, text: str) -> None:
        """Raise ``NoCall`` when no name of a tool starts with ``text``."""
        if self.last or not any(name.startswith(text) for name in self.tools):
            raise NoCall

    def more(self) -> Block | None:
        """More text is needed; raises ``NoCall`` when none comes."""
        if self.last:
            raise NoCall
        return None


Block = tuple[int, list[WrittenCall]]
Reader = Callable[[str, int, Offer], Block | None]


def _skip(text: str, at: int, pattern: LazyPattern[str] = _SPACE) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _closes(text: str, at: int, closers: Iterable[str]) -> int | None:
    return next((at + len(closer) for closer in closers if text.startswith(closer, at)), None)


def _value(text: str, at: int) -> tuple[Any, int] | None:
    """The JSON value at ``at`` and its end; ``None`` when there is none, or not all of it."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- JSON that names the tool ---------------------------------------------------------------


def _named_calls(value: object, offer: Offer, *, explicit: bool) -> Iterator[WrittenCall]:
    """The calls of a JSON value. ``explicit``: without arguments it is no call."""
    if isinstance(value, list) and value:
        for item in value:
            yield from _named_calls(item, offer, explicit=explicit)
        return
    if not isinstance(value, dict):
        raise NoCall
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), "")
    key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    if explicit and key is None:
        raise NoCall
    arguments = value.get(key) if key else None
    if arguments is None:
        arguments = {}
    text = arguments if isinstance(arguments, str) else _json_text(arguments)
    yield WrittenCall(offer.check(name), text)


def _json(*closers: str, explicit: bool = False) -> Reader:
    """Objects (or lists of them) that name tool and arguments, up to one of ``closers``."""

    def read(text: str, at: int, offer: Offer) -> Block | None:
        calls: list[WrittenCall] = []
        while True:
            at = _skip(text, at, _BETWEEN if calls else _SPACE)
            if calls and (end := _closes(text, at, closers)) is not None:
                return end, calls
            if at == len(text):
                if calls and (offer.last or not closers):
                    return at, calls
                return offer.more()
            if text[at] not in "{[":
                if calls and not closers:
                    return at, calls
                if not any(closer.startswith(text[at:]) for closer in closers):
                    raise NoCall
                return offer.more()
            found = _value(text, at)
            if found is None:
                return _unread(text, at, closers, offer)
            calls += _named_calls(found[0], offer, explicit=explicit)
            at = found[1]

    return read


def _unread(text: str, at: int, closers: tuple[str, ...], offer: Offer) -> Block | None:
    """A call whose JSON is not complete, or not JSON: what can be told of it at the end."""
    first = _FIRST_KEY.match(text, at)
    if first is not None and first[1] not in _FIRST_KEYS:
        raise NoCall
    if not offer.last:
        return None
    rest = text[at:].rstrip()
    stop = max((rest.rfind(closer) for closer in closers), default=-1)
    if stop >= 0:
        if _closes(rest, stop, closers) != len(rest):
            raise NoCall
        rest = rest[:stop].rstrip()
    elif not rest.endswith(("}", "]")) and not _is_open(rest):
        raise NoCall
    name = _LOOSE_NAME.search(rest)
    begins = _LOOSE_ARGUMENTS.search(rest)
    if name is None or begins is None:
        raise NoCall
    found = _value(rest, begins.end())
    if found is not None:
        raw = rest[begins.end() : found[1]]
    else:
        raw = rest[begins.end() :].removesuffix("]").rstrip()
        raw = raw[:-1] if raw.endswith("}") and raw.count("}") > raw.count("{") else raw
    return len(text), [WrittenCall(offer.check(name[1]), raw)]


def _is_open(text: str) -> bool:
    """Whether JSON text ends within a string or just before a value."""
    try:
        _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated") or error.pos >= len(text)
    except RecursionError:
        return False
    return False


# --- a name, then JSON ----------------------------------------------------------------------


def _headed(header: str, tail: str = "") -> Reader:
    """The tool's name as group 1 of ``header``, its arguments in JSON, and a ``tail``."""
    begins, ends = LazyPattern(header), LazyPattern(rf"(?<!\s)\s*+{tail}")

    def read(text: str, at: int, offer: Offer) -> Block | None:
        head = begins.match(text, at)
        if head is None:
            if len(text) - at > _MAX_HEADER:
                raise NoCall
            return offer.more()
        name, at = offer.check(head[1]), head.end()
        if not text.startswith("{", at):
            if at < len(text):
                raise NoCall
            return offer.more()
        found = _value(text, at)
        if found is None:
            return _unread_arguments(text, at, name, ends if tail else None, offer)
        call = [WrittenCall(name, text[at : found[1]])]
        end = ends.match(text, found[1])
        if end is not None:
            return (end.end() if tail else found[1]), call
        if text[found[1] :].strip() and (offer.last or len(text) - found[1] > _MAX_HEADER):
            raise NoCall
        return (len(text), call) if offer.last else None

    return read


def _unread_arguments(
    text: str, at: int, name: str, ends: LazyPattern[str] | None, offer: Offer
) -> Block | None:
    """A call whose arguments are not complete, or not JSON."""
    if not offer.last:
        return None
    stop = ends.search(text, at) if ends else None
    rest = text[at : stop.start() if stop else len(text)]
    if stop is None and not rest.rstrip().endswith("}") and not _is_open(rest):
        raise NoCall
    return (stop.end() if stop else len(text)), [WrittenCall(name, rest)]


# --- elements with parameters ---------------------------------------------------------------


@frozen
class _Element:
    """``opener``: the name is group 1; ``parameter``: name and value are groups 1 and 2."""

    start: str
    opener: LazyPattern[str]
    closer: str
    parameter: LazyPattern[str]

    def read(self, text: str, at: int, offer: Offer) -> Block | None:
        """The element whose ``start`` ends at ``at``."""
        head = self.opener.match(text, at)
        if head is None:
            begun = _NAME_START.match(text, at)
            if begun is None:
                raise NoCall
            offer.check_start(begun[1])
            return None
        name = offer.check(head[1].strip())
        begin = stop = head.end()
        if text.count(self.closer, begin) > _MOST_CLOSERS:
            raise NoCall
        while (stop := text.find(self.closer, stop)) >= 0:
            arguments = self._arguments(text[begin:stop], offer.tools[name])
            stop += len(self.closer)
            if arguments is not None:
                return stop, [WrittenCall(name, arguments)]
        if not offer.last:
            return None
        if offer.cut:
            return len(text), [WrittenCall(name, _CUT)]
        arguments = self._arguments(text[begin:], offer.tools[name])
        if arguments is None or not text[begin:].strip():
            raise NoCall
        return len(text), [WrittenCall(name, arguments)]

    def _arguments(self, body: str, schema: Mapping[str, Any]) -> str | None:
        body = body.strip()
        if body.startswith("{"):
            found = _value(body, 0)
            return body if found is not None and not body[found[1] :].strip() else None
        at, values = 0, {}
        while at < len(body):
            found_parameter = self.parameter.match(body, at)
            if found_parameter is None:
                return None
            key = found_parameter[1].strip()
            values[key] = _typed(found_parameter[2], key, schema)
            at = found_parameter.end()
        return _json_text(values)


def _typed(text: str, key: str, schema: Mapping[str, Any]) -> object:
    """A value that was written plainly, as the tool's schema has it."""
    text = text.removeprefix("\n").removesuffix("\n")
    properties = schema.get("properties")
    own = properties.get(key) if isinstance(properties, Mapping) else None
    kinds = _kinds(own if isinstance(own, Mapping) else {})
    plain = text.strip()
    if "null" in kinds and plain in {"null", "None"}:
        return None
    if not kinds or "string" in kinds:
        return text
    if "boolean" in kinds and plain in {"True", "False"}:
        return plain == "True"
    found = _value(plain, 0)
    return found[0] if found is not None and found[1] == len(plain) else text


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    kinds: set[str] = set()
    kind = schema.get("type")
    kinds.update([kind] if isinstance(kind, str) else kind if isinstance(kind, list) else [])
    for key in ("anyOf", "oneOf"):
        for option in schema.get(key, ()):
            kinds |= _kinds(option) if isinstance(option, Mapping) else set()
    values = schema.get("enum")
    if not kinds and isinstance(values, list) and all(isinstance(item, str) for item in values):
        kinds.add("string")
    return kinds


_FUNCTION = _Element(
    "<function=",
    LazyPattern(r"([^>\n]{0,256})>"),
    "</function>",
    LazyPattern(r"\s*<parameter=([^>\n]+)>(.*?)</parameter>\s*(?=<parameter=|\Z)", re.DOTALL),
)
_INVOKE = _Element(
    '<invoke name="',
    LazyPattern(r'([^"\n]{0,256})">'),
    "</invoke>",
    LazyPattern(
        r'\s*<parameter name="([^"\n]+)"[^>\n]*>(.*?)</parameter>\s*(?=<parameter name=|\Z)',
        re.DOTALL,
    ),
)
_DSML_INVOKE = _Element(
    '<｜DSML｜invoke name="',
    _INVOKE.opener,
    "</｜DSML｜invoke>",
    LazyPattern(
        r'\s*<｜DSML｜parameter name="([^"\n]+)"[^>\n]*>(.*?)</｜DSML｜parameter>'
        r"\s*(?=<｜DSML｜parameter name=|\Z)",
        re.DOTALL,
    ),
)
_GLM = _Element(
    "",
    LazyPattern(r"\s*([\w.:/-]+)\s*(?=<)"),
    "</tool_call>",
    LazyPattern(
        r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*(?=<arg_key>|\Z)",
        re.DOTALL,
    ),
)


def _wrapped(start: str, reader: Reader, *closers: str) -> Reader:
    """Calls that each begin with ``start``, up to one of ``closers``."""

    def read(text: str, at: int, offer: Offer) -> Block | None:
        calls: list[WrittenCall] = []
        while True:
            at = _skip(text, at)
            if calls and (end := _closes(text, at, closers)) is not None:
                return end, calls
            if not text.startswith(start, at):
                if not any(known.startswith(text[at:]) for known in (start, *closers)):
                    raise NoCall
                if calls and offer.last:
                    return len(text), calls
                return offer.more()
            found = reader(text, at + len(start), offer)
            if found is None:
                return None
            at = found[0]
            calls += found[1]

    return read


_HERMES = _json("</tool_call>")
_QWEN_CODER = _wrapped(_FUNCTION.start, _FUNCTION.read, "</tool_call>")


def _tool_call(text: str, at: int, offer: Offer) -> Block | None:
    """``<tool_call>`` stands before JSON, before an element and before a bare name."""
    at = _skip(text, at)
    if at == len(text):
        return offer.more()
    if text[at] in "{[":
        return _HERMES(text, at, offer)
    if text[at] == "<":
        return _QWEN_CODER(text, at, offer)
    return _GLM.read(text, at, offer)


_HARMONY_OPENER = "<|channel|>commentary to=functions."
_HARMONY = _headed(
    r"([\w-]+)\s*(?:<\|constrain\|>\s*json\s*)?<\|message\|>\s*(?=\{)", tail=r"<\|call\|>"
)


_MISTRAL_LIST = _json()
_MISTRAL_NAMED = _headed(r"\s*([\w.-]+)(?:\[CALL_ID\][\w-]+)?(?:\[ARGS\])?\s*(?=\{)")


def _mistral(text: str, at: int, offer: Offer) -> Block | None:
    at = _skip(text, at)
    reader = _MISTRAL_LIST if text.startswith(("[", "{"), at) else _MISTRAL_NAMED
    return reader(text, at, offer)


_PYTHON_JSON = _json(explicit=True)
_BUILT_IN = LazyPattern(r"([\w-]+)\.call\(")


def _python_tag(text: str, at: int, offer: Offer) -> Block | None:
    """Llama's: JSON, or ``tool.call(name="value")`` for the tools that it was trained with."""
    at = _skip(text, at)
    head = _BUILT_IN.match(text, at)
    if head is None:
        if text.startswith("{", at):
            return _PYTHON_JSON(text, at, offer)
        offer.check_start(text[at:].partition(".")[0])
        return None
    name = offer.check(head[1])
    if not offer.last:
        return None
    import ast  # rare

    try:
        call = ast.parse(f"f({text[head.end() :].strip()}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise NoCall
        given = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        return len(text), [WrittenCall(name, _json_text(given))]
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise NoCall from None


_DEEPSEEK = _headed(
    r"\s*+(?:function<｜tool▁sep｜>\s*+)?([\w.:-]+)\s*+(?:<｜tool▁sep｜>\s*+)?(?:```(?:json)?\s*+)?(?=\{)",
    r"(?:```\s*+)?<｜tool▁call▁end｜>",
)
_KIMI = _headed(
    r"\s*(?:functions\.)?([\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*",
    r"<\|tool_call_end\|>",
)
_FENCE_HEAD = LazyPattern(r"(?:json|tool_call|tool_code|tool)?[ \t]*\n\s*")
_FENCED_JSON = _json("```", explicit=True)


def _fenced(text: str, at: int, offer: Offer) -> Block | None:
    head = _FENCE_HEAD.match(text, at)
    if head is None:
        if "\n" in text[at:] or len(text) - at > _MAX_HEADER:
            raise NoCall
        return offer.more()
    return _FENCED_JSON(text, head.end(), offer)


_REACT = _headed(r"[ \t]*([\w.-]+)[ \t]*\n\s*Action Input:[ \t]*\s*")


# --- the table ------------------------------------------------------------------------------


@frozen
class Form:
    """What a form begins with, and what reads the rest.

    ``at_start``: only as the first word of a reply (in a text protocol: of a line). ``asked``:
    it counts only where the prompt has asked for calls as text.
    """

    opener: str
    read: Reader
    at_start: bool = False
    asked: bool = False


FORMS = (
    # Hermes, Qwen 2.5 and 3 (JSON); Qwen3-Coder (elements); GLM 4.5 and later (a bare name)
    Form("<tool_call>", _tool_call),
    Form("<function=", _FUNCTION.read),
    # Llama 3.1 and later; Llama 3.2 leaves the marker out
    Form("<|python_tag|>", _python_tag),
    Form("{", _json(explicit=True), at_start=True),
    # Mistral: a list up to tokenizer v7, name and arguments from v11 on
    Form("[TOOL_CALLS]", _mistral),
    # DeepSeek V3, R1 (a fence around the arguments), V3.1 (none), V3.2 (elements)
    Form(
        "<｜tool▁calls▁begin｜>",
        _wrapped("<｜tool▁call▁begin｜>", _DEEPSEEK, "<｜tool▁calls▁end｜>"),
    ),
    Form("<｜tool▁call▁begin｜>", _DEEPSEEK),
    Form(
        "<｜DSML｜function_calls>",
        _wrapped(_DSML_INVOKE.start, _DSML_INVOKE.read, "</｜DSML｜function_calls>"),
    ),
    # Kimi K2
    Form(
        "<|tool_calls_section_begin|>",
        _wrapped("<|tool_call_begin|>", _KIMI, "<|tool_calls_section_end|>"),
    ),
    Form("<|tool_call_begin|>", _KIMI),
    # MiniMax M1 (lines of JSON), M2 (elements)
    Form("<tool_calls>", _json("</tool_calls>")),
    Form("<minimax:tool_call>", _wrapped(_INVOKE.start, _INVOKE.read, "</minimax:tool_call>")),
    # Granite 3, Phi-4-mini (with a closer); gpt-oss (https://cookbook.openai.com/articles/openai-harmony)
    Form("<|tool_call|>", _json("<|/tool_call|>")),
    Form(_HARMONY_OPENER, _HARMONY),
    Form("<function_calls>", _wrapped(_INVOKE.start, _INVOKE.read, "</function_calls>")),
    # what models do that were only told how
    Form("```", _fenced, at_start=True, asked=True),
    Form("Action:", _REACT, at_start=True, asked=True),
)
# tokens that end a reply and that some servers let through
_ENDINGS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<｜end▁of▁sentence｜>",
    "<|user|>",
    "<|observation|>",
    "</s>",
)


def read_calls(text: str, forms: tuple[Form, ...], offer: Offer) -> list[WrittenCall] | None:
    """The calls of a text that begins with an opener and holds nothing else; ``None``: not yet all.

    Raises ``NoCall``.
    """
    at, calls = 0, list[WrittenCall]()
    while True:
        at = _skip(text, at)
        while calls and (end := _closes(text, at, _ENDINGS)) is not None:
            at = _skip(text, end)
        if at == len(text):
            return calls
        form = next((form for form in forms if text.startswith(form.opener, at)), None)
        if form is None:
            known = (*(form.opener for form in forms), *_ENDINGS)
            if offer.last or not any(word.startswith(text[at:]) for word in known):
                raise NoCall
            return None
        keep = form.opener in {"{", "["}  # the opener is part of what is read
        found = form.read(text, at if keep else at + len(form.opener), offer)
        if found is None:
            return None
        at = found[0]
        calls += found[1]
