"""What a draw of 512 costs by pool and policy: beliefs, chances, tickets and the change of state, all included.

Beside it in the same run: a numpy pass over the beliefs of the same pool, taken in turn with the draws; and what
trainers do today, a loop of Python over all tasks for every single draw, and draws from the Beta belief of every
candidate. The loop runs in full on the smallest pool; on larger ones a part of it does, and its figure is scaled up and
says so. Seconds are the processor's, so that other load of the machine does not count.
"""

import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from predictors.base import Observations
from selector.batches.drawing import DrawRequest
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.policies import PRESETS
from selector.pool import PoolState
from tests.benchmarks.language import Figure, arguments, show

BATCH_SIZE, GROUP_SIZE = 512, 8
POOLS, QUICK_POOLS = (10_000, 100_000, 1_000_000, 10_000_000), (2_000, 20_000)
POLICIES = ("midband", "uniform", "greso", "mopps", "pools")  # those of them that are presets
DRAWS, QUICK_DRAWS = 15, 3
WARM_UP = 2  # draws before the first one that is timed
MOST_TRIED = 500_000  # prompts with a group of their own; half of the pool where that is less
NUM_CATEGORIES = 20
LOOPED_TASKS = 5_120_000  # that the loop of Python goes through on any pool: all of them for 512 draws from 10,000
MEMORY_POOL, QUICK_MEMORY_POOL = 1_000_000, 20_000
MEMORY_DRAWS, QUICK_MEMORY_DRAWS = 1_000, 30
MEMORY_WARM_UP = 10
PASS = "numpy m * (1 - m)"


def main() -> None:
    options = arguments(
        "Draws from pools of many sizes, beside a pass of numpy and what trainers do today."
    ).parse_args()
    figures = [_memory(quick=options.quick)]
    for num_rows in QUICK_POOLS if options.quick else POOLS:
        figures += _pool_figures(num_rows, QUICK_DRAWS if options.quick else DRAWS)
    show(figures, as_json=options.json)


def _pool_figures(num_rows: int, num_draws: int) -> list[Figure]:
    figures = []
    for policy in (name for name in POLICIES if name in PRESETS):
        draw_s, pass_s = _draws(_engine(policy, num_rows), num_draws)
        figures.append(_figure(policy, num_rows, draw_s, pass_s, {"draws": num_draws, "beliefs": "included"}))
    rng = np.random.default_rng(2)
    alpha_N, beta_N = 1.0 + rng.integers(0, 9, (2, num_rows))
    mean_N = alpha_N / (alpha_N + beta_N)

    def nearest_of_all() -> None:
        np.argpartition(np.abs(rng.beta(alpha_N, beta_N) - 0.5), BATCH_SIZE)

    beta_s, pass_s = _alternating(nearest_of_all, mean_N, num_draws)
    figures.append(_figure("today: Beta draws for all candidates", num_rows, beta_s, pass_s, {"draws": num_draws}))
    loop_s, setting = _loop(num_rows)
    figures.append(_figure("today: a loop over all tasks for every draw", num_rows, loop_s, pass_s, setting))
    return figures


