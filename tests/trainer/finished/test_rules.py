"""Rules over finished rollouts: against slow versions, by hand, and what they do to the expected gradient."""

from itertools import combinations, pairwise
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.finished import cppo, duplicate, gfpo, order, pods, replay, vcrl
from trainer.finished.claim import ClaimType
from trainer.finished.keeping import CLAIMS, SHARED, keep_rollouts
from trainer.finished.replay import Memory, Past, fill_places

rewards = st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]) | st.floats(-3, 3, width=32), min_size=1, max_size=8)


@given(rewards, st.integers(1, 8))
def test_pods_has_the_largest_variance_of_all_subsets(values: list[float], keep: int) -> None:
    keep = min(keep, len(values))
    reward_G = np.array(values)

    kept_G = pods.max_variance_subset(reward_G, keep)

    best = max(float(np.var(reward_G[list(subset)])) for subset in combinations(range(len(values)), keep))
    assert kept_G.sum() == keep
    assert np.var(reward_G[kept_G]) == pytest.approx(best, rel=1e-9, abs=1e-12)


@given(st.integers(2, 16), st.data())
def test_pods_keeps_half_right_and_half_wrong_where_there_are_enough_of_both(half: int, data: st.DataObject) -> None:
    right, wrong = data.draw(st.integers(half, 40)), data.draw(st.integers(half, 40))
    reward_G = np.random.default_rng(0).permutation(np.repeat([1.0, 0.0], [right, wrong]))

    kept_G = pods.max_variance_subset(reward_G, 2 * half)

    assert reward_G[kept_G].sum() == half


def test_pods_by_hand_at_any_offset() -> None:
    # Of five, the two lowest and the highest: 0, 1, 9.
    for offset in (0.0, 1e8):
        assert pods.max_variance_subset(np.array([4.0, 0.0, 9.0, 1.0, 5.0]) + offset, 3).tolist() == [
            False, True, True, True, False
        ]  # fmt: skip
    assert pods.max_variance_subset(np.ones(4), 2).sum() == 2


def weight(p: float, advantage: np.ndarray, right: np.ndarray, count: int) -> float:
    """The factor of ∇p in the mean over `count` rollouts of A·∇log π, by E[∇log π | right] = ∇p/p and its like."""
    return float(np.sum(advantage * np.where(right, 1 / p, -1 / (1 - p)))) / count


@pytest.mark.parametrize(("p", "relative"), [(0.05, 5.3), (0.1, 2.8), (0.2, 1.6)])
def test_a_step_of_pods_climbs_the_logit(p: float, relative: float) -> None:
    found = {}
    for rate in (0.5, p):
        right = np.arange(400) < round(400 * rate)
        kept = pods.max_variance_subset(right.astype(float), 8)
        subset = right[kept].astype(float)
        advantage = (subset - subset.mean()) / subset.std()
        found[rate] = weight(rate, advantage, right[kept], 8)

    # ∇p / (2p(1−p)).
    assert found[p] == pytest.approx(1 / (2 * p * (1 - p)))
    assert found[p] / found[0.5] == pytest.approx(relative, abs=0.05)
    # GRPO on all of them: ∇p / √(p(1−p)), 2.3, 1.7 and 1.25 times as much as at one half.
    everyone = (np.arange(400) < round(400 * p)).astype(float)
    grpo = weight(p, (everyone - everyone.mean()) / everyone.std(), everyone > 0, 400)
    assert grpo == pytest.approx(1 / sqrt(p * (1 - p)))


def test_cppo_keeps_the_rarer_outcome_first_and_weighs_it_as_it_says() -> None:
    size, passed, keep, p = 16, 2, 4, 1 / 8
    right = np.arange(size) < passed
    advantage = (right - right.mean()) / right.std()

    kept = cppo.largest_advantages(advantage, keep)

    assert kept.tolist() == [True] * 4 + [False] * 12
    formula = (sqrt(passed * 14) / p + (keep - passed) * sqrt(passed / 14) / (1 - p)) / keep
    assert weight(p, advantage[kept], right[kept], keep) == pytest.approx(formula)
    assert formula / weight(p, advantage, right, size) == pytest.approx(3.6, abs=0.05)


