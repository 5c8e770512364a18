"""What a run begins with when another run on its pool has learned something already: packed whole into one event.

`api` plans it as a run is made, the fold unpacks it. Rows are those of the pool, so that a prompt meets its own
belief. Nothing but beliefs is taken over: what is predicted of pass rates, rewards, ties and costs; no stage, credit,
count or signal.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping

import numpy as np

from predictors.rewards import Rewards
from selector.config import RunConfig
from selector.errors import SnapshotDamaged, UnknownConfig
from selector.run.events import WarmStarted
from selector.run.snapshot import pack, unpack
from selector.run.state import CLOCK, COUNTERS, make_estimator

DEFAULT_DISCOUNT = 0.5
"""Share of a prompt's own evidence that is kept: the other run trained another policy, or this one for longer."""

LEARNED = ("estimator.", "costs.", "ties.", "rewards.")
"""Prefixes of what is taken over, among what `RunState.rewindable` gives."""

COMPRESSION = 1
"""Of zlib, the fastest: rows that were never tried are alike and take next to nothing."""


def plan_warm_start(
    config: RunConfig,
    source: RunConfig,
    learned: Mapping[str, np.ndarray],
    *,
    run: str,
    step: int | None,
    position: int,
    discount: float | None,
) -> WarmStarted:
    """The event of a run with this configuration that begins with what `run` had learned by `position` of its log.

    learned: its `RunState.rewindable` there. Raises UnknownConfig for an estimator that is not the same, with the same
    options, or that cannot discount.
    """
    wanted, given = ((c.policy.estimator, dict(c.policy.estimator_options)) for c in (config, source))
    if wanted != given:
        raise UnknownConfig(
            f"start_from: run {run!r} has estimator {given[0]!r} {given[1]}, this one {wanted[0]!r} {wanted[1]}; "
            "beliefs can be taken over from the same estimator with the same options only"
        )
    kept = DEFAULT_DISCOUNT if discount is None else discount
    arrays = {name: array for name, array in learned.items() if name.startswith(LEARNED)}
    arrays["num_rows"] = np.array(len(learned["credit_N"]), np.int64)
    if kept < 1.0:
        arrays |= _discounted(config, arrays, kept)
    shift = int(learned[CLOCK][0]) if CLOCK in learned else 0
    packed = base64.b64encode(zlib.compress(pack(arrays, {}), COMPRESSION)).decode()
    return WarmStarted(
        run=run,
        step=step,
        position=position,
        policy_version=max(int(learned["counters"][COUNTERS.index("belief_version")]) + shift, 0),
        discount=kept,
        learned=packed,
    )


def _discounted(config: RunConfig, arrays: Mapping[str, np.ndarray], kept: float) -> dict[str, np.ndarray]:
    """Beliefs whose own evidence counts as this share. What rollouts cost is left as it is: it is not about success."""
    estimator = make_estimator(config)
    estimator.load_state(_part(arrays, "estimator."))
    try:
        estimator.discount(kept)
    except ValueError as error:
        raise UnknownConfig(f"start_from.discount: {error}") from error
    found = {f"estimator.{name}": array for name, array in estimator.state().items()}
    if of_rewards := _part(arrays, "rewards."):
        rewards = Rewards()
        rewards.load_state(of_rewards)
        rewards.discount(kept)
        found |= {f"rewards.{name}": array for name, array in rewards.state().items()}
    return found


def unpacked(event: WarmStarted) -> dict[str, np.ndarray]:
    """The arrays, named as in `RunState.rewindable`, and of how many rows they are. Raises SnapshotDamaged."""
    try:
        return unpack(zlib.decompress(base64.b64decode(event.learned, validate=True)))[0]
    except (binascii.Error, zlib.error) as error:
        raise SnapshotDamaged(f"what run {event.run!r} had learned cannot be unpacked: {error}") from error


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
