"""How well costs of rollouts are predicted before they are revealed, beside simple predictors of the same.

Part of the predictors' benchmark. No recorded set has lengths by prompt and rollout, so the truth is simulated: lengths
are log-normal about a prompt's own, which wanders, within categories, and grow as the policy is trained.
"""

import time
from collections.abc import Callable

import numpy as np

from predictors.costs import Costs
from predictors.log_normal import expected_maximum
from tests.benchmarks.language import Figure
from tests.predictors.cost_cases import GROUP_SIZE, World, rollouts_of

WORLDS = {
    "steady": World(growth=0.0, wander=0.0, num_rows=1000),
    "growing": World(num_rows=1000),
    "growing fast": World(growth=0.02, num_rows=1000),
    "wandering": World(wander=0.1, num_rows=1000),
    "few visits": World(num_rows=20_000),
    "all alike": World(own_sd=0.05, category_sd=0.05, spread_sd=0.0, num_rows=1000),
}
BATCHES, QUICK_BATCHES, BATCH, WARM_UP = 300, 60, 64, 10
SEEDS, QUICK_SEEDS = 3, 1
RESAMPLES = 500
LIMIT_LOG = 6.8  # logarithm of where rollouts of the truncated feed are cut
MEAN_OF_LARGEST = float(np.random.default_rng(0).normal(size=(100_000, GROUP_SIZE)).max(axis=1).mean())
SPEED_ROWS, QUICK_SPEED_ROWS = 1_000_000, 100_000


def cost_figures(*, quick: bool) -> list[Figure]:
    """Absolute error of the logarithm of the mean of a rollout, and of the longest of a group, then speed."""
    figures = []
    for name, world in WORLDS.items():
        figures += _world_figures(name, world, np.inf, quick=quick)
    figures += _world_figures("growing", WORLDS["growing"], float(np.exp(LIMIT_LOG)), quick=quick)
    return figures + _speed_figures(quick=quick)


def _world_figures(name: str, world: World, limit: float, *, quick: bool) -> list[Figure]:
    batches, seeds = (QUICK_BATCHES, QUICK_SEEDS) if quick else (BATCHES, SEEDS)
    runs = [
        _errors(World(**{**{f: getattr(world, f) for f in World.__slots__}, "seed": seed}), batches, limit)
        for seed in range(seeds)
    ]
    rows_J = np.concatenate([rows + i * world.num_rows for i, (rows, _) in enumerate(runs)])
    error = {case: np.concatenate([errors[case] for _, errors in runs]) for case in runs[0][1]}
    setting = {"set": f"simulated lengths, {name}", "feed": "all" if np.isinf(limit) else "truncated"}
    figures = []
    for case, error_J in error.items():
        if case == "longest":
            continue
        paired = error["costs"] - error_J
        figures.append(
            Figure(
                benchmark="predictors",
                case=case,
                metric="absolute_log_error of mean cost",
                value=float(error_J.mean()),
                unit="nats",
                reference_name="costs",
                reference_value=float(error["costs"].mean()),
                n=world.num_rows,
                seeds=seeds,
                interval=None if case == "costs" else _interval(rows_J, paired),
                setting={**setting, "interval": "costs less this, prompts resampled"},
            )
        )
    if np.isinf(limit):
        figures.append(
            Figure(
                benchmark="predictors",
                case="costs",
                metric="bias of the logarithm of the longest of a group",
                value=float(error["longest"].mean()),
                unit="nats",
                n=world.num_rows,
                seeds=seeds,
                interval=_interval(rows_J, error["longest"]),
                setting=setting,
            )
        )
    return figures


def _errors(world: World, batches: int, limit: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Rows of the predictions, and the errors of each predictor on them."""
    made, size = Costs(), world.num_rows
    made.resize(world.category_N)
    total_N, count_N, last_N = np.zeros(size), np.zeros(size), np.zeros(size)
    rows: list[np.ndarray] = []
    errors: dict[str, list[np.ndarray]] = {
        n: [] for n in ("costs", "pool mean", "last value", "running mean", "longest")
    }
    for batch in world.batches(batches, BATCH):
        rows_B, truth_B = batch.rows_B, batch.mean_log_B + 0.5 * batch.spread_B**2
        if batch.version >= WARM_UP:
            pool, seen_B = np.log(total_N.sum() / count_N.sum()), count_N[rows_B] > 0
            mean_B = made.mean("tokens", batch.version, rows_B)
            longest_B = made.maximum("tokens", batch.version, GROUP_SIZE, rows_B)
            assert mean_B is not None
            assert longest_B is not None
            running_B = np.log(np.where(seen_B, total_N[rows_B] / np.maximum(count_N[rows_B], 1), np.exp(pool)))
            errors["costs"].append(np.abs(np.log(mean_B) - truth_B))
            errors["pool mean"].append(np.abs(pool - truth_B))
            errors["last value"].append(np.abs(np.where(seen_B, last_N[rows_B], pool) - truth_B))
            errors["running mean"].append(np.abs(running_B - truth_B))
            errors["longest"].append(np.log(longest_B) - np.log(batch.cost_BG.max(axis=1)) - _jensen(batch.spread_B))
            rows.append(rows_B)
        made.observe(rollouts_of(batch, limit))
        seen = np.minimum(batch.cost_BG, limit).mean(axis=1)
        last_N[rows_B] = np.log(seen)
        total_N[rows_B] += seen
        count_N[rows_B] += 1
    return np.concatenate(rows), {name: np.concatenate(values) for name, values in errors.items()}


def _jensen(spread_B: np.ndarray) -> np.ndarray:
    """log E max less E log max of a group with this spread: E log max is the spread times a constant."""
    return np.asarray(np.log(expected_maximum(GROUP_SIZE)(spread_B)) - spread_B * MEAN_OF_LARGEST)


def _interval(rows_J: np.ndarray, value_J: np.ndarray) -> tuple[float, float]:
    """95 % of the mean, prompts resampled."""
    _, place_J = np.unique(rows_J, return_inverse=True)
    sum_P, count_P = np.bincount(place_J, value_J), np.bincount(place_J)
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(sum_P), (RESAMPLES, len(sum_P)))
    low, high = np.quantile(sum_P[chosen].sum(axis=1) / count_P[chosen].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _speed_figures(*, quick: bool) -> list[Figure]:
    size = QUICK_SPEED_ROWS if quick else SPEED_ROWS
    world = World(num_rows=size, num_categories=20)
    made = Costs()
    made.resize(world.category_N)
    for batch in world.batches(3, 4096):
        sent = rollouts_of(batch)
        made.observe(sent)
    numbers = np.random.default_rng(0).random(size)
    one_pass = _fastest(lambda: numbers * (1.0 - numbers))
    cases = {
        "mean of all rows": (lambda: made.mean("tokens", 5), size),
        "longest of a group, all rows": (lambda: made.maximum("seconds", 5, GROUP_SIZE), size),
        "update of 4,096 groups": (lambda: made.observe(sent), 4096),
    }
    return [
        Figure(
            benchmark="predictors",
            case="costs",
            metric=f"time, {name}",
            value=_fastest(call) * 1e6 / count,
            unit="us/row",
            reference_name="m * (1 - m)",
            reference_value=one_pass * 1e6 / size,
            n=size,
            setting={"set": "simulated lengths, growing", "feed": "all"},
        )
        for name, (call, count) in cases.items()
    ]


def _fastest(call: Callable[[], object], times: int = 5) -> float:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found)
