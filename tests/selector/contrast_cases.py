"""Many runs of one design at once, with faults planted in it: what the contrast of the audit is tried on.

Written apart from `selector.sampling.draw`: systematic πps with an audit on top, all runs at the same time. Predictions
and sizes follow a course that is the same in every run, so that chances and ranges are made once a draw.

Axes: R runs, T draws, N prompts, K tickets.
"""

from dataclasses import dataclass

import numpy as np

from selector.audit.columns import Quantity, Tickets
from selector.audit.contrasts import Contrast, Part, contrasts
from selector.batches.observations import Bools, Floats, observation_ranges
from selector.sampling.inclusion import Inclusion

NUM_PROMPTS, NUM_TICKETS, NUM_AUDIT, GROUP_SIZE = 768, 128, 32, 8
FLOOR = 0.05
CAPPINGS = 20  # rounds in which chances above 1 are cut


@dataclass(frozen=True, kw_only=True)
class Fault:
    """tilt: prompts are selected with e^(tilt·p) times the recorded chance. lost: share of the groups below a half
    that never come back, of train tickets; those of the audit are reported in full.
    """

    tilt: float = 0.0
    lost: float = 0.0


def course(num_draws: int) -> tuple[Floats, Floats]:
    """True and predicted pass rates at each draw, (T, N): prompts learn, and predictions lag and err."""
    rng = np.random.default_rng(7)
    logit_N = rng.normal(-0.5, 2.0, NUM_PROMPTS)
    gain_T = np.linspace(0.0, 2.0, num_draws)
    true_TN = 1 / (1 + np.exp(-(logit_N + gain_T[:, None])))
    believed_TN = 1 / (1 + np.exp(-(0.5 * logit_N + 0.8 * gain_T[:, None] + rng.normal(0.0, 0.8, NUM_PROMPTS))))
    return true_TN, believed_TN


def selected_chances(believed_N: Floats, tilt_N: Floats | float = 1.0) -> Floats:
    """(N,) π_t of the selected part: by the chance of a mixed group, with a floor, none above 1."""
    size_N = 1 - believed_N**GROUP_SIZE - (1 - believed_N) ** GROUP_SIZE
    places = NUM_TICKETS - NUM_AUDIT
    chance_N = FLOOR / NUM_PROMPTS + (1 - FLOOR) * size_N / size_N.sum()
    chance_N = chance_N * tilt_N
    for _ in range(CAPPINGS):
        sure_N = chance_N >= 1
        rest = (places - sure_N.sum()) / chance_N[~sure_N].sum()
        chance_N = np.where(sure_N, 1.0, chance_N * rest)
    assert chance_N.max() <= 1
    return np.asarray(chance_N, np.float64)


def with_audit(selected_N: Floats) -> Floats:
    return selected_N + (1 - selected_N) * NUM_AUDIT / (NUM_PROMPTS - (NUM_TICKETS - NUM_AUDIT))


def moved_by(true_N: Floats, believed_N: Floats, fault: Fault) -> float:
    """How far the weighted mean of what comes back is from the pool's, in expectation."""
    recorded_N = with_audit(selected_chances(believed_N))
    actual_N = with_audit(selected_chances(believed_N, np.exp(fault.tilt * true_N)))
    return float((actual_N / recorded_N * true_N).mean() - true_N.mean())


