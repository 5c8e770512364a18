"""Runs whose tickets have different numbers of rollouts: what is issued, reported, claimed and kept."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from predictors.value import informative_probability, knapsack_value
from selector.audit.auditing import audit_run
from selector.batches.drawing import claim_of
from selector.claims import REPAIRED, ClaimType, derive_claim
from selector.config import Advantage, BudgetConfig, LossAggregation, RunConfig
from selector.errors import UnknownConfig
from selector.policies import PRESETS
from selector.run.events import BatchDrawn, event_from_json
from selector.run.snapshot import snapshot
from selector.types import Purpose, TicketState
from tests.selector.engine_cases import (
    Session,
    coin,
    error,
    make_config,
    make_policy,
    make_pool,
    rollouts,
    tickets_of,
    what_was_drawn,
)

KNAPSACK = BudgetConfig(rule="knapsack", low=2, high=9)


def budgeted(budget: BudgetConfig = KNAPSACK, **changes: Any) -> RunConfig:
    return make_config(make_policy(budget=budget), **changes)


def tried(**changes: Any) -> Session:
    """A run of which some prompts were rolled out, p a ninth to eight ninths."""
    session = Session(budgeted(**({"audit_share": 0.25} | changes)), make_pool(24))
    answer = coin(1, np.arange(24) % 9 / 8)
    for index in range(5):
        session.answer_batch(session.draw(index, 8), answer)
    return session


def test_a_batch_has_as_many_rollouts_as_without_a_budget_and_audit_tickets_the_fixed_group() -> None:
    session = tried()
    batch = session.draw(5, 8)
    event, table = batch.event, session.state.book.tickets
    tickets = tickets_of(batch)

    size_K = table["group_size"][tickets.start : tickets.stop]
    assert size_K.tolist() == event.rollouts_K.tolist()
    assert size_K.sum() == 8 * 4
    for known in session.state.batches:
        assert set(known.event.rollouts_K[known.event.audit_K].tolist()) == {4}
    assert len(set(size_K[~event.audit_K].tolist())) > 1
    assert size_K.min() >= 2
    assert size_K.max() <= 9
    # Rollout slots lie one after another, as many as the ticket has.
    spans = [session.state.book.slots(ticket) for ticket in tickets]
    assert [span.stop for span in spans[:-1]] == [span.start for span in spans[1:]]
    assert [span.stop - span.start for span in spans] == size_K.tolist()


def test_predictions_are_of_each_tickets_own_group() -> None:
    event = tried().draw(5, 8).event
    for k, size in enumerate(event.rollouts_K.tolist()):
        expected = informative_probability(event.pass_rate_K[k : k + 1], event.variance_K[k : k + 1], size)
        assert event.informative_K[k] == expected[0]


@pytest.mark.parametrize("divisor", [8, 12])
def test_the_rollouts_together_are_a_multiple_of_the_divisor(divisor: int) -> None:
    event = tried().draw(5, 11, divisor=divisor).event

    assert event.group_size_K is not None
    assert event.group_size_K.sum() == len(event.row_K) * 4
    assert event.group_size_K.sum() % divisor == 0


def test_a_ticket_closes_with_its_own_number_of_rollouts() -> None:
    session = tried()
    batch = session.draw(5, 8)
    size_K = batch.event.rollouts_K
    small = batch.first_ticket + int(np.argmin(size_K))
    large = batch.first_ticket + int(np.argmax(size_K))

    session.report(small, rollouts(*[1.0] * int(size_K.min())))
    most = int(size_K.max())
    some = [replace(r, n=n) for n, r in enumerate(rollouts(*[1.0] * most))]
    session.report(large, some[:-1])

    assert session.ticket(small)["state"] == TicketState.REPORTED
    assert session.ticket(large)["state"] == TicketState.OPEN
    session.report(large, some[-1:])
    assert session.ticket(large) | {"reason": 0} == {
        "state": TicketState.REPORTED,
        "reason": 0,
        "attempt": 1,
        "scored": most,
        "passes": float(most),
    }


def test_more_rollouts_than_a_ticket_is_for_are_refused() -> None:
    session = tried()
    batch = session.draw(5, 8)
    ticket, most = batch.first_ticket, int(batch.event.rollouts_K[0])

    decision = session.report(ticket, [replace(rollouts(1.0)[0], n=most)])

    assert [refused.code for refused in decision.rejected] == ["too_many_rollouts"]


def test_another_attempt_has_as_many_rollouts_as_the_first() -> None:
    session = tried()
    batch = session.draw(5, 8)
    place = int(np.argmax(batch.event.rollouts_K))
    ticket, most = batch.first_ticket + place, int(batch.event.rollouts_K[place])
    session.report(ticket, [error() for _ in range(most)])

    session.report(ticket, rollouts(*[0.0] * most), attempt=2)

    assert session.ticket(ticket)["scored"] == most


def test_a_run_from_its_log_a_snapshot_and_a_restore_draws_the_same_to_the_bit() -> None:
    session = tried()
    session.checkpoint(4)
    ahead = session.fork()
    restored = session.fork()
    restored.answer_batch(restored.draw(5, 8), coin(3, np.full(24, 0.5)))
    restored.restore(4)
    first = what_was_drawn(ahead.draw(5, 8))
    for engine in (session.replayed(), session.resumed(snapshot(session.state))):
        event = engine.draw(session.request(5, 8), now=session.now)
        assert event is not None
        assert event.group_size_K is not None
        assert event.group_size_K.tolist() == ahead.state.batches[-1].event.rollouts_K.tolist()
        assert event.digest == first["digest"]
    kept = [batch.event.rollouts_K.tolist() for batch in session.resumed(snapshot(session.state)).state.batches]
    assert kept == [batch.event.rollouts_K.tolist() for batch in session.state.batches]
    assert what_was_drawn(restored.draw(5, 8)) == first
    assert restored.state.batches[-1].event.rollouts_K.tolist() == ahead.state.batches[-1].event.rollouts_K.tolist()


def test_logs_from_before_budgets_are_read_with_groups_all_alike() -> None:
    session = Session(make_config(), make_pool(8))
    event = session.draw(0, 4).event
    stored = event.to_json()
    assert stored.pop("group_size_K") is None

    read = event_from_json("batch_drawn", stored)

    assert isinstance(read, BatchDrawn)
    assert read.group_size_K is None
    assert read.rollouts_K.tolist() == [4, 4, 4, 4]


def test_only_train_draws_are_spread() -> None:
    session = tried()
    for purpose in (Purpose.PROBE, Purpose.CONTROL, Purpose.AUDIT):
        assert session.draw(9, 4, purpose=purpose).event.group_size_K is None


def test_the_share_of_degenerate_groups_is_told_by_audit_tickets_alone() -> None:
    found = audit_run(tried().state)

    assert found.degenerate.reweighted.estimate is None
    assert found.degenerate.uniform.estimate is not None
    assert found.pass_rate.reweighted.estimate is not None
    assert any("vary in their rollouts" in warning for warning in found.warnings)


# Claims


@pytest.mark.parametrize(
    ("loss", "advantage", "expected"),
    [
        ("per_prompt", "rloo", ClaimType.UNBIASED),
        ("per_prompt", "dr_grpo", ClaimType.UNBIASED),
        ("per_prompt", "grpo", ClaimType.MODIFIED),
        ("per_sequence", "rloo", ClaimType.MODIFIED),
        ("per_token", "rloo", ClaimType.MODIFIED),
    ],
)
def test_varying_groups_are_unbiased_for_means_per_prompt_without_division(
    loss: LossAggregation, advantage: Advantage, expected: ClaimType
) -> None:
    found = derive_claim(
        uniform=False,
        empirical=False,
        weights="horvitz_thompson",
        loss_aggregation=loss,
        advantage=advantage,
        varying_groups=True,
    )

    assert found.type is expected
    assert (REPAIRED in found.conditions) == (advantage == "dr_grpo")
    if expected is ClaimType.UNBIASED:
        assert found.objective == "mean over prompts of the pass rate"


def test_a_uniform_draw_with_a_budget_is_exact_only_where_sizes_do_not_matter() -> None:
    policy = PRESETS["knapsack"].config
    assert claim_of(RunConfig(pool="p", policy=policy)).type is ClaimType.MODIFIED
    assert claim_of(RunConfig(pool="p", policy=policy, advantage="rloo")).type is ClaimType.EXACT
    even = replace(policy, budget=BudgetConfig(rule="fixed", low=2, high=9))
    assert claim_of(RunConfig(pool="p", policy=even)).type is ClaimType.EXACT


def test_a_design_without_chances_stays_empirical_with_a_budget() -> None:
    policy = replace(PRESETS["mopps"].config, budget=KNAPSACK)
    assert claim_of(RunConfig(pool="p", policy=policy)).type is ClaimType.EMPIRICAL


def test_the_step_of_rloo_points_along_the_pass_rate_whatever_the_group_size() -> None:
    # k of n pass; a mean per prompt of advantages times d log π, which is dp/p for a pass and −dp/(1−p) otherwise.
    for n, p in ((2, 0.3), (5, 0.3), (9, 0.8)):
        k = np.arange(n + 1)
        chance = (
            np.array([float(np.prod([(n - j) / (j + 1) for j in range(i)])) for i in k]) * p**k * (1 - p) ** (n - k)
        )
        centred = (k / n) * (1 - k / n) * (1 / p + 1 / (1 - p))
        dr_grpo = float(chance @ centred) if n else 0.0
        assert dr_grpo == pytest.approx(1 - 1 / n)
        assert dr_grpo * n / (n - 1) == pytest.approx(1.0)


# Configurations


def test_a_budget_is_stored_hashed_and_read_again() -> None:
    config = budgeted()

    assert RunConfig.from_dict(config.to_dict()) == config
    assert config.config_hash() != make_config().config_hash()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_size": 12}, "group_size 12 is outside the budget's 2 to 9"),
        ({"min_rollouts": 3}, "budget.low 2 is below min_rollouts 3"),
    ],
)
def test_budgets_that_a_run_cannot_have_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownConfig, match=message):
        budgeted(**changes)


def test_a_draw_with_a_group_size_outside_the_budget_is_refused_and_changes_nothing() -> None:
    session = tried()
    before = session.state.seq
    with pytest.raises(ValueError, match="group_size 10 is outside"):
        session.draw(5, 8, group_size=10)
    assert session.state.seq == before


def presets_batch(name: str) -> BatchDrawn:
    """The fourth batch of a preset, on 13 prompts that pass 0 to 8 of 8 times."""
    session = Session(RunConfig(pool="p", policy=PRESETS[name].config, audit_share=0.0), make_pool(13))
    for index in range(3):
        session.answer_batch(session.draw(index, 13), lambda row, _, n: float(n * 5 % 8 < row))
    return session.draw(3, 13).event


def test_the_knapsack_gives_each_next_rollout_where_it_is_worth_most() -> None:
    event = presets_batch("knapsack")
    size_K = np.full(13, 2)
    for _ in range(13 * 8 - 26):
        worth = [
            knapsack_value(event.pass_rate_K, event.variance_K, int(size))[k] for k, size in enumerate(size_K.tolist())
        ]
        more = [
            knapsack_value(event.pass_rate_K, event.variance_K, int(size) + 1)[k]
            for k, size in enumerate(size_K.tolist())
        ]
        size_K[np.argmax(np.array(more) - np.array(worth))] += 1

    assert np.sort(event.rollouts_K).tolist() == np.sort(size_K).tolist()
    # A prompt that failed throughout is worth more rollouts than one that passed throughout: it is unknown so far.
    assert event.rollouts_K[event.pass_rate_K.argmin()] > event.rollouts_K[event.pass_rate_K.argmax()]


def test_duet_gives_rollouts_in_proportion_to_the_spread_of_outcomes() -> None:
    event = presets_batch("duet")
    spread_K = np.sqrt(event.pass_rate_K * (1 - event.pass_rate_K) - event.variance_K)

    assert np.abs(event.rollouts_K - 13 * 8 * spread_K / spread_K.sum()).max() < 1
