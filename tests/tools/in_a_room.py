"""A workspace to run file tools in: real files, a real ledger, real contexts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.messages import TextPart
from agentcli.domain.tools import (
    FileLedger,
    OutputKind,
    ToolOutput,
    Workspace,
)
from tests.support.tool_context import EveryPort

SUITES = Path(__file__).resolve().parents[2].parent / "shared/suites"


def suite(name: str) -> list[dict[str, Any]]:
    """The cases of a shared suite; none where the folder is absent (see ``needs_suites``)."""
    path = SUITES / name
    return json.loads(path.read_text()) if path.exists() else []


needs_suites = pytest.mark.skipif(not SUITES.exists(), reason="the shared suites are not here")


class Outputs:
    """Raw outputs of earlier calls."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def read(self, call_id: str) -> bytes | None:
        return self.kept.get(call_id)


class State:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        return self.values.get(key)

    async def set(self, key: str, value: Any) -> None:
        self.values[key] = value


class Room:
    """A directory, and what one session knows of the files in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = Workspace(root, root)
        self.ledger = FileLedger()
        self.outputs = Outputs()
        self.cancel = CancelToken()

    def context(self, call_id: str = "call_1") -> EveryPort:
        return EveryPort(
            call_id=call_id,
            workspace=self.workspace,
            cancel=self.cancel,
            progress=lambda _: None,
            files=self.ledger,
            state=State(),
            outputs=self.outputs,
        )

    def run(self, tool: Any, **arguments: Any) -> ToolOutput:
        return asyncio.run(tool.run(tool.parse(arguments), self.context()))

    def preview(self, tool: Any, **arguments: Any) -> str:
        return asyncio.run(tool.preview(tool.parse(arguments), self.context()))

    def paths(self, tool: Any, **arguments: Any) -> tuple[Path, ...]:
        return tool.paths(tool.parse(arguments), self.workspace)

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def tree(self) -> dict[str, bytes]:
        """Every file by its relative name, temporary ones included."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path.resolve())


def text_of(output: ToolOutput) -> str:
    return "\n".join(part.text for part in output.parts if isinstance(part, TextPart))


def ok(output: ToolOutput) -> str:
    assert output.kind is OutputKind.SUCCESS, text_of(output)
    return text_of(output)


def failed(output: ToolOutput) -> str:
    assert output.kind is OutputKind.TOOL_ERROR, (output.kind, text_of(output))
    return text_of(output)
