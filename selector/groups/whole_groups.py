"""Groups that arrive whole, as most do: what `group_reports` finds for them rollout by rollout, found for all at once.

`deciding.decide` asks before it looks at a group closely. Changes nothing, and knows nothing of refusals: a group in
which anything is out of the ordinary is not taken.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from selector.config import RunConfig
from selector.groups.standing import rule_of
from selector.run.events import GroupEvidence
from selector.run.state import RunState
from selector.run.verdict import judge
from selector.types import TicketState

Values = tuple[float | None, float | None, int, int, float, dict[str, float | None] | None]
"""Outcome, reward, status, tokens, seconds and rewards of a rollout, as they count."""


def untouched(state: RunState, tickets: Sequence[int | None]) -> dict[int, tuple[int, int]]:
    """Attempt and size of those of these tickets that are named once, are open, have nothing of theirs in, and that no
    rule can stop.
    """
    once = [ticket for ticket, times in Counter(tickets).items() if ticket is not None and times == 1]
    named, table = np.array(once, np.int64), state.book.tickets
    named = named[(table["state"][named] == TicketState.OPEN) & (table["arrived"][named] == 0)]
    batches = np.unique(table["batch"][named]).tolist()
    if any(state.batches[ordinal].event.wave for ordinal in batches):
        named = np.array([ticket for ticket in named.tolist() if rule_of(state, ticket) is None], np.int64)
    columns = (table["attempt"][named].tolist(), table["group_size"][named].tolist())
    return dict(zip(named.tolist(), zip(*columns, strict=True), strict=True))


def whole_group(
    ticket: int,
    attempt: int,
    rollouts: Sequence[Values],
    version: int,
    config: RunConfig,
    rewards_count: Callable[[], bool] | None = None,
) -> GroupEvidence:
    """The evidence of an untouched ticket whose rollouts are all here, made by weights of this version; rewards_count
    as in `judge`.
    """
    outcome, reward, status, tokens, seconds, rewards = (list(column) for column in zip(*rollouts, strict=True))
    size = len(rollouts)
    return GroupEvidence(
        ticket=ticket,
        attempt=attempt,
        n=list(range(size)),
        fragment=[0] * size,
        outcome=outcome,
        reward=reward,
        status=status,
        tokens=tokens,
        seconds=seconds,
        version=[version] * size,
        ids=[None] * size,
        rewards=rewards,
        closing=judge(outcome, reward, status, config=config, rewards_count=rewards_count),
    )
