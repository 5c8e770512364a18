"""Runs whose rollouts have rewards and no outcomes, and those in which a few do."""

from typing import Any

import numpy as np
import pytest

from predictors.base import NEVER
from selector.audit.auditing import audit_run
from selector.beliefs.graded import expected_informative
from selector.beliefs.rewarded import UNREAD, reward_rows
from selector.groups.reports import RolloutIn
from selector.policies import POLICIES, build_policy
from selector.run.snapshot import snapshot
from selector.types import Purpose, RolloutStatus, TicketState, VoidReason
from selector.waves import WaveConfig
from tests.selector.engine_cases import (
    Session,
    beliefs_of,
    make_config,
    make_policy,
    make_pool,
    rollouts,
    tickets_of,
    what_was_drawn,
)

MIDBAND = make_policy(estimator="mixture", estimator_options={}, power=4.0, floor=0.05)


def reward(value: float | None, **values: Any) -> RolloutIn:
    return RolloutIn(**({"outcome": None, "reward": value, "tokens": 10} | values))


def group(rng: np.random.Generator, row: int, size: int = 4) -> list[RolloutIn]:
    """Three prompts in four always have one and the same reward."""
    values = rng.normal(row, 0.5, size) if row % 4 == 0 else np.full(size, float(row))
    return [reward(float(value)) for value in values]


def run(session: Session, batches: int, *, first: int = 0, size: int = 8, **values: Any) -> list[bool]:
    """Reports every ticket; which groups were informative."""
    verdicts = []
    for index in range(first, first + batches):
        for ticket in tickets_of(session.draw(index, size, policy_version=index, **values)):
            row = int(session.state.book.tickets["row"][ticket])
            session.report(ticket, group(np.random.default_rng([index, row]), row))
            verdicts.append(bool(session.state.book.tickets["informative"][ticket] == 1))
    return verdicts


def session_of(num_rows: int = 40, policy: Any = MIDBAND, categories: tuple[str, ...] = (), **config: Any) -> Session:
    return Session(make_config(policy, **config), make_pool(num_rows, categories=categories))


def chances(session: Session) -> np.ndarray:
    return expected_informative(session.state, session.state.beliefs(), 4)


def test_a_group_of_rewards_counts_and_teaches_no_pass_rate() -> None:
    session = session_of()
    before = beliefs_of(session.state)
    (ticket,) = tickets_of(session.draw(0, 1))
    decision = session.report(ticket, [reward(value) for value in (-3.5, 120.0, 0.0, -3.5)])
    table, row = session.state.book.tickets, int(session.state.book.tickets["row"][ticket])

    assert decision.applied == 4
    assert session.ticket(ticket) == {
        "state": TicketState.REPORTED, "reason": 0, "attempt": 1, "scored": 0, "passes": 0.0,
    }  # fmt: skip
    assert (table["rewarded"][ticket], table["informative"][ticket], bool(table["disagrees"][ticket])) == (4, 1, False)
    assert session.state.ledger.statuses["scored"] == 4
    assert session.state.ledger.statuses["unscored"] == 0
    assert session.state.rows["groups_N"][row] == 1
    assert session.state.rows["rated_N"][row] == 0
    after = beliefs_of(session.state)
    assert {name for name in after if after[name] != before[name]} == set()
    assert session.state.costs.mean("tokens", 0) is not None


def test_only_what_has_a_reward_and_was_not_called_unscored_counts() -> None:
    session = session_of(min_rollouts=2)
    few, enough, cut = tickets_of(session.draw(0, 3))
    session.report(few, [reward(None), reward(1.0, status=RolloutStatus.UNSCORED), reward(None), reward(2.0)])
    session.report(enough, [reward(None), reward(1.0, status=RolloutStatus.ERROR), reward(1.0), reward(1.0)])
    session.report(cut, [reward(1.0, status=RolloutStatus.TRUNCATED), reward(None), reward(None), reward(2.0)])

    assert session.ticket(few)["reason"] == VoidReason.TOO_FEW
    assert session.state.book.tickets["rewarded"][[few, enough, cut]].tolist() == [1, 2, 2]
    assert session.state.book.tickets["informative"][[enough, cut]].tolist() == [0, 1]
    assert session.state.rows["unscored_N"].sum() == 0  # the grader did say something


