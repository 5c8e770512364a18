"""Runs and groups for tests of reports, and what a decision on one came to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from selector.groups.reports import Decision, RolloutIn
from selector.types import VoidReason
from tests.selector.engine_cases import (
    Session,
    make_config,
)

MIXED = (1.0, 0.0, 0.0, 0.0)

UNKNOWN = 0.5  # mean of a prompt that was never tried

OTHER_REASONS = [VoidReason.STALE, VoidReason.SURPLUS, VoidReason.NEVER_STARTED]

RETRIABLE = [VoidReason.ERROR, VoidReason.LOST]


def drawn(size: int = 3, **config: Any) -> Session:
    """A run with one train batch out."""
    session = Session(make_config(**config))
    session.draw(0, size, policy_version=5)
    return session


def row_of(session: Session, ticket: int = 0) -> int:
    return int(session.state.book.tickets["row"][ticket])


def counts(decision: Decision) -> tuple[int, int, int]:
    return decision.applied, decision.duplicate, decision.late


def codes(decision: Decision) -> list[str]:
    return [refusal.code for refusal in decision.rejected]


def in_any_order(sent: Sequence[RolloutIn]) -> st.SearchStrategy[list[RolloutIn]]:
    return st.permutations([replace(r, n=n) for n, r in enumerate(sent)])
