"""The audit: what the selection did to the stream of outcomes, estimated from the logged draws.

`RunEngine` calls it with the draws whose tickets have all ended; `/audit` and the page show the result. Knows arrays of
tickets; nothing of pools, prompts, events or how a design came to its π.

Axes: K tickets of one draw, T draws, M tickets of all draws, C categories, B difficulty bins.

One observation per draw, as the tickets of a draw share a policy and the rollouts of a ticket share a prompt:

    reweighted:  (1/N) Σ_eligible (1+c)·m̂ + (1/K) Σ_tickets w·(x − m̂),              w = K(1+c)/(Nπ)
    uniform:     (1/N) Σ_eligible (1+c)·m̂ + (1/m) Σ_audit (1+c)·(N_e/N)·(x − m̂)
    selected:    mean of x over the tickets that came back

x is the mean outcome of the group, or 1 if the group was degenerate and else 0; m̂ is its prediction, stored at the
draw. The first two have the pool's mean as conditional mean whatever m̂ is, up to credit: what was blocked counts when
it is eligible again, so the sum over draws lacks (1/N) Σ_blocked c·x at its end (`open_credit`) and contains as much
from before its first draw (`carried_credit`). Estimand: the average over the draws of the pool's mean at each of them.

A ticket without x counts as m̂ in the estimate, as 0 in the lower limit and as 1 in the upper one. Those are
observations of x·R and x·R + 1 − R (R: came back) in the same ranges, so the limits hold whatever made it go missing.

The draws must be all those of the log from the first of the window to the last one given: a slow draw ends the list.
To skip it and go on would select draws by their outcome. A draw that returned no ticket is left out; it must not have
added to any credit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from selector.confidence import lower_limit, upper_limit
from selector.observations import NUM_DIFFICULTY_BINS, Bools, DrawRecord, Floats, Interval

# Share of the audit tickets that may be missing before the verdict is withheld. The intervals carry the worst case at
# any share; beyond this one they say more about what went missing than about the pool.
MISSING_AUDIT_TOLERANCE = 0.01
# Open credit, as a share of the whole window, that is worth a warning: the intervals are wider by as much.
OPEN_CREDIT_WARNING = 0.01
# Predicted credit is at most the credit, as predictions are at most 1; the slack is for rounding in sums over the pool.
CREDIT_TOLERANCE = 1e-9
# A moving curve needs two points.
MIN_VERDICT_DRAWS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over draws with its interval; both None when nothing was observed."""

    estimate: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """One quantity three ways."""

    uniform: Estimate
    selected: Estimate
    reweighted: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRatio:
    """Share of the tickets / share of the pool, over all draws; None where the pool had no such prompt."""

    category: Mapping[str, float | None]
    difficulty: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What `/audit` shows. Each interval holds at every look with probability `level`, not all of them together."""

    draws: tuple[int, int] | None  # first and last index with tickets
    num_draws: int
    level: float
    pass_rate: Curves
    degenerate: Curves
    selection_ratio: SelectionRatio
    effective_sample_size: float  # (Σw)²/Σw² over all tickets
    largest_weight: float
    claim_reasons: tuple[str, ...]  # why the claim made at the draws is not realised in full; empty if it is
    verdict: str | None
    warnings: tuple[str, ...]


def audit(
    records: Sequence[DrawRecord],
    *,
    level: float = 0.95,
    categories: Sequence[str],
    audit_share: float,
    informative_only: bool = False,
    open_credit: float = 0.0,
    open_credit_predicted_pass: float = 0.0,
    open_credit_predicted_degenerate: float = 0.0,
    carried_credit: float = 0.0,
    carried_credit_predicted_pass: float = 0.0,
    carried_credit_predicted_degenerate: float = 0.0,
) -> Audit:
    """Estimates, intervals, ratios and a verdict over one window of draws.

    records: the train draws of the window in the order of the log, up to the first with an open ticket. categories:
    names by code; `category_K` holds codes. audit_share: the run's. informative_only: the feed reports mixed groups
    only. open_credit: (1/N) Σ c over the prompts blocked at the last draw given, c counting that draw, with (1/N) Σ
    c·m̂ for both quantities. carried_credit: the same at the draw before the first one, 0 unless the window starts in
    mid-run.
    Raises ValueError if level is not in (0, 1), a code is unknown, or an outcome or a credit is impossible.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), such as 0.95, got {level}")
    drawn = [record for record in records if record.num_tickets]
    tickets = _Tickets.of(drawn)
    credit = _Credit(open_credit, open_credit_predicted_pass, carried_credit, carried_credit_predicted_pass)
    outcome = _Quantity.pass_rate(drawn)
    pass_rate = _curves(tickets, outcome, credit, level)
    credit = _Credit(open_credit, open_credit_predicted_degenerate, carried_credit, carried_credit_predicted_degenerate)
    degenerate = _curves(tickets, _Quantity.degenerate(drawn), credit, level)
    reasons = _claim_reasons(tickets, outcome, open_credit)
    worth_a_warning = open_credit if open_credit > OPEN_CREDIT_WARNING * len(drawn) else 0.0
    shown = _claim_reasons(tickets, outcome, worth_a_warning)
    obstacles = _obstacles(tickets, np.isnan(outcome.x_M), audit_share, informative_only)
    weight_M = tickets.weight_M
    return Audit(
        draws=(drawn[0].index, drawn[-1].index) if drawn else None,
        num_draws=len(drawn),
        level=level,
        pass_rate=pass_rate,
        degenerate=degenerate,
        selection_ratio=_selection_ratio(drawn, tickets, categories),
        effective_sample_size=float(weight_M.sum() ** 2 / (weight_M @ weight_M)) if weight_M.any() else 0.0,
        largest_weight=float(weight_M.max(initial=0.0)),
        claim_reasons=tuple(reasons),
        verdict=None if obstacles else _verdict(pass_rate, informative_only),
        warnings=(*shown, *_warnings(tickets, pass_rate, informative_only), *obstacles),
    )


