"""What is the user's own: settings, rules, instructions, commands and trust.

All errors are ``AgentError``; disks are waited for in threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from agentcli.app.files.attachments import attach
from agentcli.app.options import SessionOptions
from agentcli.app.trust import change_trust, find_project, plugin_lines, trust_lines
from agentcli.config.keys import ACTION_KEYS
from agentcli.config.project import Project
from agentcli.config.redaction import Redactor
from agentcli.config.settings import Settings
from agentcli.domain.messages import UserMessage
from agentcli.domain.tools import Workspace

if TYPE_CHECKING:
    from agentcli.domain.accounts import CallCost, Ledger


class SettingRow(NamedTuple):
    """A setting, its value as text, and where it comes from."""

    key: str
    value: str
    source: str


class Status(StrEnum):
    """How a thing stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One line of the doctor's report. ``advice`` says how to fix it."""

    name: str
    status: Status
    detail: str
    advice: str = ""


def of_rules(settings: Settings) -> Finding | None:
    """What is wrong with a permission rule, so that nothing starts; ``None``: nothing is."""
    from agentcli.app.setting import wrong_rule

    wrong = wrong_rule(settings)
    if wrong is None:
        return None
    return Finding("settings", Status.FAIL, wrong.message, wrong.advice)


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
        findings: Callable[[], Sequence[Finding]],
    ) -> None:
        self.settings = settings
        self.cwd = options.cwd
        self.redact_data = redactor.redact_data
        """Takes keys out of texts and JSON data (SEC-9)."""
        self.history_file = None if options.no_session else settings.paths.history_file
        """Where typed prompts are remembered; ``None`` for nowhere."""
        self.config_file = settings.paths.config_file
        self.instructions_file = settings.paths.instructions_file
        """AGENTS.md, read in every project (CTX-1)."""
        self.default_keys = {action: key for action, (key, _) in ACTION_KEYS.items()}
        """The keys of the chat where the settings name no others."""
        self.key_actions = {action: what for action, (_, what) in ACTION_KEYS.items()}
        """What each of them does."""
        self._setting_rows = setting_rows
        self._findings = findings
        self._shown_project: Project | None = None

    # --- settings and rules ----------------------------------------------------------------

    async def setting_rows(self) -> Sequence[SettingRow]:
        """Every setting, as it is now."""
        return [SettingRow(*row) for row in await asyncio.to_thread(self._setting_rows)]

    async def set(self, key: str, value: str) -> Sequence[str]:
        """Change a setting; what was written, and warnings, as lines."""
        from agentcli.app.setting import set_setting

        written = await asyncio.to_thread(set_setting, self.settings.paths, key, value)
        return (f"{key} = {written.value} ({self.config_file})", *written.warnings)

    async def add_rule(self, kind: str, rule: str) -> None:
        """Write ``rule`` to the rules of ``kind``: "allow", "ask" or "deny"."""
        from agentcli.config.edit import add_rule

        await asyncio.to_thread(add_rule, self.settings.paths, kind, rule)

    @staticmethod
    def checked_rule(rule: str) -> str:
        """``rule`` as it is written; raises ``UsageError`` when it is none."""
        from agentcli.policy.decision import parse_rule

        return str(parse_rule(rule))

    async def remove_rule(self, rule: str) -> bool:
        """Take ``rule`` out of the rules of every kind; false when it was in none."""
        from agentcli.config.edit import remove_rule

        return await asyncio.to_thread(remove_rule, self.settings.paths, rule)

    async def call_costs(self, ledger: Ledger) -> Mapping[str, CallCost]:
        """What the result of each tool call has cost, by call id (COST-1)."""
        from agentcli.app.models import models_by_name
        from agentcli.domain.accounts import call_costs

        return await asyncio.to_thread(call_costs, ledger, models_by_name(self.settings))

    async def findings(self) -> Sequence[Finding]:
        """What the doctor finds."""
        return await asyncio.to_thread(self._findings)

    # --- instructions and commands ---------------------------------------------------------

    async def instructions(self) -> str:
        """What is in the instructions file; empty where there is none."""
        from agentcli.config.paths import read_text

        return await asyncio.to_thread(read_text, self.instructions_file) or ""

    async def set_instructions(self, text: str) -> None:
        """Replace it."""
        from agentcli.config.paths import write

        await asyncio.to_thread(write, self.instructions_file, text)

    async def message(self, text: str, say: Callable[[str], None]) -> UserMessage:
        """The message for what was typed, with the files that it names (UI-4); see ``attach``."""
        return await attach(text, Workspace(self.cwd, self.cwd), say)

    async def plugins(self) -> Sequence[str]:
        """The plugins that take effect, a line each (EXT-5)."""
        return await asyncio.to_thread(plugin_lines, self.settings.paths)

    # --- trust -----------------------------------------------------------------------------

    async def trust(self) -> Sequence[str]:
        """Whether the directory's own files take effect, and what they would do (SEC-1)."""
        project = await asyncio.to_thread(
            find_project, self.cwd, self.settings.env, self.settings.hooks
        )
        self._shown_project = project
        return await asyncio.to_thread(trust_lines, self.settings.paths, project)

    async def set_trust(self, *, trusted: bool) -> Sequence[str]:
        """Trust the directory or not, from the next start on; lines that say so.

        Only what was shown is trusted: else it is shown now, and nothing is decided.
        """
        project = await asyncio.to_thread(
            find_project, self.cwd, self.settings.env, self.settings.hooks
        )
        if trusted and project is not None and project != self._shown_project:
            return (*await self.trust(), "This is what you would trust. To do so: /trust yes")
        line = await asyncio.to_thread(
            partial(change_trust, self.settings.paths, project, trusted=trusted)
        )
        return (line,)