def test_cppo_does_not_look_at_signs_and_gives_ties_to_the_first() -> None:
    assert cppo.largest_advantages(np.array([0.1, -2.0, 0.5, 0.5]), 2).tolist() == [False, True, True, False]


def test_gfpo_keeps_the_shortest_or_most_reward_a_token() -> None:
    tokens, reward = np.array([30, 10, 20, 10, 0]), np.array([1.0, 0.0, 1.0, 1.0, 0.0])

    assert gfpo.shortest(tokens, 2).tolist() == [False, True, False, False, True]
    # 1/30, 0, 1/20, 1/10, 0.
    assert gfpo.most_efficient(reward, tokens, 2).tolist() == [False, False, True, True, False]
    assert gfpo.most_efficient(-reward, tokens, 2).tolist() == [False, True, False, False, True]


@pytest.mark.parametrize("keep", [0, 5])
def test_a_subset_that_cannot_be_is_refused(keep: int) -> None:
    for rule in (pods.max_variance_subset, cppo.largest_advantages, gfpo.shortest):
        with pytest.raises(ValueError, match=rf"keep must be in \[1, 4\], got {keep}"):
            rule(np.arange(4.0), keep)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 5))
def test_copies_stand_at_every_degenerate_place_as_evenly_as_can_be(informative: list[bool], seed: int) -> None:
    source = duplicate.duplicate_informative(np.array(informative), np.random.default_rng(seed))

    good = sum(informative)
    assert (source is None) == (3 * good <= len(informative))
    if source is not None:
        assert all(informative[place] for place in source)
        assert all(source[place] == place for place in range(len(informative)) if informative[place])
        counts = [int(np.sum(source == place)) for place in range(len(informative)) if informative[place]]
        assert max(counts) - min(counts) <= 1


def test_a_copied_group_counts_one_over_the_yield_on_average() -> None:
    informative = np.array([True, False, True, False, True, False, False, False])
    counts = np.zeros(8)
    for seed in range(3000):
        source = duplicate.duplicate_informative(informative, np.random.default_rng(seed))
        assert source is not None
        counts += np.bincount(source, minlength=8)

    # 8/3 each, of 2 or 3: four standard errors of a mean of 3,000.
    np.testing.assert_allclose(counts[informative] / 3000, 8 / 3, atol=4 * sqrt(2 / 9 / 3000))
    assert duplicate.duplicate_informative(informative, np.random.default_rng(0), min_share=0.4) is None
    assert duplicate.duplicate_informative(np.zeros(3, bool), np.random.default_rng(0), min_share=0.0) is None


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 16])
def test_the_normalised_variance_is_the_unbiased_one_over_its_largest(size: int) -> None:
    passes = np.arange(size + 1)
    variance = np.array([np.var(np.repeat([1.0, 0.0], [k, size - k]), ddof=1) for k in passes])

    np.testing.assert_allclose(vcrl.normalised_variance(passes, np.full(size + 1, size)), variance / variance.max())


def test_the_gate_of_vcrl_keeps_3_to_5_of_8_at_four_fifths_and_1_to_7_at_three_tenths() -> None:
    passes, scored = np.arange(9), np.full(9, 8)

    assert np.flatnonzero(vcrl.gate(passes, scored, 0.8)).tolist() == [3, 4, 5]
    assert np.flatnonzero(vcrl.gate(passes, scored, 0.3)).tolist() == list(range(1, 8))
    assert vcrl.gate(np.array([0, 1]), np.array([0, 1]), 0.1).tolist() == [False, False]
    for p, share in ((0.5, 0.711), (0.1, 0.038), (0.05, 0.0058)):
        assert sum(comb(8, k) * p**k * (1 - p) ** (8 - k) for k in (3, 4, 5)) == pytest.approx(share, rel=0.01)
    with pytest.raises(ValueError, match=r"threshold must be in \[0, 1\], got 1.1"):
        vcrl.gate(passes, scored, 1.1)


