"""What every tool shares: a pydantic model for its arguments, its schema, the size of its output.

Law: at most ``MAX_CHARS`` characters go to the model (TOOL-6); what is cut from the middle, or
from an over-long line, is stated with its size; then the whole is returned beside it as raw
output, which the model can page through with ``read_file`` at ``output://<call id>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.tools import Asks, Tool, ToolDefinition, ToolHints

_ABUSE_CHARS = 64  # a text field's bound from here on is checked, not told
MAX_CHARS = 30_000
MAX_LINE_CHARS = 10_000
OUTPUT_SCHEME = "output://"
_NOTE_ROOM = 300
# a cut is moved to the end of a line when that costs no more than this share of the text kept
_LINE_SEARCH_SHARE = 4


class Arguments(BaseModel):
    """Base of a tool's arguments: unknown fields are an error, values are frozen.

    Nothing is converted here but ``30.0`` to the integer it is: what was meant has been found
    out before the call was recorded, and what runs is what the history says (LOOP-10).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value


A = TypeVar("A", bound=BaseModel)


class BaseTool(Tool, Generic[A]):
    """Subclass, set the class attributes, write ``run``; what else a tool may have is in ``Tool``.

    ``context`` is what a call gets; see ``ToolContext``.
    """

    name: str
    display_name: str
    description: str
    params: type[A]
    asks: Asks
    group: str
    hints: ToolHints = ToolHints()
    timeout_s: float | None = 60.0
    always_ask: bool = False
    concurrent: bool = False

    @cached_property
    def definition(self) -> ToolDefinition:
        """The tool as the model, the policy and the screen know it."""
        return self.define()

    def define(self) -> ToolDefinition:
        """The definition as the class has it; a built-in tool is given what was written down."""
        return ToolDefinition(
            name=self.name,
            display_name=self.display_name,
            description=self.description,
            parameters=compact_schema(self.params),
            asks=self.asks,
            group=self.group,
            hints=self.hints,
            timeout_s=self.timeout_s,
            always_ask=self.always_ask,
            concurrent=self.concurrent,
        )

    def parse(self, arguments: Mapping[str, Any]) -> A:
        """Validated arguments; raises ``InvalidArguments`` naming each wrong field."""
        return self.validated(lambda: self.params.model_validate(dict(arguments)))

    @staticmethod
    def validated(validate: Callable[[], A]) -> A:
        """What ``validate`` returns; raises ``InvalidArguments`` for a ``ValidationError``."""
        try:
            return validate()
        except ValidationError as error:
            problems = tuple(
                ArgumentProblem(".".join(str(part) for part in item["loc"]) or "(all)", item["msg"])
                for item in error.errors(include_url=False, include_input=False)
            )
            raise InvalidArguments(problems) from None


def _is_idle(key: str, value: Any) -> bool:
    """What tells a model nothing: no default, a bound that only guards against abuse."""
    if key == "maxLength":
        return isinstance(value, int) and value >= _ABUSE_CHARS
    return key == "default" and value is None


