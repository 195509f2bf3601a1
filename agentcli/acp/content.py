"""What editors send as a prompt, read; what calls did, as the content that editors show.

Laws: a block that is not understood is an error that names it, never left out in silence; an
approval shows exactly what will run, with every character that cannot be seen spelt out (SEC-6).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from agentcli.app.files.mentions import MAX_PATH_CHARS, START, written
from agentcli.domain.clean import clean_text, cut_text, reveal
from agentcli.domain.images import facts_of
from agentcli.domain.messages import (
    ATTACHED,
    DocumentPart,
    ImagePart,
    ResultPart,
    TextPart,
    UserMessage,
    UserPart,
)
from agentcli.domain.values import frozen, mutable
from agentcli.rpc.messages import INVALID_PARAMS, RpcError

Json = dict[str, Any]

MAX_RAW_BYTES = 20_000
_MAX_URI_CHARS = 4 * MAX_PATH_CHARS  # "%41" is one of a path
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
# "#L3", "#L3-9", "#L3:9": how editors write lines
_LINES = re.compile(r"L?(\d{1,9})(?:[-:]L?(\d{1,9}))?")
_FENCE = re.compile(r"`{3,}")
_NOWHERE = "/dev/null"
# ECMA-48: C0 but for tab, line feed and carriage return; DEL; C1
_STEERING = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)], "\ufffd")


def bad_params(problem: str) -> RpcError:
    """What a request asks for is wrong."""
    return RpcError(INVALID_PARAMS, problem)


# --- a prompt ------------------------------------------------------------------------------------


@mutable
class PromptContent:
    """A prompt: its text, as it would be typed in the chat, and what came along with it."""

    text: str = ""
    parts: list[UserPart] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)  # of the text: each block may be a small one

    def add_text(self, text: str) -> None:
        """More of the text: pieces of a sentence are put together, paragraphs stay apart."""
        if self.pieces and text and not (self.pieces[-1][-1].isspace() or text[0].isspace()):
            self.pieces.append("\n")
        self.pieces += [text] if text else []

    def add_reference(self, text: str) -> None:
        """A reference in the middle of the text."""
        last = self.pieces[-1][-1] if self.pieces else " "
        self.pieces.append(f"{text} " if last.isspace() or last in "([{\"'" else f" {text} ")

    def message(self, typed: UserMessage) -> UserMessage:
        """``typed``, which is the text with what it names, and then the rest."""
        parts = (*typed.parts, *self.parts)
        return UserMessage(tuple(part for part in parts if part != TextPart("")))


def read_prompt(blocks: object) -> PromptContent:
    """The content blocks of ``session/prompt``; raises ``RpcError``."""
    if not isinstance(blocks, list) or not blocks:
        raise bad_params("prompt: give a list of content blocks")
    found = PromptContent()
    for number, block in enumerate(blocks, 1):
        kind = block.get("type") if isinstance(block, dict) else None
        read = _READERS.get(kind) if isinstance(kind, str) else None
        if read is None:
            what = "audio is not supported" if kind == "audio" else "its type is not known"
            raise bad_params(f"prompt: block {number}: {what}; send {', '.join(_READERS)}")
        try:
            read(found, block)
        except (KeyError, TypeError, AttributeError):
            raise bad_params(f"prompt: block {number}: it is no {kind} block") from None
    found.text = "".join(found.pieces).rstrip()
    if not found.text.strip() and not found.parts:
        raise bad_params("prompt: it is empty; say what you want")
    return found


def _text_of(block: Mapping[str, Any], name: str) -> str:
    value = block[name]
    if not isinstance(value, str):
        raise TypeError(name)
    return value


def _read_text(found: PromptContent, block: Json) -> None:
    found.add_text(_text_of(block, "text"))


def _read_image(found: PromptContent, block: Json) -> None:
    data = _decoded(_text_of(block, "data"))
    kind = facts_of(data).media_type
    if not kind:
        raise bad_params("prompt: an image is none that can be read; send PNG, JPEG, GIF or WebP")
    found.parts.append(ImagePart(kind, data))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise bad_params("prompt: the data of a block is not base64") from None


def _read_link(found: PromptContent, block: Json) -> None:
    """A file is attached like one that is named by ``@`` in the chat; another link stays one."""
    uri = _text_of(block, "uri")
    if mention := _mention(uri):
        found.add_reference(mention)
    else:
        name = block.get("title") or block.get("name") or uri
        found.add_reference(_naming_none(f"[{name}]({uri})"))


def _read_resource(found: PromptContent, block: Json) -> None:
    """The content itself came along: it may be unsaved, so it is not read from the disk."""
    resource = block["resource"]
    uri = _text_of(resource, "uri")
    name = path_of(uri) or uri
    found.add_reference(_naming_none(written(name) if " " not in name else f'"{name}"'))
    if isinstance(resource.get("text"), str):
        shown = name.replace('"', "&quot;").replace("\n", " ")
        body = cut_text(resource["text"])
        end = "" if body.endswith("\n") or not body else "\n"
        found.parts.append(TextPart(f'{ATTACHED}file="{shown}">\n{body}{end}</attached>'))
        return
    data = _decoded(_text_of(resource, "blob"))
    if kind := facts_of(data).media_type:
        found.parts.append(ImagePart(kind, data))
    elif data.startswith(b"%PDF-"):
        found.parts.append(DocumentPart("application/pdf", data, name=Path(name).name))
    else:
        raise bad_params(f"prompt: {name} is binary; send text, an image or a PDF")


_READERS = {
    "text": _read_text,
    "image": _read_image,
    "resource_link": _read_link,
    "resource": _read_resource,
}


def _naming_none(text: str) -> str:
    """What another has written, in which no ``@`` names a file to attach."""
    return re.sub(rf"{START}@+", "", text, flags=re.MULTILINE)


def path_of(uri: str) -> str:
    """The path of a file URI or an absolute path; empty for any other."""
    if len(uri) > _MAX_URI_CHARS:
        return ""
    if uri.startswith("/"):
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    is_here = parts.scheme == "file" and parts.netloc in {"", "localhost"}
    return unquote(parts.path) if is_here and parts.path.startswith("/") else ""


def _mention(uri: str) -> str:
    path = path_of(uri)
    if not path or "\n" in path:
        return ""
    lines = _LINES.fullmatch(uri.partition("#")[2]) if uri.startswith("file:") else None
    if lines is None:
        return f"@{written(path)}"
    first, last = int(lines[1]), int(lines[2] or lines[1])
    is_plain = written(path) == path
    return f"@{path}:{first}-{last}" if is_plain and first else f"@{written(path)}"


# --- what is shown -------------------------------------------------------------------------------


@frozen
class ShownChange:
    """A piece of a file, before and after; ``line`` is where it begins, from 1."""

    path: str
    old: str | None
    new: str
    line: int


def changes_of(diff: str, cwd: Path) -> list[ShownChange]:
    """The hunks of a unified diff of ours; ``old`` is ``None`` where the file is made."""
    return changes_and_rest(diff, cwd)[0]


def changes_and_rest(diff: str, cwd: Path) -> tuple[list[ShownChange], list[str]]:
    """The hunks, and the lines that say what no hunk does: what is made, moved, deleted, a mode."""
    rows = diff.split("\n")
    found: list[ShownChange] = []
    rest: list[str] = []
    old_name = new_name = ""
    at = 0
    while at < len(rows):
        row = rows[at]
        at += 1
        if row.startswith("--- ") and rows[at : at + 1] and rows[at].startswith("+++ "):
            old_name, new_name = row[4:], rows[at][4:]
            at += 1
            is_plain = _NOWHERE in {old_name, new_name} or old_name[2:] == new_name[2:]
            if not (is_plain and rows[at : at + 1] and _HUNK.match(rows[at])):
                rest += [row, rows[at - 1]]
        elif new_name and (head := _HUNK.match(row)):
            old, new, at = _hunk(rows, at, int(head[1] or 1), int(head[3] or 1))
            name = old_name if new_name == _NOWHERE else new_name
            before = None if old_name == _NOWHERE else old
            found.append(ShownChange(str(cwd / name[2:]), before, new, max(1, int(head[2]))))
        elif row:
            rest.append(row)
    return found, rest


def _hunk(rows: Sequence[str], at: int, old_count: int, new_count: int) -> tuple[str, str, int]:
    """The text before and after, of as many rows as its head has announced, and what is next."""
    old: list[str] = []
    new: list[str] = []
    last: tuple[list[str], ...] = ()
    while at < len(rows):
        row = rows[at]
        if row.startswith("\\"):  # "\ No newline at end of file": about the row before it
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
        elif row[:1] in {" ", "-", "+"} and (len(old) < old_count or len(new) < new_count):
            last = {" ": (old, new), "-": (old,), "+": (new,)}[row[0]]
            for side in last:
                side.append(f"{row[1:]}\n")
        else:  # the next one, or where what is too long was cut
            break
        at += 1
    return "".join(old), "".join(new), at


def harmless(text: str) -> str:
    """``text`` without what would steer a terminal: an editor may be one, or have one (SEC-10)."""
    return clean_text(text).translate(_STEERING)


def text_content(text: str) -> Json:
    """Text that is Markdown."""
    return {"type": "content", "content": {"type": "text", "text": harmless(text)}}


def verbatim(text: str, language: str = "") -> Json:
    """Text as it is, whatever of Markdown stands in it."""
    longest = max((len(found[0]) for found in _FENCE.finditer(text)), default=2)
    fence = "`" * max(3, longest + 1)
    body = text.rstrip("\n")
    return text_content(f"{fence}{language}\n{body}\n{fence}")


def exact(text: str, language: str = "") -> Json:
    """As ``verbatim``, with every character that cannot be seen spelt out."""
    return verbatim(reveal(text), language)


def diff_content(changes: Sequence[ShownChange]) -> list[Json]:
    """Changes as editors show them, with every character that cannot be seen spelt out."""
    return [
        {
            "type": "diff",
            "path": reveal(each.path),
            "oldText": None if each.old is None else reveal(each.old),
            "newText": reveal(each.new),
        }
        for each in changes
    ]


def result_content(parts: Sequence[ResultPart], *, is_markdown: bool = False) -> list[Json]:
    """What a call has returned."""
    found = []
    for part in parts:
        if isinstance(part, TextPart):
            if part.text.strip():
                found.append(text_content(part.text) if is_markdown else verbatim(part.text))
        elif not isinstance(part, DocumentPart):
            data = base64.b64encode(part.data).decode()
            image = {"type": "image", "mimeType": part.media_type, "data": data}
            found.append({"type": "content", "content": image})
    return found


def bounded(value: Any) -> Any:
    """A JSON value whose long texts are cut, for showing."""
    if isinstance(value, str):
        return cut_text(value, MAX_RAW_BYTES)
    if isinstance(value, dict):
        return {key: bounded(item) for key, item in value.items()}
    return [bounded(item) for item in value] if isinstance(value, list) else value
