"""A function as a tool of the model: how it says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__agentcli_tool__"


@overload
def tool(function: F) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Literal["read", "write", "exec"] = "write",
    timeout_s: float | None = 60.0,
    ask: bool = False,
    background: bool = False,
    idempotent: bool = False,
) -> Callable[[F], F]: ...


def tool(function: F | None = None, **options: Any) -> F | Callable[[F], F]:
    """Say how a function is offered to the model; the function itself stays as it is.

    ``effect`` is "read" (may run beside others), "write" or "exec" (run alone); ``timeout_s`` in
    seconds, ``None`` for no limit; ``ask``: every call needs an approval. ``background``: it may
    be started with ``spawn_background``; ``idempotent``: doing it twice is doing it once, so that
    such a run is started again after a crash (BG-7, BG-10).
    """

    def mark(marked: F) -> F:
        setattr(marked, _MARK, options)
        return marked

    return mark if function is None else mark(function)


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """What ``tool`` was told of ``function``; nothing for a plain one."""
    found: dict[str, Any] = getattr(function, _MARK, {})
    return found
