# ruff: noqa: INP001 - a script, not a package
"""Write what is generated from the command tree: the topic ``commands`` and ``completions/``.

With ``--check`` nothing is written; the exit code is 1 when a file is not current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentcli.cli.completions import FILE_NAMES, all_commands, help_text, script
from agentcli.cli.help import DOCS

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# Every command and its options

<!-- written by .ci/generate_docs.py -->

What `--help` says, of the program itself and of each command.
"""


def reference() -> str:
    """Every command's ``--help``, under a heading each."""
    parts = [HEAD]
    for command in all_commands():
        name = " ".join(("agent", *command.words))
        level = "#" * (2 + len(command.words[1:]))
        parts.append(f"{level} `{name}`\n\n```text\n{help_text(command.words)}\n```\n")
    return "\n".join(parts)


def generated() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    files = {ROOT / "completions" / name: script(shell) for shell, name in FILE_NAMES.items()}
    return {DOCS / "commands.md": reference(), **files}


def main(arguments: list[str]) -> int:
    """Write or check."""
    files = generated()
    stale = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in arguments:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not current: run .ci/generate_docs.py\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