def _joined(columns: Sequence[NDArray[np.generic]]) -> Floats:
    """End to end as float64, which holds every count and code exactly."""
    return np.concatenate(columns, dtype=np.float64) if columns else np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class _Tickets:
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
            weight_M=_joined([record.weight_K for record in drawn]),
            mass_M=1 + _joined([record.credit_K for record in drawn]),
            audit_M=_joined([record.audit_K for record in drawn]) > 0,
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
class _Quantity:
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
            x_M=_joined([record.outcome_K for record in drawn]),
            predicted_M=_joined([record.predicted_pass_K for record in drawn]),
            base_T=np.array([record.base_pass for record in drawn]),
            reweighted_T2=np.array([record.range_pass for record in drawn]).reshape(-1, 2),
            uniform_T2=np.array([record.range_pass_uniform for record in drawn]).reshape(-1, 2),
        )

    @classmethod
    def degenerate(cls, drawn: Sequence[DrawRecord]) -> Self:
        return cls(
            x_M=_joined([record.degenerate_K for record in drawn]),
            predicted_M=_joined([record.predicted_degenerate_K for record in drawn]),
            base_T=np.array([record.base_degenerate for record in drawn]),
            reweighted_T2=np.array([record.range_degenerate for record in drawn]).reshape(-1, 2),
            uniform_T2=np.array([record.range_degenerate_uniform for record in drawn]).reshape(-1, 2),
        )


@dataclass(frozen=True, slots=True)
class _Credit:
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


def _curves(tickets: _Tickets, quantity: _Quantity, credit: _Credit, level: float) -> Curves:
    share_T = tickets.eligible_T / (tickets.frame_T * np.maximum(tickets.num_audit_T, 1))
    uniform_M = np.where(tickets.audit_M, tickets.mass_M * share_T[tickets.draw_M], 0.0)
    reweighted_M = tickets.weight_M / tickets.num_tickets_T[tickets.draw_M]
    every = np.ones(tickets.num_tickets_T.size, dtype=np.bool_)
    return Curves(
        uniform=_difference(tickets, quantity, uniform_M, quantity.uniform_T2, tickets.num_audit_T > 0, credit, level),
        selected=_plain_mean(tickets, quantity.x_M, level),
        reweighted=_difference(tickets, quantity, reweighted_M, quantity.reweighted_T2, every, credit, level),
    )


