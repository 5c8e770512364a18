"""Controllers in a run: what they are told, when their numbers move, and that no way back loses them."""

from dataclasses import replace
from math import tanh
from typing import Any

import numpy as np
import pytest

from selector.batches.drawing import due_revisits
from selector.config import ControllerConfig, RunConfig
from selector.controllers.base import COUNTS
from selector.policies import PRESETS, override
from selector.run.events import BatchDrawn, event_from_json
from selector.run.snapshot import restore_snapshot, snapshot
from selector.types import Purpose, RolloutStatus
from tests.selector.engine_cases import Session, make_config, make_policy, make_pool, rollout, what_was_drawn

POOLS = override(
    make_policy(utility="pools", low=0.4, high=0.6),
    {"easy_weight": 0.2, "hard_weight": 0.2, "controller": ControllerConfig(name="pool_weights")},
)


def adarft(**changes: Any) -> RunConfig:
    return RunConfig(pool="pool", policy=PRESETS["adarft"].config, group_size=4, **({"audit_share": 0.0} | changes))


def counted(session: Session) -> dict[str, float]:
    return dict(zip(COUNTS, session.state.seen.tolist(), strict=True))


def numbers_of(session: Session) -> list[dict[str, float]]:
    return [batch.event.controlled for batch in session.state.batches]


def answered(session: Session, index: int, size: int = 4, passes: int = 4, **values: Any) -> None:
    """A batch of groups of four of which so many rollouts pass."""
    session.answer_batch(session.draw(index, size, **values), lambda _row, _index, n: float(n < passes))


def test_a_target_follows_what_came_back_and_each_draw_says_under_which_it_was_made() -> None:
    session = Session(adarft(), make_pool(40))
    for index, passes in enumerate((4, 1, 3)):
        answered(session, index, passes=passes)
    session.draw(3, 4)

    second = 0.5 * tanh(1.0)
    third = max(second + 0.5 * tanh(2 * (0.25 - 0.5)), 0.0)
    expected = [0.0, second, third, third + 0.5 * tanh(2 * (0.75 - 0.5))]
    assert [numbers["target"] for numbers in numbers_of(session)] == pytest.approx(expected)
    assert session.state.controlled == numbers_of(session)[-1]


def test_the_prompts_drawn_are_those_nearest_to_the_target_in_force() -> None:
    session = Session(adarft(review_share=0.0), make_pool(40))
    answered(session, 0, passes=4)
    difficulty_N = session.state.pool.features["difficulty"]
    scaled_N = (difficulty_N - difficulty_N.min()) / (difficulty_N.max() - difficulty_N.min())

    away = set[int]()
    for index in (1, 2):
        due = set(np.flatnonzero(due_revisits(session.state, session.state.revisit_draws)).tolist()) - away
        order = np.argsort(np.abs(scaled_N - 0.5 * tanh(1.0))).tolist()
        nearest = [row for row in order if row not in away | due]
        drawn = session.draw(index, 4).event.row_K.tolist()
        assert len(due) < 4
        assert sorted(drawn) == sorted([*due, *nearest[: 4 - len(due)]])
        away |= set(drawn)


def test_held_out_control_and_probe_groups_tell_it_nothing_and_audits_do() -> None:
    session = Session(adarft(audit_share=1.0), make_pool(40, heldout=range(30, 40)))
    answered(session, 0, passes=4)
    assert counted(session)["groups"] == 4
    before = session.state.seen.tobytes()
    for purpose in (Purpose.HELDOUT, Purpose.CONTROL, Purpose.PROBE):
        answered(session, 0, passes=0, purpose=purpose)

    assert session.state.seen.tobytes() == before
    answered(session, 1)
    assert numbers_of(session)[0] == {"target": 0.0}
    assert numbers_of(session)[-1] == {"target": pytest.approx(0.5 * tanh(1.0))}
    # Only train draws are made under its numbers.
    assert numbers_of(session)[1:4] == [{}, {}, {}]


def test_what_is_counted_of_a_batch_by_hand() -> None:
    session = Session(make_config(POOLS), make_pool(8))
    batch = session.draw(0, 6)
    passes = iter((4, 3, 2, 1, 0))
    for ticket in range(batch.first_ticket, batch.first_ticket + 5):
        k = next(passes)
        session.report(ticket, [rollout(float(n < k)) for n in range(4)])
    # A group without enough scores says nothing.
    session.report(5, [rollout(None, status=RolloutStatus.UNSCORED)], final=True)

    # Flat beliefs say one half of every prompt: the middle pool.
    assert counted(session) == {
        "groups": 5, "easy": 1, "hard": 1, "share_sum": 2.5, "low_groups": 0, "low_informative": 0,
        "middle_groups": 5, "middle_informative": 3, "high_groups": 0, "high_informative": 0,
    }  # fmt: skip


def test_a_group_counts_for_the_pool_that_its_draw_had_predicted() -> None:
    session = Session(make_config(POOLS), make_pool(4))
    session.answer_batch(session.draw(0, 4), lambda row, _, n: float(n < (0, 4, 2, 2)[row]))
    # Beta means after a group of four: 1/6, 5/6, 1/2, 1/2.
    session.answer_batch(session.draw(1, 4), lambda row, _, n: float(n < 2))

    found = counted(session)
    assert (found["low_groups"], found["middle_groups"], found["high_groups"]) == (1, 2, 1)
    assert (found["low_informative"], found["middle_informative"], found["high_informative"]) == (1, 2, 1)
    session.draw(2, 4)
    assert numbers_of(session)[1] == {"easy_weight": 0.2, "hard_weight": 0.2}
    # (1 + 1)/(1 + 2) over (2 + 1)/(2 + 2) is 8/9.
    assert numbers_of(session)[2] == pytest.approx({"easy_weight": 0.18 + 0.8 / 9, "hard_weight": 0.18 + 0.8 / 9})
    assert counted(session)["groups"] == 0


