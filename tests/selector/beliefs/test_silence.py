"""The feed of informative groups only: what closes silently, what that does, and what it must never do."""

from typing import Any

import numpy as np
import pytest

from predictors.silence import after_silence
from selector.audit.auditing import audit_run
from selector.beliefs.silence import LOSS_START, LOSS_WEIGHT, loss_share
from selector.run.snapshot import pack, restore_snapshot, snapshot, unpack
from selector.types import Lifecycle, Purpose, TicketState, VoidReason
from tests.selector.engine_cases import (
    Session,
    beliefs_of,
    coin,
    make_config,
    make_policy,
    make_pool,
    rollouts,
    tickets_of,
    what_was_drawn,
)

MIXED = (1.0, 0.0, 1.0, 0.0)


def censored(num_rows: int = 8, **config: Any) -> Session:
    return Session(make_config(feed="informative_only", **config), make_pool(num_rows))


def filtered(session: Session, index: int, size: int, rate_N: np.ndarray, **values: Any) -> None:
    """A trainer that reports audit groups, and of the others those whose scores differ; `final` for the rest."""
    answer = coin(7, rate_N)
    batch = session.draw(index, size, **values)
    table = session.state.book.tickets
    for ticket in tickets_of(batch):
        outcomes = [answer(int(table["row"][ticket]), index, n) for n in range(4)]
        is_audit = bool(batch.event.audit_K[ticket - batch.first_ticket])
        if is_audit or len(set(outcomes)) > 1:
            session.report(ticket, rollouts(*outcomes))
        else:
            session.report(ticket, final=True)


def test_a_train_ticket_that_ends_without_a_rollout_is_silent() -> None:
    session = censored(ticket_ttl_s=60.0)
    first = session.draw(0, 4).first_ticket
    session.report(first, final=True)
    session.report(first + 1, rollouts(*MIXED))
    session.report(first + 2, rollouts(1.0), final=True)
    session.expire(session.now + 100)

    ends = [(session.ticket(first + i)["state"], session.ticket(first + i)["reason"]) for i in range(4)]
    assert ends == [
        (TicketState.VOID, VoidReason.SILENT),
        (TicketState.REPORTED, VoidReason.NONE),
        (TicketState.VOID, VoidReason.TOO_FEW),
        (TicketState.VOID, VoidReason.SILENT),
    ]


def test_silence_moves_the_belief_as_its_likelihood_says() -> None:
    session = censored()
    first = session.draw(0, 1).first_ticket
    row = int(session.state.book.tickets["row"][first])

    session.report(first, final=True)

    beliefs = session.state.beliefs()
    after = after_silence(np.array([0.5]), np.array([1 / 3]), np.array([4]), LOSS_START)
    assert beliefs.mean_N[row] == pytest.approx(0.5)
    assert beliefs.variance_N[row] == pytest.approx(after.overlap[0] * 0.25)
    assert beliefs.variance_N[row] > 1 / 12


@pytest.mark.parametrize("reason", [VoidReason.SURPLUS, VoidReason.LOST, VoidReason.ERROR, VoidReason.NEVER_STARTED])
def test_a_ticket_that_the_trainer_gives_up_for_a_reason_is_not_silent(reason: VoidReason) -> None:
    session = censored()
    first, before = session.draw(0, 1).first_ticket, beliefs_of(session.state)

    session.void(first, reason)

    assert beliefs_of(session.state) == before


@pytest.mark.parametrize("purpose", [Purpose.AUDIT, Purpose.PROBE, Purpose.CONTROL, Purpose.HELDOUT])
def test_only_train_tickets_can_be_silent(purpose: Purpose) -> None:
    session = Session(make_config(feed="informative_only"), make_pool(8, heldout=[0, 1]))
    first, before = session.draw(0, 2, purpose=purpose).first_ticket, beliefs_of(session.state)

    session.report(first, final=True)

    assert session.ticket(first)["reason"] == VoidReason.TOO_FEW
    assert beliefs_of(session.state) == before


def test_in_the_full_feed_nothing_is_silent() -> None:
    session = Session()
    first, before = session.draw(0, 1).first_ticket, beliefs_of(session.state)

    session.report(first, final=True)

    assert session.ticket(first)["reason"] == VoidReason.TOO_FEW
    assert beliefs_of(session.state) == before


