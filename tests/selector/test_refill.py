"""Refill: sizes by hand and at their bounds, what a batch keeps, and what it offers to the next one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.batches.refilling import last_refilled, refill_standing
from selector.claims import ClaimType, derive_claim
from selector.errors import UnknownBatch
from selector.refill import RefillConfig, refill_size, ticket_multiple
from selector.run.snapshot import snapshot
from selector.run.state import DrawnBatch
from selector.types import PURPOSE_CODE, Purpose, VoidReason
from tests.selector.engine_cases import Session, make_config, make_policy, make_pool, rollouts, tickets_of


def begin(num_rows: int = 40, rounds: int = 4, **changes: Any) -> Session:
    refill = RefillConfig(rounds=rounds, cancel_yield=bool(changes.pop("cancel_yield", False)))
    return Session(make_config(make_policy(utility="uniform", refill=refill), **changes), make_pool(num_rows))


def answer(session: Session, batch: DrawnBatch, num_mixed: int) -> list[int]:
    """The first so many tickets of the batch come back mixed, the others all wrong; their ordinals."""
    tickets = list(tickets_of(batch))
    for place, ticket in enumerate(tickets):
        session.report(ticket, rollouts(float(place < num_mixed), 0.0, 0.0, 0.0))
    return tickets[:num_mixed]


@pytest.mark.parametrize(
    ("missing", "informative", "judged", "expected"),
    [
        (5, 3, 8, 13),  # 5 / (3.5 / 9)
        (1, 0, 0, 2),  # 1 / (0.5 / 1)
        (8, 0, 8, 24),  # 144 wanted, three batches at most
        (1, 7, 8, 2),
    ],
)
def test_a_refill_is_what_is_missing_over_the_yield_so_far(
    missing: int, informative: int, judged: int, expected: int
) -> None:
    assert refill_size(missing, informative, judged, target=8, largest=3.0, multiple=1) == expected


@given(missing=st.integers(1, 50), informative=st.integers(0, 50), dead=st.integers(0, 50), multiple=st.integers(1, 9))
def test_a_refill_is_a_multiple_and_bounded(missing: int, informative: int, dead: int, multiple: int) -> None:
    size = refill_size(missing, informative, informative + dead, target=50, largest=2.0, multiple=multiple)

    assert size % multiple == 0
    assert missing <= size <= 100 + multiple - 1


def test_sizes_give_rollouts_in_multiples_of_the_divisor() -> None:
    assert [ticket_multiple(divisor, 8) for divisor in (1, 8, 12, 16, 3)] == [1, 1, 3, 2, 3]


@pytest.mark.parametrize(
    ("values", "words"),
    [({"rounds": 1}, "refill.rounds"), ({"largest": 0.0}, "refill.largest"), ({"largest": float("inf")}, "finite")],
)
def test_bounds_that_cannot_be_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RefillConfig(**values)


def test_a_batch_is_filled_up_wave_by_wave_and_every_group_is_judged() -> None:
    session = begin()
    kept = answer(session, session.draw(0, 8), 3)
    standing = refill_standing(session.state, 0)
    assert (standing.refill, standing.size, standing.judged, standing.informative) == (1, 13, 8, 3)
    batch = session.draw(0, 13, refill=1)
    session.report(batch.first_ticket + 12, rollouts(0.0, 0.0, 0.0, 0.0))  # a wave counts once it is whole
    waiting = refill_standing(session.state, 0)
    assert (waiting.open, waiting.size, waiting.judged) == (12, None, 8)
    kept += answer(session, batch, 7)

    full = refill_standing(session.state, 0)

    assert (full.size, full.judged, full.informative, full.inverse_yield) == (None, 21, 10, 2.1)
    assert list(full.kept) == kept[:8]
    assert list(full.surplus) == kept[8:]


def test_the_surplus_is_cut_in_order_of_draw_whoever_came_first() -> None:
    found = []
    for order in (1, -1):
        session = begin()
        first = session.draw(0, 2)
        for ticket in list(tickets_of(first))[::order]:
            session.report(ticket, rollouts(1.0, 0.0, 0.0, 0.0) if ticket else rollouts(0.0, 0.0, 0.0, 0.0))
        second = session.draw(0, 3, refill=1)
        for ticket in list(tickets_of(second))[::order]:
            session.report(ticket, rollouts(1.0, 0.0, 0.0, 0.0))
        found.append((refill_standing(session.state, 0).kept, refill_standing(session.state, 0).surplus))
    assert found[0] == found[1] == ((1, 2), (3, 4))


def test_audit_tickets_are_kept_before_all_others() -> None:
    session = begin(audit_share=0.5)
    batch = session.draw(0, 4)
    answer(session, batch, 4)
    session.draw(0, 6, refill=1)
    answer(session, session.state.batches[-1], 6)
    standing = refill_standing(session.state, 0)
    table = session.state.book.tickets
    audits = np.flatnonzero(table["purpose"] == PURPOSE_CODE[Purpose.AUDIT])

    assert len(audits) >= 3
    assert set(audits.tolist()) <= set(standing.kept)
    assert list(standing.kept) == sorted(standing.kept)
    assert len(standing.kept) == max(4, len(audits))


def test_rounds_end_with_what_was_found() -> None:
    session = begin(rounds=3)
    kept = []
    for refill in range(3):
        kept += answer(session, session.draw(0, 4, refill=refill), 1)
    standing = refill_standing(session.state, 0)

    assert (standing.waves, standing.size, standing.refill) == (3, None, None)
    assert (list(standing.kept), standing.surplus) == (kept, ())


def test_void_groups_have_no_part_in_the_yield() -> None:
    session = begin()
    batch = session.draw(0, 4)
    for ticket in tickets_of(batch):
        session.void(ticket, VoidReason.ERROR)
    standing = refill_standing(session.state, 0)

    assert (standing.judged, standing.inverse_yield, standing.factor) == (0, None, 1.0)
    assert standing.size == 8


@pytest.mark.parametrize(("cancel", "factor"), [(False, 1.0), (True, 0.5)])
def test_the_yield_is_cancelled_only_if_asked(cancel: bool, factor: float) -> None:
    session = begin(cancel_yield=cancel)
    answer(session, session.draw(0, 4), 2)

    standing = refill_standing(session.state, 0)

    assert (standing.inverse_yield, standing.factor) == (2.0, factor)


def with_surplus(**changes: Any) -> Session:
    """Batch 0 wants two and finds four."""
    session = begin(**changes)
    answer(session, session.draw(0, 2), 1)
    answer(session, session.draw(0, 4, refill=1), 3)
    assert refill_standing(session.state, 0).surplus == (3, 4)
    return session


def test_surplus_is_offered_to_the_next_batch_once_a_step_says_what_was_trained_on() -> None:
    session = with_surplus()
    session.draw(1, 2)
    assert refill_standing(session.state, 1).offered == ()
    session.step(0, 1, trained=[session.id(0), session.id(2)])
    assert refill_standing(session.state, 1).offered == (3, 4)
    session.step(1, 2, trained=[session.id(3)])
    assert refill_standing(session.state, 1).offered == (4,)
    session.draw(2, 2)
    assert refill_standing(session.state, 2).offered == ()


def test_surplus_is_offered_only_while_it_is_fresh() -> None:
    session = with_surplus(max_lag=1)
    session.step(0, 1, trained=[session.id(0)])
    session.draw(1, 2)
    assert refill_standing(session.state, 1).offered == (2, 3, 4)
    session.step(1, 2)
    assert refill_standing(session.state, 1).offered == ()


def test_a_restore_takes_back_waves_and_a_recovered_run_stands_where_it_stood() -> None:
    session = begin()
    answer(session, session.draw(0, 4), 1)
    session.checkpoint(0)
    before = refill_standing(session.state, 0)
    answer(session, session.draw(0, 6, refill=1), 6)
    after = refill_standing(session.state, 0)
    for engine in (session.replayed(), session.resumed(snapshot(session.state))):
        assert refill_standing(engine.state, 0) == after
    session.restore(0)
    assert refill_standing(session.state, 0) == before


def test_a_batch_that_was_never_drawn_is_named() -> None:
    session = begin()
    assert last_refilled(session.state) is None
    with pytest.raises(UnknownBatch, match="no train batch 3"):
        refill_standing(session.state, 3)


def test_without_refill_nothing_more_is_asked_for() -> None:
    session = Session(make_config(make_policy(utility="uniform")), make_pool(8))
    answer(session, session.draw(0, 4), 1)
    assert refill_standing(session.state, 0).size is None
    assert last_refilled(session.state) is None


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        ({}, ClaimType.UNBIASED, "1/yield"),
        ({"loss_aggregation": "per_token"}, ClaimType.MODIFIED, "per_token"),
        ({"loss_aggregation": "per_sequence"}, ClaimType.MODIFIED, "per_sequence"),
        ({"signal": "outcome"}, ClaimType.MODIFIED, "another signal"),
        ({"uniform": False}, ClaimType.MODIFIED, "beliefs"),
        ({"rule": "screen"}, ClaimType.MODIFIED, "first wave"),
        ({"empirical": True}, ClaimType.EMPIRICAL, "not known"),
    ],
)
def test_dynamic_sampling_is_unbiased_up_to_a_factor_under_its_conditions_only(
    changes: dict[str, Any], expected: ClaimType, words: str
) -> None:
    defaults: dict[str, Any] = {
        "uniform": True, "empirical": False, "weights": "none", "loss_aggregation": "per_prompt", "advantage": "grpo",
        "refilled": True,
    }  # fmt: skip
    claim = derive_claim(**(defaults | changes))

    assert claim.type is expected
    assert words in claim.objective


@pytest.mark.parametrize("rule", ["screen", "pilot", "until_success", "balanced", "rescue"])
def test_no_rule_that_stops_groups_is_anything_but_modified(rule: str) -> None:
    for uniform in (True, False):
        claim = derive_claim(
            uniform=uniform, empirical=False, weights="horvitz_thompson", loss_aggregation="per_prompt",
            advantage="rloo", rule=rule,
        )  # fmt: skip
        assert claim.type is ClaimType.MODIFIED
