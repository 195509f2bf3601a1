"""What the chat has beside its open session: the user's other sessions, and the user's own files.

``SessionLibrary`` opens, lists, searches and copies sessions. ``UserFiles`` reads and changes
settings, rules, instructions, commands and trust. All errors are ``AgentError``; disks are waited
for in threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from agentcli.app.attachments import attach
from agentcli.app.compose import list_sessions, open_session, session_files
from agentcli.app.mentions import naming_only_inside
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.app.trust import change_trust, find_project, trust_lines
from agentcli.config.project import Project
from agentcli.config.redaction import Redactor
from agentcli.config.settings import ACTION_KEYS, Settings
from agentcli.domain.errors import ConfigError
from agentcli.domain.messages import UserMessage
from agentcli.domain.ports import Approver, LongWait
from agentcli.domain.session import LoadedSession, SessionInfo
from agentcli.domain.tools import Asker, Workspace
from agentcli.extensions.commands import CustomCommand, find_commands
from agentcli.store.catalogue.catalogue import SearchHit

__all__ = [
    "AsksUser",
    "Check",
    "CustomCommand",
    "SearchHit",
    "SessionLibrary",
    "SettingRow",
    "UserFiles",
    "is_ready",
]


class AsksUser(Approver, Asker, LongWait, Protocol):
    """Puts all that a session asks to the user: approvals, questions, whether to wait."""


class SessionLibrary:
    """The user's sessions, opened as ``options`` ask."""

    def __init__(self, settings: Settings, options: SessionOptions) -> None:
        self._settings = settings
        self._options = options
        self._may_fork = options.fork
        self._files = session_files(settings)

    async def open_first(self, user: AsksUser) -> Session:
        """The session that the options ask for, else the newest interrupted one (REC-4)."""
        self._may_fork = False
        return await self._open(self._options, user)

    async def open_new(self, user: AsksUser, model: str) -> Session:
        """A new session that ``model`` (``provider/model``) answers."""
        options = replace(
            self._options,
            new=True,
            began="clear",
            resume=None,
            continue_latest=False,
            fork=False,
            model=model,
        )
        return await self._open(options, user)

    async def open_existing(self, session_id: str, user: AsksUser) -> Session:
        """An earlier session, by id, its beginning, or name."""
        options = replace(
            self._options,
            resume=session_id,
            new=False,
            continue_latest=False,
            fork=self._may_fork,
            no_session=False,
        )
        self._may_fork = False
        return await self._open(options, user)

    async def _open(self, options: SessionOptions, user: AsksUser) -> Session:
        return await open_session(self._settings, options, user, user, user)

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, the most recently used first."""
        return await list_sessions(self._settings)

    async def refresh_search(self) -> None:
        """Let ``search`` know of what is new; may take long and be cancelled."""
        await self._files.refresh_index()

    async def search(self, text: str, limit: int = 50) -> Sequence[SearchHit]:
        """Sessions in which every word of ``text`` stands, best first, each once."""
        return await self._files.search_sessions(text, limit)

    async def load(self, session_id: str) -> LoadedSession:
        """An earlier session, to look at."""
        from agentcli.store.files import read_session

        return await asyncio.to_thread(read_session, self._files.path_of(session_id))

    async def fork(self, session_id: str) -> str:
        """Copy a session; the id of the copy."""
        return await asyncio.to_thread(self._files.fork, session_id)


class SettingRow(NamedTuple):
    """A setting, its value as text, and where it comes from."""

    key: str
    value: str
    source: str


class Check(NamedTuple):
    """One result of the doctor; ``status`` is ``ok``, ``warn`` or ``FAIL``."""

    name: str
    status: str
    detail: str
    advice: str = ""


class UserFiles:
    """What is the user's own, for a chat in ``options.cwd``; ``settings`` are those in force.

    ``setting_rows`` reads every setting again, ``findings`` are the doctor's; both block.
    """

    def __init__(
        self,
        settings: Settings,
        options: SessionOptions,
        redactor: Redactor,
        setting_rows: Callable[[], Iterable[tuple[str, str, str]]],
        findings: Callable[[], Iterable[tuple[str, str, str, str]]],
    ) -> None:
        self.settings = settings
        self.cwd = options.cwd
        self.redact = redactor.redact_value
        """Takes keys, and what looks like one, out of a text or JSON data (SEC-9)."""
        self.history_file = None if options.no_session else settings.paths.history_file
        """Where typed prompts are remembered; ``None`` for nowhere."""
        self.config_file = settings.paths.config_file
        self.instructions_file = settings.paths.instructions_file
        """AGENTS.md, read in every project (CTX-1)."""
        self.default_keys = {action: key for action, (key, _) in ACTION_KEYS.items()}
        """The keys of the chat where the settings name no others."""
        self._setting_rows = setting_rows
        self._findings = findings
        self._shown_project: Project | None = None

    # --- settings and rules ----------------------------------------------------------------

    async def setting_rows(self) -> Sequence[SettingRow]:
        """Every setting, as it is now."""
        return [SettingRow(*row) for row in await asyncio.to_thread(self._setting_rows)]

    async def set(self, key: str, value: str) -> str:
        """Change a setting; what was written, as a line."""
        from agentcli.config.edit import set_value

        written = await asyncio.to_thread(set_value, self.settings.paths, key, value)
        return f"{key} = {written} ({self.config_file})"

    async def add_rule(self, kind: str, rule: str) -> None:
        """Write ``rule`` to the rules of ``kind``: "allow", "ask" or "deny"."""
        from agentcli.config.edit import add_rule

        await asyncio.to_thread(add_rule, self.settings.paths, kind, rule)

    async def remove_rule(self, rule: str) -> bool:
        """Take ``rule`` out of the rules of every kind; false when it was in none."""
        from agentcli.config.edit import remove_rule

        return await asyncio.to_thread(remove_rule, self.settings.paths, rule)

    async def checks(self) -> Sequence[Check]:
        """What the doctor finds."""
        return [Check(*finding) for finding in await asyncio.to_thread(self._findings)]

    def known_models(self) -> Sequence[str]:
        """Models that can be chosen, as ``provider/model``: those of providers with a key first."""
        from agentcli.providers.models.table import known_models

        infos = known_models()
        ready = {name: is_ready(self.settings, name) for name in {i.provider for i in infos}}
        return [info.id for info in sorted(infos, key=lambda info: not ready[info.provider])]

    # --- instructions and commands ---------------------------------------------------------

    async def instructions(self) -> str:
        """What is in the instructions file; empty where there is none."""
        from agentcli.config.toml_file import read_text

        return await asyncio.to_thread(read_text, self.instructions_file) or ""

    async def set_instructions(self, text: str) -> None:
        """Replace it."""
        from agentcli.config.paths import write

        await asyncio.to_thread(write, self.instructions_file, text)

    async def custom_commands(self) -> tuple[Sequence[CustomCommand], Sequence[str]]:
        """The user's commands and skills, then a trusted project's; warnings about their files."""
        project = self.settings.project
        directories = [self.settings.paths.config_dir, Path.home() / ".agents"]
        if project is not None:
            directories.append(project / ".agents")
        return await asyncio.to_thread(find_commands, directories)

    def prompt_of(self, command: CustomCommand, arguments: str) -> str:
        """What the command sends, as its file is by now."""
        workspace = Workspace(self.cwd, self.cwd)
        return naming_only_inside(command.prompt(arguments), arguments, workspace)

    async def message(self, text: str) -> UserMessage:
        """The message for what was typed, with the files that it names (UI-4)."""
        return await attach(text, Workspace(self.cwd, self.cwd))

    # --- trust -----------------------------------------------------------------------------

    async def trust(self) -> Sequence[str]:
        """Whether the directory's own files take effect, and what they would do (SEC-1)."""
        project = await asyncio.to_thread(find_project, self.cwd, self.settings.env)
        self._shown_project = project
        return await asyncio.to_thread(trust_lines, self.settings.paths, project)

    async def set_trust(self, *, trusted: bool) -> Sequence[str]:
        """Trust the directory or not, from the next start on; lines that say so.

        Only what was shown is trusted: else it is shown now, and nothing is decided.
        """
        project = await asyncio.to_thread(find_project, self.cwd, self.settings.env)
        if trusted and project is not None and project != self._shown_project:
            return (*await self.trust(), "This is what you would trust. To do so: /trust yes")
        line = await asyncio.to_thread(
            partial(change_trust, self.settings.paths, project, trusted=trusted)
        )
        return (line,)


def is_ready(settings: Settings, provider: str) -> bool:
    """Whether the provider can be used now: its key is there, or it needs none."""
    from agentcli.providers._registry import has_key, provider_config

    try:
        config = provider_config(provider, settings.env, settings.providers)
    except ConfigError:
        return False
    return not config.needs_key or has_key(provider, settings.env, settings.providers)
