"""Prompts at rest in a run: what sends them there and back, what is drawn meanwhile, and what a restore makes of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from selector.config import LifecycleConfig, PolicyConfig, RunConfig
from selector.errors import UnknownConfig
from selector.policies import PRESETS, build_policy, override
from selector.run.snapshot import snapshot
from selector.types import Lifecycle, Purpose
from tests.selector.checked_run import fingerprint
from tests.selector.engine_cases import FLAT_BETA, Session, make_config, make_policy, make_pool, redraw, rollouts

NEW, ACTIVE, MASTERED, DEFERRED = Lifecycle
RULES = LifecycleConfig()
SOLVED, MIXED, FAILED = (1.0,) * 8, (1.0, 0.0) * 4, (0.0,) * 8


def new_run(num_rows: int = 4, rules: LifecycleConfig | None = RULES, **config: Any) -> Session:
    """Groups of eight, beliefs of a flat Beta prior."""
    policy = make_policy(lifecycle=rules)
    return Session(make_config(policy, **{"group_size": 8, **config}), make_pool(num_rows))


def go_on(session: Session, outcomes: Mapping[int, tuple[float, ...]], *, draws: int = 1) -> None:
    """Draws the whole pool and answers by row, MIXED unless said."""
    for _ in range(draws):
        batch = session.draw(session.state.train_draws, session.state.num_rows, short="fill")
        for place, row in enumerate(batch.event.row_K.tolist()):
            session.report(batch.first_ticket + place, rollouts(*outcomes.get(row, MIXED)))


def stages(session: Session) -> list[Lifecycle]:
    return [Lifecycle(int(stage)) for stage in session.state.rows["lifecycle_N"]]


def test_prompts_go_to_rest_and_come_back_by_their_groups() -> None:
    session = new_run()

    go_on(session, {0: SOLVED, 1: FAILED}, draws=2)
    assert stages(session) == [ACTIVE] * 4
    go_on(session, {0: SOLVED, 1: FAILED})
    assert stages(session) == [MASTERED, DEFERRED, ACTIVE, ACTIVE]
    go_on(session, {0: SOLVED, 1: FAILED}, draws=3)
    assert stages(session) == [MASTERED, DEFERRED, ACTIVE, ACTIVE]
    assert session.state.rows["reviews_N"].tolist() == [3, 3, 0, 0]
    # 5 of 8 are too few for one review at 0.9, though 53 of 56 passed; one pass of 56 ends a deferral.
    go_on(session, {0: (1.0,) * 5 + (0.0,) * 3, 1: (0.0,) * 7 + (1.0,)})
    assert stages(session) == [ACTIVE] * 4
    assert session.state.rows["reviews_N"].tolist() == [0] * 4
    assert session.state.rows["mastered_draw_N"].tolist() == [4, 0, 0, 0]


def test_without_rules_no_prompt_ever_rests() -> None:
    session = new_run(rules=None)

    go_on(session, {0: SOLVED, 1: FAILED}, draws=12)

    assert stages(session) == [ACTIVE] * 4
    assert session.state.alarms == {}


def test_a_group_drawn_before_its_prompt_was_mastered_is_no_review() -> None:
    session = new_run(1)
    go_on(session, {0: SOLVED}, draws=7)
    session.configure(policy=replace(session.state.config.policy, lifecycle=replace(RULES, groups=9)))
    batch = session.draw(7, 3, allow_repeat=True)
    session.report(batch.first_ticket, rollouts(*SOLVED))
    session.report(batch.first_ticket + 1, rollouts(*SOLVED))
    assert stages(session) == [MASTERED]

    # 74 of 80 by now: a belief that still says mastered, and a review that would say no.
    session.report(batch.first_ticket + 2, rollouts(1.0, 1.0, *FAILED[2:]))

    assert stages(session) == [MASTERED]
    go_on(session, {0: (1.0,) * 5 + (0.0,) * 3})
    assert stages(session) == [ACTIVE]


def test_rewards_that_differ_keep_a_prompt_without_a_pass_at_work() -> None:
    session = new_run(2)
    for index in range(6):
        batch = session.draw(index, 2)
        for place, row in enumerate(batch.event.row_K.tolist()):
            sent = rollouts(*FAILED)
            shaped = [replace(r, reward=-0.1 * n * (row == 0)) for n, r in enumerate(sent)]
            session.report(batch.first_ticket + place, shaped)

    assert stages(session) == [ACTIVE, DEFERRED]


@pytest.mark.parametrize("purpose", [Purpose.HELDOUT, Purpose.CONTROL])
def test_groups_that_no_belief_sees_move_nothing(purpose: Purpose) -> None:
    session = Session(make_config(make_policy(lifecycle=RULES), group_size=8), make_pool(4, heldout=[2, 3]))
    for index in range(8):
        batch = session.draw(index, 2, purpose=purpose)
        for place in range(2):
            session.report(batch.first_ticket + place, rollouts(*SOLVED))

    assert stages(session) == [NEW] * 4
    assert not session.state.rows["failed_N"].any()


def test_a_mastered_prompt_returns_when_its_belief_has_aged_below_the_level() -> None:
    # What was seen fades to the prior, whose median is one half.
    policy = make_policy(lifecycle=RULES, estimator_options=FLAT_BETA | {"process_noise": 0.01})
    session = Session(make_config(policy, group_size=8), make_pool(40))
    solved = dict.fromkeys(range(8), SOLVED)
    go_on(session, solved, draws=6)
    assert stages(session)[:8] == [MASTERED] * 8
    request = session.request(6, 20, policy_version=100_000)
    session.step(0, 100_000)

    event = session.engine.draw(request, now=0.0)

    assert event is not None
    assert event.woken == list(range(8))
    assert event.row_K.tolist() == redraw(session.state, request, event.revisit_draws).rows_K.tolist()
    assert stages(session)[:8] == [MASTERED] * 8  # deciding changes nothing
    session.apply(event)
    assert stages(session)[:8] == [ACTIVE] * 8
    assert fingerprint(session.replayed().state) == fingerprint(session.state)


# Draws


def test_prompts_at_rest_get_the_review_share_and_each_review_halves_their_part_of_it() -> None:
    session = new_run(40, audit_share=0.1, review_share=0.25, revisit_draws=1000)
    solved = dict.fromkeys(range(20), SOLVED)
    go_on(session, solved, draws=3)
    assert stages(session) == [MASTERED] * 20 + [ACTIVE] * 20
    session.state.rows["reviews_N"][:10] = 2
    request = session.request(3, 16)
    event = session.engine.draw(request, now=0.0)
    drawn = redraw(session.state, request, 1000)
    assert event is not None
    assert event.inclusion_K.tolist() == drawn.inclusion_K.tolist()
    chance_N = drawn.selected_inclusion_N

    assert chance_N[:20].sum() == pytest.approx(4)
    assert chance_N[20:].sum() == pytest.approx(12 - drawn.num_audit)
    due_N = chance_N[:20] == 1
    often, seldom = chance_N[10:20][~due_N[10:]].max(), chance_N[:10][~due_N[:10]].max()
    # A fifth of the places is spread evenly, the floor of this policy.
    rate_N = np.where(np.arange(20) < 10, 0.25, 1.0)[~due_N]
    spread = 0.2 / len(rate_N)
    assert often / seldom == pytest.approx((0.8 / rate_N.sum() + spread) / (0.8 * 0.25 / rate_N.sum() + spread))


def test_a_pool_all_at_rest_answers_short_and_says_so_once() -> None:
    for outcome, name, reason in (
        ((SOLVED, SOLVED), "pool_all_mastered", "all_mastered"),
        ((FAILED, FAILED), "pool_all_deferred", "all_deferred"),
        ((SOLVED, FAILED), "pool_no_signal", "all_mastered"),
    ):
        session = new_run(4, audit_share=0.1, review_share=0.25)
        outcomes = {row: outcome[row // 2] for row in range(4)}
        go_on(session, outcomes, draws=3)
        assert session.state.alarms == {}
        for index in range(3, 12):
            batch = session.draw(index, 4)
            # One audit ticket and one review, whatever else is asked for.
            assert 1 <= len(batch.event.row_K) <= 2
            assert batch.event.reason == reason
            for place, row in enumerate(batch.event.row_K.tolist()):
                session.report(batch.first_ticket + place, rollouts(*outcomes[row]))
        assert list(session.state.alarms) == [name]
        assert session.state.alarms[name]["draws"] == 3


def test_every_prompt_at_rest_is_drawn_within_the_promised_period() -> None:
    session = new_run(30, audit_share=0.1, review_share=0.1, revisit_draws=30)
    go_on(session, dict.fromkeys(range(30), SOLVED), draws=1)
    go_on(session, dict.fromkeys(range(30), SOLVED), draws=2)
    last_N, longest = np.full(30, session.state.train_draws), 0
    for _ in range(100):
        batch = session.draw(session.state.train_draws, 10)
        for place in range(len(batch.event.row_K)):
            session.report(batch.first_ticket + place, rollouts(*SOLVED))
        now = session.state.train_draws
        longest = max(longest, int((now - last_N[batch.event.row_K]).max()))
        last_N[batch.event.row_K] = now
    assert stages(session) == [MASTERED] * 30
    assert (session.state.rows["reviews_N"] > 0).all()
    assert longest <= 30


# Going back, changing the rules


def test_a_restore_puts_stages_back_exactly_and_the_run_goes_on_as_the_other_did() -> None:
    session = new_run(audit_share=0.2)
    go_on(session, {0: SOLVED, 1: FAILED}, draws=3)
    session.checkpoint(1)
    before = {name: array.tobytes() for name, array in session.state.rewindable().items()}
    go_on(session, {0: FAILED, 1: SOLVED, 2: SOLVED}, draws=3)
    assert stages(session)[:2] == [ACTIVE, ACTIVE]
    after = {name: array.tobytes() for name, array in session.state.rewindable().items()}

    session.restore(1)

    assert {name: array.tobytes() for name, array in session.state.rewindable().items()} == before
    assert stages(session)[:2] == [MASTERED, DEFERRED]
    go_on(session, {0: FAILED, 1: SOLVED, 2: SOLVED}, draws=3)
    again = {name: array.tobytes() for name, array in session.state.rewindable().items()}
    assert again | {"counters": b""} == after | {"counters": b""}
    assert snapshot(session.replayed().state) == snapshot(session.state)
    assert snapshot(session.fork().state) == snapshot(session.state)


def test_kept_beliefs_keep_their_stages_and_later_draws_count_as_after_them() -> None:
    session = new_run()
    session.checkpoint(1)
    go_on(session, {0: SOLVED, 1: FAILED}, draws=4)

    session.restore(1, beliefs="keep")

    assert stages(session)[:2] == [MASTERED, DEFERRED]
    assert session.state.rows["failed_N"].tolist() == [0, 4, 0, 0]
    assert session.state.rows["mastered_draw_N"].tolist() == [1, 0, 0, 0]
    go_on(session, {0: (1.0,) * 5 + (0.0,) * 3, 1: FAILED})
    assert stages(session)[:2] == [ACTIVE, DEFERRED]


def test_other_rules_wake_every_prompt_and_a_restore_to_before_them_does_too() -> None:
    session = new_run()
    go_on(session, {0: SOLVED, 1: FAILED}, draws=3)
    session.checkpoint(1)
    assert session.state.rows["lifecycle_N"].max() == DEFERRED

    session.configure(audit_share=0.3)
    assert stages(session)[:2] == [MASTERED, DEFERRED]
    session.configure(policy=replace(session.state.config.policy, lifecycle=None))
    assert stages(session) == [ACTIVE] * 4
    session.restore(1)
    assert stages(session) == [ACTIVE] * 4
    assert session.state.rows["mastered_draw_N"].tolist() == [0] * 4
    assert snapshot(session.replayed().state) == snapshot(session.state)
    assert snapshot(session.fork().state) == snapshot(session.state)


def test_a_change_that_leaves_the_rules_alone_lets_a_restore_bring_stages_back() -> None:
    session = new_run()
    go_on(session, {0: SOLVED, 1: FAILED}, draws=3)
    session.checkpoint(1)
    session.configure(audit_share=0.3)
    go_on(session, {0: FAILED, 1: SOLVED})

    session.restore(1)

    assert stages(session)[:2] == [MASTERED, DEFERRED]


def test_states_saved_by_a_version_without_these_columns_are_read() -> None:
    session = new_run(rules=None)
    go_on(session, {}, draws=2)
    saved = session.state.rewindable()
    for name in ("failed_N", "reviews_N", "mastered_draw_N"):
        del saved[name]

    session.state.rewind(saved)

    assert not session.state.rows["failed_N"].any()
    assert stages(session) == [ACTIVE] * 4


# Configurations


def test_rules_are_stored_hashed_and_read_back() -> None:
    config = make_config(make_policy(lifecycle=RULES))

    assert RunConfig.from_dict(config.to_dict()) == config
    assert isinstance(RunConfig.from_dict(config.to_dict()).policy, PolicyConfig)
    hashes = {
        make_config(make_policy(lifecycle=rules)).config_hash()
        for rules in (None, RULES, replace(RULES, level=0.8), replace(RULES, groups=4))
    }
    assert len(hashes) == 4


def test_rest_is_refused_where_every_prompt_is_drawn_alike() -> None:
    uniform = PRESETS["uniform"].config

    with pytest.raises(ValueError, match="lifecycle has no effect with utility 'uniform'"):
        build_policy(replace(uniform, lifecycle=RULES), weights="none", advantage="grpo")
    with pytest.raises(ValueError, match="no effect with utility 'uniform'"):
        override(uniform, {"lifecycle": RULES})
    assert override(replace(PRESETS["midband"].config, lifecycle=RULES), {"utility": "uniform"}).lifecycle is None


def test_rest_is_refused_where_only_informative_groups_are_reported() -> None:
    with pytest.raises(UnknownConfig, match=r"lifecycle needs feed 'all'.*leave lifecycle out"):
        make_config(make_policy(lifecycle=RULES), feed="informative_only")
