"""Going back with tickets in flight: which are issued again, which are void, and what their reports count for."""

from selector.groups.reports import GroupIn
from selector.types import Purpose, Source, TicketState, VoidReason
from tests.selector.engine_cases import MIXED, TOKENS, numbered, rollouts, tickets_of, what_was_drawn
from tests.selector.restoring_cases import ANSWER, SIZE, new_run, train


def test_voiding_what_is_in_flight_frees_its_indices_under_new_names() -> None:
    session = new_run()
    train(session, range(4), 2)
    session.checkpoint(40)
    names = [session.id(ticket) for ticket in range(session.state.book.tickets.size)]

    told = session.restore(40, in_flight="void")

    assert (told["reissued"], told["next_index"], told["resume_from"], told["branch"]) == ([], 2, 2, 1)
    assert not session.state.book.open
    assert not session.state.in_flight_N.any()
    flying = range(2 * SIZE, 4 * SIZE)
    assert [session.ticket(ticket)["reason"] for ticket in flying] == [VoidReason.LOST] * len(flying)
    again = session.draw(2, SIZE)
    assert not set(names) & {session.id(ticket) for ticket in tickets_of(again)}
    late = session.send(GroupIn(ticket=names[2 * SIZE], rollouts=rollouts(*MIXED)))
    assert (late.applied, late.late) == (0, 4)
    assert session.restore(40, in_flight="void")["branch"] == 2


def test_a_batch_with_a_reported_group_keeps_its_index_when_the_rest_is_voided() -> None:
    session = new_run()
    session.draw(0, SIZE)
    session.report(0, rollouts(*MIXED))
    session.checkpoint(40)

    told = session.restore(40, in_flight="void")

    assert told["next_index"] == 1
    assert session.draw(0, SIZE).ordinal == 0
    session.report(1, rollouts(*MIXED), attempt=2)
    assert session.ticket(1)["state"] == TicketState.REPORTED


def test_what_was_voided_by_a_restore_comes_back_with_the_next_one() -> None:
    session = new_run()
    session.draw(0, SIZE)
    session.report(0, rollouts(*MIXED))
    session.checkpoint(40)
    session.restore(40, in_flight="void")

    told = session.restore(40)

    assert told["reissued"] == [session.id(ticket) for ticket in range(1, SIZE)]
    assert [session.ticket(ticket)["attempt"] for ticket in range(SIZE)] == [1, 2, 2, 2, 2]


def test_reported_tickets_reopen_and_their_tokens_are_lost() -> None:
    session = new_run()
    session.draw(0, SIZE)
    session.report(0, rollouts(*MIXED))
    session.checkpoint(40)
    session.report(1, rollouts(*MIXED))
    session.report(2, numbered(n0=1.0))
    session.report(3, numbered(n0=1.0), void=VoidReason.SURPLUS)
    session.report(3, numbered(n1=1.0))
    session.draw(1, SIZE)
    session.report(SIZE, rollouts(*MIXED))
    spent = sum(session.tokens().values())

    told = session.restore(40)

    assert told["lost"] == SIZE
    assert [session.ticket(ticket)["attempt"] for ticket in range(SIZE)] == [1, 2, 2, 2, 2]
    assert [session.ticket(ticket)["state"] for ticket in range(SIZE)] == [1, 0, 0, 0, 0]
    assert sum(session.tokens().values()) == spent == 15 * TOKENS
    assert session.tokens()["lost"] == 9 * TOKENS
    assert session.tokens()["rejected"] == 2 * TOKENS
    assert sum(session.state.ledger.rollouts.values()) == 15
    assert session.state.ledger.rollouts[Source.LOST] == 9