def test_past_groups_fill_degenerate_places_the_most_recent_first_with_their_lag() -> None:
    memory = Memory(size=3)
    for version in range(5):
        memory = memory.after([Past(ticket=f"t{version}", behaviour_version=version)])
    assert [past.ticket for past in memory.groups] == ["t2", "t3", "t4"]

    found = fill_places([True, False, False, True, False, False], memory, version=6, max_lag=3)

    # Version 2 is four behind.
    assert [(r.place, r.ticket, r.behaviour_version, r.lag) for r in found] == [(1, "t4", 4, 2), (2, "t3", 3, 3)]
    assert fill_places([True], memory, version=6, max_lag=3) == []
    assert fill_places([False], memory, version=6, max_lag=1) == []


def test_a_memory_holds_the_newest_of_many_and_is_a_value() -> None:
    memory = Memory(size=2)
    later = memory.after(Past(ticket=name, behaviour_version=0) for name in "abc")

    assert [past.ticket for past in later.groups] == ["b", "c"]
    assert memory.groups == ()
    assert Memory(size=0).after([Past(ticket="a", behaviour_version=0)]).groups == ()


def test_a_replay_from_the_future_or_with_a_negative_lag_is_refused() -> None:
    memory = Memory(size=2, groups=(Past(ticket="a", behaviour_version=7),))
    with pytest.raises(ValueError, match="ticket a is of version 7, ahead of 6"):
        fill_places([False], memory, version=6, max_lag=9)
    with pytest.raises(ValueError, match="max_lag must be >= 0, got -1"):
        fill_places([False], memory, version=8, max_lag=-1)


def test_groups_come_shortest_first_and_the_warning_says_what_that_does() -> None:
    tokens = np.array([30.0, 10.0, 20.0, 10.0])

    found = order.by_predicted_length(tokens)

    assert found.tolist() == [1, 3, 2, 0]
    assert all(tokens[a] <= tokens[b] for a, b in pairwise(found))
    assert "short answers" in order.WARNING


def test_every_rule_claims_something_and_only_copies_and_all_claim_the_run_s_direction() -> None:
    unbiased = {rule for rule, claim in CLAIMS.items() if claim.type is ClaimType.UNBIASED}

    assert unbiased == {"all", "duplicate"}
    assert all(claim.objective for claim in (*CLAIMS.values(), replay.CLAIM, order.CLAIM))


SCORED = np.array([[True] * 4, [True, True, True, False], [False] * 4, [True, False, False, False]])
REWARD = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, np.nan], [np.nan] * 4, [1.0, np.nan, np.nan, np.nan]])
TOKENS = np.array([[4, 3, 2, 1]] * 4)


@pytest.mark.parametrize("rule", sorted(SHARED))
def test_half_of_each_group_is_kept_of_what_was_scored_and_two_at_least(rule: str) -> None:
    kept = keep_rollouts(rule, REWARD, SCORED, TOKENS, share=0.5, threshold=0.8)  # type: ignore[arg-type]
    chosen = kept.counted_KG if rule in ("pods", "cppo") else kept.compared_KG

    assert chosen.sum(axis=1).tolist() == [2, 2, 0, 1]
    assert not (chosen & ~SCORED).any()
    others = kept.compared_KG if rule in ("pods", "cppo") else kept.counted_KG
    assert (others == (chosen if rule == "pods" else SCORED)).all()


def test_what_each_rule_keeps_of_a_group() -> None:
    def of_first(rule: str, **changes: float) -> list[bool]:
        options = {"share": 0.5, "threshold": 0.8} | changes
        kept = keep_rollouts(rule, REWARD, SCORED, TOKENS, **options)  # type: ignore[arg-type]
        found: list[bool] = (kept.counted_KG & kept.compared_KG)[0].tolist()
        return found

    assert of_first("pods") == [True, True, False, False]
    assert of_first("cppo") == [True, True, False, False]
    assert of_first("gfpo-short") == [False, False, True, True]
    assert of_first("gfpo-efficient") == [True, True, False, False]
    # 3 of 4 in variance: 1·3/4.
    assert of_first("vcrl") == [False] * 4
    assert of_first("vcrl", threshold=0.7) == [True] * 4
    assert of_first("all") == of_first("duplicate") == of_first("popo") == [True] * 4
