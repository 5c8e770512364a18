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

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from selector.audit.asymptotic import asymptotic_margin
from selector.audit.columns import Credit, Quantity, Tickets, joined
from selector.audit.confidence import lower_limit, upper_limit
from selector.audit.contrasts import Contrast, category_parts, contrasts, difficulty_parts
from selector.audit.values import Audit, Block, Curves, Estimate, SelectionRatio, Shift
from selector.audit.words import words_of
from selector.batches.observations import NUM_DIFFICULTY_BINS, Bools, DrawRecord, Floats, Interval

# Draws in a block, and how many of the latest blocks are shown. Fixed before any run begins: a length chosen by what
# was seen would choose the estimand by the outcomes.
BLOCK_DRAWS = 100
MOST_BLOCKS = 100


def audit(
    records: Sequence[DrawRecord],
    *,
    level: float = 0.95,
    categories: Sequence[str],
    audit_share: float,
    informative_only: bool = False,
    same_groups: bool = True,
    known_chances: bool = True,
    by_rewards: bool = False,
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
    mid-run. same_groups: selected groups are degenerate with the chances that audit groups have; else only pass rates
    are contrasted. known_chances: every draw gave every eligible prompt a chance; else nothing is. by_rewards: some
    groups have rewards and no outcome: they are not missing, and pass rates are not contrasted.
    Raises ValueError if level is not in (0, 1), a code is unknown, or an outcome or a credit is impossible.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), such as 0.95, got {level}")
    drawn = [record for record in records if record.num_tickets]
    tickets = Tickets.of(drawn)
    outcome, mixed = Quantity.pass_rate(drawn), Quantity.degenerate(drawn)
    credit = Credit(open_credit, open_credit_predicted_pass, carried_credit, carried_credit_predicted_pass)
    pass_rate = _curves(tickets, outcome, credit, level)
    pass_rate_shift = _shift(pass_rate, tickets, outcome, level)
    credit = Credit(open_credit, open_credit_predicted_degenerate, carried_credit, carried_credit_predicted_degenerate)
    degenerate = _curves(tickets, mixed, credit, level)
    code_M, bin_M, pool_TC, pool_TB = _strata(drawn, categories)
    found = tuple[Contrast, ...]()
    if drawn and known_chances and not informative_only:
        share_TC, share_TB = pool_TC / tickets.frame_T[:, None], pool_TB / tickets.frame_T[:, None]
        found = contrasts(
            tickets,
            [*([] if by_rewards else [("pass_rate", outcome)]), *([("degenerate", mixed)] if same_groups else [])],
            [
                *category_parts(code_M, share_TC[0], share_TC.mean(axis=0), categories),
                *difficulty_parts(bin_M, share_TB.mean(axis=0)),
            ],
            np.array([record.index for record in drawn], np.int64),
            1 - level,
        )
    weight_M = tickets.weight_M
    said = words_of(
        tickets,
        mixed if by_rewards else outcome,
        pass_rate=pass_rate,
        shift=pass_rate_shift.against_uniform,
        contrasts=found,
        open_credit=open_credit,
        audit_share=audit_share,
        informative_only=informative_only,
    )
    return Audit(
        draws=(drawn[0].index, drawn[-1].index) if drawn else None,
        num_draws=len(drawn),
        level=level,
        pass_rate=pass_rate,
        degenerate=degenerate,
        selection_ratio=_selection_ratio(tickets, code_M, bin_M, pool_TC, pool_TB, categories),
        effective_sample_size=float(weight_M.sum() ** 2 / (weight_M @ weight_M)) if weight_M.any() else 0.0,
        largest_weight=float(weight_M.max(initial=0.0)),
        pass_rate_shift=pass_rate_shift,
        degenerate_shift=_shift(degenerate, tickets, mixed, level),
        contrasts=found,
        blocks=_blocks(drawn, level),
        num_blocks=-(-len(drawn) // BLOCK_DRAWS),
        claim_reasons=said.claim_reasons,
        finding=said.finding,
        verdict=said.verdict,
        warnings=said.warnings,
    )


def _blocks(drawn: Sequence[DrawRecord], level: float) -> tuple[Block, ...]:
    """The latest blocks, each with its own credit."""
    total, found = -(-len(drawn) // BLOCK_DRAWS), list[Block]()
    for number in range(max(total - MOST_BLOCKS, 0) + 1, total + 1):
        part = drawn[(number - 1) * BLOCK_DRAWS : number * BLOCK_DRAWS]
        tickets, own = Tickets.of(part), 1 - (1 - level) / (number * (number + 1))
        owed, had = part[-1].open_credit, part[0].carried_credit
        found.append(
            Block(
                number=number,
                draws=(part[0].index, part[-1].index),
                num_draws=len(part),
                level=own,
                pass_rate=_curves(tickets, Quantity.pass_rate(part), Credit(owed[0], owed[1], had[0], had[1]), own),
                degenerate=_curves(tickets, Quantity.degenerate(part), Credit(owed[0], owed[2], had[0], had[2]), own),
            )
        )
    return tuple(found)


def _curves(tickets: Tickets, quantity: Quantity, credit: Credit, level: float) -> Curves:
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
    tickets: Tickets,
    quantity: Quantity,
    factor_M: Floats,
    range_T2: Floats,
    used_T: Bools,
    credit: Credit,
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
    margin = asymptotic_margin(y_T, guess_T[used_T], level)
    settled = (float(least_T.mean()) - credit.carried / count, float(most_T.mean()) + credit.open / count)
    return _estimate(
        float(y_T.mean()) + (credit.open_predicted - credit.carried_predicted) / count,
        low - credit.carried / count,
        high + credit.open / count,
        None if margin is None else (settled[0] - margin, settled[1] + margin),
    )


def _plain_mean(tickets: Tickets, x_M: Floats, level: float) -> Estimate:
    """Mean over draws of the mean over what came back; a draw of which nothing came back is left out."""
    back_M = np.isfinite(x_M)
    num_back_T = tickets.per_draw(back_M.astype(np.float64))
    used_T = num_back_T > 0
    if not used_T.any():
        return Estimate(estimate=None, interval=None)
    x_T = tickets.per_draw(np.where(back_M, x_M, 0.0))[used_T] / num_back_T[used_T]
    return _estimate(float(x_T.mean()), lower_limit(x_T, 0, 1, level), upper_limit(x_T, 0, 1, level))


def _estimate(estimate: float, low: float, high: float, asymptotic: Interval | None = None) -> Estimate:
    """Clipped to [0, 1], where pass rates and shares live; a weighted sum may leave it."""
    low, estimate, high = (float(np.clip(value, 0.0, 1.0)) for value in (low, estimate, high))
    if asymptotic is not None:
        asymptotic = float(np.clip(asymptotic[0], 0.0, 1.0)), float(np.clip(asymptotic[1], 0.0, 1.0))
    return Estimate(estimate=estimate, interval=(low, high), asymptotic=asymptotic)


def _shift(curves: Curves, tickets: Tickets, quantity: Quantity, level: float) -> Shift:
    """Selected minus pool; the uniform curve is compared with the selected one over the same draws."""
    with_audit_T = tickets.num_audit_T > 0
    selected = curves.selected
    if not with_audit_T.all():
        x_M = np.where(with_audit_T[tickets.draw_M], quantity.x_M, np.nan)
        selected = _plain_mean(tickets, x_M, level)
    return Shift(
        against_uniform=_minus(selected, curves.uniform), against_reweighted=_minus(curves.selected, curves.reweighted)
    )


def _minus(fact: Estimate, pool: Estimate) -> Estimate:
    if fact.estimate is None or pool.estimate is None or pool.interval is None:
        return Estimate(estimate=None, interval=None)
    shown, ends = fact.estimate, pool.asymptotic
    return Estimate(
        estimate=shown - pool.estimate,
        interval=(shown - pool.interval[1], shown - pool.interval[0]),
        asymptotic=None if ends is None else (shown - ends[1], shown - ends[0]),
    )


def _strata(
    drawn: Sequence[DrawRecord], categories: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]:
    """Category code and difficulty bin of each ticket, and the frame's rows by both at each draw, (T, C) and (T, B)."""
    num_codes = len(categories)
    code_M = joined([record.category_K for record in drawn]).astype(np.int64)
    bin_M = joined([record.difficulty_K for record in drawn]).astype(np.int64)
    longest = max((record.pool_category_C.size for record in drawn), default=0)
    if max(longest, code_M.max(initial=-1) + 1) > num_codes or code_M.min(initial=-1) < -1:
        raise ValueError(f"category codes must be -1 to {num_codes - 1}, got up to {max(longest - 1, code_M.max())}")
    if bin_M.min(initial=0) < 0 or bin_M.max(initial=0) >= NUM_DIFFICULTY_BINS:
        raise ValueError(f"difficulty bins must be 0 to {NUM_DIFFICULTY_BINS - 1}, got {bin_M.min()} to {bin_M.max()}")
    pool_TC, pool_TB = np.zeros((len(drawn), num_codes)), np.zeros((len(drawn), NUM_DIFFICULTY_BINS))
    for row_C, row_B, record in zip(pool_TC, pool_TB, drawn, strict=True):
        row_C[: record.pool_category_C.size] = record.pool_category_C
        row_B[:] = record.pool_difficulty_B
    return code_M, bin_M, pool_TC, pool_TB


def _selection_ratio(
    tickets: Tickets,
    code_M: NDArray[np.int64],
    bin_M: NDArray[np.int64],
    pool_TC: Floats,
    pool_TB: Floats,
    categories: Sequence[str],
) -> SelectionRatio:
    """Tickets drawn / tickets expected from uniform draws of the same sizes, by category and difficulty."""
    rate_T = tickets.num_tickets_T / tickets.frame_T
    drawn_C = np.bincount(code_M[code_M >= 0], minlength=len(categories))
    drawn_B = np.bincount(bin_M, minlength=NUM_DIFFICULTY_BINS)
    return SelectionRatio(
        category=dict(zip(categories, _ratios(drawn_C, rate_T @ pool_TC), strict=True)),
        difficulty=tuple(_ratios(drawn_B, rate_T @ pool_TB)),
    )


def _ratios(drawn: NDArray[np.int64], expected: Floats) -> list[float | None]:
    return [float(d / e) if e > 0 else None for d, e in zip(drawn, expected, strict=True)]
