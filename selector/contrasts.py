"""Do the draws keep to their chances? The re-weighted estimate against the uniform one, draw by draw.

`selector.audit` calls it. Knows columns of tickets; nothing of runs.

Axes: T draws, M tickets of all draws.

Both estimates of one draw have the same conditional mean, (1/N) Σ_eligible (1+c)·x, whatever the policy, the credit and
the predictions are. So their difference

    z = Σ_tickets (w/K − [audit]·(1+c)·N_e/(N·m)) · (x − m̂)

has mean zero given all before it, at each draw: a null that stays constant while everything moves, which may be bet
against (`selector.betting`). It falls if a π is not the chance that the design gave, or if whether a ticket comes back
depends on its outcome. The same holds for the tickets of any part of the pool that is fixed by what is known at the
draw, with the same range. Tickets that did not come back are left out, and those that did of the same draw and kind
(audit or not) stand for them: right if what is missing does not depend on outcomes, which is part of what is tested.

The error α is split: half to the whole pool, a quarter to categories, a quarter to difficulty bins; within each evenly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from selector.asymptotic import asymptotic_margin
from selector.audit_columns import Quantity, Tickets
from selector.betting import bet_against_zero
from selector.confidence import lower_limit, upper_limit
from selector.observations import NUM_DIFFICULTY_BINS, Bools, Floats, Integers, Interval

WHOLE, PARTS = 0.5, 0.25  # shares of α
MOST_CATEGORIES = 20  # that are looked at one by one: the largest of the pool at the first draw
MIN_POOL_SHARE = 0.005  # of a part that is shown: below it a shift of the part is none of the whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Re-weighted minus uniform, over draws, for one quantity and one part of the pool.

    For a part the numbers are of its prompts' mean: divided by its share of the pool.
    """

    quantity: str  # "pass_rate" or "degenerate"
    where: str  # "overall", "category x" or "predicted pass rate 0.3 to 0.4"
    alpha: float  # its share of the error; detected is wrong with this probability at most
    num_draws: int
    estimate: float
    interval: Interval  # holds at every look with probability 1 − alpha
    asymptotic: Interval | None
    log_e_value: float  # now; the null falls at log(1/alpha)
    detected: bool  # the evidence has been that large at some draw
    detected_at: int | None  # index of that draw


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of the pool that is looked at by itself."""

    where: str
    is_in_M: Bools
    pool_share: float


def contrasts(
    tickets: Tickets,
    quantities: Sequence[tuple[str, Quantity]],
    parts: Sequence[Part],
    index_T: Integers,
    alpha: float,
) -> tuple[Contrast, ...]:
    """The whole pool for each quantity, then each part for the first of them. None without a draw that has audit
    tickets and others that came back.

    index_T: (T,) the draws' indices. alpha: for all of them together.
    """
    found = list[Contrast]()
    for name, quantity in quantities:
        moved = _Differences.of(tickets, quantity)
        if moved.used_T.any():
            every_M = np.ones(quantity.x_M.size, np.bool_)
            whole = Part(where="overall", is_in_M=every_M, pool_share=1.0)
            found.append(_contrast(name, whole, moved, tickets, index_T, alpha * WHOLE / len(quantities)))
    if found:
        name, quantity = quantities[0]
        moved = _Differences.of(tickets, quantity)
        for kind in ("category", "predicted"):
            of_kind = [part for part in parts if part.where.startswith(kind)]
            found += [
                _contrast(name, part, moved, tickets, index_T, alpha * PARTS / len(of_kind))
                for part in of_kind
                if part.pool_share >= MIN_POOL_SHARE  # dividing by less tells nothing
            ]
    return tuple(found)


def difficulty_parts(bin_M: Integers, share_B: Floats) -> list[Part]:
    """All difficulty bins. share_B: their mean shares of the pool over the draws."""
    width = 1 / NUM_DIFFICULTY_BINS
    return [
        Part(
            where=f"predicted pass rate {code * width:.1f} to {(code + 1) * width:.1f}",
            is_in_M=bin_M == code,
            pool_share=float(share_B[code]),
        )
        for code in range(NUM_DIFFICULTY_BINS)
    ]


def category_parts(code_M: Integers, first_C: Floats, share_C: Floats, names: Sequence[str]) -> list[Part]:
    """The largest categories, if there are several. first_C: their shares of the pool at the first draw, which alone
    say which are looked at. share_C: the means of these shares over the draws.
    """
    codes = np.argsort(-first_C, kind="stable")[:MOST_CATEGORIES]
    codes = codes[first_C[codes] >= MIN_POOL_SHARE]
    if codes.size < 2:
        return []
    return [
        Part(where=f"category {names[code]}", is_in_M=code_M == code, pool_share=float(share_C[code]))
        for code in codes.tolist()
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Differences:
    """What each ticket adds to z, and the range of any part's z."""

    add_M: Floats
    low_T: Floats
    high_T: Floats
    used_T: Bools

    @classmethod
    def of(cls, tickets: Tickets, quantity: Quantity) -> "_Differences":
        back_M = np.isfinite(quantity.x_M)
        audit_M, num_audit_T = tickets.audit_M, tickets.num_audit_T
        num_other_T = tickets.num_tickets_T - num_audit_T
        audit_back_T = tickets.per_draw((back_M & audit_M).astype(np.float64))
        other_back_T = tickets.per_draw((back_M & ~audit_M).astype(np.float64))
        used_T = (audit_back_T > 0) & ((other_back_T > 0) | (num_other_T == 0))
        scale_audit_T = num_audit_T / np.maximum(audit_back_T, 1)
        scale_other_T = np.where(num_other_T > 0, num_other_T / np.maximum(other_back_T, 1), 1.0)
        share_T = tickets.eligible_T / (tickets.frame_T * np.maximum(num_audit_T, 1))
        draw_M = tickets.draw_M
        factor_M = tickets.weight_M / tickets.num_tickets_T[draw_M]
        factor_M = factor_M - np.where(audit_M, tickets.mass_M * share_T[draw_M], 0.0)
        factor_M *= np.where(audit_M, scale_audit_T[draw_M], scale_other_T[draw_M])
        guess_T, scale_T = quantity.base_T / tickets.frame_T, np.maximum(scale_audit_T, scale_other_T)
        reweighted_T2, uniform_T2 = quantity.reweighted_T2 - guess_T[:, None], quantity.uniform_T2 - guess_T[:, None]
        return cls(
            add_M=np.where(back_M, factor_M * (np.where(back_M, quantity.x_M, 0.0) - quantity.predicted_M), 0.0),
            low_T=scale_T * (reweighted_T2[:, 0] - uniform_T2[:, 1]),
            high_T=scale_T * (reweighted_T2[:, 1] - uniform_T2[:, 0]),
            used_T=used_T,
        )


