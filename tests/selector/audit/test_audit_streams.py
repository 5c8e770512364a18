"""What the selected stream shows and what the pool is, and intervals that hold however often one looks."""

import numpy as np

from selector.batches.observations import Floats
from tests.selector.audit.test_confidence import most_misses
from tests.selector.audit_cases import Simulation, assert_holds, audited, chance_of_signal, interval, learned, value


def test_the_selected_stream_lies_and_the_audit_says_so() -> None:
    p = np.repeat([0.0, 0.5], 50)
    run = Simulation(
        rng=np.random.default_rng(29),
        pass_rate_N=lambda draw: p,
        size=chance_of_signal,
        predicted=learned,
        num_tickets=20,
        num_audit=2,
    ).run(200)
    found = audited(run.records)
    curves = found.pass_rate
    assert_holds(curves.uniform, 0.25)
    assert_holds(curves.reweighted, 0.25)
    assert value(curves.selected) > 0.4
    assert interval(curves.uniform)[1] < 0.35
    # The quarter of the pool that is not degenerate: half of the prompts, and of those all but 2·0.5^8.
    assert_holds(found.degenerate.uniform, 0.5 + 0.5 * 2 * 0.5**8)
    assert found.verdict is not None
    assert found.finding == "bias"
    assert found.verdict.startswith("bias found: the selected stream differs from the pool by +0.1")
    assert "selected stream shows 0.4" in found.verdict
    assert "the uniform estimate is 0.2" in found.verdict
    assert found.verdict.endswith("read progress from the uniform curve")


def test_a_uniform_selection_shows_no_difference() -> None:
    p = np.linspace(0, 1, 40)
    run = Simulation(
        rng=np.random.default_rng(3),
        pass_rate_N=lambda draw: p,
        size=lambda passes, tries: np.ones(40),
        predicted=learned,
    ).run(60)
    verdict = audited(run.records).verdict
    assert verdict is not None
    assert verdict.endswith("agrees: no difference between the curves to be seen so far")


def test_looking_every_few_draws_misses_a_moving_mean_no_more_often_than_stated() -> None:
    num_runs, num_draws, level = 80, 40, 0.8
    start, rng = np.repeat([0.05, 0.3, 0.8], 10), np.random.default_rng(2)
    missed = np.zeros(2, int)

    def pass_rate(draw: int) -> Floats:
        return start + draw / num_draws * (0.6 - start)

    truth = np.cumsum([pass_rate(draw).mean() for draw in range(num_draws)]) / np.arange(1, num_draws + 1)
    for _ in range(num_runs):
        run = Simulation(rng=rng, pass_rate_N=pass_rate, size=chance_of_signal, predicted=learned).run(num_draws)
        outside = np.zeros(2, bool)
        for look in range(10, num_draws + 1, 10):
            found = audited(run.records[:look], level=level).pass_rate
            for i, curve in enumerate((found.uniform, found.reweighted)):
                low, high = interval(curve)
                outside[i] |= not low <= truth[look - 1] <= high
        missed += outside
    assert max(missed) <= most_misses(num_runs, 1 - level)
