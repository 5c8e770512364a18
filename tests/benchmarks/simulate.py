"""What each preset does to a simulated learner: informative groups, rollouts to a held-out target, starvation, audit.

The learner is made up (`learner_model`), so this compares policies under stated assumptions and says nothing of any
real model; `--parts constants` repeats it with the learner's constants halved and doubled. Rollouts stand for tokens,
as all are of one length. `--parts midband` looks for the power and the floor of midband that are best here.
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
from tests.benchmarks.closed_loop import BATCH_SIZE, GROUP_SIZE, Closed, closed_loop
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.learner_model import Constants
from trainer.replay.arms import PolicyArm

NUM_STEPS = 300
TARGET = 0.55  # held-out pass rate; every learner begins at 0.45 or so, give or take its seed
TARGETS = (0.50, TARGET, 0.65)  # half, once and twice the rise
SAME_AS_UNIFORM = "random-equal-rollouts"  # the same draws under another name
# The loop draws one batch of whole groups a step, under which these are the same as uniform.
IN_PARTS = {name for name, preset in PRESETS.items() if preset.config.wave or preset.config.refill}
POWERS, FLOORS = (1.0, 2.0, 4.0, 8.0, 16.0), (0.05, 0.2)
VARIED = ("uniform", "midband", "band", "mopps")
RATES = ("own", "category", "everyone")
SMOOTHED_STEPS = 10  # over which the picture averages the informative share


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One policy on one kind of learner."""

    name: str
    policy: PolicyConfig
    constants: Constants
    weights: Weights = "none"
    review_share: float = 0.05
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
        _picture({name: runs for name, runs in results.items() if name in PRESETS}, options.picture)
    show([figure for arm in arms for figure in _figures(arm, results, num_steps)], as_json=options.json)


def _presets(constants: Constants) -> Iterator[Arm]:
    for name in PRESETS:
        if name != SAME_AS_UNIFORM and name not in IN_PARTS:
            yield Arm(name=name, policy=_policy(name), constants=constants)
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
            pool="simulated", policy=arm.policy, weights=arm.weights, review_share=arm.review_share, seed=seed
        )
        found.append(closed_loop(config, arm.constants, seed=seed, num_steps=num_steps))
    print(f"{arm.name}: {seeds} seeds", file=sys.stderr, flush=True)
    return found


Measure = tuple[str, str, Callable[[Closed], float | None]]
MEASURES: tuple[Measure, ...] = (
    ("informative_groups_per_rollout", "groups/rollout", lambda run: run.informative_per_rollout),
    ("heldout_pass_rate", "at the end", lambda run: float(run.heldout_T[-1])),
    ("longest_wait", "draws", lambda run: float(run.longest_wait)),
    ("never_drawn", "prompts", lambda run: float(run.never_drawn)),
    ("audit_error_uniform", "pass rate", lambda run: run.uniform_error),
    ("audit_error_reweighted", "pass rate", lambda run: run.reweighted_error),
    ("audit_interval_holds", "share of seeds", lambda run: None if run.covered is None else float(run.covered)),
)
OF_WEIGHTS: tuple[Measure, ...] = (
    ("second_moment", "of uniform's", lambda run: run.second_moment),
    ("second_moment_predicted", "of uniform's", lambda run: run.predicted_moment),
    ("second_moment_knowing", "of uniform's", lambda run: run.knowing_moment),
    ("second_moment_bound", "of uniform's", lambda run: run.least_moment),
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
            "group_size": GROUP_SIZE,
            "constants": str(arm.constants),
            "policy": str(arm.policy),
            "weights": arm.weights,
            "review_share": arm.review_share,
            "revisit_draws": runs[0].revisit_draws,
            "seeds_with_a_value": len(known),
            "interval": "smallest and largest seed",
        },
    )


def _values(runs: Sequence[Closed], read: Callable[[Closed], float | None]) -> list[float | None]:
    return [read(run) for run in runs]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _picture(results: dict[str, list[Closed]], path: Path) -> None:
    """Held-out pass rate and informative share against rollouts, mean over seeds with the range of them."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    colours = [mpl.colormaps["tab20"](place) for place in range(20)]
    window = min(SMOOTHED_STEPS, len(results["uniform"][0].heldout_T))
    for colour, (name, runs) in zip(colours, results.items(), strict=False):
        rollouts_T = (np.arange(len(runs[0].heldout_T)) + 1) * BATCH_SIZE * GROUP_SIZE / 1000
        share_ST = np.array([run.informative_T / BATCH_SIZE for run in runs])
        smooth_ST = np.lib.stride_tricks.sliding_window_view(share_ST, window, axis=1).mean(axis=2)
        for axis, x_T, curve_ST in (
            (axes[0], rollouts_T, np.array([run.heldout_T for run in runs])),
            (axes[1], rollouts_T[window - 1 :], smooth_ST),
        ):
            axis.plot(x_T, curve_ST.mean(axis=0), label=name, color=colour)
            axis.fill_between(x_T, curve_ST.min(axis=0), curve_ST.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes[0].axhline(TARGET, color="0.6", linestyle=":", linewidth=1)
    axes[0].set(xlabel="thousand rollouts", ylabel="held-out pass rate")
    axes[1].set(xlabel="thousand rollouts", ylabel="share of groups that are informative")
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle("A simulated learner under each preset: mean and range over seeds", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
