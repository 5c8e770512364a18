"""Held-out quality: pass rates of the looks, their hard tail, and how far the selected stream is from them, in words.

`api` calls `quality` with what `selector.heldout.looks` read. Knows arrays of outcomes, nothing of tickets or runs.

Axes: K groups of one look, G rollouts of a group.

A look is a uniform sample of the held-out split, so the plain mean over its groups is unbiased for the split's mean
pass rate under the policy of that look: one number per look, and one per prompt inside it, as siblings share p.

The interval of one look (`Rate`) is Wilson's with n_eff prompts, n_eff = n · p̂ (1 − p̂) / s², cut to [n, rollouts]:
rollouts of a prompt are alike and worth fewer independent ones. It holds for each look alone and speaks of prompts like
these. What holds over looks, and however often one looks, is in `selector.heldout.gaps`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from selector.heldout.gaps import RESOLUTION, Gap, gaps
from selector.heldout.looks import Look, Selected

Floats = NDArray[np.float64]
Interval = tuple[float, float]

LEVEL = 0.95
TAIL = 0.1  # share of prompts that make the hard tail
STRATA = ("none", "under half", "half or more", "all")  # share of its first group that passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A pass rate over prompts that count alike; without an estimate nothing was scored."""

    estimate: float | None
    interval: Interval
    num_prompts: int
    num_missing: int  # groups that came back without a score; the interval has their worst case


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Mean pass rate of the hardest share of the prompts. Known rates would lie between the two in expectation.

    low: the hardest by the very outcomes that are averaged, so chance failures count as hardness. high: ranked by one
    half of each group and averaged over the other, so that what is ranked wrongly is easier than the true tail.
    """

    share: float
    low: float | None
    high: float | None  # None when groups have a single rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What the looks say. `looks` has one rate for each, in the order of their draws."""

    looks: Sequence[Rate]
    category: Mapping[str, Rate]  # at the last look
    stratum: Mapping[str, Rate]  # at the last look; strata are of the first one
    unranked: int  # groups of the last look whose prompt has no stratum
    tail: Tail | None
    gaps: Sequence[Gap]
    verdict: str
    finding: str  # "none", "bias", "too_little"
    warnings: Sequence[str]


