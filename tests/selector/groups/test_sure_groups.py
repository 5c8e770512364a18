"""Groups that are informative for sure, as the probe that they would begin with says: what draws foresee of them."""

import numpy as np
import pytest

from selector.groups.priors import sure_groups
from selector.groups.reports import RolloutIn
from selector.groups.standing import what_next
from selector.rollout_store import RolloutStoreConfig
from selector.types import Purpose
from tests.selector.engine_cases import rollout, tickets_of
from tests.selector.prior_cases import STORE, begin, probe, whole_pool


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
