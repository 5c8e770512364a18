"""What a drift of one's own could gain: which prompts count as trained on."""

import numpy as np

from tests.benchmarks.outcome_sets import FEEDS, Episode, OutcomeSet
from tests.benchmarks.own_training import last_informative, own_training_figures


def episode(passes_RN: np.ndarray, revealed_RN: np.ndarray) -> Episode:
    num_rounds, num_prompts = passes_RN.shape
    judged_RN = np.ones(passes_RN.shape, dtype=bool)
    judged_RN[0] = False
    return Episode(
        category_N=np.zeros(num_prompts, dtype=np.int32),
        version_R=10 * np.arange(num_rounds),
        passes_RN=passes_RN,
        scored_RN=np.full(passes_RN.shape, 8),
        revealed_RN=revealed_RN,
        judged_RN=judged_RN,
    )


def test_the_newest_group_that_was_revealed_says_whether_a_prompt_was_trained_on() -> None:
    passes_RN = np.array([[4, 8, 0], [8, 3, 5], [1, 1, 8]])
    revealed_RN = np.array([[True, True, True], [False, True, True], [True, True, True]])

    found = last_informative(episode(passes_RN, revealed_RN))

    np.testing.assert_array_equal(found, [[False] * 3, [True, False, False], [True, True, True]])


def test_a_drift_that_only_trained_prompts_have_is_found() -> None:
    """Prompts in the middle rise at every visit, those at the ends stand still."""
    rng = np.random.default_rng(0)
    rate_N = np.r_[np.full(300, 0.3), np.full(300, 0.9995)]
    passes_RN = np.array([rng.binomial(8, rate_N + (rate_N < 0.9) * 0.04 * visit) for visit in range(14)])
    outcomes = OutcomeSet(
        name="made up", feed=FEEDS[0], kind="over time", same_prompts=True,
        episodes=(episode(passes_RN, np.ones(passes_RN.shape, dtype=bool)),),
    )  # fmt: skip
    figures = {(figure.case, figure.metric): figure for figure in own_training_figures([outcomes])}
    trained = figures["mixture: last group trained on", "log_loss_of_best_shift_less_none"]

    assert trained.value is not None
    assert trained.value < 0.0
    assert figures["mixture: last group trained on", "best_shift"].value > 0.0  # type: ignore[operator]
