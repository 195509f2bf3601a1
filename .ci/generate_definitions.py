# ruff: noqa: INP001 - a script, not a package
"""Write ``agentcli/tools/common/definitions.json`` from the tools.

With ``--check`` nothing is written; the exit code is 1 when the file is not current.
"""

from __future__ import annotations

import sys

from agentcli.tools.common.registry import DEFINITIONS_FILE, build_definitions


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = build_definitions()
    if DEFINITIONS_FILE.exists() and DEFINITIONS_FILE.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        sys.stderr.write(
            f"{DEFINITIONS_FILE.name} is not current: run .ci/generate_definitions.py\n"
        )
        return 1
    DEFINITIONS_FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
