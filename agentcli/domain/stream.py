"""What a provider may say while it answers, and in which order.

=====================  ==========================================  =======================
event                  may follow                                  opens / closes
=====================  ==========================================  =======================
``TextDelta(i)``       anything but ``StreamEnd``                  opens text block *i*
``ThinkingDelta(i)``   anything but ``StreamEnd``                  opens thinking block *i*
``ThinkingSeal(i)``    anything but ``StreamEnd``                  opens or completes block *i*
``ToolCallStart(i)``   anything but ``StreamEnd``; *i* is new      opens call block *i*
``ToolCallDelta(i)``   ``ToolCallStart(i)``                        adds to call block *i*
``UsageReport``        anything but ``StreamEnd``                  later fields win
``TextWasThinking(i)`` ``TextDelta(i)``                            closes text block *i*
``ProviderNote``       anything but ``StreamEnd``                  for the user alone
``StreamEnd``          anything; exactly once, last                closes every block
=====================  ==========================================  =======================

A block keeps one kind. Blocks may interleave (parallel calls by index); the message lists
them in the order in which each first appeared. A stream that ends without ``StreamEnd``
was cut: no message comes of it (CAN-5).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from agentcli.domain.messages import StopReason, Usage
from agentcli.domain.values import frozen


@frozen
class TextDelta:
    """More visible text of block ``index``."""

    index: int
    text: str


@frozen
class ThinkingDelta:
    """More reasoning text of block ``index``."""

    index: int
    text: str


@frozen
class ThinkingSeal:
    """The signature of thinking block ``index``, or its redacted (encrypted) whole."""

    index: int
    signature: str | None = None
    redacted: str | None = None


@frozen
class ToolCallStart:
    """A tool call begins. ``id`` may be empty: the fold then gives it one."""

    index: int
    id: str
    name: str


@frozen
class ToolCallDelta:
    """More of the arguments' JSON text of call ``index``."""

    index: int
    json_text: str


@frozen
class UsageReport:
    """Tokens so far; a later report replaces the fields it knows."""

    usage: Usage


@frozen
class TextWasThinking:
    """All of text block ``index`` was thinking: its end alone was marked (STR-11)."""

    index: int


@frozen
class ProviderNote:
    """Something about the provider that the user should know."""

    text: str


@frozen
class StreamEnd:
    """The reply is complete."""

    stop_reason: StopReason


StreamEvent = (
    TextDelta
    | ThinkingDelta
    | ThinkingSeal
    | ToolCallStart
    | ToolCallDelta
    | UsageReport
    | TextWasThinking
    | ProviderNote
    | StreamEnd
)


class Tape(Protocol):
    """Keeps what providers answer, or serves what was kept (TT-4)."""

    @property
    def is_offline(self) -> bool:
        """Whether nothing is sent."""

    @property
    def model(self) -> str:
        """The model that was asked first, ``provider/model``; empty where none was."""

    def place(self, provider: str) -> tuple[str, str] | None:
        """The protocol and the address of a provider, where they are not what settings say."""

    def exchange(
        self, place: tuple[str, str], model: str, body: bytes, sent: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """The reply to ``body``, piece by piece; ``sent`` sends it when it is iterated.

        ``place`` is the protocol and the address.
        """
