"""What tasks share: the pause of a provider, the budget."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.fleet.limits import DEAREST_USD, FIRST_PAUSE_S, LONGEST_PAUSE_S, Bucket, Purse


def test_a_provider_that_refuses_is_left_alone_and_then_asked_by_few() -> None:
    bucket = Bucket(8, held=4)
    assert bucket.wait_s(0.0) == 0
    assert bucket.refused(0.0, 30.0) == 30.0
    assert bucket.wait_s(10.0) is None, "four run, and no more than four may"
    bucket.held = 0
    assert bucket.wait_s(10.0) == 20.0 and bucket.wait_s(30.0) == 0
    for _ in range(20):
        bucket.refused(40.0, 1.0)
    assert bucket.size == 1
    bucket.went_well()
    assert (bucket.size, bucket.refusals) == (2, 0)


def test_a_pause_without_a_name_doubles_and_is_bounded() -> None:
    bucket, pauses = Bucket(4), []
    for turn in range(12):
        now = 1000.0 * turn
        pauses.append(bucket.refused(now, None))
    assert FIRST_PAUSE_S <= pauses[0] <= 1.25 * FIRST_PAUSE_S
    assert all(later >= earlier for earlier, later in pairwise(pauses))
    assert max(pauses) == LONGEST_PAUSE_S


@pytest.mark.spec("SCALE-2")
@given(st.integers(0, 2**32), st.integers(1, 16), st.floats(0.01, 50.0))
def test_all_tasks_together_pass_the_budget_by_one_request_at_most(
    seed: int, jobs: int, budget: float
) -> None:
    """Tasks as they are: they stop before the request that would pass their share, or with it."""
    world = random.Random(seed)
    request = world.uniform(0.001, DEAREST_USD)
    purse, running, spent = Purse(budget), {}, 0.0
    tasks = iter(range(10_000))
    for _ in range(3_000):
        if len(running) < jobs:
            name = str(next(tasks))
            share = purse.take(name, jobs - len(running))
            if share is not None:
                running[name] = (share, 0.0, 0)
                continue
        if not running:
            break
        name = world.choice(list(running))
        share, cost, count = running[name]
        if cost < (share.pause_usd or share.rest_usd) and (world.random() < 0.7 or not count):
            running[name] = (share, cost + request, count + 1)
            spent += request
        else:
            del running[name]
            purse.give_back(name, cost, count)
    assert spent <= budget + request * 1.0001


@pytest.mark.spec("SCALE-2")
@pytest.mark.parametrize("request_usd", [0.3, 2.4])
def test_a_first_request_that_is_refused_or_dear_does_not_open_the_purse(
    request_usd: float,
) -> None:
    budget = 3.5 * request_usd
    purse, spent = Purse(budget), 0.0
    purse.take("refused", 8)
    purse.give_back("refused", 0.0, 0)
    for _ in range(20):
        shares = []
        for place in range(8, 0, -1):
            if (share := purse.take(str(place), place)) is not None:
                shares.append((str(place), share))
        for name, share in shares:  # all ask at once, until each has to pause
            requests = 0
            while requests * request_usd < (share.pause_usd or share.rest_usd):
                requests += 1
            spent += requests * request_usd
            purse.give_back(name, requests * request_usd, requests)
    assert budget <= spent <= budget + request_usd


def test_requests_that_cost_nothing_known_do_not_wait_for_each_other() -> None:
    purse = Purse(1.0)
    assert purse.take("a", 8) is not None and purse.take("b", 7) is None
    purse.give_back("a", 0.0, 1)
    assert all(purse.take(str(place), place) for place in range(8, 0, -1))
