"""The signals of a chat: SIGINT is Ctrl-C; SIGTERM, SIGHUP and SIGQUIT end it (CAN-13)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from agentcli.domain.cancel import CancelReason

GONE = 128 + signal.SIGHUP  # the exit code when the terminal went away
_ENDING: Mapping[signal.Signals, CancelReason] = {
    signal.SIGTERM: CancelReason.SIGTERM,
    signal.SIGHUP: CancelReason.SIGHUP,
    signal.SIGQUIT: CancelReason.SIGTERM,  # asks for the same; a core of ours helps nobody
}


@contextmanager
def chat_signals(
    on_sigint: Callable[[], None], on_end: Callable[[CancelReason, int], None]
) -> Iterator[None]:
    """Handle them until the block ends; from then on the ending is decided.

    ``on_end`` gets the reason and the exit code (CLI-6).
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, on_sigint)
    for number, reason in _ENDING.items():
        loop.add_signal_handler(number, on_end, reason, 128 + number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, *_ENDING):
            with suppress(RuntimeError):
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