def test_where_outcomes_decide_or_have_been_seen_a_missing_one_stays_unscored() -> None:
    by_outcome = session_of(signal="outcome")
    (ticket,) = tickets_of(by_outcome.draw(0, 1))
    by_outcome.report(ticket, [reward(float(n)) for n in range(4)])
    assert by_outcome.ticket(ticket)["reason"] == VoidReason.TOO_FEW

    mixed = session_of()
    first, second = tickets_of(mixed.draw(0, 2))
    mixed.report(first, rollouts(1.0, 0.0, 1.0, 0.0))
    mixed.report(second, [reward(float(n)) for n in range(4)])
    assert mixed.ticket(second)["reason"] == VoidReason.TOO_FEW
    assert mixed.state.ledger.statuses["unscored"] == 4
    assert not mixed.state.rewards.is_known
    row = mixed.state.book.tickets["row"][second]
    assert mixed.state.rows["unscored_N"][row] == 1


def test_rewards_beside_outcomes_change_nothing_at_all() -> None:
    """Rollouts without an outcome in a group that has some: as if they had been called unscored."""
    with_rewards, without = session_of(), session_of()
    for index in range(12):
        for session, status in ((with_rewards, RolloutStatus.OK), (without, RolloutStatus.UNSCORED)):
            for ticket in tickets_of(session.draw(index, 6, policy_version=index)):
                row = int(session.state.book.tickets["row"][ticket])
                passed = np.random.default_rng([index, row]).random(3) < 0.5
                scored = rollouts(*passed.astype(float).tolist())
                session.report(ticket, [*scored, reward(0.3, status=status)])
    drawn = [what_was_drawn(session.draw(99, 6, policy_version=12)) for session in (with_rewards, without)]

    assert drawn[0] == drawn[1]
    assert with_rewards.state.ledger.statuses == without.state.ledger.statuses
    one, other = with_rewards.state.rewindable(), without.state.rewindable()
    assert {n: a.tobytes() for n, a in one.items()} == {n: a.tobytes() for n, a in other.items()}


def test_selecting_by_rewards_gives_far_more_informative_groups_than_drawing_uniformly() -> None:
    """A tenth of 200 prompts have rewards that ever differ. Bound: four standard errors of a binomial."""
    found = {}
    for name, policy in (("uniform", make_policy(utility="uniform")), ("midband", MIDBAND)):
        session = session_of(200, policy, group_size=8)
        verdicts = list[bool]()
        for index in range(30):
            for ticket in tickets_of(session.draw(index, 16, policy_version=index)):
                row = int(session.state.book.tickets["row"][ticket])
                rng = np.random.default_rng([index, row])
                values = rng.normal(0.0, 3.0, 8) if row % 10 == 0 else np.full(8, -2.0)
                session.report(ticket, [reward(float(value)) for value in values])
                if index >= 15:
                    verdicts.append(bool(session.state.book.tickets["informative"][ticket] == 1))
        found[name] = np.mean(verdicts)

    assert abs(found["uniform"] - 0.1) < 4.0 * np.sqrt(0.1 * 0.9 / 240)
    assert found["midband"] > 0.5


def test_what_is_predicted_of_a_batch_is_what_comes() -> None:
    session = session_of(200, audit_share=0.5)
    run(session, 20)
    said, came = list[float](), list[bool]()
    for index in range(20, 60):
        batch = session.draw(index, 8, policy_version=index)
        said += batch.event.informative_K.tolist()
        for ticket in tickets_of(batch):
            row = int(session.state.book.tickets["row"][ticket])
            session.report(ticket, group(np.random.default_rng([index, row]), row))
            came.append(bool(session.state.book.tickets["informative"][ticket] == 1))

    share = np.mean(came)
    assert abs(np.mean(said) - share) < 4.0 * np.sqrt(share * (1.0 - share) / len(came))
    assert np.corrcoef(said, came)[0, 1] > 0.8


@pytest.mark.parametrize("utility", ["informative", "gradient", "variance", "advantage"])
@pytest.mark.parametrize("weights", ["none", "horvitz_thompson"])
def test_policies_that_need_no_pass_rate_prefer_what_differs(utility: Any, weights: Any) -> None:
    policy = make_policy(estimator="mixture", estimator_options={}, utility=utility, power=1.0, floor=0.05)
    session = session_of(40, policy, weights=weights, advantage="dr_grpo")
    run(session, 15)
    session.draw(15, 8, policy_version=15)
    policy_ = build_policy(session.state.config.policy, weights=weights, advantage="dr_grpo")
    differs = np.arange(40) % 4 == 0
    found = session.state.rewards.beliefs(15, 4)
    worth = policy_.reward_utility(found, group_size=4)
    tried = found.n_eff_N > 0.0

    assert worth is not None
    assert worth[differs & tried].min() > 2.0 * worth[~differs & tried].max()
    assert UNREAD not in session.state.alarms


