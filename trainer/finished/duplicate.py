"""Informative groups once more in place of degenerate ones. K groups of a batch."""

import numpy as np

from trainer.finished.claim import Claim, ClaimType

CLAIM = Claim(
    type=ClaimType.UNBIASED,
    objective="that of the run, each step multiplied by 1/yield: per-prompt means, no KL and no entropy term",
)

MIN_SHARE = 1 / 3
"""Share of informative groups at or below which a step is left out; POLARIS's, SkyRL takes .3."""


def duplicate_informative(
    informative_K: np.ndarray, rng: np.random.Generator, *, min_share: float = MIN_SHARE
) -> np.ndarray | None:
    """(K,) int64: the group that stands at each place, its own where it is informative; None where too few are, and the
    step is better left out (POLARIS; WebSailor's DUPO; SkyRL's `replace`).

    Copies are dealt out evenly in an order of the generator's, so that no informative group stands for two more than
    another.

    What it does to the expected gradient: each of n informative groups counts K/n times on average, so given the batch
    the expected sum is K/n times that of all groups, the direction of dynamic sampling at no more rollouts. Its
    variance is larger: the n groups are all there is. A copy carries the weight of the ticket that it is of.
    """
    informative_K = np.asarray(informative_K, bool)
    good = np.flatnonzero(informative_K)
    if not len(good) or len(good) <= min_share * len(informative_K):
        return None
    source_K = np.arange(len(informative_K))
    places = np.flatnonzero(~informative_K)
    rounds = -(-len(places) // len(good))
    source_K[places] = np.concatenate([rng.permutation(good) for _ in range(rounds)] or [good])[: len(places)]
    return source_K
