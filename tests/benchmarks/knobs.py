"""Settings of estimators for their benchmark: those that were published, and grids to find the best in hindsight.

Keyed by the name in the registry. An estimator that is not named runs at its defaults, and those are its best knobs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

Options = Mapping[str, float]
Grid = Mapping[str, Sequence[float]]

OURS = "mixture"

READS_COLUMNS = ("features", "value")
"""Without columns these are the mixture and discounted_beta; `sharing` measures what columns add."""


def _with_prior(grid: Grid, priors: Sequence[float]) -> tuple[Grid, ...]:
    """The grid once for each fixed prior, the same on both sides."""
    return tuple({**grid, "prior_successes": (prior,), "prior_failures": (prior,)} for prior in priors)


FLAT = {"process_noise": 0.0, "prior_successes": 1.0, "prior_failures": 1.0}

PUBLISHED: Mapping[str, Mapping[str, Options]] = {
    "discounted_beta": {
        "MoPPS, half kept": {**FLAT, "discount": 0.5},
        "MoPPS, all kept": {**FLAT, "discount": 1.0},
    },
}
"""Published settings that are not the registered defaults, by a name for people. arXiv 2507.04632."""

GRIDS: Mapping[str, Sequence[Grid]] = {
    "beta_with_reference": (
        {"forgetting": (0.05, 0.1, 0.2, 0.4), "reference_share": (0.05, 0.2), "prior_successes": (1.0,)},
    ),
    "category": ({"learning_rate": (0.02, 0.05, 0.2)},),
    "discounted_beta": (
        {"discount": (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0), "process_noise": (0.0, 5e-5)},
        *_with_prior({"discount": (0.5, 0.7, 0.8, 0.85, 0.9, 1.0), "process_noise": (0.0,)}, (0.1, 0.3)),
    ),
    "hmm": ({"discount": (1.0, 0.9, 0.7), "group_size": (3.0, 8.0)},),
    "kalman_arcsine": (
        {"process_noise": (2e-5, 4e-5, 8e-5, 3e-4), "drift": (0.0, 4e-4, 8e-4), "memory_groups": (0.0,)},
    ),
    "kalman_logit": ({"process_noise": (1e-4, 3e-4, 3e-3, 1e-2)},),
    "last_mean": _with_prior({}, (0.1, 0.3)),
    "streak": _with_prior({}, (0.1, 0.3)),
}
"""Products of values, beside the defaults and the published settings."""


def published(name: str) -> dict[str, Options]:
    """Case names with their options: the registered defaults under the estimator's own name, then PUBLISHED."""
    return {name: {}, **{f"{name}: {label}": options for label, options in PUBLISHED.get(name, {}).items()}}


def grid(name: str) -> Iterator[Options]:
    """Every option set of an estimator's grid."""
    for axes in GRIDS.get(name, ()):
        for values in product(*axes.values()):
            yield dict(zip(axes, values, strict=True))
