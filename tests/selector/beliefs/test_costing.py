"""What a run learns of the costs of its prompts, and what utilities per cost make of it."""

from typing import Any

import numpy as np
import pytest

from predictors.costs import Costs
from selector.batches.drawing import claim_of
from selector.beliefs.costing import expected_costs, group_cost, rollout_costs
from selector.config import PolicyConfig, RunConfig
from selector.policies import PRESETS, build_policy, override
from selector.run.snapshot import pack, restore_snapshot, snapshot, unpack
from selector.types import Purpose, RolloutStatus, VoidReason
from tests.selector.engine_cases import (
    Session,
    error,
    make_config,
    make_policy,
    make_pool,
    rollout,
    tickets_of,
    what_was_drawn,
)


def costs_of(session: Session) -> dict[str, bytes]:
    """Everything that is known of costs, to the bit."""
    return {name: array.tobytes() for name, array in session.state.costs.state().items()}


def lengths(row: int, index: int) -> list[int]:
    """Tokens of four rollouts: prompts of the second half take ten times as many."""
    rng = np.random.default_rng([row, index])
    return [int(x) for x in np.exp(rng.normal(0.0, 0.1, 4)) * (100 if row < 10 else 1000)]


def answer(session: Session, ticket: int, index: int, outcomes: tuple[float, ...] = (1.0, 0.0, 1.0, 0.0)) -> None:
    row = int(session.state.book.tickets["row"][ticket])
    sent = [
        rollout(outcome, tokens=tokens, seconds=tokens / 50.0)
        for outcome, tokens in zip(outcomes, lengths(row, index), strict=True)
    ]
    session.report(ticket, sent)


def trained(session: Session, first: int, count: int, size: int = 5) -> None:
    for index in range(first, first + count):
        for ticket in tickets_of(session.draw(index, size, policy_version=index)):
            answer(session, ticket, index)


def session_of(**policy: Any) -> Session:
    return Session(make_config(make_policy(**policy)), make_pool(20, categories=()))


def test_what_came_back_is_read_from_the_book_rollout_by_rollout() -> None:
    session = session_of()
    tickets = list(tickets_of(session.draw(0, 2, policy_version=3)))
    session.report(
        tickets[0],
        [
            rollout(1.0, n=0, tokens=100, seconds=2.0),
            rollout(1.0, n=0, fragment=1, tokens=50, seconds=1.5),
            rollout(0.0, n=1, tokens=400, seconds=8.0, status=RolloutStatus.TRUNCATED),
            error(n=2),
            rollout(None, n=3, tokens=70),
        ],
        version=2,
    )
    session.report(tickets[1], [rollout(0.0, n=n, tokens=10 + n) for n in range(4)])

    seen = rollout_costs(session.state, np.array(tickets))

    rows = session.state.book.tickets["row"][tickets]
    assert seen.rows_R.tolist() == [rows[0]] * 2 + [rows[1]] * 4
    assert seen.tokens_R.tolist() == [150, 400, 10, 11, 12, 13]
    assert seen.seconds_R.tolist() == [3.5, 8.0, 0.0, 0.0, 0.0, 0.0]
    assert seen.truncated_R.tolist() == [False, True] + [False] * 4
    assert seen.version_R.tolist() == [2, 2, 3, 3, 3, 3]


def test_a_ticket_names_the_tokens_that_were_expected_when_it_was_drawn() -> None:
    session = session_of()
    assert session.draw(0, 5).event.tokens_K is None
    for ticket in tickets_of(session.state.batches[0]):
        answer(session, ticket, 0)
    trained(session, 1, 20)

    batch = session.draw(21, 20)

    assert batch.event.tokens_K is not None
    assert (batch.event.tokens_K[batch.event.row_K < 10] < 150).all()
    assert (batch.event.tokens_K[batch.event.row_K >= 10] > 700).all()


@pytest.mark.parametrize("purpose", [Purpose.HELDOUT, Purpose.CONTROL])
def test_costs_never_see_held_out_or_control_rollouts(purpose: Purpose) -> None:
    session = Session(make_config(), make_pool(20, heldout=range(5)))
    before = costs_of(session)
    for ticket in tickets_of(session.draw(0, 5, purpose=purpose)):
        answer(session, ticket, 0)

    assert costs_of(session) == before
    assert expected_costs(session.state)["tokens"] == pytest.approx(np.full(20, np.nan), nan_ok=True)


@pytest.mark.parametrize("purpose", [Purpose.PROBE, Purpose.AUDIT, Purpose.TRAIN])
def test_costs_learn_from_every_purpose_that_beliefs_see(purpose: Purpose) -> None:
    session = session_of()
    for ticket in tickets_of(session.draw(0, 5, purpose=purpose)):
        answer(session, ticket, 0)

    assert np.isfinite(expected_costs(session.state)["seconds"]).all()


def test_a_void_group_says_nothing_of_costs() -> None:
    session = session_of()
    first = session.draw(0, 2).first_ticket
    before = costs_of(session)
    session.report(first, [rollout(1.0, n=0)], final=True)
    session.void(first + 1, VoidReason.SURPLUS)

    assert costs_of(session) == before


