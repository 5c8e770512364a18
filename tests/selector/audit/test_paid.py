"""What was paid for prompts: every token has one, and what was trained on, tried again or discarded is told apart."""

import numpy as np

from selector.audit.paid import paid
from selector.types import Purpose, VoidReason
from tests.selector.engine_cases import TOKENS, Session, make_config, make_pool, numbered, rollouts, tickets_of

GROUP = 4 * TOKENS
WHOLE = rollouts(1.0, 0.0, 1.0, 0.0)
TWO = numbered(n0=1.0, n1=0.0)


def row_of(session: Session, ticket: int) -> int:
    return int(session.state.book.tickets["row"][ticket])


def test_void_groups_are_paid_for_and_not_trained_on() -> None:
    session = Session(make_config(), make_pool(8))
    back, void, still_open = tickets_of(session.draw(0, 3))
    session.report(back, WHOLE)
    session.report(void, TWO)
    session.void(void, VoidReason.STALE)
    session.report(still_open, TWO[:1])
    found = paid(session.state)
    assert found.tokens_N[row_of(session, back)] == GROUP
    assert found.tokens_N[row_of(session, void)] == found.untrained_N.sum() == 2 * TOKENS
    assert found.untrained_N[row_of(session, void)] == 2 * TOKENS
    assert found.tokens_N[row_of(session, still_open)] == TOKENS


def test_what_no_step_names_is_not_trained_on_once_steps_name_anything() -> None:
    session = Session(make_config(), make_pool(8))
    first, second = tickets_of(session.draw(0, 2))
    for ticket in (first, second):
        session.report(ticket, WHOLE)
    assert paid(session.state).untrained_N.sum() == 0
    session.step(0, 0, trained=[session.id(first)])
    found = paid(session.state)
    assert found.untrained_N[row_of(session, second)] == found.untrained_N.sum() == GROUP


def test_probes_and_looks_are_paid_for_and_were_never_to_be_trained_on() -> None:
    session = Session(make_config(), make_pool(8, heldout=[6, 7]))
    for purpose in (Purpose.PROBE, Purpose.HELDOUT, Purpose.CONTROL):
        for ticket in tickets_of(session.draw(0, 1, purpose=purpose)):
            session.report(ticket, WHOLE)
    found = paid(session.state)
    assert (found.tokens_N.sum(), found.untrained_N.sum()) == (3 * GROUP, 0)


def test_tokens_of_all_prompts_are_those_of_the_ledger_whatever_happened() -> None:
    rng = np.random.default_rng(6)
    session = Session(make_config(max_lag=2), make_pool(12, heldout=[10, 11]))
    for index in range(8):
        if index == 4:
            session.checkpoint(4)
        for ticket in tickets_of(session.draw(index, 4, policy_version=index, allow_repeat=True)):
            match rng.integers(5):
                case 0:
                    session.report(ticket, WHOLE)
                case 1:
                    session.report(ticket, TWO, void=VoidReason.ERROR)
                    session.report(ticket, WHOLE, attempt=2)
                case 2:
                    session.report(ticket, WHOLE, version=max(index - 4, 0))
                case 3:
                    session.report(ticket, WHOLE)
                    session.report(ticket, rollouts(0.0, 0.0, 0.0, 0.0, tokens=7))
                case _:
                    session.report(ticket, TWO[:1])
    session.restore(4, restore_id="back")
    for batch in session.state.batches:
        for ticket in tickets_of(batch):
            if session.state.book.tickets["state"][ticket] == 0:
                session.report(ticket, WHOLE)
    found = paid(session.state)
    assert found.tokens_N.sum() == sum(session.state.ledger.tokens.values())
    assert 0 < found.untrained_N.sum() < found.tokens_N.sum()
    assert (found.untrained_N <= found.tokens_N).all()
