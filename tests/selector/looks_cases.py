"""Looks made by hand, for tests of quality, curves and comparisons."""

from collections.abc import Sequence

import numpy as np

from selector.heldout.looks import Look, Selected


def look(
    rollouts: Sequence[Sequence[float]],
    *,
    index: int = 0,
    version: int | None = None,
    seq: int | None = None,
    rows: Sequence[int] | None = None,
    categories: Sequence[int] | None = None,
    tokens: float = 0,
    **spent: float | None,
) -> Look:
    """Outcomes by group; NaN or an empty group for what did not come back."""
    size = max(len(group) for group in rollouts)
    outcome_KG = np.array([[*group, *[np.nan] * (size - len(group))] for group in rollouts], np.float64)
    back_K = np.isfinite(outcome_KG).any(axis=1)
    outcome_K = np.full(len(rollouts), np.nan)
    outcome_K[back_K] = np.nanmean(outcome_KG[back_K], axis=1)
    count = len(rollouts)
    return Look(
        index=index,
        policy_version=index if version is None else version,
        seq=index if seq is None else seq,
        frame=count,
        spent={"tokens": tokens, "rollouts": tokens / 10, "accelerator_s": None, "energy_j": None} | spent,
        row_K=np.array(range(count) if rows is None else rows, np.int64),
        category_K=np.array([-1] * count if categories is None else categories, np.int64),
        outcome_K=outcome_K,
        outcome_KG=outcome_KG,
    )


def even_look(passes: int, count: int, **values: object) -> Look:
    """`count` prompts of two rollouts, both passing for the first `passes` prompts."""
    return look([[1.0, 1.0]] * passes + [[0.0, 0.0]] * (count - passes), **values)  # type: ignore[arg-type]


def selected(outcomes: Sequence[float], *, seq: int, categories: Sequence[int] | None = None) -> Selected:
    codes = [-1] * len(outcomes) if categories is None else categories
    return Selected(seq=seq, category_K=np.array(codes, np.int64), outcome_K=np.array(outcomes, np.float64))
