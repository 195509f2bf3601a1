"""A context for tests of tools with every port: state in a dict, live output in a list."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentcli.domain.background import Background
from agentcli.domain.cancel import CancelToken
from agentcli.domain.sandbox import Access, Sandbox
from agentcli.domain.tool_ports import Plans, RawOutputs, SessionState, SubAgents
from agentcli.domain.tools import (
    Asker,
    BackgroundSwitch,
    EditorFiles,
    FileLedger,
    ToolOutput,
    Workspace,
)


@dataclass
class MemoryState:
    """Keeps what a session file would keep: JSON text by key."""

    values: dict[str, str] = field(default_factory=dict)

    async def get(self, key: str) -> Any:
        text = self.values.get(key)
        return None if text is None else json.loads(text)

    async def set(self, key: str, value: Any) -> None:
        self.values[key] = json.dumps(value)


@dataclass
class MemoryOutputs:
    """The raw outputs of earlier calls."""

    raw: dict[str, bytes] = field(default_factory=dict)

    async def read(self, call_id: str) -> bytes | None:
        return self.raw.get(call_id)


@dataclass
class FixedAnswer:
    """Somebody who always gives the same answer."""

    answer: str
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def ask(self, question: str, options: Sequence[str]) -> str:
        self.asked.append((question, tuple(options)))
        return self.answer


@dataclass
class Progress:
    """Collects live output."""

    pieces: list[str] = field(default_factory=list)

    def __call__(self, text: str) -> None:
        self.pieces.append(text)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass
class EveryPort:
    """What any tool may declare."""

    call_id: str
    workspace: Workspace
    cancel: CancelToken
    progress: Callable[[str], None]
    files: FileLedger | None = None
    state: SessionState | None = None
    outputs: RawOutputs | None = None
    editor: EditorFiles | None = None
    ask: Asker | None = None
    plans: Plans | None = None
    agents: SubAgents | None = None
    background: Background | None = None
    sandbox: Sandbox | None = None
    access: Access | None = None
    to_background: BackgroundSwitch | None = None
    session_id: str | None = None
    judged: tuple[Path, ...] | None = None
    kept_back: Callable[[Path], bool] | None = None


def tool_context(
    root: Path,
    *,
    call_id: str = "call_1",
    cwd: Path | None = None,
    cancel: CancelToken | None = None,
    state: MemoryState | None = None,
    progress: Progress | None = None,
    ask: Asker | None = None,
) -> EveryPort:
    """A context whose workspace is ``root``."""
    return EveryPort(
        call_id=call_id,
        workspace=Workspace(root=root, cwd=cwd or root),
        cancel=cancel or CancelToken(),
        progress=progress or Progress(),
        files=FileLedger(),
        state=state or MemoryState(),
        outputs=MemoryOutputs(),
        ask=ask,
        session_id="",
    )


def text_of(output: ToolOutput) -> str:
    """All text parts of an output, joined."""
    return "\n".join(part.text for part in output.parts if hasattr(part, "text"))
