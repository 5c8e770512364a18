"""SortedRL: finished groups in the order of their predicted length. K groups."""

import numpy as np

from trainer.finished.claim import Claim, ClaimType

CLAIM = Claim(
    type=ClaimType.MODIFIED,
    objective="short groups are trained on by earlier weights than long ones; that of the run only if all of a batch "
    "goes into one update",
)

WARNING = (
    "Ordered by length, easy and short prompts meet the older policy and hard ones the newer, and a batch that is "
    "closed before its last groups are in is a sample biased to short answers. Fix the members of a batch at the draw, "
    "train on all of them, and record the order of completion."
)


def by_predicted_length(tokens_K: np.ndarray) -> np.ndarray:
    """(K,) int64: places in the order in which to train, fewest predicted tokens first, ties in the order drawn
    (SortedRL, arXiv 2603.23414). See WARNING.

    What it does to the expected gradient: nothing within one update. Over several updates of a batch the i-th part is
    taken at weights that the parts before have moved, so that the length of a prompt decides which policy learns from
    it, and importance weights grow with it.
    """
    return np.argsort(tokens_K, kind="stable")