def quality(
    looks: Sequence[Look],
    selected: Sequence[Selected],
    *,
    categories: Sequence[str],
    waiting: int = 0,
    level: float = LEVEL,
) -> Quality:
    """Everything `Quality` says. looks, selected: in the order of the log. waiting: looks that are not complete.

    Raises ValueError if level is not in (0, 1) or an outcome is not in [0, 1].
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), such as 0.95, got {level}")
    for outcome_K in [part.outcome_K for part in looks] + [part.outcome_K for part in selected]:
        wrong = outcome_K[(outcome_K < 0) | (outcome_K > 1)]
        if wrong.size:
            raise ValueError(f"outcomes must be in [0, 1] to be a pass rate, got {wrong[0]}: scale them first")
    last = looks[-1] if looks else None
    by_category, by_stratum, unranked = dict[str, Rate](), dict[str, Rate](), 0
    if last is not None:
        by_category = {
            name: pass_rate(last, last.category_K == code, level)
            for code, name in enumerate(categories)
            if (last.category_K == code).any()
        }
        stratum_K = strata(looks)
        by_stratum = {
            name: pass_rate(last, stratum_K == code, level)
            for code, name in enumerate(STRATA)
            if (stratum_K == code).any()
        }
        unranked = int(np.count_nonzero(stratum_K < 0))
    found = gaps(looks, selected, categories, level)
    finding, verdict = _verdict(found, looks)
    warnings = [] if not waiting else [f"{waiting} looks are not complete, and are not in this: report every ticket"]
    missing = 0 if last is None else int(np.count_nonzero(~last.back_K))
    if missing:
        warnings.append(f"{missing} groups of the last look came back without a score: intervals have the worst case")
    return Quality(
        looks=[pass_rate(look, np.ones(len(look.row_K), bool), level) for look in looks],
        category=by_category,
        stratum=by_stratum,
        unranked=unranked,
        tail=None if last is None else hard_tail(last),
        gaps=found,
        verdict=verdict,
        finding=finding,
        warnings=warnings,
    )


def pass_rate(look: Look, which_K: NDArray[np.bool_], level: float = LEVEL) -> Rate:
    """Mean over the prompts of their means, with the interval of one look (module docstring)."""
    back_K = which_K & look.back_K
    mean_K, missing = look.outcome_K[back_K], int(np.count_nonzero(which_K & ~look.back_K))
    if not mean_K.size:
        return Rate(estimate=None, interval=(0.0, 1.0), num_prompts=0, num_missing=missing)
    estimate = float(mean_K.mean())
    rollouts = int(np.count_nonzero(np.isfinite(look.outcome_KG[back_K])))
    low, high = _wilson(estimate, effective_prompts(mean_K, rollouts), level)
    whole = mean_K.size + missing
    return Rate(
        estimate=estimate,
        interval=(low * mean_K.size / whole, (high * mean_K.size + missing) / whole),
        num_prompts=mean_K.size,
        num_missing=missing,
    )


def effective_prompts(mean_K: Floats, rollouts: int) -> float:
    """n · p̂ (1 − p̂) / s² independent trials, between the n prompts and their rollouts; n where all are alike at 0 or
    1.

    s² = Σ (x − p̂)² / n. Kish's design effect, turned round.
    """
    estimate, variance = float(mean_K.mean()), float(mean_K.var())
    single = estimate * (1 - estimate)
    if single <= 0:
        return float(mean_K.size)
    worth = mean_K.size * single / variance if variance > 0 else float(rollouts)
    return float(np.clip(worth, mean_K.size, max(rollouts, mean_K.size)))


def strata(looks: Sequence[Look]) -> NDArray[np.int64]:
    """Code in STRATA of each group of the last look, −1 where its prompt was not in the looks that fix strata.

    Those are the looks at the first policy version that was looked at. A last look among them has no strata: a group
    cannot be sorted by its own outcome and then measured.
    """
    last, version = looks[-1], looks[0].policy_version
    code_K = np.full(len(last.row_K), -1, np.int64)
    if last.policy_version == version:
        return code_K
    fixing = [look for look in looks if look.policy_version == version and look is not last]
    row_M, outcome_M = (
        np.concatenate([getattr(look, name)[look.back_K] for look in fixing]) for name in ("row_K", "outcome_K")
    )
    rows_U, first_U = np.unique(row_M, return_index=True)  # the first group of each prompt
    outcome_U = outcome_M[first_U]
    code_U = np.select([outcome_U == 0, outcome_U == 1, outcome_U < 0.5], [0, 3, 1], 2)
    place_K = np.minimum(np.searchsorted(rows_U, last.row_K), max(len(rows_U) - 1, 0))
    ranked_K = rows_U[place_K] == last.row_K if len(rows_U) else np.zeros(len(last.row_K), bool)
    code_K[ranked_K] = code_U[place_K[ranked_K]]
    return code_K


def hard_tail(look: Look, share: float = TAIL) -> Tail:
    """CVaR: the mean pass rate of the lowest ⌈share · n⌉ prompts, as a pair that brackets it in expectation (`Tail`).

    The split is even against odd rollouts, both ways. Source of the measure: conditional value at risk over freshly
    drawn levels, Rutherford et al. 2024, arXiv 2408.15099.
    """
    kept_KG = look.outcome_KG[look.back_K]
    if not len(kept_KG):
        return Tail(share=share, low=None, high=None)
    count = int(np.ceil(share * len(kept_KG)))
    low = float(np.sort(look.outcome_K[look.back_K])[:count].mean())
    scored_KG = kept_KG[np.isfinite(kept_KG).sum(axis=1) > 1]
    if not len(scored_KG):
        return Tail(share=share, low=low, high=None)
    # Scored rollouts first, so that both halves of a group have one.
    order_KG = np.argsort(np.isnan(scored_KG), axis=1, kind="stable")
    scored_KG = np.take_along_axis(scored_KG, order_KG, axis=1)
    even_K, odd_K = np.nanmean(scored_KG[:, ::2], axis=1), np.nanmean(scored_KG[:, 1::2], axis=1)
    count = int(np.ceil(share * len(scored_KG)))
    halves = [_lowest(ranked_K, averaged_K, count) for ranked_K, averaged_K in ((even_K, odd_K), (odd_K, even_K))]
    return Tail(share=share, low=low, high=float(np.mean(halves)))


def _lowest(ranked_K: Floats, averaged_K: Floats, count: int) -> float:
    """Mean of the second over the `count` lowest of the first; ties at the edge share the places that are left."""
    edge = np.sort(ranked_K)[count - 1]
    below_K, level_K = ranked_K < edge, ranked_K == edge
    left = count - np.count_nonzero(below_K)
    return float((averaged_K[below_K].sum() + left * averaged_K[level_K].mean()) / count)


def _wilson(estimate: float, n: float, level: float) -> Interval:
    """(p̂ + z²/2n ± z sqrt(p̂ (1 − p̂)/n + z²/4n²)) / (1 + z²/n); Wilson 1927."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle, scale = estimate + z**2 / (2 * n), 1 + z**2 / n
    spread = z * sqrt(estimate * (1 - estimate) / n + z**2 / (4 * n**2))
    # Rounding must not leave an exact 0 or 1 outside its own interval.
    return min(estimate, max(0.0, (middle - spread) / scale)), max(estimate, min(1.0, (middle + spread) / scale))


