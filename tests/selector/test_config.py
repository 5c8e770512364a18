"""Configurations as they are stored and hashed: what an older midband wrote stays readable, and its hash stands."""

from dataclasses import replace
from typing import Any

import pytest

from selector.config import PolicyConfig, RunConfig
from selector.errors import UnknownConfig
from selector.policies import PRESETS
from tests.selector.engine_cases import Session, make_config, make_policy

STORED: dict[str, Any] = {
    "pool": "p",
    "policy": {
        "preset": "midband",
        "estimator": "kalman_arcsine",
        "estimator_options": {},
        "utility": "informative",
        "power": 4.0,
        "floor": 0.05,
    },
    "group_size": 8,
    "audit_share": 0.1,
    "weights": "none",
    "seed": 0,
    "max_lag": None,
    "signal": "reward",
    "tolerance": 1e-06,
    "min_rollouts": 2,
    "feed": "all",
    "ticket_ttl_s": None,
    "review_share": 0.05,
    "revisit_draws": None,
    "max_weight": 10.0,
    "loss_aggregation": "per_prompt",
    "advantage": "grpo",
}
"""A run's configuration as version 0.1.0 wrote it into its log."""


def test_a_configuration_stored_by_an_older_version_is_read_and_keeps_its_hash() -> None:
    config = RunConfig.from_dict(STORED)

    assert config == RunConfig(pool="p", policy=replace(PRESETS["midband"].config, estimator="kalman_arcsine"))
    assert config.config_hash() == "f2ee378a6ce4bffdd43c3ffccc484797e5d6435f7e54d040e3e0262cda0ead8f"


def test_the_uniform_policy_of_older_runs_hashes_as_it_did() -> None:
    config = RunConfig(pool="p", policy=replace(PRESETS["uniform"].config, estimator="kalman_arcsine"))

    assert config.config_hash() == "bee6c510cbd03e8ab263589342bdc0bbc4dddff843484b1db410900856bbd832"


def test_a_policy_is_stored_whole_and_comes_back_equal() -> None:
    config = make_config(make_policy(utility="band", low=0.2, high=0.8))

    assert config.to_dict()["policy"] == config.policy.to_dict()
    assert config.policy.to_dict()["low"] == 0.2
    assert RunConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    "changes",
    [{"utility": "band", "low": 0.2, "high": 0.8}, {"utility": "target", "target": 0.0}, {"power": 2.0}],
)
def test_every_part_that_counts_changes_the_hash(changes: dict[str, Any]) -> None:
    policy = make_policy()

    assert make_config(replace(policy, **changes)).config_hash() != make_config(policy).config_hash()
    for name, value in changes.items():
        if name not in {"utility", "power"}:
            others = {k: v for k, v in changes.items() if k != name}
            assert make_config(replace(policy, **changes)).config_hash() != (
                make_config(replace(policy, **others, **{name: value + 0.1})).config_hash()
            )


def test_a_run_begun_by_an_older_version_goes_on_in_its_segment() -> None:
    session = Session(RunConfig.from_dict(STORED))
    start = session.state.segment_start

    session.configure(audit_share=0.1)

    assert session.state.segment_start == start
    assert isinstance(session.replayed().state.config.policy, PolicyConfig)


def test_a_field_that_no_run_has_is_refused() -> None:
    with pytest.raises(UnknownConfig, match="temperature"):
        RunConfig.from_dict({**STORED, "temperature": 1.0})
    with pytest.raises(UnknownConfig, match=r"policy fields \['temperature'\]"):
        RunConfig.from_dict({**STORED, "policy": {**STORED["policy"], "temperature": 1.0}})
