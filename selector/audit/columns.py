"""The columns of a window of draws, end to end, as the audit's sums and contrasts read them.

`selector.audit.estimates` and `selector.audit.contrasts` use it. Knows draw records; nothing of estimates or of what
they mean.

Axes: T draws, M tickets of all draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from selector.batches.observations import Bools, DrawRecord, Floats

# Predicted credit is at most the credit, as predictions are at most 1; the slack is for rounding in sums over the pool.
CREDIT_TOLERANCE = 1e-9


def joined(columns: Sequence[NDArray[np.generic]]) -> Floats:
    """End to end as float64, which holds every count and code exactly."""
    return np.concatenate(columns, dtype=np.float64) if columns else np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class Tickets:
    """Columns of all tickets end to end, and of the draws they belong to."""

    draw_M: NDArray[np.int64]  # place of the ticket's draw, 0 … T−1
    weight_M: Floats
    mass_M: Floats  # 1 + c
    audit_M: Bools
    num_tickets_T: NDArray[np.int64]
    num_audit_T: NDArray[np.int64]
    frame_T: Floats
    eligible_T: Floats

    @classmethod
    def of(cls, drawn: Sequence[DrawRecord]) -> Self:
        num_tickets = np.array([record.num_tickets for record in drawn], dtype=np.int64)
        return cls(
            draw_M=np.repeat(np.arange(len(drawn)), num_tickets),
            weight_M=joined([record.weight_K for record in drawn]),
            mass_M=1 + joined([record.credit_K for record in drawn]),
            audit_M=joined([record.audit_K for record in drawn]) > 0,
            num_tickets_T=num_tickets,
            num_audit_T=np.array([record.num_audit for record in drawn], dtype=np.int64),
            frame_T=np.array([record.frame for record in drawn], dtype=np.float64),
            eligible_T=np.array([record.eligible for record in drawn], dtype=np.float64),
        )

    def per_draw(self, value_M: Floats) -> Floats:
        """Sum over the tickets of each draw, (T,)."""
        sum_T = np.bincount(self.draw_M, weights=value_M, minlength=self.num_tickets_T.size)
        return np.asarray(sum_T, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """What differs between pass rate and degenerate share."""

    x_M: Floats
    predicted_M: Floats
    base_T: Floats
    reweighted_T2: Floats
    uniform_T2: Floats

    def __post_init__(self) -> None:
        wrong = np.flatnonzero((self.x_M < 0) | (self.x_M > 1))
        if wrong.size:
            raise ValueError(f"outcomes must be in [0, 1] to be audited, got {self.x_M[wrong[0]]}: scale them first")

    @classmethod
    def pass_rate(cls, drawn: Sequence[DrawRecord]) -> Self:
        return cls(
            x_M=joined([record.outcome_K for record in drawn]),
            predicted_M=joined([record.predicted_pass_K for record in drawn]),
            base_T=np.array([record.base_pass for record in drawn]),
            reweighted_T2=np.array([record.range_pass for record in drawn]).reshape(-1, 2),
            uniform_T2=np.array([record.range_pass_uniform for record in drawn]).reshape(-1, 2),
        )

    @classmethod
    def degenerate(cls, drawn: Sequence[DrawRecord]) -> Self:
        return cls(
            x_M=joined([record.degenerate_K for record in drawn]),
            predicted_M=joined([record.predicted_degenerate_K for record in drawn]),
            base_T=np.array([record.base_degenerate for record in drawn]),
            reweighted_T2=np.array([record.range_degenerate for record in drawn]).reshape(-1, 2),
            uniform_T2=np.array([record.range_degenerate_uniform for record in drawn]).reshape(-1, 2),
        )


@dataclass(frozen=True, slots=True)
class Credit:
    """Credit open at the last draw and carried into the first, each with the part that is predicted to pass."""

    open: float
    open_predicted: float
    carried: float
    carried_predicted: float

    def __post_init__(self) -> None:
        for name, credit, predicted in (
            ("open_credit", self.open, self.open_predicted),
            ("carried_credit", self.carried, self.carried_predicted),
        ):
            if not 0 <= predicted <= credit * (1 + CREDIT_TOLERANCE) < np.inf:
                raise ValueError(f"0 <= predicted {name} <= {name}, got {predicted} and {credit}")
