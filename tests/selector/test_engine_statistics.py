"""Weighted sums over whole runs of the engine are those of uniform draws, however late the reports come.

Each run draws with real tickets in flight, and beliefs follow what was reported, so that who is drawn depends on what
came before. One total a run; runs differ in their seed only, so totals are independent and their mean is compared with
the truth in standard errors of that mean.
"""

from typing import Any

import numpy as np
import pytest

from selector.types import VoidReason
from tests.selector.engine_cases import Session, coin, make_config, make_policy, make_pool

NUM_ROWS = 40
NUM_DRAWS = 10
SIZE = 6
NUM_RUNS = 60
ERRORS = 4.0  # standard errors of the mean: a false alarm in 16 000 tests
PASS_RATE_N = np.tile([0.0, 0.1, 0.5, 0.5, 0.9], NUM_ROWS // 5)
X_N = np.stack([np.ones(NUM_ROWS), PASS_RATE_N, np.arange(NUM_ROWS) / NUM_ROWS, PASS_RATE_N < 0.05])
"""Quantities that go with what is drawn, and with nothing: (4, N)."""

SHARP = make_policy(power=3.0, floor=0.1)


def weighted_total(seed: int, lag: int, *, voids: bool = False, **config: Any) -> np.ndarray:
    """Σ over draws of (1/K) Σ weight·x, plus (1/N) Σ c·x over the prompts blocked at the end: (4,)."""
    session = Session(
        make_config(SHARP, weights="horvitz_thompson", group_size=2, seed=seed, review_share=0.2, **config),
        make_pool(NUM_ROWS),
    )
    answer = coin(seed, PASS_RATE_N)
    total = np.zeros(len(X_N))
    for index in range(NUM_DRAWS):
        batch = session.draw(index, SIZE, policy_version=index)
        event = batch.event
        assert event.weight_K is not None
        total += X_N[:, event.row_K] @ event.ht_weight_K / len(event.row_K)
        if index >= lag:
            late = session.state.batches[index - lag]
            if voids and index % 3 == 0:
                session.void(late.first_ticket, VoidReason.LOST)
            session.answer_batch(late, answer)
    credit_N = session.state.rows["credit_N"]
    assert (credit_N.sum() > 0) == (lag > 0)
    total += X_N @ credit_N / NUM_ROWS
    return total


@pytest.mark.parametrize(
    ("lag", "config"),
    [
        (0, {"audit_share": 0.2}),
        (1, {"audit_share": 0.2}),
        (4, {"audit_share": 0.2}),
        (4, {"audit_share": 0.0}),
        (1, {"audit_share": 0.2, "voids": True}),
    ],
    ids=["lag0", "lag1", "lag4", "lag4-no-audit", "lag1-voids"],
)
def test_weighted_sums_over_draws_are_those_of_the_pool(lag: int, config: dict[str, Any]) -> None:
    totals = np.array([weighted_total(seed, lag, **config) for seed in range(NUM_RUNS)])

    truth = NUM_DRAWS * X_N.mean(axis=1)
    error = totals.std(axis=0, ddof=1) / np.sqrt(NUM_RUNS)
    off = (totals.mean(axis=0) - truth) / error
    np.testing.assert_array_less(np.abs(off), ERRORS, err_msg=f"{off} standard errors")
    # The test has power: the bound is a small part of the total.
    assert (ERRORS * error < 0.2 * truth).all()


def test_without_the_credit_the_sums_would_be_short() -> None:
    """The same sums with the open credit left out are too small by what is in flight."""
    totals = np.array([weighted_total(seed, 4, audit_share=0.2)[0] for seed in range(20)])
    session = Session(make_config(SHARP, weights="horvitz_thompson", audit_share=0.2), make_pool(NUM_ROWS))
    sums = 0.0
    for index in range(5):
        event = session.draw(index, SIZE).event
        sums += float(event.ht_weight_K.sum()) / SIZE
    owed = session.state.rows["credit_N"].sum() / NUM_ROWS

    assert owed == (1 + 2 + 3 + 4) * SIZE / NUM_ROWS
    assert sums < 5 - owed / 2
    assert totals.mean() == pytest.approx(NUM_DRAWS, rel=0.05)
