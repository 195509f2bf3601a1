"""What slash commands need of the program beside the open session: one small port.

``cli`` satisfies it. All errors are ``AgentError``; nothing here waits on the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentcli.domain.session import LoadedSession


@dataclass(frozen=True, slots=True)
class Hit:
    """A session in which a text was found; the words stand between ``[`` and ``]``."""

    session_id: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting, its value as text, and where it comes from."""

    key: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Check:
    """One result of the doctor; ``status`` is ``ok``, ``warn`` or ``FAIL``."""

    name: str
    status: str
    detail: str
    advice: str = ""


class Desk(Protocol):
    """What there is to look up and to change outside of a session."""

    @property
    def config_file(self) -> Path:
        """The person's own settings."""

    @property
    def command_directories(self) -> Sequence[Path]:
        """Where the person's own ``commands`` and ``skills`` are, the ones that win first."""

    async def refresh_search(self) -> None:
        """Let ``search`` know of what is new; may take long and be cancelled."""

    async def search(self, text: str, limit: int = 50) -> Sequence[Hit]:
        """Sessions in which every word of ``text`` stands, best first, each once."""

    async def load(self, session_id: str) -> LoadedSession:
        """An earlier session, to look at."""

    async def fork(self, session_id: str) -> str:
        """Copy a session; the id of the copy."""

    async def allow_always(self, rule: str) -> None:
        """Write ``rule`` to the person's file: allowed in every session from now on."""

    async def add_rule(self, kind: str, rule: str) -> None:
        """Write ``rule`` to the person's rules of ``kind``: "allow", "ask" or "deny"."""

    async def remove_rule(self, rule: str) -> bool:
        """Take ``rule`` out of the person's rules of every kind; false when it was in none."""

    @property
    def instructions_file(self) -> Path:
        """The person's own AGENTS.md, read in every project (CTX-1)."""

    async def instructions(self) -> str:
        """What is in that file; empty where there is none."""

    async def set_instructions(self, text: str) -> None:
        """Replace it."""

    async def trust(self) -> Sequence[str]:
        """Whether the directory's own files take effect, and what they would do (SEC-1)."""

    async def set_trust(self, *, trusted: bool) -> Sequence[str]:
        """Trust the directory or not, from the next start on; lines that say so.

        Only what was shown is trusted: else it is shown now, and nothing is decided.
        """

    async def settings(self) -> Sequence[SettingRow]:
        """Every setting."""

    async def set(self, key: str, value: str) -> str:
        """Change a setting in the person's file; what was written, as a line."""

    def redact(self, value: Any) -> Any:
        """A text or JSON data without keys and what looks like one (SEC-9)."""

    async def checks(self) -> Sequence[Check]:
        """What the doctor finds."""