def _figure(case: str, num_rows: int, seconds: float, pass_s: float, setting: dict[str, object]) -> Figure:
    return Figure(
        benchmark="select",
        case=case,
        metric=f"draw of {BATCH_SIZE} from {num_rows:,}",
        value=1e3 * seconds,
        unit="ms",
        reference_name=PASS,
        reference_value=1e3 * pass_s,
        n=num_rows,
        setting={"tried": min(num_rows // 2, MOST_TRIED), "categories": NUM_CATEGORIES, **setting},
    )


class _Keys(Sequence[str]):
    """Names of prompts that take no memory."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, row: Any) -> Any:
        return f"p{row}"


def _engine(policy: str, num_rows: int) -> RunEngine:
    """A run on a pool of which some prompts have had a group, at versions 0 to 99."""
    rng = np.random.default_rng(0)
    pool = PoolState(
        name="made-up",
        revision=1,
        keys=_Keys(num_rows),
        split_N=np.zeros(num_rows, np.uint8),
        category_N=rng.integers(0, NUM_CATEGORIES, num_rows).astype(np.int32),
        categories=tuple(f"c{code}" for code in range(NUM_CATEGORIES)),
        absent_N=np.zeros(num_rows, bool),
        quarantined_N=np.zeros(num_rows, bool),
    )
    config = RunConfig(pool=pool.name, policy=PRESETS[policy].config, ticket_ttl_s=1.0)
    engine, _ = RunEngine.begin("bench", config, pool)
    estimator = engine.state.estimator
    tried = rng.permutation(num_rows)[: min(num_rows // 2, MOST_TRIED)]
    for version, rows in enumerate(np.array_split(tried, 100)):
        estimator.advance(version)
        estimator.observe(
            Observations(
                rows_B=rows,
                passes_B=rng.binomial(GROUP_SIZE, rng.beta(0.5, 0.7, rows.size)).astype(float),
                scored_B=np.full(rows.size, GROUP_SIZE),
                version_B=np.full(rows.size, version),
            )
        )
    engine.state.policy_version = engine.state.belief_version = 99
    return engine


def _request(index: int) -> DrawRequest:
    return DrawRequest(index=index, size=BATCH_SIZE, policy_version=100 + index, group_size=GROUP_SIZE)


def _draws(engine: RunEngine, num_draws: int) -> tuple[float, float]:
    """Median seconds of a draw and of a pass. The tickets of a draw expire before the next one, which is not timed."""
    mean_N, index = engine.state.beliefs().mean_N, 0

    def one() -> None:
        event = engine.draw(_request(index), now=10.0 * index)
        assert event is not None
        engine.apply(event)

    seconds: tuple[list[float], list[float]] = ([], [])
    for index in range(WARM_UP + num_draws):
        for taken, call in zip(seconds, (one, lambda: mean_N * (1.0 - mean_N)), strict=True):
            taken.append(_timed(call))
        expired = engine.expire(10.0 * index + 5.0)
        assert expired is not None
        engine.apply(expired)
    return float(np.median(seconds[0][WARM_UP:])), float(np.median(seconds[1][WARM_UP:]))


def _alternating(call: Callable[[], object], mean_N: np.ndarray, times: int) -> tuple[float, float]:
    taken = [(_timed(call), _timed(lambda: mean_N * (1.0 - mean_N))) for _ in range(times)]
    return float(np.median([one for one, _ in taken])), float(np.median([other for _, other in taken]))


def _timed(call: Callable[[], object]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def _loop(num_rows: int) -> tuple[float, dict[str, object]]:
    """Seconds of 512 single draws, each weighing every task anew by the mean of its last group, as pool samplers do."""
    num_tasks = min(num_rows, LOOPED_TASKS)
    draws = max(1, min(BATCH_SIZE, LOOPED_TASKS // num_tasks))
    rng = random.Random(0)
    last_means = [k % (GROUP_SIZE + 1) / GROUP_SIZE for k in range(num_tasks)]
    begin, drawn = time.thread_time(), set[int]()
    for _ in range(draws):
        rows, weights = [], []
        for row, mean in enumerate(last_means):
            if row not in drawn:
                rows.append(row)
                weights.append(1.0 if 0.25 <= mean <= 0.75 else 0.2)
        drawn.add(rng.choices(rows, weights)[0])
    seconds = time.thread_time() - begin
    scale = BATCH_SIZE / draws * num_rows / num_tasks
    return seconds * scale, {"draws_run": draws, "tasks_run": num_tasks, "extrapolated": scale != 1.0}


def _memory(*, quick: bool) -> Figure:
    """How much more memory the process has held at most after many draws than after the first ones.

    Draws are planned and not applied: what tickets take is kept on purpose.
    """
    num_rows = QUICK_MEMORY_POOL if quick else MEMORY_POOL
    draws = QUICK_MEMORY_DRAWS if quick else MEMORY_DRAWS
    engine, peaks = _engine("midband", num_rows), []
    for index in range(draws):
        engine.draw(_request(index), now=0.0)
        peaks.append(_peak_mib())
    return Figure(
        benchmark="select",
        case="midband",
        metric=f"growth of memory over {draws} draws",
        value=peaks[-1] - peaks[MEMORY_WARM_UP],
        unit="MiB",
        reference_name=f"peak after {MEMORY_WARM_UP} draws",
        reference_value=peaks[MEMORY_WARM_UP],
        n=num_rows,
        setting={"categories": NUM_CATEGORIES, "applied": False},
    )


def _peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
