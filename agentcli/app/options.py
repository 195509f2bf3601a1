"""What the start of a session asks for, by the command line or by a library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.domain.extensions.seams import Seams
from agentcli.domain.ports import Effort, ModelInfo, PermissionMode
from agentcli.domain.stream import Tape
from agentcli.domain.tools import Tool
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.config.settings import Settings
    from agentcli.domain.tools import EditorFiles
    from agentcli.tools.common.final_result import Check, ResultSchema
    from agentcli.tools.common.function_tool import FunctionTool


@frozen
class SessionOptions:
    """What is asked for; ``None`` leaves it to the settings (CLI-3).

    ``begins_missing``: where there is no session ``resume``, one with this id begins. Who asks for
    that runs it again, so a rate limit is not waited for: the error says how long it lasts.
    ``is_task``: a new session is not the user's own, but a task's of a batch.
    """

    cwd: Path
    model: str | None = None
    agent: str | None = None
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
    pause_usd: float | None = None
    resume: str | None = None
    begins_missing: bool = False
    is_task: bool = False
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
    seams: Seams = field(default_factory=Seams)
    model_info: ModelInfo | None = None
    editor: EditorFiles | None = None
    mcp_config: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    strict_mcp_config: bool = False
    tape: Tape | None = None


def settings_of(env: Mapping[str, str], given: Mapping[str, object] | None = None) -> Settings:
    """The settings of the user's files and of ``env``, and over them ``given`` by key.

    Raises ``ConfigError``.
    """
    from agentcli.config.paths import Paths
    from agentcli.config.settings import load_settings

    return load_settings(Paths.from_env(env), env, given)


def function_tool(function: Callable[..., Any], options: Mapping[str, Any]) -> FunctionTool:
    """``function`` as a tool of the model, with the ``options`` of ``agentcli.tool``.

    Raises ``UsageError``.
    """
    from agentcli.tools.common.function_tool import FunctionTool

    return FunctionTool(function, options)


def result_schema(schema: Any, check: Check | None = None) -> ResultSchema:
    """The shape of an answer (CTRL-5); ``check`` may ask more. Raises ``UsageError``."""
    from agentcli.tools.common.final_result import ResultSchema

    return ResultSchema(schema, check=check)
