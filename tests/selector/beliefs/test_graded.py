"""P(informative) where scores are partial credit or rewards of any size."""

from typing import Any

import numpy as np
import pytest

from predictors.value import informative_probability
from selector.batches.drawing import spread
from selector.beliefs.graded import expected_informative
from selector.config import BudgetConfig
from selector.run.snapshot import pack, restore_snapshot, snapshot, unpack
from selector.types import Purpose
from tests.selector.engine_cases import (
    Session,
    make_config,
    make_policy,
    make_pool,
    rollout,
    tickets_of,
    what_was_drawn,
)


def session_of(num_rows: int = 20, categories: tuple[str, ...] = (), **config: Any) -> Session:
    return Session(make_config(make_policy(), **config), make_pool(num_rows, categories=categories))


def chances(session: Session) -> np.ndarray:
    return expected_informative(session.state, session.state.beliefs(), 4)


def binary(session: Session) -> np.ndarray:
    beliefs = session.state.beliefs()
    return informative_probability(beliefs.mean_N, beliefs.variance_N, 4)


def run(session: Session, batches: int, scores: Any, *, first: int = 0, size: int = 8, **values: Any) -> list[bool]:
    """`scores(rng, row)` gives outcomes and rewards of a group. Returns which groups were informative."""
    verdicts = []
    for index in range(first, first + batches):
        for ticket in tickets_of(session.draw(index, size, policy_version=index, **values)):
            row = int(session.state.book.tickets["row"][ticket])
            outcomes, rewards = scores(np.random.default_rng([index, row]), row)
            session.report(ticket, [rollout(float(o), reward=float(r)) for o, r in zip(outcomes, rewards, strict=True)])
            verdicts.append(bool(session.state.book.tickets["informative"][ticket] == 1))
    return verdicts


def passes(rng: np.random.Generator, row: int) -> tuple[Any, Any]:
    outcomes = (rng.random(4) < (row + 0.5) / 20).astype(float)
    return outcomes, outcomes


def shaped(rng: np.random.Generator, row: int) -> tuple[Any, Any]:
    outcomes = (rng.random(4) < (row + 0.5) / 20).astype(float)
    return outcomes, 50.0 * outcomes - rng.exponential(10.0, 4)


def always_half(rng: np.random.Generator, row: int) -> tuple[Any, Any]:
    return np.full(4, 0.5), np.full(4, 0.5)


def credit(rng: np.random.Generator, row: int) -> tuple[Any, Any]:
    """Quarters of credit about a mean that depends on the row."""
    outcomes = rng.binomial(4, (row + 0.5) / 20, 4) / 4
    return outcomes, outcomes


def test_runs_with_binary_scores_read_what_they_read_before_to_the_bit() -> None:
    session = session_of()
    run(session, 10, passes)

    np.testing.assert_array_equal(chances(session), binary(session))


def test_rewards_without_bounds_make_nearly_every_group_informative_and_the_prediction_says_so() -> None:
    session = session_of(signal="reward")
    run(session, 30, shaped)

    predicted = session.draw(30, 8).event.informative_K
    assert (predicted > 0.9).all()
    assert binary(session).min() < 0.6


def test_where_outcomes_decide_shaped_rewards_change_no_prediction() -> None:
    session = session_of(signal="outcome")
    run(session, 10, shaped)

    np.testing.assert_array_equal(chances(session), binary(session))


def test_partial_credit_that_always_ties_is_not_taken_for_informative() -> None:
    """Half credit for all looks like a pass rate of a half, whose groups would be the most informative of all."""
    session = session_of()
    verdicts = run(session, 30, always_half)

    assert not any(verdicts)
    assert chances(session).max() < 0.15 < 0.8 < binary(session).max()


def test_groups_of_sizes_that_a_budget_chose_are_predicted_by_what_was_learned_too() -> None:
    session = session_of()
    run(session, 30, always_half)
    event = session.draw(30, 8).event

    spread_out = spread(session.state, event, BudgetConfig(rule="knapsack", low=2, high=8))

    for size, row, predicted in zip(
        spread_out.rollouts_K.tolist(), event.row_K.tolist(), spread_out.informative_K, strict=True
    ):
        beliefs = session.state.beliefs(np.array([row]))
        assert predicted == pytest.approx(float(expected_informative(session.state, beliefs, size, np.array([row]))[0]))
    assert spread_out.informative_K.max() < 0.3


def test_predictions_of_partial_credit_are_calibrated() -> None:
    session = session_of()
    run(session, 30, credit)
    predicted, happened, unshifted = [], [], []
    for index in range(30, 55):
        unshifted.append(binary(session).mean())
        predicted.append(chances(session).mean())
        happened += run(session, 1, credit, first=index, size=20, allow_repeat=True)

    assert np.mean(predicted) == pytest.approx(np.mean(happened), abs=0.04)
    assert abs(np.mean(unshifted) - np.mean(happened)) > 0.06


def test_a_category_with_graded_scores_leaves_the_others_as_they_are() -> None:
    session = session_of(categories=("graded", "binary"))

    def by_category(rng: np.random.Generator, row: int) -> tuple[Any, Any]:
        return shaped(rng, row) if row % 2 == 0 else passes(rng, row)

    run(session, 30, by_category)

    np.testing.assert_array_equal(chances(session)[1::2], binary(session)[1::2])
    assert (chances(session)[::2] > binary(session)[::2]).all()


@pytest.mark.parametrize("purpose", [Purpose.CONTROL, Purpose.HELDOUT])
def test_ties_never_see_held_out_or_control_groups(purpose: Purpose) -> None:
    session = Session(make_config(), make_pool(20, heldout=range(8)))
    run(session, 5, shaped, purpose=purpose)

    assert not session.state.ties.graded_C.any()


def test_in_a_censored_feed_only_audit_groups_say_how_many_are_informative() -> None:
    session = session_of(feed="informative_only", audit_share=0.25)
    for index in range(30):
        batch = session.draw(index, 8, policy_version=index)
        for place, ticket in enumerate(tickets_of(batch)):
            rng = np.random.default_rng([index, place])
            outcomes = np.full(4, 0.5) if rng.random() < 0.8 else rng.random(4)
            if batch.event.audit_K[place] or len(set(outcomes)) > 1:
                session.report(ticket, [rollout(float(o)) for o in outcomes])
            else:
                session.report(ticket, final=True)

    assert chances(session).mean() < 0.5


def test_restored_replayed_and_resumed_runs_have_learned_the_same_and_draw_alike() -> None:
    session = session_of(categories=("a", "b"))
    run(session, 6, shaped)
    session.checkpoint(5)
    after = session.fork()
    saved = {name: array.tobytes() for name, array in session.state.ties.state().items()}
    run(session, 4, always_half, first=6)
    session.restore(5)
    assert {name: array.tobytes() for name, array in session.state.ties.state().items()} == saved
    for other in (session, after):
        run(other, 3, credit, first=6)
    drawn = [what_was_drawn(other.draw(9, 5, policy_version=9)) for other in (session, after)]
    assert drawn[0] == drawn[1]
    stored = snapshot(session.state)
    assert snapshot(session.replayed().state) == stored
    assert snapshot(session.resumed(stored).state) == stored


def test_a_snapshot_of_an_older_version_has_learned_nothing_of_ties() -> None:
    session = session_of()
    run(session, 4, shaped)
    arrays, document = unpack(snapshot(session.state))
    old = {name: array for name, array in arrays.items() if not name.startswith("rewindable.ties.")}

    assert not restore_snapshot(pack(old, document), session.archive.pool).ties.graded_C.any()
