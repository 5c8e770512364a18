"""What a run holds of probes' rollouts, restored, recovered and at its end."""

from dataclasses import replace
from typing import Any

import pytest

from selector.config import RunConfig
from selector.rollout_store import NOBODY
from selector.run.events import BatchDrawn, event_from_json
from selector.run.snapshot import snapshot
from selector.types import Purpose, TicketState, VoidReason
from tests.selector.checked_run import fingerprint
from tests.selector.engine_cases import KALMAN, Session, numbered, rollout, tickets_of, what_was_drawn
from tests.selector.prior_cases import STORE, begin, outcome_of, probe, ticket_of, whole_pool


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