def _difference(
    tickets: _Tickets,
    quantity: _Quantity,
    factor_M: Floats,
    range_T2: Floats,
    used_T: Bools,
    credit: _Credit,
    level: float,
) -> Estimate:
    """Mean over the used draws of base/N + Σ factor·(x − m̂), with the worst case of missing tickets and credit."""
    count = int(np.count_nonzero(used_T))
    if not count:
        return Estimate(estimate=None, interval=None)
    guess_T = quantity.base_T / tickets.frame_T
    missing_M = np.isnan(quantity.x_M)

    def observed(missing_as: Floats | float) -> Floats:
        x_M = np.where(missing_M, missing_as, quantity.x_M)
        return (guess_T + tickets.per_draw(factor_M * (x_M - quantity.predicted_M)))[used_T]

    y_T = observed(quantity.predicted_M)
    least_T, most_T = (observed(0.0), observed(1.0)) if missing_M.any() else (y_T, y_T)
    low_T, high_T = range_T2[used_T].T
    low = lower_limit(least_T, low_T, high_T, level, guess_T=guess_T[used_T])
    high = upper_limit(most_T, low_T, high_T, level, guess_T=guess_T[used_T])
    return _estimate(
        float(y_T.mean()) + (credit.open_predicted - credit.carried_predicted) / count,
        low - credit.carried / count,
        high + credit.open / count,
    )


def _plain_mean(tickets: _Tickets, x_M: Floats, level: float) -> Estimate:
    """Mean over draws of the mean over what came back; a draw of which nothing came back is left out."""
    back_M = np.isfinite(x_M)
    num_back_T = tickets.per_draw(back_M.astype(np.float64))
    used_T = num_back_T > 0
    if not used_T.any():
        return Estimate(estimate=None, interval=None)
    x_T = tickets.per_draw(np.where(back_M, x_M, 0.0))[used_T] / num_back_T[used_T]
    return _estimate(float(x_T.mean()), lower_limit(x_T, 0, 1, level), upper_limit(x_T, 0, 1, level))


def _estimate(estimate: float, low: float, high: float) -> Estimate:
    """Clipped to [0, 1], where pass rates and shares live; a weighted sum may leave it."""
    low, estimate, high = (float(np.clip(value, 0.0, 1.0)) for value in (low, estimate, high))
    return Estimate(estimate=estimate, interval=(low, high))


def _selection_ratio(drawn: Sequence[DrawRecord], tickets: _Tickets, categories: Sequence[str]) -> SelectionRatio:
    """Tickets drawn / tickets expected from uniform draws of the same sizes, by category and difficulty."""
    num_codes = len(categories)
    code_M = _joined([record.category_K for record in drawn]).astype(np.int64)
    bin_M = _joined([record.difficulty_K for record in drawn]).astype(np.int64)
    longest = max((record.pool_category_C.size for record in drawn), default=0)
    if max(longest, code_M.max(initial=-1) + 1) > num_codes or code_M.min(initial=-1) < -1:
        raise ValueError(f"category codes must be -1 to {num_codes - 1}, got up to {max(longest - 1, code_M.max())}")
    if bin_M.min(initial=0) < 0 or bin_M.max(initial=0) >= NUM_DIFFICULTY_BINS:
        raise ValueError(f"difficulty bins must be 0 to {NUM_DIFFICULTY_BINS - 1}, got {bin_M.min()} to {bin_M.max()}")
    pool_TC, pool_TB = np.zeros((len(drawn), num_codes)), np.zeros((len(drawn), NUM_DIFFICULTY_BINS))
    for row_C, row_B, record in zip(pool_TC, pool_TB, drawn, strict=True):
        row_C[: record.pool_category_C.size] = record.pool_category_C
        row_B[:] = record.pool_difficulty_B
    rate_T = tickets.num_tickets_T / tickets.frame_T
    drawn_C = np.bincount(code_M[code_M >= 0], minlength=num_codes)
    drawn_B = np.bincount(bin_M, minlength=NUM_DIFFICULTY_BINS)
    return SelectionRatio(
        category=dict(zip(categories, _ratios(drawn_C, rate_T @ pool_TC), strict=True)),
        difficulty=tuple(_ratios(drawn_B, rate_T @ pool_TB)),
    )


