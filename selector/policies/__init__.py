"""Selection policies by their utility: a new one is a file, a name in `config.Utility` and a line here."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from selector.config import Advantage, PolicyConfig, Weights
from selector.policies.advantage import AbsoluteAdvantage
from selector.policies.band import Band
from selector.policies.base import Policy
from selector.policies.gradient import Gradient
from selector.policies.information import Information
from selector.policies.knapsack import Knapsack
from selector.policies.midband import Midband
from selector.policies.presets import PRESETS, Preset
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
}
PARAMETERS = frozenset[str]().union(*(policy.parameters() for policy in POLICIES.values()))
OPTIONAL = PARAMETERS - {"power"}


def build_policy(config: PolicyConfig, *, weights: Weights, advantage: Advantage) -> Policy:
    """The policy of a run. Raises ValueError naming an unknown utility or a value out of range."""
    policy = POLICIES.get(config.utility)
    if policy is None:
        raise ValueError(f"unknown utility {config.utility!r}; known: {sorted(POLICIES)}")
    return policy.from_config(config, weights=weights, advantage=advantage)


def override(config: PolicyConfig, changes: Mapping[str, Any]) -> PolicyConfig:
    """The policy with some of its parts given anew; parts that its utility then does without are dropped.

    Raises ValueError for a part that is given and changes nothing with this utility, naming it.
    """
    changed = replace(config, **changes)
    policy = POLICIES.get(changed.utility)
    if policy is None:
        return changed  # `build_policy` says so
    known = policy.parameters()
    for name, value in changes.items():
        idle = name in PARAMETERS and name not in known
        if (idle or (name == "floor" and policy.exact_uniform)) and value != getattr(config, name):
            raise ValueError(
                f"{name} {value} has no effect with utility {changed.utility!r}, which has "
                f"{', '.join(sorted(known)) or 'no parameters'}: leave it out"
            )
    no_others: dict[str, Any] = dict.fromkeys(OPTIONAL - known)
    return replace(changed, **no_others)
