"""What a session says of itself when it is asked: why a call may run, where the tokens go."""

from __future__ import annotations

from agentcli.domain.ports import GrantOffer
from agentcli.domain.values import frozen


@frozen
class InMode:
    """What would become of the same call in one permission mode; fields as in ``Explanation``."""

    mode: str
    answer: str
    where: str


@frozen
class Explanation:
    """What would become of a call, and why (SEC-3).

    ``answer`` is "allow", "ask" or "deny"; ``part`` the command in a longer one that decided it;
    ``rule`` the rule that did, ``source`` where that is written. ``offers`` are the rules that an
    approval would offer. ``where`` says in words where a command would run: in the read-only
    sandbox, in the sandbox, outside of it; empty for what is no command. ``modes`` says the same
    of every mode.
    """

    tool: str
    answer: str
    reason: str
    part: str
    rule: str
    source: str
    effect: str
    mode: str
    offers: tuple[GrantOffer, ...] = ()
    where: str = ""
    modes: tuple[InMode, ...] = ()


@frozen
class ContextPart:
    """One kind of what is sent: tokens, and how many things of that kind there are."""

    name: str
    tokens: int
    count: int


@frozen
class HeavyResult:
    """A tool result and what it adds to each request.

    ``again_usd`` is what it costs in every later request, read from the provider's cache;
    ``None`` where the price is unknown. ``left_out``: a line is sent in its place (CTRL-8).
    """

    call_id: str
    name: str
    about: str
    tokens: int
    again_usd: float | None
    left_out: bool


@frozen
class ContextReport:
    """The next request, without its answer. Tokens throughout.

    ``is_measured``: ``used`` rests on what the provider has reported, else it is estimated.
    ``left_out`` is how many old tool results are sent as a line only, ``instructions`` each file
    of them and its tokens.
    """

    model: str
    window: int
    used: int
    compacts_at: int
    is_measured: bool
    parts: tuple[ContextPart, ...]
    heaviest: tuple[HeavyResult, ...] = ()
    left_out: int = 0
    instructions: tuple[tuple[str, int], ...] = ()

    @property
    def free(self) -> int:
        """Tokens left in the window."""
        return max(0, self.window - self.used)

    @property
    def percent(self) -> float:
        """How full the window is; may pass 100."""
        return 100.0 * self.used / self.window if self.window else 0.0
