"""Compiles what a draw needs before anybody waits for one.

Called by `api.serve` from a thread as the service starts. Machine code that an earlier process kept is read instead,
which takes a moment. Changes nothing that anybody sees.
"""

import numpy as np

from selector.batches.drawing import DrawRequest
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.policies.presets import MIDBAND, UNIFORM
from selector.pool import PoolState

# An odd and an even group take different paths to P(informative), and places shared out among 48 prompts leave a
# remainder, which has a loop of its own.
NUM_PROMPTS, BATCH_SIZE, SIZES = 48, 8, (7, 8)


def warm_up() -> None:
    """Draws from a made-up pool under our own presets, as runs of a trainer do."""
    for policy in (UNIFORM, MIDBAND):
        engine, _ = RunEngine.begin("warm-up", RunConfig(pool="made up", policy=policy), _pool())
        for index, group_size in enumerate(SIZES):
            request = DrawRequest(index=index, size=BATCH_SIZE, policy_version=index, group_size=group_size)
            event = engine.draw(request, now=0.0)
            if event is not None:
                engine.apply(event)


def _pool() -> PoolState:
    nobody_N = np.zeros(NUM_PROMPTS, bool)
    return PoolState(
        name="made up",
        revision=1,
        keys=[str(row) for row in range(NUM_PROMPTS)],
        split_N=np.zeros(NUM_PROMPTS, np.uint8),
        category_N=np.zeros(NUM_PROMPTS, np.int32),
        categories=("made up",),
        absent_N=nobody_N,
        quarantined_N=nobody_N,
    )
