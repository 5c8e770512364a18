"""Probes in a run: chosen by the planner, stopped by their own rule, within bounds, and the same after any recovery."""

from typing import Any

import numpy as np
import pytest

from predictors.value import informative_probability
from selector.config import RunConfig
from selector.groups.standing import what_next
from selector.probing import ProbingConfig
from selector.run.events import BatchDrawn, event_from_json
from selector.run.snapshot import snapshot
from selector.run.state import DrawnBatch
from selector.types import Purpose, TicketState
from tests.selector.engine_cases import (
    KALMAN,
    Session,
    coin,
    make_config,
    make_policy,
    make_pool,
    numbered,
    rollouts,
    tickets_of,
    what_was_drawn,
)

NUM_ROWS = 40
PASS_RATE_N = np.where(np.arange(NUM_ROWS) % 4 == 0, 0.5, np.where(np.arange(NUM_ROWS) % 4 == 1, 0.0, 1.0))


def config(**changes: Any) -> RunConfig:
    policy = changes.pop("policy", make_policy())
    return make_config(policy, **({"group_size": 8} | changes))


def begin(num_rows: int = NUM_ROWS, **changes: Any) -> Session:
    return Session(config(**changes), make_pool(num_rows, heldout=[num_rows - 1]))


def probe(session: Session, index: int, size: int, **values: Any) -> DrawnBatch:
    return session.draw(index, size, purpose=Purpose.PROBE, **values)


def in_waves(session: Session, batch: DrawnBatch) -> int:
    """Rolls a probe batch out as its rule says; how many rollouts that took."""
    answer, made = coin(5, PASS_RATE_N), 0
    for ticket in tickets_of(batch):
        row, end, more = int(session.state.book.tickets["row"][ticket]), 0, int((batch.event.wave or {})["first"])
        while more:
            sent = {f"n{n}": answer(row, batch.event.index, n) for n in range(end, end + more)}
            end, made = end + more, made + more
            decision = session.report(ticket, numbered(**sent))
            ((_, found), reached) = decision.tickets[0], decision.reached[0]
            said, more = what_next(session.state, ticket if found is None else found, reached)
            assert (said == "continue") == bool(more)
    return made


def test_a_probe_is_stopped_as_soon_as_it_is_settled_and_the_beliefs_have_seen_it() -> None:
    session = begin()
    batch = probe(session, 0, 12)
    assert batch.event.wave is not None
    assert batch.event.wave["rule"] == "settle"

    made = in_waves(session, batch)

    table = session.state.book.tickets
    states = table["state"][list(tickets_of(batch))]
    assert (states == TicketState.REPORTED).all()
    assert 2 * 12 <= made < 8 * 12
    assert session.state.rows["groups_N"][batch.event.row_K].tolist() == [1] * 12
    assert session.tokens() == {"probe": 10 * made}


def test_whoever_sends_whole_groups_is_not_refused() -> None:
    session = begin()
    batch = probe(session, 0, 3)
    decision = session.answer_batch(batch, coin(1, PASS_RATE_N))
    assert decision.applied == 24
    assert not decision.rejected


def test_prompts_that_were_probed_give_way_to_those_that_were_not() -> None:
    session = begin()
    seen = set[int]()
    for index in range(3):
        batch = probe(session, index, 13)
        assert not seen & set(batch.event.row_K.tolist())
        seen |= set(batch.event.row_K.tolist())
        in_waves(session, batch)
    assert seen == set(range(NUM_ROWS - 1))  # the held-out prompt is never probed


def test_what_was_never_tried_is_probed_until_a_train_draw_has_taught_something() -> None:
    session = begin()
    train = session.draw(0, 4)
    first = probe(session, 0, NUM_ROWS)
    assert first.event.reason != "nothing_to_learn"
    assert set(first.event.row_K.tolist()).isdisjoint(train.event.row_K.tolist())  # those are in flight
    assert len(first.event.row_K) == NUM_ROWS - 1 - 4


def test_probes_ask_what_they_would_gain_in_the_batches_that_are_trained_on() -> None:
    session = begin()
    session.answer_batch(session.draw(0, 4), coin(3, PASS_RATE_N))
    batch = probe(session, 0, 30)
    # Of four places there is little to gain: no more are probed than would fill it, and they say so.
    assert 0 < len(batch.event.row_K) < 30
    assert batch.event.reason == "nothing_to_learn"
    assert 0.0 < (batch.event.wave or {})["price"] < 1.0
    # What is open will bring it.
    assert len(probe(session, 1, 30).event.row_K) < len(batch.event.row_K)


def test_the_chance_that_is_recorded_is_that_of_the_choice_and_there_is_no_weight() -> None:
    session = begin(weights="horvitz_thompson")
    event = probe(session, 0, 13).event
    # All are new and alike, so each of the 39 had the same chance.
    assert event.inclusion_K.tolist() == pytest.approx([13 / 39] * 13)
    assert event.weight_K is None
    assert session.state.rows["credit_N"].sum() == 0


def test_over_many_seeds_equals_are_drawn_as_often_as_is_recorded() -> None:
    counts = np.zeros(12)
    for seed in range(400):
        session = Session(config(seed=seed), make_pool(12))
        counts[probe(session, 0, 3).event.row_K] += 1
    # Binomial(400, 1/4): within four standard errors.
    assert np.abs(counts / 400 - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 400)


