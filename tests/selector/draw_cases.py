"""Frames and plans for tests of a draw: defaults that a test overrides by name, random ones, and what draws made of
them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from selector.sampling.draw import draw
from selector.sampling.draw_plan import DrawFrame, Drawn, DrawPlan, RestingCode


def make_frame(num_rows: int, **columns: Any) -> DrawFrame:
    """Every row in the frame, nothing blocked, at rest or owed. Columns by name: lists or arrays."""
    defaults: dict[str, Any] = {
        "frame_N": np.ones(num_rows, bool),
        "blocked_N": np.zeros(num_rows, bool),
        "credit_N": np.zeros(num_rows, np.int32),
        "resting_code_N": np.zeros(num_rows, np.uint8),
        "due_N": np.zeros(num_rows, bool),
    }
    given = {
        name: np.asarray(values, defaults.get(name, np.zeros(0, np.int64)).dtype) for name, values in columns.items()
    }
    return DrawFrame(**(defaults | given))


def resting_frame(num_active: int, num_resting: int, due: tuple[int, ...] = (), **columns: Any) -> DrawFrame:
    """Active rows first, then mastered ones; `due` counts from the first resting row."""
    num_rows = num_active + num_resting
    return make_frame(
        num_rows,
        resting_code_N=np.arange(num_rows) >= num_active,
        due_N=mask(num_rows, *(num_active + row for row in due)),
        **columns,
    )


def make_plan(size: int, **values: Any) -> DrawPlan:
    """Weights on, floor 0.1, no audit and no review unless asked for."""
    defaults: dict[str, Any] = {
        "group_size": 8,
        "floor": 0.1,
        "weights": "horvitz_thompson",
        "seed": 7,
        "purpose_code": 0,
        "index": 0,
    }
    return DrawPlan(**(defaults | values), size=size)


def mask(num_rows: int, *rows: int) -> np.ndarray:
    """(N,) bool, true at these rows."""
    mask_N = np.zeros(num_rows, bool)
    mask_N[list(rows)] = True
    return mask_N


def random_frame(rng: np.random.Generator, num_rows: int) -> DrawFrame:
    """A frame in any condition: each column is sparse, dense or empty by chance."""

    def some() -> np.ndarray:
        share = float(rng.choice([0.0, 0.1, 0.5, 0.95]))
        return rng.random(num_rows) < share

    resting_N = some()
    return make_frame(
        num_rows,
        frame_N=~some(),
        blocked_N=some(),
        credit_N=rng.integers(0, 6, num_rows) * some(),
        resting_code_N=np.where(resting_N, rng.integers(1, 3, num_rows), RestingCode.NONE),
        due_N=some() & (resting_N | bool(rng.integers(0, 2))),
        waited_N=rng.integers(0, 9, num_rows),
    )


def random_utility(rng: np.random.Generator, num_rows: int) -> np.ndarray:
    """Utilities of every kind: equal, spread, partly or wholly zero, or over hundreds of orders of magnitude."""
    kind = rng.integers(0, 5)
    uniform_N = rng.random(num_rows)
    if kind == 0:
        return np.ones(num_rows)
    if kind == 1:
        return np.zeros(num_rows)
    if kind == 2:
        return np.where(uniform_N < 0.7, 0.0, uniform_N)
    if kind == 3:
        return np.power(10.0, 600.0 * (uniform_N - 0.5))
    return np.power(uniform_N, 4)


def random_plan(rng: np.random.Generator) -> DrawPlan:
    """A plan with every setting at an end of its range or in between."""

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(0, len(values)))]

    plan = make_plan(
        int(one_of(rng.integers(1, 8), rng.integers(1, 60))),
        group_size=one_of(1, 4, 6, 8),
        divisor=one_of(1, 1, 1, 8, 12, 64),
        audit_share=one_of(0.0, 0.0, 0.1, 0.5, 1.0),
        short=one_of("partial", "partial", "fill"),
        allow_repeat=one_of(False, False, True),
        review_share=one_of(0.0, 0.05, 0.3, 1.0),
        floor=one_of(0.0, 0.01, 0.1, 0.5, 1.0),
        weights=one_of("none", "horvitz_thompson", "clipped"),
        max_weight=1.5,
        exact_uniform=one_of(False, False, False, True),
        index=int(rng.integers(0, 1000)),
        refill=one_of(0, 0, 1, 2),
    )
    top = one_of(False, False, True)
    return replace(plan, top=top, candidates=one_of(None, 1.0, 2.5) if top else None)


def random_cases(num: int) -> Iterator[tuple[int, DrawFrame, np.ndarray, DrawPlan]]:
    """`num` draws to try, each with the seed that makes it; pools of 0 to 40 prompts, small ones among them."""
    for seed in range(num):
        rng = np.random.default_rng(seed)
        num_rows = int(rng.integers(0, 41 if seed % 4 else 5))
        yield seed, random_frame(rng, num_rows), random_utility(rng, num_rows), random_plan(rng)


def eligible_of(frame: DrawFrame, plan: DrawPlan) -> np.ndarray:
    return frame.frame_N if plan.allow_repeat else frame.frame_N & ~frame.blocked_N


def assert_same(one: Drawn, other: Drawn) -> None:
    for name in [*Drawn.__slots__, "expected_N", "inclusion_N"]:
        if name == "expected":
            continue
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def draws_of(frame: DrawFrame, utility_N: np.ndarray, plan: DrawPlan, num: int) -> list[Drawn]:
    return [draw(frame, utility_N, replace(plan, index=index)) for index in range(num)]
