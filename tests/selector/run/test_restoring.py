"""Going back to a checkpoint: a restored run goes on as the uninterrupted one would have, and nothing is paid twice."""

import numpy as np
import pytest

from selector.config import PolicyConfig
from selector.errors import UnknownCheckpoint
from selector.types import Purpose, TicketState, VoidReason
from tests.selector.engine_cases import (
    KALMAN,
    MIXED,
    Session,
    beliefs_of,
    coin,
    lasting,
    make_policy,
    make_pool,
    numbered,
    rollouts,
    tickets_of,
    what_was_drawn,
)
from tests.selector.restoring_cases import ANSWER, NUM_ROWS, PASS_RATE_N, SIZE, new_run, train

OTHER_ANSWER = coin(4, PASS_RATE_N)


def rewindable(session: Session) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in session.state.rewindable().items()}


# A restored run goes on as the uninterrupted run would have (invariant 8)


@pytest.mark.parametrize("policy", [make_policy(), KALMAN], ids=["beta", "kalman"])
@pytest.mark.parametrize("lag", [0, 1, 4])
def test_a_restored_run_goes_on_as_the_uninterrupted_one(policy: PolicyConfig, lag: int) -> None:
    session = new_run(policy)
    train(session, range(6), lag)
    session.checkpoint(40)
    uninterrupted = train(session.fork(), range(6, 14), lag)

    train(session, range(6, 11), lag, OTHER_ANSWER)
    session.restore(40)
    restored = train(session, range(6, 14), lag)

    assert restored == uninterrupted


@pytest.mark.parametrize("policy", [make_policy(), KALMAN], ids=["beta", "kalman"])
def test_five_groups_in_flight_at_the_save_are_issued_again(policy: PolicyConfig) -> None:
    """Restored twice, with rollouts of some groups in at the save and more of them after it."""
    session = new_run(policy)
    train(session, range(5), 1)
    flying = session.state.batches[4]
    row = int(flying.event.row_K[0])
    session.report(flying.first_ticket, numbered(n0=ANSWER(row, 4, 0), n3=ANSWER(row, 4, 3)))
    position = session.checkpoint(40)
    at_save, state = rewindable(session), lasting(session.state)
    uninterrupted = train(session.fork(), range(5, 12), 1)
    train(session, range(5, 9), 1, OTHER_ANSWER)

    told = session.restore(40)
    assert rewindable(session) == at_save
    assert (told["branch"], told["next_index"], told["resume_from"], told["step"]) == (1, 5, 4, 40)
    assert told["reissued"] == [session.id(ticket) for ticket in tickets_of(flying)]
    assert told["lost"] == 4 * SIZE
    assert [session.ticket(ticket)["attempt"] for ticket in tickets_of(flying)] == [2] * SIZE
    assert session.state.in_flight_N.tobytes() == state["in_flight"]

    again = session.restore(40)
    assert rewindable(session) == at_save
    assert {**again, "lost": told["lost"]} == told
    assert again["lost"] == 0
    assert [session.ticket(ticket)["attempt"] for ticket in tickets_of(flying)] == [3] * SIZE

    assert train(session, range(5, 12), 1) == uninterrupted
    assert session.state.checkpoints[0].seq == position


@pytest.mark.parametrize("beliefs", ["rewind", "keep"])
@pytest.mark.parametrize("in_flight", ["reissue", "void"])
def test_what_survives_has_no_gaps_and_no_doubles(beliefs: str, in_flight: str) -> None:
    """Over the surviving history every index has one batch and every ticket of it is trained once."""
    session = new_run()
    train(session, range(8), 2)
    session.checkpoint(40)
    train(session, range(8, 13), 2, OTHER_ANSWER)
    session.restore(40, beliefs=beliefs, in_flight=in_flight)
    if in_flight == "void":
        for index in (6, 7):
            session.draw(index, SIZE)
    train(session, range(8, 13), 2)
    for batch in session.state.batches:
        if batch.alive:
            session.answer_batch(batch, ANSWER)

    surviving = [batch for batch in session.state.batches if batch.alive]
    states = session.state.book.tickets["state"]

    assert sorted(batch.event.index for batch in surviving) == list(range(13))
    for batch in surviving:
        assert (states[list(tickets_of(batch))] == TicketState.REPORTED).all()
    lost = session.state.book.tickets["reason"] == VoidReason.LOST
    assert lost.sum() == (5 + 2 * (in_flight == "void")) * SIZE
    assert (states != TicketState.OPEN).all()


