"""What the service believes of the pool at each look at the held-out split, as a histogram kept in a file.

An arm's process takes it over the API in the middle of its training, so that it belongs to exactly that step; the
pictures read it. Axes: B bins of equal width over pass rates from 0 to 1.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 20
FOLDER = "beliefs"  # in the arm's own


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefHistogram:
    """Prompts of the train split by the pass rate that the run expects of them."""

    step: int  # updates made before
    tokens: int  # generated for training before
    tried_B: Sequence[int]  # prompts with evidence of their own
    untried_B: Sequence[int]  # those that no group was reported for yet: their belief is taken from the others

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]], keys: Collection[str], *, step: int, tokens: int) -> Self:
        """From the columns of `Client.beliefs`; only prompts with these keys count."""
        counted_N = np.array([key in keys for key in columns["key"]], dtype=bool)
        rate_N = np.asarray(columns["pass_rate"], dtype=np.float64)
        tried_N = np.asarray(columns["n_eff"], dtype=np.float64) > 0
        return cls(
            step=step,
            tokens=tokens,
            tried_B=_counts(rate_N[counted_N & tried_N]),
            untried_B=_counts(rate_N[counted_N & ~tried_N]),
        )

    def write(self, output: Path) -> None:
        """Into an arm's folder. The same step again replaces what was there, as after a training that was resumed."""
        folder = output / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"step-{self.step:08d}.partial"
        partial.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        partial.replace(partial.with_suffix(".json"))

    @classmethod
    def read_all(cls, output: Path) -> list[Self]:
        """Those of an arm's folder, oldest first."""
        files = sorted((output / FOLDER).glob("step-*.json"))
        return [cls(**json.loads(file.read_text(encoding="utf-8"))) for file in files]


def _counts(rate_N: NDArray[np.float64]) -> list[int]:
    counts: list[int] = np.histogram(rate_N, bins=NUM_BINS, range=(0.0, 1.0))[0].tolist()
    return counts