def _verdict(found: Sequence[Gap], looks: Sequence[Look]) -> tuple[str, str]:
    overall = found[0]
    if overall.estimate is None or overall.interval is None or overall.margin is None:
        return "too_little", (
            "too little data: it takes two held-out looks with reported train draws between them, and there are "
            f"{len(looks)} looks; draw with purpose heldout every so many steps"
        )
    biased = [gap for gap in found if gap.interval is not None and not gap.interval[0] <= 0 <= gap.interval[1]]
    if biased:
        parts = [f"{_place(gap)} by {_signed(gap)}" for gap in biased]
        return "bias", (
            f"bias found: the selected stream differs from the held-out split {'; '.join(parts)}; read quality from "
            "the held-out curve"
        )
    if overall.margin > RESOLUTION:
        size = round(np.mean([len(look.row_K) for look in looks]))
        more = (
            f"about {overall.further_looks} further looks of {size} prompts"
            if overall.further_looks is not None
            else f"larger looks than {size} prompts"
        )
        return "too_little", (
            f"too little data: the selected stream differs from the held-out split by {_signed(overall)}, and chance "
            f"alone may make that {overall.margin:.2f}; {more} would settle {RESOLUTION}"
        )
    open_ = [gap.where for gap in found[1:] if gap.margin is not None and gap.margin > RESOLUTION]
    unsettled = f"; not settled to {RESOLUTION} for {', '.join(open_)}" if open_ else ""
    return "none", (
        f"no bias found at this resolution: the selected stream differs from the held-out split by {_signed(overall)}, "
        f"and more than {overall.margin:.2f} would have shown{unsettled}"
    )


def _place(gap: Gap) -> str:
    return "overall" if gap.where == "overall" else f"in {gap.where}"


def _signed(gap: Gap) -> str:
    if gap.estimate is None or gap.interval is None:
        raise ValueError(f"the gap {gap.where} has no estimate to be shown")
    return f"{gap.estimate:+.2f} ({gap.interval[0]:+.2f} to {gap.interval[1]:+.2f})"
