"""What a session can be given from outside (CTRL-9), by a program or by a plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from agentcli.domain.ports import (
    ContextTransform,
    InputSource,
    Provider,
    ReminderTexts,
    ToolGate,
    WrapUpSignal,
)
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.domain.extensions.hooks import HookConfig
    from agentcli.domain.extensions.keeping import Store
    from agentcli.domain.messages import Message


@frozen
class Seams:
    """What an embedding program or a plugin supplies to a session (CTRL-9); all may be left out.

    ``provider`` answers, ``store`` keeps the history, ``messages`` come before the first prompt
    of a new session. ``steering`` and ``follow_ups`` are asked where the queue of that kind is
    read, ``wrap_up`` before each step. ``temperature`` and ``request_fields`` go into each request.
    """

    provider: Provider | None = None
    store: Store | None = None
    messages: tuple[Message, ...] = ()
    gates: tuple[ToolGate, ...] = ()
    transforms: tuple[ContextTransform, ...] = ()
    steering: tuple[InputSource, ...] = ()
    follow_ups: tuple[InputSource, ...] = ()
    wrap_up: tuple[WrapUpSignal, ...] = ()
    reminders: ReminderTexts | None = None
    temperature: float | None = None
    request_fields: Mapping[str, Any] = field(default_factory=dict)
    hooks: tuple[HookConfig, ...] = ()

    def over(self, other: Seams) -> Seams:
        """Both: all of what there may be several of, else what this one has."""
        return Seams(
            provider=self.provider or other.provider,
            store=self.store or other.store,
            messages=self.messages or other.messages,
            gates=(*self.gates, *other.gates),
            transforms=(*self.transforms, *other.transforms),
            steering=(*self.steering, *other.steering),
            follow_ups=(*self.follow_ups, *other.follow_ups),
            wrap_up=(*self.wrap_up, *other.wrap_up),
            reminders=self.reminders or other.reminders,
            temperature=other.temperature if self.temperature is None else self.temperature,
            request_fields={**other.request_fields, **self.request_fields},
            hooks=(*self.hooks, *other.hooks),
        )
