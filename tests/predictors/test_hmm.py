"""The chain of three states by hand, against the published loop over every prompt and step, and on chains we know."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.base import FloatArray
from predictors.hmm import COUNTS, Hmm
from predictors.registry import build_estimator
from tests.predictors.groups import groups, one_by_one, random_history
from tests.predictors.hmm_states import chances


def chain(*, num_rows: int, **options: float) -> Hmm:
    made = build_estimator("hmm", options)
    assert isinstance(made, Hmm)
    made.resize(np.zeros(num_rows, dtype=np.int32))
    return made


def counts(made: Hmm, row: int) -> FloatArray:
    """a[to, from] of one row."""
    state = made.state()
    return np.array([state[name][row] for name in COUNTS], dtype=np.float64).reshape(3, 3)


def test_the_first_visit_by_hand() -> None:
    """Uniform before: the row of the state seen gains 1/3 three times, and its column is (1, 1, 4/3) / (10/3)."""
    made = chain(num_rows=1)
    made.observe(groups([0], [8]))

    np.testing.assert_allclose(counts(made, 0), np.array([[3, 3, 3], [3, 3, 3], [4, 4, 4]]) / 3, rtol=1e-6)
    np.testing.assert_allclose(chances(made, np.array([0]))[:, 0], [0.3, 0.3, 0.4], rtol=1e-6)


def test_the_second_visit_by_hand() -> None:
    """Seen solved at 0, partial at 1: one count from solved to partial, whose column stays (1, 1, 4/3) / (10/3)."""
    made = chain(num_rows=1)
    made.observe(groups([0], [8], version=0))
    made.observe(groups([0], [3], version=1))

    np.testing.assert_allclose(counts(made, 0), np.array([[3, 3, 3], [3, 3, 6], [4, 4, 4]]) / 3, rtol=1e-6)
    np.testing.assert_allclose(chances(made, np.array([0]))[:, 0], [0.3, 0.3, 0.4], rtol=1e-6)


def test_states_are_read_as_what_a_flat_prior_says_given_them_by_hand() -> None:
    """P = (.3, .3, .4), means .1, .5, .9, squares 2/110, 17/55, 9/11: for G = 8."""
    made = chain(num_rows=2)
    made.observe(groups([0], [8]))
    beliefs = made.beliefs()

    mean = 0.3 * 0.1 + 0.3 * 0.5 + 0.4 * 0.9
    square = 0.3 * 2 / 110 + 0.3 * 17 / 55 + 0.4 * 9 / 11
    assert beliefs.mean_N[0] == pytest.approx(mean)
    assert beliefs.variance_N[0] == pytest.approx(square - mean**2, rel=1e-6)
    assert beliefs.mean_N[1] == pytest.approx(0.5)
    assert beliefs.variance_N[1] == pytest.approx((2 / 110 + 17 / 55 + 9 / 11) / 3 - 0.25)


def test_the_three_states_make_up_a_flat_prior() -> None:
    """Of G + 1 counts, each alike under Beta(1, 1), one is an end: weighted so, mean 1/2 and variance 1/12 return."""
    for size in (2, 5, 8, 64):
        made = chain(num_rows=1, group_size=size)
        weights = np.array([1, size - 1, 1]) / (size + 1)
        assert weights @ made._mean_by_state == pytest.approx(1 / 2)
        assert weights @ made._square_by_state == pytest.approx(1 / 3)


def published(
    history: list[tuple[int, list[tuple[int, float, int, int]]]], *, num_rows: int, discount: float
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Forecasts and counts of every prompt, each moved at each step, as the original does."""
    prior = np.ones((3, 3))
    alpha, last = [prior.copy() for _ in range(num_rows)], [-1] * num_rows
    before, ahead = [[np.full(3, 1 / 3)] * num_rows for _ in range(2)]

    def wait(row: int, steps: int) -> None:
        for _ in range(steps):
            alpha[row] = discount * alpha[row] + (1 - discount) * prior
            before[row] = ahead[row]
            ahead[row] = alpha[row] / alpha[row].sum(axis=0) @ ahead[row]

    for _, observed in history:
        for row, passes, scored, version in observed:
            newest = max(last[row], version)
            if last[row] >= 0:
                wait(row, max(newest - last[row], 1) - 1)
            state = 0 if passes == 0 else 2 if passes == scored else 1
            transitions = alpha[row] / alpha[row].sum(axis=0)
            seen = np.zeros((3, 3))
            seen[state] = transitions[state] * before[row]
            alpha[row] = discount * alpha[row] + (1 - discount) * prior + seen / seen.sum()
            before[row] = np.eye(3)[state]
            ahead[row] = alpha[row] / alpha[row].sum(axis=0) @ before[row]
            last[row] = newest
    now, settled = history[-1][0], [alpha_row.copy() for alpha_row in alpha]
    for row in range(num_rows):
        if last[row] >= 0:
            wait(row, max(now - last[row], 1) - 1)
    return ahead, settled


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.4, 0.7, 0.95, 1.0]))
def test_lazy_steps_are_the_steps_of_the_published_loop(seed: int, discount: float) -> None:
    made = chain(num_rows=4, discount=discount)
    history = []
    for version, observations in random_history(seed=seed, num_rows=4, max_late=4, max_jump=30):
        made.advance(version)
        made.observe(observations)
        history.append((version, list(one_by_one(observations))))
    ahead, alpha = published(history, num_rows=4, discount=discount)

    chance_3N = chances(made, np.arange(4))
    for row in range(4):
        np.testing.assert_allclose(chance_3N[:, row], ahead[row], atol=2e-6)  # counts are in float32
        np.testing.assert_allclose(counts(made, row), alpha[row], rtol=2e-6)


