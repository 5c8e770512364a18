"""Held-out quality: rates, strata, the hard tail, the gap to the selected stream, and the three verdicts."""

from math import sqrt

import numpy as np
import pytest

from selector.heldout.gaps import RESOLUTION
from selector.heldout.looks import Look
from selector.heldout.quality import effective_prompts, hard_tail, pass_rate, quality, strata
from tests.selector.looks_cases import even_look, look, selected


def whole(one: Look) -> np.ndarray:
    return np.ones(len(one.row_K), bool)


def test_a_rate_is_the_mean_over_prompts_with_wilsons_interval() -> None:
    """4 of 16 single rollouts: Wilson's 95 % interval for 4 of 16 is 0.102 to 0.495."""
    found = pass_rate(one := look([[1.0]] * 4 + [[0.0]] * 12), whole(one))

    assert found.estimate == 0.25
    assert found.interval == pytest.approx((0.1018, 0.4950), abs=1e-4)
    assert found.num_prompts == 16


def test_siblings_that_are_all_alike_are_worth_one_and_independent_ones_as_many_as_they_are() -> None:
    assert effective_prompts(np.array([1.0] * 5 + [0.0] * 15), 80) == 20
    assert effective_prompts(np.array([0.5] * 20), 80) == 80
    assert effective_prompts(np.array([1.0, 1.0]), 8) == 2
    # Means 1/4 and 3/4: p(1-p) / s^2 = (1/4) / (1/16).
    assert effective_prompts(np.array([0.25, 0.75] * 10), 800) == 80


def test_groups_that_did_not_come_back_widen_the_interval_by_their_worst_case() -> None:
    back = pass_rate(one := look([[1.0]] * 4 + [[0.0]] * 12), whole(one))
    part = pass_rate(two := look([[1.0]] * 4 + [[0.0]] * 12 + [[np.nan]] * 4), whole(two))

    assert part.estimate == 0.25
    assert part.num_missing == 4
    assert part.interval == pytest.approx((back.interval[0] * 0.8, back.interval[1] * 0.8 + 0.2))
    nothing = pass_rate(three := look([[np.nan]] * 3), whole(three))
    assert (nothing.estimate, nothing.interval, nothing.num_missing) == (None, (0.0, 1.0), 3)


@pytest.mark.parametrize("passes", [0, 7])
def test_at_the_ends_the_interval_holds_the_estimate(passes: int) -> None:
    found = pass_rate(one := even_look(passes, 7), whole(one))
    assert found.estimate is not None
    assert found.interval[0] <= found.estimate <= found.interval[1]


def test_strata_are_those_of_the_first_version_looked_at_and_never_of_the_group_that_is_measured() -> None:
    first = look([[0, 0], [0, 1], [1, 1], [np.nan, np.nan]], index=0, rows=[5, 6, 7, 8])
    beside = look([[0, 0, 0, 1], [1, 0, 0, 0]], index=1, version=0, rows=[9, 5])
    last = look([[1, 1]] * 6, index=2, rows=[8, 5, 6, 7, 9, 4])

    assert strata([first, beside, last]).tolist() == [-1, 0, 2, 3, 1, -1]
    assert strata([first, beside]).tolist() == [-1, -1], "its own version fixed them"
    found = quality([first, beside, last], [], categories=())
    assert {name: rate.num_prompts for name, rate in found.stratum.items()} == {
        "none": 1, "under half": 1, "half or more": 1, "all": 1,
    }  # fmt: skip
    assert found.unranked == 2


def test_a_category_has_its_own_rate_at_the_last_look() -> None:
    last = look([[1.0], [0.0], [1.0]], categories=[0, 0, 2])
    found = quality([last], [], categories=("a", "b", "c"))

    assert {name: rate.estimate for name, rate in found.category.items()} == {"a": 0.5, "c": 1.0}


def test_the_hard_tail_by_hand() -> None:
    """The lowest two of 20 have 0 and 1/4 by all rollouts; by halves the ranking goes to others."""
    groups = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 1], *([[1, 1, 1, 1]] * 17)]
    found = hard_tail(look(groups))

    assert found.low == pytest.approx((0 + 0.25) / 2)
    # Even rollouts: 0, 1/2, 0, then 1: the two lowest are the first and third, whose odd rollouts passed 0 and 1.
    # Odd rollouts: 0, 0, 1, then 1: the first and second, whose even rollouts passed 0 and 1/2.
    assert found.high == pytest.approx(((0 + 1) / 2 + (0 + 0.5) / 2) / 2)