def test_the_loss_share_is_that_of_audit_tickets_which_never_came_back() -> None:
    session = censored(20, audit_share=0.5)
    assert loss_share(session.state) == pytest.approx(LOSS_START)
    lost = told = 0
    for index in range(10):
        batch = session.draw(index, 8)
        audit = [ticket for place, ticket in enumerate(tickets_of(batch)) if batch.event.audit_K[place]]
        for ticket in tickets_of(batch):
            if ticket not in audit or ticket == audit[0]:
                session.report(ticket, final=True)
            elif ticket == audit[1]:
                session.void(ticket, VoidReason.SURPLUS)
            else:
                session.report(ticket, rollouts(0.0, 0.0, 0.0, 0.0))
        lost, told = lost + 1, told + len(audit) - 1

    assert told == 30
    assert loss_share(session.state) == pytest.approx((lost + LOSS_START * LOSS_WEIGHT) / (told + LOSS_WEIGHT))


def test_estimates_of_the_censored_feed_are_close_to_those_of_the_full_one() -> None:
    rate_N = np.resize([0.9, 0.02, 0.5], 60)
    censored_run = Session(
        make_config(make_policy(estimator="mixture", estimator_options={}), feed="informative_only", audit_share=0.1),
        make_pool(60, categories=()),
    )
    full = Session(
        make_config(make_policy(estimator="mixture", estimator_options={}), audit_share=0.1),
        make_pool(60, categories=()),
    )
    for index in range(60):
        filtered(censored_run, index, 30, rate_N, policy_version=index)
        full.answer_batch(full.draw(index, 30, policy_version=index), coin(7, rate_N))

    errors = [float(np.abs(session.state.beliefs().mean_N - rate_N).mean()) for session in (censored_run, full)]
    assert errors[0] < errors[1] + 0.05


def test_silence_puts_no_prompt_to_rest_and_counts_as_nothing_reported() -> None:
    session = censored(6)
    for index in range(30):
        for ticket in tickets_of(session.draw(index, 3, policy_version=index)):
            session.report(ticket, final=True)

    rows = session.state.rows
    assert (rows["lifecycle_N"] == Lifecycle.NEW).all()
    for name in ("groups_N", "failed_N", "same_N", "reviews_N", "unscored_N"):
        assert not rows[name].any(), name
    assert not session.state.quarantined_N.any()
    assert session.state.frame_N.all()
    assert (session.state.in_flight_N == 0).all()


def test_the_audit_warns_and_gives_no_verdict_once_an_audit_ticket_is_missing() -> None:
    session = censored(20, audit_share=0.5)
    for index in range(25):
        filtered(session, index, 6, np.full(20, 0.5), policy_version=index)
    found = audit_run(session.state)
    assert any("censored" in warning for warning in found.warnings)
    assert found.verdict is not None

    batch = session.draw(25, 6)
    for place, ticket in enumerate(tickets_of(batch)):
        assert batch.event.audit_K.any()
        session.report(ticket, *([rollouts(*MIXED)] if not batch.event.audit_K[place] else []), final=True)
    found = audit_run(session.state)
    assert found.verdict is None
    assert any("audit tickets are missing" in warning for warning in found.warnings)


def test_restored_replayed_and_resumed_runs_have_heard_the_same_and_draw_alike() -> None:
    session = Session(
        make_config(make_policy(estimator="mixture", estimator_options={}), feed="informative_only", audit_share=0.25),
        make_pool(20),
    )
    rate_N = np.linspace(0.0, 1.0, 20)
    for index in range(6):
        filtered(session, index, 8, rate_N, policy_version=index)
    session.checkpoint(5)
    after = session.fork()
    saved = beliefs_of(session.state), session.state.heard.tobytes()
    for index in range(6, 10):
        for ticket in tickets_of(session.draw(index, 8, policy_version=index)):
            session.report(ticket, final=True)
    session.restore(5)
    assert (beliefs_of(session.state), session.state.heard.tobytes()) == saved
    for other in (session, after):
        for index in range(6, 9):
            filtered(other, index, 8, rate_N, policy_version=index)
    drawn = [what_was_drawn(other.draw(9, 8, policy_version=9)) for other in (session, after)]
    assert drawn[0] == drawn[1]
    stored = snapshot(session.state)
    assert snapshot(session.replayed().state) == stored
    assert snapshot(session.resumed(stored).state) == stored


def test_a_snapshot_of_an_older_version_has_heard_nothing() -> None:
    session = censored(20, audit_share=0.5)
    filtered(session, 0, 8, np.full(20, 0.5))
    assert session.state.heard.any()
    arrays, document = unpack(snapshot(session.state))
    del arrays["rewindable.heard"]

    assert not restore_snapshot(pack(arrays, document), session.archive.pool).heard.any()
