"""What is told when it is asked for: why a call may run, where the tokens go, what a review finds.

Law: values that a front end shows and a program reads; none of them is loaded before somebody asks.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from agentcli.domain.ports import GrantOffer
from agentcli.domain.values import frozen


@frozen
class InMode:
    """What would become of the same call in one permission mode; fields as in ``Explanation``."""

    mode: str
    answer: str
    where: str


@frozen
class Explanation:
    """What would become of a call, and why (SEC-3).

    ``answer`` is "allow", "ask" or "deny"; ``part`` the command in a longer one that decided it;
    ``rule`` the rule that did, ``source`` where that is written. ``offers`` are the rules that an
    approval would offer. ``where`` says in words where a command would run: in the read-only
    sandbox, in the sandbox, outside of it; empty for what is no command. ``modes`` says the same
    of every mode.
    """

    tool: str
    answer: str
    reason: str
    part: str
    rule: str
    source: str
    effect: str
    mode: str
    offers: tuple[GrantOffer, ...] = ()
    where: str = ""
    modes: tuple[InMode, ...] = ()


@frozen
class ContextPart:
    """One kind of what is sent: tokens, and how many things of that kind there are."""

    name: str
    tokens: int
    count: int


@frozen
class HeavyResult:
    """A tool result and what it adds to each request.

    ``again_usd`` is what it costs in every later request, read from the provider's cache;
    ``None`` where the price is unknown. ``left_out``: a line is sent in its place (CTRL-8).
    """

    call_id: str
    name: str
    about: str
    tokens: int
    again_usd: float | None
    left_out: bool


@frozen
class ContextReport:
    """The next request, without its answer. Tokens throughout.

    ``is_measured``: ``used`` rests on what the provider has reported, else it is estimated.
    ``left_out`` is how many old tool results are sent as a line only, ``instructions`` each file
    of them and its tokens.
    """

    model: str
    window: int
    used: int
    compacts_at: int
    is_measured: bool
    parts: tuple[ContextPart, ...]
    heaviest: tuple[HeavyResult, ...] = ()
    left_out: int = 0
    instructions: tuple[tuple[str, int], ...] = ()

    @property
    def free(self) -> int:
        """Tokens left in the window."""
        return max(0, self.window - self.used)

    @property
    def percent(self) -> float:
        """How full the window is; may pass 100."""
        return 100.0 * self.used / self.window if self.window else 0.0


# --- a review of changes (CLI-17) -----------------------------------------------------------------


class Severity(StrEnum):
    """How bad it is, worst first."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return tuple(Severity).index(self)


@frozen
class ReviewFinding:
    """One finding. ``file`` is from the top of the repository; without ``line`` it is about all.

    ``confidence`` is from 0 to 1. ``in_diff``: the lines stand in the diff that was reviewed.
    """

    file: str
    severity: Severity
    title: str
    body: str
    confidence: float
    line: int | None = None
    end_line: int | None = None
    suggestion: str = ""
    in_diff: bool = True

    @property
    def place(self) -> str:
        """``file``, ``file:line`` or ``file:line-end``."""
        if self.line is None:
            return self.file
        several = self.end_line is not None and self.end_line > self.line
        return f"{self.file}:{self.line}" + (f"-{self.end_line}" if several else "")


@frozen
class Review:
    """A review. ``what`` was compared, ``files`` is how many had changed.

    ``notes`` say what was not looked at and what was dropped. ``is_complete``: every part of the
    changes was answered for.
    """

    what: str
    files: int
    findings: tuple[ReviewFinding, ...] = ()
    summary: str = ""
    notes: tuple[str, ...] = ()
    is_complete: bool = True
    model: str = ""
    session_id: str = ""
    cost_usd: float | None = None


SEVERITIES = tuple(str(each) for each in Severity)
FINDINGS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {
            "type": "string",
            "description": "What the change does and whether it is sound, in a few sentences.",
        },
        "findings": {
            "type": "array",
            "description": "The problems found, worst first; empty when there are none.",
            "items": {
                "type": "object",
                "properties": {
                    "file": {
                        "type": "string",
                        "description": "Path as the diff names it, from the top of the repository.",
                    },
                    "line": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "First line in the new file, as numbered in the diff. Leave"
                        " out only what is about the whole file or a deleted one.",
                    },
                    "end_line": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Last line; leave out for one line.",
                    },
                    "severity": {"type": "string", "enum": list(SEVERITIES)},
                    "confidence": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 1,
                        "description": "How sure you are that it is a real problem.",
                    },
                    "title": {"type": "string", "description": "The problem in one short line."},
                    "body": {
                        "type": "string",
                        "description": "Why it is a problem: what happens, and when.",
                    },
                    "suggestion": {
                        "type": "string",
                        "description": "The fix, in a sentence or as code; leave out if unclear.",
                    },
                },
                "required": ["file", "severity", "confidence", "title", "body"],
            },
        },
    },
    "required": ["summary", "findings"],
}
