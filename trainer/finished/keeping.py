"""The rules that the reference trainer knows by name, as masks over a batch of groups.

`trainer.policy` calls `keep_rollouts` before it works out advantages. Axes: K groups, G rollouts of one prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np

from trainer.finished import cppo, duplicate, gfpo, pods, replay, vcrl
from trainer.finished.claim import EVERYTHING, Claim

Rule = Literal["all", "pods", "cppo", "gfpo-short", "gfpo-efficient", "vcrl", "duplicate", "popo"]
CLAIMS: Mapping[Rule, Claim] = {
    "all": EVERYTHING,
    "pods": pods.CLAIM,
    "cppo": cppo.CLAIM,
    "gfpo-short": gfpo.CLAIM,
    "gfpo-efficient": gfpo.CLAIM,
    "vcrl": vcrl.CLAIM,
    "duplicate": duplicate.CLAIM,
    "popo": replay.CLAIM,
}
SHARED: frozenset[Rule] = frozenset({"pods", "cppo", "gfpo-short", "gfpo-efficient"})
"""Rules that keep a share of each group."""

LEAST = 2
"""Rollouts of a group that are kept at least: one alone has nothing to be compared with."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """Two masks of rollouts, (K, G) bool each."""

    counted_KG: np.ndarray  # stay in the means of the loss
    compared_KG: np.ndarray  # have advantages, and are what those are worked out from


def keep_rollouts(
    rule: Rule,
    reward_KG: np.ndarray,
    scored_KG: np.ndarray,
    tokens_KG: np.ndarray,
    *,
    share: float,
    threshold: float,
) -> Kept:
    """Which rollouts of a batch are trained on.

    pods      compared and counted within the subset
    cppo      compared within the group, counted where kept
    gfpo-*    compared within the subset; the others are counted with an advantage of 0
    vcrl      groups below the threshold are counted with advantages of 0
    all, duplicate, popo    everything; copies and past groups are the caller's to put in place

    ⌈share·n⌉ of a group's n scored rollouts are kept, LEAST at least. reward_KG: finite where scored.
    """
    if rule == "vcrl":
        passed_K = np.where(scored_KG, reward_KG, 0.0).sum(axis=1)
        open_K = vcrl.gate(passed_K, scored_KG.sum(axis=1), threshold)
        return Kept(counted_KG=scored_KG, compared_KG=scored_KG & open_K[:, None])
    if rule not in SHARED:
        return Kept(counted_KG=scored_KG, compared_KG=scored_KG)
    kept_KG = np.zeros(scored_KG.shape, bool)
    for k, scored_G in enumerate(scored_KG):
        places = np.flatnonzero(scored_G)
        keep = min(max(ceil(share * len(places) - 1e-9), LEAST), len(places))
        if keep:
            reward, tokens = reward_KG[k, places], tokens_KG[k, places]
            kept_KG[k, places[_of_group(rule, reward, tokens, keep)]] = True
    if rule == "cppo":
        return Kept(counted_KG=kept_KG, compared_KG=scored_KG)
    return Kept(counted_KG=kept_KG if rule == "pods" else scored_KG, compared_KG=kept_KG)


def _of_group(rule: Rule, reward: np.ndarray, tokens: np.ndarray, keep: int) -> np.ndarray:
    if rule == "pods":
        return pods.max_variance_subset(reward, keep)
    if rule == "cppo":  # every advantage is the difference to the mean times one factor for the group
        return cppo.largest_advantages(reward - reward.mean(), keep)
    if rule == "gfpo-short":
        return gfpo.shortest(tokens, keep)
    return gfpo.most_efficient(reward, tokens, keep)