def test_the_hard_tail_brackets_the_true_one_in_expectation() -> None:
    rng = np.random.default_rng(20240801)
    rate_N = np.linspace(0.05, 0.95, 200)
    truth = float(np.sort(rate_N)[:20].mean())
    tails = [hard_tail(look((rng.random((200, 8)) < rate_N[:, None]).astype(float).tolist())) for _ in range(200)]
    low, high = (np.array([getattr(tail, end) for tail in tails]) for end in ("low", "high"))
    assert low.mean() + 3 * low.std() / sqrt(200) < truth < high.mean() - 3 * high.std() / sqrt(200)


def test_single_rollouts_give_no_upper_end_and_halves_of_partly_scored_groups_are_both_there() -> None:
    assert hard_tail(look([[0.0], [1.0]])).high is None
    assert hard_tail(look([[np.nan]])).low is None
    assert hard_tail(look([[np.nan, 0.0, np.nan, 1.0]] * 3)).high == 0.5


def history(shown: float, truth: float, *, windows: int, prompts: int = 400) -> tuple[list[Look], list]:  # type: ignore[type-arg]
    looks = [even_look(round(truth * prompts), prompts, index=i, seq=10 * i) for i in range(windows + 1)]
    return looks, [selected([shown], seq=10 * i + 5) for i in range(windows)]


def test_the_verdict_names_a_bias_its_place_and_its_size() -> None:
    looks, stream = history(0.5, 0.2, windows=6)
    found = quality(looks, stream, categories=())
    assert found.finding == "bias"
    assert found.verdict.startswith("bias found: the selected stream differs from the held-out split overall by +0.30")


def test_a_bias_of_one_category_is_found_where_it_is() -> None:
    looks = [look([[1.0], [0.0]] * 400, categories=[0] * 400 + [1] * 400, index=i, seq=10 * i) for i in range(6)]
    stream = [selected([0.9, 0.1], categories=[0, 1], seq=10 * i + 5) for i in range(5)]
    found = quality(looks, stream, categories=("logic", "algebra"))
    assert found.finding == "bias"
    assert "in logic by +0.40" in found.verdict
    assert "in algebra by -0.40" in found.verdict
    assert "overall" not in found.verdict


def test_no_bias_is_claimed_only_at_the_resolution_reached() -> None:
    looks, stream = history(0.5, 0.5, windows=8)
    found = quality(looks, stream, categories=())
    assert found.finding == "none"
    margin = found.gaps[0].margin
    assert margin is not None
    assert margin <= RESOLUTION
    assert f"more than {margin:.2f} would have shown" in found.verdict


def test_too_little_data_says_how_much_more_and_that_much_is_enough() -> None:
    looks, stream = history(0.5, 0.5, windows=3, prompts=40)
    found = quality(looks, stream, categories=())
    assert found.finding == "too_little"
    more = found.gaps[0].further_looks
    assert more is not None
    assert f"about {more} further looks of 40 prompts" in found.verdict
    enough = quality(*history(0.5, 0.5, windows=3 + more, prompts=40), categories=())
    assert enough.gaps[0].further_looks == 0
    assert enough.finding == "none"
    short = quality(*history(0.5, 0.5, windows=2 + more, prompts=40), categories=())
    assert short.finding == "too_little"


def test_without_looks_or_without_draws_between_them_nothing_is_claimed() -> None:
    for looks in ([], [even_look(1, 2)], [even_look(1, 2, seq=1), even_look(1, 2, index=1, seq=2)]):
        found = quality(looks, [], categories=())
        assert found.finding == "too_little"
        assert f"there are {len(looks)} looks" in found.verdict


def test_what_is_not_complete_is_said_and_what_is_no_pass_rate_is_refused() -> None:
    assert "2 looks are not complete" in quality([], [], categories=(), waiting=2).warnings[0]
    assert "1 groups of the last look" in quality([look([[1.0], [np.nan]])], [], categories=()).warnings[0]
    with pytest.raises(ValueError, match=r"got 3\.0: scale"):
        quality([look([[3.0]])], [], categories=())
    with pytest.raises(ValueError, match="level must be"):
        quality([], [], categories=(), level=1.0)
