"""Selection policies by their utility: a new one is a file, a name in `config.Utility` and a line here."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from selector.config import Advantage, PolicyConfig, Weights
from selector.controllers import build_controller, check_controller
from selector.policies.advantage import AbsoluteAdvantage
from selector.policies.band import Band
from selector.policies.base import Policy
from selector.policies.curricula import CURRICULA
from selector.policies.difficulty import Difficulty
from selector.policies.gradient import Gradient
from selector.policies.information import Information
from selector.policies.insight import Insight
from selector.policies.keep import Keep
from selector.policies.knapsack import Knapsack
from selector.policies.midband import Midband
from selector.policies.pools import Pools
from selector.policies.presets import PRESETS as FIRST_PRESETS
from selector.policies.presets import Preset
from selector.policies.progress import Progress
from selector.policies.prompt_replay import PromptReplay
from selector.policies.shortfall import Shortfall
from selector.policies.spending import SPENDING
from selector.policies.staleness import Staleness
from selector.policies.target import Target
from selector.policies.uniform import Uniform
from selector.policies.variance import Variance

__all__ = ["POLICIES", "PRESETS", "Policy", "Preset", "build_policy", "override"]

POLICIES: dict[str, type[Policy]] = {
    "uniform": Uniform,
    "informative": Midband,
    "gradient": Gradient,
    "variance": Variance,
    "band": Band,
    "target": Target,
    "advantage": AbsoluteAdvantage,
    "information": Information,
    "knapsack": Knapsack,
    "pools": Pools,
    "keep": Keep,
    "progress": Progress,
    "difficulty": Difficulty,
    "shortfall": Shortfall,
    "staleness": Staleness,
    "insight": Insight,
    "prompt_replay": PromptReplay,
}
PRESETS: dict[str, Preset] = FIRST_PRESETS | SPENDING | CURRICULA
PARAMETERS = frozenset[str]().union(*(policy.parameters() for policy in POLICIES.values()))
OPTIONAL = PARAMETERS - {"power"} | {"candidates", "lifecycle", "budget", "quotas", "per"}
"""Parts of a `PolicyConfig` that are None where they do not count."""


def build_policy(config: PolicyConfig, *, weights: Weights, advantage: Advantage) -> Policy:
    """The policy of a run. Raises ValueError naming an unknown utility or a value that cannot be."""
    policy = POLICIES.get(config.utility)
    if policy is None:
        raise ValueError(f"unknown utility {config.utility!r}; known: {sorted(POLICIES)}")
    _check_design(config, weights)
    check_controller(config, policy.parameters())
    return policy.from_config(config, weights=weights, advantage=advantage)


def override(config: PolicyConfig, changes: Mapping[str, Any]) -> PolicyConfig:
    """The policy with some of its parts given anew; parts that its utility then does without are dropped.

    Raises ValueError for a part that is given and changes nothing with this utility, naming it.
    """
    changed = replace(config, **changes)
    policy = POLICIES.get(changed.utility)
    if policy is None:
        return changed  # `build_policy` says so
    idle = PARAMETERS - policy.parameters()
    if policy.exact_uniform:
        idle |= {"floor", "reads", "design", "candidates", "lifecycle", "quotas", "per"}
    elif changed.design != "top":
        idle |= {"candidates"}
    useless = sorted(name for name in idle & set(changes) if changes[name] != getattr(config, name))
    if useless:
        raise ValueError(
            f"{useless[0]} {changes[useless[0]]} has no effect with utility {changed.utility!r} and design "
            f"{changed.design!r}: leave it out"
        )
    no_others: dict[str, Any] = dict.fromkeys(idle & OPTIONAL)
    if changed.controller is not None and "controller" not in changes:
        foreign = set(build_controller(changed.controller).sets) - policy.parameters()
        no_others |= {"controller": None} if foreign else {}
    return replace(changed, **no_others)


def _check_design(config: PolicyConfig, weights: Weights) -> None:
    if config.candidates is not None and (config.design != "top" or not config.candidates >= 1.0):
        raise ValueError(
            f"candidates must be >= 1 and need design 'top', got {config.candidates} with {config.design!r}"
        )
    if not 0.0 <= config.floor <= 1.0 or (config.floor == 0.0 and config.design != "top"):
        raise ValueError(f"floor must be in (0, 1], or 0 with design 'top', got {config.floor} with {config.design!r}")
    if config.per is not None and POLICIES[config.utility].exact_uniform:
        raise ValueError(f"per has no effect with utility {config.utility!r}, which draws every prompt alike")
    if config.per is not None and config.reads == "shuffled":
        raise ValueError(
            "per needs beliefs of each prompt's own, and reads 'shuffled' deals them out anew: leave it out"
        )
    if config.lifecycle is not None and POLICIES[config.utility].exact_uniform:
        raise ValueError(f"lifecycle has no effect with utility {config.utility!r}, which draws every prompt alike")
    if config.lifecycle is not None and config.sampler is not None:
        raise ValueError(
            f"lifecycle needs design 'proportional' or 'top', which have places for reviews, got {config.design!r}"
        )
    if config.quotas is not None:
        _check_quotas(config)
    if config.utility == "keep" and config.estimator != "streak":
        raise ValueError(f"utility 'keep' reads the runs that estimator 'streak' counts, got {config.estimator!r}")
    if config.empirical and weights != "none":
        raise ValueError(
            f"weights {weights!r} need a chance for every prompt, and design 'top' with floor 0 gives none: "
            "give a floor, or weights 'none'"
        )


def _check_quotas(config: PolicyConfig) -> None:
    shares = dict(config.quotas or {})
    if config.design != "proportional" or POLICIES[config.utility].exact_uniform:
        raise ValueError(
            f"quotas need design 'proportional' and a utility, got {config.design!r} with {config.utility!r}: "
            "leave them out"
        )
    if not shares or not all(0.0 <= share <= 1.0 for share in shares.values()) or sum(shares.values()) > 1.0 + 1e-9:
        raise ValueError(f"quotas must be shares in [0, 1] that add up to 1 at most, got {shares}")