def test_nested_restores_go_on_as_the_uninterrupted_run() -> None:
    session = new_run(KALMAN)
    train(session, range(3), 2)
    session.checkpoint(10)
    uninterrupted = train(session.fork(), range(3, 12), 2)
    train(session, range(3, 6), 2)
    session.checkpoint(20)
    train(session, range(6, 9), 2, OTHER_ANSWER)
    session.restore(20)
    assert train(session, range(6, 8), 2) == uninterrupted[3:5]
    session.checkpoint(30)
    train(session, range(8, 10), 2, OTHER_ANSWER)

    session.restore(30)
    assert train(session, range(8, 10), 2) == uninterrupted[5:7]
    session.restore(20)
    session.restore(10)
    assert train(session, range(3, 12), 2) == uninterrupted
    assert session.state.branch == 4
    assert [c.step for c in session.state.checkpoints] == [10]


def test_a_checkpoint_of_an_earlier_branch_is_as_good_as_any() -> None:
    """The branch that made the checkpoint is superseded, but the checkpoint lies before it was left."""
    session = new_run(KALMAN)
    train(session, range(3), 1)
    session.checkpoint(10)
    train(session, range(3, 5), 1)
    session.checkpoint(20)
    uninterrupted = train(session.fork(), range(5, 9), 1)
    train(session, range(5, 7), 1, OTHER_ANSWER)
    session.restore(20)
    train(session, range(5, 7), 1, OTHER_ANSWER)
    session.checkpoint(30)

    told = session.restore(20)

    assert told["branch"] == 2
    assert [(c.step, c.branch) for c in session.state.checkpoints] == [(10, 0), (20, 0)]
    assert train(session, range(5, 9), 1) == uninterrupted


def test_other_purposes_are_drawn_anew_as_well() -> None:
    session = new_run()
    session.checkpoint(0)
    drawn = [what_was_drawn(session.draw(0, 3, purpose=purpose)) for purpose in Purpose]

    session.restore(0)

    assert [what_was_drawn(session.draw(0, 3, purpose=purpose)) for purpose in Purpose] == drawn
    assert session.state.batches[-1].event.branch == 1


# Steps, versions, lifecycle, costs


def test_step_and_version_go_back_and_costs_stay() -> None:
    session = new_run()
    session.step(1, 4, costs={"update_s": 1.0})
    session.checkpoint(1)
    session.step(2, 8, costs={"update_s": 1.0})
    session.draw(0, SIZE, policy_version=9)

    session.restore(1)

    assert (session.state.step, session.state.policy_version) == (1, 4)
    assert session.state.ledger.seconds["update"] == 2.0
    assert list(session.state.steps) == [(0, 1)]
    session.step(2, 5, costs={"update_s": 1.0})
    assert list(session.state.steps) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("policy", [make_policy(), KALMAN], ids=["beta", "kalman"])
def test_beliefs_may_be_kept_and_the_run_goes_on_with_its_older_policy(policy: PolicyConfig) -> None:
    session = new_run(policy)
    train(session, range(4), 0)
    session.checkpoint(40)
    train(session, range(4, 9), 0)
    believed, stages = beliefs_of(session.state), session.state.rows["lifecycle_N"].tolist()

    session.restore(40, beliefs="keep")

    assert beliefs_of(session.state) == believed
    assert session.state.rows["lifecycle_N"].tolist() == stages
    assert (session.state.policy_version, session.state.step, session.state.train_draws) == (3, 3, 4)
    train(session, range(4, 12), 0)
    assert session.state.policy_version == 11
    session.restore(40)
    assert session.state.policy_version == 3


