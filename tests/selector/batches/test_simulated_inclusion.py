"""Simulated chances against those of combinatorics, and against the average of what single draws say."""

from dataclasses import replace

import numpy as np
import pytest

from selector.policies import PRESETS
from tests.selector.engine_cases import Session, coin, make_config, make_policy, make_pool, redraw

Z = 4.5


def tried(session: Session, num_batches: int = 3) -> Session:
    answer = coin(0, np.linspace(0.05, 0.95, session.state.num_rows))
    for index in range(num_batches):
        session.answer_batch(session.draw(index, 6), answer)
    return session


def test_the_best_of_random_candidates_have_the_chances_of_combinatorics() -> None:
    # Nobody was tried, so all tie: two of four candidates of twelve are drawn at random, one of them for its revisit.
    policy = make_policy(design="top", floor=0.0, candidates=2.0)
    session = Session(make_config(policy, review_share=0.0, revisit_draws=12), make_pool(12))

    found = session.engine.simulate_inclusion(session.request(0, 3), num_draws=600)

    due_N = found.share_N == 1.0
    assert due_N.sum() == 1
    assert (np.abs(found.share_N - 2 / 11) < Z * found.error_N)[~due_N].all()
    assert found.share_N.sum() == pytest.approx(3.0)


def test_simulated_chances_are_the_average_of_those_given_the_candidates_and_the_drawn_pass_rates() -> None:
    policy = replace(PRESETS["mopps"].config, candidates=1.5)
    session = tried(Session(make_config(policy, audit_share=0.2), make_pool(24)))
    request = session.request(3, 6)

    found = session.engine.simulate_inclusion(request, num_draws=400)

    total_N = np.zeros(24)
    for seed in range(1000, 1400):
        state = replace(session.state, config=replace(session.state.config, seed=seed))
        total_N += redraw(state, request, session.state.revisit_draws).inclusion_N
    # The two are independent, and the average is at least as sure as the simulation.
    assert (np.abs(found.share_N - total_N / 400) < Z * np.sqrt(2) * found.error_N).all()
    assert found.share_N.std() > 0.05


def test_where_chances_are_known_simulation_agrees_and_nothing_changes() -> None:
    session = tried(Session(make_config(audit_share=0.0), make_pool(20)))
    before = session.state.seq, session.state.rows["drawn_N"].tolist(), session.state.config
    request = session.request(3, 6)

    found = session.engine.simulate_inclusion(request, num_draws=500)

    known_N = redraw(session.state, request, session.state.revisit_draws).inclusion_N
    assert (np.abs(found.share_N - known_N) < Z * np.sqrt(known_N * (1 - known_N) / 500) + 1e-9).all()
    assert (found.error_N > 0.0).all()
    assert (session.state.seq, session.state.rows["drawn_N"].tolist(), session.state.config) == before


def test_no_draw_tells_nothing() -> None:
    session = Session()
    with pytest.raises(ValueError, match="num_draws must be >= 1, got 0"):
        session.engine.simulate_inclusion(session.request(0, 3), num_draws=0)
