"""What a run was asked to do, complete and hashed: the values every draw is recorded with.

Built by `api.convert` from a request, and by tests directly. Knows nothing of HTTP; the checks here are those that need
more than one field.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from predictors.value import AdvantageRule
from selector.errors import EstimatorFixed, UnknownConfig

Weights = Literal["none", "horvitz_thompson", "clipped"]
Signal = Literal["reward", "outcome"]
Feed = Literal["all", "informative_only"]
LossAggregation = Literal["per_prompt", "per_sequence", "per_token"]
Advantage = AdvantageRule
Utility = Literal[
    "uniform",
    "informative",
    "gradient",
    "variance",
    "band",
    "target",
    "advantage",
    "information",
    "knapsack",
    "pools",
]
Reads = Literal["belief", "mean", "draw", "shuffled"]
Design = Literal["proportional", "top"]
Per = Literal["token", "second"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleConfig:
    """When a prompt goes to rest, and so leaves its place in a batch to others but for reviews.

    Raises ValueError naming a value that is out of range.
    """

    level: float = 0.9  # pass rate from which a prompt counts as mastered, in [0.5, 1)
    sure: float = 0.9  # chance, by the belief, that the pass rate is at the level, from which it does; in (0.5, 1)
    hopeless: float = 0.25  # P(informative) down to which a prompt without a pass is deferred, in [0, 1)
    groups: int = 3  # own groups, for a deferral in a row without a pass, that either needs at least

    def __post_init__(self) -> None:
        for name, inside, allowed in (
            ("level", 0.5 <= self.level < 1.0, "in [0.5, 1)"),
            ("sure", 0.5 < self.sure < 1.0, "in (0.5, 1)"),
            ("hopeless", 0.0 <= self.hopeless < 1.0, "in [0, 1)"),
            ("groups", self.groups >= 1, ">= 1"),
        ):
            if not inside:
                raise ValueError(f"lifecycle.{name} must be {allowed}, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """One selection policy with every part named: a preset is such a value, a request overrides parts of it.

    Which of `power`, `target`, `low` and `high` count is the utility's to say; None where they do not.
    """

    preset: str
    estimator: str
    estimator_options: Mapping[str, float] = field(default_factory=dict)
    utility: Utility
    power: float  # exponent of the utility; of P(informative) only when weights are off
    floor: float  # share of the selected part spread evenly, in (0, 1]; 0 for design "top" without any claim
    target: float | None = None  # pass rate that is worth most
    low: float | None = None  # least share passed that is worth anything
    high: float | None = None  # largest
    reads: Reads = "belief"  # what of the beliefs the utility sees
    design: Design = "proportional"  # chances in proportion to the utility, or the largest utilities
    candidates: float | None = None  # for "top": so many times the places drawn at random to choose from; None: all
    lifecycle: LifecycleConfig | None = None  # None: no prompt ever rests
    per: Per | None = None  # the utility is divided by what a group is expected to cost in these; None: it is not

    @property
    def empirical(self) -> bool:
        """Prompts have a chance in no proportion to anything, or none: nothing can be claimed and no weight given."""
        return self.design == "top" and self.floor == 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, in field order."""
        return asdict(self)

    def hashed(self) -> dict[str, Any]:
        """What the configuration's hash is taken over: parts that a policy does without are left out, so that a part
        which comes with a new version leaves the hashes of stored runs as they are.
        """
        return {
            name: value
            for name, value in self.to_dict().items()
            if name not in _WITH_DEFAULT or value != _WITH_DEFAULT[name]
        }


_WITH_DEFAULT = {f.name: f.default for f in fields(PolicyConfig) if f.default is not MISSING}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A run's configuration; field names are those of the HTTP contract."""

    pool: str
    policy: PolicyConfig
    group_size: int = 8
    audit_share: float = 0.1
    weights: Weights = "none"
    seed: int = 0
    max_lag: int | None = None
    signal: Signal = "reward"
    tolerance: float = 1e-6
    min_rollouts: int = 2
    feed: Feed = "all"
    ticket_ttl_s: float | None = None
    review_share: float = 0.05
    revisit_draws: int | None = None
    max_weight: float = 10.0
    loss_aggregation: LossAggregation = "per_prompt"
    advantage: Advantage = "grpo"

    def __post_init__(self) -> None:
        if self.min_rollouts > self.group_size:
            raise UnknownConfig(
                f"min_rollouts {self.min_rollouts} exceeds group_size {self.group_size}: no group could ever count; "
                "lower min_rollouts"
            )
        if self.policy.lifecycle is not None and self.feed == "informative_only":
            raise UnknownConfig(
                "lifecycle needs feed 'all': where only informative groups are reported, silence says neither 0 nor 1; "
                "leave lifecycle out"
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, in field order."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads what any earlier version wrote. Raises UnknownConfig naming a field of a later one."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UnknownConfig(f"unknown configuration fields {unknown}; known: {sorted(known)}")
        policy_parts = {f.name for f in fields(PolicyConfig)}
        unknown = sorted(set(values["policy"]) - policy_parts)
        if unknown:
            raise UnknownConfig(f"unknown policy fields {unknown}; known: {sorted(policy_parts)}")
        policy = dict(values["policy"])
        if policy.get("lifecycle") is not None:
            policy["lifecycle"] = LifecycleConfig(**policy["lifecycle"])
        return cls(**{**values, "policy": PolicyConfig(**policy)})

    def config_hash(self) -> str:
        """SHA-256 over the canonical JSON; recorded with every draw."""
        hashed = {**self.to_dict(), "policy": self.policy.hashed()}
        canonical = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def changed(self, **changes: Any) -> Self:
        """The configuration after a change in mid-run. Raises EstimatorFixed when the estimator would change."""
        changed = replace(self, **changes)
        old, new = self.policy, changed.policy
        if (old.estimator, dict(old.estimator_options)) != (new.estimator, dict(new.estimator_options)):
            raise EstimatorFixed(
                f"the estimator of a run cannot change from {old.estimator} {dict(old.estimator_options)} to "
                f"{new.estimator} {dict(new.estimator_options)}; begin a new run"
            )
        return changed
