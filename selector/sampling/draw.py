"""One draw: from utilities over the pool to K tickets whose chances are known exactly.

Called by the engine (and by an auditor who redraws). Pure: the frame, the utilities and the plan decide everything,
the keyed streams of `randomness` included. Knows nothing of beliefs, events, the fate of tickets or how a utility
came about. N rows of the pool, K tickets, c the credit of a row: draws in a row for which it was blocked just before
this one.

A train draw of K tickets, m of them audit, from N_e eligible rows:
  S       K−m different eligible rows by systematic sampling with the chances π_t of `targets`;
  audit   the first m rows A of a uniform permutation of the eligible rows, in S or not;
  drawn   S and the first m of that permutation outside S, which are A \\ S and one filler for each row of A ∩ S.
Given S, an eligible row outside S is drawn with chance m/(N_e−(K−m)), so
  π = π_t + (1−π_t)·m/(N_e−(K−m)),   Σπ = K = tickets,
and (1/K) Σ weight·x with weight = K·(1+c)/(N·π) has mean (1/N) Σ_eligible (1+c)·x over the draws, N the frame.
"""

from dataclasses import replace
from math import ceil as round_up
from math import floor as round_down

import numpy as np

from selector.sampling.blending import Stock, blend, take_stock
from selector.sampling.designs import (
    UNIT,
    KeyedOrder,
    among,
    integer_sizes,
    keyed_order,
    permutation,
    systematic,
    uniform_order_prefix,
)
from selector.sampling.draw_plan import DrawFrame, Drawn, DrawPlan, RestingCode, ShortReason
from selector.sampling.eligibility import active_and_resting
from selector.sampling.inclusion import Inclusion
from selector.sampling.quotas import by_stratum, quota_utility
from selector.sampling.random_size import pick
from selector.sampling.randomness import Stream
from selector.sampling.scans import rows_of_rank
from selector.sampling.targets import Classes, Places, count_places, selected_inclusion, shares, uniform_inclusion


def draw(frame: DrawFrame, utility_N: np.ndarray, plan: DrawPlan, *, power: int = 1) -> Drawn:
    """One train draw. Equal arguments give equal bytes on one build.

    utility_N: (N,) finite, >= 0, on any scale; how much a ticket of the row is worth, to this power, which most draws
    need not write out. Rows at rest are drawn for review only, unless `short` is "fill" or every prompt is alike.
    Raises ValueError for utilities that are no such numbers or do not fit the frame.
    """
    eligible_N = frame.eligible_N(allow_repeat=plan.allow_repeat)
    classes = _classes(frame, utility_N, plan, eligible_N, power=power)
    stock = _checked_stock(classes, frame)
    if plan.quotas:
        active_N = np.where(classes.active_N, classes.gain_N, 0.0)
        shares, free = np.array(plan.quotas), (1.0 - plan.floor) * (1.0 - plan.audit_share) * plan.size
        held_N = quota_utility(classes.utility_N, active_N, _strata(frame), shares, max(free, 1e-9))
        classes = replace(classes, base_N=held_N, power=1)
    counts = classes.counts
    share_m = round_down(plan.audit_share * plan.size + plan.rng(Stream.AUDIT_COUNT).random())
    if plan.audit_share > 0 and plan.refill == 0:
        share_m = max(share_m, 1)
    review = round_down(plan.review_share * plan.size + plan.rng(Stream.REVIEW_COUNT).random())
    repeats = plan.allow_repeat and plan.size > counts.total > 0
    fill = repeats or plan.short == "fill"
    places = count_places(counts, size=plan.size, audit=share_m, review=review, fill=fill, unit=plan.unit)
    if repeats:
        total = plan.size - plan.size % plan.unit
        places = Places(uncut=plan.size, total=total, audit=min(share_m, total, counts.total))
    if places.total > counts.total:
        return _draw_with_repeats(frame, classes, plan, places, review)
    if plan.sampler is not None and not plan.exact_uniform:
        return _draw_random_size(frame, classes, plan, places, share_m, review)
    order = keyed_order(len(utility_N), plan.rng(Stream.BLOCK_ORDER))
    if plan.quotas:
        order = by_stratum(order, _strata(frame))
    units_N, sum_B = _units(classes, stock, plan, places, review, order)
    share = places.audit / (counts.total - places.selected) if places.audit else 0.0
    expected = Inclusion.of_units(units_N, classes.eligible_N, share)
    chosen = systematic(units_N, order, int(plan.rng(Stream.SYSTEMATIC_START).integers(0, UNIT)), sum_B)
    rows, audit = _with_audit(chosen, classes.eligible_N, counts.total, places, plan)
    return _drawn(
        frame,
        plan,
        rows=rows,
        audit=audit,
        places=places,
        reason=_reason(frame, classes, plan, places, share_m, review),
        selected_N=units_N,
        unit=float(UNIT),
        expected=expected,
        due_unplaced=int(np.count_nonzero(expected.at(classes.due) < 1.0)),
    )


