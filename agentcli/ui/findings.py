"""A review as text, as JSON and as SARIF 2.1.0 (CLI-17).

SARIF: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html; what code scanning reads of
it: https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TextIO
from urllib.parse import quote

from agentcli import __version__
from agentcli.domain.clean import plural
from agentcli.domain.reports import Review, ReviewFinding, Severity
from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.rows import wrap
from agentcli.ui.sanitize import clean, clean_line, safe_json
from agentcli.ui.theme import ACCENT, BOLD, DIM, ERROR, PLAIN, WARNING, Theme, theme_for

FORMAT = "agentcli-review/1"
_STYLES = {
    Severity.CRITICAL: ERROR,
    Severity.HIGH: ERROR,
    Severity.MEDIUM: WARNING,
    Severity.LOW: DIM,
}
_LEVELS = {
    Severity.CRITICAL: "error",
    Severity.HIGH: "error",
    Severity.MEDIUM: "warning",
    Severity.LOW: "note",
}
_MEANINGS = {
    Severity.CRITICAL: "Must not be merged",
    Severity.HIGH: "A bug in likely use",
    Severity.MEDIUM: "A bug in unlikely use, or a trap for the next change",
    Severity.LOW: "Worth a remark",
}
_INDENT = "   "
_NARROWEST = 24
_WIDEST = 100


def review_text(review: Review, stream: TextIO | None) -> str:
    """The review to read on ``stream``, or in a file."""
    theme = PLAIN if stream is None else theme_for(stream, os.environ)
    columns = min(_WIDEST, shutil.get_terminal_size().columns) if theme.live else 0
    return "\n".join(review_lines(review, theme, columns)) + "\n"


def review_lines(review: Review, theme: Theme, columns: int = 0) -> Iterator[str]:
    """The review to read: findings, worst first, and what they amount to.

    On a terminal of that many ``columns`` texts are wrapped and their Markdown is rendered; 0, in a
    pipe: they are as they were written.
    """
    for number, finding in enumerate(review.findings, start=1):
        yield from _finding_lines(number, finding, theme, columns)
        yield ""
    if review.summary:
        yield from _prose(review.summary, theme, columns)
        yield ""
    files = plural(review.files, "file")
    last = [theme.paint(f"{tally(review)} in {files}: {clean_line(review.what)}", BOLD)]
    last += [theme.paint(f"note: {clean_line(note)}", DIM) for note in review.notes]
    for line in last:
        yield from wrap(line, max(columns, _NARROWEST), _INDENT) if columns else (line,)


def tally(review: Review) -> str:
    """``3 findings (1 high, 2 low)``, ``no findings``."""
    counts = Counter(each.severity for each in review.findings)
    if not counts:
        return "no findings"
    each = ", ".join(f"{counts[severity]} {severity}" for severity in Severity if counts[severity])
    return f"{plural(counts.total(), 'finding')} ({each})"


def _finding_lines(
    number: int, finding: ReviewFinding, theme: Theme, columns: int
) -> Iterator[str]:
    severity = theme.paint(str(finding.severity).upper(), _STYLES[finding.severity] | BOLD)
    place = theme.paint(clean_line(finding.place), ACCENT)
    facts = [f"{finding.confidence:.0%} sure", *(() if finding.in_diff else ("outside the diff",))]
    sure = theme.paint(f"({', '.join(facts)})", DIM)
    head = f"{number}. {severity} {place} {sure}"
    title = f"{_INDENT}{theme.paint(clean_line(finding.title), BOLD)}"
    for line in (head, title):
        yield from wrap(line, max(columns, _NARROWEST), _INDENT) if columns else (line,)
    yield from _indented(_prose(finding.body, theme, columns - len(_INDENT)))
    if finding.suggestion:
        yield f"{_INDENT}{theme.paint('Suggestion:', DIM)}"
        yield from _indented(_prose(finding.suggestion, theme, columns - len(_INDENT)))


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" if line else "" for line in lines)


def _prose(text: str, theme: Theme, columns: int) -> Iterator[str]:
    safe = clean(text).strip("\n")
    if columns <= 0:
        yield from safe.split("\n")
        return
    stream = MarkdownStream(theme, lambda: max(columns, _NARROWEST))
    yield from stream.feed(safe + "\n")
    yield from stream.finish()


def review_json(review: Review) -> str:
    """The review as a JSON object, its fields those of ``domain.reports``."""
    value = {"format": FORMAT, **asdict(review)}
    return safe_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n"


def review_sarif(review: Review) -> str:
    """The review as a SARIF log."""
    severities = tuple(Severity)
    rules = [
        {
            "id": f"review/{severity}",
            "name": f"Review{severity.title()}",
            "shortDescription": {"text": _MEANINGS[severity]},
            "defaultConfiguration": {"level": _LEVELS[severity]},
        }
        for severity in severities
    ]
    notices = [{"level": "note", "message": {"text": clean(note)}} for note in review.notes]
    run = {
        "tool": {"driver": {"name": "agentcli", "semanticVersion": __version__, "rules": rules}},
        "automationDetails": {"id": "agentcli-review/"},
        "invocations": [
            {"executionSuccessful": review.is_complete, "toolExecutionNotifications": notices}
        ],
        "results": [_result(finding) for finding in review.findings],
        "properties": {"compared": clean(review.what), "summary": clean(review.summary)},
    }
    log = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return safe_json(json.dumps(log, ensure_ascii=False, indent=2)) + "\n"


def _result(finding: ReviewFinding) -> dict[str, Any]:
    text = f"{finding.title}\n\n{finding.body}"
    if finding.suggestion:
        text += f"\n\nSuggestion:\n{finding.suggestion}"
    region = {"startLine": finding.line or 1}
    if finding.end_line is not None:
        region["endLine"] = finding.end_line
    key = f"{finding.file}\0{finding.title}".encode("utf-8", "replace")
    place = {"uri": quote(finding.file, errors="replace"), "uriBaseId": "%SRCROOT%"}
    return {
        "ruleId": f"review/{finding.severity}",
        "ruleIndex": finding.severity.rank,
        "level": _LEVELS[finding.severity],
        "message": {"text": clean(text)},
        "locations": [{"physicalLocation": {"artifactLocation": place, "region": region}}],
        "rank": round(finding.confidence * 100, 1),
        "partialFingerprints": {"agentcliReview/v1": hashlib.sha256(key).hexdigest()[:32]},
        "properties": {"severity": str(finding.severity), "inDiff": finding.in_diff},
    }
