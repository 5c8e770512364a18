"""Controllers by name: a new one is a file and a line here.

`policies` refuses what does not fit at the door, `batches.controlling` asks them at each draw.
"""

from collections.abc import Iterable
from dataclasses import fields

from selector.config import ControllerConfig, PolicyConfig
from selector.controllers.adarft import Adarft
from selector.controllers.base import Controller, Numbers, Seen
from selector.controllers.batch_size import BatchSize
from selector.controllers.greso import Greso
from selector.controllers.pool_weights import PoolWeights
from selector.controllers.vcrl import Vcrl

__all__ = ["CONTROLLERS", "Controller", "Numbers", "Seen", "build_controller", "check_controller"]

CONTROLLERS: dict[str, type[Controller]] = {
    "adarft": Adarft,
    "batch_size": BatchSize,
    "greso": Greso,
    "pool_weights": PoolWeights,
    "vcrl": Vcrl,
}


def build_controller(config: ControllerConfig) -> Controller:
    """A controller with its options. Raises ValueError naming an unknown name or option, or a value out of range."""
    controller = CONTROLLERS.get(config.name)
    if controller is None:
        raise ValueError(f"unknown controller {config.name!r}; known: {sorted(CONTROLLERS)}")
    known = [field.name for field in fields(controller)]  # type: ignore[arg-type]
    unknown = sorted(set(config.options) - set(known))
    if unknown:
        raise ValueError(f"controller {config.name!r} has no option {unknown[0]!r}; it has {known}")
    missing = sorted(controller.required() - set(config.options))
    if missing:
        raise ValueError(f"controller {config.name!r} needs {missing[0]}")
    return controller(**config.options)


def check_controller(policy: PolicyConfig, parameters: Iterable[str]) -> None:
    """Raises ValueError for a controller that cannot be, or that moves a number which the utility does not have.

    parameters: the numbers that the utility has.
    """
    if policy.controller is None:
        return
    controller = build_controller(policy.controller)
    foreign = sorted(set(controller.sets) - set(parameters))
    if foreign:
        raise ValueError(
            f"controller {policy.controller.name!r} moves {foreign[0]}, which utility {policy.utility!r} has not: "
            "leave it out, or take a utility that has"
        )
    controller.begin(policy)
