# ruff: noqa: INP001 - a script, not a package
"""Write ``agentcli/headless/stream_json.schema.json`` from the schema in ``stream_schema.py``.

With ``--check`` nothing is written; the exit code is 1 when the file is not current.
"""

from __future__ import annotations

import sys

from agentcli.headless.stream_schema import SCHEMA_FILE, schema_text


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = schema_text()
    if SCHEMA_FILE.exists() and SCHEMA_FILE.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        sys.stderr.write(f"{SCHEMA_FILE.name} is not current: run .ci/generate_schema.py\n")
        return 1
    SCHEMA_FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