def test_a_policy_that_needs_pass_rates_says_so_and_draws_as_if_nothing_were_known() -> None:
    policy = make_policy(estimator="mixture", estimator_options={}, utility="band", low=0.2, high=0.8)
    session = session_of(40, policy)
    run(session, 6)
    event = session.draw(6, 8, policy_version=6).event

    assert session.state.alarms[UNREAD]["draws"] == 1
    assert "'band' needs pass rates" in session.state.alarms[UNREAD]["detail"]
    assert "informative" in session.state.alarms[UNREAD]["detail"]
    np.testing.assert_allclose(event.inclusion_K, 8 / 40, rtol=0.3)  # but for revisits that are due
    tried = session.state.rewards.rewarded_N & (np.arange(40) % 4 == 0)
    assert (chances(session)[tried] > 0.8).all()  # what is predicted is by rewards nevertheless


def test_every_policy_says_whether_it_reads_rewards() -> None:
    reads = {name for name, policy in POLICIES.items() if "reward_utility" in vars(policy)}
    assert reads == {"informative", "gradient", "variance", "advantage"}


def test_categories_with_outcomes_and_with_rewards_live_side_by_side() -> None:
    session = session_of(40, categories=("graded", "judged"))
    for index in range(12):
        for ticket in tickets_of(session.draw(index, 20, policy_version=index)):
            row = int(session.state.book.tickets["row"][ticket])
            rng = np.random.default_rng([index, row])
            sent = rollouts(*(rng.random(4) < 0.5).astype(float).tolist()) if row % 2 == 0 else group(rng, row - 1)
            session.report(ticket, sent)
    by_reward = reward_rows(session.state)

    assert by_reward is not None
    np.testing.assert_array_equal(by_reward, np.arange(40) % 2 == 1)
    found = chances(session)
    tried = session.state.rewards.rewarded_N
    assert (found[1::4][tried[1::4]] > 0.8).all()
    assert (found[3::4][tried[3::4]] < 0.2).all()
    binary = session.state.beliefs()
    assert (binary.lag_N[1::2] == NEVER).all()
    for rows in (np.arange(0, 40, 2), np.arange(1, 40, 2)):
        of_rows = expected_informative(session.state, session.state.beliefs(rows), 4, rows)
        np.testing.assert_array_equal(of_rows, found[rows])


def test_once_an_outcome_comes_a_category_is_believed_by_outcomes() -> None:
    session = session_of()
    run(session, 4)
    assert reward_rows(session.state) is not None
    (ticket,) = tickets_of(session.draw(4, 1, policy_version=4))
    session.report(ticket, rollouts(1.0, 0.0, 1.0, 1.0))

    assert reward_rows(session.state) is None
    assert session.mean(int(session.state.book.tickets["row"][ticket])) > 0.5


@pytest.mark.parametrize("purpose", [Purpose.HELDOUT, Purpose.CONTROL])
def test_rewards_never_see_held_out_or_control_groups(purpose: Purpose) -> None:
    session = Session(make_config(MIDBAND), make_pool(40, heldout=range(30, 40), categories=()))
    verdicts = run(session, 2, purpose=purpose)

    assert len(verdicts) == 16
    assert not session.state.rewards.is_known
    assert session.state.rows["groups_N"].sum() == 0


def test_dealt_out_beliefs_deal_out_what_rewards_say_too() -> None:
    policies = [
        make_policy(estimator="mixture", estimator_options={}, floor=0.05, reads=r) for r in ("belief", "shuffled")
    ]
    drawn = []
    for policy in policies:
        session = session_of(40, policy)
        for index in range(10):
            for ticket in tickets_of(
                session.draw(index, 20, policy_version=index, purpose=Purpose.PROBE, allow_repeat=True)
            ):
                row = int(session.state.book.tickets["row"][ticket])
                session.report(ticket, group(np.random.default_rng([index, row]), row))
        drawn.append(session.draw(0, 8, policy_version=10).event)
    real, dealt = drawn

    assert real.inclusion_K[real.row_K % 4 == 0].min() > 5.0 * real.inclusion_K[real.row_K % 4 != 0].max(initial=0.0)
    likely = dealt.inclusion_K > 0.4
    assert likely.any()
    assert (dealt.row_K[likely] % 4 != 0).any()  # ten of forty are worth much, whichever they are