def test_a_chain_left_alone_tends_to_its_stationary_law() -> None:
    made = chain(num_rows=1)
    for version, passes in enumerate([0, 0, 0, 4, 4, 8, 8, 8, 8, 0, 0, 4]):
        made.observe(groups([0], [passes], version=version))
    transitions = counts(made, 0) / counts(made, 0).sum(axis=0)
    values, vectors = np.linalg.eig(transitions)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])

    made.advance(10**9)
    np.testing.assert_allclose(chances(made, np.array([0]))[:, 0], stationary / stationary.sum(), atol=1e-6)


def test_with_forgetting_a_prompt_left_alone_ends_uniform() -> None:
    made = chain(num_rows=1, discount=0.7)
    for version in range(10):
        made.observe(groups([0], [8], version=version))
    made.advance(10**9)

    np.testing.assert_allclose(chances(made, np.array([0]))[:, 0], 1 / 3, atol=1e-6)


def test_the_transitions_of_a_known_chain_are_found() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([[0.9, 0.1, 0.0], [0.1, 0.7, 0.1], [0.0, 0.2, 0.9]])
    size, rounds = 200, 1200
    made = chain(num_rows=size)
    state_N = rng.integers(0, 3, size)
    for version in range(rounds):
        made.observe(groups(np.arange(size), np.array([0, 4, 8])[state_N], version=version))
        state_N = (rng.random(size) > truth.cumsum(axis=0)[:, state_N]).sum(axis=0)
    found = np.mean([counts(made, row) / counts(made, row).sum(axis=0) for row in range(size)], axis=0)

    # Some 300 visits to the rarest state, so the three prior counts pull its column by 1 % of the way to 1/3; prompts
    # that come there less often are pulled more.
    np.testing.assert_allclose(found, truth, atol=0.02)


def test_the_chance_of_partial_is_borne_out() -> None:
    """Forecasts of a mixed next group, on a known chain: as often as said, in each bin."""
    rng = np.random.default_rng(1)
    truth = np.array([[0.8, 0.15, 0.0], [0.2, 0.7, 0.2], [0.0, 0.15, 0.8]])
    size = 2000
    made = chain(num_rows=size)
    state_N = rng.integers(0, 3, size)
    said, came = [], []
    for version in range(120):
        made.advance(version)
        if version >= 60:
            said.append(chances(made, np.arange(size))[1])
            came.append(state_N == 1)
        made.observe(groups(np.arange(size), np.array([0, 4, 8])[state_N], version=version))
        state_N = (rng.random(size) > truth.cumsum(axis=0)[:, state_N]).sum(axis=0)

    said_B, came_B = np.concatenate(said), np.concatenate(came)
    for low in (0.15, 0.55):
        inside = (said_B > low) & (said_B <= low + 0.25)
        assert inside.sum() > 5000
        # Three prior counts on 20 to 60 visits pull towards 1/3 by up to 3 / 20 of the distance to it.
        assert came_B[inside].mean() == pytest.approx(said_B[inside].mean(), abs=0.05)
