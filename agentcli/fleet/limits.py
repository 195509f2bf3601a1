"""What tasks share: the requests that a provider lets through, and one budget (SCALE-2).

Laws. A provider that refused one task for a while is asked by no other until then, and then by few,
by one more with each that goes well. However many tasks run, together they pass the budget by one
request at most: each has a share of what is left, smaller by what a request may cost; where there
is too little for shares one task has all of it. As long as nobody knows what a request costs, and
the budget is no more than many dear ones, a task pauses after its first. Times are those of
``time.monotonic``.
"""

from __future__ import annotations

import random

from agentcli.domain.values import mutable

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0
DEAREST_USD = 5.0
"""What a request is taken to cost at most before any is known."""
_ONE_REQUEST_USD = 1e-6  # a pause after the first one that costs anything
_SAFETY = 4.0  # the dearest request of a task over its average one


@mutable
class Bucket:
    """The tokens of one provider: each running task holds one.

    ``size`` is how many there are: halved by a refusal, one more with each task that goes well, up
    to ``most``.
    """

    most: int
    size: int = 0
    held: int = 0
    refusals: int = 0
    paused_until: float = 0.0

    def __post_init__(self) -> None:
        self.size = self.most

    def wait_s(self, now: float) -> float | None:
        """Seconds until a task may start, 0 for now; ``None``: when another has ended."""
        if self.held >= self.size:
            return None
        return max(0.0, self.paused_until - now)

    def went_well(self) -> None:
        """A task of this provider ended without a refusal."""
        self.refusals = 0
        self.size = min(self.most, self.size + 1)

    def refused(self, now: float, retry_after_s: float | None) -> float:
        """The provider refused for so many seconds, or for a while; how long nobody asks it.

        Each refusal in a row doubles a pause that the provider did not name.
        """
        own_s = FIRST_PAUSE_S * 2 ** min(self.refusals, 16) * random.uniform(1.0, 1.25)  # noqa: S311 - no secret
        pause_s = min(LONGEST_PAUSE_S, own_s) if retry_after_s is None else max(0.0, retry_after_s)
        if now >= self.paused_until or self.size > 1:  # those already under way count once
            self.refusals += 1
        self.size = max(1, self.size // 2)
        self.paused_until = max(self.paused_until, now + pause_s)
        return self.paused_until - now


@mutable
class Share:
    """What a task may spend: ``held_usd`` is kept for it, it pauses before ``pause_usd``.

    ``pause_usd`` is ``None`` where nothing is left for another. ``rest_usd`` is all that no other
    task holds.
    """

    held_usd: float
    pause_usd: float | None
    rest_usd: float


class Purse:
    """The budget of all tasks, ``None`` for none. ``spent_usd`` is what ended runs have cost."""

    def __init__(self, budget_usd: float | None, spent_usd: float = 0.0) -> None:
        self.budget_usd = budget_usd
        self.spent_usd = spent_usd
        self._dearest_usd: float | None = None
        self._held: dict[str, float] = {}

    @property
    def left_usd(self) -> float:
        """What no task has spent or holds."""
        return (self.budget_usd or 0.0) - self.spent_usd - sum(self._held.values())

    def take(self, task_id: str, places: int) -> Share | None:
        """A share for a task, of which ``places`` may start; ``None``: not before one has ended."""
        left, dearest = self.left_usd, self._dearest_usd
        least = 2 * (DEAREST_USD if dearest is None else dearest)
        share = max(left / max(1, places), least)
        if left >= least:
            found = Share(share, share - least / 2, left)
        elif not self._held and left > 0:
            found = Share(left, None, left)
        else:
            return None
        if dearest is None and left < places * least:
            found.pause_usd = _ONE_REQUEST_USD
        self._held[task_id] = found.held_usd
        return found

    def give_back(self, task_id: str, spent_usd: float, requests: int) -> None:
        """The task has ended its run, which has cost so much in so many requests; 0: in none.

        A run without one, as one that was refused at once, tells nothing of what they cost.
        """
        self._held.pop(task_id, None)
        self.spent_usd += spent_usd
        if requests:
            one = min(spent_usd, _SAFETY * spent_usd / requests)
            self._dearest_usd = max(self._dearest_usd or 0.0, one)
