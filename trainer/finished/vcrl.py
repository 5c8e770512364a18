"""VCRL's gate: groups whose rewards vary enough, relative to the most they could. K groups of a batch."""

import numpy as np

from trainer.finished.claim import Claim, ClaimType

CLAIM = Claim(
    type=ClaimType.MODIFIED,
    objective="each prompt counted by the chance that the variance of its group reaches the threshold",
)


def normalised_variance(passes_K: np.ndarray, scored_K: np.ndarray) -> np.ndarray:
    """v = σ²/σ²max in [0, 1]: the unbiased variance k(n−k)/(n(n−1)) of a group of n with k passes over the largest that
    n allows, at k = ⌊n/2⌋ (VCRL, arXiv 2509.19803). Returns (K,), 0 for groups of less than two.

    passes_K: (K,) in [0, n]; scored_K: (K,) int, the n of each.
    """
    n_K = np.asarray(scored_K, np.float64)
    largest_K = np.floor(n_K / 2) * np.ceil(n_K / 2)
    varied_K: np.ndarray = np.where(largest_K > 0, passes_K * (n_K - passes_K) / np.maximum(largest_K, 1.0), 0.0)
    return varied_K


def gate(passes_K: np.ndarray, scored_K: np.ndarray, threshold: float) -> np.ndarray:
    """(K,) bool: groups with v >= threshold. At 0.8 and eight rollouts those with 3, 4 or 5 passes.

    What it does to the expected gradient: a group that is left out contributes 0 to a mean over all K, so a prompt
    counts by P(v >= threshold | p), given which its group is conditioned on being even: at p = 1/2 and eight rollouts
    .71 of its groups stay at 0.8, at p = .1 .04, at p = .05 .006.

    Raises ValueError unless the threshold is in [0, 1].
    """
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold must be in [0, 1], got {threshold}")
    kept_K: np.ndarray = normalised_variance(passes_K, scored_K) >= threshold - 1e-12
    return kept_K
