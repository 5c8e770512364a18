"""What counts as a reward, and what reports of each purpose teach."""

import numpy as np
import pytest

from selector.types import Purpose, RolloutStatus, TicketState
from tests.selector.engine_cases import (
    TOKENS,
    Session,
    beliefs_of,
    error,
    make_config,
    make_policy,
    make_pool,
    rollout,
    rollouts,
)
from tests.selector.report_cases import MIXED, drawn, row_of


def test_a_rollout_without_a_score_is_a_third_state() -> None:
    """[1, none, 0, 1], [none, 1, 1, 1], all none."""
    session = drawn()

    session.report(0, rollouts(1.0, None, 0.0, 1.0))
    session.report(1, rollouts(None, 1.0, 1.0, 1.0))
    believed = beliefs_of(session.state)
    session.report(2, rollouts(None, None, None, None))

    table = session.state.book.tickets
    assert table["scored"].tolist() == [3, 3, 0]
    assert table["passes"].tolist() == [2.0, 3.0, 0.0]
    assert table["informative"].tolist() == [1, 0, -1]
    assert table["state"].tolist() == [TicketState.REPORTED, TicketState.REPORTED, TicketState.VOID]
    assert session.mean(row_of(session, 0)) == (1 + 2) / (2 + 3)
    assert session.mean(row_of(session, 1)) == (1 + 3) / (2 + 3)
    assert beliefs_of(session.state) == believed
    assert session.state.ledger.statuses["unscored"] == 6


@pytest.mark.parametrize(("signal", "informative"), [("reward", [1, 1, 0]), ("outcome", [0, 0, 1])])
def test_difficulty_follows_the_outcome_and_the_signal_is_a_setting(signal: str, informative: list[int]) -> None:
    """A length penalty on all wrong, a bonus on all right, two functions whose sum is constant."""
    session = drawn(signal=signal)
    shaped = [-0.10, -0.22, -0.31, -0.40]

    session.report(0, [rollout(0.0, reward=r) for r in shaped])
    session.report(1, [rollout(1.0, reward=1 + r) for r in shaped])
    names = [{"format": 1.0, "answer": 0.0}, {"format": 0.0, "answer": 1.0}] * 2
    decision = session.report(2, [rollout(w["answer"], reward=1.0, rewards=dict(w)) for w in names])

    assert session.state.book.tickets["informative"].tolist() == informative
    assert session.state.book.tickets["disagrees"].tolist() == [True, True, True]
    assert session.state.book.tickets["passes"].tolist() == [0.0, 4.0, 2.0]
    assert decision.event is not None
    assert decision.event.groups[0].rewards == names


def test_crashes_dressed_as_wrong_answers_do_not_lower_a_pass_rate() -> None:
    """Half of the rollouts crash and arrive as reward 0; of the others half pass."""
    session = Session(make_config(group_size=8), make_pool(1))
    for index in range(50):
        batch = session.draw(index, 1)
        session.report(batch.first_ticket, [*rollouts(1.0, 0.0, 1.0, 0.0), *[error() for _ in range(4)]])

    assert session.mean(0) == (1 + 100) / (2 + 200)
    assert session.state.rows["errors_N"][0] / session.state.rows["rollouts_N"][0] == 0.5
    assert session.state.ledger.statuses == {
        "reported": 400,
        "scored": 200,
        "unscored": 0,
        "error": 200,
        "truncated": 0,
    }


def test_a_truncated_rollout_counts_as_its_outcome_and_an_untouched_one_as_an_error() -> None:
    """Zero tokens marked as a time-out, and a genuine one after 16 000."""
    session = drawn()
    cut = RolloutStatus.TRUNCATED

    session.report(
        0, [rollout(0.0, status=cut, tokens=16_000), rollout(0.0, status=cut, tokens=0), *rollouts(1.0, 1.0)]
    )

    assert session.ticket(0)["scored"] == 3
    assert session.ticket(0)["passes"] == 2.0
    assert session.mean(row_of(session)) == (1 + 2) / (2 + 3)
    assert session.state.ledger.statuses == {
        "reported": 4,
        "scored": 3,
        "unscored": 0,
        "error": 1,
        "truncated": 1,
    }


def test_unknown_tokens_are_none_and_not_an_untouched_rollout() -> None:
    session = drawn()

    session.report(0, [rollout(1.0, status=RolloutStatus.TRUNCATED, tokens=None) for _ in range(4)])

    assert session.ticket(0)["scored"] == 4
    assert session.tokens() == {}


@pytest.mark.parametrize("purpose", [Purpose.HELDOUT, Purpose.CONTROL])
def test_no_belief_ever_sees_a_heldout_or_control_report(purpose: Purpose) -> None:
    session = Session(make_config(), make_pool(8, heldout=[0, 3, 6]))
    batch = session.draw(0, 3, purpose=purpose)
    assert all((row % 3 == 0) == (purpose is Purpose.HELDOUT) for row in batch.event.row_K.tolist())
    rewindable = {n: a.tobytes() for n, a in session.state.rewindable().items() if n != "counters"}
    dry = session.state.dry_draws

    for ticket in range(3):
        session.report(ticket, rollouts(*MIXED))

    seen = {n for n, a in session.state.rewindable().items() if n != "counters" and a.tobytes() != rewindable[n]}
    assert seen == {"rollouts_N"}
    assert session.state.dry_draws == dry
    assert session.tokens() == {purpose.value: 3 * 4 * TOKENS}
    assert session.state.book.tickets["informative"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("purpose", [Purpose.PROBE, Purpose.AUDIT])
def test_probes_and_audits_inform_the_beliefs(purpose: Purpose) -> None:
    session = Session(make_config())
    session.draw(0, 2, purpose=purpose)

    session.report(0, rollouts(*MIXED))

    assert session.mean(row_of(session)) == (1 + 1) / (2 + 4)
    assert session.tokens() == {purpose.value: 4 * TOKENS}


def test_audit_tickets_of_a_train_batch_have_a_source_of_their_own() -> None:
    session = Session(make_config(audit_share=0.5))
    batch = session.draw(0, 4)

    for ticket in range(4):
        session.report(ticket, rollouts(*MIXED))

    audits = int(batch.event.audit_K.sum())
    assert audits == batch.event.num_audit == 2
    assert session.tokens() == {"audit": audits * 4 * TOKENS, "train": (4 - audits) * 4 * TOKENS}


def test_two_groups_of_one_prompt_are_two_observations() -> None:
    """The same prompt twice in flight."""
    session = Session(make_config(), make_pool(1))
    session.draw(0, 2, allow_repeat=True)
    assert session.state.in_flight_N.tolist() == [2]

    session.report(1, rollouts(*MIXED))
    assert session.state.in_flight_N.tolist() == [1]
    session.report(0, rollouts(1.0, 1.0, 0.0, 0.0))

    assert session.state.rows["groups_N"].tolist() == [2]
    assert session.mean(0) == (1 + 3) / (2 + 8)


def test_the_evidence_of_a_group_is_bounded() -> None:
    """No pass among a few rollouts is "unknown so far", not "impossible"."""
    session = Session(make_config(make_policy(estimator="kalman_arcsine", estimator_options={})))
    session.draw(0, 1)

    session.report(0, rollouts(0.0, 0.0, 0.0, 0.0))

    beliefs = session.state.beliefs(np.array([row_of(session)]))
    assert 0.01 < beliefs.mean_N[0] < 0.5
