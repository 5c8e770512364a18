"""The contract imports nothing of ours, so the choices of words that it allows stand in it a second time: they are the
engine's, and the fields are the engine's too."""

from dataclasses import fields
from enum import Enum
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

from api import schemas
from selector.batches.drawing import DrawRequest
from selector.config import BudgetConfig, ControllerConfig, LifecycleConfig, PolicyConfig, RunConfig
from selector.probing import ProbingConfig
from selector.refill import RefillConfig
from selector.rollout_store import RolloutStoreConfig
from selector.types import Purpose, RolloutStatus, VoidReason
from selector.waves import WaveConfig

# Of the engine alone: a wave that nobody can ask for, as probes have it by themselves, and its price.
PROBES_ALONE = {"settle"}
OF_PROBES = {"price"}
# Of the contract alone: what is not part of a configuration.
OF_CREATION = {"name", "start_from"}


def words(hint: Any) -> set[str]:
    """The words of a type of choices, however deep they stand in it."""
    parts = get_args(hint)
    return {part for part in parts if isinstance(part, str)}.union(*map(words, parts))


def lower(choices: type[Enum]) -> set[str]:
    return {choice.name.lower() for choice in choices}


@pytest.mark.parametrize(
    ("asked", "config", "more_asked", "more_kept"),
    [
        (schemas.RunRequest, RunConfig, OF_CREATION, set[str]()),
        (schemas.PolicyRequest, PolicyConfig, set[str](), set[str]()),
        (schemas.runs.BudgetRequest, BudgetConfig, set[str](), set[str]()),
        (schemas.runs.WaveRequest, WaveConfig, set[str](), OF_PROBES),
        (schemas.runs.RefillRequest, RefillConfig, set[str](), set[str]()),
        (schemas.runs.LifecycleRequest, LifecycleConfig, set[str](), set[str]()),
        (schemas.runs.ControllerRequest, ControllerConfig, set[str](), set[str]()),
        (schemas.runs.ProbingRequest, ProbingConfig, set[str](), set[str]()),
        (schemas.RolloutStoreRequest, RolloutStoreConfig, set[str](), set[str]()),
    ],
)
def test_a_configuration_is_asked_for_with_the_fields_and_words_that_it_has(
    asked: type[BaseModel], config: type[Any], more_asked: set[str], more_kept: set[str]
) -> None:
    hints = get_type_hints(config)
    assert set(asked.model_fields) - more_asked == {field.name for field in fields(config)} - more_kept
    for name, field in asked.model_fields.items():
        if name not in more_asked:
            assert words(field.annotation) == words(hints[name]) - PROBES_ALONE, name


def test_a_change_of_a_run_takes_the_words_that_its_beginning_took() -> None:
    for name, field in schemas.ConfigRequest.model_fields.items():
        assert words(field.annotation) == words(schemas.RunRequest.model_fields[name].annotation), name


def test_purposes_statuses_and_ways_of_a_draw_are_those_of_the_engine() -> None:
    assert set(get_args(schemas.PurposeName)) == set(Purpose)
    # The engine has some more that only it gives.
    assert set(get_args(schemas.VoidName)) < lower(VoidReason)
    assert words(schemas.RolloutReport.model_fields["status"].annotation) == lower(RolloutStatus) - {"rewarded"}
    short = schemas.BatchRequest.model_fields["short"].annotation
    assert words(short) == words(get_type_hints(DrawRequest)["short"])
