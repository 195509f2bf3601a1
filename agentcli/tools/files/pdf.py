"""PDFs: their pages as text, and as a document for models that take one (TOOL-16).

Law: what a PDF holds is read by another process with limits of time, memory and output; a file
that cannot be read is one line with advice. A document is sent to a model only where its provider
takes documents (``ModelInfo.supports_documents``); else its text goes in its place.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentcli.domain.extensions.extras import install_command
from agentcli.domain.messages import DocumentPart
from agentcli.process.environment import base_environment, find_program
from agentcli.tools.common.base import MAX_CHARS
from agentcli.tools.files.disk import human_size
from agentcli.tools.files.paths import FileProblem
from agentcli.tools.files.pdf_worker import MAX_MEMORY_BYTES

MAGIC = b"%PDF-"
# https://platform.claude.com/docs/en/build-with-claude/pdf-support: 32 MB and 100 pages a request;
# https://ai.google.dev/gemini-api/docs/document-processing: 20 MB a request, in base64
MAX_PAGES = 100
MAX_DOCUMENT_BYTES = 8_000_000
MAX_READ_BYTES = 32_000_000
WITHIN_S = 30.0
_MAX_PRINTED_BYTES = 2 * MAX_READ_BYTES
_ENCRYPTED = b"/Encrypt"  # the trailer of every such file, which providers refuse
_WORKER = Path(__file__).with_name("pdf_worker.py")
_PAGES = re.compile(r"\s*(\d{1,6})\s*+(?:-\s*+(\d{1,6})?)?\s*")


class Pdf(NamedTuple):
    """What was read: ``head`` says it in a line, ``part`` is what a model gets."""

    head: str
    part: DocumentPart
    is_cut: bool


def page_range(text: str | None) -> tuple[int, int]:
    """First and last page of ``3``, ``1-5`` or ``7-``; the last is 0 where there is no limit.

    Raises ``FileProblem``.
    """
    if text is None or not text.strip():
        return 1, 0
    found = _PAGES.fullmatch(text)
    first = int(found[1]) if found else 0
    last = int(found[2] or 0) if found and "-" in text else first
    if not first or (last and last < first):
        raise FileProblem(f'pages is {text[:40]!r}: write it as "3", "1-5" or "7-".')
    return first, last


def read_pdf(
    data: bytes,
    name: str,
    pages: str | None,
    *,
    workspace: Path,
    stopped: Callable[[], bool] = lambda: False,
    max_chars: int = MAX_CHARS - 1_000,
) -> Pdf:
    """The pages of ``data``. Blocks for at most ``WITHIN_S``; raises ``FileProblem``."""
    first, last = page_range(pages)
    what = f"{name} is a PDF of {human_size(len(data))}"
    if len(data) > MAX_READ_BYTES:
        limit = human_size(MAX_READ_BYTES)
        raise FileProblem(f"{what}, more than the {limit} that are read. Use bash to split it.")
    is_part = first > 1 or last > 0
    answer, pdf = _asked(data, (first, last, max_chars, int(is_part)), workspace, stopped)
    error = str(answer.get("error", ""))
    if error == "no reader":
        if is_part or _ENCRYPTED in data or len(data) > MAX_DOCUMENT_BYTES:
            raise FileProblem(f"{what}, and {_no_reader()}.")
        note = f"[{what}; {_no_reader()}]"
        head = f"{name}: PDF, {human_size(len(data))}"
        return Pdf(head, DocumentPart("application/pdf", data, name, note), is_cut=False)
    if error:
        raise FileProblem(f"{what} that cannot be read: {_plain(error).rstrip('.')}.")
    total = int(answer["pages"])
    if not total:
        raise FileProblem(f"{what} that has no pages.")
    if first > total:
        raise FileProblem(f"{name} has {_pages(total)}: there is no page {first}.")
    texts = [_plain(text, lines=True) for text in answer["texts"]]
    text = "\n\n".join(
        f"--- page {number} ---\n{page.strip() or '(no text: an image or empty)'}"
        for number, page in enumerate(texts, first)
    )
    end = first + len(texts) - 1
    is_cut = bool(answer["cut"]) or len(text) > max_chars
    if is_cut:
        text = f'{text[:max_chars]}\n[cut: up to page {end} of {total}; ask for less, pages="1-5"]'
    shown = f"pages {first}-{min(last or total, total)} of {total}" if is_part else _pages(total)
    head = f"{name}: PDF, {shown}, {human_size(len(data))}"
    data = pdf if is_part or pdf else data
    count = (min(last, total) if last else total) - first + 1
    if _ENCRYPTED in data or len(data) > MAX_DOCUMENT_BYTES or count > MAX_PAGES:
        data = b""  # as text only
    return Pdf(head, DocumentPart("application/pdf", data, name, text, count), is_cut)


def _no_reader() -> str:
    install = install_command("pdf")
    return (
        "there is no program here to read its text:"
        f" install one: {install}, or pdftotext (poppler-utils)"
    )


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count:,} pages"


def _asked(
    data: bytes, request: tuple[int, ...], workspace: Path, stopped: Callable[[], bool]
) -> tuple[Mapping[str, Any], bytes]:
    command = [sys.executable, "-I", str(_WORKER), *map(str, request)]
    out = _run(command, data, stopped)
    line, _, pdf = out.partition(b"\n")
    try:
        answer = json.loads(line)
    except ValueError:
        return {"error": "it takes too long or too much memory"}, b""
    if answer.get("error") == "no pypdf":
        return _by_program(data, request, workspace, stopped), b""
    return answer, pdf


def _by_program(
    data: bytes, request: tuple[int, ...], workspace: Path, stopped: Callable[[], bool]
) -> Mapping[str, Any]:
    """The same of ``pdftotext``, which ends each page with a form feed."""
    program = find_program("pdftotext", (workspace,))
    if program is None:
        return {"error": "no reader"}
    first, last, max_chars, _ = request
    limited = f'ulimit -d {MAX_MEMORY_BYTES // 1024}; ulimit -t 25; exec "$0" -q -enc UTF-8 - -'
    out = _run(["/bin/sh", "-c", limited, program], data, stopped)
    pages = out.decode("utf-8", "replace").split("\f")[:-1]
    if not pages:
        return {"error": "pdftotext finds no page in it"}
    texts: list[str] = []
    for text in pages[first - 1 : last or None]:
        if sum(map(len, texts)) > max_chars:
            break
        texts.append(text[: max_chars + 1])
    wanted = len(pages[first - 1 : last or None])
    return {"pages": len(pages), "texts": texts, "cut": len(texts) < wanted}


def _run(command: list[str], data: bytes, stopped: Callable[[], bool]) -> bytes:
    """What it prints; empty when it failed, took too long or nobody wants it any more."""
    # into a file: what a page unfolds to may have no end (SEC-13); blocks of 512 bytes (POSIX)
    bound = f'ulimit -f {_MAX_PRINTED_BYTES // 512} 2>/dev/null; exec "$@"'
    printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    try:
        process = subprocess.Popen(  # noqa: S603 - our own worker, or a program outside
            ["/bin/sh", "-c", bound, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=base_environment(),
            start_new_session=True,
        )
    except OSError:
        printed.close()
        return b""
    done = threading.Event()

    def watch() -> None:
        waited = 0.0
        while not done.wait(0.05):
            waited += 0.05
            if waited > WITHIN_S or stopped():
                process.kill()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        process.communicate(data)
        printed.seek(0)
        return printed.read() if process.returncode == 0 else b""
    finally:
        printed.close()
        done.set()
        watcher.join()
        if process.poll() is None:
            process.kill()
            process.wait()


def _plain(text: str, *, lines: bool = False) -> str:
    """``text`` without control characters."""
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else " " for c in text)