def draw_uniform(frame: DrawFrame, plan: DrawPlan) -> Drawn:
    """One draw for audit, held-out, control or probe tickets: simple random sampling without replacement, π = K/N_e.

    Rest, utilities and shares play no part, and no ticket is marked as audit: the purpose of the whole batch says
    what it is. With `allow_repeat` and more places than rows, each row gets ⌊K/N_e⌋ tickets and the rest are drawn.
    """
    eligible = np.flatnonzero(frame.eligible_N(allow_repeat=plan.allow_repeat))
    num = len(eligible)
    uncut = plan.size if plan.allow_repeat and num else min(plan.size, num)
    places = Places(uncut=uncut, total=uncut - uncut % plan.unit, audit=0)
    base, extra = divmod(places.total, num) if num else (0, 0)
    chosen = eligible[uniform_order_prefix(num, extra, plan.rng(Stream.UNIFORM_ORDER))]
    expected_N = np.zeros(len(frame.frame_N))
    expected_N[eligible] = places.total / max(num, 1)
    if places.total == plan.size:
        reason = None
    elif not np.any(frame.frame_N):
        reason = ShortReason.POOL_EMPTY
    elif uncut == plan.size:
        reason = ShortReason.DIVISOR
    elif num == 0 or np.count_nonzero(frame.frame_N) >= plan.size:
        reason = ShortReason.ALL_IN_FLIGHT
    else:
        reason = ShortReason.POOL_EXHAUSTED
    return _drawn(
        frame,
        plan,
        rows=np.concatenate([np.repeat(eligible, base), chosen]),
        audit=np.zeros(places.total, bool),
        places=places,
        reason=reason,
        selected_N=expected_N,
        expected=Inclusion.of(expected_N),
        due_unplaced=0,
    )


def _strata(frame: DrawFrame) -> np.ndarray:
    if frame.stratum_N is None:
        raise ValueError("quotas need the stratum of every row")
    return frame.stratum_N


def _checked_stock(classes: Classes, frame: DrawFrame) -> Stock:
    if len(classes.base_N) != len(frame.frame_N):
        raise ValueError(f"{len(classes.base_N)} utilities for {len(frame.frame_N)} rows")
    stock = take_stock(classes.base_N, classes.credit_N, classes.active_N, power=classes.power)
    if stock.num_bad:
        utility_N = classes.utility_N
        row = int(np.argmin(np.isfinite(utility_N) & (utility_N >= 0.0)))
        raise ValueError(f"utilities must be finite and >= 0; row {row} has {utility_N[row]}")
    return stock


def _classes(
    frame: DrawFrame, base_N: np.ndarray, plan: DrawPlan, eligible_N: np.ndarray, *, power: int = 1
) -> Classes:
    if plan.exact_uniform:
        active_N, resting_N = eligible_N, np.zeros_like(eligible_N)
    else:  # a due row takes its place from the review share, whatever its state
        active_N, resting_N = active_and_resting(eligible_N, frame.resting_code_N, frame.due_N)
    return Classes(
        active_N=active_N,
        resting_N=resting_N,
        due_N=resting_N & frame.due_N,
        waited_N=frame.waited_N,
        eligible_N=eligible_N,
        credit_N=frame.credit_N,
        base_N=base_N,
        power=power,
    )