def test_waves_run_on_for_rewards_but_a_screen_that_finds_them_alike_ends_the_group() -> None:
    screen = make_policy(wave=WaveConfig(rule="screen", first=2, step=None, low=None, high=None))
    session = session_of(8, screen)
    alike, apart = tickets_of(session.draw(0, 2))
    session.report(alike, [reward(1.0, n=0), reward(1.0, n=1)])
    session.report(apart, [reward(1.0, n=0), reward(2.0, n=1)])
    assert session.ticket(alike)["state"] == TicketState.REPORTED
    assert session.ticket(apart)["state"] == TicketState.OPEN

    until = make_policy(wave=WaveConfig(rule="until_success", first=2, step=2))
    session = session_of(8, until)
    (ticket,) = tickets_of(session.draw(0, 1))
    session.report(ticket, [reward(1.0, n=0), reward(1.0, n=1)])
    assert session.ticket(ticket)["state"] == TicketState.OPEN


def test_probes_leave_prompts_alone_whose_rewards_are_known() -> None:
    session = session_of(32, make_policy(floor=0.2))
    run(session, 1, size=16, purpose=Purpose.AUDIT)
    batch = session.draw(0, 32, policy_version=4, purpose=Purpose.PROBE)

    assert sorted(batch.event.row_K.tolist()) == np.flatnonzero(~session.state.rewards.rewarded_N).tolist()


def test_the_next_attempt_of_a_ticket_begins_without_the_rewards_of_the_one_before() -> None:
    session = session_of()
    (ticket,) = tickets_of(session.draw(0, 1))
    session.checkpoint(0)
    session.report(ticket, [reward(float(n)) for n in range(4)])
    assert session.state.book.tickets["rewarded"][ticket] == 4
    session.restore(0)

    assert session.ticket(ticket)["state"] == TicketState.OPEN
    assert session.state.book.tickets["rewarded"][ticket] == 0
    assert not session.state.rewards.is_known


def test_a_deadline_counts_what_came_by_its_rewards() -> None:
    session = session_of(8, ticket_ttl_s=10.0)
    (ticket,) = tickets_of(session.draw(0, 1))
    session.report(ticket, [reward(1.0, n=0), reward(2.0, n=1)])
    assert session.expire(session.now + 11.0) == [ticket]

    assert session.ticket(ticket)["state"] == TicketState.REPORTED
    assert session.state.rewards.is_known


def test_restored_replayed_and_resumed_runs_have_learned_the_same_and_draw_alike() -> None:
    session = session_of(categories=("a", "b"))
    run(session, 6)
    session.checkpoint(5)
    after = session.fork()
    saved = {name: array.tobytes() for name, array in session.state.rewards.state().items()}
    run(session, 4, first=6)
    assert {name: array.tobytes() for name, array in session.state.rewards.state().items()} != saved
    session.restore(5)
    assert {name: array.tobytes() for name, array in session.state.rewards.state().items()} == saved
    for other in (session, after):
        run(other, 3, first=6)
    drawn = [what_was_drawn(other.draw(9, 5, policy_version=9)) for other in (session, after)]
    assert drawn[0] == drawn[1]
    stored = snapshot(session.state)
    assert snapshot(session.replayed().state) == stored
    assert snapshot(session.resumed(stored).state) == stored


def test_a_reward_sent_again_is_a_duplicate_and_another_one_a_conflict() -> None:
    session = session_of()
    (ticket,) = tickets_of(session.draw(0, 1))
    sent = [reward(float(n)) for n in range(4)]
    session.report(ticket, sent)

    assert session.report(ticket, sent).duplicate == 4
    assert {r.code for r in session.report(ticket, [reward(9.0), *sent[1:]]).rejected} == {"report_conflict"}


def test_the_audit_has_no_pass_rate_of_groups_without_outcomes() -> None:
    session = session_of(40, audit_share=0.5)
    run(session, 12, size=4)
    found = audit_run(session.state)

    assert found.pass_rate.uniform.estimate is None
    assert found.degenerate.uniform.estimate is not None
    (warning,) = found.warnings
    assert warning.startswith("48 groups have rewards and no outcome: nothing is said of pass rates")
    assert found.verdict is None
    assert found.claim_reasons == ()
