"""Which prompts deserve a probe, and when one has had enough."""

import numpy as np
import pytest

from selector.probe_value import value_of_probe
from selector.probing import (
    USES,
    Displaced,
    ProbingConfig,
    displaced,
    plan_probes,
    settle_rule,
    settled,
)
from selector.waves import Seen, Verdict, WaveConfig


def plan(value_mean: list[float], value_variance: list[float], **changes: object) -> object:
    num = len(value_mean)
    given: dict[str, object] = {
        "tokens_N": None,
        "eligible_N": np.ones(num, bool),
        "owed_N": np.zeros(num, bool),
        "order_N": np.arange(num),
        "size": num,
        "ends": (2, 4, 6, 8),
        "group_size": 8,
        "needed": Displaced(least=0.3, missing=np.inf),
        "open_N": np.zeros(num, bool),
        "budget": None,
    }
    return plan_probes(np.array(value_mean), np.array(value_variance), **(given | changes))  # type: ignore[arg-type]


# What is displaced


def test_a_better_prompt_displaces_what_the_draw_is_not_sure_of() -> None:
    # Three places: the first row is sure of one, the other four share two by 1:1:1:1.
    informative_N, utility_N = np.array([0.9, 0.6, 0.5, 0.2, 0.1]), np.array([8.0, 1.0, 1.0, 1.0, 1.0])
    found = displaced(informative_N, utility_N, 0.05, 3.0)
    assert found.least == pytest.approx(0.35)
    assert found.missing == pytest.approx(0.95 * 2 * 0.65)


def test_before_the_first_batch_no_row_is_sure_and_nothing_bounds_what_is_to_gain() -> None:
    found = displaced(np.array([0.9, 0.1, 0.2]), np.array([3.0, 1.0, 0.0]), 0.05, None)
    assert found.least == pytest.approx(2.8 / 4)
    assert found.missing == np.inf


def test_where_nothing_is_preferred_or_everything_is_drawn() -> None:
    assert displaced(np.array([0.9, 0.1]), np.zeros(2), 0.0, 1.0).least == pytest.approx(0.5)
    everything = displaced(np.array([0.9, 0.1]), np.ones(2), 0.0, 5.0)
    assert (everything.least, everything.missing) == (1.0, 0.0)
    assert displaced(np.zeros(0), np.zeros(0), 0.2, 4.0) == Displaced(least=0.0, missing=0.0)


# Who is probed


def test_the_unknown_go_before_the_known_and_the_settled_are_left_alone() -> None:
    # A prompt never tried, another of which more is known, one known to be mixed, one known to be solved.
    found = plan([0.4, 0.3, 0.5, 0.999], [0.2, 0.17, 0.0005, 1e-6])
    assert sorted(found.rows_K.tolist()) == [0, 1]  # type: ignore[attr-defined]
    assert found.num_worth == 2  # type: ignore[attr-defined]
    assert found.inclusion_N.tolist() == [1.0, 1.0, 0.0, 0.0]  # type: ignore[attr-defined]


def test_cheap_prompts_go_first() -> None:
    found = plan([0.4] * 3, [0.2] * 3, tokens_N=np.array([110.0, 100.0, 105.0]))
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


def test_no_more_are_probed_than_would_fill_what_there_is_to_gain() -> None:
    beliefs = [0.4] * 50, [0.2] * 50
    one = value_of_probe(
        np.array([0.4]), np.array([0.2]), (2, 4, 6, 8), group_size=8, least=0.3, price_N=np.array([1 / (8 * USES)])
    )
    missing = 3.5 * float(one.gain_N[0])
    found = plan(*beliefs, needed=Displaced(least=0.3, missing=missing))
    assert (len(found.rows_K), found.num_worth, found.unaffordable) == (4, 4, False)  # type: ignore[attr-defined]
    # The probes that are open will bring some of it, and are not begun again.
    open_N = np.arange(50) < 2
    found = plan(*beliefs, needed=Displaced(least=0.3, missing=missing), open_N=open_N, eligible_N=~open_N)
    assert len(found.rows_K) == 2  # type: ignore[attr-defined]
    assert not open_N[found.rows_K].any()  # type: ignore[attr-defined]
    assert not len(plan(*beliefs, needed=Displaced(least=0.3, missing=0.0)).rows_K)  # type: ignore[attr-defined]