def _units(
    classes: Classes, stock: Stock, plan: DrawPlan, places: Places, review: int, order: KeyedOrder
) -> tuple[np.ndarray, np.ndarray | None]:
    """(N,) int64 units of π_t, and their sums over the blocks of the order where these came along."""
    total, audited = classes.counts.total, places.audit > 0
    if not (plan.exact_uniform or plan.top or plan.quotas) and 0 < places.selected < total:
        parts = shares(classes, selected=places.selected, review=review, floor=plan.floor, audited=audited)
        blended = blend(
            classes.base_N,
            classes.credit_N,
            classes.active_N,
            stock,
            power=classes.power,
            places=parts.for_active,
            floor=parts.floor,
            given=(parts.rows_R, parts.pi_R),
            n=places.selected,
            order=order,
        )
        if blended is not None:
            return blended
    return integer_sizes(_selected(classes, plan, places, review, audited=audited), places.selected), None


def _selected(classes: Classes, plan: DrawPlan, places: Places, review: int, *, audited: bool) -> np.ndarray:
    if places.selected == 0:
        return np.zeros(len(classes.base_N))
    if plan.exact_uniform:
        return uniform_inclusion(classes.gain_N, places)
    if plan.top:
        classes = replace(classes, top=True, candidate_N=_candidates(classes, plan, places))
    return selected_inclusion(classes, selected=places.selected, review=review, floor=plan.floor, audited=audited)


def _candidates(classes: Classes, plan: DrawPlan, places: Places) -> np.ndarray | None:
    """(N,) bool: a uniform sample of the eligible rows, keyed by the batch, in which the largest are looked for.

    π_t is given this sample: it depends on nothing that comes back, so weights made of it are as good as others.
    """
    if plan.candidates is None:
        return None
    eligible = np.flatnonzero(classes.eligible_N)
    count = min(round_up(plan.candidates * places.selected), len(eligible))
    candidate_N = np.zeros(len(classes.base_N), bool)
    candidate_N[eligible[uniform_order_prefix(len(eligible), count, plan.rng(Stream.CANDIDATES))]] = True
    return candidate_N


def _with_audit(
    chosen: np.ndarray, eligible_N: np.ndarray, num_eligible: int, places: Places, plan: DrawPlan
) -> tuple[np.ndarray, np.ndarray]:
    """The chosen rows S with the audit's rows behind them, and which of all these are audit tickets.

    Of the first m + |S| rows of the permutation at most |S| lie in S, so m outside it are always among them.
    """
    length = min(places.total, num_eligible) if places.audit else 0
    rank = uniform_order_prefix(num_eligible, length, plan.rng(Stream.AUDIT_ORDER))
    rising, prefix = np.argsort(rank, kind="stable"), np.empty(length, np.int64)
    found = np.empty(length, np.int64)
    rows_of_rank(eligible_N, rank[rising], found)
    prefix[rising] = found
    added = prefix[~among(prefix, chosen)][: places.audit]
    rows = np.concatenate([chosen, added])
    return rows, among(rows, prefix[: places.audit])


def _draw_with_repeats(frame: DrawFrame, classes: Classes, plan: DrawPlan, places: Places, review: int) -> Drawn:
    """More tickets than eligible rows: ⌊K/N_e⌋ each, and K mod N_e rows one more by the systematic design."""
    eligible = np.flatnonzero(classes.eligible_N)
    base, extra = divmod(places.total, len(eligible))
    # Every row has a ticket for sure, so none needs the floor that an absent audit would call for.
    part = Places(uncut=extra, total=extra, audit=0)
    selected_N = _selected(classes, plan, part, review, audited=True)
    units_N = integer_sizes(selected_N, extra)
    order = keyed_order(len(units_N), plan.rng(Stream.BLOCK_ORDER))
    chosen = systematic(units_N, order, int(plan.rng(Stream.SYSTEMATIC_START).integers(0, UNIT)))
    audit = np.zeros(places.total, bool)
    audit[uniform_order_prefix(len(eligible), places.audit, plan.rng(Stream.AUDIT_ORDER)) * base] = True
    return _drawn(
        frame,
        plan,
        rows=np.concatenate([np.repeat(eligible, base), chosen]),
        audit=audit,
        places=places,
        reason=_reason(frame, classes, plan, places, places.audit, review),
        selected_N=units_N / UNIT,
        expected=Inclusion.of(np.where(classes.eligible_N, base + units_N / UNIT, 0.0)),
        due_unplaced=0,
    )