def test_what_a_lost_attempt_sent_is_known_and_what_it_did_not_is_late() -> None:
    """Workers that live on after the trainer died post again, or for the first time."""
    session = new_run()
    session.draw(0, SIZE)
    session.checkpoint(40)
    session.report(0, rollouts(*MIXED))
    session.draw(1, SIZE)
    session.report(SIZE, numbered(n0=1.0, n1=0.0))
    session.restore(40)
    spent = session.tokens()

    known = session.report(0, rollouts(*MIXED), attempt=1)
    assert (known.applied, known.duplicate, known.late) == (0, 4, 0)
    known = session.report(SIZE, numbered(n0=1.0, n1=0.0))
    assert (known.applied, known.duplicate, known.late) == (0, 2, 0)
    assert session.tokens() == spent
    for _ in range(2):
        late = session.report(SIZE, numbered(n2=0.0, n3=0.0))
        assert (late.applied, late.late) == (0, 2)
    assert session.tokens() == {**spent, "rejected": 2 * TOKENS}
    assert session.report(SIZE, rollouts(*MIXED), attempt=2).rejected[0].code == "unknown_ticket"

    session.report(0, rollouts(0.0, 0.0, 0.0, 0.0))
    assert session.ticket(0)["passes"] == 0.0
    assert session.ticket(0)["attempt"] == 2


def test_a_ticket_that_was_void_at_the_save_and_tried_again_after_it_is_void_again() -> None:
    session = new_run()
    session.draw(0, SIZE)
    for ticket in range(4):
        session.void(ticket, VoidReason.ERROR)
    session.report(0, rollouts(*MIXED), attempt=2)
    session.checkpoint(40)
    in_flight = session.state.in_flight_N.tolist()
    uninterrupted = what_was_drawn(session.fork().draw(1, SIZE))
    session.report(1, numbered(n0=1.0), attempt=2)
    session.report(2, rollouts(*MIXED), attempt=2)
    session.report(3, attempt=2, void=VoidReason.LOST)

    told = session.restore(40)

    assert told["reissued"] == [session.id(4)]
    assert session.state.in_flight_N.tolist() == in_flight
    assert [session.ticket(ticket)["state"] for ticket in range(SIZE)] == [1, 2, 2, 2, 0]
    assert [session.ticket(ticket)["reason"] for ticket in range(1, 4)] == [VoidReason.ERROR] * 3
    assert what_was_drawn(session.draw(1, SIZE)) == uninterrupted
    session.report(2, rollouts(*MIXED), attempt=3)
    assert session.ticket(2)["state"] == TicketState.REPORTED
    session.restore(40)
    assert [session.ticket(ticket)["state"] for ticket in range(SIZE)] == [1, 2, 2, 2, 0]


def test_reissued_tickets_get_a_new_deadline() -> None:
    session = new_run(ticket_ttl_s=60.0)
    session.draw(0, SIZE)
    session.checkpoint(40)
    session.expire(1060.0)
    session.now = 1100.0

    session.restore(40)

    assert session.expire(1159.0) == []
    assert session.expire(1160.0) == [0, 1, 2, 3, 4]


def test_heldout_tickets_in_flight_are_issued_again_and_do_not_move_the_index() -> None:
    session = new_run()
    session.draw(7, 2, purpose=Purpose.HELDOUT)
    session.draw(1, SIZE)
    session.answer_batch(session.state.batches[1], ANSWER)
    session.checkpoint(40)

    told = session.restore(40)

    assert (told["next_index"], told["resume_from"]) == (2, 2)
    assert told["reissued"] == ["r:0:heldout:7:0:0", "r:0:heldout:7:0:1"]


def test_a_run_without_draws_starts_at_the_beginning() -> None:
    session = new_run()
    session.checkpoint(0)

    assert session.restore(0) == {
        "step": 0,
        "branch": 0,
        "next_index": 0,
        "resume_from": 0,
        "lost": 0,
        "reissued": [],
    }


def test_the_same_step_in_a_branch_is_the_first_position() -> None:
    session = new_run()
    first = session.checkpoint(40)
    session.draw(0, SIZE)

    assert session.checkpoint(40) == first
    assert session.checkpoint(41) == first + 2
    session.restore(40)
    assert session.checkpoint(41) == first + 4
