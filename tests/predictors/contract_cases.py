"""Every registered estimator, and one with some history, for the tests of what all of them must do."""

import numpy as np
import pytest

from predictors.base import Beliefs, Estimator
from predictors.registry import ESTIMATORS, build_estimator
from tests.predictors.groups import groups

every_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def every_estimator_but(*names: str) -> pytest.MarkDecorator:
    """All registered estimators except these, which must be registered too."""
    assert set(names) <= set(ESTIMATORS)
    return pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in names])


def with_history(name: str, *, seed: int = 0) -> Estimator:
    """30 rows in 3 categories, rows 20.. never tried, three rounds of groups with repeats and late ones."""
    rng = np.random.default_rng(seed)
    made = build_estimator(name, {})
    made.resize((np.arange(30) % 3).astype(np.int32))
    for version in (0, 7, 20):
        made.advance(version)
        rows = rng.integers(0, 20, 40)
        made.observe(
            groups(rows, rng.binomial(8, rows / 20), version=rng.integers(max(version - 5, 0), version + 1, 40))
        )
    made.advance(26)
    return made


def assert_same(one: Beliefs, other: Beliefs) -> None:
    for name in ("mean_N", "variance_N", "n_eff_N", "lag_N", "source_N"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