def compact_schema(params: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of ``params`` without titles and with references inlined (CTX-2)."""
    schema = params.model_json_schema()
    definitions = schema.pop("$defs", {})

    def clean(node: Any) -> Any:
        if isinstance(node, list):
            return [clean(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            found = clean(definitions[node["$ref"].rpartition("/")[2]])
            if "enum" in found:  # what the class is, to its readers
                found.pop("description", None)
            return {**found, **{key: value for key, value in node.items() if key != "$ref"}}
        options = node.get("anyOf")
        if isinstance(options, list) and {"type": "null"} in options:
            rest = [option for option in options if option != {"type": "null"}]
            if len(rest) == 1:
                merged = {key: value for key, value in node.items() if key != "anyOf"}
                return clean({**rest[0], **merged})
        return {
            key: {name: clean(value) for name, value in child.items()}
            if key == "properties"
            else clean(child)
            for key, child in node.items()
            if key != "title" and not _is_idle(key, child)
        }

    try:
        cleaned: dict[str, Any] = clean(schema)
    except RecursionError:  # a type that holds itself: its references stay
        cleaned = {**schema, "$defs": definitions}
    cleaned.pop("description", None)
    return cleaned


def bounded(
    text: str, call_id: str, *, max_chars: int = MAX_CHARS, line_chars: int = MAX_LINE_CHARS
) -> tuple[str, bytes | None]:
    """``text`` cut to size for the model, and the whole as bytes when something was cut."""
    short = _clipped(text, line_chars)
    if len(text) <= max_chars and short == text:
        return text, None
    if len(short) > max_chars:
        short = _cut_middle(short, call_id, max_chars)
    else:
        short += f"\n[Long lines were cut. {page_hint(call_id)}]"
        if len(short) > max_chars:
            short = _cut_middle(short, call_id, max_chars)
    return short, text.encode("utf-8", "replace")


def page_hint(call_id: str) -> str:
    """How the model gets at the whole."""
    return f'Whole output: read_file with path "{OUTPUT_SCHEME}{call_id}", offset and limit.'


def clip_line(line: str, limit: int = MAX_LINE_CHARS) -> str:
    """``line``, or its beginning with the number of characters that were cut."""
    if len(line) <= limit:
        return line
    return f"{line[:limit]}… [{len(line) - limit:,} more characters in this line]"


def escaped(name: str) -> str:
    r"""``name`` with line breaks, control characters and undecodable bytes written ``\xNN``."""
    if name.isprintable() and "\\x" not in name:
        return name
    pieces: list[str] = []
    for char in name.replace("\\x", "\\\\x"):
        if char == "\n":
            pieces.append("\\n")
        elif char.isprintable():
            pieces.append(char)
        else:
            pieces += [f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape")]
    return "".join(pieces)


def one_line(text: str, limit: int = 200) -> str:
    """``text`` as it may stand in a one-line summary."""
    line = escaped(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _clipped(text: str, limit: int) -> str:
    """``text``, its longer lines clipped; of the others as many at a time as ``limit`` holds."""
    pieces, done, start = list[str](), 0, 0
    while len(text) - start > limit:
        if (end := text.rfind("\n", start, start + limit + 1)) >= 0:
            start = end + 1
            continue
        end = text.find("\n", start) % (len(text) + 1)  # the last line ends with the text
        pieces += (text[done:start], clip_line(text[start:end], limit))
        done = start = end
    return "".join((*pieces, text[done:]))


def _cut_middle(text: str, call_id: str, max_chars: int) -> str:
    room = max(max_chars - _NOTE_ROOM, 0) // 2
    slack = room // _LINE_SEARCH_SHARE
    head_end = text.rfind("\n", room - slack, room) + 1 or room
    tail_start = len(text) - room
    line_start = text.find("\n", tail_start, tail_start + slack) + 1
    tail_start = line_start or tail_start
    cut = text[head_end:tail_start]
    glue = "" if text[:head_end].endswith("\n") else "\n"
    note = f"[{len(cut):,} characters ({cut.count(chr(10)):,} lines) cut. {page_hint(call_id)}]"
    return f"{text[:head_end]}{glue}{note}\n{text[tail_start:]}"


# --- what a command printed for a terminal, as the text that a reader would have seen ---------
#
# No escape sequence is left and no control character but newline and tab; of a line that was
# overwritten by carriage returns (a progress bar) only its last state is kept.

_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    "|\x1b[\\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c|$)?"  # OSC, DCS, SOS, PM, APC
    "|\x1b[ -/]*[0-~]?"  # the two-character ones, and a lone ESC
    "|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OVERSTRUCK = re.compile("[^\x08\n]\x08")
# anchored, so that a long line is looked at once and not from each of its characters
_OVERWRITTEN = re.compile("^[^\\n]*\r(?=[^\r\\n])", re.MULTILINE)
_BINARY_SAMPLE = 8192
_BINARY_SHARE = 0.3


def looks_binary(data: bytes) -> bool:
    """Whether a terminal would show mostly rubbish, judged by the first bytes."""
    sample = data[:_BINARY_SAMPLE].decode("utf-8", "replace")
    rubbish = sum(char in "\ufffd\0" or "\x0e" <= char <= "\x1a" for char in sample)
    return rubbish > _BINARY_SHARE * len(sample)


def plain_text(data: bytes) -> str:
    """``data`` as text for the model; what is not UTF-8 becomes U+FFFD, NUL becomes U+2400."""
    text = data.decode("utf-8", "replace")
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\x08" in text:
        text = _without_backspaces(text)
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    text = text.replace("\0", "\N{SYMBOL FOR NULL}")
    return _CONTROLS.sub("", text)


def _without_backspaces(text: str) -> str:
    """Apply backspaces; the rounds are bounded since each may be undone by the next."""
    for _ in range(32):
        shorter = _OVERSTRUCK.sub("", text)
        if shorter == text:
            break
        text = shorter
    return text
