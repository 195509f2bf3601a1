"""Progress goes to the live output."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentcli.domain.errors import InvalidArguments
from agentcli.domain.tools import Asks, OutputKind
from agentcli.tools.report_progress import TOOL
from tests.support.tool_context import Progress, tool_context


@pytest.mark.spec("TOOL-5")
@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "half way\n"),
        ({"current": 3}, "half way (3)\n"),
        ({"current": 3, "total": 6, "unit": "files"}, "half way (3/6 files, 50%)\n"),
        ({"current": 9, "total": 6}, "half way (9/6, 100%)\n"),
    ],
)
def test_the_message_is_shown(tmp_path: Path, more: dict[str, object], line: str) -> None:
    progress = Progress()
    args = TOOL.parse({"message": "half way", **more})
    output = asyncio.run(TOOL.run(args, tool_context(tmp_path, progress=progress)))
    assert progress.pieces == [line]
    assert output.kind is OutputKind.SUCCESS
    assert TOOL.summary(args) == line.strip()
    assert TOOL.definition.asks is Asks.NOTHING


def test_an_empty_message_is_refused() -> None:
    with pytest.raises(InvalidArguments):
        TOOL.parse({"message": ""})
