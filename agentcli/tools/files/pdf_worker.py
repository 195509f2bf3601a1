"""Takes the text out of a PDF, in a process of its own: ``main`` is what that process does.

It runs with ``python -I``, pypdf where that is installed, or becomes ``pdftotext``; a hostile file
can use up this process and nothing else. The PDF is standard input. Standard output is one line of
JSON (``pages``, ``texts``, ``cut``, ``error``) and a PDF of the pages, where that was asked for or
the file is encrypted for no reader.
"""

from __future__ import annotations

import json
import resource
import sys
from io import BytesIO
from typing import Any

MAX_MEMORY_BYTES = 270_000_000
MAX_CPU_S = 25


def main(arguments: list[str]) -> None:
    """``first last max_chars with_pdf``; pages from 1, ``last`` 0 for all there are."""
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
    first, last, max_chars, with_pdf = map(int, arguments)
    pdf = b""
    try:
        from pypdf import PdfReader
    except ImportError:
        answer: dict[str, Any] = {"error": "no pypdf"}
    else:
        import logging

        logging.disable(logging.CRITICAL)
        try:
            reader = PdfReader(BytesIO(sys.stdin.buffer.read()))
            answer = _texts(reader, first, last, max_chars)
            if "error" not in answer and (with_pdf or reader.is_encrypted):  # providers take none
                pdf = _part(reader, first, last)
        except MemoryError:
            answer = {"error": "it takes too much memory"}
        except Exception as error:  # noqa: BLE001 - whatever a broken file makes the library raise
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + pdf)


def _texts(reader: Any, first: int, last: int, max_chars: int) -> dict[str, Any]:
    if reader.is_encrypted and not reader.decrypt(""):
        return {"error": "it is encrypted"}
    texts: list[str] = []
    used = 0
    last = min(last or len(reader.pages), len(reader.pages))
    for number in range(first, last + 1):
        if used > max_chars:
            return {"pages": len(reader.pages), "texts": texts, "cut": True}
        texts.append(reader.pages[number - 1].extract_text()[: max_chars + 1])
        used += len(texts[-1])
    return {"pages": len(reader.pages), "texts": texts, "cut": False}


def _part(reader: Any, first: int, last: int) -> bytes:
    from pypdf import PdfWriter

    writer = PdfWriter()
    for page in reader.pages[first - 1 : last or None]:
        writer.add_page(page)
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])
