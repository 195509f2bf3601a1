"""Who we are: other programs are called ``agent`` too (CLI-1)."""

from __future__ import annotations

from agentcli.headless.streams import write_out


def print_version() -> int:
    """``agentcli X.Y.Z``."""
    from agentcli import __version__

    write_out(f"agentcli {__version__}\n")
    return 0
