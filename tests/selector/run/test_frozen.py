"""The copy that audits are computed from: it stays as it was, and says the same as the run did."""

import numpy as np

from selector.audit.accounts import accounts
from selector.audit.auditing import audit_run
from selector.heldout.looks import held_out_looks
from selector.run.frozen import frozen
from selector.run.state import RunState
from selector.types import Purpose
from tests.selector.engine_cases import Session, coin, make_config, make_pool

RATES = np.linspace(0.1, 0.9, 24)


def session(num_draws: int = 4) -> Session:
    made = Session(make_config(weights="horvitz_thompson", audit_share=0.25), make_pool(24, heldout=range(20, 24)))
    for index in range(num_draws):
        made.answer_batch(made.draw(index, 6), coin(1, RATES))
    made.answer_batch(made.draw(0, 4, purpose=Purpose.HELDOUT), coin(2, RATES))
    return made


def said(state: RunState) -> tuple[str, str, str]:
    return repr(audit_run(state)), repr(accounts(state)), repr([look.outcome_KG for look in held_out_looks(state)[0]])


def test_the_copy_says_what_the_run_says() -> None:
    state = session().state
    assert said(frozen(state)) == said(state)


def test_what_happens_later_is_not_in_the_copy() -> None:
    made = session()
    made.checkpoint(1)
    copy, before = frozen(made.state), said(made.state)
    made.answer_batch(made.draw(4, 6), coin(1, RATES))
    made.step(1, 1, trained=None, weights_applied=True)
    made.draw(5, 6)
    made.restore(1)
    assert said(copy) == before
    assert said(made.state) != before or made.state.branch == 1


def test_a_restore_that_loses_batches_leaves_them_alive_in_the_copy() -> None:
    made = session(1)
    made.checkpoint(1)
    made.answer_batch(made.draw(1, 6), coin(1, RATES))
    copy = frozen(made.state)
    made.restore(1)
    assert [batch.alive for batch in made.state.batches][-1] is False
    assert all(batch.alive for batch in copy.batches)


def test_rollouts_are_left_out_where_they_are_not_read() -> None:
    made = session()
    copy = frozen(made.state, ())
    assert audit_run(copy).num_draws == 4
    assert copy.book.rollouts.size == made.state.book.rollouts.size
