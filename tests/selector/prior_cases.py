"""What the tests of prior rollouts share: a run with a store, and a probe of it that is reported."""

from typing import Any

import numpy as np

from selector.groups.priors import prior_of, rollout_ids
from selector.groups.reports import Decision
from selector.rollout_store import RolloutStoreConfig
from selector.run.state import DrawnBatch
from selector.types import Purpose, VoidReason
from tests.selector.engine_cases import Outcome, Session, make_config, make_pool, rollout, tickets_of

STORE = RolloutStoreConfig()


def begin(num_rows: int = 4, **changes: Any) -> Session:
    defaults = {"group_size": 8, "rollout_store": STORE}
    return Session(make_config(changes.pop("policy", None), **(defaults | changes)), make_pool(num_rows))


def probe(
    session: Session,
    row: int,
    *outcomes: Outcome,
    version: int = 0,
    index: int = 0,
    body: bytes = b"{}",
    planned: bool = False,
) -> Decision:
    """Probes the whole frame and reports these outcomes of one row; the other prompts are voided."""
    batch = session.draw(index, session.state.num_rows, purpose=Purpose.PROBE, allow_repeat=not planned)
    mine = ticket_of(session, batch, row)
    for ticket in tickets_of(batch):
        if ticket != mine:
            session.void(ticket, VoidReason.NEVER_STARTED)
    sent = [rollout(outcome, n=n, body=body) for n, outcome in enumerate(outcomes)]
    return session.report(mine, sent, version=version, final=True)


def ticket_of(session: Session, batch: DrawnBatch, row: int) -> int:
    return batch.first_ticket + int(np.flatnonzero(batch.event.row_K == row)[0])


def outcome_of(session: Session, ticket: int) -> dict[str, Any]:
    names = ("state", "reason", "scored", "passes", "informative")
    return {name: session.state.book.tickets[name][ticket].item() for name in names}


def begun_with(session: Session, ticket: int) -> list[str]:
    prior = prior_of(session.state, ticket)
    return [] if prior is None else rollout_ids(session.state, prior)


def whole_pool(session: Session, index: int = 0, **values: Any) -> DrawnBatch:
    return session.draw(index, session.state.num_rows, **values)
