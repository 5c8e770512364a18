"""Selection policies by the utility they stand for. A new one is a file, a name in `PolicyConfig.utility`, a line
here."""

from selector.config import RunConfig
from selector.policies.base import Policy
from selector.policies.midband import Midband
from selector.policies.presets import PRESETS, Preset
from selector.policies.uniform import Uniform

__all__ = ["POLICIES", "PRESETS", "Policy", "Preset", "build_policy"]

POLICIES: dict[str, type[Policy]] = {"uniform": Uniform, "informative": Midband}


def build_policy(config: RunConfig) -> Policy:
    """The policy of a run. Raises ValueError naming an unknown utility or a value out of range."""
    policy = POLICIES.get(config.policy.utility)
    if policy is None:
        raise ValueError(f"unknown utility {config.policy.utility!r}; known: {sorted(POLICIES)}")
    return policy.from_config(config)
