"""The program's entry point. ``--version`` answers without importing the command line."""

import sys


def main() -> None:
    """Run the program with ``sys.argv``; ends by ``SystemExit`` with a code of CLI-6."""
    if sys.argv[1:] in (["--version"], ["-v"]):
        from agentcli import __version__

        sys.stdout.write(f"agentcli {__version__}\n")
        return
    try:
        from agentcli.cli.main import run_app

        run_app()
    except KeyboardInterrupt:  # while that was being imported
        sys.exit(130)
