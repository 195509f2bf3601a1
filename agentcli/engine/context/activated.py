"""Skills that the model goes by: their texts outlive what is left out and folded (EXT-1).

A skill is activated when the model reads its file, or when the user calls it. Law: what is kept is
what was read then, the newest of each, within bounds; nothing that a tool prints can pass for one:
the calls are recognized, not the texts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.tools import Workspace

HEADING = "Skills in use, as they were read:"
MOST_CHARS_EACH = 20_000
MOST_CHARS = 60_000
_CALLED = re.compile(r"Follow the skill \S+\. Its files are in ([^\n]+)\.\n\n")
_KEPT = re.compile(r'<skill path="([^"\n]*)">\n(.*?)\n</skill>', re.DOTALL)


def reads_skill(call: ToolCall, skills: Collection[Path], workspace: Workspace) -> bool:
    """Whether ``call`` reads one of ``skills``."""
    path = call.arguments.get("path")
    if call.name != "read_file" or not isinstance(path, str) or not skills:
        return False
    try:
        return Path(os.path.normpath(workspace.resolve(path))) in skills
    except (OSError, RuntimeError, ValueError):
        return False


def skills_in(
    folded: Iterable[Message], skills: Collection[Path], workspace: Workspace, limit: int
) -> str:
    """The skills that were activated in ``folded``, for the record that stands for it; or empty."""
    texts: dict[str, str] = {}
    calls: dict[str, str] = {}
    for message in folded:
        for path, text in _found(message, calls):
            texts.pop(path, None)  # the newest stand last
            texts[path] = text
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if reads_skill(call, skills, workspace):
                    path = os.path.normpath(workspace.resolve(str(call.arguments["path"])))
                    calls[call.id] = path
    left = min(limit, MOST_CHARS)
    blocks: list[str] = []
    for path, text in reversed(texts.items()):
        kept = text[: min(left, MOST_CHARS_EACH)]
        left -= len(kept)
        if not kept:
            break
        cut = "" if len(kept) == len(text) else "\n[cut: read the file for the rest]"
        kept = kept.replace("</skill>", "< /skill>")
        blocks.append(f'<skill path="{path}">\n{kept}{cut}\n</skill>')
    return "\n".join([HEADING, *reversed(blocks)]) if blocks else ""


def _found(message: Message, calls: dict[str, str]) -> Sequence[tuple[str, str]]:
    """The skills whose texts ``message`` holds, by path; ``calls`` are those that read one."""
    if isinstance(message, ToolResult):
        path = calls.get(message.call_id)
        return [(path, message.text)] if path and not message.is_error else ()
    if not isinstance(message, UserMessage):
        return ()
    found: list[tuple[str, str]] = []
    for part in message.parts:
        if not isinstance(part, TextPart):
            continue
        if message.is_summary and part.text.startswith(HEADING):
            found += _KEPT.findall(part.text)
        elif not message.is_summary and (called := _CALLED.match(part.text)):
            found.append((f"{called[1]}/SKILL.md", part.text))
    return found
