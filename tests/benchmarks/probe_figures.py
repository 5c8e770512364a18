"""Figures of docs/probing.md on training with and without probes: `python -m tests.benchmarks.probe_figures`.

Arms are paired by seed: they meet the same prompts and the same regressions. `--seeds 1` for a quick look; ten of the
cold pool take some minutes on one core.
"""

import argparse
from dataclasses import replace

import numpy as np

from selector.config import RunConfig
from selector.policies import PRESETS
from tests.benchmarks.learner_model import Constants
from tests.benchmarks.probing import STEP_ROLLOUTS, Probed, train

POOL = Constants(num_prompts=20_000, hopeless=0.5, mastered=0.3)  # 80 % uninformative
STEPS = 68  # of a run without probes
BATCH = 256  # prompts of a probe batch
FIRST_SEED = 101  # below are those that the planner's constants were set with


def main() -> None:
    """Prints a line a seed and then means with intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1.0, help="of what a group teaches: 0.5 and 2 beside 1")
    parser.add_argument("--warm", action="store_true", help="every prompt has been rolled out before")
    parser.add_argument("--bound", action="store_true", help="an arm that knows every pass rate, too")
    chosen = parser.parse_args()
    constants = replace(
        POOL,
        own=chosen.scale * POOL.own,
        category=chosen.scale * POOL.category,
        everyone=chosen.scale * POOL.everyone,
    )
    arms = {"training alone": (0, False), "with probes": (BATCH, False)}
    if chosen.bound:
        arms["all known"] = (0, True)
    found: dict[str, list[Probed]] = {name: [] for name in arms}
    for seed in range(FIRST_SEED, FIRST_SEED + chosen.seeds):
        config = RunConfig(pool="simulated", policy=PRESETS["midband"].config, seed=seed)
        for name, (probes, knows) in arms.items():
            found[name].append(
                train(
                    config,
                    constants,
                    seed=seed,
                    num_rollouts=STEPS * STEP_ROLLOUTS,
                    probes=probes,
                    warm=chosen.warm,
                    knows=knows,
                )
            )
        print(seed, *(f"{name} {one[-1].heldout_T[-1]:.4f}" for name, one in found.items()), flush=True)
    for part in (0.25, 0.5, 0.75, 0.9):
        _compare(found, round(part * STEPS) * STEP_ROLLOUTS)
    probed = [one.probes_T[-1] / one.rollouts_T[-1] for one in found["with probes"]]
    print(f"probes: {np.mean(probed):.1%} of all rollouts")


def _compare(found: dict[str, list[Probed]], made: int) -> None:
    """Rollouts to the quality that training alone has after `made` of them, and quality after as many; by pairs."""
    alone = found["training alone"]
    target_S = [float(np.interp(made, one.rollouts_T, one.heldout_T)) for one in alone]
    print(f"after {made:,} rollouts alone, at {np.mean(target_S):.4f}")
    for name, arm in found.items():
        if arm is alone:
            continue
        to_S = np.array([one.rollouts_to(target) for one, target in zip(arm, target_S, strict=True)])
        base_S = np.array([one.rollouts_to(target) for one, target in zip(alone, target_S, strict=True)])
        quality_S = [float(np.interp(made, one.rollouts_T, one.heldout_T)) for one in arm]
        print(
            f"  {name}: rollouts to the same {_interval(to_S / base_S - 1.0, '+.1%')}, sooner in "
            f"{np.count_nonzero(to_S < base_S)} of {len(to_S)}; quality {_interval(np.subtract(quality_S, target_S), '+.4f')}"
        )


def _interval(value_S: np.ndarray, form: str) -> str:
    """Mean and its 95 % interval by Student's t."""
    if not np.all(np.isfinite(value_S)):
        return f"not reached in {np.count_nonzero(~np.isfinite(value_S))} of {len(value_S)}"
    mean = float(value_S.mean())
    if len(value_S) < 2:
        return format(mean, form)
    half = T_95.get(len(value_S), 2.0) * float(value_S.std(ddof=1)) / len(value_S) ** 0.5
    return f"{mean:{form}} ({mean - half:{form}} to {mean + half:{form}})"


T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26, 12: 2.20, 20: 2.09}


if __name__ == "__main__":
    main()
