"""What features of a pool that say nothing, or no longer what they said, cost a run that reads them.

`python -m tests.benchmarks.useless_features [--json] [--quick]`. The estimator `features` against `mixture`, which
reads none: in a closed loop with the simulated learner under `midband`, where what is believed decides what is drawn,
and on pools of known truth, of which one prompt in ten is seen at each visit. Columns of noise, constant ones, and a
strong one, another model's solve rate or the pass rates at the start, where halfway the prompts change places or turn
over. Axes: N prompts, T visits, S seeds.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from api.convert import to_policy
from predictors.base import Column, FloatArray
from predictors.calibration import beta_binomial_log_loss
from predictors.registry import build_estimator
from selector.config import RunConfig
from tests.benchmarks.closed_loop import GROUP_SIZE, Closed, pool_of, trained
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.learner_model import Constants, Learner
from tests.predictors.groups import groups
from tests.predictors.known_truth import LAG, NUM_VISITS, POOLS
from trainer.replay.arms import PolicyArm

NUM_STEPS, SEEDS = 300, 5
NUM_ROWS, VISITS_SEEDS = 2_000, 5
TARGET = 0.55  # held-out pass rate
NOISE = {"1 column of noise": 1, "5 columns of noise": 5, "50 columns of noise": 50}
TURNS = ("stays", "others'", "turned over")

Features = Mapping[str, FloatArray]


@dataclass(slots=True)
class Turning(Learner):
    """Halfway through its prompts change places, or what was hard becomes easy. Held-out ones stay."""

    turn: str

    def learn(self, step: int, row_K: np.ndarray, weight_K: np.ndarray) -> None:
        Learner.learn(self, step, row_K, weight_K)
        if step == self.num_steps // 2 and self.turn != "stays":
            logit_N = self.own_N - self.difficulty_N
            ranked = np.argsort(logit_N)
            other_N = np.empty_like(logit_N)
            if self.turn == "turned over":
                other_N[ranked] = logit_N[ranked[::-1]]
            else:
                other_N = np.random.default_rng([self.seed, 4]).permutation(logit_N)
            self.own_N += other_N - logit_N


def main() -> None:
    options = arguments("What features cost where they say nothing.").parse_args()
    constants = Constants(num_prompts=1_000, num_heldout=200) if options.quick else Constants()
    steps, seeds, rows = (20, 1, 300) if options.quick else (NUM_STEPS, SEEDS, NUM_ROWS)
    show([*_loops(constants, steps, seeds), *_visits(rows, 1 if options.quick else VISITS_SEEDS)], as_json=options.json)


def useless(kind: str, num_rows: int, seed: int) -> Features:
    """Columns that say nothing."""
    if kind == "constant columns":
        return {"one": np.ones(num_rows), "none": np.zeros(num_rows)}
    value_NF = np.random.default_rng([seed, 5]).normal(size=(num_rows, NOISE[kind]))
    return {f"noise {place}": value_N for place, value_N in enumerate(value_NF.T)}


def _loops(constants: Constants, steps: int, seeds: int) -> Iterator[Figure]:
    for turn in TURNS:
        kinds = [*NOISE, "constant columns", "the label"] if turn == TURNS[0] else ["the label"]
        without = [_closed(constants, turn, None, steps, seed) for seed in range(seeds)]
        for kind in ("mixture", *kinds):
            runs = without if kind == "mixture" else [_closed(constants, turn, kind, steps, s) for s in range(seeds)]
            for metric, unit, value_S in _measured(runs):
                base_S = {name: known for name, _, known in _measured(without)}[metric]
                yield Figure(
                    benchmark="useless_features",
                    case=kind,
                    metric=metric,
                    value=float(value_S.mean()),
                    unit=unit,
                    n=constants.num_prompts,
                    seeds=seeds,
                    interval=(float((value_S - base_S).min()), float((value_S - base_S).max())),
                    setting={
                        "set": f"simulated learner, {turn}",
                        "steps": steps,
                        "interval": "least and most of a seed, less mixture on that seed",
                    },
                )
            print(f"{turn}: {kind}", file=sys.stderr, flush=True)


def _closed(constants: Constants, turn: str, kind: str | None, steps: int, seed: int) -> Closed:
    learner = Turning(constants, seed, steps, turn=turn)
    policy = to_policy(PolicyArm.parse("midband").policy)
    pool = pool_of(learner)
    if kind is not None:
        policy = replace(policy, estimator="features")
        if kind != "the label":
            pool = replace(pool, features=useless(kind, constants.num_prompts, seed))
    config = RunConfig(pool="simulated", policy=policy, group_size=GROUP_SIZE, review_share=0.05, seed=seed)
    return trained(learner, config, pool)


def _measured(runs: list[Closed]) -> list[tuple[str, str, FloatArray]]:
    half = len(runs[0].informative_T) // 2
    share = np.array([run.informative_T / run.rollouts_T for run in runs])
    never = [float(run.rollouts_T.sum()) for run in runs]
    reached = [run.rollouts_to(TARGET) or most for run, most in zip(runs, never, strict=True)]
    return [
        ("informative_groups_per_rollout", "groups/rollout", share.mean(axis=1)),
        ("informative_groups_per_rollout, second half", "groups/rollout", share[:, half:].mean(axis=1)),
        ("heldout_pass_rate", "at the end", np.array([run.heldout_T[-1] for run in runs])),
        ("rollouts_to_target", "rollouts, all if never", np.array(reached)),
    ]


def _visits(num_rows: int, seeds: int) -> Iterator[Figure]:
    for pool in (*POOLS, "turned over"):
        kinds = [*NOISE, "constant columns", "the first rate"]
        loss_S: dict[str, list[FloatArray]] = {kind: [] for kind in ("mixture", *kinds)}
        for seed in range(seeds):
            for kind, losses_S in loss_S.items():
                losses_S.append(_losses(pool, kind, num_rows, seed))
        for kind, losses_S in loss_S.items():
            lost_S = np.array(losses_S).mean(axis=1)
            more_S = lost_S - np.array(loss_S["mixture"]).mean(axis=1)
            yield Figure(
                benchmark="useless_features",
                case=kind,
                metric="log_loss",
                value=float(lost_S.mean()),
                unit="nats/group",
                n=num_rows,
                seeds=seeds,
                interval=(float(more_S.min()), float(more_S.max())),
                setting={
                    "set": f"simulated: {pool}",
                    "feed": "random 10 %",
                    "interval": "least and most of a seed, less mixture on that seed",
                },
            )


def _losses(pool: str, kind: str, num_rows: int, seed: int) -> FloatArray:
    """Of the next group of each prompt of the feed, before it is revealed."""
    rng = np.random.default_rng(seed)
    made = build_estimator("mixture" if kind == "mixture" else "features", {})
    made.resize(np.zeros(num_rows, dtype=np.int32))
    lost: list[FloatArray] = []
    for visit, rate_N in enumerate(_rates(pool, num_rows, rng)):
        if visit == 0 and kind != "mixture":
            columns = {"rate": rate_N.copy()} if kind == "the first rate" else useless(kind, num_rows, seed)
            made.attach({name: Column(value_N=value_N) for name, value_N in columns.items()})
        made.advance(LAG * visit)
        rows = rng.permutation(num_rows)[: num_rows // 10]
        seen = groups(rows, rng.binomial(GROUP_SIZE, rate_N[rows]), version=LAG * visit)
        beliefs = made.beliefs(rows)
        lost.append(beta_binomial_log_loss(beliefs.mean_N, beliefs.variance_N, seen.passes_B, seen.scored_B))
        made.observe(seen)
    return np.concatenate(lost)


def _rates(pool: str, num_rows: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    if pool != "turned over":
        yield from POOLS[pool](num_rows, rng)
        return
    rate_N = rng.beta(0.6, 0.8, num_rows)
    for visit in range(NUM_VISITS):
        yield rate_N if visit < NUM_VISITS // 2 else 1.0 - rate_N


if __name__ == "__main__":
    main()
