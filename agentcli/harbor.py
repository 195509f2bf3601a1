"""agentcli as an agent of Harbor, which runs Terminal-Bench and other benchmarks (SCALE-4).

``harbor run -d DATASET --agent agentcli.harbor:AgentCli -m PROVIDER/MODEL``

Harbor (https://github.com/harbor-framework/harbor, read at 0.25.0) starts a container for each
task, has this class install and run the program there, and reads tokens, cost and the trajectory
(ATIF) of what it did. Python 3.12 and later, as Harbor itself; nothing else of this package
imports it.

Law: only the line that ``agent run -o json`` ends with is judged. What a model or a command has
printed can name every kind of failure and must not be taken for one.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar

from harbor.agents.agent_auth_resolution import ModelConnectionSpec, ResolvedModelConnection
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed import base
from harbor.agents.options import Cli, InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.model_api_format import ModelApiFormat

PROGRAM = "agentcli"
RESULT = "agentcli-result.json"
LOG = "agentcli.log"
TRAJECTORY = "trajectory.json"
STATE = "agentcli"
EXPORT_S = 60
_PATH = 'export PATH="$HOME/.local/bin:$PATH"'
_UPLOADS = "/installed-agent"


class LimitReached(base.NonZeroAgentExitCodeError):
    """A limit that the user has set ended the run (exit code 3): what was done by then counts."""


def _ended_by(kinds: str, error: type[base.NonZeroAgentExitCodeError]) -> base.ErrorPattern:
    """The result object says ``terminal_reason`` itself, not a text within it."""
    return base.ErrorPattern(rf'(?<!\\)"terminal_reason":\s*"(?:{kinds})"', error)


class AgentCliOptions(InstalledAgentOptions):
    """What ``--agent-kwarg`` may say.

    ``reasoning_effort`` is how hard the model thinks; ``max_turns`` and ``max_budget_usd`` bound a
    run; ``package`` is what is installed: a requirement, or a wheel on this machine.
    """

    reasoning_effort: Annotated[str | None, Cli("--effort")] = None
    max_turns: Annotated[int | None, Cli("--max-turns")] = None
    max_budget_usd: Annotated[float | None, Cli("--max-budget-usd")] = None
    package: str = PROGRAM


class AgentCli(base.BaseInstalledAgent):
    """agentcli in the container of a task: everything is allowed there, nobody is asked.

    The container is the sandbox. Sessions and logs are in Harbor's directory for agents, so that
    they are kept with the trial.
    """

    capabilities = AgentCapabilities(
        base_url=True,
        atif=True,
        resume=True,
        native_web_tools=True,
        reasoning_effort=True,
        skills=True,
        mcp_servers=True,
    )
    options_model = AgentCliOptions
    options: AgentCliOptions
    MODEL_CONNECTION = ModelConnectionSpec(
        base_url_destination_names={"gemini": "GEMINI_BASE_URL"},
        supported_api_formats=[
            ModelApiFormat.ANTHROPIC_MESSAGES,
            ModelApiFormat.OPENAI_CHAT_COMPLETIONS,
            ModelApiFormat.OPENAI_RESPONSES,
            ModelApiFormat.GOOGLE_GENERATE_CONTENT,
        ],
    )
    ERROR_PATTERNS: ClassVar[list[base.ErrorPattern]] = [
        # an install that does not reach the network has no result object
        *(
            each
            for each in base.BaseInstalledAgent.ERROR_PATTERNS
            if each.exception is base.NetworkConnectionError
        ),
        _ended_by("rate_limit", base.ApiRateLimitError),
        _ended_by("overloaded", base.ApiOverloadedError),
        _ended_by("server", base.ApiInternalServerError),
        _ended_by("network", base.NetworkConnectionError),
        _ended_by("stalled", base.ApiResponseStalledError),
        _ended_by("context_overflow", base.ContextWindowExceededError),
        _ended_by("auth", base.AgentAuthenticationError),
        _ended_by("config_error", base.ModelNotFoundError),
        _ended_by("max_tokens", base.OutputTokenExceededError),
        _ended_by("bad_request|empty|other", base.UnknownApiError),
        _ended_by("max_turns|max_budget_usd|timeout", LimitReached),
    ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._session_id = str(uuid.uuid4())
        self._has_begun = False
        self._has_no_web = False

    @staticmethod
    def name() -> str:
        """What results call it."""
        return PROGRAM

    @classmethod
    def resolve_model_connection_config(
        cls, model_name: str | None, resolve_env: Callable[..., Any], **options: Any
    ) -> ResolvedModelConnection:
        """The key and address of the model; Harbor knows no provider ``openai-responses``."""
        if model_name is not None and model_name.startswith("openai-responses/"):
            model_name = model_name.replace("openai-responses/", "openai/", 1)
        return super().resolve_model_connection_config(model_name, resolve_env, **options)

    def get_version_command(self) -> str:
        """Prints ``agentcli 1.2.3``."""
        return f"{_PATH}; {PROGRAM} --version"

    def parse_version(self, stdout: str) -> str:
        """The number alone."""
        return stdout.rsplit(maxsplit=1)[-1] if stdout.split() else ""

    async def install(self, environment: BaseEnvironment) -> None:
        """Put the program there, by uv and with a Python of its own.

        An image that has it already is left as it is, where no version and no package is asked for.
        """
        package = self.options.package
        if package == PROGRAM and self._version is None:
            there = await environment.exec(command=f"{_PATH}; command -v {PROGRAM}")
            if there.return_code == 0:
                return
        await self.ensure_system_dependencies(
            environment, ("curl", "bash", "git", "ca_certificates", "ripgrep")
        )
        if package.endswith(".whl"):
            wheel = Path(package)
            target = f"{_UPLOADS}/{wheel.name}"
            await self._upload_agent_owned_file(environment, wheel, target)
            package = target
        elif self._version is not None:
            package = f"{package}=={self._version}"
        await self.exec_as_agent(
            environment,
            command=(
                f"set -eu; {_PATH}; "
                "command -v uv >/dev/null || curl -LsSf https://astral.sh/uv/install.sh | sh; "
                f"uv tool install --force --python 3.12 {shlex.quote(package)}; "
                f"{PROGRAM} --version"
            ),
        )

    @base.with_prompt_template
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        """Work on ``instruction`` to its end; a step of several goes on with the session.

        Raises Harbor's error for the kind of failure that the run reports.
        """
        del context
        env = {**self.model_connection.env, "AGENTCLI_HOME": str(self._logs(STATE))}
        await self._prepare(environment, env)
        command = f"{_PATH}; {self._command(instruction)}"
        self._has_begun = True
        try:
            await self.exec_as_agent(environment, command=command, env=env)
        except LimitReached as error:
            self.logger.info("agentcli stopped at a limit: %s", error)
        except base.NonZeroAgentExitCodeError:
            await self._export(environment, env)
            raise
        await self._export(environment, env)

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Tokens, cost and how it ended, of what is in the directory of logs."""
        trajectory = self._trajectory()
        if (result := _read(self.logs_dir / RESULT)) is not None:
            usage = result.get("usage") or {}
            cached = usage.get("cache_read_input_tokens")
            sent = (usage.get("input_tokens"), cached, usage.get("cache_creation_input_tokens"))
            known = [count for count in sent if count is not None]
            context.n_input_tokens = sum(known) if known else None
            context.n_cache_tokens = cached
            context.n_output_tokens = usage.get("output_tokens")
            context.cost_usd = result.get("total_cost_usd")
            context.metadata = {
                name: result[name]
                for name in ("session_id", "terminal_reason", "num_turns", "retry_after_s")
                if result.get(name) is not None
            }
        elif trajectory is not None:  # it was stopped before it could say so
            totals = trajectory.get("final_metrics") or {}
            context.n_input_tokens = totals.get("total_prompt_tokens")
            context.n_cache_tokens = totals.get("total_cached_tokens")
            context.n_output_tokens = totals.get("total_completion_tokens")
            context.cost_usd = totals.get("total_cost_usd")
            context.metadata = {"session_id": trajectory.get("session_id")}

    # --- parts of a run ----------------------------------------------------------------------

    def _logs(self, name: str) -> PurePosixPath:
        return PurePosixPath(self.environment_logs_dir) / name

    def _command(self, instruction: str) -> str:
        """One line of stdout, the result; the rest goes to files."""
        words = [PROGRAM, "run", "--yolo", "--yolo", "--sandbox", "off", "-o", "json"]
        if self.model_name:
            words += ["-m", self.model_name]
        goes_on = self._resume and self._has_begun
        words += ["--session" if goes_on else "--session-id", self._session_id]
        if self.mcp_servers:
            words += ["--mcp-config", json.dumps(self._servers()), "--strict-mcp-config"]
        flags = self.build_cli_flags()
        log, result = (shlex.quote(str(self._logs(name))) for name in (LOG, RESULT))
        said = f"{shlex.join(words)} {flags} -- {shlex.quote(instruction)}"
        return f"rm -f {result}; {said} </dev/null 2>>{log} | tee {result}"

    def _servers(self) -> dict[str, Any]:
        """The task's MCP servers, in the form of ``.mcp.json``."""
        found: dict[str, Any] = {}
        for server in self.mcp_servers:
            if server.transport == "stdio":
                found[server.name] = {"command": server.command, "args": list(server.args)}
            else:
                kind = "sse" if server.transport == "sse" else "http"
                found[server.name] = {"type": kind, "url": server.url}
        return {"mcpServers": found}

    async def _prepare(self, environment: BaseEnvironment, env: dict[str, str]) -> None:
        """Skills of the task, and no web where the task forbids it."""
        todo = [_PATH, f"mkdir -p {shlex.quote(env['AGENTCLI_HOME'])}"]
        if self.skills_dir:
            source = shlex.quote(str(self.skills_dir))
            todo.append(f"mkdir -p ~/.agents/skills && cp -r {source}/. ~/.agents/skills/")
        if self.options.disable_web_search or self._has_no_web:
            verb = "set tools.off web" if self.options.disable_web_search else "unset tools.off"
            todo.append(f"{PROGRAM} config {verb} >/dev/null")
            self._has_no_web = self.options.disable_web_search
        await self.exec_as_agent(environment, command="; ".join(todo), env=env)

    async def _export(self, environment: BaseEnvironment, env: dict[str, str]) -> None:
        """The trajectory, by the program that has written the session."""
        target = shlex.quote(str(self._logs(TRAJECTORY)))
        words = f"sessions export {self._session_id} --format atif --force -o {target}"
        command = f"{_PATH}; {PROGRAM} {words}"
        await environment.exec(command=command, env=env, timeout_sec=EXPORT_S)

    def _trajectory(self) -> dict[str, Any] | None:
        """The run's own, else of the session that a stopped run has left.

        What the container wrote is hostile: of its state only the session's file is taken, and no
        setting.
        """
        path = self.logs_dir / TRAJECTORY
        if not path.exists():
            with tempfile.TemporaryDirectory() as home:
                sessions = Path(home) / "sessions"
                sessions.mkdir(mode=0o700)
                for file in (self.logs_dir / STATE / "sessions").glob(f"{self._session_id}.db*"):
                    if file.is_file() and not file.is_symlink():
                        shutil.copy(file, sessions)
                if any(sessions.iterdir()):
                    self._export_here(home, path)
        return _read(path)

    def _export_here(self, home: str, target: Path) -> None:
        words = [sys.executable, "-m", PROGRAM, "sessions", "export", self._session_id]
        try:
            subprocess.run(  # noqa: S603 - our own program, its arguments are ours
                [*words, "--format", "atif", "-o", str(target.absolute())],
                cwd=home,
                env={**os.environ, "AGENTCLI_HOME": home},
                capture_output=True,
                timeout=EXPORT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self.logger.warning("no trajectory: %s", error)


def _read(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, if there is one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