def test_who_is_settled_is_left_alone_and_the_batch_says_so() -> None:
    session = begin(5)
    for index in range(6):
        session.answer_batch(session.draw(index, 4), coin(9, np.full(5, 0.5)))
    batch = probe(session, 0, 4)
    assert (len(batch.event.row_K), batch.event.reason) == (0, "nothing_to_learn")


def test_two_probers_never_do_the_same_work() -> None:
    session = begin()
    one, other = probe(session, 0, 20), probe(session, 1, 20)
    rows = [*one.event.row_K.tolist(), *other.event.row_K.tolist()]
    assert len(rows) == len(set(rows)) == 39
    assert other.event.reason == "all_in_flight"


def test_a_run_of_uniform_draws_is_probed_too() -> None:
    session = begin(policy=make_policy(utility="uniform"))
    assert len(probe(session, 0, 5).event.row_K) == 5


def test_where_only_informative_groups_are_reported_a_probe_is_a_whole_group() -> None:
    session = begin(feed="informative_only")
    assert probe(session, 0, 5).event.wave is None


def test_repeats_are_drawn_uniformly_as_whole_groups() -> None:
    event = probe(begin(5), 0, 6, allow_repeat=True).event
    assert event.wave is None
    assert len(event.row_K) == 6


def test_a_divisor_cuts_a_probe_batch() -> None:
    event = probe(begin(6), 0, 8, group_size=4, divisor=8).event
    assert (len(event.row_K), event.reason) == (4, "pool_exhausted")
    event = probe(begin(), 0, 5, group_size=4, divisor=8).event
    assert (len(event.row_K), event.reason) == (4, "divisor")


# Bounds


def test_tokens_between_two_train_draws_are_bounded_once_their_cost_is_known() -> None:
    session = begin(policy=make_policy(probing=ProbingConfig(tokens=100.0)))
    session.answer_batch(session.draw(0, 4), coin(3, PASS_RATE_N))

    first = probe(session, 0, 20)
    assert first.event.tokens_K is not None
    affordable = int(100 / (2 * first.event.tokens_K[0]))  # of two rollouts each
    assert len(first.event.row_K) == affordable > 0
    assert first.event.reason == "probe_budget"
    assert len(probe(session, 1, 20).event.row_K) == 0

    session.draw(1, 4)
    assert len(probe(session, 2, 20).event.row_K) == affordable


def test_probes_are_bounded_by_a_share_of_training() -> None:
    session = begin(policy=make_policy(probing=ProbingConfig(share=0.25)))
    session.answer_batch(session.draw(0, 5), coin(3, PASS_RATE_N))  # 400 tokens
    batch = probe(session, 0, 20)
    assert batch.event.tokens_K is not None
    assert len(batch.event.row_K) == int(100 / (2 * batch.event.tokens_K[0])) > 0
    spent = in_waves(session, batch)
    left = 0.25 * 400 - 10 * spent
    again = probe(session, 1, 20).event
    assert again.tokens_K is None or 2 * again.tokens_K.sum() <= max(left, 0.0)
    assert len(again.row_K) < 20


# The log


def test_the_rule_is_in_the_draw_event_and_the_boundary_with_it() -> None:
    session = begin()
    event = probe(session, 0, 4).event
    stored = session.log[-1]
    assert isinstance(stored, BatchDrawn)
    assert stored.wave == event.wave
    # Every prompt is new, on a flat prior: what a draw gets is what each of them is expected to be.
    flat = informative_probability(np.array([0.5]), np.array([1 / 12]), 8)[0]
    assert (event.wave or {})["low"] == pytest.approx(flat)


@pytest.mark.parametrize("policy", [make_policy(probing=ProbingConfig(tokens=300.0)), KALMAN], ids=["bound", "kalman"])
def test_a_recovered_run_and_a_restored_one_probe_the_same_to_the_bit(policy: Any) -> None:
    session = begin(policy=policy)
    session.answer_batch(session.draw(0, 6), coin(2, PASS_RATE_N))
    in_waves(session, probe(session, 0, 6))
    session.checkpoint(1)
    straight = session.fork()
    expected = [what_was_drawn(probe(straight, 1, 6))]
    expected_made = in_waves(straight, straight.state.batches[-1])
    expected.append(what_was_drawn(straight.draw(1, 6)))

    session.answer_batch(session.draw(1, 6), coin(4, PASS_RATE_N))
    in_waves(session, probe(session, 1, 9))
    session.restore(1)
    found = [what_was_drawn(probe(session, 1, 6))]
    assert in_waves(session, session.state.batches[-1]) == expected_made
    found.append(what_was_drawn(session.draw(1, 6)))
    assert found == expected

    for engine in (session.replayed(), session.resumed(snapshot(session.state))):
        request = session.request(2, 6, purpose=Purpose.PROBE)
        again, once = engine.draw(request, now=0.0), session.engine.draw(request, now=0.0)
        assert again is not None
        assert once is not None
        assert again.to_json() == once.to_json()


def test_a_log_from_before_the_planner_is_read_as_it_was() -> None:
    stored = probe(begin(), 0, 3).event.to_json() | {"wave": None}
    session = begin()
    session.apply(event_from_json("batch_drawn", stored))
    session.report(0, rollouts(*[0.0] * 8))
    assert session.ticket(0)["scored"] == 8
