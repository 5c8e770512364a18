"""What a run says of its mastered prompts: which groups count, which draws, and what becomes of it later."""

from collections.abc import Callable
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from selector.config import LifecycleConfig
from selector.lifecycle.evidence import cohort_log_e, follow
from selector.lifecycle.stating import RUN_LENGTH, Regressions, state_regressions
from selector.run.snapshot import restore_snapshot, snapshot
from selector.types import Lifecycle, Purpose, VoidReason
from tests.selector.engine_cases import Session, coin, make_config, make_policy, make_pool, rollouts, tickets_of

LEVEL = 0.9
RULES = LifecycleConfig(level=LEVEL)
SOLVED, MIXED, FAILED = [1.0] * 8, [1.0, 0.0] * 4, [0.0] * 8
Outcomes = Callable[[int], list[float]]


def solved_run(num_rows: int = 12, **config: object) -> Session:
    """Three draws of the whole pool after which every prompt is mastered."""
    policy = make_policy(lifecycle=RULES)
    settings = {"group_size": 8, "audit_share": 0.1, "review_share": 0.5, **config}
    session = Session(make_config(policy, **settings), make_pool(num_rows))
    go_on(session, lambda row: SOLVED, 3, size=num_rows)
    assert (session.state.rows["lifecycle_N"] == Lifecycle.MASTERED).all()
    return session


def go_on(session: Session, outcomes: Outcomes, draws: int = 1, size: int = 6) -> None:
    for _ in range(draws):
        batch = session.draw(session.state.train_draws, size)
        for place, row in enumerate(batch.event.row_K.tolist()):
            session.report(batch.first_ticket + place, rollouts(*outcomes(row)))


def stated(session: Session) -> Regressions:
    found = state_regressions(session.state)
    assert found is not None
    return found


def test_nothing_is_said_where_prompts_do_not_rest() -> None:
    session = Session(make_config(make_policy()))
    session.draw(0, 4)

    assert state_regressions(session.state) is None


def test_what_led_to_mastery_is_no_evidence_about_it() -> None:
    found = stated(solved_run())

    assert (found.level, found.num_prompts) == (LEVEL, 12)
    assert found.prompts == ()
    assert found.cohorts == ()


def test_a_prompt_that_regressed_is_listed_with_its_groups_since() -> None:
    session = solved_run()
    go_on(session, lambda row: FAILED if row == 3 else SOLVED, 20)
    groups = int(session.state.rows["groups_N"][3]) - 3
    assert groups >= 2

    (found,) = stated(session).prompts

    expected = follow(np.zeros(groups, np.int64), np.zeros(groups), np.full(groups, 8), LEVEL, 1)
    assert (found.row, found.reviews, found.passes, found.scored) == (3, groups, 0.0, 8 * groups)
    assert found.log_e == pytest.approx(float(expected.log_e_M[0]))
    assert found.listed
    assert found.detected
    assert expected.log_peak_M[0] >= log(RUN_LENGTH)
    # It has long been at work again: what is said of it stays until it is mastered anew.
    assert session.state.rows["lifecycle_N"][3] != Lifecycle.MASTERED


def test_groups_count_in_the_order_in_which_they_came() -> None:
    session = solved_run()
    passes, session_groups = [1.0, 0.0, 7.0, 8.0, 8.0, 3.0], list[float]()
    while len(session_groups) < len(passes):
        batch = session.draw(session.state.train_draws, 6)
        for place, row in enumerate(batch.event.row_K.tolist()):
            count = int(passes[len(session_groups)]) if row == 3 else 8
            session_groups += [float(count)] if row == 3 else []
            session.report(batch.first_ticket + place, rollouts(*[1.0] * count, *[0.0] * (8 - count)))

    (found,) = stated(session).prompts

    log_e = [
        float(follow(np.zeros(6, np.int64), np.array(order), np.full(6, 8), LEVEL, 1).log_e_M[0])
        for order in (passes, passes[::-1])
    ]
    assert found.log_e == pytest.approx(log_e[0])
    assert abs(log_e[0] - log_e[1]) > 0.1


def test_a_prompt_mastered_anew_begins_anew() -> None:
    session = solved_run()
    go_on(session, lambda row: FAILED if row == 3 else SOLVED, 6)
    assert [found.row for found in stated(session).prompts] == [3]

    go_on(session, lambda row: SOLVED, 80)

    assert session.state.rows["lifecycle_N"][3] == Lifecycle.MASTERED
    assert stated(session).prompts == ()


def test_listing_needs_more_evidence_the_more_prompts_are_followed() -> None:
    few, many = solved_run(4), solved_run(400)
    for session in (few, many):
        for row in range(3):
            session.state.rows["lifecycle_N"][row] = Lifecycle.ACTIVE  # so that they are drawn soon
        go_on(session, lambda row: [1.0] * 3 + [0.0] * 5 if row < 3 else SOLVED, 1, size=8)
    rows = {found.row for found in stated(few).prompts if found.listed}

    assert rows
    assert not any(found.listed for found in stated(many).prompts)


@pytest.mark.parametrize("purpose", [Purpose.CONTROL, Purpose.PROBE])
def test_groups_of_a_control_say_nothing(purpose: Purpose) -> None:
    session = solved_run(4)
    go_on(session, lambda row: SOLVED, 1)
    for index in range(6):
        batch = session.draw(index, 4, purpose=purpose)
        for ticket in tickets_of(batch):
            session.report(ticket, rollouts(*FAILED))

    assert bool(stated(session).prompts) is (purpose is Purpose.PROBE)