def test_pool_edits_configuration_and_late_evidence_do_not_go_back() -> None:
    session = new_run()
    train(session, range(3), 0)
    session.checkpoint(40)
    believed = session.state.beliefs(np.arange(NUM_ROWS)).mean_N
    session.report(0, numbered(n0=0.5))
    refused = dict(session.state.refused)
    session.revise(make_pool(NUM_ROWS + 5, revision=2, quarantined=[0, 1], heldout=[3, 13, 23]))
    session.configure(audit_share=0.4)
    train(session, range(3, 6), 0)

    session.restore(40)

    assert session.state.pool.revision == 2
    assert session.state.config.audit_share == 0.4
    assert session.state.refused == refused != {}
    assert session.state.beliefs().mean_N[:NUM_ROWS].tolist() == believed.tolist()
    assert session.state.rows["lifecycle_N"][NUM_ROWS:].tolist() == [0] * 5
    event = session.draw(3, SIZE).event
    assert (event.frame, event.num_audit) == (NUM_ROWS + 5 - 5, 2)


def test_a_restore_reopens_a_run_that_was_complete() -> None:
    session = new_run()
    train(session, range(2), 1)
    session.checkpoint(40)
    session.complete()

    told = session.restore(40)

    assert not session.state.completed
    assert told["reissued"] == [session.id(ticket) for ticket in tickets_of(session.state.batches[1])]
    assert session.draw(2, SIZE).event.branch == 1


# Branches


def test_a_restore_that_discards_nothing_begins_no_branch() -> None:
    session = new_run()
    session.draw(0, SIZE)
    session.report(0, rollouts(*MIXED))
    session.checkpoint(40)
    session.report(0, numbered(n0=0.5))  # refused: no change that a restore could take back
    session.configure(audit_share=0.5)

    told = session.restore(40)

    assert told["branch"] == session.state.branch == 0
    assert [session.ticket(ticket)["attempt"] for ticket in range(SIZE)] == [1, 2, 2, 2, 2]
    assert session.restore(40)["branch"] == 0
    assert [session.ticket(ticket)["attempt"] for ticket in range(SIZE)] == [1, 3, 3, 3, 3]


@pytest.mark.parametrize("discarded", ["draw", "report", "void", "step", "expiry", "end"])
def test_a_restore_that_discards_something_begins_a_branch(discarded: str) -> None:
    session = new_run(ticket_ttl_s=10.0)
    session.draw(0, SIZE)
    session.checkpoint(40)
    match discarded:
        case "draw":
            session.draw(1, SIZE)
        case "report":
            session.report(0, numbered(n0=1.0))
        case "void":
            session.void(0, VoidReason.SURPLUS)
        case "step":
            session.step(1, 1)
        case "expiry":
            session.expire(session.now + 11)
        case "end":
            session.complete()

    assert session.restore(40)["branch"] == 1
    assert session.restore(40)["branch"] == 1


def test_an_earlier_checkpoint_with_nothing_after_it_is_the_same_place() -> None:
    session = new_run()
    session.draw(0, SIZE)
    session.checkpoint(1)
    session.checkpoint(2)

    session.restore(2)

    assert session.restore(1)["branch"] == 0


def test_the_same_restore_id_changes_nothing_however_often() -> None:
    session = new_run()
    train(session, range(3), 1)
    session.checkpoint(40)
    train(session, range(3, 5), 1)
    told = session.restore(40, restore_id="job-7")
    train(session, range(3, 6), 1)
    before = lasting(session.state)

    assert session.restore(40, restore_id="job-7") == told
    assert session.restore(40, restore_id="job-7", in_flight="void", beliefs="keep") == told
    assert lasting(session.state) == before
    assert session.restore(40, restore_id="job-8")["branch"] == 2


def test_an_unknown_checkpoint_names_those_that_exist() -> None:
    session = new_run()
    with pytest.raises(UnknownCheckpoint, match=r"no checkpoint of step 3; it has none"):
        session.restore(3)
    for step in (10, 20, 30):
        session.draw(step, 1)
        session.checkpoint(step)
    session.restore(20)

    with pytest.raises(UnknownCheckpoint, match=r"no checkpoint of step 30; it has \[10, 20\]"):
        session.restore(30)
