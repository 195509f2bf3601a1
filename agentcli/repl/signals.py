"""The signals of a chat: SIGINT is Ctrl-C, SIGTERM and SIGHUP end it (CAN-13)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from agentcli.domain.cancel import CancelReason

EXIT_CODES: Mapping[CancelReason, int] = {CancelReason.SIGTERM: 143, CancelReason.SIGHUP: 129}


@contextmanager
def chat_signals(
    on_sigint: Callable[[], None], on_end: Callable[[CancelReason], None]
) -> Iterator[None]:
    """Handle them until the block ends; from then on the ending is decided."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, on_sigint)
    loop.add_signal_handler(signal.SIGTERM, on_end, CancelReason.SIGTERM)
    loop.add_signal_handler(signal.SIGHUP, on_end, CancelReason.SIGHUP)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with suppress(RuntimeError):
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
