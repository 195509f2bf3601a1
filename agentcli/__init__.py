"""agentcli: a terminal coding agent that can be interrupted at any moment."""

__version__ = "0.1.0"
