"""Presets after curricula: each makes the choice its method documents on a pool made by hand."""

from dataclasses import replace
from math import tanh

import numpy as np
import pytest

from predictors.value import expected_absolute_advantage
from selector.batches.drawing import due_revisits
from selector.config import RunConfig
from selector.policies import PRESETS, build_policy
from selector.sampling.randomness import Stream, stream
from selector.types import PURPOSE_CODE, Purpose
from tests.selector import preset_table
from tests.selector.engine_cases import Session, make_pool, redraw
from tests.selector.preset_cases import answered, config_of, passes_of, tried
from tests.selector.test_policies import make_beliefs

SIZE = 8


def chosen_and_left(session: Session, index: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that the next draw took, and those it left; revisits that are due aside."""
    event = session.engine.draw(session.request(index, SIZE), now=0.0)
    assert event is not None
    due = np.flatnonzero(due_revisits(session.state, event.revisit_draws or 0))
    session.apply(event)
    chosen = np.setdiff1d(event.row_K, due)
    return chosen, np.setdiff1d(np.arange(session.state.num_rows), np.r_[chosen, due])


def without_revisits(session: Session, index: int) -> np.ndarray:
    """(N,) chances of the next draw, were no revisit due."""
    request = session.request(index, SIZE)
    return redraw(session.state, request, 0).inclusion_N


def test_adarft_goes_from_the_easiest_prompts_to_the_target_that_their_passes_set() -> None:
    session = Session(config_of("adarft"), make_pool(90))
    difficulty_N = session.state.pool.features["difficulty"]
    scaled_N = (difficulty_N - difficulty_N.min()) / (difficulty_N.max() - difficulty_N.min())
    targets = []
    for index in range(5):
        target = session.state.controlled.get("target", 0.0)
        if index:
            target = min(target + 0.5 * tanh(2 * (1.0 - 0.5)), 1.0)
        targets.append(target)
        distance_N = np.abs(scaled_N - target)
        chosen, left = chosen_and_left(session, index)
        assert distance_N[chosen].max() <= distance_N[left].min()
        session.answer_batch(session.state.batches[-1], lambda _row, _index, _n: 1.0)

    # In steps of 38 of 100, to the end of the scale.
    np.testing.assert_allclose(targets, [0.0, 0.3808, 0.7616, 1.0, 1.0], atol=1e-4)


def test_adarft_draws_the_same_prompts_as_long_as_its_target_is_pinned() -> None:
    session = Session(config_of("adarft"), make_pool(90))
    batches = []
    for index in range(3):
        batches.append(set(chosen_and_left(session, index)[0].tolist()))
        session.answer_batch(session.state.batches[-1], lambda _row, _index, _n: 0.0)

    easiest = set(np.argsort(session.state.pool.features["difficulty"])[:SIZE].tolist())
    assert all(batch <= easiest for batch in batches)


def test_vcrl_prefers_any_informative_group_at_first_and_even_ones_from_the_twentieth_draw_on() -> None:
    session = Session(config_of("vcrl", audit_share=0.0), make_pool(40))
    for index in range(21):
        answered(session, session.draw(index, SIZE))
    numbers = [batch.event.controlled for batch in session.state.batches]

    assert [n["threshold"] for n in numbers] == [0.3] * 20 + [0.8]
    p_N = np.array([0.1, 0.5])
    for number, kept in ((numbers[0], range(1, 8)), (numbers[20], range(3, 6))):
        policy = replace(PRESETS["vcrl"].config, low=number["low"], high=number["high"])
        found = build_policy(policy, weights="none", advantage="grpo").utility(make_beliefs(p_N.tolist()), group_size=8)
        binomial = [[_choose(8, k) * p**k * (1 - p) ** (8 - k) for k in kept] for p in p_N.tolist()]
        np.testing.assert_allclose(found, np.sum(binomial, axis=1), rtol=1e-9)


def test_vcrl_remembers_with_a_momentum_of_nine_tenths() -> None:
    session = Session(config_of("vcrl"), make_pool(SIZE))
    for index, passes in enumerate((8, 0)):
        session.answer_batch(session.draw(index, SIZE), lambda _row, _index, n, k=passes: float(n < k))  # type: ignore[misc]

    # Beta(1, 1) after 8 of 8 and then none of 8: successes 0.9 of (1 + 8) and 0.1 of the prior's 1.
    np.testing.assert_allclose(session.state.beliefs().mean_N, (0.9 * 9 + 0.1) / (0.9 * 10 + 0.1 * 2 + 8), rtol=1e-9)


def test_plr_draws_by_rank_to_the_tenth_and_a_tenth_by_staleness() -> None:
    session = tried("plr", num_rows=60)
    chances = without_revisits(session, 4)
    beliefs = session.state.beliefs()
    score_N = expected_absolute_advantage(beliefs.mean_N, np.zeros(60), 8, "grpo")
    rank_N = np.array([1 + np.sum(score_N > score + 1e-12) for score in score_N])
    age_N = session.state.train_draws + 1 - session.state.rows["last_draw_N"]
    size_N = 0.9 * rank_N**-10.0 / (rank_N**-10.0).sum() + 0.1 * age_N / age_N.sum()
    size_N = 0.99 * size_N + 0.01 / 60

    np.testing.assert_allclose(chances, SIZE * size_N, rtol=1e-5)
    # What was never tried is as good as one half, and shares the first rank.
    untried = rank_N[session.state.rows["groups_N"] == 0]
    assert untried.tolist() == [1] * len(untried) != []


def test_plr_prefers_among_equal_ranks_what_was_not_drawn_for_longest() -> None:
    session = Session(config_of("plr"), make_pool(24))
    for index in range(3):
        session.answer_batch(session.draw(index, SIZE), lambda _row, _index, _n: 0.0)
    chances = without_revisits(session, 3)
    age_N = session.state.train_draws + 1 - session.state.rows["last_draw_N"]
    seen = session.state.rows["groups_N"] > 0
    order = np.argsort(age_N[seen], kind="stable")

    assert len(set(age_N[seen].tolist())) > 1
    assert (np.diff(chances[seen][order]) >= -1e-12).all()
    assert chances[seen].max() > chances[seen].min()


def test_sfl_takes_half_from_the_most_learnable_and_half_alike() -> None:
    session = tried("sfl", num_rows=40, num_batches=12)
    chances = without_revisits(session, 12)
    mean_N = session.state.beliefs().mean_N
    learnability_N = mean_N * (1 - mean_N)
    score_N = np.sort(learnability_N)[::-1]
    sure, open_ = learnability_N > score_N[SIZE - 1] + 1e-12, learnability_N < score_N[SIZE - 1] - 1e-12

    # Half a chance for what is among the best eight, and 4 of 40 for every prompt.
    np.testing.assert_allclose(chances[sure], 0.5 + 4 / 40)
    np.testing.assert_allclose(chances[open_], 4 / 40)
    tied = ~sure & ~open_
    np.testing.assert_allclose(chances[tied], 4 / 40 + 0.5 * (SIZE - sure.sum()) / tied.sum())


def test_dots_takes_the_prompts_predicted_nearest_to_one_half() -> None:
    session = tried("dots", num_rows=60, num_batches=8)
    mean_N = session.state.beliefs().mean_N

    chosen, left = chosen_and_left(session, 8)

    assert np.abs(mean_N - 0.5)[chosen].max() <= np.abs(mean_N - 0.5)[left].min()
    # At a temperature of 0.001 a difference of 0.005 costs a factor of 150.
    assert np.exp(0.005 / 1e-3) == pytest.approx(148.4, abs=0.1)


def test_vip_spends_rollouts_by_the_standard_deviation_of_an_outcome() -> None:
    session = tried("vip", num_rows=60, num_batches=8)
    beliefs = session.state.beliefs()
    deviation_N = np.sqrt(beliefs.mean_N * (1 - beliefs.mean_N) - beliefs.variance_N)

    chances = without_revisits(session, 8)

    # The least Σ p(1-p)/n for a given Σn has n in proportion to it; a twentieth is spread evenly.
    np.testing.assert_allclose(chances, SIZE * (0.95 * deviation_N / deviation_N.sum() + 0.05 / 60), rtol=1e-6)


def test_insight_takes_what_is_middling_and_unsure_among_candidates() -> None:
    session = tried("insight", num_rows=60)
    state = session.state
    policy = build_policy(PRESETS["insight"].config, weights="none", advantage="grpo")
    worth_N = policy.utility(state.beliefs(), group_size=8)

    chosen, left = chosen_and_left(session, 4)

    # 16 times 8 candidates are the whole pool. A prompt that was never tried tells most.
    assert worth_N[chosen].min() >= worth_N[left].max() - 1e-12
    assert state.rows["groups_N"][chosen].max() == 0
    # Of two tried once, the one nearer to a half goes first; of two at a half, the one tried less often.
    once = make_beliefs([3 / 10, 5 / 10], 0.019)
    assert policy.utility(once, group_size=8)[1] > policy.utility(once, group_size=8)[0]
    twice = policy.utility(make_beliefs([0.5], 0.0132), group_size=8)[0]
    assert policy.utility(make_beliefs([0.5], 0.0227), group_size=8)[0] > twice


def test_insight_and_mopps_choose_among_the_same_candidates() -> None:
    ours, theirs = (config_of(name) for name in ("insight", "mopps"))

    assert ours.policy.candidates == theirs.policy.candidates == 16.0
    assert ours.policy.estimator_options == theirs.policy.estimator_options
    keys = [stream(config.seed, Stream.CANDIDATES, PURPOSE_CODE[Purpose.TRAIN], 4, 0) for config in (ours, theirs)]
    assert keys[0].integers(2**60) == keys[1].integers(2**60)


def test_prompt_replay_fills_three_quarters_with_middling_prompts_after_their_pause() -> None:
    session = Session(config_of("prompt-replay"), make_pool(300))
    for index in range(11):
        answered(session, session.draw(index, SIZE if index else 100))
    state = session.state
    rows = state.rows
    age_N = state.train_draws + 1 - rows["last_draw_N"]
    share_N = np.array([passes_of(row) / 8 for row in range(300)])
    again = np.flatnonzero((rows["drawn_N"] > 0) & (age_N >= 10) & (np.abs(share_N - 0.5) <= 0.25))
    chances = without_revisits(session, 11)
    distance = np.abs(share_N[again] - 0.5)
    closer = np.array([np.sum(distance < d) for d in distance])
    alike = np.array([np.sum(distance == d) for d in distance])
    place = np.clip((SIZE - closer) / alike, 0.0, 1.0)

    assert len(again) > SIZE
    # Three quarters of a place by the method, ties sharing alike, and 2 of 300 places for every prompt.
    np.testing.assert_allclose(chances[again], 0.75 * place + 2 / 300)
    others = np.setdiff1d(np.arange(300), again)
    np.testing.assert_allclose(chances[others], 2 / 300)


def test_random_equal_informative_draws_every_prompt_alike() -> None:
    session = tried("random-equal-informative", num_rows=40)

    np.testing.assert_allclose(without_revisits(session, 4), SIZE / 40)
    assert RunConfig(pool="pool", policy=PRESETS["random-equal-informative"].config).policy.controller is None


def _choose(n: int, k: int) -> int:
    return 1 if k == 0 else _choose(n, k - 1) * (n - k + 1) // k


def test_the_page_of_presets_is_that_of_the_code() -> None:
    page = preset_table.PAGE.read_text(encoding="utf-8")

    shown = page.partition(preset_table.BEGIN)[2].partition(preset_table.END)[0].strip()
    assert shown == preset_table.table(), "python -m tests.selector.preset_table writes the table anew"
