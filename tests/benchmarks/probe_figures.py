"""Figures of docs/probing.md on training with and without probes: `python -m tests.benchmarks.probe_figures`.

Arms are paired by seed: they meet the same prompts and the same regressions. One draws by the true pass rates of all
prompts, at no cost: what no probing can surpass. Another does not probe and stops groups that are all alike after half.

The quality to be reached is given from outside, by further runs of training alone with draws of their own. Were it that
of the very run to compare with, an arm that does nothing else than draw with another seed would seem 2 to 4 % later: a
run that was lucky asks for more than the other one can have by then. Twelve seeds take some ten minutes on one core.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from selector.config import PolicyConfig, RunConfig
from selector.heldout.seeds import student_quantile
from selector.policies import PRESETS
from selector.rollout_store import RolloutStoreConfig
from selector.waves import WaveConfig
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.learner_model import Constants
from tests.benchmarks.probing import STEP_ROLLOUTS, Probed, train

POOL = Constants(num_prompts=20_000, hopeless=0.5, mastered=0.3)  # 80 % uninformative
STEPS = 68  # of a run without probes
BATCH = 256  # prompts of a probe batch
PARTS = (0.25, 0.5, 0.75, 0.9)  # of a run without probes: whose quality is reached when
FIRST_SEED = 201  # those below were used to set the planner's constants and to decide on its rules
REFERENCES = 3  # runs of training alone that give the quality to be reached
POLICY = PRESETS["midband"].config


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """How one run trains."""

    policy: PolicyConfig = POLICY
    probes: int = 0
    store: RolloutStoreConfig | None = None
    knows: bool = False


ALONE = "training alone"
ARMS = {
    ALONE: Arm(),
    "probes": Arm(probes=BATCH),
    "probes and store": Arm(probes=BATCH, store=RolloutStoreConfig()),
    "waves, no probes": Arm(policy=replace(POLICY, wave=WaveConfig(rule="screen", first=4))),
    "all known": Arm(knows=True),
}


def main() -> None:
    """Prints a table, or JSON lines."""
    parser = arguments("Training with and without probes, by pairs of a seed.")
    parser.add_argument("--seeds", type=int, default=12)
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

    def run(arm: Arm, seed: int, draws: int) -> Probed:
        config = RunConfig(pool="simulated", policy=arm.policy, seed=draws, rollout_store=arm.store)
        num_rollouts = steps * STEP_ROLLOUTS
        return train(
            config,
            constants,
            seed=seed,
            num_rollouts=num_rollouts,
            probes=arm.probes,
            warm=options.warm,
            knows=arm.knows,
        )

    made_P = [round(part * steps) * STEP_ROLLOUTS for part in PARTS]
    found: dict[str, list[Probed]] = {name: [] for name in ARMS}
    targets = list[np.ndarray]()
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        others = [run(ARMS[ALONE], seed, 1_000 * (other + 1) + seed) for other in range(REFERENCES)]
        targets.append(np.mean([_quality(one, made_P) for one in others], axis=0))
        for name, arm in ARMS.items():
            found[name].append(run(arm, seed, seed))
        print(seed, file=sys.stderr)
    case = f"{'warm' if options.warm else 'cold'} pool, {options.scale:g} x"
    figures = [
        figure
        for place, made in enumerate(made_P)
        for name in ARMS
        if name != ALONE
        for figure in _compared(
            f"{case}, {name}", found[ALONE], found[name], made, np.array(targets)[:, place], steps * STEP_ROLLOUTS
        )
    ]
    for name, arm in ARMS.items():
        if arm.probes:
            share_S = np.array([one.probes_T[-1] / one.rollouts_T[-1] for one in found[name]])
            figures.append(_figure(f"{case}, {name}", "share of rollouts that are probes", share_S, "share"))
    show(figures, as_json=options.json)


def _quality(run: Probed, made: int | list[int]) -> np.ndarray:
    """Held-out pass rate after so many rollouts."""
    return np.asarray(np.interp(made, run.rollouts_T, run.heldout_T))


def _compared(
    case: str, alone: list[Probed], arm: list[Probed], made: int, target_S: np.ndarray, most: int
) -> Iterator[Figure]:
    """Rollouts to the quality that training alone has after `made` of them, and quality after as many; by pairs.

    A run that does not get there within `most` rollouts counts as if it had then, and is counted.
    """
    to_S = np.array([one.rollouts_to(target) for one, target in zip(arm, target_S, strict=True)])
    base_S = np.array([one.rollouts_to(target) for one, target in zip(alone, target_S, strict=True)])
    more_S = np.array([float(_quality(one, made) - _quality(base, made)) for one, base in zip(arm, alone, strict=True)])
    never = int(np.count_nonzero(to_S > most)), int(np.count_nonzero(base_S > most))
    to_S, base_S = np.minimum(to_S, most), np.minimum(base_S, most)
    at = f"the quality of {made:,} alone"
    yield _figure(case, f"rollouts more to {at}", to_S / base_S - 1.0, "share", never)
    yield _figure(case, f"sooner to {at}", (to_S < base_S).astype(float), "share of seeds", never)
    yield _figure(case, f"quality more after {made:,}", more_S, "pass rate")


def _figure(case: str, metric: str, value_S: np.ndarray, unit: str, never: tuple[int, int] = (0, 0)) -> Figure:
    """Mean over seeds and its 95 % interval by Student's t. never: seeds that did not get there, of arm and base."""
    num, half = len(value_S), 0.0
    mean = float(value_S.mean())
    if num > 1:
        half = student_quantile(0.975, num - 1) * float(value_S.std(ddof=1)) / num**0.5
    return Figure(
        benchmark="probe_figures",
        case=case,
        metric=metric,
        value=mean,
        unit=unit,
        n=POOL.num_prompts,
        seeds=num,
        interval=None if num < 2 else (mean - half, mean + half),
        setting={"first_seed": FIRST_SEED, "batch": BATCH, "never": never},
    )


if __name__ == "__main__":
    main()
