"""An environment of Harbor's on this machine: real processes, below one directory.

What Harbor and a task call ``/app``, ``/logs``, ``/tests``, ``/solution`` and ``/installed-agent`` lies
below ``HARBOR_LOCAL_ROOT``, one directory a trial: the names are replaced in commands, variables and
scripts. For tests only: it holds nothing in.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult

_OURS = re.compile(r"(?<![\w./-])/(?=(?:app|logs|tests|solution|installed-agent)\b)")


class LocalEnvironment(BaseEnvironment):
    """See the module. ``agentcli`` and ``agent`` are those of the interpreter that runs the test."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.root = Path(os.environ["HARBOR_LOCAL_ROOT"]) / self.session_id

    @staticmethod
    def type() -> str:
        return "local"

    def _validate_definition(self) -> None:
        pass

    def inside(self, text: str) -> str:
        """``text`` with the container's paths as they are here."""
        return _OURS.sub(f"{self.root}/", text)

    async def start(self, force_build: bool) -> None:
        del force_build
        for name in ("app", "logs/agent", "logs/verifier", "logs/artifacts", "tests", "home"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    async def stop(self, delete: bool) -> None:
        if delete:
            shutil.rmtree(self.root, ignore_errors=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        del user
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        given = {name: self.inside(text) for name, text in (self._merge_env(env) or {}).items()}
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            self.inside(command),
            cwd=self.inside(cwd) if cwd else self.root / "app",
            env={"PATH": path, "HOME": str(self.root / "home"), **given},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        except BaseException:  # as a container is stopped: everything in it ends
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        assert process.returncode is not None
        return ExecResult(
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            return_code=process.returncode,
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = Path(self.inside(target_path))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, target)
        self._translate(target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        target = Path(self.inside(target_dir))
        shutil.copytree(source_dir, target, dirs_exist_ok=True)
        for file in target.rglob("*.sh"):
            self._translate(file)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self.inside(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self.inside(source_dir), target_dir, dirs_exist_ok=True)

    def _translate(self, file: Path) -> None:
        if file.suffix == ".sh":
            file.write_text(self.inside(file.read_text()))
