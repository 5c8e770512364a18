"""Waves in a run: what reports in parts decide, and what retries, errors and deadlines make of them."""

import itertools

import pytest

from selector.errors import UnknownConfig
from selector.groups.reports import GroupIn
from selector.types import Purpose, RolloutStatus, TicketState, VoidReason
from selector.waves import Verdict
from tests.selector.engine_cases import Session, make_policy, make_pool, numbered, rollout, tickets_of
from tests.selector.wave_cases import PILOT, SCREEN, UNTIL, begin, config_of, decisions, state_of, told


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


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"group_size": 2}, "must be below group_size 2"), ({"min_rollouts": 3}, "below min_rollouts 3")],
)
def test_a_rule_that_the_run_cannot_keep_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UnknownConfig, match=words):
        config_of(SCREEN, **changes)
