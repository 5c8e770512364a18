"""What a run was asked to do, complete and hashed: the values every draw is recorded with.

Built by `api.convert` from a request, and by tests directly. Knows nothing of HTTP; the checks here are those that need
more than one field.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self, get_args

from predictors.value import AdvantageRule
from selector.errors import EstimatorFixed, UnknownConfig
from selector.probing import ProbingConfig
from selector.refill import RefillConfig
from selector.rollout_store import RolloutStoreConfig
from selector.waves import WaveConfig, wave_from_dict

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
    "keep",
    "progress",
    "difficulty",
    "shortfall",
    "staleness",
    "insight",
    "prompt_replay",
]
BudgetRule = Literal["fixed", "neyman", "knapsack"]
Reads = Literal["belief", "mean", "draw", "shuffled"]
Sampler = Literal["poisson", "bernoulli", "categorical"]
Design = Literal["proportional", "top"] | Sampler
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
class BudgetConfig:
    """How the rollouts of a batch are spread over its train tickets. Raises ValueError naming a bad value."""

    rule: BudgetRule
    low: int  # fewest rollouts of a ticket
    high: int  # most

    def __post_init__(self) -> None:
        if self.rule not in get_args(BudgetRule):
            raise ValueError(f"budget.rule must be one of {', '.join(get_args(BudgetRule))}, got {self.rule!r}")
        if not 1 <= self.low <= self.high:
            raise ValueError(f"budget needs 1 <= low <= high, got low {self.low} and high {self.high}")

    def check_group_size(self, group_size: int) -> None:
        """Raises ValueError for a group size, the mean of a batch's, outside the range."""
        if not self.low <= group_size <= self.high:
            raise ValueError(
                f"group_size {group_size} is outside the budget's {self.low} to {self.high} rollouts a ticket: it is "
                "what they have on average"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What moves numbers of the policy while the run goes on; see `selector.controllers`."""

    name: str
    options: Mapping[str, float] = field(default_factory=dict)


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
    design: Design = "proportional"  # chances in proportion to the utility, the largest ones, or a `Sampler`
    candidates: float | None = None  # for "top": so many times the places drawn at random to choose from; None: all
    lifecycle: LifecycleConfig | None = None  # None: no prompt ever rests
    easy_keep: float | None = None  # chance of keeping a prompt after one group all right, squared after two, ...
    hard_keep: float | None = None  # the same after groups all wrong
    quotas: Mapping[str, float] | None = None  # shares by category of what is trained on; None: no quotas
    budget: BudgetConfig | None = None  # None: every ticket has the same number of rollouts
    wave: WaveConfig | None = None  # None: every ticket runs its whole group
    refill: RefillConfig | None = None  # None: degenerate groups are not replaced
    feature: str | None = None  # number of the pool's prompts that the utility looks at
    staleness: float | None = None  # share that goes to the prompts that were not drawn for long, in [0, 1]
    easy_weight: float | None = None  # worth of a prompt that passes too often, in [0, 1]
    hard_weight: float | None = None  # of one that passes too seldom
    controller: ControllerConfig | None = None  # None: every number stays as it is
    per: Per | None = None  # the utility is divided by what a group is expected to cost in these; None: it is not
    probing: ProbingConfig | None = None  # bounds of what probes may cost; None: they have none

    @property
    def sampler(self) -> Sampler | None:
        """The design that draws each prompt by itself, so that the size of batches varies; None: another one."""
        return None if self.design == "proportional" or self.design == "top" else self.design

    @property
    def empirical(self) -> bool:
        """Prompts have a chance in no proportion to anything, or none: nothing can be claimed and no weight given."""
        return self.design == "top" and self.floor == 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, in field order."""
        values = asdict(self)
        if values["wave"] is not None:
            values["wave"].pop("price")  # of probes alone, whose rule no policy has
        return values

    def hashed(self) -> dict[str, Any]:
        """What the configuration's hash is taken over: parts that a policy does without are left out, so that a part
        which comes with a new version leaves the hashes of stored runs as they are.
        """
        values = self.to_dict()
        return {
            name: value for name, value in values.items() if name not in _WITH_DEFAULT or value != _WITH_DEFAULT[name]
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
    rollout_store: RolloutStoreConfig | None = None  # None: nothing of a rollout is kept, and no ticket has prior ones

    def __post_init__(self) -> None:
        if self.min_rollouts > self.group_size:
            raise UnknownConfig(
                f"min_rollouts {self.min_rollouts} exceeds group_size {self.group_size}: no group could ever count; "
                "lower min_rollouts"
            )
        if (budget := self.policy.budget) is not None:
            try:
                budget.check_group_size(self.group_size)
            except ValueError as error:
                raise UnknownConfig(str(error)) from error
            if budget.low < self.min_rollouts:
                raise UnknownConfig(
                    f"budget.low {budget.low} is below min_rollouts {self.min_rollouts}: such groups could never "
                    "count; raise low"
                )
        if self.policy.lifecycle is not None and self.feed == "informative_only":
            raise UnknownConfig(
                "lifecycle needs feed 'all': where only informative groups are reported, silence says neither 0 nor 1; "
                "leave lifecycle out"
            )
        if self.policy.wave is not None and self.policy.budget is not None:
            raise UnknownConfig("policy: wave and budget both set the rollouts of a ticket; leave one of them out")
        if self.feed == "informative_only" and (self.policy.wave is not None or self.policy.refill is not None):
            raise UnknownConfig(
                "wave and refill judge every group, and feed 'informative_only' leaves most of them out: use feed 'all'"
            )
        if self.rollout_store is not None and self.policy.wave is not None:
            raise UnknownConfig(
                "rollout_store and policy.wave each begin a group with a part of it: with a store the probe is the "
                "first wave; leave one of them out"
            )
        if self.rollout_store is not None and self.feed == "informative_only":
            raise UnknownConfig(
                "rollout_store needs feed 'all': of a group that begins with a probe's rollouts, silence says "
                "something else; leave rollout_store out"
            )
        if self.policy.wave is not None:
            try:
                self.policy.wave.check_run(self.group_size, self.min_rollouts)
            except ValueError as error:
                raise UnknownConfig(f"policy: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, in field order."""
        return {**asdict(self), "policy": self.policy.to_dict()}

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
        if policy.get("budget") is not None:
            policy["budget"] = BudgetConfig(**policy["budget"])
        policy["wave"] = wave_from_dict(policy.get("wave"))
        if policy.get("refill") is not None:
            policy["refill"] = RefillConfig(**policy["refill"])
        if policy.get("probing") is not None:
            policy["probing"] = ProbingConfig(**policy["probing"])
        if policy.get("controller") is not None:
            policy["controller"] = ControllerConfig(**policy["controller"])
        store = values.get("rollout_store")
        kept = {} if store is None else {"rollout_store": RolloutStoreConfig(**store)}
        return cls(**{**values, **kept, "policy": PolicyConfig(**policy)})

    def config_hash(self) -> str:
        """SHA-256 over the canonical JSON; recorded with every draw."""
        hashed = {**self.to_dict(), "policy": self.policy.hashed()}
        if self.rollout_store is None:  # which came later, and leaves the hashes of stored runs as they are
            del hashed["rollout_store"]
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
