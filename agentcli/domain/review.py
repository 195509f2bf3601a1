"""What a review of changes finds (CLI-17)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from agentcli.domain.values import frozen


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