def test_whoever_is_owed_a_look_gets_it_though_there_is_nothing_to_gain() -> None:
    found = plan([0.4, 0.999], [0.2, 1e-6], owed_N=np.array([False, True]), needed=Displaced(least=0.3, missing=0.0))
    assert found.rows_K.tolist() == [1]  # type: ignore[attr-defined]


def test_going_on_costs_more_where_other_prompts_are_waiting() -> None:
    alone, waiting = plan([0.4] * 3, [0.2] * 3), plan([0.4] * 3, [0.2] * 3, size=2)
    least = 1 / (8 * USES)
    assert alone.price == pytest.approx(least)  # type: ignore[attr-defined]
    assert waiting.price > least  # type: ignore[attr-defined]


@pytest.mark.parametrize("values", [{"tokens": 0.0}, {"share": -1.0}, {"tokens": float("nan")}])
def test_bounds_that_cannot_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"probing\..* must be a number > 0"):
        ProbingConfig(**values)


# When a probe has had enough

CHEAP = 0.002  # informative groups a decision


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
    rule = settle_rule(8, 0.5, 2, CHEAP)
    assert rule is not None
    belief = (0.4, 0.2)
    assert settled(rule, seen(1, 2), belief, left=6, group_size=8) is Verdict.STOP
    assert settled(rule, seen(0, 2), belief, left=6, group_size=8) is Verdict.CONTINUE
    assert settled(rule, seen(0, 6), belief, left=2, group_size=8) is Verdict.STOP
    assert settled(rule, seen(0, 0), belief, left=6, group_size=8) is Verdict.STOP


def test_with_a_store_a_mixed_wave_goes_on_as_far_as_a_train_group_takes_it() -> None:
    rule = settle_rule(8, 0.5, 2, CHEAP)
    assert rule is not None
    for belief in ((0.4, 0.2), (0.5, 0.01)):
        for kept, verdict in ((4, Verdict.CONTINUE), (2, Verdict.CONTINUE), (1, Verdict.STOP), (-2, Verdict.STOP)):
            assert settled(rule, seen(1, 2), belief, left=6, group_size=8, kept=kept) is verdict
    # One that is alike goes on for what it may still say, store or not.
    for n in (2, 4, 6):
        alone = settled(rule, seen(0, n), (0.4, 0.2), left=8 - n, group_size=8)
        assert settled(rule, seen(0, n), (0.4, 0.2), left=8 - n, group_size=8, kept=6 - n) is alone


def test_nothing_is_left_to_ask_for_at_the_end() -> None:
    rule = settle_rule(8, 0.5, 2, CHEAP)
    assert rule is not None
    assert settled(rule, seen(0, 2), (0.4, 0.2), left=0, group_size=8) is Verdict.STOP


def test_a_higher_price_stops_sooner() -> None:
    belief = (0.4, 0.2)
    for price, verdict in ((CHEAP, Verdict.CONTINUE), (None, Verdict.STOP), (0.2, Verdict.STOP)):
        rule = settle_rule(8, 0.5, 2, price)
        assert rule is not None
        assert settled(rule, seen(0, 2), belief, left=6, group_size=8) is verdict
    with pytest.raises(ValueError, match=r"wave\.price must be a number >= 0, got -1"):
        settle_rule(8, 0.5, 2, -1.0)


def test_the_rule_is_for_probes_alone() -> None:
    with pytest.raises(ValueError, match="probes have it by themselves"):
        WaveConfig(rule="settle", first=2, step=2, low=0.5).check_run(8, 2)
    assert USES > 0
