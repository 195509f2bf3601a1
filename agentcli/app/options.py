"""What the start of a session asks for; a part of ``compose``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.domain.ports import ContextTransform, Effort, PermissionMode, ToolGate
from agentcli.domain.tools import Tool
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.tools._final_result import ResultSchema


@frozen
class SessionOptions:
    """What the command line asks for; ``None`` leaves it to the settings (CLI-3)."""

    cwd: Path
    model: str | None = None
    add_dirs: tuple[Path, ...] = ()
    mode: PermissionMode | None = None
    yolo_twice: bool = False
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    effort: Effort | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    no_session: bool = False
    max_steps: int | None = None
    max_budget_usd: float | None = None
    resume: str | None = None
    continue_latest: bool = False
    fork: bool = False
    new: bool = False
    began: str = "startup"
    interactive: bool = False
    result: ResultSchema | None = None
    one_turn_each: bool = False
    own_tools: tuple[Tool, ...] = ()
    terminal: tuple[str, ...] = ()
    fallback: str = "narrowed"
    gates: tuple[ToolGate, ...] = ()
    transforms: tuple[ContextTransform, ...] = ()
