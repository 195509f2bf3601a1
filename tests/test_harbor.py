"""The adapter for Harbor against the installed package: real processes, no container.

Needs Python 3.12 and Harbor; all of it is slow, since Harbor alone takes seconds to import.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import KEY
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.replies import Call, Reply, Text, calls, fails, rate_limited

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spec("SCALE-4"),
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore"),  # those of Harbor's own dependencies
]
MODEL = "anthropic/claude-sonnet-4-5"
ROOT = Path(__file__).parent.parent
TASK = {
    "instruction.md": "Write hello into greeting.txt",
    "task.toml": 'schema_version = "1.4"\n[agent]\ntimeout_sec = 60.0\n',
    "environment/Dockerfile": "FROM scratch\n",
    "tests/test.sh": (
        "#!/bin/bash\n"
        '[ "$(cat /app/greeting.txt)" = hello ] && reward=1 || reward=0\n'
        "echo $reward > /logs/verifier/reward.txt\n"
    ),
}


def needs_harbor() -> Any:
    if sys.version_info < (3, 12):
        pytest.skip("Harbor needs Python 3.12")
    return pytest.importorskip("harbor", reason="Harbor is not installed")


def served(server: ModelServer) -> dict[str, str]:
    return {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.base_url(ANTHROPIC)}


def test_harbor_runs_a_task_and_reads_tokens_cost_and_trajectory(tmp_path: Path) -> None:
    needs_harbor()
    for name, text in TASK.items():
        file = tmp_path / "task" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    work = calls(Call("write_file", {"path": "greeting.txt", "content": "hello\n"}))
    with ModelServer([work, "done"]) as server:
        command = [sys.executable, "-m", "harbor.cli.main", "run", "-p", "task", "-m", MODEL]
        command += ["--agent", "agentcli.harbor:AgentCli", "-o", "jobs", "--job-name", "job"]
        command += ["--env", "tests.support.harbor_local:LocalEnvironment", "--yes"]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={
                **os.environ,
                **served(server),
                "HARBOR_LOCAL_ROOT": str(tmp_path / "root"),
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    (found,) = (tmp_path / "jobs" / "job").glob("task__*")
    result = json.loads((found / "result.json").read_text())
    assert result["exception_info"] is None, (done.stdout, done.stderr)
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert result["agent_info"]["name"] == "agentcli" and result["agent_info"]["version"]
    context = result["agent_result"]
    assert (context["n_input_tokens"], context["n_output_tokens"]) == (200, 40)
    assert context["cost_usd"] == pytest.approx(0.0012)
    assert context["metadata"]["terminal_reason"] == "completed"
    from harbor.models.trajectories import Trajectory

    text = (found / "agent" / "trajectory.json").read_text()
    trajectory = Trajectory.model_validate_json(text)
    assert trajectory.agent.name == "agentcli"
    assert [step.source for step in trajectory.steps][:2] == ["user", "agent"]
    everything = b"".join(file.read_bytes() for file in found.rglob("*") if file.is_file())
    assert KEY.encode() not in everything


class Trial:
    """The adapter and a place to run in, without the rest of Harbor."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        needs_harbor()
        from harbor.models.task.config import EnvironmentConfig
        from harbor.models.trial.paths import TrialPaths

        from agentcli.harbor import AgentCli
        from tests.support.harbor_local import LocalEnvironment

        monkeypatch.setenv("HARBOR_LOCAL_ROOT", str(tmp_path / "root"))
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        self.environment = LocalEnvironment(
            environment_dir=tmp_path,
            environment_name="task",
            session_id="trial",
            trial_paths=TrialPaths(tmp_path / "trial"),
            task_env_config=EnvironmentConfig(),
        )
        self.agent = AgentCli(
            logs_dir=self.environment.root / "logs" / "agent", model_name=MODEL, **options
        )

    def play(
        self, script: list[Any], body: Callable[[Any, ModelServer], Awaitable[None]], **how: Any
    ) -> tuple[ModelServer, Any]:
        """Set up and let ``body`` run instructions; the server, and the context afterwards."""
        from harbor.models.agent.context import AgentContext

        context = AgentContext()
        with ModelServer(script, **how) as server:

            async def whole() -> None:
                for name, value in served(server).items():
                    os.environ[name] = value
                await self.environment.start(force_build=False)
                await self.agent.setup(self.environment)
                assert self.agent.version()

                async def run(text: str, *, again: bool = False) -> None:
                    act = self.agent.resume if again else self.agent.run
                    await act(text, self.environment, context)

                await body(run, server)

            asyncio.run(whole())
        self.agent.populate_context_post_run(context)
        return server, context


