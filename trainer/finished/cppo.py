"""CPPO: the rollouts of largest absolute advantage. G rollouts of one prompt, m of them kept."""

import numpy as np

from trainer.finished.claim import Claim, ClaimType

CLAIM = Claim(
    type=ClaimType.MODIFIED,
    objective="no function of the pass rate in closed form: the rarer outcome counts for more",
)


def largest_advantages(advantage_G: np.ndarray, keep: int) -> np.ndarray:
    """(G,) bool, m = `keep` true: the largest |A| of a group (CPPO, arXiv 2503.22342), ties to the first rollout.

    What it does to the expected gradient: advantages are those of the whole group, and the mean is over the m kept.
    With k of G right, k < G/2 and k <= m, all right ones stay, at A = √((G−k)/k), and m − k wrong ones, at
    A = −√(k/(G−k)): the group contributes (1/m)(√(k(G−k))/p + (m−k)√(k/(G−k))/(1−p))·∇p, where all rollouts give
    (√(k(G−k))/G)(1/p + 1/(1−p))·∇p. For G = 16, k = 2, m = 4 at p = 1/8 that is 3.6 times as much; at k = G/2, where
    all advantages are alike in size, what stays is a matter of order.

    advantage_G: (G,) finite. Raises ValueError unless 1 <= keep <= G.
    """
    size = len(advantage_G)
    if not 1 <= keep <= size:
        raise ValueError(f"keep must be in [1, {size}], got {keep}")
    kept_G = np.zeros(size, bool)
    kept_G[np.argsort(-np.abs(advantage_G), kind="stable")[:keep]] = True
    return kept_G