def _contrast(
    quantity: str, part: Part, moved: _Differences, tickets: Tickets, index_T: Integers, alpha: float
) -> Contrast:
    used_T = moved.used_T
    low_T, high_T = moved.low_T[used_T], moved.high_T[used_T]
    z_T = np.clip(tickets.per_draw(np.where(part.is_in_M, moved.add_M, 0.0))[used_T], low_T, high_T)
    evidence = bet_against_zero(z_T, low_T, high_T)
    reached = np.flatnonzero(evidence.log_T >= log(1 / alpha))
    low = lower_limit(z_T, low_T, high_T, 1 - alpha, guess_T=0.0)
    high = upper_limit(z_T, low_T, high_T, 1 - alpha, guess_T=0.0)
    margin, mean, share = asymptotic_margin(z_T, 0.0, 1 - alpha), float(z_T.mean()), part.pool_share
    return Contrast(
        quantity=quantity,
        where=part.where,
        alpha=alpha,
        num_draws=int(z_T.size),
        estimate=mean / share,
        interval=(low / share, high / share),
        asymptotic=None if margin is None else ((mean - margin) / share, (mean + margin) / share),
        log_e_value=evidence.log_now,
        detected=bool(reached.size),
        detected_at=int(index_T[used_T][reached[0]]) if reached.size else None,
    )
