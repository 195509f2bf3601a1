r"""Plays a script instead of asking a model: for tests, demos and replay.

A script is a JSON list of steps, or JSON lines, one step each. A step is a list of events (or one
event); an event is an object with one of these keys, or a string, which is text::

    {"text": "Hello", "chunk": 3}            streamed three characters at a time
    {"thinking": "Hm.", "signature": "s1"}   or {"redacted": "..."}
    {"tool": "bash", "arguments": {"command": "pwd"}, "id": "call_1"}
    {"tool": "bash", "raw": "{\"comm"}        arguments as the text that the model sent
    {"pause_s": 1.5}                         ends at once when the turn is cancelled
    {"usage": {"input_tokens": 10, "output_tokens": 5}}
    {"error": "overloaded", "message": "...", "retry_after_s": 2, "times": 1}
    {"stop": "max_tokens"}                   why the reply ends; "cut" ends it without an end

Law: which step is played depends on the number of assistant messages in the request only, so
that a resumed session goes on where it was; ``times`` counts the attempts of one process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError
from agentcli.domain.messages import AssistantMessage, StopReason, Usage
from agentcli.domain.ports import ModelRequest, Provider, ProviderConfig
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)

_ENV_MODEL = "script"
_CUT = "cut"
_SHAPE = "`python -m pydoc agentcli.providers.scripted` shows the shape of a script"

Event = dict[str, Any]
Step = list[Event]


def parse_script(text: str, name: str) -> list[Step]:
    """The steps of a script; ``name`` is for the error. Raises ``ConfigError``."""
    stripped = text.strip()
    try:
        if stripped.startswith("["):
            try:
                raw = json.loads(stripped)
            except ValueError:
                raw = [json.loads(line) for line in stripped.splitlines() if line.strip()]
        else:
            raw = [json.loads(line) for line in stripped.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the script {name} is not JSON or JSON lines: {error}", _SHAPE) from None
    steps: list[Step] = []
    for number, step in enumerate(raw if isinstance(raw, list) else [raw], 1):
        items = step if isinstance(step, list) else [step]
        events = [{"text": item} if isinstance(item, str) else item for item in items]
        if not all(isinstance(event, dict) for event in events):
            raise ConfigError(f"step {number} of the script {name} is not a list of events", _SHAPE)
        steps.append(events)
    return steps


class ScriptedProvider:
    """See the module."""

    host = ""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._scripts: dict[str, list[Step]] = {}
        self._raised: dict[tuple[str, int, int], int] = {}

    @property
    def name(self) -> str:
        """The part before the slash in ``provider/model``."""
        return self._config.name

    def encode(self, request: ModelRequest) -> None:
        """Nothing is sent."""
        del request

    def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The step that the history has reached. Raises ``ProviderError`` when there is none."""
        if request.model.tool_protocol is None:
            return self._played(request, cancel)
        from agentcli.providers.text_calls.reading import TextReplies

        return TextReplies().read(self._played, request, cancel)

    async def _played(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        path = self._path(request.model.name)
        steps = await self._load(path)
        number = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if number >= len(steps):
            raise ProviderError(
                f"the script {path} is over: it has {len(steps)} steps and step {number + 1} "
                "was asked for",
                "add a step, or use another model",
                kind=ErrorKind.OTHER,
                provider=self.name,
            )
        stop = ""
        has_calls = False
        for position, event in enumerate(steps[number]):
            if cancel.cancelled:
                return
            if "pause_s" in event:
                await _pause(float(event["pause_s"]), cancel)
            elif "error" in event:
                self._fail(event, (path, number, position))
            elif "stop" in event:
                stop = str(event["stop"])
            else:
                has_calls = has_calls or "tool" in event
                for item in _play(event, position, number):
                    yield item
        if stop != _CUT and not cancel.cancelled:
            yield StreamEnd(_stop_reason(stop, has_calls=has_calls))

    async def aclose(self) -> None:
        """Nothing is held open."""

    def _path(self, model: str) -> str:
        path = self._config.base_url if model == _ENV_MODEL else model
        if not path:
            raise ConfigError(
                "no script was named", "set AGENTCLI_SCRIPT to its path, or use scripted/PATH"
            )
        return path

    async def _load(self, path: str) -> list[Step]:
        if path not in self._scripts:
            try:
                text = await asyncio.to_thread(_read, path)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
                raise ConfigError(
                    f"the script {path} cannot be read: {reason}", "check AGENTCLI_SCRIPT"
                ) from None
            self._scripts[path] = parse_script(text, path)
        return self._scripts[path]

    def _fail(self, event: Mapping[str, Any], place: tuple[str, int, int]) -> None:
        times = event.get("times")
        raised = self._raised.get(place, 0)
        if isinstance(times, int) and raised >= times:
            return
        self._raised[place] = raised + 1
        try:
            kind = ErrorKind(event["error"])
        except ValueError:
            kind = ErrorKind.OTHER
        raise ProviderError(
            str(event.get("message", f"the script says: {event['error']}")),
            str(event.get("advice", "")),
            kind=kind,
            provider=self.name,
            status=event.get("status"),
            retry_after_s=event.get("retry_after_s"),
        )


def _read(path: str) -> str:
    return Path(path).expanduser().read_text("utf-8")


async def _pause(seconds: float, cancel: CancelToken) -> None:
    try:
        async with asyncio.timeout(seconds):
            await cancel.wait()
    except TimeoutError:
        pass


def _play(event: Mapping[str, Any], index: int, step: int) -> Iterator[StreamEvent]:
    """The stream events of one script event; ``index`` becomes its block."""
    if "text" in event:
        for piece in _pieces(event, "text"):
            yield TextDelta(index, piece)
    elif "thinking" in event or "redacted" in event:
        for piece in _pieces(event, "thinking"):
            yield ThinkingDelta(index, piece)
        if "signature" in event or "redacted" in event:
            yield ThinkingSeal(index, event.get("signature"), event.get("redacted"))
    elif "tool" in event:
        call_id = str(event.get("id", f"call_{step + 1}_{index + 1}"))
        yield ToolCallStart(index, call_id, str(event["tool"]))
        arguments = event.get("raw")
        if arguments is None:
            arguments = json.dumps(event.get("arguments", {}), ensure_ascii=False)
        for piece in _pieces({**event, "raw": arguments}, "raw"):
            yield ToolCallDelta(index, piece)
    elif isinstance(usage := event.get("usage"), dict):
        known = {key: value for key, value in usage.items() if key in Usage.__dataclass_fields__}
        yield UsageReport(Usage(**known))


def _pieces(event: Mapping[str, Any], key: str) -> Iterator[str]:
    text = str(event.get(key, ""))
    size = event.get("chunk")
    if not isinstance(size, int) or size < 1:
        size = len(text) or 1
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _stop_reason(stop: str, *, has_calls: bool) -> StopReason:
    if not stop:
        return StopReason.TOOL_USE if has_calls else StopReason.END_TURN
    try:
        return StopReason(stop)
    except ValueError:
        return StopReason.OTHER


def create(config: ProviderConfig) -> Provider:
    """The provider that ``config`` describes; its ``base_url`` is the path of the script."""
    return ScriptedProvider(config)


PROVIDER = create
