"""Groups of rewards without outcomes, as `rewards` learns from them: what B groups say, each in a handful of numbers.

Called by the engine with the rewards that came back, padded with NaN. Knows numbers; not prompts, tickets or policies.
Axes: B groups, G rollouts of the largest.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray

LARGEST = 1e15
"""Rewards count as within this of 0, so that their squares stay finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardGroups:
    """Closed groups in the order in which they count; a row may occur more than once.

    Raises ValueError naming the array and what is wrong with it.
    """

    rows_B: IntArray
    size_B: IntArray  # rewards of the group, >= 1
    mean_B: FloatArray
    variance_B: FloatArray  # of siblings, with Bessel's correction; 0 where there is one or all are alike
    ties_B: IntArray  # siblings like the commonest reward, itself not counted; size - 1 only if all are alike
    version_B: IntArray  # policy version that generated, >= 0

    def __post_init__(self) -> None:
        for field in fields(self):
            array = getattr(self, field.name)
            if array.shape != self.rows_B.shape or array.ndim != 1:
                raise ValueError(f"{field.name} must have shape {self.rows_B.shape}, got {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{field.name} must be finite")
        for name, least in (("rows_B", 0), ("size_B", 1), ("variance_B", 0.0), ("ties_B", 0), ("version_B", 0)):
            array = getattr(self, name)
            if array.size and array.min() < least:
                raise ValueError(f"{name} must be >= {least}, got {array.min()}")
        if (self.ties_B >= self.size_B).any():
            raise ValueError("ties_B must be below size_B")

    def take(self, index: IntArray | npt.NDArray[np.bool_]) -> "RewardGroups":
        """The groups at these positions."""
        return RewardGroups(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    @property
    def is_alike_B(self) -> npt.NDArray[np.bool_]:
        """Whether a group's rewards are all alike; so are those of a group of one."""
        return np.asarray(self.ties_B == self.size_B - 1)


def reward_groups(rows_B: IntArray, version_B: IntArray, reward_BG: FloatArray, tolerance: float) -> RewardGroups:
    """What rewards say, NaN where a group has none. Each group needs one at least.

    Rewards in order of size are alike where neighbours differ by `tolerance` at most. The longest run of such is the
    commonest reward; a group whose largest and least differ by more than the tolerance is never all alike.
    """
    sorted_BG = np.sort(np.clip(reward_BG, -LARGEST, LARGEST), axis=1)  # NaN last
    size_B = np.count_nonzero(~np.isnan(sorted_BG), axis=1).astype(np.int64)
    if (size_B == 0).any():
        raise ValueError("a group without any reward must be left out")
    low_B, high_B = sorted_BG[:, 0], sorted_BG[np.arange(len(size_B)), size_B - 1]
    centred_BG = sorted_BG - low_B[:, None]  # so that equal rewards have no variance at all
    offset_B = np.nansum(centred_BG, axis=1) / size_B
    scatter_B = np.nansum((centred_BG - offset_B[:, None]) ** 2, axis=1)
    alike_B = high_B - low_B <= tolerance
    with np.errstate(invalid="ignore"):
        longest_B = _longest_run(np.diff(sorted_BG, axis=1) <= tolerance)
    return RewardGroups(
        rows_B=rows_B,
        size_B=size_B,
        mean_B=low_B + offset_B,
        variance_B=np.where(alike_B, 0.0, scatter_B / np.maximum(size_B - 1, 1)),
        ties_B=np.where(alike_B, size_B - 1, np.minimum(longest_B, size_B - 2)).astype(np.int64),
        version_B=version_B,
    )


def _longest_run(same_BG: npt.NDArray[np.bool_]) -> IntArray:
    """Longest stretch of True in each row."""
    count_BG = np.cumsum(same_BG, axis=1)
    before_BG = np.maximum.accumulate(np.where(same_BG, 0, count_BG), axis=1)
    return np.asarray(np.max(count_BG - before_BG, axis=1, initial=0), np.int64)
