"""Whether a session that says it runs does: its process may have died."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store._lock import live_owner

CRASH_DETAIL = "it stopped without warning: a crash, a kill or a power loss"


def with_true_status(info: SessionInfo, path: Path, *, own: bool, live: bool) -> SessionInfo:
    """``info`` with "running" corrected to "crashed" where the process that ran it is dead.

    A session is called what its file is called, also when somebody has copied the file.
    ``own``: the caller holds the writer's lock; ``live``: and has begun the turn itself.
    """
    if info.id != path.stem:
        info = replace(info, id=path.stem)
    if info.status is not SessionStatus.RUNNING:
        return info
    alive = live if own else live_owner(path) is not None
    if alive:
        return info
    return replace(info, status=SessionStatus.CRASHED, detail=CRASH_DETAIL)
