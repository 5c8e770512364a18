"""Figures of docs/probing.md on training with and without probes: `python -m tests.benchmarks.probe_figures`.

Arms are paired by seed: they meet the same prompts and the same regressions. One of them draws by the true pass rates
of all prompts, at no cost: what no probing can surpass. Ten seeds take some minutes on one core.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from selector.config import RunConfig
from selector.heldout.seeds import student_quantile
from selector.policies import PRESETS
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.learner_model import Constants
from tests.benchmarks.probing import STEP_ROLLOUTS, Probed, train

POOL = Constants(num_prompts=20_000, hopeless=0.5, mastered=0.3)  # 80 % uninformative
STEPS = 68  # of a run without probes
BATCH = 256  # prompts of a probe batch
PARTS = (0.25, 0.5, 0.75, 0.9)  # of a run without probes: whose quality is reached when
ALONE, PROBES, ORACLE = "training alone", "with probes", "all known"
FIRST_SEED = 101  # below are those that the planner's constants were set with


def main() -> None:
    """Prints a table, or JSON lines."""
    parser = arguments("Training with and without probes, by pairs of a seed.")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1.0, help="of what a group teaches: 0.5 and 2 beside 1")
    parser.add_argument("--warm", action="store_true", help="every prompt has been rolled out before")
    options = parser.parse_args()
    constants = replace(
        replace(POOL, num_prompts=1_000) if options.quick else POOL,
        own=options.scale * POOL.own,
        category=options.scale * POOL.category,
        everyone=options.scale * POOL.everyone,
    )
    seeds, steps = (1, 8) if options.quick else (options.seeds, STEPS)
    arms: dict[str, list[Probed]] = {ALONE: [], PROBES: [], ORACLE: []}
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        config = RunConfig(pool="simulated", policy=PRESETS["midband"].config, seed=seed)
        for name, arm in arms.items():
            found = train(
                config,
                constants,
                seed=seed,
                num_rollouts=steps * STEP_ROLLOUTS,
                probes=BATCH if name == PROBES else 0,
                warm=options.warm,
                knows=name == ORACLE,
            )
            arm.append(found)
        print(seed, file=sys.stderr)
    case = f"{'warm' if options.warm else 'cold'} pool, {options.scale:g} x"
    figures = [
        figure
        for part in PARTS
        for name in (PROBES, ORACLE)
        for figure in _compared(f"{case}, {name}", arms[ALONE], arms[name], round(part * steps) * STEP_ROLLOUTS)
    ]
    share_S = np.array([one.probes_T[-1] / one.rollouts_T[-1] for one in arms[PROBES]])
    figures.append(_figure(case, "share of rollouts that are probes", share_S, "share"))
    show(figures, as_json=options.json)


def _compared(case: str, alone: list[Probed], arm: list[Probed], made: int) -> Iterator[Figure]:
    """Rollouts to the quality that training alone has after `made` of them, and quality after as many; by pairs."""
    target_S = np.array([np.interp(made, one.rollouts_T, one.heldout_T) for one in alone])
    quality_S = np.array([np.interp(made, one.rollouts_T, one.heldout_T) for one in arm])
    to_S = np.array([one.rollouts_to(target) for one, target in zip(arm, target_S, strict=True)])
    base_S = np.array([one.rollouts_to(target) for one, target in zip(alone, target_S, strict=True)])
    yield _figure(case, f"rollouts more to the quality of {made:,} alone", to_S / base_S - 1.0, "share")
    yield _figure(case, f"sooner to the quality of {made:,} alone", (to_S < base_S).astype(float), "share of seeds")
    yield _figure(case, f"quality more after {made:,}", quality_S - target_S, "pass rate")


def _figure(case: str, metric: str, value_S: np.ndarray, unit: str) -> Figure:
    """Mean over seeds and its 95 % interval by Student's t; neither where a seed never got there."""
    num, finite = len(value_S), bool(np.all(np.isfinite(value_S)))
    mean = float(value_S.mean()) if finite else None
    half = 0.0
    if num > 1 and finite:
        half = student_quantile(0.975, num - 1) * float(value_S.std(ddof=1)) / num**0.5
    return Figure(
        benchmark="probe_figures",
        case=case,
        metric=metric,
        value=mean,
        unit=unit,
        n=POOL.num_prompts,
        seeds=num,
        interval=None if mean is None or num < 2 else (mean - half, mean + half),
        setting={"first_seed": FIRST_SEED, "batch": BATCH},
    )


if __name__ == "__main__":
    main()
