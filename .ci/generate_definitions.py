# ruff: noqa: INP001 - a script, not a package
"""Write agentcli/tools/_definitions.json anew from the tools (a test proves it current)."""

from agentcli.tools._registry import DEFINITIONS_FILE, build_definitions

DEFINITIONS_FILE.write_text(build_definitions(), encoding="utf-8")
