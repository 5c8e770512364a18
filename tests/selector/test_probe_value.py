"""What a probe is worth that may stop after any wave: by hand, against all sequences one by one, and at its edges."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from predictors.value import informative_probability
from selector.probe_value import index_of_probe, value_of_probe


def of_beta(alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
    mean = alpha / (alpha + beta)
    return np.array([mean]), np.array([mean * (1 - mean) / (alpha + beta + 1)])


def gain(
    belief: tuple[np.ndarray, np.ndarray], ends: tuple[int, ...], least: float, price: float, group_size: int = 8
) -> float:
    found = value_of_probe(*belief, ends, group_size=group_size, least=least, price_N=np.array([price]))
    return float(found.gain_N[0])


def informative(alpha: float, beta: float) -> float:
    return float(informative_probability(*of_beta(alpha, beta), 8)[0])


def by_recursion(
    alpha: float, beta: float, ends: tuple[int, ...], least: float, price: float, n: int = 0
) -> tuple[float, float]:
    """Value of going on by the best, before the decision's value without it is taken off, and rollouts; obviously."""
    stop = max(informative(alpha, beta), least)
    if not ends:
        return stop, 0.0
    go, rollouts, step = 0.0, 0.0, ends[0] - n
    for outcomes in product([0, 1], repeat=step):
        chance, a, b = 1.0, alpha, beta
        for outcome in outcomes:
            chance *= (a if outcome else b) / (a + b)
            a, b = a + outcome, b + 1 - outcome
        value, more = by_recursion(a, b, ends[1:], least, price, ends[0])
        go, rollouts = go + chance * value, rollouts + chance * more
    if n == 0:
        return go - stop, rollouts + step
    return (go - price * step, rollouts + step) if go - price * step > stop else (stop, 0.0)


def test_the_gain_of_two_rollouts_by_hand() -> None:
    # Beta(1, 1), groups of two: u = 1 - E p² - E (1-p)² = 1/3. After two alike Beta(3, 1): 1 - 3/5 - 1/10 = 3/10.
    # After one of each Beta(2, 2): 1 - 3/10 - 3/10 = 2/5. These come with chances 2/3 and 1/3, against least = 1/3:
    # (2/5 - 1/3)/3 = 1/45.
    assert gain(of_beta(1, 1), (2,), 1 / 3, 0.0, group_size=2) == pytest.approx(1 / 45)


@pytest.mark.parametrize(
    ("alpha", "beta", "ends", "least", "price"),
    [
        (0.3, 0.7, (3,), 0.2, 0.0),
        (2.0, 5.0, (4,), 0.9, 0.0),
        (0.05, 0.07, (2, 4, 6, 8), 0.5, 0.004),
        (0.05, 0.07, (2, 4, 6, 8), 0.15, 0.02),
        (0.5, 0.4, (2, 3, 6), 0.7, 0.01),
        (0.9, 0.2, (1, 5, 7), 0.4, 0.001),
    ],
)
def test_gain_and_rollouts_are_those_of_all_sequences_one_by_one(
    alpha: float, beta: float, ends: tuple[int, ...], least: float, price: float
) -> None:
    belief = of_beta(alpha, beta)
    found = value_of_probe(*belief, ends, group_size=8, least=least, price_N=np.array([price]))
    by_hand = by_recursion(alpha, beta, ends, least, price)
    assert (float(found.gain_N[0]), float(found.rollouts_N[0])) == pytest.approx(by_hand, abs=1e-10)


def test_rollouts_that_can_change_no_decision_are_worth_nothing() -> None:
    found = value_of_probe(
        np.array([0.5, 0.5]), np.array([1e-9, 0.0]), (2, 4), group_size=8, least=0.3, price_N=np.zeros(2)
    )
    assert found.gain_N.tolist() == [0.0, 0.0]


def test_what_costs_nothing_goes_on_and_what_costs_much_stops_after_its_first_wave() -> None:
    belief = of_beta(0.3, 0.4)
    free = value_of_probe(*belief, (2, 4, 6, 8), group_size=8, least=0.5, price_N=np.array([0.0]))
    dear = value_of_probe(*belief, (2, 4, 6, 8), group_size=8, least=0.5, price_N=np.array([1.0]))
    assert float(free.rollouts_N[0]) > float(dear.rollouts_N[0]) == 2.0
    assert float(dear.gain_N[0]) == pytest.approx(gain(belief, (2,), 0.5, 0.0))


@pytest.mark.parametrize("ends", [(), (0, 2), (2, 2), (4, 2)])
def test_waves_that_cannot_be_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="waves must end after 1 rollout or more"):
        gain(of_beta(1, 1), ends, 0.5, 0.0)


@cache
def of_many(rows: int) -> np.ndarray:
    mean_N = np.linspace(0.01, 0.99, rows)
    found = value_of_probe(
        mean_N, 0.3 * mean_N * (1 - mean_N), (2, 4), group_size=8, least=0.6, price_N=np.full(rows, 0.01)
    )
    return found.gain_N


def test_rows_are_worth_the_same_in_whatever_block(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = of_many(11)
    of_many.cache_clear()
    monkeypatch.setattr("selector.probe_value.BLOCK_ROWS", 4)
    assert of_many(11).tolist() == whole.tolist()
    of_many.cache_clear()


def test_the_index_is_the_price_at_which_beginning_pays_no_more() -> None:
    belief, ends, least = (0.4, 0.2), (2, 4, 6, 8), 0.5
    index = index_of_probe(*belief, ends, group_size=8, least=least, price=1e-4)
    one = np.array([belief[0]]), np.array([belief[1]])
    assert gain(one, ends, least, index * 0.999) > 2 * index * 0.999
    assert gain(one, ends, least, index * 1.001) < 2 * index * 1.001
    assert index_of_probe(*belief, ends, group_size=8, least=least, price=0.9) == 0.9
