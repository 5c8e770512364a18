"""What each preset does to a simulated learner: informative groups, rollouts to a held-out target, starvation, audit.

The learner is made up (`learner_model`), so this compares policies under stated assumptions and says nothing of any
real model; `--parts constants` repeats it with the learner's constants halved and doubled. Rollouts stand for tokens,
as all are of one length; every rollout made is counted. `--parts midband` looks for the power and the floor of midband
that are best here.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path

import numpy as np

from api.convert import to_policy
from selector.config import LifecycleConfig, PolicyConfig, RunConfig, Weights
from selector.policies import PRESETS
from selector.waves import WaveConfig
from tests.benchmarks.closed_loop import GROUP_SIZE, Closed, closed_loop
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.learner_model import Constants
from tests.benchmarks.rolling_out import BATCH_SIZE
from tests.benchmarks.simulate_picture import draw_picture, show_overview
from trainer.replay.arms import PolicyArm

NUM_STEPS = 300
TARGET = 0.55  # held-out pass rate; every learner begins at 0.45 or so, give or take its seed
TARGETS = (0.50, TARGET, 0.65)  # half, once and twice the rise
LEFT_OUT = {
    "random-equal-rollouts",  # the draws of uniform under another name
    "random-equal-informative",
    "pcl",  # has no value network here, and chooses by nothing else
}
POWERS, FLOORS = (1.0, 2.0, 4.0, 8.0, 16.0), (0.05, 0.2)
VARIED = ("uniform", "midband", "dps", "dots")  # with those that come next to midband
RATES = ("own", "category", "everyone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One policy on one kind of learner."""

    name: str
    policy: PolicyConfig
    constants: Constants
    group_size: int = GROUP_SIZE
    weights: Weights = "none"
    review_share: float = 0.05
    told: bool = False
    compared_with: str = "uniform"


def main() -> None:
    parser = arguments("Presets in a closed loop with a simulated learner.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["presets"], help="uniform is always among them")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these cases of the parts, and uniform")
    parser.add_argument("--picture", type=Path, help="write the curves of the presets here")
    options = parser.parse_args()
    constants = Constants(num_prompts=1_000, num_heldout=200) if options.quick else Constants()
    num_steps, seeds = (20, 1) if options.quick else (NUM_STEPS, options.seeds)
    arms = [arm for part in options.parts for arm in PARTS[part](constants)]
    if options.only:
        arms = [arm for arm in arms if arm.name in {"uniform", *options.only}]
    if not any(arm.name == "uniform" for arm in arms):
        arms.insert(0, Arm(name="uniform", policy=_policy("uniform"), constants=constants))
    results = {arm.name: _closed(arm, seeds, num_steps) for arm in arms}
    if options.picture is not None:
        draw_picture(results, options.picture, target=TARGET)
    figures = [figure for arm in arms for figure in _figures(arm, results, num_steps)]
    if options.json:
        show(figures, as_json=True)
    else:
        show_overview(figures, {arm.name: arm.compared_with for arm in arms}, TARGETS)


def _presets(constants: Constants) -> Iterator[Arm]:
    """Those of waves in the group sizes of their methods, and once more with groups of eight where that can be."""
    for name, preset in PRESETS.items():
        if name not in LEFT_OUT:
            size = GROUP_SIZE if preset.config.wave is None else preset.group_size
            yield Arm(name=name, policy=_policy(name), constants=constants, group_size=size)
    for name, wave in (("speed", WaveConfig(rule="screen", first=4)), ("ar3po", PRESETS["ar3po"].config.wave)):
        yield Arm(name=f"{name}, 4 + 4", policy=replace(_policy(name), wave=wave), constants=constants)
    features = replace(_policy("midband"), estimator="features")
    yield Arm(name="midband, told the labels of adarft", policy=features, constants=constants)
    yield Arm(name="adarft, told the truth", policy=_policy("adarft"), constants=constants, told=True)
    yield Arm(
        name="midband, weights applied", policy=_policy("midband"), constants=constants, weights="horvitz_thompson"
    )
    # At the default share a revisit is due every 1,000 draws, more than there are here.
    resting = replace(_policy("midband"), lifecycle=LifecycleConfig())
    yield Arm(name="midband, prompts rest", policy=resting, constants=constants)
    yield Arm(name="midband, a fifth reviews", policy=_policy("midband"), constants=constants, review_share=0.2)


def _midband(constants: Constants) -> Iterator[Arm]:
    for power in POWERS:
        for floor in FLOORS:
            text = f"midband:power={power:g},floor={floor:g}"
            yield Arm(name=text, policy=_policy(text), constants=constants)


