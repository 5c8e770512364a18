"""Prompts that a person should look at: by hand, by slow obvious versions, at the edges, and in a run."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.config import LifecycleConfig
from selector.groups.reports import RolloutIn
from selector.lifecycle.suspects import SUSPECT_GROUPS, error_excess, find_suspects, same_score
from selector.run.snapshot import snapshot
from selector.types import Purpose, VoidReason
from tests.selector.engine_cases import Session, error, make_config, make_policy, make_pool, rollout, rollouts

NAN = float("nan")


def new_run(num_rows: int = 4, rests: bool = False, **config: object) -> Session:
    policy = make_policy(lifecycle=LifecycleConfig() if rests else None)
    return Session(make_config(policy, **config), make_pool(num_rows))


def go_on(session: Session, sent: dict[int, list[RolloutIn]], draws: int = 1) -> None:
    """Draws the whole pool and reports by row, a mixed group unless said."""
    for _ in range(draws):
        batch = session.draw(session.state.train_draws, session.state.num_rows, short="fill")
        for place, row in enumerate(batch.event.row_K.tolist()):
            session.report(batch.first_ticket + place, sent.get(row, rollouts(1.0, 0.0, 1.0, 0.0)))


def with_lengths(outcome: float, *tokens: int) -> list[RolloutIn]:
    return [rollout(outcome, tokens=count) for count in tokens]


# One score


def test_groups_of_one_score_are_counted_by_hand() -> None:
    # Row 0: 1, 1. Row 1: 0 then 1. Row 2: goes on from before, then differs. Row 3: begins anew after it differed.
    place_B = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    value_B = np.array([1.0, 0.0, 0.5, NAN, 1.0, 1.0, NAN, 0.0])

    same, score = same_score(np.array([0, 0, 7, 7]), np.array([0.0, 0.0, 0.5, 1.0]), place_B, value_B)

    assert same.tolist() == [2, 1, 0, 1]
    assert score.tolist() == [1.0, 1.0, 0.0, 0.0]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 1.0, 0.3, NAN])), max_size=25))
def test_groups_of_one_score_agree_with_a_loop(groups: list[tuple[int, float]]) -> None:
    same, score = [0, 3, 0, 3], [0.0, 1.0, 0.0, 0.3]
    for place, value in groups:
        if np.isnan(value):
            same[place], score[place] = 0, 0.0
        elif same[place] and value == score[place]:
            same[place] += 1
        else:
            same[place], score[place] = 1, value
    places, values = np.array([g[0] for g in groups], np.int64), np.array([g[1] for g in groups], float)

    found = same_score(np.array([0, 3, 0, 3]), np.array([0.0, 1.0, 0.0, 0.3]), places, values)

    assert found[0].tolist() == same
    assert found[1].tolist() == score


def test_a_score_that_never_differs_makes_a_suspect_first_of_all_where_the_answers_do() -> None:
    session = new_run(5)
    sent = {
        0: with_lengths(1.0, 10, 10, 10, 10),
        1: with_lengths(0.0, 10, 12, 9, 30),
        2: with_lengths(0.4, 0, 0, 0, 0),
        3: rollouts(1.0, 1.0, 1.0, 0.0),
    }
    go_on(session, sent, SUSPECT_GROUPS - 1)
    assert find_suspects(session.state, 10) == ([], 0)

    go_on(session, sent)

    found, count = find_suspects(session.state, 10)
    assert count == 3
    assert [(s.row, s.reason, s.score, s.answers_differ) for s in found] == [
        (1, "constant_score", 0.0, True),
        (0, "constant_score", 1.0, False),
        (2, "constant_score", pytest.approx(0.4), None),
    ]
    assert {s.groups for s in found} == {SUSPECT_GROUPS}
    assert find_suspects(session.state, 1) == (found[:1], 3)
    session.revise(make_pool(5, revision=2, quarantined=[1]))
    assert [s.row for s in find_suspects(session.state, 10)[0]] == [0, 2]


def test_one_other_score_clears_a_prompt_for_good() -> None:
    session = new_run(2)
    go_on(session, {0: rollouts(0.0, 0.0, 1.0, 0.0)})
    go_on(session, {0: rollouts(0.0, 0.0, 0.0, 0.0)}, SUSPECT_GROUPS + 5)

    assert session.state.rows["same_N"][0] == SUSPECT_GROUPS + 5
    assert find_suspects(session.state, 10) == ([], 0)


def test_what_differs_in_rewards_or_in_outcomes_alone_is_no_constant_score() -> None:
    session = new_run(2)
    shaped = [replace(r, reward=0.1 * n) for n, r in enumerate(rollouts(1.0, 1.0, 1.0, 1.0))]
    flattened = [replace(r, reward=1.0) for r in rollouts(1.0, 0.0, 1.0, 0.0)]
    go_on(session, {0: shaped, 1: flattened}, SUSPECT_GROUPS + 1)

    assert find_suspects(session.state, 10) == ([], 0)


# Errors


def test_an_error_share_by_hand() -> None:
    # 6 of 8 against one error in 8 of the others and two rollouts added: KL(0.75‖0.2), less ln(2/0.01).
    found = error_excess(np.array([6, 1]), np.array([8, 8]))

    divergence = 0.75 * log(0.75 / 0.2) + 0.25 * log(0.25 / 0.8)
    assert found.tolist() == [max(8 * divergence - log(200), 0.0), 0.0]
    ten_times = error_excess(np.array([60, 10]), np.array([80, 80]))
    assert ten_times[0] == pytest.approx(80 * (0.75 * log(0.75 / (11 / 82)) + 0.25 * log(0.25 / (71 / 82))) - log(200))


def test_error_shares_at_the_edges() -> None:
    assert error_excess(np.zeros(0, int), np.zeros(0, int)).tolist() == []
    assert error_excess(np.array([0, 0]), np.array([0, 0])).tolist() == [0.0, 0.0]
    # The only prompt there is, and one that always fails in a pool that never does.
    assert error_excess(np.array([8]), np.array([8]))[0] > 0.0
    assert error_excess(np.array([16, 0, 0]), np.array([16, 500, 500]))[0] > 40
    # A single error in a clean pool is none out of line.
    assert not error_excess(np.r_[1, np.zeros(99, int)], np.full(100, 8)).any()


def test_prompts_of_one_error_rate_are_rarely_suspects_and_one_of_twice_it_soon() -> None:
    rng = np.random.default_rng(5)
    false_alarms = sum(error_excess(rng.binomial(64, 0.2, 300), np.full(300, 64)).any() for _ in range(100))
    errors = rng.binomial(400, 0.2, 300)
    errors[7] = rng.binomial(400, 0.4)

    assert false_alarms <= 100 * 0.01 + 3
    assert np.flatnonzero(error_excess(errors, np.full(300, 400))).tolist() == [7]


def test_a_prompt_whose_rollouts_keep_failing_is_a_suspect_of_the_run() -> None:
    session = new_run(6)
    go_on(session, {4: [error(), error(), rollout(1.0), rollout(0.0)]}, 10)

    ((found,), count) = find_suspects(session.state, 10)

    assert count == 1
    assert (found.row, found.reason, found.errors, found.rollouts) == (4, "error_share", 20, 40)
    assert (found.score, found.answers_differ) == (None, None)


# The run's quarantine


UNSCORED = rollouts(None, None, None, None)


def quarantined(session: Session) -> list[int]:
    return np.flatnonzero(session.state.quarantined_N).tolist()


def test_a_prompt_that_never_gets_a_score_is_taken_out_and_never_drawn_again() -> None:
    session = new_run(4, rests=True, audit_share=0.3)
    go_on(session, {2: UNSCORED}, 2)
    assert quarantined(session) == []
    go_on(session, {2: UNSCORED})
    assert quarantined(session) == [2]

    for index in range(3, 20):
        event = session.draw(index, 4, short="fill").event
        assert 2 not in event.row_K
        assert event.frame == 3
        session.answer_batch(session.state.batches[-1], lambda row, index, n: float(n % 2))
    assert 2 not in session.draw(0, 4, purpose=Purpose.AUDIT).event.row_K
    assert snapshot(session.replayed().state) == snapshot(session.state)
    assert snapshot(session.fork().state) == snapshot(session.state)


def test_without_a_lifecycle_nothing_is_taken_out() -> None:
    session = new_run(4)
    go_on(session, {2: UNSCORED}, 6)

    assert quarantined(session) == []
    assert 2 in session.draw(6, 4).event.row_K


def test_a_score_in_between_begins_the_count_anew() -> None:
    session = new_run(4, rests=True)
    for _ in range(3):
        go_on(session, {2: UNSCORED}, 2)
        go_on(session, {})

    assert quarantined(session) == []


def test_a_grader_that_is_down_for_all_takes_nothing_out() -> None:
    session = new_run(4, rests=True)
    go_on(session, {})
    go_on(session, dict.fromkeys(range(4), UNSCORED), 12)

    assert quarantined(session) == []
    assert session.state.rows["unscored_N"].tolist() == [1] * 4


@pytest.mark.parametrize(
    "sent",
    [
        [error(), error(), error(), error()],
        [rollout(1.0), *rollouts(None, None, None)],
    ],
    ids=["infrastructure", "one score"],
)
def test_what_is_no_scoring_failure_is_not_counted_as_one(sent: list[RolloutIn]) -> None:
    session = new_run(4, rests=True)
    go_on(session, {2: sent}, 6)

    assert quarantined(session) == []


def test_a_single_rollout_without_a_score_is_no_scoring_failure() -> None:
    session = new_run(4, rests=True)
    for _ in range(6):
        batch = session.draw(session.state.train_draws, 4, short="fill")
        for place, row in enumerate(batch.event.row_K.tolist()):
            sent = UNSCORED[:1] if row == 2 else rollouts(1.0, 0.0, 1.0, 0.0)
            session.report(batch.first_ticket + place, sent, final=True)

    assert quarantined(session) == []


def test_groups_that_are_void_for_other_reasons_or_unseen_are_not_counted() -> None:
    session = new_run(4, rests=True)
    go_on(session, {})
    for index in range(5):
        for purpose in (Purpose.CONTROL, Purpose.PROBE):
            batch = session.draw(index, 4, purpose=purpose, allow_repeat=True)
            for ticket in range(batch.first_ticket, batch.first_ticket + 4):
                if purpose is Purpose.CONTROL:
                    session.report(ticket, UNSCORED)
                else:
                    session.report(ticket, UNSCORED, void=VoidReason.LOST)

    assert quarantined(session) == []


def test_the_quarantine_of_a_run_survives_a_restore_and_ends_when_a_person_lifts_it_or_the_rules_change() -> None:
    session = new_run(4, rests=True)
    session.checkpoint(1)
    go_on(session, {2: UNSCORED}, 3)

    session.restore(1)
    assert quarantined(session) == [2]
    session.revise(make_pool(5, revision=2, quarantined=[2]))
    session.revise(make_pool(5, revision=3))
    assert quarantined(session) == []
    assert session.state.rows["unscored_N"][2] == 0
    go_on(session, {2: UNSCORED}, 3)
    assert quarantined(session) == [2]
    session.configure(policy=replace(session.state.config.policy, lifecycle=None))
    assert quarantined(session) == []
