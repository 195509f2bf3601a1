"""What can be set, as values. Where each comes from is the business of ``config``."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Protocol

from agentcli.domain.values import frozen


class PermissionMode(StrEnum):
    """What runs without asking (SEC-3)."""

    DEFAULT = "default"
    ACCEPT_EDITS = "accept-edits"
    PLAN = "plan"
    YOLO = "yolo"


class StoredKey(Protocol):
    """A key that the person has stored (SEC-9)."""

    @property
    def place(self) -> str:
        """Where it stands: ``keyring`` or ``file``."""

    @property
    def at_hand(self) -> bool:
        """Whether ``get`` answers at once."""

    def get(self) -> str:
        """The key. May wait for seconds: not for an event loop. Raises ``ConfigError``."""

    def stop(self) -> None:
        """End a ``get`` that waits in another thread."""


@frozen
class ProviderConfig:
    """How to reach a provider. ``kind`` names the wire protocol: ``anthropic``, ``openai``, ....

    ``api`` chooses where OpenAI's protocol has two forms: ``chat`` or ``responses``; empty means
    what suits the address.

    ``api_key`` never appears in a ``repr``, a log or a file (SEC-9). ``key_env`` is the name of
    the environment variable it came from, for advice. ``stored`` is the key to use where the
    environment has none.
    """

    name: str
    kind: str
    base_url: str = ""
    key_env: str = ""
    api_key: str = field(default="", repr=False)
    needs_key: bool = True
    api: str = ""
    stored: StoredKey | None = field(default=None, repr=False, compare=False)