def test_void_groups_and_late_ones_say_nothing() -> None:
    session = solved_run(4)
    for index in range(3, 9):
        batch = session.draw(index, 4, short="fill")
        for ticket in tickets_of(batch):
            session.void(ticket, VoidReason.LOST)

    found = stated(session)
    assert found.prompts == ()
    # No ticket came back: no failure in any cohort, which makes the hypothesis likelier.
    assert all(cohort.log_e < 0 for cohort in found.cohorts)


# Cohorts


def test_cohorts_are_categories_by_time_of_mastery_with_one_observation_a_draw() -> None:
    session = solved_run()
    go_on(session, lambda row: [1.0] * 7 + [0.0] if row % 2 else SOLVED, 12)
    batches = [b for b in session.state.batches if b.event.cohorts]
    failures: dict[str, list[float]] = {"algebra": [], "logic": []}
    for batch in batches:
        event = batch.event
        assert sorted(c["category"] for c in event.cohorts) == [0, 1]
        assert [c["block"] for c in event.cohorts] == [0, 0]
        for cohort in event.cohorts:
            name = ("algebra", "logic")[cohort["category"]]
            assert cohort["members"] == 6
            rows = event.row_K[cohort["places"]]
            assert (rows % 2 == cohort["category"]).all()
            total = sum(1 / 8 / pi for pi in event.inclusion_K[cohort["places"]]) if name == "logic" else 0.0
            failures[name].append(total / 6)

    logic, algebra = stated(session).cohorts

    assert (logic.category, algebra.category) == ("logic", "algebra")
    assert (logic.mastered_in, logic.members, logic.draws) == ((0, 99), 6, 12)
    assert logic.reviews + algebra.reviews == sum(len(b.event.row_K) for b in batches)
    assert logic.log_e == pytest.approx(cohort_log_e(np.array(failures["logic"]), LEVEL))
    assert algebra.log_e == pytest.approx(cohort_log_e(np.zeros(12), LEVEL))
    assert not logic.listed


def test_credit_of_prompts_that_were_in_flight_makes_no_failure_count_twice() -> None:
    session = solved_run()
    waiting = []
    for index in range(3, 15):
        waiting.append(session.draw(index, 6))
        if len(waiting) > 2:
            for ticket in tickets_of(waiting.pop(0)):
                session.report(ticket, rollouts(*[1.0] * 7, 0.0))
    done = [batch for batch in session.state.batches[3:] if batch not in waiting]
    assert max(batch.event.credit_K.max() for batch in done) > 0
    failures: dict[int, list[float]] = {0: [], 1: []}
    for batch in done:
        for cohort in batch.event.cohorts:
            total = sum(1 / 8 / pi for pi in batch.event.inclusion_K[cohort["places"]])
            failures[cohort["category"]].append(total / cohort["members"])

    for cohort_found in stated(session).cohorts:
        category = ("algebra", "logic").index(str(cohort_found.category))
        assert cohort_found.log_e == pytest.approx(cohort_log_e(np.array(failures[category]), LEVEL))


def test_a_cohort_that_regressed_as_a_whole_is_listed() -> None:
    """Failures too rare to send any one prompt back: 6 of 8 pass a review, and the level is 0.9."""
    session = solved_run(40)
    go_on(session, lambda row: [1.0] * 6 + [0.0] * 2 if row % 2 else SOLVED, 60, size=10)

    listed = {cohort.category for cohort in stated(session).cohorts if cohort.listed}

    assert listed == {"logic"}


def test_a_slow_draw_ends_what_is_said_of_cohorts_and_prompts_in_flight_are_no_members() -> None:
    session = solved_run()
    go_on(session, lambda row: SOLVED, 3)
    open_batch = session.draw(6, 6)
    in_flight = len(open_batch.event.row_K)
    go_on(session, lambda row: SOLVED, 3)

    cohorts = session.state.batches[-1].event.cohorts

    assert sum(c["members"] for c in cohorts) == 12 - in_flight
    assert max(c.draws for c in stated(session).cohorts) == 3
    session.answer_batch(open_batch, lambda row, index, n: 1.0)
    assert max(c.draws for c in stated(session).cohorts) == 7


def test_a_cohort_of_true_pass_rate_at_the_level_is_not_listed() -> None:
    session = solved_run(40, seed=3)
    answer = coin(8, np.full(40, 0.93))
    for index in range(3, 60):
        session.answer_batch(session.draw(index, 10), answer)

    assert not any(cohort.listed for cohort in stated(session).cohorts)
    assert all(exp(min(cohort.log_e, 50)) < 20 for cohort in stated(session).cohorts)


# Going back, changing the rules


def test_a_restore_takes_back_what_was_said_of_what_it_discards() -> None:
    session = solved_run()
    go_on(session, lambda row: SOLVED, 2)
    session.checkpoint(1)
    before = stated(session)
    go_on(session, lambda row: FAILED if row == 3 else SOLVED, 10)
    assert stated(session).prompts

    session.restore(1)

    assert stated(session) == before
    go_on(session, lambda row: FAILED if row == 3 else SOLVED, 10)
    assert [found.row for found in stated(session).prompts] == [3]
    again = restore_snapshot(snapshot(session.state), session.archive.pool)
    assert state_regressions(again) == stated(session)
    assert state_regressions(session.replayed().state) == stated(session)


def test_other_rules_begin_anew() -> None:
    session = solved_run()
    go_on(session, lambda row: FAILED if row == 3 else SOLVED, 10)
    policy = session.state.config.policy

    session.configure(policy=replace(policy, lifecycle=replace(RULES, level=0.8)))

    assert stated(session) == Regressions(level=0.8, prompts=(), num_prompts=0, cohorts=())
    go_on(session, lambda row: SOLVED, 1, size=12)
    assert stated(session).num_prompts > 0
    assert stated(session).prompts == ()
