"""The program's entry point. ``--version`` answers without importing the command line.

Law: nothing is imported from the working directory, which belongs to others (SEC-2, SEC-19). Before
this file runs, the files of ``start`` see to that; what they cannot is told in SECURITY.md.
"""

import os
import sys


def main() -> None:
    """Run the program with ``sys.argv``; ends by ``SystemExit`` with a code of CLI-6."""
    _leave_out_working_directory()
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


def _leave_out_working_directory() -> None:
    """``python -m`` and ``PYTHONPATH`` put it, or a part of it, before the standard library."""
    path = os.path  # not pathlib: it would be the slowest import of --version
    try:
        here = os.getcwd()  # noqa: PTH109 - as above
    except OSError:
        here = ""
    library = path.dirname(os.__file__)
    first = sys.path.index(library) if library in sys.path else len(sys.path)
    below = here.rstrip(path.sep) + path.sep

    def is_foreign(item: str) -> bool:
        return path.isabs(item) and not f"{path.realpath(item)}{path.sep}".startswith(below)

    sys.path[:first] = filter(is_foreign, sys.path[:first])
    # PYTHONPATH may name the standard library, too, and something behind it
    given = os.environ.get("PYTHONPATH")
    named = {path.realpath(item) for item in given.split(path.pathsep)} if given else set()
    # a link there, to the environment of this program, may be replaced while it runs
    real = map(path.realpath, sys.path)
    sys.path[:] = [item for item in real if item not in named or is_foreign(item)]
    directory, name = path.split(sys.executable)
    sys.executable = path.join(path.realpath(directory), name) if directory else sys.executable
