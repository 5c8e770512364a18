"""Runs that begin with what another run on their pool had learned."""

from typing import Any

import numpy as np
import pytest

from predictors.base import NEVER
from predictors.registry import ESTIMATORS
from selector.beliefs.warm_start import plan_warm_start, unpacked
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.errors import SnapshotDamaged, UnknownConfig
from selector.pool import PoolState
from selector.replay import MemoryArchive
from selector.run.events import Event, WarmStarted, event_from_json
from selector.run.snapshot import snapshot
from tests.selector.beliefs.test_rewarded import run as run_rewards
from tests.selector.engine_cases import (
    Session,
    beliefs_of,
    coin,
    make_config,
    make_policy,
    make_pool,
    rollouts,
    through_json,
    tickets_of,
    what_was_drawn,
)

ROWS = 24


def mixture(**changes: Any) -> RunConfig:
    return make_config(make_policy(estimator="mixture", estimator_options={}, **changes))


def trained(config: RunConfig | None = None, batches: int = 10, pool: PoolState | None = None) -> Session:
    """A run of some batches over prompts of rising pass rate, one policy version each."""
    session = Session(config or mixture(), pool or make_pool(ROWS), run="before")
    answer = coin(3, (np.arange(ROWS) + 0.5) / ROWS)
    for index in range(batches):
        session.answer_batch(session.draw(index, 6, policy_version=index), answer)
    return session


def warm_event(source: Session, config: RunConfig | None = None, discount: float | None = 1.0) -> WarmStarted:
    return plan_warm_start(
        config or source.state.config,
        source.state.config,
        source.state.rewindable(),
        run="before",
        step=None,
        position=source.state.seq,
        discount=discount,
    )


def begun(event: WarmStarted, config: RunConfig, pool: PoolState | None = None) -> Session:
    """A session of a run that begins with that event."""
    session = Session(config, pool or make_pool(ROWS))
    session.engine, events = RunEngine.begin("r", config, session.pools[1], event)
    session.log = [through_json(one) for one in events]
    session.archive = MemoryArchive(session.pools, session.log)
    return session


def play(session: Session, first: int = 0, batches: int = 4, version: int = 0) -> list[Any]:
    answer, drawn = coin(9, (np.arange(ROWS + 4) + 0.5) / (ROWS + 4)), list[Any]()
    for index in range(first, first + batches):
        batch = session.draw(index, 6, policy_version=version + index)
        session.answer_batch(batch, answer)
        drawn.append(what_was_drawn(batch))
    return drawn


def test_without_a_discount_the_new_run_believes_what_the_other_does_to_the_bit() -> None:
    source = trained()
    session = begun(warm_event(source), source.state.config)

    assert beliefs_of(session.state) == beliefs_of(source.state)
    one, other = session.state.beliefs(), source.state.beliefs()
    np.testing.assert_array_equal(one.mean_N, other.mean_N)
    np.testing.assert_array_equal(one.lag_N, other.lag_N)
    costs = [s.costs.mean("tokens", s.clock(s.belief_version)) for s in (session.state, source.state)]
    np.testing.assert_array_equal(costs[0], costs[1])
    assert session.state.rows["groups_N"].sum() == 0
    assert session.state.started_from == {"run": "before", "step": None, "position": source.state.seq, "discount": 1.0}


def test_its_first_version_counts_as_the_other_runs_last_whatever_it_is_called() -> None:
    source, drawn = trained(), []
    for version in (0, 1000):
        session = begun(warm_event(source), source.state.config)
        drawn.append(play(session, version=version))
        lag_N = session.state.beliefs().lag_N
        assert lag_N.max() <= 9 + 4
    assert drawn[0] == drawn[1]


def test_the_warm_run_draws_better_from_the_start() -> None:
    """Two prompts in three never pass: the first batches of a warm run hold fewer of them. Bound: every seed."""
    pass_rate_N = np.where(np.arange(ROWS) % 3 == 0, 0.5, 0.0)
    config = mixture(power=4.0, floor=0.05)
    source = Session(config, make_pool(ROWS))
    for index in range(20):
        source.answer_batch(source.draw(index, 8, policy_version=index), coin(1, pass_rate_N))
    warm = begun(warm_event(source, discount=0.5), config)
    cold = Session(config, make_pool(ROWS))
    useful = [np.mean([pass_rate_N[s.draw(0, 8).event.row_K] > 0]) for s in (warm, cold)]
    assert useful[0] >= useful[1] + 0.25


@pytest.mark.parametrize(
    ("estimator", "within"),
    [
        ("mixture", 0.1),
        ("features", 0.1),
        ("discounted_beta", 0.1),
        ("kalman_arcsine", 0.1),
        ("kalman_logit", 0.3),  # there a rollout is worth more as the mean goes towards 1/2
    ],
)
def test_a_discount_makes_beliefs_less_sure_and_draws_them_towards_the_prior(estimator: str, within: float) -> None:
    config = make_config(make_policy(estimator=estimator, estimator_options={}))
    source = trained(config, batches=20)
    tried = source.state.beliefs().lag_N != NEVER
    found = {}
    for kept in (1.0, 0.5, 0.0):
        session = begun(warm_event(source, discount=kept), config)
        found[kept] = session.state.beliefs()
    whole, half, none = (found[kept] for kept in (1.0, 0.5, 0.0))

    np.testing.assert_allclose(half.n_eff_N[tried], 0.5 * whole.n_eff_N[tried], rtol=within)  # fewer age more slowly
    assert none.n_eff_N.max() < 0.01
    spread = [np.ptp(beliefs.mean_N[tried]) for beliefs in (whole, half, none)]
    assert spread[0] > spread[1] > spread[2]
    assert (half.variance_N[tried] >= whole.variance_N[tried] * 0.99).mean() > 0.8


