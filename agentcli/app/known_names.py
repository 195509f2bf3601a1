"""What a file of steps may name, so that a wrong name is told before anything runs (SCALE-5)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from agentcli.app.extensions.found import find_extensions
from agentcli.app.models import default_model, model_info
from agentcli.config.settings import Settings
from agentcli.domain.clean import MAX_TEXT_BYTES
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.messages import UserMessage
from agentcli.engine.context.outgoing import text_room
from agentcli.policy.decision import parse_rule
from agentcli.providers.models.table import is_in_table, newer_rows, resolve


class KnownNames:
    """The agents, models and rules that mean something in ``cwd`` with these settings. Blocks."""

    def __init__(self, settings: Settings, cwd: Path) -> None:
        self.settings = settings
        self._cwd = cwd
        self._rooms: dict[str | None, int] = {}

    @cached_property
    def _agents(self) -> Sequence[str]:
        return sorted(asyncio.run(find_extensions(self.settings, self._cwd)).agents)

    def problem(self, key: str, value: str) -> str:
        """What is wrong with ``value`` as an ``agent``, a ``model`` or a rule; empty: nothing."""
        try:
            if key == "agent" and value.strip().lower() not in self._agents:
                listed = ", ".join(self._agents) or "none"
                return f"there is no agent {value} (there are: {listed})"
            if key == "model":
                resolve(value, self.settings.providers)
            if key == "allow_tools":
                parse_rule(value)
        except AgentError as error:
            return f"{error.message} ({error.advice})" if error.advice else error.message
        return ""

    def check_models(self, file: str, lines: Mapping[str | None, int], other: str | None) -> None:
        """Raise ``AgentError`` where nobody of a name can answer.

        ``lines`` are where ``file`` names each model; where it names none it is ``other``, or else
        the default one.
        """
        for model, line in sorted(lines.items(), key=lambda item: item[1]):
            if model is None:
                self.prompt_room(other)
            elif problem := self.problem("model", model):
                raise UsageError(f"{file}, line {line}: {problem}", "nothing has run")

    def prompt_room(self, model: str | None) -> int:
        """How much of a prompt ``model``, ``None`` for the default one, is sent, in bytes.

        Where its window is not certain, as much as any model. Raises ``ConfigError`` for a name
        that means nothing.
        """
        if model not in self._rooms:
            self._rooms[model] = self._room(model or default_model(self.settings))
        return self._rooms[model]

    def _room(self, model: str) -> int:
        settings = self.settings
        provider, name = resolve(model, settings.providers)
        info = model_info(settings, provider, name)
        is_said = "context_tokens" in settings.models.get(info.id, {})
        is_certain = is_in_table(provider, name, newer_rows(settings.paths.models_file))
        window = info.context_tokens if is_certain or is_said else MAX_TEXT_BYTES
        return text_room(UserMessage(()), window)
