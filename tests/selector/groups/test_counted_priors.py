"""Groups that began with a probe's rollouts: nothing of them is counted twice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from selector.audit.accounts import accounts
from selector.audit.auditing import audit_run
from selector.batches.drawing import claim_of
from selector.claims import ClaimType
from selector.config import RunConfig
from selector.errors import ReportInvalid
from selector.groups.priors import num_standing
from selector.types import Purpose, TicketState, VoidReason
from tests.selector.checked_run import fingerprint
from tests.selector.engine_cases import KALMAN, Session, make_config, make_policy, make_pool, rollout, tickets_of
from tests.selector.prior_cases import STORE, begin, outcome_of, probe, ticket_of, whole_pool


def test_what_the_ticket_adds_is_what_is_new_in_it() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0, 1.0)
    believed = session.mean(2)
    assert believed == pytest.approx((1 + 2) / (2 + 3))
    ticket = ticket_of(session, whole_pool(session), 2)
    decision = session.report(ticket, [rollout(0.0) for _ in range(5)])
    assert (decision.applied, decision.rejected) == (5, [])
    found = outcome_of(session, ticket)
    assert (found["state"], found["scored"], found["passes"]) == (TicketState.REPORTED, 5, 0.0)
    assert found["informative"] == 1  # with the passes that were there
    assert session.mean(2) == pytest.approx((1 + 2) / (2 + 3 + 5))
    assert session.tokens() == {"probe": 30, "train": 50}
    assert session.state.rows["rollouts_N"][2] == 8
    assert session.state.ledger.statuses["reported"] == session.state.ledger.statuses["scored"] == 8
    assert num_standing(session.state) == 3


def test_new_rollouts_are_numbered_behind_the_prior_ones() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0, 1.0)
    ticket = ticket_of(session, whole_pool(session), 2)
    for n in (7, 3, 5, 4):
        session.report(ticket, [rollout(1.0, n=n)])
    session.report(ticket, [rollout(1.0, id="a")])
    arrived = session.state.book.rollouts["arrived"][session.state.book.slots(ticket)]
    assert arrived.tolist() == [False] * 3 + [True] * 5
    assert outcome_of(session, ticket)["state"] == TicketState.REPORTED


def test_a_list_that_is_neither_the_new_nor_the_whole_group_has_no_numbers() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0, 1.0)
    ticket = ticket_of(session, whole_pool(session), 2)
    with pytest.raises(ReportInvalid, match="send all 5 rollouts"):
        session.report(ticket, [rollout(1.0) for _ in range(4)])
    session.report(ticket, [rollout(1.0) for _ in range(4)], final=True)
    arrived = session.state.book.rollouts["arrived"][session.state.book.slots(ticket)]
    assert arrived.tolist() == [False] * 3 + [True] * 4 + [False]


@pytest.mark.parametrize("by_number", [False, True])
def test_who_generates_the_whole_group_afresh_reports_the_whole_group(by_number: bool) -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0, 1.0)
    ticket = ticket_of(session, whole_pool(session), 2)
    sent = [rollout(0.0, n=n if by_number else None) for n in range(8)]
    if by_number:  # in two parts, the places of the prior ones first
        session.report(ticket, sent[:3])
        assert outcome_of(session, ticket)["state"] == TicketState.OPEN
        sent = sent[3:]
    session.report(ticket, sent)
    found = outcome_of(session, ticket)
    assert (found["scored"], found["passes"], found["informative"]) == (8, 0.0, 0)  # the probe's have no say any more
    assert session.mean(2) == pytest.approx((1 + 2) / (2 + 3 + 8))
    assert num_standing(session.state) == 0


def test_with_ids_the_places_of_prior_rollouts_come_last() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0, 1.0)
    ticket = ticket_of(session, whole_pool(session), 2)
    session.report(ticket, [rollout(0.0, id=f"w{i}") for i in range(8)])
    assert outcome_of(session, ticket)["scored"] == 8


def test_a_group_of_which_too_little_is_new_ends_as_void() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0, 1.0)
    ticket = ticket_of(session, whole_pool(session), 2)
    session.report(ticket, [rollout(1.0)], final=True)
    found = outcome_of(session, ticket)
    assert (found["state"], found["reason"], found["informative"]) == (TicketState.VOID, VoidReason.TOO_FEW, -1)
    assert session.mean(2) == pytest.approx((1 + 2) / (2 + 3))


def test_at_its_deadline_a_group_is_judged_with_what_it_began_with() -> None:
    session = begin(ticket_ttl_s=10.0)
    probe(session, 2, 1.0, 1.0, 1.0)
    ticket = ticket_of(session, whole_pool(session), 2)
    session.report(ticket, [rollout(0.0, n=3), rollout(0.0, n=4)])
    session.expire(session.now + 11)
    found = outcome_of(session, ticket)
    assert (found["state"], found["scored"], found["passes"], found["informative"]) == (1, 2, 0.0, 1)


def test_sent_again_they_count_once() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0)
    ticket = ticket_of(session, whole_pool(session), 2)
    sent = [rollout(1.0) for _ in range(6)]
    assert session.report(ticket, sent).applied == 6
    before = {**fingerprint(session.state), "plain": None}
    again = session.report(ticket, sent)
    assert (again.applied, again.duplicate) == (0, 6)
    assert {**fingerprint(session.state), "plain": None} == before


def test_the_audit_takes_new_rollouts_and_the_degenerate_share_of_audit_tickets_alone() -> None:
    session = begin(num_rows=12, audit_share=0.25, weights="horvitz_thompson", policy=KALMAN)
    for index in range(3):
        probe(session, index, 1.0, 1.0, index=index)
    batch = whole_pool(session)
    priors = {prior["place"]: len(prior["rollouts"]) for prior in batch.event.priors}
    for place, ticket in enumerate(tickets_of(batch)):
        session.report(ticket, [rollout(0.0) for _ in range(8 - priors.get(place, 0))])
    found = audit_run(session.state)
    assert priors
    assert found.pass_rate.uniform.estimate is not None
    assert found.pass_rate.selected.estimate == 0.0  # the passes of the probes are no part of it
    assert found.degenerate.selected.estimate is None
    assert found.degenerate.reweighted.estimate is None
    assert found.degenerate.uniform.estimate is not None
    assert any("begin with rollouts of probes" in warning for warning in found.warnings)
    # Predictions were of whole groups of new rollouts.
    assert accounts(session.state).calibration.overall.groups == len(batch.event.row_K) - len(priors)


def test_the_reweighted_pass_rate_is_still_that_of_the_pool() -> None:
    # 60 draws of 10 tickets: a mean of 600 outcomes of a deviation of at most 1/2, four of its errors wide.
    num_draws, size, bound = 60, 10, 4 * 0.5 / 600**0.5
    pass_rate_N = np.linspace(0.0, 1.0, 40) ** 2
    session = Session(
        make_config(group_size=6, audit_share=0.2, weights="horvitz_thompson", rollout_store=STORE), make_pool(40)
    )
    rng, handed = np.random.default_rng(3), 0

    def made(row: int, numbers: range) -> list[Any]:
        return [rollout(float(rng.random() < pass_rate_N[row]), n=n, body=b"x") for n in numbers]

    for index in range(num_draws):
        probes = session.draw(index, 12, purpose=Purpose.PROBE, allow_repeat=True)
        for row, ticket in zip(probes.event.row_K.tolist(), tickets_of(probes), strict=True):
            session.report(ticket, made(row, range(4)), final=True)
        batch = session.draw(index, size)
        priors = {prior["place"]: len(prior["rollouts"]) for prior in batch.event.priors}
        handed += sum(priors.values())
        for place, (row, ticket) in enumerate(zip(batch.event.row_K.tolist(), tickets_of(batch), strict=True)):
            session.report(ticket, made(row, range(priors.get(place, 0), 6)))
    found = audit_run(session.state).pass_rate.reweighted
    assert handed > num_draws
    assert found.estimate == pytest.approx(pass_rate_N.mean(), abs=bound)
    assert found.interval is not None
    assert found.interval[0] <= pass_rate_N.mean() <= found.interval[1]


def test_how_often_graded_groups_are_alike_is_learned_from_groups_that_began_with_nothing() -> None:
    session = begin()
    probe(session, 2, 0.25, 0.75)
    batch = whole_pool(session)
    mine, other = ticket_of(session, batch, 2), ticket_of(session, batch, 1)
    learned = {name: values.copy() for name, values in session.state.ties.state().items()}
    session.report(mine, [rollout(0.5) for _ in range(6)])
    assert all((session.state.ties.state()[name] == values).all() for name, values in learned.items())
    session.report(other, [rollout(0.5) for _ in range(8)])
    assert any((session.state.ties.state()[name] != values).any() for name, values in learned.items())


def test_no_claim_is_stronger_than_modified() -> None:
    for policy, weights in ((make_policy(), "horvitz_thompson"), (make_policy(utility="uniform"), "none")):
        config: RunConfig = make_config(policy, weights=weights)
        assert claim_of(config).type in (ClaimType.UNBIASED, ClaimType.EXACT)
        claim = claim_of(replace(config, rollout_store=STORE))
        assert claim.type is ClaimType.MODIFIED
        assert "conditioned" in claim.objective
    nothing = make_config(make_policy(design="top", floor=0.0), rollout_store=STORE)
    assert claim_of(nothing).type is ClaimType.EMPIRICAL
