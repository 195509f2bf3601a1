"""Reading PDFs by other programs; what models get of one: ``tests/e2e/test_pdf.py``."""

from __future__ import annotations

import resource

import pytest

from agentcli.tools.files import pdf


@pytest.mark.spec("SEC-13", "TOOL-16")
def test_what_unfolds_without_end_is_given_up_and_not_held() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert pdf._run(["/bin/sh", "-c", "exec yes"], b"%PDF-", lambda: False) == b""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
    assert pdf._run(["/bin/cat"], b"%PDF-", lambda: False) == b"%PDF-"
