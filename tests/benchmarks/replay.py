"""Informative groups per rollout on recorded trajectories: uniform against midband, and how far there is to go.

The policies run through the real service, in process. Three bounds use knowledge that no selector has:
  same_design    midband's own draw, audit and floor included, fed the pass rates of a smoother that sees the future;
  smoother_top   the K prompts that the smoother thinks most likely to be informative, without audit or floor;
  next_outcome   the recorded outcome itself: informative groups for as long as there are any.
The record moves by its own clock, whatever is drawn: it says what a policy finds, not what training on it would do.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import midband
from predictors.base import Beliefs
from predictors.value import degenerate_probability
from selector.policies import PRESETS, build_policy
from selector.sampling.draw import draw
from selector.sampling.draw_plan import DrawFrame, DrawPlan
from tests.benchmarks.language import Figure, arguments, recorded, show
from trainer.replay.arms import PolicyArm
from trainer.replay.drawing import picture
from trainer.replay.loop import AUDIT_SHARE, replay
from trainer.replay.result import ReplayResult
from trainer.rollout.recorded import RecordedOutcomes

RECORD = "dsr_sub_rlvr_trajectories.jsonl"  # 1,209 prompts, at least 44 visits of 8 rollouts each
BATCH_SIZE = 256
SMOOTHER_DISCOUNT = 0.8  # a visit away; the best memory for predicting the next visit of this record
SMOOTHER_PRIOR = 0.2  # pseudo-counts on each side
POLICIES = ("uniform", "midband")


def main() -> None:
    parser = arguments("Informative groups per rollout on recorded trajectories.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="write the picture of the first seed here")
    options = parser.parse_args()
    path = recorded(RECORD)
    if path is None:
        return
    record = RecordedOutcomes.load(path)
    seeds = 1 if options.quick else options.seeds
    rounds = 20 if options.quick else None
    results = [_replayed(record, seed, rounds) for seed in range(seeds)]
    if options.picture is not None:
        picture(results[0], options.picture)
    show(_figures(record, results, rounds), as_json=options.json)


def _replayed(record: RecordedOutcomes, seed: int, rounds: int | None) -> list[ReplayResult]:
    with midband.in_process() as client:
        arms = [PolicyArm.parse(name) for name in POLICIES]
        return replay(client, record, arms, batch_size=BATCH_SIZE, seed=seed, rounds=rounds)


def _figures(record: RecordedOutcomes, results: list[list[ReplayResult]], rounds: int | None) -> list[Figure]:
    per_case: dict[str, list[tuple[float, float]]] = {}
    for of_seed in results:
        for result in of_seed:
            per_case.setdefault(result.arm.name, []).append((result.informative_share, result.never_seen))
    num_rounds = len(results[0][0].rounds.groups_R)
    bounds: dict[str, Callable[[int], tuple[float, int]]] = {
        "bound: same_design": lambda seed: _same_design(record, num_rounds, seed),
        "bound: smoother_top": lambda _: _chosen(record, num_rounds, _smoother_top),
        "bound: next_outcome": lambda _: _chosen(record, num_rounds, _next_outcome),
    }
    for name, bound in bounds.items():
        per_case[name] = [bound(seed) for seed in range(len(results))]
    group_size = record.group_size or 1
    setting = {
        "set": RECORD,
        "feed": "drawn",
        "batch_size": BATCH_SIZE,
        "group_size": group_size,
        "rounds": num_rounds,
        "audit_share": AUDIT_SHARE,
        "policy": str(PRESETS["midband"].config),
    }
    figures = []
    for metric, unit, scale, place in (
        ("informative_groups_per_rollout", "groups/rollout", 1 / group_size, 0),
        ("informative_share", "share of groups", 1.0, 0),
        ("never_seen", "prompts", 1.0, 1),
    ):
        uniform = float(np.mean([values[place] for values in per_case["uniform"]])) * scale
        for case, values in per_case.items():
            seeds = np.array([value[place] for value in values]) * scale
            figures.append(
                Figure(
                    benchmark="replay",
                    case=case,
                    metric=metric,
                    value=float(seeds.mean()),
                    unit=unit,
                    reference_name="uniform",
                    reference_value=uniform,
                    n=record.num_prompts,
                    seeds=len(seeds),
                    interval=(float(seeds.min()), float(seeds.max())),
                    setting={**setting, "interval": "smallest and largest seed"},
                )
            )
    return figures


def _successes(record: RecordedOutcomes) -> np.ndarray:
    assert record.successes_VN is not None
    return record.successes_VN


def _smoothed(record: RecordedOutcomes) -> np.ndarray:
    """(V, N) pass rates from all visits, past, present and future, discounted by their distance."""
    successes_VN, group_size = _successes(record), record.group_size or 1
    visits = np.arange(len(successes_VN))
    kernel_VV = SMOOTHER_DISCOUNT ** np.abs(visits[:, None] - visits[None, :])
    passes_VN = kernel_VV @ successes_VN + SMOOTHER_PRIOR
    smoothed_VN: np.ndarray = passes_VN / (kernel_VV.sum(axis=1, keepdims=True) * group_size + 2 * SMOOTHER_PRIOR)
    return smoothed_VN


def _informative(record: RecordedOutcomes) -> np.ndarray:
    successes_VN = _successes(record)
    return (successes_VN > 0) & (successes_VN < (record.group_size or 1))


def _same_design(record: RecordedOutcomes, num_rounds: int, seed: int) -> tuple[float, int]:
    """Midband's draw with nothing in flight, on beliefs that are the smoother's pass rates without uncertainty."""
    num_prompts, group_size = record.num_prompts, record.group_size or 1
    config = PRESETS["midband"].config
    policy = build_policy(config, weights="none", advantage="grpo")
    none_N = np.zeros(num_prompts, bool)
    frame = DrawFrame(
        frame_N=~none_N,
        blocked_N=none_N,
        credit_N=np.zeros(num_prompts, np.int32),
        resting_code_N=np.zeros(num_prompts, np.uint8),
        due_N=none_N,
    )
    smoothed_VN = _smoothed(record)

    def choose(visit: int, index: int) -> np.ndarray:
        beliefs = Beliefs(
            mean_N=smoothed_VN[visit],
            variance_N=np.zeros(num_prompts),
            n_eff_N=np.full(num_prompts, np.inf),
            lag_N=np.zeros(num_prompts, np.int64),
            source_N=np.ones(num_prompts, np.uint8),
        )
        plan = DrawPlan(
            size=BATCH_SIZE,
            group_size=group_size,
            audit_share=AUDIT_SHARE,
            floor=config.floor,
            seed=seed,
            purpose_code=0,
            index=index,
        )
        return draw(frame, policy.utility(beliefs, group_size=group_size), plan).rows_K

    return _chosen(record, num_rounds, lambda _, visit, index: choose(visit, index))


def _smoother_top(record: RecordedOutcomes, visit: int, index: int) -> np.ndarray:
    del index
    degenerate_N = degenerate_probability(_smoothed(record)[visit], record.group_size or 1)
    return np.argsort(degenerate_N, kind="stable")[:BATCH_SIZE]


def _next_outcome(record: RecordedOutcomes, visit: int, index: int) -> np.ndarray:
    """Informative prompts first; which of them moves on from round to round."""
    order = np.roll(np.arange(record.num_prompts), -index * BATCH_SIZE)
    informative = _informative(record)[visit][order]
    return np.concatenate([order[informative], order[~informative]])[:BATCH_SIZE]


def _chosen(
    record: RecordedOutcomes, num_rounds: int, choose: Callable[[RecordedOutcomes, int, int], np.ndarray]
) -> tuple[float, int]:
    """(informative share, prompts never seen) of a rule that names the rows of each round."""
    informative_VN = _informative(record)
    seen_N = np.zeros(record.num_prompts, bool)
    found = 0
    for index in range(num_rounds):
        visit = record.visit(index * BATCH_SIZE)
        rows = choose(record, visit, index)
        found += int(informative_VN[visit, rows].sum())
        seen_N[rows] = True
    return found / (num_rounds * BATCH_SIZE), int(np.count_nonzero(~seen_N))


if __name__ == "__main__":
    main()
