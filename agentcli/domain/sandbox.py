"""The port of what limits a command: its files, its network, its life (SEC-7)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from agentcli.domain.values import frozen


class SandboxKind(StrEnum):
    """What limits commands. ``OFF``: nothing does."""

    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    OFF = "off"


class Access(StrEnum):
    """How much a command gets; what goes beyond ``INSIDE`` is asked for as an approval (SEC-7)."""

    INSIDE = "inside"
    NETWORK = "network"
    OUTSIDE = "outside"


@frozen
class SandboxState:
    """What is in force. ``wanted`` is the setting; ``problem`` is why there is not (more of) it.

    ``network``: commands have it without asking.
    """

    kind: SandboxKind
    wanted: str = "auto"
    problem: str = ""
    network: bool = False


class Sandbox(Protocol):
    """Limits the commands of one session, whose workspace it knows."""

    @property
    def state(self) -> SandboxState:
        """What was found to work by a real run."""

    def wrap(self, argv: Sequence[str], access: Access) -> tuple[str, ...]:
        """The command line that runs ``argv`` with no more than ``access``."""