def _draw_random_size(
    frame: DrawFrame, classes: Classes, plan: DrawPlan, places: Places, share_m: int, review: int
) -> Drawn:
    """Tickets of a design whose size varies: at most K of them, and under `fill` exactly K; see `random_size`.

    K of the weights is what came out, so that (1/K) Σ weight·x is Σ (1+c)·x/(N·π), whose mean does not know the size.
    """
    assert plan.sampler is not None
    fill = plan.short == "fill"
    picked = pick(plan.sampler, classes, places, floor=plan.floor, unit=plan.unit, fill=fill, rng=plan.rng)
    num_tickets = len(picked.rows_B)
    reason = _reason(frame, classes, plan, places, share_m, review)
    return _drawn(
        frame,
        plan,
        rows=picked.rows_B,
        audit=picked.audit_B,
        places=replace(places, total=num_tickets),
        reason=ShortReason.QUOTA if num_tickets < places.total else reason,
        selected_N=picked.selected_N,
        expected=Inclusion.of(picked.inclusion_N),
        due_unplaced=int(np.count_nonzero(picked.inclusion_N[classes.due_N] < 1.0)),
        most=places.total,
    )


def _drawn(
    frame: DrawFrame,
    plan: DrawPlan,
    *,
    rows: np.ndarray,
    audit: np.ndarray,
    places: Places,
    reason: ShortReason | None,
    selected_N: np.ndarray,
    expected: Inclusion,
    due_unplaced: int,
    most: int | None = None,
    unit: float = 1.0,
) -> Drawn:
    """Shuffles the tickets and attaches their chances and weights."""
    shuffle = permutation(len(rows), plan.rng(Stream.TICKET_ORDER))
    rows_K = rows[shuffle].astype(np.int64)
    num_frame = int(np.count_nonzero(frame.frame_N))
    eligible = int(np.count_nonzero(frame.eligible_N(allow_repeat=plan.allow_repeat)))
    expected_K = expected.at(rows_K)
    ht_weight_K = places.total * (1.0 + frame.credit_N[rows_K]) / (num_frame * expected_K)
    if plan.exact_uniform or plan.weights == "none":
        weight_K = np.ones(len(rows_K))
    else:
        weight_K = np.minimum(ht_weight_K, plan.max_weight) if plan.weights == "clipped" else ht_weight_K
    return Drawn(
        rows_K=rows_K,
        audit_K=audit[shuffle],
        inclusion_K=np.minimum(expected_K, 1.0),
        weight_K=weight_K,
        ht_weight_K=ht_weight_K,
        reason=reason,
        frame=num_frame,
        eligible=eligible,
        blocked=num_frame - eligible,
        num_audit=places.audit,
        due_unplaced=due_unplaced,
        most=places.total if most is None else most,
        selected_N=selected_N,
        unit=unit,
        expected=expected,
    )


def _reason(
    frame: DrawFrame, classes: Classes, plan: DrawPlan, places: Places, audit: int, review: int
) -> ShortReason | None:
    """Why the batch is short; the cause that a caller can do something about comes first."""
    if places.total == plan.size:
        return None
    if not np.any(frame.frame_N):
        return ShortReason.POOL_EMPTY
    if places.uncut == plan.size:
        return ShortReason.DIVISOR
    unblocked = _classes(frame, classes.base_N, plan, frame.frame_N).counts
    fill = plan.short == "fill"
    free = count_places(unblocked, size=plan.size, audit=audit, review=review, fill=fill, unit=1)
    at_work_N = frame.frame_N & (plan.exact_uniform | (frame.resting_code_N == int(RestingCode.NONE)))
    some_at_work, some_free = bool(at_work_N.any()), bool(at_work_N[classes.eligible_N].any())
    if classes.counts.total == 0 or free.total == plan.size or (some_at_work and not some_free):
        return ShortReason.ALL_IN_FLIGHT
    if not (some_at_work or fill):
        code_N = frame.resting_code_N[frame.frame_N]
        mastered = np.count_nonzero(code_N == RestingCode.MASTERED)
        return ShortReason.ALL_MASTERED if 2 * mastered >= len(code_N) else ShortReason.ALL_DEFERRED
    return ShortReason.POOL_EXHAUSTED
