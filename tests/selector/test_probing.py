"""Which prompts deserve a probe, when one has had enough, and what that saves against a truth that is known."""

from itertools import product

import numpy as np
import pytest

from predictors.value import beta_parameters, informative_probability
from selector.probing import (
    USES,
    ProbingConfig,
    boundary,
    plan_probes,
    settle_rule,
    settled,
    value_of_rollouts,
    value_of_waves,
)
from selector.waves import Seen, Verdict, WaveConfig
from tests.benchmarks.learner_model import Constants, Learner


def of_beta(alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
    mean = alpha / (alpha + beta)
    return np.array([mean]), np.array([mean * (1 - mean) / (alpha + beta + 1)])


def plan(value_mean: list[float], value_variance: list[float], **changes: object) -> object:
    num = len(value_mean)
    given: dict[str, object] = {
        "tokens_N": None,
        "eligible_N": np.ones(num, bool),
        "owed_N": np.zeros(num, bool),
        "order_N": np.arange(num),
        "size": num,
        "wave": 2,
        "most": 8,
        "group_size": 8,
        "least": 0.5,
        "budget": None,
    }
    return plan_probes(np.array(value_mean), np.array(value_variance), **(given | changes))  # type: ignore[arg-type]


# The value of rollouts


def test_the_value_of_two_rollouts_by_hand() -> None:
    # Beta(1, 1), groups of two: u = 1 - E p² - E (1-p)² = 1/3. After two alike Beta(3, 1): 1 - 3/5 - 1/10 = 3/10.
    # After one of each Beta(2, 2): 1 - 3/10 - 3/10 = 2/5. These come with chances 2/3 and 1/3, against least = 1/3:
    # (2/5 - 1/3)/3 = 1/45.
    mean, variance = of_beta(1, 1)
    assert value_of_rollouts(mean, variance, 2, group_size=2, least=1 / 3)[0] == pytest.approx(1 / 45)


@pytest.mark.parametrize(
    ("alpha", "beta", "n", "least"), [(0.3, 0.7, 3, 0.2), (2.0, 5.0, 4, 0.9), (0.05, 0.07, 2, 0.5)]
)
def test_the_value_is_that_of_all_sequences_one_by_one(alpha: float, beta: float, n: int, least: float) -> None:
    mean, variance = of_beta(alpha, beta)
    with_rollouts = 0.0
    for outcomes in product([0, 1], repeat=n):
        chance, a, b = 1.0, alpha, beta
        for outcome in outcomes:
            chance *= (a if outcome else b) / (a + b)
            a, b = a + outcome, b + 1 - outcome
        with_rollouts += chance * max(float(informative_probability(*of_beta(a, b), 8)[0]), least)
    without = max(float(informative_probability(mean, variance, 8)[0]), least)
    found = float(value_of_rollouts(mean, variance, n, group_size=8, least=least)[0])
    assert found == pytest.approx(with_rollouts - without, abs=1e-12)


def test_rollouts_that_can_change_no_decision_are_worth_nothing() -> None:
    mean, variance = np.array([0.5, 0.5]), np.array([1e-9, 0.0])
    assert value_of_rollouts(mean, variance, 4, group_size=8, least=0.3).tolist() == pytest.approx([0.0, 0.0])
    with pytest.raises(ValueError, match="at least 1 rollout, got 0"):
        value_of_rollouts(mean, variance, 0, group_size=8, least=0.3)


def test_the_boundary_is_what_a_draw_gets() -> None:
    informative_N, utility_N = np.array([0.9, 0.1, 0.2]), np.array([3.0, 1.0, 0.0])
    assert boundary(informative_N, utility_N, 0.0) == pytest.approx((2.7 + 0.1) / 4)
    assert boundary(informative_N, utility_N, 0.5) == pytest.approx(0.5 * 0.4 + 0.5 * 0.7)
    assert boundary(informative_N, np.zeros(3), 0.0) == pytest.approx(0.4)
    assert boundary(np.zeros(0), np.zeros(0), 0.2) == 0.0


def test_waves_are_worth_what_the_better_way_to_go_on_gives_each_first_wave() -> None:
    alpha, beta, price, least = 0.05, 0.07, 0.02, 0.5
    by_hand = -max(float(informative_probability(*of_beta(alpha, beta), 8)[0]), least)
    for first in product([0, 1], repeat=2):
        chance, a, b = 1.0, alpha, beta
        for outcome in first:
            chance *= (a if outcome else b) / (a + b)
            a, b = a + outcome, b + 1 - outcome
        stop = max(float(informative_probability(*of_beta(a, b), 8)[0]), least)
        more = float(value_of_rollouts(*of_beta(a, b), 6, group_size=8, least=least)[0])
        by_hand += chance * max(stop, stop + more - 6 * price)
    found = value_of_waves(*of_beta(alpha, beta), 2, 8, group_size=8, least=least, price_N=np.array([price]))
    assert float(found[0]) == pytest.approx(by_hand, abs=1e-12)


def test_without_later_waves_a_first_wave_is_worth_its_rollouts() -> None:
    belief = of_beta(0.5, 0.7)
    found = value_of_waves(*belief, 4, 4, group_size=8, least=0.4, price_N=np.array([0.1]))
    assert found.tolist() == pytest.approx(value_of_rollouts(*belief, 4, group_size=8, least=0.4).tolist())


# Who is probed


def test_the_unknown_go_before_the_known_and_the_settled_are_left_alone() -> None:
    # A prompt never tried, the same with some knowledge, one known to be mixed, one known to be solved.
    found = plan([0.4, 0.4, 0.5, 0.999], [0.2, 0.1, 0.0005, 1e-6])
    assert sorted(found.rows_K.tolist()) == [0, 1]  # type: ignore[attr-defined]
    assert found.num_worth == 2  # type: ignore[attr-defined]
    assert found.inclusion_N.tolist() == [1.0, 1.0, 0.0, 0.0]  # type: ignore[attr-defined]


def test_cheap_prompts_go_first() -> None:
    found = plan([0.4] * 3, [0.2] * 3, tokens_N=np.array([300.0, 100.0, 200.0]))
    assert found.rows_K.tolist() == [1, 2, 0]  # type: ignore[attr-defined]


def test_a_prompt_at_rest_is_looked_at_when_its_turn_has_come_and_never_before() -> None:
    changes = {"eligible_N": np.array([True, False]), "owed_N": np.array([True, False])}
    assert plan([0.999, 0.4], [1e-6, 0.2], **changes).rows_K.tolist() == [0]  # type: ignore[attr-defined]


def test_equals_share_the_places_that_are_left_and_a_keyed_order_decides() -> None:
    order = np.array([3, 0, 2, 1, 4])
    found = plan([0.4] * 5, [0.2, 0.2, 0.2, 0.2, 0.19], order_N=order, size=3)
    assert found.rows_K.tolist() == [4, 1, 3]  # type: ignore[attr-defined]
    assert found.inclusion_N.tolist() == [0.5, 0.5, 0.5, 0.5, 1.0]  # type: ignore[attr-defined]
    assert found.inclusion_N.sum() == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(("budget", "places"), [(0.0, 0), (399.0, 0), (400.0, 1), (1199.0, 2), (1200.0, 3), (9e9, 3)])
def test_a_budget_in_tokens_bounds_the_batch(budget: float, places: int) -> None:
    found = plan([0.4] * 3, [0.2] * 3, tokens_N=np.array([200.0] * 3), budget=budget)
    assert len(found.rows_K) == places  # type: ignore[attr-defined]
    assert found.unaffordable == (places < 3)  # type: ignore[attr-defined]
    assert found.inclusion_N.sum() == pytest.approx(places)  # type: ignore[attr-defined]


def test_without_any_prompt_there_is_nothing_to_plan() -> None:
    assert plan([0.4], [0.2], eligible_N=np.array([False])).rows_K.tolist() == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("values", [{"tokens": 0.0}, {"share": -1.0}, {"tokens": float("nan")}])
def test_bounds_that_cannot_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"probing\..* must be a number > 0"):
        ProbingConfig(**values)