def _constants(constants: Constants) -> Iterator[Arm]:
    for part in (*RATES, "noise"):
        for factor in (0.5, 2.0):
            changed = replace(constants, **{part: factor * getattr(constants, part)})
            suffix = f", {part} ×{factor:g}"
            for text in VARIED:
                yield Arm(name=text + suffix, policy=_policy(text), constants=changed, compared_with=f"uniform{suffix}")


PARTS = {"presets": _presets, "midband": _midband, "constants": _constants}


def _policy(text: str) -> PolicyConfig:
    return to_policy(PolicyArm.parse(text).policy)


def _closed(arm: Arm, seeds: int, num_steps: int) -> list[Closed]:
    found = []
    for seed in range(seeds):
        config = RunConfig(
            pool="simulated",
            policy=arm.policy,
            group_size=arm.group_size,
            weights=arm.weights,
            review_share=arm.review_share,
            seed=seed,
        )
        found.append(closed_loop(config, arm.constants, seed=seed, num_steps=num_steps, told=arm.told))
    print(f"{arm.name}: {seeds} seeds", file=sys.stderr, flush=True)
    return found


Measure = tuple[str, str, Callable[[Closed], float | None]]
MEASURES: tuple[Measure, ...] = (
    ("informative_groups_per_rollout", "groups/rollout", lambda run: run.informative_per_rollout),
    ("heldout_pass_rate", "at the end", lambda run: float(run.heldout_T[-1])),
    ("rollouts_per_step", "rollouts", lambda run: float(run.rollouts_T.mean())),
    ("longest_wait", "draws", lambda run: float(run.longest_wait)),
    ("revisit_draws", "draws", lambda run: None if run.revisit_draws is None else float(run.revisit_draws)),
    ("never_drawn", "prompts", lambda run: float(run.never_drawn)),
    ("audit_error_uniform", "pass rate", lambda run: run.uniform_error),
    ("audit_error_reweighted", "pass rate", lambda run: run.reweighted_error),
    ("audit_interval_holds", "share of seeds", lambda run: None if run.covered is None else float(run.covered)),
)


def _moment(name: str) -> Callable[[Closed], float | None]:
    return lambda run: None if run.moments is None else float(getattr(run.moments, name))


OF_WEIGHTS: tuple[Measure, ...] = (
    ("second_moment", "of uniform's", _moment("actual")),
    ("second_moment_predicted", "of uniform's", _moment("predicted")),
    ("second_moment_knowing", "of uniform's", _moment("knowing")),
    ("second_moment_bound", "of uniform's", _moment("least")),
)


def _figures(arm: Arm, results: dict[str, list[Closed]], num_steps: int) -> Iterator[Figure]:
    runs, uniform = results[arm.name], results[arm.compared_with]
    for target in TARGETS:
        spent: Measure = (f"rollouts_to_{target:g}", "rollouts", methodcaller("rollouts_to", target))
        yield _figure(arm, spent, runs, uniform, num_steps)
    for measure in MEASURES if arm.weights == "none" else (*MEASURES, *OF_WEIGHTS):
        yield _figure(arm, measure, runs, uniform, num_steps)


def _figure(arm: Arm, measure: Measure, runs: Sequence[Closed], uniform: Sequence[Closed], num_steps: int) -> Figure:
    """Mean over seeds, None where a seed has no value; the interval is the smallest and the largest seed."""
    metric, unit, read = measure
    values, theirs = _values(runs, read), _values(uniform, read)
    known = [value for value in values if value is not None]
    return Figure(
        benchmark="simulate",
        case=arm.name,
        metric=metric,
        value=_mean(values),
        unit=unit,
        reference_name=arm.compared_with,
        reference_value=_mean(theirs),
        n=arm.constants.num_prompts,
        seeds=len(runs),
        interval=(min(known), max(known)) if known else None,
        setting={
            "set": "simulated learner",
            "feed": "drawn",
            "steps": num_steps,
            "batch_size": BATCH_SIZE,
            "group_size": arm.group_size,
            "constants": str(arm.constants),
            "policy": str(arm.policy),
            "weights": arm.weights,
            "review_share": arm.review_share,
            "seeds_with_a_value": len(known),
            "interval": "smallest and largest seed",
        },
    )


def _values(runs: Sequence[Closed], read: Callable[[Closed], float | None]) -> list[float | None]:
    return [read(run) for run in runs]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


if __name__ == "__main__":
    main()
