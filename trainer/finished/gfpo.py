"""GFPO: the shortest rollouts of a group, or those of most reward a token. G rollouts of one prompt, m of them kept."""

import numpy as np

from trainer.finished.claim import Claim, ClaimType

CLAIM = Claim(
    type=ClaimType.MODIFIED,
    objective="the pass rate among the shortest (or most efficient) answers of a group: another objective on purpose",
)


def shortest(tokens_G: np.ndarray, keep: int) -> np.ndarray:
    """(G,) bool, m = `keep` true: the fewest tokens (GFPO, arXiv 2508.09726), ties to the first rollout.

    What it does to the expected gradient: advantages compare the kept with each other and are 0 for the others, so the
    step raises what is right among the m shortest of G draws. Where right and wrong answers are of like length it is
    GRPO's step of a group of m, times m/G, as the others stay in the mean; where right answers are longer, they are
    kept less often than they come, and the step prefers shorter answers whether right or not.

    tokens_G: (G,) >= 0. Raises ValueError unless 1 <= keep <= G.
    """
    return _least(tokens_G.astype(np.float64), keep)


def most_efficient(reward_G: np.ndarray, tokens_G: np.ndarray, keep: int) -> np.ndarray:
    """(G,) bool, m = `keep` true: the most reward a token (GFPO), ties to the first rollout.

    What it does to the expected gradient: as `shortest`, with wrong answers kept only where right ones do not fill the
    m places; a group with m right ones or more then teaches nothing.

    reward_G: (G,) finite. tokens_G: (G,) >= 0, 0 counting as 1. Raises ValueError unless 1 <= keep <= G.
    """
    return _least(-reward_G / np.maximum(tokens_G, 1), keep)


def _least(value_G: np.ndarray, keep: int) -> np.ndarray:
    size = len(value_G)
    if not 1 <= keep <= size:
        raise ValueError(f"keep must be in [1, {size}], got {keep}")
    kept_G = np.zeros(size, bool)
    kept_G[np.argsort(value_G, kind="stable")[:keep]] = True
    return kept_G
