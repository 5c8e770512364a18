"""What the tests of going back share: a run with credit, audit and held-out prompts, and a trainer that lags."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from selector.config import PolicyConfig
from selector.types import Purpose
from tests.selector.engine_cases import HORVITZ, Session, beliefs_of, coin, make_config, make_pool, what_was_drawn

SIZE = 5
NUM_ROWS = 40
PASS_RATE_N = np.linspace(0.0, 1.0, NUM_ROWS + 5)
ANSWER = coin(3, PASS_RATE_N)


@dataclass
class Seen:
    """What a trainer sees of one index, and what is believed after it."""

    drawn: dict[str, Any]
    believed: dict[str, bytes]
    in_flight: list[int]


def new_run(policy: PolicyConfig | None = None, **config: Any) -> Session:
    return Session(make_config(policy, **(HORVITZ | config)), make_pool(NUM_ROWS, heldout=[3, 13, 23]))


def train(session: Session, indices: range, lag: int, answer: Any = ANSWER) -> list[Seen]:
    """One draw an index, and the whole groups of the batch that was drawn `lag` indices ago."""
    seen = []
    for index in indices:
        batch = session.draw(index, SIZE, policy_version=index)
        if index >= lag:
            key = (Purpose.TRAIN.value, index - lag, 0)
            before = session.state.batches[session.state.surviving[key]]
            session.answer_batch(before, answer, version=before.event.policy_version)
        session.step(index, index)
        seen.append(Seen(what_was_drawn(batch), beliefs_of(session.state), session.state.in_flight_N.tolist()))
    return seen