def test_a_refill_goes_on_under_the_numbers_of_its_batch_and_counts_towards_the_next() -> None:
    session = Session(adarft(), make_pool(40))
    answered(session, 0, passes=4)
    answered(session, 1, passes=0)
    answered(session, 1, passes=4, refill=1)
    session.draw(2, 4)

    first, second, refill, third = (numbers["target"] for numbers in numbers_of(session))
    assert refill == second > first
    # Four groups of the batch and four of its refill: one half passed.
    assert third == pytest.approx(second)


@pytest.mark.parametrize("preset", ["adarft", "vcrl"])
def test_recovered_from_the_log_or_a_snapshot_it_draws_the_same_to_the_bit(preset: str) -> None:
    config = RunConfig(pool="pool", policy=PRESETS[preset].config, group_size=4, audit_share=0.25, seed=5)
    session = Session(config, make_pool(60))
    for index in range(6):
        answered(session, index, 8, passes=index % 5)
    session.answer_batch(session.draw(6, 8), lambda row, _, n: float(n < row % 3))
    stored = snapshot(session.state)
    ways = [session.replayed().state, restore_snapshot(stored, session.archive.pool), session.resumed(stored).state]
    batch = session.draw(7, 8)
    assert batch.event.controlled

    for state in ways:
        other = session.fork()
        other.engine.state = state
        again = other.draw(7, 8)
        assert what_was_drawn(again) == what_was_drawn(batch)
        assert again.event.controlled == batch.event.controlled
        assert list(again.event.controlled) == list(batch.event.controlled)


@pytest.mark.parametrize("beliefs", ["rewind", "keep"])
def test_a_restore_takes_the_numbers_and_what_was_counted_back(beliefs: str) -> None:
    session = Session(adarft(), make_pool(60))
    for index in range(3):
        answered(session, index, passes=4)
    session.checkpoint(3)
    numbers, seen = dict(session.state.controlled), session.state.seen.tobytes()
    forward = session.fork()
    for index in range(3, 6):
        answered(session, index, passes=1)
    assert session.state.controlled != numbers
    session.restore(3, beliefs=beliefs)

    assert session.state.controlled == numbers
    assert session.state.seen.tobytes() == seen
    assert session.draw(3, 4).event.controlled == forward.draw(3, 4).event.controlled
    assert session.replayed().state.controlled == session.state.controlled


def test_another_policy_begins_anew_and_a_restore_to_before_it_does_too() -> None:
    session = Session(adarft(), make_pool(60))
    for index in range(3):
        answered(session, index, passes=4)
    session.checkpoint(3)
    session.configure(policy=override(PRESETS["adarft"].config, {"target": 0.25}))

    assert session.state.controlled == {}
    assert not session.state.seen.any()
    assert session.draw(3, 4).event.controlled == {"target": 0.25}
    session.restore(3)
    assert session.draw(3, 4).event.controlled == {"target": 0.25}
    assert session.replayed().state.controlled == {"target": 0.25}
    stored = snapshot(session.state)
    session.restore(3, restore_id="again")
    assert session.resumed(stored).state.controlled == session.state.controlled == {}


def test_a_change_of_the_audit_share_leaves_the_numbers_as_they_are() -> None:
    session = Session(adarft(), make_pool(60))
    answered(session, 0, passes=4)
    answered(session, 1, passes=4)
    numbers = dict(session.state.controlled)
    session.configure(audit_share=0.5)

    assert session.state.controlled == numbers


def test_a_suggested_size_changes_no_draw() -> None:
    policy = make_policy()
    with_size = replace(policy, controller=ControllerConfig(name="batch_size", options={"wanted": 4.0}))
    plain, advised = (Session(make_config(p), make_pool(40)) for p in (policy, with_size))
    for index in range(4):
        for session in (plain, advised):
            answered(session, index, 8, passes=2 if index else 0)

    for ours, theirs in zip(advised.state.batches, plain.state.batches, strict=True):
        assert what_was_drawn(ours) | {"digest": ""} == what_was_drawn(theirs) | {"digest": ""}
    assert [numbers["suggested_size"] for numbers in numbers_of(advised)] == [5, 32, 5, 5]
    assert numbers_of(plain) == [{}] * 4


def test_logs_and_snapshots_from_before_controllers_are_read() -> None:
    session = Session(make_config(), make_pool(20))
    answered(session, 0)
    drawn = next(event for event in session.log if isinstance(event, BatchDrawn)).to_json()
    del drawn["controlled"]
    read = event_from_json(BatchDrawn.kind, drawn)
    saved = session.state.rewindable()
    for name in ("seen", "rated_N", "fast_N", "slow_N"):
        del saved[name]
    session.state.rewind(saved)

    assert isinstance(read, BatchDrawn)
    assert read.controlled == {}
    assert session.state.seen.tolist() == [0.0] * len(COUNTS)
    assert not session.state.rows["rated_N"].any()
