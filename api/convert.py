"""From wire models to the core's values. Called by the service in worker threads; knows both sides and nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from typing import Any

import orjson

from api import schemas
from api.errors import InvalidRequest
from predictors.registry import build_estimator
from selector.batches.drawing import DrawRequest
from selector.config import BudgetConfig, ControllerConfig, LifecycleConfig, PolicyConfig, RunConfig
from selector.engine import StepRequest
from selector.errors import ReportInvalid, UnknownConfig
from selector.groups.reports import GroupIn, Report, RolloutIn
from selector.policies import PRESETS, build_policy, override
from selector.probing import ProbingConfig
from selector.refill import RefillConfig
from selector.rollout_store import RolloutStoreConfig
from selector.run.signals import PushedNumbers
from selector.types import Purpose, RolloutStatus, VoidReason
from selector.waves import WaveConfig

MAX_BATCH_ROLLOUTS = 2**23  # of one draw; the book keeps a row for each
DEFAULT_ESTIMATOR, DEFAULT_WITH_FEATURES = "mixture", "features"  # the second is the first where it reads nothing
STATUSES = {status.name.lower(): status for status in RolloutStatus}
VOIDS = {reason.name.lower(): reason for reason in VoidReason}


def to_config(request: schemas.RunRequest, *, features: bool) -> RunConfig:
    """A run's configuration with every default filled in; features: the default estimator is to read those of the pool.
    Raises UnknownConfig naming the field.
    """
    values = {name: getattr(request, name) for name in _CONFIG_FIELDS}
    policy = _with_default_estimator(request.policy, features=features)
    values["group_size"] = request.group_size or PRESETS[policy.preset].group_size
    if request.rollout_store is not None:
        values["rollout_store"] = RolloutStoreConfig(**request.rollout_store.model_dump(exclude_none=True))
    return checked(RunConfig(pool=request.pool, policy=policy, **values))


def changed_config(config: RunConfig, request: schemas.ConfigRequest) -> RunConfig:
    """The configuration after a change in mid-run; fields that were not sent stay, and the default estimator remains
    the one that it was. Raises UnknownConfig.

    Only `max_lag` can be none at all: a null elsewhere is not a value.
    """
    values: dict[str, Any] = {name: getattr(request, name) for name in request.model_fields_set}
    empty = sorted(name for name, value in values.items() if value is None and name != "max_lag")
    if empty:
        raise UnknownConfig(f"{empty[0]} is null: give a value, or leave it out to keep the one it has")
    if request.policy is not None:
        features = config.policy.estimator == DEFAULT_WITH_FEATURES
        values["policy"] = _with_default_estimator(request.policy, features=features)
    return checked(config.changed(**values))


def _with_default_estimator(request: schemas.PolicyRequest, *, features: bool) -> PolicyConfig:
    """As `to_policy`; if no estimator is named and the preset has the default one, `features` decides which it is."""
    policy = to_policy(request)
    if features and request.estimator is None and policy.estimator == DEFAULT_ESTIMATOR:
        policy = replace(policy, estimator=DEFAULT_WITH_FEATURES)
    return policy


def to_policy(request: schemas.PolicyRequest) -> PolicyConfig:
    """A preset with its overrides. Raises UnknownConfig naming the part that cannot be."""
    preset = PRESETS.get(request.preset)
    if preset is None:
        raise UnknownConfig(f"policy.preset: unknown preset {request.preset!r}; known: {sorted(PRESETS)}")
    overrides = {name: getattr(request, name) for name in _POLICY_FIELDS if getattr(request, name) is not None}
    if request.lifecycle is not None:
        overrides["lifecycle"] = LifecycleConfig(**request.lifecycle.model_dump(exclude_none=True))
    if request.controller is not None:
        overrides["controller"] = ControllerConfig(**request.controller.model_dump())
    try:
        if request.budget is not None:
            overrides["budget"] = BudgetConfig(**request.budget.model_dump())
        if request.wave is not None:
            overrides["wave"] = WaveConfig(**request.wave.model_dump())
        if request.probing is not None:
            overrides["probing"] = ProbingConfig(**request.probing.model_dump())
        if request.refill is not None:
            overrides["refill"] = RefillConfig(**request.refill.model_dump(exclude_none=True))
        return override(preset.config, overrides)
    except ValueError as error:
        raise UnknownConfig(f"policy: {error}") from error


def checked(config: RunConfig) -> RunConfig:
    """The configuration, once its estimator and policy have been built from it. Raises UnknownConfig."""
    try:
        build_estimator(config.policy.estimator, config.policy.estimator_options)
        build_policy(config.policy, weights=config.weights, advantage=config.advantage)
    except ValueError as error:
        raise UnknownConfig(f"policy: {error}") from error
    return config


def to_draw(request: schemas.BatchRequest, config: RunConfig) -> DrawRequest:
    """What is asked of the engine. Raises InvalidRequest for groups that could never count, or too many rollouts."""
    group_size = request.group_size or config.group_size
    if group_size < config.min_rollouts:
        raise InvalidRequest(
            f"group_size {group_size} is below the run's min_rollouts {config.min_rollouts}: no group could ever count"
        )
    if config.policy.budget is not None and request.purpose == "train":
        try:
            config.policy.budget.check_group_size(group_size)
        except ValueError as error:
            raise InvalidRequest(str(error)) from error
    unit = request.divisor // gcd(request.divisor, group_size)
    if config.policy.design == "categorical" and request.purpose == "train" and unit > 1:
        raise InvalidRequest(
            f"design 'categorical' cannot bring its tickets to a multiple of {unit}, which divisor {request.divisor} "
            f"and group_size {group_size} need: draw with divisor 1"
        )
    if request.size * group_size > MAX_BATCH_ROLLOUTS:
        raise InvalidRequest(
            f"size {request.size} times group_size {group_size} is more than {MAX_BATCH_ROLLOUTS} rollouts: "
            "draw several batches"
        )
    refill = config.policy.refill
    if refill is not None and request.purpose == "train" and request.refill >= refill.rounds:
        raise InvalidRequest(
            f"refill {request.refill} is beyond the {refill.rounds} rounds of the run's policy: train on what there is"
        )
    return DrawRequest(
        index=request.index,
        size=request.size,
        policy_version=request.policy_version,
        group_size=group_size,
        purpose=Purpose(request.purpose),
        refill=request.refill,
        divisor=request.divisor,
        short=request.short,
        allow_repeat=request.allow_repeat,
        branch=request.branch,
    )


def to_report(request: schemas.ReportRequest) -> Report:
    return Report(
        groups=[_group(group) for group in request.groups],
        version=_version(request.policy_version),
        branch=request.branch,
    )


def to_step(request: schemas.StepRequest) -> StepRequest:
    costs: Mapping[str, Any] = request.costs.model_dump(exclude_none=True) if request.costs else {}
    return StepRequest(
        step=request.step,
        policy_version=request.policy_version,
        trained=request.trained,
        weights_applied=request.weights_applied,
        update_size=request.update_size,
        costs=costs,
    )


def to_signals(request: schemas.SignalsRequest, rows: Mapping[str, int], num_rows: int) -> PushedNumbers:
    """`rows` has the row of every key that the pool has now; the run may have seen fewer, `num_rows`."""
    found = (rows.get(key) for key in request.features)
    return PushedNumbers(
        policy_version=request.policy_version,
        keys=list(request.features),
        rows=[row if row is not None and row < num_rows else None for row in found],
        numbers=list(request.features.values()),
    )


def _group(group: schemas.GroupReport) -> GroupIn:
    return GroupIn(
        ticket=group.ticket,
        attempt=group.attempt,
        final=group.final,
        void=None if group.void is None else VOIDS[group.void],
        version=_version(group.policy_version),
        rollouts=[_rollout(rollout) for rollout in group.rollouts],
    )


def _rollout(rollout: schemas.RolloutReport) -> RolloutIn:
    explicit = "reward" in rollout.model_fields_set
    said = None if rollout.completion is None else rollout.completion.model_dump(exclude_none=True)
    return RolloutIn(
        n=rollout.n,
        id=rollout.id,
        outcome=rollout.outcome,
        reward=rollout.reward if explicit else rollout.outcome,
        status=STATUSES[rollout.status],
        tokens=rollout.tokens,
        seconds=rollout.seconds,
        fragment=rollout.fragment,
        rewards=rollout.rewards,
        version=_version(rollout.policy_version),
        body=orjson.dumps(said) if said else None,
    )


def _version(version: int | list[int] | None) -> tuple[int, int] | None:
    if version is None or isinstance(version, int):
        return None if version is None else (version, version)
    if len(version) != 2:
        raise ReportInvalid(f"policy_version {version} must be an integer or [first, last]")
    return (version[0], version[1])


_POLICY_FIELDS = tuple(name for name in schemas.PolicyRequest.model_fields if name != "preset")
_CONFIG_FIELDS = (
    "audit_share",
    "weights",
    "seed",
    "max_lag",
    "signal",
    "tolerance",
    "min_rollouts",
    "feed",
    "ticket_ttl_s",
    "review_share",
    "revisit_draws",
    "max_weight",
    "loss_aggregation",
    "advantage",
)
