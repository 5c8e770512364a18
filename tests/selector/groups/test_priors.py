"""Train tickets that begin with a probe's rollouts: who gets which, and that nothing is counted twice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from selector.audit.accounts import accounts
from selector.audit.auditing import audit_run
from selector.batches.drawing import claim_of
from selector.claims import ClaimType
from selector.config import BudgetConfig, RunConfig
from selector.errors import ReportInvalid, UnknownConfig
from selector.groups.priors import all_pass, num_standing, prior_of, read_rollout_name, rollout_ids, sure_groups
from selector.groups.reports import Decision, RolloutIn
from selector.groups.standing import what_next
from selector.rollout_store import MAX_BODY_BYTES, NOBODY, RolloutStoreConfig
from selector.run.events import BatchDrawn, event_from_json
from selector.run.snapshot import snapshot
from selector.run.state import DrawnBatch
from selector.types import PURPOSE_CODE, Purpose, RolloutStatus, TicketState, VoidReason
from selector.waves import WaveConfig
from tests.selector.checked_run import fingerprint
from tests.selector.engine_cases import (
    KALMAN,
    Outcome,
    Session,
    make_config,
    make_policy,
    make_pool,
    numbered,
    rollout,
    tickets_of,
    what_was_drawn,
)

STORE = RolloutStoreConfig()


def begin(num_rows: int = 4, **changes: Any) -> Session:
    defaults = {"group_size": 8, "rollout_store": STORE}
    return Session(make_config(changes.pop("policy", None), **(defaults | changes)), make_pool(num_rows))


def probe(
    session: Session,
    row: int,
    *outcomes: Outcome,
    version: int = 0,
    index: int = 0,
    body: bytes = b"{}",
    planned: bool = False,
) -> Decision:
    """Probes the whole frame and reports these outcomes of one row; the other prompts are voided."""
    batch = session.draw(index, session.state.num_rows, purpose=Purpose.PROBE, allow_repeat=not planned)
    mine = ticket_of(session, batch, row)
    for ticket in tickets_of(batch):
        if ticket != mine:
            session.void(ticket, VoidReason.NEVER_STARTED)
    sent = [rollout(outcome, n=n, body=body) for n, outcome in enumerate(outcomes)]
    return session.report(mine, sent, version=version, final=True)


def ticket_of(session: Session, batch: DrawnBatch, row: int) -> int:
    return batch.first_ticket + int(np.flatnonzero(batch.event.row_K == row)[0])


def outcome_of(session: Session, ticket: int) -> dict[str, Any]:
    names = ("state", "reason", "scored", "passes", "informative")
    return {name: session.state.book.tickets[name][ticket].item() for name in names}


def begun_with(session: Session, ticket: int) -> list[str]:
    prior = prior_of(session.state, ticket)
    return [] if prior is None else rollout_ids(session.state, prior)


def whole_pool(session: Session, index: int = 0, **values: Any) -> DrawnBatch:
    return session.draw(index, session.state.num_rows, **values)


# Who gets which


def test_a_train_ticket_begins_with_what_a_probe_of_its_prompt_made() -> None:
    session = begin()
    decision = probe(session, 2, 1.0, 0.0)
    batch = whole_pool(session)
    ticket = ticket_of(session, batch, 2)
    probed = session.id(decision.tickets[0][1] or 0)
    assert list(decision.bodies.values()) == [b"{}", b"{}"]
    assert begun_with(session, ticket) == [f"{probed}/1/0", f"{probed}/1/1"]
    assert [begun_with(session, other) for other in tickets_of(batch) if other != ticket] == [[]] * 3


def test_the_draw_records_what_it_is_conditioned_on_in_counts() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0, planned=True)
    batch = whole_pool(session)
    (prior,) = batch.event.priors
    assert (prior["passes"], prior["scored"], prior["rules"], prior["versions"]) == (1.0, 2, ["settle"], [0, 0])
    assert prior["informative"] == 1.0
    assert batch.event.row_K[prior["place"]] == 2
    read = event_from_json(BatchDrawn.kind, batch.event.to_json())
    assert isinstance(read, BatchDrawn)
    assert read.priors == batch.event.priors


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_what_is_predicted_of_the_group_is_what_may_still_differ(outcome: float) -> None:
    session = begin()
    probe(session, 2, outcome, outcome)
    (prior,) = whole_pool(session).event.priors
    # One prior success and failure each: Beta(1 + 2, 1) after two passes, and its mirror after two fails. Six are left.
    assert prior["informative"] == pytest.approx(1 - 3 / 9)


def test_the_chance_that_all_pass_is_the_moment_of_the_belief() -> None:
    rng = np.random.default_rng(7)
    for mean, variance in ((0.3, 0.04), (0.9, 0.001), (0.5, 0.2)):
        concentration = mean * (1 - mean) / variance - 1
        sample = rng.beta(mean * concentration, (1 - mean) * concentration, 400_000)
        for count in (1, 2, 5):
            assert all_pass(mean, variance, count) == pytest.approx(float((sample**count).mean()), abs=0.004)
    assert all_pass(0.4, 0.0, 3) == pytest.approx(0.4**3)
    assert all_pass(0.4, 0.24, 3) == pytest.approx(0.4)
    with pytest.raises(ValueError, match="count must be >= 1, got 0"):
        all_pass(0.4, 0.1, 0)


def test_a_rollout_begins_one_ticket_and_no_other() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0)
    first = whole_pool(session)
    for ticket in tickets_of(first):
        session.void(ticket, VoidReason.NEVER_STARTED)
    second = whole_pool(session, 1)
    assert len(first.event.priors) == 1
    assert second.event.priors == []


def test_of_a_prompt_that_is_drawn_twice_the_first_ticket_gets_them() -> None:
    session = begin(num_rows=2)
    probe(session, 1, 1.0, 0.0)
    batch = session.draw(0, 6, allow_repeat=True)
    places = np.flatnonzero(batch.event.row_K == 1)
    assert len(places) > 1
    assert [prior["place"] for prior in batch.event.priors] == [places[0]]


def test_audit_tickets_never_begin_with_anything() -> None:
    session = begin(num_rows=6, audit_share=1.0)
    for index in range(2):
        probe(session, index, 1.0, 0.0, index=index)
    batch = whole_pool(session)
    assert batch.event.audit_K.all()
    assert batch.event.priors == []


@pytest.mark.parametrize("purpose", [Purpose.PROBE, Purpose.AUDIT, Purpose.CONTROL])
def test_nor_do_tickets_of_another_purpose(purpose: Purpose) -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0)
    assert session.draw(5, 4, purpose=purpose).event.priors == []
    assert (session.state.held["given"] == NOBODY).all()


def test_some_of_a_group_is_always_new() -> None:
    session = begin(group_size=4, min_rollouts=3)
    probe(session, 2, 1.0, 0.0, 1.0, 1.0)
    batch = whole_pool(session)
    assert len(begun_with(session, ticket_of(session, batch, 2))) == 1
    assert session.state.held["given"].tolist().count(NOBODY) == 3


def test_the_first_by_number_are_taken_in_whatever_order_they_came() -> None:
    session = begin(group_size=4)
    batch = session.draw(0, 4, purpose=Purpose.PROBE, allow_repeat=True)
    mine = ticket_of(session, batch, 2)
    for n in (3, 1, 0, 2):
        session.report(mine, [rollout(1.0, n=n, body=b"x")])
    for ticket in tickets_of(batch):
        if ticket != mine:
            session.void(ticket, VoidReason.NEVER_STARTED)
    (prior,) = whole_pool(session).event.priors
    assert prior["rollouts"] == [[mine, 1, 0], [mine, 1, 1]]


def test_a_group_of_another_size_has_room_for_as_many_as_it_leaves() -> None:
    policy = make_policy(budget=BudgetConfig(rule="neyman", low=2, high=12))
    session = begin(policy=policy)
    probe(session, 2, *[1.0, 0.0] * 4)
    batch = whole_pool(session)
    ticket = ticket_of(session, batch, 2)
    size = int(session.state.book.tickets["group_size"][ticket])
    assert len(begun_with(session, ticket)) == min(size - 2, 8)


def test_only_scored_rollouts_of_probes_that_came_with_a_content_are_held() -> None:
    session = begin()
    batch = session.draw(0, 4, purpose=Purpose.PROBE)
    first, second, third, _ = tickets_of(batch)
    sent = [
        rollout(1.0, n=0, body=b"a"),
        rollout(None, n=1, body=b"b"),
        rollout(0.0, n=2, body=b"c", status=RolloutStatus.ERROR),
        rollout(0.0, n=3),
        rollout(0.0, n=4, body=b"d", status=RolloutStatus.TRUNCATED, tokens=9),
        rollout(0.0, n=4, body=b"e", fragment=1),
    ]
    decision = session.report(first, sent, final=True)
    assert decision.bodies == {(first, 1, 0): b"a", (first, 1, 4): b"d"}
    train = session.draw(0, 4, allow_repeat=True)
    assert session.report(train.first_ticket, [rollout(1.0, n=0, body=b"f")]).bodies == {}
    assert session.report(second, numbered(n0=1.0, n1=1.0), final=True).bodies == {}
    assert session.report(third, [rollout(1.0, n=0, body=b"")], final=True).not_kept == []


def test_a_probe_that_ended_without_counting_hands_nothing_over() -> None:
    session = begin()
    probe(session, 2, 1.0)
    assert len(session.state.held) == 1
    assert whole_pool(session).event.priors == []


def test_without_a_store_nothing_is_held() -> None:
    session = begin(rollout_store=None)
    assert probe(session, 2, 1.0, 0.0).bodies == {}
    assert whole_pool(session).event.priors == []
    assert not any(name.startswith("held.") for name in session.state.rewindable())


# What a draw foresees


def test_a_group_that_would_begin_with_what_differs_is_informative_for_sure() -> None:
    session = begin()
    probe(session, 1, 1.0, 0.0)
    probe(session, 2, 1.0, 1.0, index=1)
    probe(session, 3, 1.0, 0.0, index=2, body=b"")  # not kept
    assert sure_groups(session.state, 8, 0).tolist() == [1]
    assert sure_groups(session.state, 8, 1).tolist() == []  # of weights that are too old by then
    assert sure_groups(session.state, 3, 0).tolist() == []  # room for one of them
    whole_pool(session)
    assert sure_groups(session.state, 8, 0).tolist() == []  # given away


def test_where_nothing_is_scored_for_the_signal_nothing_is_sure() -> None:
    session = begin()
    batch = session.draw(0, 4, purpose=Purpose.PROBE, allow_repeat=True)
    for ticket in tickets_of(batch):
        sent = [RolloutIn(n=n, outcome=float(n), tokens=1, body=b"x") for n in range(2)]
        session.report(ticket, sent, final=True)
    assert len(session.state.held) == 8
    assert sure_groups(session.state, 8, 0).tolist() == []


@pytest.mark.parametrize("min_rollouts", [2, 5])
def test_what_is_foreseen_is_what_the_groups_then_begin_with(min_rollouts: int) -> None:
    rng = np.random.default_rng(min_rollouts)
    session = begin(num_rows=30, min_rollouts=min_rollouts)
    batch = session.draw(0, 30, purpose=Purpose.PROBE, allow_repeat=True)
    for row, ticket in zip(batch.event.row_K.tolist(), tickets_of(batch), strict=True):
        made = rng.random(int(rng.integers(5, 9))) < row / 30
        session.report(ticket, [rollout(float(one), n=n, body=b"x") for n, one in enumerate(made)], final=True)
    foreseen = sure_groups(session.state, 8, 0).tolist()
    drawn = whole_pool(session).event
    begun = {int(drawn.row_K[prior["place"]]): (prior["passes"], prior["scored"]) for prior in drawn.priors}
    assert foreseen == sorted(row for row, (passes, scored) in begun.items() if 0 < passes < scored)
    assert 0 < len(foreseen) < len(begun)


@pytest.mark.parametrize(("store", "better"), [(STORE, 1), (None, 3)])
def test_a_draw_prefers_a_group_that_is_sure_to_one_that_is_only_likely(
    store: RolloutStoreConfig | None, better: int
) -> None:
    session = begin(num_rows=12, rollout_store=store)
    probe(session, 1, 1.0, 0.0)
    probe(session, 3, 1.0, 0.0, 1.0, 0.0, index=1, body=b"")  # a better belief, and nothing kept
    drawn = session.draw(1, 9).event
    chance = dict(zip(drawn.row_K.tolist(), drawn.inclusion_K.tolist(), strict=True))
    assert chance[better] > chance[4 - better]


@pytest.mark.parametrize(("store", "made"), [(STORE, 6), (None, 2)])
def test_a_probe_that_is_settled_goes_on_as_far_as_its_rollouts_are_kept(
    store: RolloutStoreConfig | None, made: int
) -> None:
    session = begin(rollout_store=store)
    ticket = session.draw(0, 4, purpose=Purpose.PROBE).first_ticket
    end, more = 0, 2
    while more:
        decision = session.report(ticket, [rollout(float(n % 2), n=n, body=b"x") for n in range(end, end + more)])
        end, more = end + more, what_next(session.state, ticket, decision.reached[0])[1]
    assert end == made


# Age and size


def test_a_rollout_of_older_weights_than_allowed_is_handed_to_nobody() -> None:
    for max_lag, expected in ((0, 0), (1, 0), (2, 1)):
        session = begin(rollout_store=replace(STORE, max_lag=max_lag))
        probe(session, 2, 1.0, 0.0)
        assert len(whole_pool(session, policy_version=2).event.priors) == expected
        assert len(session.state.held) == 2 * expected


def test_the_runs_own_bound_on_lag_holds_too() -> None:
    session = begin(rollout_store=replace(STORE, max_lag=5), max_lag=1)
    probe(session, 2, 1.0, 0.0)
    assert whole_pool(session, policy_version=2).event.priors == []


def test_a_rollout_of_weights_that_the_run_has_not_reached_waits_for_them() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0, version=1)
    first = whole_pool(session)
    assert first.event.priors == []
    for ticket in tickets_of(first):
        session.void(ticket, VoidReason.NEVER_STARTED)
    assert len(whole_pool(session, 1, policy_version=1).event.priors) == 1


def test_what_comes_too_old_or_too_large_counts_and_is_not_kept() -> None:
    session = begin()
    session.step(0, 3)
    decision = probe(session, 2, 1.0, 0.0, version=1)
    assert (decision.applied, decision.bodies) == (2, {})
    assert [refusal.code for refusal in decision.not_kept] == ["stale", "stale"]
    assert "2 versions behind" in decision.not_kept[0].detail

    session = begin(rollout_store=replace(STORE, max_bytes=5))
    decision = probe(session, 2, 1.0, 0.0, body=b"123456")
    assert (decision.applied, decision.bodies, len(session.state.held)) == (2, {}, 0)
    assert decision.not_kept[0].code == "completion_too_large"
    session = begin()
    assert probe(session, 2, 1.0, 0.0, body=b"x" * (MAX_BODY_BYTES + 1)).not_kept[0].code == "completion_too_large"
    assert session.tokens()["probe"] == 20


def test_the_store_holds_as_many_as_it_may() -> None:
    session = begin(rollout_store=replace(STORE, max_rollouts=3))
    probe(session, 1, 1.0, 0.0)
    probe(session, 2, 1.0, 0.0, index=1)
    assert session.state.held["serial"].tolist() == [2, 3, 4]
    assert session.state.ever_held == 4


# What is counted


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


# Going back, and coming back


def busy(session: Session, steps: range) -> None:
    for step in steps:
        probe(session, step % 4, 1.0, 0.0, version=step, index=step)
        batch = session.draw(step, 3, policy_version=step)
        priors = {prior["place"]: len(prior["rollouts"]) for prior in batch.event.priors}
        for place, ticket in enumerate(tickets_of(batch)):
            row = int(batch.event.row_K[place])
            sent = [rollout(float((row + step + n) % 3 == 0)) for n in range(8 - priors.get(place, 0))]
            session.report(ticket, sent, version=step)
        session.step(step, step + 1)


@pytest.mark.parametrize("policy", [None, KALMAN], ids=["flat", "kalman"])
def test_from_its_log_or_a_snapshot_a_run_goes_on_to_the_bit(policy: Any) -> None:
    session = begin(policy=policy, rollout_store=replace(STORE, max_lag=1, max_rollouts=5), audit_share=0.3)
    busy(session, range(4))
    stored = snapshot(session.state)
    busy(session, range(4, 7))
    assert any(batch.event.priors for batch in session.state.batches)
    drawn = session.draw(7, 3, policy_version=7)
    for engine in (session.replayed(), session.resumed(stored)):
        assert fingerprint(engine.state) == fingerprint(session.state)
        assert what_was_drawn(engine.state.batches[-1]) == what_was_drawn(drawn)
        assert engine.state.batches[-1].event.to_json() == drawn.event.to_json()


@pytest.mark.parametrize("beliefs", ["rewind", "keep"])
def test_a_restored_run_hands_over_what_the_uninterrupted_one_did(beliefs: str) -> None:
    session = begin(rollout_store=replace(STORE, max_lag=1))
    busy(session, range(2))
    probe(session, 3, 1.0, 0.0, version=1, index=2)
    session.checkpoint(2)
    first = session.draw(2, 4, policy_version=2)
    assert first.event.priors
    probe_after = session.draw(9, 4, purpose=Purpose.PROBE, allow_repeat=True)
    session.report(probe_after.first_ticket, [rollout(1.0, n=n, body=b"late") for n in range(8)], version=2)
    ever = session.state.ever_held
    session.restore(2, beliefs=beliefs)
    assert (session.state.held["given"] == NOBODY).any()
    assert session.state.ever_held == ever  # so that no serial is given twice
    again = session.draw(2, 4, policy_version=2)
    assert [prior["rollouts"] for prior in again.event.priors] == [prior["rollouts"] for prior in first.event.priors]
    assert fingerprint(session.replayed().state) == fingerprint(session.state)


def test_the_next_attempt_of_a_ticket_begins_with_the_same() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0)
    ticket = ticket_of(session, whole_pool(session), 2)
    session.report(ticket, numbered(n0=0.0, n1=0.0), void=VoidReason.LOST)
    session.report(ticket, [rollout(1.0) for _ in range(6)], attempt=2)
    found = outcome_of(session, ticket)
    assert (found["state"], found["scored"], found["informative"]) == (TicketState.REPORTED, 6, 1)
    assert session.tokens() == {"train": 60, "rejected": 20, "probe": 20}


def test_a_run_that_has_ended_holds_nothing() -> None:
    session = begin()
    probe(session, 2, 1.0, 0.0)
    session.complete()
    assert len(session.state.held) == 0


def test_runs_from_before_there_was_a_store_are_read() -> None:
    session = begin(rollout_store=None)
    old = session.state.config.to_dict()
    del old["rollout_store"]
    assert RunConfig.from_dict(old) == session.state.config
    assert RunConfig.from_dict(replace(session.state.config, rollout_store=STORE).to_dict()).rollout_store == STORE
    event = session.draw(0, 2).event.to_json()
    del event["priors"]
    read = event_from_json(BatchDrawn.kind, event)
    assert isinstance(read, BatchDrawn)
    assert read.priors == []


# At the door


def test_parts_that_each_begin_a_group_are_refused_together() -> None:
    with pytest.raises(UnknownConfig, match=r"rollout_store and policy\.wave"):
        begin(policy=make_policy(wave=WaveConfig(rule="screen", first=2)))
    with pytest.raises(UnknownConfig, match="feed 'all'"):
        begin(feed="informative_only")


@pytest.mark.parametrize(
    "text", ["", "r:0:probe:0:0:0", "r:0:probe:0:0:0/1", "r:0:probe:0:0:0/1/x", "r:0:probe:0:0:0/1/2/3"]
)
def test_what_is_no_rollouts_id_is_none(text: str) -> None:
    assert read_rollout_name(text) is None


def test_an_id_is_read_back() -> None:
    text = "r:0:probe:7:0:3/2/15"
    name = read_rollout_name(text)
    assert name is not None
    assert str(name) == text
    assert (name.ticket.index, name.attempt, name.n) == (7, 2, 15)
    assert PURPOSE_CODE[Purpose(name.ticket.purpose)] == PURPOSE_CODE[Purpose.PROBE]
