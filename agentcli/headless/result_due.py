"""What is owed to whoever reads our output, also where a run never begins (CLI-5, CLI-6).

``-o json`` and ``-o stream-json`` promise a result on every path. The run itself keeps the
promise from its options on; this keeps it before (a wrong flag, a signal while modules are
imported) and behind (the ending itself fails). Law: nothing heavy is imported before a failure.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from agentcli.cli.argv import sort_arguments

_FORMATS = frozenset({"json", "stream-json"})
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_OF_SIGNAL = 128
# Python drops what is raised in a finalizer or in the callback of an import lock
_caught: list[int] = []


class Stopped(BaseException):
    """A signal came before the run could take it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.code = _OF_SIGNAL + number
        self.name = signal.Signals(number).name


def early_signals(argv: Sequence[str]) -> None:
    """Turn signals into ``Stopped`` while a one-shot run is being started."""
    _caught.clear()
    if sort_arguments(list(argv)).command == "run":
        stop_on_signals()


def stop_on_signals() -> None:
    """Raise ``Stopped`` for the signals that end a run, until somebody else takes them."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        _caught.append(number)
        raise Stopped(number)

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, Stopped):
            sys.__unraisablehook__(lost)

    sys.unraisablehook = unraisable
    for number in _SIGNALS:
        # what was ignored from the start (nohup, a background job) stays ignored; and only the
        # main thread may set a handler
        with suppress(ValueError):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, stop)


def dropped_signal() -> signal.Signals | None:
    """A signal that has come and whose ``Stopped`` reached nobody: who goes on has to stop."""
    return signal.Signals(_caught[0]) if _caught else None


def wants_result(argv: Sequence[str]) -> bool:
    """Whether ``argv`` asks for a run whose output ends with a result object."""
    invocation = sort_arguments(list(argv))
    return invocation.command == "run" and output_format(invocation.args) in _FORMATS


def output_format(arguments: Sequence[str]) -> str:
    """The value of ``--output-format`` in what may be a wrong command line; maybe empty."""
    found = ""
    rest = iter(arguments)
    for item in rest:
        if item == "--":
            break
        if item in {"-o", "--output-format"}:
            found = next(rest, "")
        elif item.startswith("--output-format="):
            found = item.partition("=")[2]
        elif item.startswith("-o"):
            found = item[2:]
    return found


def write_failure(
    message: str, *, reason: str, subtype: str = "error_during_execution", session_id: str = ""
) -> None:
    """The result of a run that has no other; a reader that has gone misses it."""
    from agentcli.cli.streams import use_utf8, write_out
    from agentcli.headless.jsonl import RunFacts, build_result, dumps

    facts = RunFacts(
        session_id, error=message, subtype=subtype, terminal_reason=reason, duration_ms=0
    )
    use_utf8()
    with suppress(OSError):
        write_out(dumps(build_result(None, facts)) + "\n")
