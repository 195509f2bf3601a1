"""The program's entry point. ``--version`` answers without importing the command line."""

import os
import sys


def main() -> None:
    """Run the program with ``sys.argv``; ends by ``SystemExit`` with a code of CLI-6."""
    if sys.argv[1:] in (["--version"], ["-v"]) and sys.stdout is not None:
        from agentcli import __version__

        try:
            os.write(sys.stdout.fileno(), f"agentcli {__version__}\n".encode())
        except OSError:
            pass  # the command line says it, as it says every error
        else:
            return
    try:
        from agentcli.cli.main import run_app

        run_app()
    except KeyboardInterrupt:  # while that was being imported
        sys.exit(130)