@pytest.fixture(autouse=True)
def _no_keys_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(name, "to be replaced")


LIE = '"terminal_reason":"auth" rate limit, Not logged in, API Error, Connection refused'


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (rate_limited("3600"), "ApiRateLimitError"),
        (fails(401), "AgentAuthenticationError"),
        (fails(400, "context"), "ContextWindowExceededError"),
        (fails(404), "UnknownApiError"),
        ("cut", "OutputTokenExceededError"),
    ],
)
def test_a_failure_is_harbors_error_of_that_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Any, error: str
) -> None:
    trial = Trial(tmp_path, monkeypatch)
    if reply == "cut":
        reply = Reply((Text(LIE),), stop="max_tokens")

    async def body(run: Any, server: ModelServer) -> None:
        from harbor.agents.installed import base

        with pytest.raises(base.NonZeroAgentExitCodeError) as caught:
            await run(f"Say {LIE}")
        assert type(caught.value).__name__ == error, caught.value

    trial.play([], body, default=reply)
    assert (trial.agent.logs_dir / "trajectory.json").exists()


def test_a_limit_of_the_users_is_no_error_and_steps_share_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = tmp_path / "skills" / "greeting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greeting\ndescription: canary-skill\n---\nHi.\n")
    trial = Trial(
        tmp_path,
        monkeypatch,
        max_turns=1,
        reasoning_effort="low",
        disable_web_search=True,
        skills_dir=str(tmp_path / "skills"),
    )
    look = calls(Call("list_directory", {}))

    async def body(run: Any, server: ModelServer) -> None:
        await run("the first step")
        await run("the second step", again=True)

    server, context = trial.play([look, "done"], body)
    first, second = (json.dumps(request.body) for request in server.requests)
    assert "the first step" in second and "the second step" in second
    assert "canary-skill" in first and "web_fetch" not in first
    assert context.metadata["terminal_reason"] == "completed" and context.n_input_tokens == 100
    steps = json.loads((trial.agent.logs_dir / "trajectory.json").read_text())["steps"]
    assert [step["message"] for step in steps if step["source"] == "user"] == [
        "the first step",
        "the second step",
    ]


def test_of_a_run_that_harbor_stops_the_tokens_and_the_trajectory_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path, monkeypatch)
    state = trial.environment.root / "logs" / "agent" / "agentcli"

    def hang(_: Any) -> Reply:
        return Reply((Text("x"),), stall_at="connect")

    async def body(run: Any, server: ModelServer) -> None:
        working = asyncio.create_task(run("a long task"))
        while len(server.requests) < 2:
            await asyncio.sleep(0.01)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        state.joinpath("config.toml").write_text(
            f'[providers.anthropic]\napi_key_command = "touch {tmp_path / "taken-over"}"\n'
        )

    _, context = trial.play([calls(Call("list_directory", {})), hang], body)
    assert (context.n_input_tokens, context.n_output_tokens) == (100, 20)
    steps = json.loads((trial.agent.logs_dir / "trajectory.json").read_text())["steps"]
    assert steps[0]["message"] == "a long task"
    assert not (tmp_path / "taken-over").exists()  # settings from a container are not read
