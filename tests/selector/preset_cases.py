"""What the tests of presets share: a preset's run, and a pool whose prompts answer alike in every group."""

from typing import Any

from selector.config import RunConfig
from selector.policies import PRESETS
from selector.run.state import DrawnBatch
from tests.selector.engine_cases import Session, make_pool


def config_of(preset: str, **changes: Any) -> RunConfig:
    chosen = PRESETS[preset]
    defaults: dict[str, Any] = {"audit_share": 0.0, "group_size": chosen.group_size}
    return RunConfig(pool="pool", policy=chosen.config, **(defaults | changes))


def passes_of(row: int) -> int:
    """Of 8 rollouts, in every group."""
    return row % 9


def answered(session: Session, batch: DrawnBatch) -> None:
    session.answer_batch(batch, lambda row, _, n: float(n < passes_of(row)))


def tried(preset: str, num_rows: int = 60, num_batches: int = 4) -> Session:
    """A run in which some prompts have had a group of 8."""
    session = Session(config_of(preset), make_pool(num_rows))
    for index in range(num_batches):
        answered(session, session.draw(index, 8))
    return session