def _ratios(drawn: NDArray[np.int64], expected: Floats) -> list[float | None]:
    return [float(d / e) if e > 0 else None for d, e in zip(drawn, expected, strict=True)]


def _claim_reasons(tickets: _Tickets, outcome: _Quantity, open_credit: float) -> list[str]:
    """Why the weighted sums fall short of what the draws claimed."""
    reasons = []
    missing_M = np.isnan(outcome.x_M)
    num_draws = tickets.num_tickets_T.size
    if missing_M.any():
        factor_M = np.where(missing_M, tickets.weight_M / tickets.num_tickets_T[tickets.draw_M], 0.0) / num_draws
        fall, rise = float(factor_M @ outcome.predicted_M), float(factor_M @ (1 - outcome.predicted_M))
        reasons.append(
            f"{_part(int(missing_M.sum()), missing_M.size)} tickets never came back or had too few scored rollouts: "
            f"the re-weighted pass rate is too low by {rise:.4f} or too high by {fall:.4f} at most"
        )
    if open_credit > 0:
        share = open_credit / max(num_draws, 1)
        reasons.append(f"prompts blocked at the last draw are still to be counted: {share:.2%} of the window's weight")
    return reasons


def _warnings(tickets: _Tickets, pass_rate: Curves, informative_only: bool) -> list[str]:
    warnings = []
    without, total = int(np.count_nonzero(tickets.num_audit_T == 0)), tickets.num_audit_T.size
    if 0 < without < total:
        warnings.append(f"{_part(without, total)} draws had no audit ticket: the uniform curve leaves them out")
    if informative_only:
        warnings.append("the feed reports mixed groups only: the selected curve is censored and no measure of the pool")
    if _apart(pass_rate.uniform, pass_rate.reweighted):
        warnings.append(
            "the re-weighted and the uniform estimate contradict each other: check that every ticket is rolled out and "
            "reported, whatever its outcome"
        )
    return warnings


def _obstacles(tickets: _Tickets, missing_M: Bools, audit_share: float, informative_only: bool) -> list[str]:
    """What forbids a verdict. In a censored feed silence depends on the outcome, so no audit ticket may be missing."""
    if audit_share == 0:
        return ["no verdict: the run has no audit share"]
    if np.count_nonzero(tickets.num_audit_T) < MIN_VERDICT_DRAWS:
        return [f"no verdict yet: fewer than {MIN_VERDICT_DRAWS} draws with audit tickets have ended"]
    missing, total = int(missing_M[tickets.audit_M].sum()), int(tickets.num_audit_T.sum())
    if missing > (0 if informative_only else MISSING_AUDIT_TOLERANCE) * total:
        return [f"no verdict: {_part(missing, total)} audit tickets are missing; report every one of them in full"]
    return []


def _verdict(pass_rate: Curves, informative_only: bool) -> str:
    """Compares what the selected stream shows with the uniform estimate; the re-weighted one is the witness."""
    uniform, selected = f"the uniform estimate is {_shown(pass_rate.uniform)}", pass_rate.selected.estimate
    interval = pass_rate.uniform.interval
    if selected is None or interval is None or informative_only:
        return f"{uniform}; the selected stream cannot be compared with it: read progress from the uniform curve"
    agreement = "contradicts it" if _apart(pass_rate.uniform, pass_rate.reweighted) else "agrees"
    both = f"{uniform}, and the re-weighted one, {_shown(pass_rate.reweighted)}, {agreement}"
    if interval[0] <= selected <= interval[1]:
        return f"selected stream shows {selected:.2f}; {both}: no difference between the curves to be seen so far"
    return f"selected stream shows {selected:.2f}; {both}: read progress from the uniform curve"


def _apart(first: Estimate, second: Estimate) -> bool:
    if first.interval is None or second.interval is None:
        return False
    return first.interval[1] < second.interval[0] or second.interval[1] < first.interval[0]


def _shown(estimate: Estimate) -> str:
    if estimate.estimate is None or estimate.interval is None:
        return "unknown"
    return f"{estimate.estimate:.2f} [{estimate.interval[0]:.2f}, {estimate.interval[1]:.2f}]"


def _part(count: int, total: int) -> str:
    return f"{count} of {total} ({count / total:.1%})"
