"""Inclusion probabilities by simulation, for designs whose recorded π is given a part of their chance.

`RunEngine.simulate_inclusion` calls it when an auditor asks. The π of a batch drawn by `top` is 0 or 1 given the
candidates and the pass rates drawn from the beliefs; over those the chance of a prompt has no formula. Knows draws and
counts; changes nothing. N rows of the pool.
"""

from dataclasses import dataclass, replace

import numpy as np

from selector.batches.drawing import DrawRequest, plan_batch
from selector.run.state import RunState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedInclusion:
    """The chance of each row to be in a batch, over all that the run's seed decides for it."""

    share_N: np.ndarray  # of the simulated draws that held the row
    error_N: np.ndarray  # its standard error, √(p(1−p)/R) at p = (draws that held it + 1)/(R + 2), never 0
    num_draws: int  # R


def simulated_inclusion(state: RunState, request: DrawRequest, num_draws: int) -> SimulatedInclusion:
    """The batch of a request, drawn from this state with `num_draws` other seeds.

    What the state decides is kept: beliefs, prompts in flight, credit, and whose revisit is due. Costs as much as so
    many draws. Raises ValueError for num_draws below 1.
    """
    if num_draws < 1:
        raise ValueError(f"num_draws must be >= 1, got {num_draws}")
    held_N = np.zeros(state.num_rows)
    for number in range(1, num_draws + 1):
        # No seed of a run is negative, so none of these is its own.
        config = replace(state.config, seed=-(state.config.seed * num_draws + number))
        held_N[plan_batch(replace(state, config=config), request, now=0.0).row_K] += 1.0
    guess_N = (held_N + 1.0) / (num_draws + 2.0)
    return SimulatedInclusion(
        share_N=held_N / num_draws,
        error_N=np.sqrt(guess_N * (1.0 - guess_N) / num_draws),
        num_draws=num_draws,
    )
