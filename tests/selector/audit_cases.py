"""Draws for tests of the audit: hand-worked ones, a simulated design with lag, and draws of which tickets are missing.

Written apart from `selector.sampling.draw`, which they check the audit of.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from selector.audit.estimates import audit
from selector.audit.values import Audit, Estimate
from selector.batches.observations import DrawRecord, Floats, observation_ranges
from selector.sampling.inclusion import Inclusion

WIDE = (-10.0, 10.0)

# Outcomes and ranges that leave every limit away from 0 and 1 after some hundred draws.
BETWEEN: dict[str, Any] = {
    "outcome_K": np.array([0.5, 0.25]),
    "range_pass": (-0.5, 1.5),
    "range_pass_uniform": (-0.5, 1.5),
}


def record(**changes: Any) -> DrawRecord:
    """A draw of two tickets from a pool of four, the first an audit ticket."""
    columns: dict[str, Any] = {
        "index": 0,
        "num_tickets": 2,
        "num_audit": 1,
        "frame": 4,
        "eligible": 4,
        "weight_K": np.array([1.0, 1.0]),
        "credit_K": np.array([0, 0]),
        "audit_K": np.array([True, False]),
        "predicted_pass_K": np.array([0.5, 0.25]),
        "predicted_degenerate_K": np.array([0.5, 0.5]),
        "base_pass": 2.0,
        "base_degenerate": 2.0,
        "range_pass": WIDE,
        "range_degenerate": WIDE,
        "range_pass_uniform": WIDE,
        "range_degenerate_uniform": WIDE,
        "category_K": np.array([0, 1]),
        "difficulty_K": np.array([5, 2]),
        "pool_category_C": np.array([3, 1]),
        "pool_difficulty_B": np.array([0, 0, 1, 0, 0, 2, 0, 1, 0, 0]),
        "outcome_K": np.array([1.0, 0.25]),
        "degenerate_K": np.array([1.0, 0.0]),
    } | changes
    return DrawRecord(**columns)


def audited(records: list[DrawRecord], **changes: Any) -> Audit:
    options: dict[str, Any] = {"categories": ["algebra", "logic"], "audit_share": 0.1} | changes
    return audit(records, **options)


def value(found: Estimate) -> float:
    assert found.estimate is not None
    return found.estimate


def interval(found: Estimate) -> tuple[float, float]:
    assert found.interval is not None
    return found.interval


@dataclass
class Simulation:
    """N prompts of known pass rates, drawn by systematic πps with an audit on top; written apart from
    `selector.sampling.draw`.

    Drawn prompts are blocked for up to `block` more draws. `size` and `predicted` are functions of passes and rollouts.
    """

    rng: np.random.Generator
    pass_rate_N: Callable[[int], Floats]
    size: Callable[[Floats, Floats], Floats]
    predicted: Callable[[Floats, Floats], Floats]
    num_tickets: int = 8
    num_audit: int = 1
    group_size: int = 8
    block: int = 0
    records: list[DrawRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        num_rows = self.pass_rate_N(0).size
        self.passes, self.tries = np.zeros(num_rows), np.zeros(num_rows)
        self.credit, self.free_at = np.zeros(num_rows, int), np.zeros(num_rows, int)

    def run(self, num_draws: int) -> "Simulation":
        for _ in range(num_draws):
            self.step(len(self.records))
        return self

    def step(self, draw: int) -> None:
        p, num_rows = self.pass_rate_N(draw), self.credit.size
        eligible = self.free_at <= draw
        rows = np.flatnonzero(eligible)
        picked, audit_K, pi = self.sample(rows)
        predicted = np.clip(self.predicted(self.passes, self.tries), 0, 1)
        degenerate = predicted**self.group_size + (1 - predicted) ** self.group_size
        inclusion = np.ones(num_rows)
        inclusion[rows] = pi
        outcome = self.rng.binomial(self.group_size, p[picked]) / self.group_size
        num_all = (self.num_tickets, self.num_audit, num_rows)
        columns = (Inclusion.of(inclusion), self.credit, predicted, 1.0 - degenerate, eligible)
        for_pass, for_degenerate = observation_ranges(*columns, *num_all)
        self.records.append(
            record(
                index=draw,
                num_tickets=self.num_tickets,
                num_audit=self.num_audit,
                frame=num_rows,
                eligible=rows.size,
                weight_K=self.num_tickets * (1 + self.credit[picked]) / (num_rows * inclusion[picked]),
                credit_K=self.credit[picked],
                audit_K=audit_K,
                predicted_pass_K=predicted[picked],
                predicted_degenerate_K=degenerate[picked],
                base_pass=for_pass.base,
                base_degenerate=for_degenerate.base,
                range_pass=for_pass.reweighted,
                range_degenerate=for_degenerate.reweighted,
                range_pass_uniform=for_pass.uniform,
                range_degenerate_uniform=for_degenerate.uniform,
                category_K=np.zeros(self.num_tickets, int),
                difficulty_K=np.zeros(self.num_tickets, int),
                outcome_K=outcome,
                degenerate_K=((outcome == 0) | (outcome == 1)).astype(float),
            )
        )
        self.passes[picked] += outcome * self.group_size
        self.tries[picked] += self.group_size
        self.credit[eligible] = 0
        self.credit[~eligible] += 1
        if self.block:
            self.free_at[picked] = draw + 1 + self.rng.integers(0, self.block + 1, picked.size)

    def sample(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, Floats]:
        """Rows drawn, which of them are audit tickets, and π of every eligible row."""
        places = self.num_tickets - self.num_audit
        size = self.size(self.passes, self.tries)[rows]
        selected = places * size / size.sum()
        assert selected.max() <= 1
        order = self.rng.permutation(rows.size)
        marks = np.floor(np.cumsum(selected[order]) + self.rng.random())
        chosen = rows[order[np.diff(marks, prepend=0.0) > 0]][:places]
        shuffled = self.rng.permutation(rows)
        added = shuffled[~np.isin(shuffled, chosen)][: self.num_tickets - chosen.size]
        picked = np.concatenate((chosen, added))
        pi = selected + (1 - selected) * self.num_audit / (rows.size - places)
        return picked, np.isin(picked, shuffled[: self.num_audit]), pi


def learned(passes: Floats, tries: Floats) -> Floats:
    return (passes + 0.5) / (tries + 1)


def chance_of_signal(passes: Floats, tries: Floats) -> Floats:
    p = learned(passes, tries)
    return 0.05 + 1 - p**8 - (1 - p) ** 8


def assert_holds(found: Estimate, truth: float) -> None:
    low, high = interval(found)
    assert low <= truth <= high


def steady(num_draws: int, audit_x: float = 0.5, other_x: float = 0.5) -> list[DrawRecord]:
    """Narrow ranges: what is seen is soon known."""
    return many(
        num_draws,
        outcome_K=np.array([audit_x, other_x]),
        predicted_pass_K=np.array([0.5, 0.5]),
        range_pass=(0.0, 1.0),
        range_pass_uniform=(0.0, 1.0),
        range_degenerate=(-0.5, 1.5),
        range_degenerate_uniform=(-0.5, 1.5),
        degenerate_K=np.array([0.0, 0.0]),
    )


def many(num_draws: int, **changes: Any) -> list[DrawRecord]:
    return [record(index=i, **changes) for i in range(num_draws)]


def with_missing(draws: list[DrawRecord], place: int, every: int) -> list[DrawRecord]:
    """The same draws, where the ticket at `place` of each `every`-th one never came back."""
    missing = np.arange(2) == place
    return [
        replace(
            draw,
            outcome_K=np.where(missing, np.nan, draw.outcome_K),
            degenerate_K=np.where(missing, np.nan, draw.degenerate_K),
        )
        if i % every == 0
        else draw
        for i, draw in enumerate(draws)
    ]


def filled(draws: list[DrawRecord], x: float) -> list[DrawRecord]:
    return [
        replace(draw, outcome_K=np.where(np.isnan(draw.outcome_K), x, draw.outcome_K), degenerate_K=np.zeros(2))
        for draw in draws
    ]