# When a probe has had enough


def seen(right: int, scored: int) -> Seen:
    return Seen(
        right=right,
        scored=scored,
        right_first=min(right, 2),
        scored_first=min(scored, 2),
        informative=0 < right < scored,
    )


def test_waves_are_of_two_and_the_first_one_can_count() -> None:
    rule = settle_rule(8, 0.5, 2)
    assert rule is not None
    assert (rule.rule, rule.first, rule.step, rule.low) == ("settle", 2, 2, 0.5)
    longer = settle_rule(8, 0.5, 4)
    assert longer is not None
    assert longer.first == 4
    assert settle_rule(2, 0.5, 2) is None


def test_a_mixed_wave_settles_an_unsure_prompt_and_one_that_is_alike_does_not() -> None:
    rule = settle_rule(8, 0.5, 2)
    assert rule is not None
    belief = (0.4, 0.2)
    assert settled(rule, seen(1, 2), belief, left=6, group_size=8) is Verdict.STOP
    assert settled(rule, seen(0, 2), belief, left=6, group_size=8) is Verdict.CONTINUE
    assert settled(rule, seen(0, 6), belief, left=2, group_size=8) is Verdict.STOP
    assert settled(rule, seen(0, 0), belief, left=6, group_size=8) is Verdict.STOP


