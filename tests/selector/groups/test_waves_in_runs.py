"""Waves in a run: what reports in parts decide, and what restores, retries, errors and deadlines make of them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from predictors.base import Observations
from selector.audit.auditing import audit_run
from selector.config import LifecycleConfig, RunConfig
from selector.errors import UnknownConfig
from selector.groups.reports import Decision, GroupIn
from selector.groups.standing import fixed_counts, observed, what_next
from selector.heldout.looks import selected_draws
from selector.lifecycle.stating import _failing
from selector.run.events import event_from_json
from selector.run.snapshot import restore_snapshot, snapshot
from selector.run.state import RunState, make_estimator
from selector.types import Purpose, RolloutStatus, TicketState, VoidReason
from selector.waves import Verdict, WaveConfig
from tests.selector.engine_cases import (
    Session,
    lasting,
    make_config,
    make_policy,
    make_pool,
    numbered,
    rollout,
    tickets_of,
    what_was_drawn,
)

SCREEN = WaveConfig(rule="screen", first=2)
UNTIL = WaveConfig(rule="until_success", first=2, step=2)
PILOT = WaveConfig(rule="pilot", first=4, low=0.25, high=0.75)


def config_of(wave: WaveConfig, **changes: object) -> RunConfig:
    return make_config(make_policy(wave=wave), **({"group_size": 6} | changes))


def begin(wave: WaveConfig, **changes: object) -> Session:
    session = Session(config_of(wave, **changes), make_pool(8))
    session.draw(0, 2)
    return session


def told(session: Session, decision: Decision) -> list[tuple[str, int]]:
    return [
        ("stop", 0) if ticket is None else what_next(session.state, ticket, reached)
        for (_, ticket), reached in zip(decision.tickets, decision.reached, strict=True)
    ]


def state_of(session: Session, ticket: int = 0) -> TicketState:
    return TicketState(session.ticket(ticket)["state"])


def decisions(state: RunState) -> list[tuple[int, ...]]:
    table = state.book.decisions
    names = ("ticket", "attempt", "wave", "right", "scored", "verdict", "more")
    return list(zip(*(table[name].tolist() for name in names), strict=True))


def test_a_mixed_screen_goes_on_to_the_whole_group() -> None:
    session = begin(SCREEN)

    assert told(session, session.report(0, numbered(n0=1.0))) == [("wait", 0)]
    assert told(session, session.report(0, numbered(n1=0.0))) == [("continue", 4)]
    assert told(session, session.report(0, numbered(n2=1.0, n3=1.0))) == [("wait", 0)]
    assert told(session, session.report(0, numbered(n4=1.0, n5=0.0))) == [("stop", 0)]

    assert session.ticket(0) == {"state": 1, "reason": 0, "attempt": 1, "scored": 6, "passes": 4.0}
    assert decisions(session.state) == [(0, 1, 0, 1, 2, Verdict.CONTINUE, 4)]


def test_a_screen_that_is_all_alike_stops_and_counts_what_it_has() -> None:
    session = begin(SCREEN)
    row = int(session.state.book.tickets["row"][0])

    assert told(session, session.report(0, numbered(n0=0.0, n1=0.0))) == [("stop", 0)]

    assert session.ticket(0) == {"state": 1, "reason": 0, "attempt": 1, "scored": 2, "passes": 0.0}
    assert session.mean(row) == pytest.approx(1 / 4)
    late = session.report(0, numbered(n2=1.0))
    assert (late.late, late.rejected[0].code) == (1, "ticket_closed")
    assert session.state.in_flight_N[row] == 0


def test_the_selected_stream_is_that_of_first_waves_as_a_group_that_ends_on_a_pass_shows_too_many() -> None:
    session = Session(config_of(UNTIL, audit_share=0.0), make_pool(8))
    batch = session.draw(0, 2)
    first, second = tickets_of(batch)
    for numbers in ({"n0": 0.0, "n1": 0.0}, {"n2": 1.0, "n3": 0.0}):
        session.report(first, numbered(**numbers))
    session.report(second, numbered(n0=1.0, n1=1.0))

    assert [session.ticket(t)["passes"] for t in (first, second)] == [1.0, 2.0]
    assert selected_draws(session.state)[0].outcome_K.tolist() == [0.0, 1.0]


def test_until_success_takes_wave_after_wave() -> None:
    session = begin(UNTIL)

    assert told(session, session.report(0, numbered(n0=0.0, n1=0.0))) == [("continue", 2)]
    assert told(session, session.report(0, numbered(n2=0.0, n3=0.0))) == [("continue", 2)]
    assert told(session, session.report(0, numbered(n4=0.0, n5=0.0))) == [("stop", 0)]
    assert told(session, session.report(1, numbered(n0=0.0, n1=0.0))) == [("continue", 2)]
    assert told(session, session.report(1, numbered(n2=0.0, n3=1.0))) == [("stop", 0)]

    assert (session.ticket(0)["scored"], session.ticket(1)["scored"]) == (6, 4)


@pytest.mark.parametrize(
    ("right", "verdict", "dropped"), [(0, "DEFER", True), (2, "CONTINUE", False), (4, "SKIP", True)]
)
def test_a_pilot_that_is_skipped_or_deferred_is_marked_as_not_to_be_trained_on(
    right: int, verdict: str, dropped: bool
) -> None:
    session = begin(PILOT)
    session.report(0, [rollout(float(n < right), n=n) for n in range(4)])

    assert [Verdict(found[5]).name for found in decisions(session.state)] == [verdict]
    assert bool(session.state.book.tickets["dropped"][0]) is dropped
    assert (state_of(session) is TicketState.OPEN) is (verdict == "CONTINUE")


def test_workers_reach_the_same_decision_in_any_order() -> None:
    outcomes = {0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0}
    seen = set()
    for order in itertools.permutations(outcomes):
        session = begin(UNTIL)
        answers = {n: told(session, session.report(0, [rollout(outcomes[n], n=n)]))[0] for n in order}
        # Whoever sent the last rollout of wave 0 or 1, each can ask by sending its own again.
        again = {n: told(session, session.report(0, [rollout(outcomes[n], n=n)]))[0] for n in outcomes}
        assert again == {0: ("continue", 2), 1: ("continue", 2), 2: ("stop", 0), 3: ("stop", 0)}
        assert answers[order[-1]] == ("stop", 0)
        assert [answer for answer in answers.values() if answer[0] == "continue"] in ([], [("continue", 2)])
        seen.add((str(decisions(session.state)), str(session.ticket(0))))
    assert len(seen) == 1


def test_rollouts_beyond_the_wave_count_and_have_no_say() -> None:
    session = begin(SCREEN)
    # A worker that does not know waves sends the whole group: all of it counts, the rule's verdict is recorded.
    whole = session.report(0, [rollout(float(n > 1), n=n) for n in range(6)])
    assert told(session, whole) == [("stop", 0)]
    assert session.ticket(0)["scored"] == 6
    assert decisions(session.state) == [(0, 1, 0, 0, 2, Verdict.STOP, 0)]
    # Together with the wave that it completes, one beyond it changes nothing of the answer.
    ahead = Session(config_of(SCREEN), make_pool(8))
    ahead.draw(0, 1)
    assert told(ahead, ahead.report(0, numbered(n0=1.0, n1=0.0, n3=1.0))) == [("continue", 4)]
    # One that runs ahead does not turn an uninformative screen into an informative one.
    session.report(1, numbered(n2=1.0))
    assert told(session, session.report(1, numbered(n0=0.0, n1=0.0))) == [("stop", 0)]
    assert session.ticket(1)["scored"] == 3


def test_the_same_report_again_gets_the_same_answer_whatever_came_after() -> None:
    session = begin(SCREEN)
    first = numbered(n0=1.0, n1=0.0)
    told_first = told(session, session.report(0, first))
    assert told_first == [("continue", 4)]
    session.report(0, numbered(n2=1.0))
    again = session.report(0, first)
    assert (again.duplicate, again.event) == (2, None)
    assert told(session, again) == told_first
    session.report(0, numbered(n3=1.0, n4=1.0, n5=1.0))
    assert state_of(session) is TicketState.REPORTED
    assert told(session, session.report(0, first)) == told_first
    assert len(decisions(session.state)) == 1


def test_two_reports_in_one_call_decide_once() -> None:
    session = begin(SCREEN)
    parts = [GroupIn(ticket=session.id(0), rollouts=numbered(**{f"n{n}": float(n)})) for n in (0, 1)]

    decision = session.send(*parts)

    assert told(session, decision) == [("continue", 4), ("continue", 4)]
    assert len(decisions(session.state)) == 1


def test_final_in_the_middle_of_a_wave_ends_the_ticket() -> None:
    session = begin(SCREEN)
    session.report(0, numbered(n0=1.0, n1=0.0))
    assert told(session, session.report(0, numbered(n2=1.0), final=True)) == [("stop", 0)]
    assert session.ticket(0)["scored"] == 3
    # With a complete wave `final` is the caller's word and no decision of the rule.
    assert told(session, session.report(1, numbered(n0=1.0, n1=0.0), final=True)) == [("stop", 0)]
    assert [found[0] for found in decisions(session.state)] == [0]


def test_errors_fill_places_of_a_wave_and_have_no_say() -> None:
    session = begin(UNTIL)
    failed = [rollout(1.0, n=n, status=RolloutStatus.ERROR) for n in (0, 1)]
    # Nothing scored: nothing to decide on. The ticket is void as an error and may be tried again, from the first wave.
    assert told(session, session.report(0, failed)) == [("stop", 0)]
    assert session.ticket(0)["reason"] == VoidReason.ERROR
    assert told(session, session.report(0, numbered(n0=0.0, n1=0.0), attempt=2)) == [("continue", 2)]
    # One error, one wrong: the wave is complete and has seen no success.
    half = [rollout(1.0, n=0, status=RolloutStatus.ERROR), rollout(0.0, n=1)]
    assert told(session, session.report(1, half)) == [("continue", 2)]
    assert decisions(session.state)[-1][3:5] == (0, 1)


def test_unscored_rollouts_are_no_failures() -> None:
    session = begin(SCREEN)
    assert told(session, session.report(0, numbered(n0=1.0, n1=None))) == [("stop", 0)]
    # One score alone never differs, and is too little to count.
    assert session.ticket(0)["reason"] == VoidReason.TOO_FEW


def test_a_void_ticket_is_told_to_stop_also_about_waves_it_had_passed() -> None:
    session = begin(SCREEN)
    first = numbered(n0=1.0, n1=0.0)
    session.report(0, first)
    session.void(0, VoidReason.LOST)
    assert told(session, session.report(0, first)) == [("stop", 0)]
    # Tried again, it begins with its first wave.
    assert told(session, session.report(0, numbered(n0=1.0, n1=1.0), attempt=2)) == [("stop", 0)]
    assert session.ticket(0)["scored"] == 2


def test_a_deadline_in_the_middle_of_a_wave_counts_what_there_is() -> None:
    session = begin(SCREEN, ticket_ttl_s=10.0)
    session.report(0, numbered(n0=1.0, n1=0.0))
    session.report(0, numbered(n2=1.0))
    session.report(1, numbered(n0=1.0))
    assert session.expire(session.now + 11) == [0, 1]
    assert (session.ticket(0)["scored"], session.ticket(0)["state"]) == (3, TicketState.REPORTED)
    assert session.ticket(1)["reason"] == VoidReason.EXPIRED


def test_a_restore_begins_a_ticket_anew_with_its_first_wave() -> None:
    session = begin(SCREEN)
    session.checkpoint(0)
    session.report(0, numbered(n0=1.0, n1=0.0))
    session.restore(0)
    assert told(session, session.report(0, numbered(n0=1.0), attempt=2)) == [("wait", 0)]
    assert told(session, session.report(0, numbered(n1=1.0), attempt=2)) == [("stop", 0)]
    assert [found[1:3] for found in decisions(session.state)] == [(1, 0), (2, 0)]
    # What was told about the lost attempt is not repeated for the new one.
    old = session.report(0, numbered(n0=1.0, n1=0.0), attempt=1)
    assert (old.duplicate, told(session, old)) == (2, [("stop", 0)])


def test_a_ticket_keeps_the_rule_that_it_was_drawn_under() -> None:
    session = begin(SCREEN)
    session.configure(policy=make_policy(wave=UNTIL))
    session.draw(1, 2)
    assert told(session, session.report(0, numbered(n0=0.0, n1=0.0))) == [("stop", 0)]
    assert told(session, session.report(2, numbered(n0=0.0, n1=0.0))) == [("continue", 2)]
    session.configure(policy=make_policy())
    assert told(session, session.report(3, numbered(n0=0.0, n1=0.0))) == [("continue", 2)]


@pytest.mark.parametrize("purpose", [p for p in Purpose if p not in (Purpose.TRAIN, Purpose.PROBE)])
def test_other_purposes_run_their_whole_group(purpose: Purpose) -> None:
    session = Session(config_of(SCREEN), make_pool(8, heldout=[6, 7]))
    batch = session.draw(0, 2, purpose=purpose)
    assert batch.event.wave is None
    assert told(session, session.report(0, numbered(n0=0.0, n1=0.0))) == [("wait", 0)]
    session.report(0, [rollout(0.0, n=n) for n in range(2, 6)])
    assert session.ticket(0)["scored"] == 6


def test_audit_tickets_of_a_train_batch_run_their_whole_group() -> None:
    session = Session(config_of(SCREEN, audit_share=0.5), make_pool(8))
    batch = session.draw(0, 4)
    for ticket in tickets_of(batch):
        is_audit = bool(batch.event.audit_K[ticket])
        answer = told(session, session.report(ticket, numbered(n0=0.0, n1=0.0)))
        assert answer == ([("wait", 0)] if is_audit else [("stop", 0)])


def test_a_recovered_run_and_a_restored_snapshot_go_on_to_the_bit() -> None:
    session = begin(UNTIL)
    session.report(0, numbered(n0=0.0, n1=0.0))
    session.report(1, numbered(n0=0.0, n1=1.0))
    engines = [session.replayed(), session.resumed(snapshot(session.state))]
    for engine in engines:
        assert snapshot(engine.state) == snapshot(session.state)
        assert decisions(engine.state) == decisions(session.state)
    drawn = []
    for engine in [session.engine, *engines]:
        session.engine = engine
        session.log = list(session.log)
        assert told(session, session.report(0, numbered(n2=0.0, n3=1.0))) == [("stop", 0)]
        drawn.append(what_was_drawn(session.draw(1, 4)))
    assert drawn[0] == drawn[1] == drawn[2]


def test_a_snapshot_from_before_waves_is_read() -> None:
    session = Session()
    session.draw(0, 2)
    columns = session.state.book.state()
    old = {
        n: a
        for n, a in columns.items()
        if not n.startswith("decisions.") and n not in ("tickets.wave", "tickets.dropped")
    }
    session.state.book.load_state(old)
    assert {n: a.tobytes() for n, a in session.state.book.state().items()} == {
        n: a.tobytes() for n, a in columns.items()
    }


def test_the_audit_takes_first_waves_and_says_so() -> None:
    """Where one of six rollouts passes, until success ends groups on a pass: their shares average well above it."""
    rng = np.random.default_rng(0)
    session = Session(config_of(replace(UNTIL, first=1, step=1), min_rollouts=1, seed=4), make_pool(60))
    for index in range(40):
        batch = session.draw(index, 10)
        for ticket in tickets_of(batch):
            for n in range(6):
                if state_of(session, ticket) is TicketState.OPEN:
                    session.report(ticket, [rollout(float(rng.random() < 1 / 6), n=n)])
    table = session.state.book.tickets
    stopped = float((table["passes"] / table["scored"]).mean())
    found = audit_run(session.state)
    assert stopped > 0.3
    for curve in (found.pass_rate.selected, found.pass_rate.reweighted):
        # 400 first rollouts: a standard error of 0.019; the re-weighted one of up to twice that.
        assert curve.estimate == pytest.approx(1 / 6, abs=0.11 if curve is found.pass_rate.reweighted else 0.06)
    assert found.degenerate.selected.estimate is found.degenerate.reweighted.estimate is None
    assert any("first waves" in warning for warning in found.warnings)


def test_counts_of_fixed_size_are_those_of_the_first_wave_without_errors() -> None:
    session = Session(config_of(SCREEN, audit_share=0.5), make_pool(8))
    batch = session.draw(0, 4)
    for ticket in tickets_of(batch):
        session.report(ticket, [rollout(1.0, n=0, status=RolloutStatus.ERROR), rollout(1.0, n=1)])
        session.report(ticket, numbered(n2=0.0, n3=0.0, n4=0.0, n5=0.0))
    passes_K, scored_K = fixed_counts(session.state, batch.tickets)
    audit_K = batch.event.audit_K
    assert passes_K.tolist() == [1.0] * 4
    assert scored_K[~audit_K].tolist() == [1, 1]
    assert scored_K[audit_K].tolist() == [5, 5]


def test_cohorts_of_mastered_prompts_are_stated_by_first_waves() -> None:
    session = Session(make_config(make_policy(wave=UNTIL, lifecycle=LifecycleConfig()), group_size=6), make_pool(8))
    batch = session.draw(0, 2)
    session.report(0, numbered(n0=0.0, n1=0.0))
    session.report(0, numbered(n2=0.0, n3=1.0))
    session.report(1, numbered(n0=0.0, n1=1.0))
    # Three of four failed in all, and both of the two that were sure to be made; times 1/π, as nothing was owed.
    np.testing.assert_allclose(_failing(session.state, batch) * batch.event.inclusion_K, [1.0, 0.5])


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"group_size": 2}, "must be below group_size 2"), ({"min_rollouts": 3}, "below min_rollouts 3")],
)
def test_a_rule_that_the_run_cannot_keep_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UnknownConfig, match=words):
        config_of(SCREEN, **changes)


def test_a_configuration_with_waves_is_stored_whole() -> None:
    config = config_of(PILOT)
    assert RunConfig.from_dict(config.to_dict()) == config
    assert config.config_hash() != config_of(replace(PILOT, low=0.0)).config_hash()
    assert make_config(make_policy()).policy.hashed().keys() == make_policy().hashed().keys()


def test_what_lasts_does_not_depend_on_who_reported_first() -> None:
    parts = [numbered(n0=1.0), numbered(n1=0.0)]
    found = []
    for order in (parts, parts[::-1]):
        session = begin(SCREEN)
        for part in order:
            session.report(0, part)
        found.append(lasting(session.state))
    assert found[0] == found[1]


def test_a_snapshot_holds_waves() -> None:
    session = begin(SCREEN)
    session.report(0, numbered(n0=1.0, n1=0.0))
    state = restore_snapshot(snapshot(session.state), session.archive.pool)
    assert decisions(state) == decisions(session.state)
    assert state.book.tickets["wave"].tolist() == [1, 0]


def test_a_log_from_before_waves_is_read() -> None:
    session = Session()
    session.draw(0, 1)
    session.report(0, [rollout(1.0, n=n) for n in range(4)])
    for event in session.log[2:]:
        values = event.to_json()
        values.pop("wave", None)
        for one in values.get("groups", ()):
            del one["decisions"]
        assert event_from_json(event.kind, values).to_json() == event.to_json()


@pytest.mark.parametrize(
    ("estimator", "seen"),
    [
        ("kalman_arcsine", [(0, 0.0, 2), (0, 1.0, 2), (1, 1.0, 2)]),
        ("mixture", [(0, 0.0, 2), (0, 1.0, 2), (1, 1.0, 2)]),
        ("hmm", [(0, 1.0, 4), (1, 1.0, 2)]),
        ("streak", [(0, 1.0, 4), (1, 1.0, 2)]),
        ("last_mean", [(0, 1.0, 4), (1, 1.0, 2)]),
    ],
)
def test_beliefs_see_a_group_wave_by_wave_unless_their_method_speaks_of_groups(
    estimator: str, seen: list[tuple[int, float, int]]
) -> None:
    policy = make_policy(wave=UNTIL, estimator=estimator, estimator_options={})
    session = Session(make_config(policy, group_size=6), make_pool(8))
    session.draw(0, 2)
    session.report(0, numbered(n0=0.0, n1=0.0))
    parts = [(0, numbered(n2=0.0, n3=1.0)), (1, numbered(n0=0.0, n1=1.0))]
    session.send(*(GroupIn(ticket=session.id(ticket), rollouts=sent) for ticket, sent in parts))
    row = session.state.book.tickets["row"]
    expected = make_estimator(session.state.config)
    expected.resize(session.state.pool.category_N + 1)
    expected.observe(
        Observations(
            rows_B=np.array([row[ticket] for ticket, _, _ in seen], np.int64),
            passes_B=np.array([passes for _, passes, _ in seen]),
            scored_B=np.array([scored for _, _, scored in seen], np.int64),
            version_B=np.zeros(len(seen), np.int64),
        )
    )

    found, wanted = session.state.estimator.state(), expected.state()
    assert {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in wanted.items()}


def test_waves_of_a_stopped_group_surprise_nobody_on_average() -> None:
    """Each wave's share less the pass rate has mean zero given the waves before; the whole group's share has not."""
    rng, pass_rate = np.random.default_rng(3), 0.1
    wave = replace(UNTIL, first=2, step=2)
    session = Session(config_of(wave, seed=1), make_pool(60))
    surprises, whole = list[float](), list[float]()
    for index in range(60):
        batch = session.draw(index, 10)
        for ticket in tickets_of(batch):
            for start in (0, 2, 4):
                if state_of(session, ticket) is TicketState.OPEN:
                    passed = (rng.random(2) < pass_rate).astype(float)
                    session.report(ticket, [rollout(one, n=start + n) for n, one in enumerate(passed.tolist())])
            whole.append(session.ticket(ticket)["passes"] / session.ticket(ticket)["scored"] - pass_rate)
        _, passes_B, scored_B = observed(session.state, np.array(tickets_of(batch)))
        surprises += (passes_B / scored_B - pass_rate).tolist()

    assert abs(np.mean(surprises)) < 4 * np.std(surprises) / np.sqrt(len(surprises))
    assert np.mean(whole) > 4 * np.std(whole) / np.sqrt(len(whole))
