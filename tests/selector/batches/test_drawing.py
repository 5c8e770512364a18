"""Draws from a run's state: nobody waits longer than the revisit period, whatever the policy prefers."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.config import LifecycleConfig
from tests.selector.engine_cases import Session, coin, make_config, make_policy, make_pool


def longest_wait(
    session: Session, size: int, lag: int, pass_rates: Callable[[int], np.ndarray], num_draws: int = 20
) -> int:
    """Most draws in a row without one and the same prompt, those it was blocked for left out, over so many draws
    and more than two periods. Batches are answered `lag` draws later.
    """
    waited_N, longest, index = np.zeros(session.state.num_rows, np.int64), 0, 0
    while index < num_draws or index < 2.3 * session.state.revisit_draws:
        blocked_N = session.state.in_flight_N > 0
        batch = session.draw(index, size)
        waited_N[~blocked_N] += 1
        waited_N[batch.event.row_K] = 0
        longest = max(longest, int(waited_N.max()))
        if index >= lag:
            session.answer_batch(session.state.batches[index - lag], coin(8, pass_rates(index)))
        index += 1
    return longest


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize(("audit_share", "period"), [(0.0, 10), (0.2, 15)])  # ⌈30 / ⌊0.5·(6 − m)⌋⌉, m = 0 or 2
def test_no_prompt_is_forgotten_for_longer_than_the_period(lag: int, audit_share: float, period: int) -> None:
    """A sharp policy would hardly look at solved prompts again; turns and age see to it."""
    sharp = make_policy(power=20.0, floor=1e-6)
    session = Session(make_config(sharp, review_share=0.5, audit_share=audit_share), make_pool(30))
    longest = longest_wait(session, 6, lag, lambda index: np.where(np.arange(30) < 4, 0.5, 1.0), 100)

    assert session.state.revisit_draws == period
    assert longest < period
    assert (session.state.rows["drawn_N"][:4] > 40 / (1 + lag)).all()


@settings(max_examples=12, deadline=None)
@given(
    num_rows=st.integers(12, 60),
    size=st.integers(3, 12),
    review_share=st.floats(0.05, 0.4),
    audit_share=st.sampled_from([0.0, 0.1, 0.3]),
    lag=st.integers(0, 2),
    hot_draws=st.integers(2, 20),
    resting=st.booleans(),
    seed=st.integers(0, 99),
)
def test_nobody_waits_longer_than_the_period_whoever_goes_cold_at_once(
    num_rows: int,
    size: int,
    review_share: float,
    audit_share: float,
    lag: int,
    hot_draws: int,
    resting: bool,
    seed: int,
) -> None:
    """Prompts at the edge change together: those drawn all the time are left alone from one draw to the next."""
    sharp = make_policy(power=12.0, floor=1e-6, **({"lifecycle": LifecycleConfig()} if resting else {}))
    config = make_config(sharp, review_share=review_share, audit_share=audit_share, seed=seed)
    session = Session(config, make_pool(num_rows))
    place_N = np.arange(num_rows)

    def pass_rates(index: int) -> np.ndarray:
        return np.where((place_N + 5 * (index // hot_draws)) % num_rows < 5, 0.5, 1.0)

    longest = longest_wait(session, min(size, num_rows // (lag + 2)), lag, pass_rates)

    assert longest < session.state.revisit_draws
