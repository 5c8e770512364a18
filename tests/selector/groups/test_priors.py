"""Train tickets that begin with a probe's rollouts: which begin with which, and what may be asked for."""

from dataclasses import replace

import numpy as np
import pytest

from selector.config import BudgetConfig
from selector.errors import UnknownConfig
from selector.groups.priors import all_pass, read_rollout_name
from selector.rollout_store import MAX_BODY_BYTES, NOBODY
from selector.run.events import BatchDrawn, event_from_json
from selector.types import PURPOSE_CODE, Purpose, RolloutStatus, VoidReason
from selector.waves import WaveConfig
from tests.selector.engine_cases import make_policy, numbered, rollout, tickets_of
from tests.selector.prior_cases import STORE, begin, begun_with, probe, ticket_of, whole_pool

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
