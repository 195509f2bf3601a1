"""What the chat's commands look up and change outside of a session; satisfies ``repl.desk``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agentcli.app.compose import session_files
from agentcli.cli.redacting import shown
from agentcli.cli.trusting import change_trust, find_project, trust_lines
from agentcli.config.project import Project
from agentcli.config.settings import Settings
from agentcli.domain.session import LoadedSession
from agentcli.repl.desk import Check, Hit, SettingRow


class ChatDesk:
    """For one run of the chat."""

    def __init__(self, settings: Settings, cwd: Path) -> None:
        self._settings = settings
        self._cwd = cwd
        self._files = session_files(settings)
        self._shown: Project | None = None

    @property
    def config_file(self) -> Path:
        """The person's own settings."""
        return self._settings.paths.config_file

    @property
    def command_directories(self) -> Sequence[Path]:
        """The person's own ``commands`` and ``skills``, then those of a trusted project."""
        project = self._settings.project
        own = (self._settings.paths.config_dir, Path.home() / ".agents")
        return own if project is None else (*own, project / ".agents")

    async def refresh_search(self) -> None:
        """Let ``search`` know of what is new."""
        await self._files.refresh_index()

    async def search(self, text: str, limit: int = 50) -> Sequence[Hit]:
        """Sessions in which every word of ``text`` stands, best first, each once."""
        found = await self._files.search_sessions(text, limit)
        return [Hit(hit.session_id, hit.excerpt) for hit in found]

    async def load(self, session_id: str) -> LoadedSession:
        """An earlier session, to look at."""
        from agentcli.store.files import read_session

        return await asyncio.to_thread(read_session, self._files.path_of(session_id))

    async def fork(self, session_id: str) -> str:
        """Copy a session; the id of the copy."""
        return await asyncio.to_thread(self._files.fork, session_id)

    async def allow_always(self, rule: str) -> None:
        """Write ``rule`` to the person's file."""
        await self.add_rule("allow", rule)

    async def add_rule(self, kind: str, rule: str) -> None:
        """Write ``rule`` to the person's rules of ``kind``."""
        from agentcli.config.edit import add_rule

        await asyncio.to_thread(add_rule, self._settings.paths, kind, rule)

    async def remove_rule(self, rule: str) -> bool:
        """Take ``rule`` out of the person's rules."""
        from agentcli.config.edit import remove_rule

        return await asyncio.to_thread(remove_rule, self._settings.paths, rule)

    @property
    def instructions_file(self) -> Path:
        """The person's own AGENTS.md."""
        return self._settings.paths.instructions_file

    async def instructions(self) -> str:
        """What is in that file."""
        from agentcli.config.toml_file import read_text

        return await asyncio.to_thread(read_text, self.instructions_file) or ""

    async def set_instructions(self, text: str) -> None:
        """Replace it."""
        from agentcli.config.private_file import write

        await asyncio.to_thread(write, self.instructions_file, text)

    async def trust(self) -> Sequence[str]:
        """Whether the directory's own files take effect, and what they would do."""
        project = await asyncio.to_thread(find_project, self._cwd, self._settings.env)
        self._shown = project
        return await asyncio.to_thread(trust_lines, self._settings.paths, project)

    async def set_trust(self, *, trusted: bool) -> Sequence[str]:
        """Trust the directory as it was shown, or not."""
        project = await asyncio.to_thread(find_project, self._cwd, self._settings.env)
        if trusted and project is not None and project != self._shown:
            return (*await self.trust(), "This is what you would trust: /trust yes once more.")
        line = await asyncio.to_thread(
            partial(change_trust, self._settings.paths, project, trusted=trusted)
        )
        return (line,)

    def redact(self, value: Any) -> Any:
        """A text or JSON data without keys and what looks like one."""
        return shown(value)

    async def settings(self) -> Sequence[SettingRow]:
        """Every setting, read anew."""
        from agentcli.cli.config import setting_rows

        return [SettingRow(*row) for row in await asyncio.to_thread(setting_rows)]

    async def set(self, key: str, value: str) -> str:
        """Change a setting in the person's file."""
        from agentcli.config.edit import set_value

        written = await asyncio.to_thread(set_value, self._settings.paths, key, value)
        return f"{key} = {written} ({self.config_file})"

    async def checks(self) -> Sequence[Check]:
        """What the doctor finds."""
        from agentcli.cli.doctor import all_findings

        found = await asyncio.to_thread(all_findings)
        return [Check(f.name, str(f.status), f.detail, f.advice) for f in found]
