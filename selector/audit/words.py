"""What an audit comes to in words: why a claim is not realised, warnings, what forbids a verdict, and the verdict.

`selector.audit.estimates` calls it. Knows estimates and columns of tickets; nothing of how they were made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from selector.audit.columns import Quantity, Tickets
from selector.audit.contrasts import Contrast
from selector.audit.values import Curves, Estimate
from selector.batches.observations import Bools
from selector.heldout.gaps import RESOLUTION

# Share of the audit tickets that may be missing before the verdict is withheld. The intervals carry the worst case at
# any share; beyond this one they say more about what went missing than about the pool.
MISSING_AUDIT_TOLERANCE = 0.01
# Open credit, as a share of the whole window, that is worth a warning: the intervals are wider by as much.
OPEN_CREDIT_WARNING = 0.01
# A moving curve needs two points.
MIN_VERDICT_DRAWS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of one audit."""

    claim_reasons: tuple[str, ...]
    finding: str | None
    verdict: str | None
    warnings: tuple[str, ...]


def words_of(
    tickets: Tickets,
    outcome: Quantity,
    *,
    pass_rate: Curves,
    shift: Estimate,
    contrasts: Sequence[Contrast],
    open_credit: float,
    audit_share: float,
    informative_only: bool,
) -> Words:
    """shift: the selected pass rate minus the pool's. open_credit, audit_share, informative_only: as in `audit`."""
    num_draws = tickets.num_tickets_T.size
    worth_a_warning = open_credit if open_credit > OPEN_CREDIT_WARNING * num_draws else 0.0
    obstacles = _obstacles(tickets, np.isnan(outcome.x_M), audit_share, informative_only)
    finding, verdict = None, None
    if not obstacles:
        finding, verdict = _verdict(
            pass_rate, shift, contrasts, int(np.count_nonzero(tickets.num_audit_T)), informative_only
        )
    return Words(
        claim_reasons=tuple(_claim_reasons(tickets, outcome, open_credit)),
        finding=finding,
        verdict=verdict,
        warnings=(
            *_claim_reasons(tickets, outcome, worth_a_warning),
            *_warnings(tickets, pass_rate, contrasts, informative_only),
            *obstacles,
        ),
    )


def _claim_reasons(tickets: Tickets, outcome: Quantity, open_credit: float) -> list[str]:
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


def _warnings(tickets: Tickets, pass_rate: Curves, contrasts: Sequence[Contrast], informative_only: bool) -> list[str]:
    warnings = []
    without, total = int(np.count_nonzero(tickets.num_audit_T == 0)), tickets.num_audit_T.size
    if 0 < without < total:
        warnings.append(f"{_part(without, total)} draws had no audit ticket: the uniform curve leaves them out")
    if informative_only:
        warnings.append("the feed reports mixed groups only: the selected curve is censored and no measure of the pool")
    if _apart(pass_rate.uniform, pass_rate.reweighted) or any(contrast.detected for contrast in contrasts):
        warnings.append(
            "the re-weighted and the uniform estimate contradict each other: check that every ticket is rolled out and "
            "reported, whatever its outcome"
        )
    return warnings


def _obstacles(tickets: Tickets, missing_M: Bools, audit_share: float, informative_only: bool) -> list[str]:
    """What forbids a verdict. In a censored feed silence depends on the outcome, so no audit ticket may be missing."""
    if audit_share == 0:
        return ["no verdict: the run has no audit share"]
    if np.count_nonzero(tickets.num_audit_T) < MIN_VERDICT_DRAWS:
        return [f"no verdict yet: fewer than {MIN_VERDICT_DRAWS} draws with audit tickets have ended"]
    missing, total = int(missing_M[tickets.audit_M].sum()), int(tickets.num_audit_T.sum())
    if missing > (0 if informative_only else MISSING_AUDIT_TOLERANCE) * total:
        return [f"no verdict: {_part(missing, total)} audit tickets are missing; report every one of them in full"]
    return []


def _verdict(
    pass_rate: Curves, shift: Estimate, found: Sequence[Contrast], num_draws: int, informative_only: bool
) -> tuple[str | None, str]:
    """A finding and its words. First whether the draws kept to their chances, then whether the selected stream can be
    read as the pool's.
    """
    uniform, selected = f"the uniform estimate is {_shown(pass_rate.uniform)}", pass_rate.selected.estimate
    if selected is None or shift.estimate is None or shift.interval is None or informative_only:
        return None, f"{uniform}; the selected stream cannot be compared with it: read progress from the uniform curve"
    alarms = [contrast for contrast in found if contrast.detected]
    contradicted = bool(alarms) or _apart(pass_rate.uniform, pass_rate.reweighted)
    agreement = "contradicts it" if contradicted else "agrees"
    both = (
        f"selected stream shows {selected:.2f}; {uniform}, and the re-weighted one, {_shown(pass_rate.reweighted)}, "
        f"{agreement}"
    )
    if alarms:
        where = "; ".join(_alarm(contrast) for contrast in alarms)
        return "bias", (
            f"bias found: the re-weighted draws contradict the uniform ones, {where}: a chance of being drawn is not "
            f"what was recorded, or groups go missing by their outcomes; {both}: read progress from the uniform curve"
        )
    low, high = shift.interval
    if not low <= 0 <= high:
        return "bias", (
            f"bias found: the selected stream differs from the pool by {shift.estimate:+.2f} ({low:+.2f} to "
            f"{high:+.2f}); {both}: read progress from the uniform curve"
        )
    margin = (high - low) / 2
    if margin > RESOLUTION:
        return "too_little", (
            f"too little data: the selected stream differs from the pool by {shift.estimate:+.2f}, and chance alone "
            f"may make that {margin:.2f}; about {further_draws(num_draws, margin):,} further draws would settle "
            f"{RESOLUTION}; {both}: no difference between the curves to be seen so far"
        )
    return "none", (
        f"no bias found at this resolution: the selected stream differs from the pool by {shift.estimate:+.2f}, and "
        f"more than {margin:.2f} would have shown; {both}: no difference between the curves to be seen so far"
    )


def further_draws(num_draws: int, margin: float) -> int:
    """Draws like those so far until the margin is RESOLUTION, if it falls with their square root; 0 when it is there.

    A margin that the ranges make falls faster, and the logarithm in it makes it fall a little slower.
    """
    return max(ceil(num_draws * ((margin / RESOLUTION) ** 2 - 1)), 0)


def _alarm(contrast: Contrast) -> str:
    what = "" if contrast.quantity == "pass_rate" else "in the share of degenerate groups "
    where = "overall" if contrast.where == "overall" else f"in {contrast.where}"
    low, high = contrast.interval
    return f"{what}{where} by {contrast.estimate:+.2f} ({low:+.2f} to {high:+.2f})"


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
