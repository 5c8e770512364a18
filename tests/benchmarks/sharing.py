"""What is gained by sharing between prompts: by features of their texts, by another model's solve rate, by categories.

Each case is the same estimator with and without, on the same predictions of the same feed. All prompts, those that were
never tried, and those of which the other model's rate is known. A column of noise is the control. Used by the benchmark
of estimators.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from predictors.base import NEVER, Column, FloatArray
from predictors.calibration import randomised_pit, reliability
from predictors.scores import COVERED, distance_from_uniform
from predictors.value import informative_probability
from tests.benchmarks.language import Figure
from tests.benchmarks.outcome_sets import FEEDS, OutcomeSet, Texts, texts_of
from tests.benchmarks.prequential import Predictions, replayed
from tests.benchmarks.scoring import Truth, differences, log_losses
from tests.benchmarks.text import embeddings

OTHER_RATE = "other model's rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An estimator that is told something, and the one that it is compared with, which is not."""

    label: str
    estimator: str
    columns: Mapping[str, Column]
    without: str
    category_N: npt.NDArray[np.int32] | None = None  # in place of the set's


def sharing_figures(sets: Iterable[OutcomeSet]) -> Iterator[Figure]:
    """Every case on every set whose texts are at hand, in sparse feeds."""
    for outcomes in sets:
        texts = texts_of(outcomes) if outcomes.feed != FEEDS[0] else None
        if texts is not None:
            yield from _figures(outcomes, texts)


def _cases(texts: Texts) -> list[Case]:
    noise = np.random.default_rng(8).normal(size=(len(texts.prompts), 64))
    text = {"text": Column(value_N=embeddings(texts.prompts))}
    cases = [
        Case(label="features: text", estimator="features", columns=text, without="mixture"),
        Case(
            label="features: noise",
            estimator="features",
            columns={"noise": Column(value_N=noise)},
            without="mixture",
        ),
    ]
    if texts.other_rate_N is None:
        return cases
    rate = Column(value_N=texts.other_rate_N)
    told = {"rate": rate}
    return [
        *cases,
        Case(label=f"features: {OTHER_RATE}", estimator="features", columns=told, without="mixture"),
        Case(label=f"features: text, {OTHER_RATE}", estimator="features", columns={**text, **told}, without="mixture"),
        Case(
            label=f"mixture: {OTHER_RATE} in tenths",
            estimator="mixture",
            columns={},
            without="mixture",
            category_N=texts.other_category_N,
        ),
        Case(label=f"value: {OTHER_RATE}", estimator="value", columns={"value": rate}, without="discounted_beta"),
    ]


def _figures(outcomes: OutcomeSet, texts: Texts) -> Iterator[Figure]:
    truth = Truth.of(outcomes)
    plain = {name: _predicted(outcomes, name, {}) for name in ("mixture", "discounted_beta")}
    lag_J = _judged(outcomes, [p.lag_RN for p in plain["mixture"]])
    known_N = np.zeros(outcomes.num_prompts, bool) if texts.other_rate_N is None else np.isfinite(texts.other_rate_N)
    parts = {
        "all": np.arange(truth.passes_J.size),
        "never tried": np.flatnonzero(lag_J == NEVER),
        f"{OTHER_RATE} known": np.flatnonzero(known_N[truth.prompt_J]),
        f"never tried, {OTHER_RATE} known": np.flatnonzero((lag_J == NEVER) & known_N[truth.prompt_J]),
    }
    for name, predictions in plain.items():
        yield from _calibration(outcomes, name, truth, predictions, parts["never tried"])
    for case in _cases(texts):
        told = outcomes
        if case.category_N is not None:
            told = replace(outcomes, episodes=tuple(replace(e, category_N=case.category_N) for e in outcomes.episodes))
        predictions = _predicted(told, case.estimator, case.columns)
        ours_J, theirs_J = (log_losses(truth, outcomes.episodes, p) for p in (predictions, plain[case.without]))
        for part, at in parts.items():
            if at.size:
                of_part = _taken(truth, at)
                found = differences(of_part, ours_J[at], {"": theirs_J[at]})[""]
                yield _figure(
                    outcomes, case.label, "log_loss", float(ours_J[at].mean()), "nats/group", part, at.size,
                    reference_name=f"{case.without} without", reference_value=float(theirs_J[at].mean()),
                )  # fmt: skip
                yield _figure(
                    outcomes, case.label, "log_loss_less_without", found.value, "nats/group", part, at.size,
                    interval=found.interval,
                )  # fmt: skip
        yield from _calibration(outcomes, case.label, truth, predictions, parts["never tried"])


def _calibration(
    outcomes: OutcomeSet, label: str, truth: Truth, predictions: Sequence[Predictions], at: np.ndarray
) -> Iterator[Figure]:
    """Of prompts never tried: the randomised PIT, covered and how far from uniform, and P(informative)."""
    if not at.size:
        return
    mean_J, variance_J = (
        _judged(outcomes, [getattr(p, name) for p in predictions])[at] for name in ("mean_RN", "variance_RN")
    )
    of_part = _taken(truth, at)
    pit_J = randomised_pit(mean_J, variance_J, of_part.passes_J.astype(float), of_part.scored_J, of_part.uniform_J)
    informative_J = informative_probability(mean_J, variance_J, int(of_part.scored_J[0]))
    values = {
        "coverage": float(np.mean((pit_J >= COVERED[0]) & (pit_J <= COVERED[1]))),
        "pit_distance_from_uniform": distance_from_uniform(pit_J),
        "informative_reliability_error": reliability(informative_J, of_part.informative_J).error,
    }
    for metric, value in values.items():
        yield _figure(outcomes, label, metric, value, "share", "never tried", at.size)


def _predicted(outcomes: OutcomeSet, name: str, columns: Mapping[str, Column]) -> list[Predictions]:
    return [replayed(name, {}, episode, columns).predictions for episode in outcomes.episodes]


def _judged(outcomes: OutcomeSet, values: Sequence[np.ndarray]) -> FloatArray:
    return np.concatenate([v[e.judged_RN] for v, e in zip(values, outcomes.episodes, strict=True)])


def _taken(truth: Truth, at: np.ndarray) -> Truth:
    columns = ("passes_J", "scored_J", "prompt_J", "uniform_J")
    return replace(truth, **{name: getattr(truth, name)[at] for name in columns})


def _figure(
    outcomes: OutcomeSet,
    label: str,
    metric: str,
    value: float,
    unit: str,
    part: str,
    count: int,
    *,
    interval: tuple[float, float] | None = None,
    reference_name: str | None = None,
    reference_value: float | None = None,
) -> Figure:
    return Figure(
        benchmark="predictors",
        case=label,
        metric=metric if part == "all" else f"{metric}, {part}",
        value=value,
        unit=unit,
        reference_name=reference_name,
        reference_value=reference_value,
        n=outcomes.num_prompts,
        seeds=len(outcomes.episodes),
        interval=interval,
        setting={"set": outcomes.name, "feed": outcomes.feed, "prompts": part, "predictions": count},
    )
