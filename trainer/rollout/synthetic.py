"""A made-up record, for the demo and for tests: prompts of several categories whose pass rates drift.

It imitates what one sees in a pool under training, with no model behind it: many prompts the model never or always
solves, slow drift upwards, a few hopeless prompts that wake up, a few mastered ones that slip back. Nothing in it
reacts to what is trained.

Per prompt a log-odds path: start + slope · t + a random walk, t from 0 to 1; P(pass) = 1 / (1 + e^-logit).
Axes: V visits, N prompts.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

# Category: share of the pool, then shares of hopeless and of mastered prompts in it; the others lie in between.
CATEGORIES: Mapping[str, tuple[float, float, float]] = {
    "arithmetic": (0.30, 0.08, 0.35),
    "algebra": (0.25, 0.25, 0.15),
    "geometry": (0.20, 0.40, 0.08),
    "combinatorics": (0.15, 0.55, 0.04),
    "proofs": (0.10, 0.75, 0.01),
}
LOGIT_HOPELESS = (-6.0, 0.8)  # mean and sd of the start: about 2 groups of 8 in 100 have any success
LOGIT_MASTERED = (4.5, 0.8)
LOGIT_BETWEEN = (-0.6, 1.4)
SLOPE = (0.9, 0.6)  # mean and sd of the logits gained over the whole record, in between
SLOPE_ENDS = (0.3, 0.4)  # the same for hopeless and mastered prompts
WALK_SD = 0.12  # logits a visit
WAKE_SHARE = 0.12  # of hopeless prompts: from some visit on they gain JUMP logits
SLIP_SHARE = 0.05  # of mastered prompts: from some visit on they lose JUMP logits
JUMP = 4.5
DIGITS = 4  # kept of each pass rate

HOPELESS, MASTERED, BETWEEN = 0, 1, 2


def drifting_pool(num_prompts: int = 600, *, visits: int = 24, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a record as `RecordedOutcomes` reads them: key, category, content and one pass rate a visit.

    The same arguments give the same rows. Raises ValueError if num_prompts or visits is below 1.
    """
    if num_prompts < 1 or visits < 1:
        raise ValueError(f"num_prompts and visits must be >= 1, got {num_prompts} and {visits}")
    rng = np.random.default_rng(seed)
    names = list(CATEGORIES)
    shares = np.array([CATEGORIES[name] for name in names])
    category_N = rng.choice(len(names), size=num_prompts, p=shares[:, 0])
    kind_N = _kinds(rng, shares[category_N, 1], shares[category_N, 2])
    p_VN = 1 / (1 + np.exp(-_logits(rng, kind_N, visits)))
    return [
        {
            "key": f"{names[category_N[n]]}-{n:05d}",
            "category": names[category_N[n]],
            "content": f"made-up {names[category_N[n]]} prompt number {n}",
            "p": [round(float(p), DIGITS) for p in p_VN[:, n]],
        }
        for n in range(num_prompts)
    ]


def write_record(rows: Iterable[Mapping[str, object]], path: Path | str) -> Path:
    """Write rows as JSON lines, the form `RecordedOutcomes.load` reads."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _kinds(rng: np.random.Generator, hopeless_N: np.ndarray, mastered_N: np.ndarray) -> np.ndarray:
    u_N = rng.random(len(hopeless_N))
    return np.select([u_N < hopeless_N, u_N < hopeless_N + mastered_N], [HOPELESS, MASTERED], BETWEEN)


def _logits(rng: np.random.Generator, kind_N: np.ndarray, visits: int) -> np.ndarray:
    """(V, N) log-odds."""
    size = len(kind_N)
    start = np.array([LOGIT_HOPELESS, LOGIT_MASTERED, LOGIT_BETWEEN])[kind_N]
    slope = np.array([SLOPE_ENDS, SLOPE_ENDS, SLOPE])[kind_N]
    start_N = rng.normal(start[:, 0], start[:, 1])
    slope_N = rng.normal(slope[:, 0], slope[:, 1])
    t_V = np.linspace(0, 1, visits)
    walk_VN = np.vstack([np.zeros(size), rng.normal(0, WALK_SD, (visits - 1, size)).cumsum(axis=0)])
    u_N, when_N = rng.random(size), rng.uniform(0.1, 0.9, size)
    wakes_N = (kind_N == HOPELESS) & (u_N < WAKE_SHARE)
    slips_N = (kind_N == MASTERED) & (u_N < SLIP_SHARE)
    jump_N = JUMP * (wakes_N.astype(float) - slips_N.astype(float))
    jumped_VN = (t_V[:, None] >= when_N[None, :]) * jump_N[None, :]
    return np.asarray(start_N[None, :] + t_V[:, None] * slope_N[None, :] + walk_VN + jumped_VN)
