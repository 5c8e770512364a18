"""The gap of the selected stream to the held-out split, and its margin."""

from itertools import pairwise
from math import log, sqrt

import numpy as np
import pytest

from selector.heldout.gaps import gaps, sum_margin
from selector.heldout.looks import Look, Selected
from tests.selector.looks_cases import even_look, look, selected


def test_the_gap_is_the_selected_stream_against_the_middle_of_the_looks_around_it() -> None:
    looks = [even_look(2, 10, index=0, seq=1), even_look(4, 10, index=1, seq=10)]
    stream = [selected([0.5, 0.7], seq=3), selected([0.9], seq=5), selected([np.nan], seq=6), selected([0.0], seq=12)]
    (overall,) = gaps(looks, stream, (), 0.95)

    assert overall.windows == 1
    assert overall.estimate == pytest.approx((0.6 + 0.9) / 2 - 0.3)
    variance, alpha = 1 / 40, 0.0125
    margin = sqrt(2 * variance * log(2 / alpha**2))
    assert overall.margin == pytest.approx(margin)
    assert overall.interval == pytest.approx((0.45 - margin, 0.45 + margin))


def test_missing_held_out_groups_count_as_their_worst_case_in_the_gap() -> None:
    ends = [look([[1.0]] * 4 + [[np.nan]], index=i, seq=10 * i) for i in range(2)]
    (overall,) = gaps(ends, [selected([0.5], seq=5)], (), 0.95)
    assert overall.margin is not None
    assert overall.estimate == -0.5
    assert overall.interval == pytest.approx((0.5 - 1.0 - overall.margin, 0.5 - 0.8 + overall.margin))


def test_margins_hold_at_every_look_while_the_policy_moves() -> None:
    """Looked at after each of 60 looks, in 2,000 histories; at 20 % error the bound must not be broken more often."""
    rng, alpha, count, prompts = np.random.default_rng(19700101), 0.2, 60, 8
    rate_T = 0.2 + 0.6 * np.arange(count) / count
    means = (rng.random((2_000, count, prompts)) < rate_T[:, None]).mean(axis=2)
    deviation = np.abs(np.cumsum(means - rate_T, axis=1))
    margin_T = [sum_margin([1 / (4 * prompts)] * t, alpha) for t in range(1, count + 1)]
    broken = int(np.count_nonzero((deviation > margin_T).any(axis=1)))
    assert broken <= 2_000 * alpha + 3 * sqrt(2_000 * alpha * (1 - alpha))
    assert broken > 0, "a bound that is never met says nothing"


def slow_gap(looks: list[Look], stream: list[Selected], code: int | None) -> float | None:
    """Window by window, group by group."""
    differences = []
    for first, second in pairwise(looks):
        ends = [mean_of(one, code) for one in (first, second)]
        shown = [mean_of(one, code) for one in stream if first.seq < one.seq < second.seq]
        known = [value for value in shown if value is not None]
        if known and ends[0] is not None and ends[1] is not None:
            differences.append(sum(known) / len(known) - (ends[0] + ends[1]) / 2)
    return sum(differences) / len(differences) if differences else None


def mean_of(one: Look | Selected, code: int | None) -> float | None:
    pairs = zip(one.outcome_K.tolist(), one.category_K.tolist(), strict=True)
    values = [x for x, category in pairs if x == x and code in (None, category)]
    return sum(values) / len(values) if values else None


@pytest.mark.parametrize("seed", range(8))
def test_every_gap_is_that_of_the_slow_version(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def outcomes(count: int) -> tuple[list[float], list[int]]:
        x = np.where(rng.random(count) < 0.2, np.nan, rng.random(count))
        return x.tolist(), rng.integers(-1, 3, count).tolist()

    looks, stream = list[Look](), list[Selected]()
    for seq in range(30):
        values, codes = outcomes(int(rng.integers(1, 7)))
        if rng.random() < 0.3:
            looks.append(look([[value] for value in values], index=seq, categories=codes))
        else:
            stream.append(selected(values, seq=seq, categories=codes))
    found = {gap.where: gap.estimate for gap in gaps(looks, stream, ("a", "b", "c"), 0.95)}

    for name, code in (("overall", None), ("a", 0), ("b", 1), ("c", 2)):
        slow = slow_gap(looks, stream, code)
        assert found.get(name) == (None if slow is None else pytest.approx(slow)), name
