"""Do the draws keep to their chances? The re-weighted estimate against the uniform one, draw by draw.

`selector.audit.estimates` calls it. Knows columns of tickets; nothing of runs.

Axes: T draws, M tickets of all draws.

Both estimates of one draw have the same conditional mean, (1/N) Σ_eligible (1+c)·x, whatever the policy, the credit and
the predictions are. So their difference

    z = Σ_tickets (w/K − [audit]·(1+c)·N_e/(N·m)) · (x − m̂)

has mean zero given all before it, at each draw: a null that stays constant while everything moves, which may be bet
against (`selector.audit.betting`). It falls if a π is not the chance that the design gave, or if whether a ticket comes
back depends on its outcome. Good predictions hide such a fault from z and not from the trainer, whose weighted mean has
no m̂; so half of the capital bets on z, and half on the same sum with ½ in place of m̂, the plain contrast. Both have
mean zero, and the mean of their capitals is a capital. The same holds for the tickets of any part of the pool that is
fixed by what is known at the draw, with the same range. Tickets that did not come back are left out, and those that did
of the same draw and kind (audit or not) stand for them: right if what is missing does not depend on outcomes, which is
part of what is tested.

The error α is split: half to the whole pool, a quarter to categories, a quarter to difficulty bins; within each evenly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Self

import numpy as np

from selector.audit.asymptotic import asymptotic_margin
from selector.audit.betting import bet_against_zero
from selector.audit.columns import Quantity, Tickets
from selector.audit.confidence import lower_limit, upper_limit
from selector.batches.observations import NUM_DIFFICULTY_BINS, Bools, Floats, Integers, Interval

HALF = 0.5
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
    estimate: float  # of the plain contrast: how far the trainer's weighted mean is off
    interval: Interval  # its own; holds at every look with probability 1 − alpha
    asymptotic: Interval | None
    adjusted: float  # the same for z: how far the audit's re-weighted curve is off
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
    """What each ticket adds to the contrasts, and the ranges of any part's."""

    plain_M: Floats
    adjusted_M: Floats
    reach_T: Floats  # of the plain one, either way
    low_T: Floats
    high_T: Floats
    used_T: Bools

    @classmethod
    def of(cls, tickets: Tickets, quantity: Quantity) -> Self:
        back_M = np.isfinite(quantity.x_M)
        audit_M, num_audit_T = tickets.audit_M, tickets.num_audit_T
        num_other_T = tickets.num_tickets_T - num_audit_T
        audit_back_T = tickets.per_draw((back_M & audit_M).astype(np.float64))
        other_back_T = tickets.per_draw((back_M & ~audit_M).astype(np.float64))
        scale_audit_T = num_audit_T / np.maximum(audit_back_T, 1)
        scale_other_T = np.where(num_other_T > 0, num_other_T / np.maximum(other_back_T, 1), 1.0)
        share_T = tickets.eligible_T / (tickets.frame_T * np.maximum(num_audit_T, 1))
        draw_M = tickets.draw_M
        factor_M = tickets.weight_M / tickets.num_tickets_T[draw_M]
        factor_M = factor_M - np.where(audit_M, tickets.mass_M * share_T[draw_M], 0.0)
        factor_M *= np.where(audit_M, scale_audit_T[draw_M], scale_other_T[draw_M])
        factor_M = np.where(back_M, factor_M, 0.0)
        x_M = np.where(back_M, quantity.x_M, 0.0)
        # A prompt adds m̂ to what may fall and 1 − m̂ to what may rise: as much as 1 to both together.
        guess_T, scale_T = quantity.base_T / tickets.frame_T, np.maximum(scale_audit_T, scale_other_T)
        reweighted_T2, uniform_T2 = quantity.reweighted_T2 - guess_T[:, None], quantity.uniform_T2 - guess_T[:, None]
        return cls(
            plain_M=factor_M * (x_M - HALF),
            adjusted_M=factor_M * (x_M - quantity.predicted_M),
            reach_T=HALF * scale_T * (np.ptp(reweighted_T2, axis=1) + np.ptp(uniform_T2, axis=1)),
            low_T=scale_T * (reweighted_T2[:, 0] - uniform_T2[:, 1]),
            high_T=scale_T * (reweighted_T2[:, 1] - uniform_T2[:, 0]),
            used_T=(audit_back_T > 0) & ((other_back_T > 0) | (num_other_T == 0)),
        )


def _contrast(
    quantity: str, part: Part, moved: _Differences, tickets: Tickets, index_T: Integers, alpha: float
) -> Contrast:
    used_T, share = moved.used_T, part.pool_share

    def observed(add_M: Floats, low_T: Floats, high_T: Floats) -> tuple[Floats, Floats, Floats]:
        z_T = tickets.per_draw(np.where(part.is_in_M, add_M, 0.0))
        low_T, high_T = low_T[used_T], high_T[used_T]
        return np.clip(z_T[used_T], low_T, high_T), low_T, high_T

    plain = observed(moved.plain_M, -moved.reach_T, moved.reach_T)
    adjusted = observed(moved.adjusted_M, moved.low_T, moved.high_T)
    log_T = np.logaddexp(bet_against_zero(*plain).log_T, bet_against_zero(*adjusted).log_T) - log(2)
    reached = np.flatnonzero(log_T >= log(1 / alpha))
    low = lower_limit(*plain, 1 - alpha, guess_T=0.0)
    high = upper_limit(*plain, 1 - alpha, guess_T=0.0)
    margin, mean = asymptotic_margin(plain[0], 0.0, 1 - alpha), float(plain[0].mean())
    return Contrast(
        quantity=quantity,
        where=part.where,
        alpha=alpha,
        num_draws=int(log_T.size),
        estimate=mean / share,
        interval=(low / share, high / share),
        asymptotic=None if margin is None else ((mean - margin) / share, (mean + margin) / share),
        adjusted=float(adjusted[0].mean()) / share,
        log_e_value=float(log_T[-1]),
        detected=bool(reached.size),
        detected_at=int(index_T[used_T][reached[0]]) if reached.size else None,
    )