def test_nothing_is_left_to_ask_for_at_the_end() -> None:
    rule = settle_rule(8, 0.5, 2)
    assert rule is not None
    assert settled(rule, seen(0, 2), (0.4, 0.2), left=0, group_size=8) is Verdict.STOP


def test_the_stop_spends_at_most_sixty_per_cent_of_fixed_probes_at_no_more_errors() -> None:
    """A pool of 20,000 of which 80 % are hopeless or mastered; the error is on which side of `least` a prompt's true
    chance to be informative lies, and the prior is the Beta distribution with the pool's moments.
    """
    least, group_size = 0.5, 8
    learner = Learner(Constants(num_prompts=20_000, hopeless=0.5, mastered=0.3), 7, 10)
    p_N = learner.pass_rate()
    belief = (float(p_N.mean()), float(p_N.var()))
    alpha, beta = (float(one[0]) for one in beta_parameters(np.array([belief[0]]), np.array([belief[1]])))
    outcome_NG = np.random.default_rng(11).random((len(p_N), 16)) < p_N[:, None]
    right_NG = outcome_NG.cumsum(axis=1)
    truth_N = 1 - p_N**group_size - (1 - p_N) ** group_size > least

    def wrong(size_N: np.ndarray) -> np.ndarray:
        right_N = right_NG[np.arange(len(p_N)), size_N - 1]
        a_N, b_N = alpha + right_N, beta + size_N - right_N
        mean_N = a_N / (a_N + b_N)
        said_N = informative_probability(mean_N, mean_N * (1 - mean_N) / (a_N + b_N + 1), group_size) > least
        return np.asarray(said_N != truth_N)

    rule = settle_rule(16, least, 2)
    assert rule is not None
    goes_on: dict[tuple[int, int], bool] = {}
    size_N = np.full(len(p_N), 2)
    for end in range(2, 16, 2):
        for row in np.flatnonzero(size_N == end):
            key = (int(right_NG[row, end - 1]), end)
            if key not in goes_on:
                verdict = settled(rule, seen(*key), belief, left=16 - end, group_size=group_size)
                goes_on[key] = verdict is Verdict.CONTINUE
            size_N[row] += 2 * goes_on[key]

    assert size_N.mean() <= 0.6 * 8
    ours_N, fixed_N = wrong(size_N), wrong(np.full(len(p_N), 8))
    # Equal: the two differ by no more than two standard errors of a paired difference.
    assert ours_N.mean() - fixed_N.mean() <= 2 * np.sqrt(np.count_nonzero(ours_N != fixed_N)) / len(p_N)
    # A fixed probe of as many rollouts as were spent is wrong more often.
    assert ours_N.mean() < wrong(np.full(len(p_N), round(size_N.mean()))).mean()


def test_the_rule_is_for_probes_alone() -> None:
    with pytest.raises(ValueError, match="probes have it by themselves"):
        WaveConfig(rule="settle", first=2, step=2, low=0.5).check_run(8, 2)
    assert USES > 0
