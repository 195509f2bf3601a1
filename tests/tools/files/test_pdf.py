"""Reading PDFs by other programs; what models get of one: ``tests/e2e/test_pdf.py``."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from agentcli.tools.files import pdf


@pytest.mark.spec("SEC-13", "TOOL-16")
def test_what_unfolds_without_end_is_given_up_and_not_held() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert pdf._run(["/bin/sh", "-c", "exec yes"], b"%PDF-", lambda: False) == b""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
    assert pdf._run(["/bin/cat"], b"%PDF-", lambda: False) == b"%PDF-"


@pytest.mark.spec("SEC-13", "TOOL-16")
def test_a_program_that_reads_them_has_bounds_in_whatever_shell_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pdftotext"
    program.write_text("#!/bin/sh\nulimit -d; ulimit -t; printf '\\f'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    answer = pdf._by_program(b"%PDF-", (1, 0, 1000, 0), tmp_path / "work", lambda: False)
    kilobytes, seconds = map(int, answer["texts"][0].split())
    assert kilobytes < 300_000
    assert seconds < 60
