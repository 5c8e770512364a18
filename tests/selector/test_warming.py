"""Warming up compiles what the first draw of a run would otherwise wait for."""

import subprocess
import sys
from pathlib import Path

import pytest

from selector.warming import warm_up

ROOT = Path(__file__).parents[2]

COUNTED = """

from numba.core.dispatcher import Dispatcher
import predictors.reading, predictors.value, selector.sampling.scans
from selector.warming import warm_up

kernels = [
    kernel
    for module in (predictors.reading, predictors.value, selector.sampling.scans)
    for kernel in vars(module).values()
    if isinstance(kernel, Dispatcher)
]
warm_up()
before = [len(kernel.signatures) for kernel in kernels]
from tests.selector.engine_cases import make_pool
from selector.config import RunConfig
from selector.batches.drawing import DrawRequest
from selector.engine import RunEngine
from selector.policies.presets import PRESETS

for name in ("uniform", "midband"):
    engine, _ = RunEngine.begin("r", RunConfig(pool="p", policy=PRESETS[name].config), make_pool(40))
    for index in range(3):
        engine.apply(engine.draw(DrawRequest(index=index, size=8, policy_version=index, group_size=8), now=1.0))
print(sum(before) > 0, before == [len(kernel.signatures) for kernel in kernels])
"""


def test_warming_up_leaves_nothing_behind_and_may_be_repeated() -> None:
    warm_up()
    warm_up()


@pytest.mark.slow
def test_a_first_draw_after_it_compiles_nothing() -> None:
    found = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, cwd=ROOT, check=True)

    assert found.stdout.split() == ["True", "True"]
