"""Selection policies by their utility: a new one is a file, a name in `PolicyConfig.utility` and a line here."""

from selector.config import Advantage, PolicyConfig, Weights
from selector.policies.base import Policy
from selector.policies.midband import Midband
from selector.policies.presets import PRESETS, Preset
from selector.policies.uniform import Uniform

__all__ = ["POLICIES", "PRESETS", "Policy", "Preset", "build_policy"]

POLICIES: dict[str, type[Policy]] = {"uniform": Uniform, "informative": Midband}


def build_policy(config: PolicyConfig, *, weights: Weights, advantage: Advantage) -> Policy:
    """The policy of a run. Raises ValueError naming an unknown utility or a value out of range."""
    policy = POLICIES.get(config.utility)
    if policy is None:
        raise ValueError(f"unknown utility {config.utility!r}; known: {sorted(POLICIES)}")
    return policy.from_config(config, weights=weights, advantage=advantage)
