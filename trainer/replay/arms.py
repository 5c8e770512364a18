"""The policies that a replay compares, and how a person names one on the command line: `preset:option=value,...`."""

from dataclasses import dataclass
from typing import Self

from pydantic import ValidationError

from api.schemas import PolicyRequest
from trainer.errors import InvalidRequest
from trainer.reports import in_words

ESTIMATOR_PREFIX = "estimator."  # of an option that goes to the estimator itself
TEXT_OPTIONS = ("estimator", "utility", "reads", "design")
NUMBER_OPTIONS = ("power", "floor", "target", "low", "high", "candidates")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyArm:
    """One policy under comparison."""

    name: str  # as people see it, in tables and pictures
    policy: PolicyRequest

    @classmethod
    def parse(cls, text: str) -> Self:
        """`midband`, or `midband:power=2,floor=0.2,estimator=kalman_arcsine,estimator.discount=0.9`.

        Raises InvalidRequest naming the option. Whether the preset and the estimator exist is the service's to say.
        """
        preset, _, options = text.partition(":")
        if not preset.strip():
            raise InvalidRequest(f"policy {text!r}: it begins with the name of a preset, as in midband:power=2")
        values: dict[str, object] = {"preset": preset.strip()}
        estimator: dict[str, float] = {}
        for option in filter(None, (part.strip() for part in options.split(","))):
            name, equals, value = (part.strip() for part in option.partition("="))
            if not equals or not value:
                raise InvalidRequest(f"policy {text!r}: {option!r} is not of the form option=value")
            if name in values or name.removeprefix(ESTIMATOR_PREFIX) in estimator:
                raise InvalidRequest(f"policy {text!r}: {name} is given twice")
            if name in TEXT_OPTIONS:
                values[name] = value
            elif name in NUMBER_OPTIONS:
                values[name] = _number(value, name, text)
            elif name.startswith(ESTIMATOR_PREFIX):
                estimator[name.removeprefix(ESTIMATOR_PREFIX)] = _number(value, name, text)
            else:
                known = ", ".join([*NUMBER_OPTIONS, *TEXT_OPTIONS, f"{ESTIMATOR_PREFIX}<its option>"])
                raise InvalidRequest(f"policy {text!r}: unknown option {name!r}; known: {known}")
        if estimator:
            values["estimator_options"] = estimator
        try:
            return cls(name=text.strip(), policy=PolicyRequest.model_validate(values))
        except ValidationError as error:
            raise InvalidRequest(f"policy {text!r}: {in_words(error)}") from error


def _number(value: str, name: str, text: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidRequest(f"policy {text!r}: {name} must be a number, got {value!r}") from None