@pytest.mark.parametrize("per", ["token", "second"])
def test_prompts_of_equal_pass_rate_are_drawn_in_inverse_proportion_to_their_cost(per: str) -> None:
    session = session_of(per=per, floor=1e-9)
    for index in range(12):
        for ticket in tickets_of(session.draw(index, 20, policy_version=index)):
            answer(session, ticket, index)

    event = session.draw(12, 1).event
    cost_N = group_cost(session.state, session.state.config.policy.per, 4)
    assert cost_N is not None
    assert cost_N[10:].mean() / cost_N[:10].mean() == pytest.approx(10.0, rel=0.1)
    share_N = 1.0 / cost_N / np.sum(1.0 / cost_N)
    assert event.inclusion_K[0] == pytest.approx(share_N[event.row_K[0]], rel=1e-6)


@pytest.mark.parametrize("per", ["token", "second"])
def test_while_nothing_is_known_costs_prefer_nothing(per: str) -> None:
    plain, priced = session_of(), session_of(per=per)
    for session in (plain, priced):
        for ticket in tickets_of(session.draw(0, 5)):
            session.report(ticket, [rollout(1.0, n=n, tokens=None) for n in range(4)])

    ours, theirs = plain.draw(1, 5).event, priced.draw(1, 5).event
    assert ours.row_K.tolist() == theirs.row_K.tolist()
    np.testing.assert_array_equal(ours.inclusion_K, theirs.inclusion_K)


@pytest.mark.parametrize("weights", ["none", "horvitz_thompson", "clipped"])
def test_the_claim_is_the_same_per_cost(weights: Any) -> None:
    def config(policy: PolicyConfig) -> RunConfig:
        return make_config(policy, weights=weights)

    assert claim_of(config(make_policy(per="second"))) == claim_of(config(make_policy()))


def test_costs_where_they_cannot_count_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="per token has no effect with utility 'uniform'"):
        override(PRESETS["uniform"].config, {"per": "token"})
    with pytest.raises(ValueError, match="per has no effect with utility 'uniform'"):
        build_policy(make_policy(utility="uniform", per="second"), weights="none", advantage="grpo")
    with pytest.raises(ValueError, match="reads 'shuffled'"):
        build_policy(make_policy(reads="shuffled", per="token"), weights="none", advantage="grpo")
    assert override(make_policy(per="token"), {"utility": "uniform"}).per is None
    assert override(PRESETS["midband"].config, {"per": "token"}).per == "token"


def test_a_policy_without_costs_hashes_as_it_did_before_there_were_any() -> None:
    assert "per" not in make_policy().hashed()
    assert make_config().config_hash() != make_config(make_policy(per="token")).config_hash()


def test_restored_replayed_and_resumed_runs_know_the_same_costs_and_draw_alike() -> None:
    session = session_of(per="second")
    trained(session, 0, 6)
    session.checkpoint(5)
    at_checkpoint = costs_of(session)
    after = session.fork()
    trained(session, 6, 4)
    assert costs_of(session) != at_checkpoint
    session.restore(5)
    assert costs_of(session) == at_checkpoint

    for other in (session, after):
        trained(other, 6, 3)
    drawn = [what_was_drawn(other.draw(9, 5, policy_version=9)) for other in (session, after)]
    assert drawn[0] == drawn[1]
    stored = snapshot(session.state)
    for engine in (session.replayed(), session.resumed(stored)):
        assert {k: v.tobytes() for k, v in engine.state.costs.state().items()} == costs_of(session)
        assert snapshot(engine.state) == stored


def test_a_restore_that_keeps_beliefs_keeps_costs() -> None:
    session = session_of()
    trained(session, 0, 2)
    session.checkpoint(1)
    trained(session, 2, 3)
    before = costs_of(session)

    session.restore(1, beliefs="keep")

    assert costs_of(session) == before


def test_a_snapshot_of_an_older_version_is_read_and_costs_begin_anew() -> None:
    session = session_of(per="token")
    trained(session, 0, 4)
    arrays, document = unpack(snapshot(session.state))
    old = {
        name: array
        for name, array in arrays.items()
        if not name.startswith("rewindable.costs.") and name not in ("rollouts.seconds", "batches.tokens_K")
    }
    document["config"]["policy"].pop("per")

    state = restore_snapshot(pack(old, document), session.archive.pool)

    fresh = Costs()
    fresh.resize(state.pool.category_N + 1)
    ours, theirs = state.costs.state(), fresh.state()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert (state.book.rollouts["seconds"] == 0.0).all()
    assert all(batch.event.tokens_K is None for batch in state.batches)


def test_going_back_to_a_checkpoint_of_an_older_version_begins_costs_anew() -> None:
    session = session_of()
    trained(session, 0, 2)
    saved = {name: array for name, array in session.state.rewindable().items() if not name.startswith("costs.")}

    session.state.rewind(saved)

    assert np.isnan(expected_costs(session.state)["tokens"]).all()
    assert session.state.costs.state()["last_N"].size == 20
