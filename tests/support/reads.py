"""What the judge asks about a command: does it only read?"""

from __future__ import annotations

from agentcli.domain.tools import Workspace
from agentcli.policy import read_only, strict_reads


def is_read_only(
    text: str, workspace: Workspace, search_path: str | None = None, *, contained: bool = False
) -> bool:
    """Whether ``text`` counts as a read, in the read-only sandbox or without any."""
    if contained:
        return read_only.is_read_only(text, workspace)
    return strict_reads.is_strict_read(text, workspace, search_path)
