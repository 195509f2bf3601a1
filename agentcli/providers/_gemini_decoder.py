"""The reply side of Gemini's ``streamGenerateContent``: chunks to events.

https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse. Law: only candidate 0
counts; a signed part is never joined with another; a signature that belongs to a text or a call
is kept as a thinking part right before it (``seal_of``), so that ``encode`` can put it back on
the same part, byte for byte (HIS-4); a reply without a finish reason was cut; what arrives
together with the finish reason, in whatever order, still counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import StopReason, Usage
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
from agentcli.providers._base import StreamDecoder, received_json, token_count

_STOP_REASONS = {
    "STOP": StopReason.END_TURN,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "SAFETY": StopReason.REFUSAL,
    "RECITATION": StopReason.REFUSAL,
    "LANGUAGE": StopReason.REFUSAL,
    "BLOCKLIST": StopReason.REFUSAL,
    "PROHIBITED_CONTENT": StopReason.REFUSAL,
    "SPII": StopReason.REFUSAL,
}
_BLOCKED_ADVICE = "say it in other words, leave out what may have been blocked, or switch the model"

Json = dict[str, Any]


def seal_of(place: str, signature: str) -> str:
    """A signature with its place: on the ``text`` or ``call`` that follows, or ``alone``."""
    return f"{place}:{signature}"


class Decoder(StreamDecoder):
    """The events of one ``streamGenerateContent`` reply."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._blocks = 0
        self._open: tuple[type[TextDelta | ThinkingDelta], int] | None = None
        self._call_ids: set[str] = set()
        self._has_output = False
        self._stop: StopReason | None = None
        self._reason = ""
        self._usage: Usage | None = None
        self._head: bytes | None = b""

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """As every decoder; a JSON array instead of events is an error that says so."""
        if self._head is not None and self.failure is None:
            start = (self._head + chunk[:64]).lstrip(b"\xef\xbb\xbf \t\r\n")
            self._head = None if start else self._head + chunk[:64]
            if start.startswith(b"["):
                self.failure = self._failure(
                    "answered with a JSON array instead of a stream of events",
                    "something in between drops `?alt=sse` from the address; check the base URL"
                    " and any proxy",
                    ErrorKind.OTHER,
                )
        return super().feed(chunk)

    def handle(self, value: Mapping[str, Any]) -> None:
        """Take one chunk."""
        # one answer may be wrapped once more by proxies of Google's own
        if isinstance(inner := value.get("response"), dict) and "candidates" not in value:
            value = inner
        if isinstance(usage := value.get("usageMetadata"), dict):
            self._count(usage)
        feedback = value.get("promptFeedback")
        if isinstance(feedback, dict) and isinstance(why := feedback.get("blockReason"), str):
            self.failure = self._failure(
                f"blocked the request ({why})", _BLOCKED_ADVICE, ErrorKind.OTHER
            )
            return
        candidates = value.get("candidates")
        if isinstance(candidates, list):
            for candidate in candidates:
                if isinstance(candidate, dict) and not candidate.get("index"):
                    self._candidate(candidate)
        self.complete = self._stop is not None and self._usage is not None

    def finish(self) -> None:
        """The bytes have ended: in good order when a finish reason was given."""
        if self._usage is not None:
            self.out.add(UsageReport(self._usage))
        if self._stop is None:
            return
        if self._stop is StopReason.REFUSAL and not self._has_output:
            self.failure = self._failure(
                f"stopped the reply before its first word ({self._reason})",
                _BLOCKED_ADVICE,
                ErrorKind.OTHER,
            )
            return
        stop = self._stop
        if stop is StopReason.END_TURN and self._call_ids:
            stop = StopReason.TOOL_USE
        self.end(StreamEnd(stop))

    def done_marker(self) -> None:
        """Some gateways send ``[DONE]`` as Chat Completions does."""
        if self._stop is not None:
            self.finish()

    def _failure(self, what: str, advice: str, kind: ErrorKind) -> ProviderError:
        return self._named(ProviderError(what, advice, kind=kind))

    def _candidate(self, candidate: Json) -> None:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        if isinstance(parts, list):
            for part in parts:
                if isinstance(part, dict):
                    self._part(part)
        reason = candidate.get("finishReason")
        if isinstance(reason, str) and reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._reason = reason
            self._stop = _STOP_REASONS.get(reason, StopReason.OTHER)

    def _part(self, part: Json) -> None:
        signature = part.get("thoughtSignature")
        signature = signature if isinstance(signature, str) else ""
        call = part.get("functionCall")
        text = part.get("text")
        if isinstance(call, dict):
            self._call(call, signature)
        elif isinstance(text, str) or signature:
            text = text if isinstance(text, str) else ""
            if part.get("thought") is True:
                self._thought(text, signature)
            else:
                self._text(text, signature)

    def _thought(self, text: str, signature: str) -> None:
        if not signature:
            self.out.delta(ThinkingDelta, self._joined(ThinkingDelta), text)
            return
        block = self._new_block()
        self.out.delta(ThinkingDelta, block, text)
        self.out.add(ThinkingSeal(block, signature=signature))

    def _text(self, text: str, signature: str) -> None:
        self._has_output = self._has_output or bool(text)
        if not signature:
            self.out.delta(TextDelta, self._joined(TextDelta), text)
            return
        place = "text" if text.strip() else "alone"
        self.out.add(ThinkingSeal(self._new_block(), redacted=seal_of(place, signature)))
        self.out.delta(TextDelta, self._new_block(), text)

    def _call(self, call: Json, signature: str) -> None:
        name = call.get("name")
        call_id = call.get("id")
        call_id = call_id if isinstance(call_id, str) else ""
        if not isinstance(name, str) or not name or (call_id and call_id in self._call_ids):
            return  # some gateways send a call again in a later chunk
        self._has_output = True
        self._call_ids.add(call_id)
        if signature:
            self.out.add(ThinkingSeal(self._new_block(), redacted=seal_of("call", signature)))
        block = self._new_block()
        arguments = call.get("args")
        self.out.add(ToolCallStart(block, call_id, name))
        if isinstance(arguments, dict):
            self.out.delta(ToolCallDelta, block, received_json(arguments))
        elif isinstance(arguments, str):
            self.out.delta(ToolCallDelta, block, arguments)

    def _joined(self, kind: type[TextDelta | ThinkingDelta]) -> int:
        """The block that an unsigned piece of ``kind`` continues, or a new one."""
        if self._open is None or self._open[0] is not kind:
            self._open = (kind, self._new_block())
        return self._open[1]

    def _new_block(self) -> int:
        self._open = None
        self._blocks += 1
        return self._blocks - 1

    def _count(self, usage: Json) -> None:
        first = self._usage is None
        self._usage = _later(self._usage or Usage(), _usage(usage))
        if first and self._usage.is_known:
            self.out.add(UsageReport(self._usage))  # a reply that is cut costs its prompt too


def _usage(usage: Json) -> Usage:
    """Gemini counts the cached tokens in the prompt, the thoughts beside the answer."""
    prompt = _sum(usage, "promptTokenCount", "toolUsePromptTokenCount")
    cached = token_count(usage.get("cachedContentTokenCount"))
    thoughts = token_count(usage.get("thoughtsTokenCount"))
    output = _sum(usage, "candidatesTokenCount", "thoughtsTokenCount")
    return Usage(
        input_tokens=None if prompt is None else max(0, prompt - (cached or 0)),
        output_tokens=output,
        cache_read_tokens=cached,
        reasoning_tokens=thoughts,
    )


def _sum(usage: Json, first: str, second: str) -> int | None:
    counts = [token_count(usage.get(first)), token_count(usage.get(second))]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _later(old: Usage, new: Usage) -> Usage:
    """Fields of ``new`` where it knows them: an early chunk may know more than a late one."""
    return Usage(
        *(
            value if value is not None else getattr(old, name)
            for name in Usage.__dataclass_fields__
            for value in (getattr(new, name),)
        )
    )