def tilt_that_moves(shift: float, num_draws: int) -> Fault:
    """The wrong chances that move the weighted mean by so much, on average over the draws."""
    true_TN, believed_TN = course(num_draws)
    low, high = 0.0, 10.0
    for _ in range(30):
        fault = Fault(tilt=(low + high) / 2)
        moved = [moved_by(true_TN[t], believed_TN[t], fault) for t in range(0, num_draws, num_draws // 10)]
        low, high = (fault.tilt, high) if np.mean(moved) < shift else (low, fault.tilt)
    return fault


def simulate(num_runs: int, num_draws: int, fault: Fault, *, seed: int = 1) -> list[tuple[Tickets, Quantity]]:
    """The columns that each run leaves."""
    rng = np.random.default_rng(seed)
    true_TN, believed_TN = course(num_draws)
    shape = (num_draws, num_runs, NUM_TICKETS)
    x_TRK, predicted_TRK, weight_TRK = np.empty(shape), np.empty(shape), np.empty(shape)
    audit_TRK = np.empty(shape, bool)
    base_T, reweighted_T2, uniform_T2 = np.empty(num_draws), np.empty((num_draws, 2)), np.empty((num_draws, 2))
    every_N, no_credit_N = np.ones(NUM_PROMPTS, bool), np.zeros(NUM_PROMPTS, np.int32)
    for t in range(num_draws):
        recorded_N = selected_chances(believed_TN[t])
        actual_N = selected_chances(believed_TN[t], np.exp(fault.tilt * true_TN[t])) if fault.tilt else recorded_N
        inclusion_N = with_audit(recorded_N)
        row_RK, audit_TRK[t] = sample(rng, actual_N, num_runs)
        predicted_TRK[t] = believed_TN[t][row_RK]
        weight_TRK[t] = NUM_TICKETS / (NUM_PROMPTS * inclusion_N[row_RK])
        x_TRK[t] = rng.binomial(GROUP_SIZE, true_TN[t][row_RK]) / GROUP_SIZE
        columns = (Inclusion.of(inclusion_N), no_credit_N, believed_TN[t], believed_TN[t], every_N)
        ranges, _ = observation_ranges(*columns, NUM_TICKETS, NUM_AUDIT, NUM_PROMPTS)
        base_T[t], reweighted_T2[t], uniform_T2[t] = ranges.base, ranges.reweighted, ranges.uniform
    if fault.lost:
        gone_TRK = ~audit_TRK & (x_TRK < 0.5) & (rng.random(shape) < fault.lost)
        x_TRK[gone_TRK] = np.nan
    return [
        (
            Tickets(
                draw_M=np.repeat(np.arange(num_draws), NUM_TICKETS),
                weight_M=weight_TRK[:, run].ravel(),
                mass_M=np.ones(num_draws * NUM_TICKETS),
                audit_M=audit_TRK[:, run].ravel(),
                num_tickets_T=np.full(num_draws, NUM_TICKETS),
                num_audit_T=np.full(num_draws, NUM_AUDIT),
                frame_T=np.full(num_draws, float(NUM_PROMPTS)),
                eligible_T=np.full(num_draws, float(NUM_PROMPTS)),
            ),
            Quantity(
                x_M=x_TRK[:, run].ravel(),
                predicted_M=predicted_TRK[:, run].ravel(),
                base_T=base_T,
                reweighted_T2=reweighted_T2,
                uniform_T2=uniform_T2,
            ),
        )
        for run in range(num_runs)
    ]


def sample(rng: np.random.Generator, selected_N: Floats, num_runs: int) -> tuple[np.ndarray, Bools]:
    """Rows drawn and which of them are audit tickets, (R, K) both."""
    size = (num_runs, NUM_PROMPTS)
    order_RN = np.argsort(rng.random(size, np.float32), axis=1)
    grid_RN = np.floor(np.cumsum(selected_N[order_RN], axis=1) - 1e-9 + rng.random((num_runs, 1)))
    hit_RN = np.diff(grid_RN, axis=1, prepend=0.0) > 0
    chosen_RN = np.zeros(size, bool)
    np.put_along_axis(chosen_RN, order_RN, hit_RN, axis=1)
    shuffled_RN = np.argsort(rng.random(size, np.float32), axis=1)
    outside_RN = ~np.take_along_axis(chosen_RN, shuffled_RN, axis=1)
    missing_R1 = NUM_TICKETS - chosen_RN.sum(axis=1, keepdims=True)
    added_RN, audit_RN = np.zeros(size, bool), np.zeros(size, bool)
    np.put_along_axis(added_RN, shuffled_RN, outside_RN & (np.cumsum(outside_RN, axis=1) <= missing_R1), axis=1)
    np.put_along_axis(audit_RN, shuffled_RN[:, :NUM_AUDIT], True, axis=1)
    row_RK = np.nonzero(chosen_RN | added_RN)[1].reshape(num_runs, NUM_TICKETS)
    return row_RK, np.take_along_axis(audit_RN, row_RK, axis=1)


def contrast(run: tuple[Tickets, Quantity], num_draws: int, parts: list[Part] | None = None) -> Contrast:
    """Of the whole pool, over the first draws, with the share of the error that the audit gives it."""
    return contrasts(run[0], [("pass_rate", run[1])], parts or [], np.arange(num_draws), 0.05)[0]