def test_half_of_eight_rollouts_are_four_by_hand() -> None:
    """A flat fixed prior: Beta(1 + 6, 1 + 2) becomes Beta(1 + 3, 1 + 1)."""
    source = Session(make_config(group_size=8), make_pool(4))
    (ticket,) = tickets_of(source.draw(0, 1))
    source.report(ticket, rollouts(*[1.0] * 6, 0.0, 0.0))
    row = int(source.state.book.tickets["row"][ticket])
    session = begun(warm_event(source, discount=0.5), source.state.config, make_pool(4))

    assert session.mean(row) == pytest.approx(4 / 6)


def test_every_estimator_can_be_taken_over_whole_and_says_so_if_it_cannot_discount() -> None:
    for name in ESTIMATORS:
        config = make_config(make_policy(estimator=name, estimator_options={}))
        source = trained(config, batches=3)
        assert beliefs_of(begun(warm_event(source), config).state) == beliefs_of(source.state)
        if name in ("mixture", "features", "discounted_beta", "kalman_arcsine", "kalman_logit", "value"):
            assert warm_event(source, discount=None).discount == 0.5
        else:
            with pytest.raises(UnknownConfig, match=r"start_from\.discount.*give 1"):
                warm_event(source, discount=None)


def test_another_estimator_or_other_options_are_refused_by_name() -> None:
    source = trained()
    for policy in (
        make_policy(estimator="kalman_logit", estimator_options={}),
        make_policy(estimator="mixture", estimator_options={"memory_groups": 300.0}),
    ):
        with pytest.raises(UnknownConfig, match="'before' has estimator 'mixture'"):
            warm_event(source, make_config(policy))


def test_recovered_and_restored_runs_are_the_live_one_to_the_bit_and_need_the_other_run_no_more() -> None:
    source = trained()
    event = warm_event(source, discount=0.7)
    session = begun(event, source.state.config)
    source.answer_batch(source.draw(10, 6, policy_version=10), coin(4, np.full(ROWS, 0.5)))  # it goes on, and
    del source  # is gone
    session.push(0, extra={0: 1.0})
    session.checkpoint(0)
    first = play(session)
    session.checkpoint(4)
    after = session.fork()
    play(session, first=4)
    session.restore(4)
    drawn = [play(other, first=4) for other in (session, after)]
    assert drawn[0] == drawn[1]
    stored = snapshot(session.state)
    assert snapshot(session.replayed().state) == stored
    assert snapshot(session.resumed(stored).state) == stored
    session.restore(0)
    assert play(session) == first
    assert snapshot(session.replayed().state) == snapshot(session.state)


def test_a_run_may_begin_with_what_a_warm_run_learned() -> None:
    one = begun(warm_event(trained()), mixture())
    play(one)
    event = warm_event(one)
    other = begun(event, mixture())

    assert event.policy_version == 9 + 3
    assert beliefs_of(other.state) == beliefs_of(one.state)
    np.testing.assert_array_equal(other.state.beliefs().lag_N, one.state.beliefs().lag_N)


def test_prompts_that_came_into_the_pool_since_are_believed_as_never_tried() -> None:
    source = trained()
    session = begun(warm_event(source), source.state.config, make_pool(ROWS + 4))
    found = session.state.beliefs()

    np.testing.assert_array_equal(found.mean_N[:ROWS], source.state.beliefs().mean_N)
    assert (found.lag_N[ROWS:] == NEVER).all()
    play(session)


def test_what_was_learned_of_rewards_is_taken_over_too() -> None:
    config = mixture(power=4.0, floor=0.05)
    source = Session(config, make_pool(40, categories=()))
    run_rewards(source, 8)
    whole = begun(warm_event(source), config, make_pool(40, categories=()))
    half = begun(warm_event(source, discount=0.5), config, make_pool(40, categories=()))

    want, have, less = (s.state.rewards.beliefs(7, 4) for s in (source, whole, half))
    np.testing.assert_array_equal(have.informative_N, want.informative_N)
    assert (less.n_eff_N <= want.n_eff_N).all()
    assert less.n_eff_N.sum() == pytest.approx(0.5 * want.n_eff_N.sum(), rel=0.2)
    assert np.abs(less.informative_N - 0.5).mean() < np.abs(want.informative_N - 0.5).mean()
    run_rewards(whole, 3)
    stored = snapshot(whole.state)
    assert snapshot(whole.replayed().state) == stored


def test_what_a_log_holds_of_it_is_checked() -> None:
    event = warm_event(trained())
    for learned in ("not base64!", event.learned[:-8], "AAAA" + event.learned[4:]):
        broken: Event = event_from_json(event.kind, {**event.to_json(), "learned": learned})
        assert isinstance(broken, WarmStarted)
        with pytest.raises(SnapshotDamaged):
            unpacked(broken)
