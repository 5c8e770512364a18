"""Real outcomes as rounds of groups: what is told to an estimator, when, and which groups predictions are scored on.

Used by the benchmark of estimators. Each set is read from the folder that `language.recorded` finds; one that is absent
is left out. An episode is one history of one pool, replayed on a fresh estimator.
Axes: R rounds, N prompts of an episode.
"""

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet

from predictors.base import Estimator, Observations
from predictors.registry import build_estimator
from predictors.value import informative_probability
from tests.benchmarks.language import recorded

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

TRAJECTORIES = "dsr_sub_rlvr_trajectories.jsonl"
OTHER_MODEL = "adarft_deepscaler_difficulty.parquet"
ADARFT = "adarft, 128 rollouts"
NUM_VISITS, QUICK_VISITS = 44, 16  # every prompt has 44 visits
VERSIONS_PER_VISIT = 9.4  # 1,209 prompts in batches of 128: optimizer steps between two visits of a prompt
SPARSE_SHARE = 0.1
UNIFORM_SHARE = 0.1  # of the groups of the chosen feed
FEEDS = ("full", "random 10 %", "chosen 10 %")
CHOOSER = "kalman_arcsine"  # its beliefs choose for everybody: all estimators must see the same feed to be compared
OTHER_MODEL_CATEGORIES = 10  # bins of the other model's solve rate; prompts that it never saw are one category more

STATIC_ROUNDS = 5
STATIC_SHARE = 0.5  # of the prompts are revealed in a round
STATIC_GROUP = 8
QUICK_STATIC_PROMPTS = 4_000

TRAINED_VERSION = 500  # the trained model's steps, 400 or 500, stand in its name
STAGE_VERSIONS = 100  # between two models of one family that were not trained one from the other
REVEAL_STEPS = 10  # parts in which the outcomes after training are revealed
TRANSFERS = (
    ("algebra", "arc"), ("algorithmic", "algebra"), ("algorithmic", "geometry"), ("games", "algebra"), ("games", "arc"),
    ("games", "cognition"), ("games", "geometry"), ("games", "graphs"), ("logic", "graphs"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Rounds of one pool: predict every prompt at `version_R`, score where `judged_RN`, then reveal `revealed_RN`."""

    category_N: npt.NDArray[np.int32]
    version_R: Ints
    passes_RN: Ints
    scored_RN: Ints  # rollouts of each group
    revealed_RN: Bools
    judged_RN: Bools

    @property
    def num_prompts(self) -> int:
        return int(self.category_N.shape[0])

    def revealed(self, place: int, rows_B: Ints) -> Observations:
        """The groups of these rows in this round."""
        return Observations(
            rows_B=rows_B,
            passes_B=self.passes_RN[place, rows_B].astype(np.float64),
            scored_B=self.scored_RN[place, rows_B],
            version_B=np.full(rows_B.shape, self.version_R[place], dtype=np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSet:
    """One set in one feed."""

    name: str
    feed: str
    kind: str  # over time, paired, static
    episodes: tuple[Episode, ...]
    same_prompts: bool = False  # row n is the same prompt in every episode

    @property
    def has_future(self) -> bool:
        """Whether every round has groups of its own, so that later ones can be told from the one predicted."""
        return self.kind != "paired"

    @property
    def num_prompts(self) -> int:
        if self.same_prompts:
            return self.episodes[0].num_prompts
        return sum(episode.num_prompts for episode in self.episodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What is known of a set's prompts beside outcomes, in the order of its rows."""

    prompts: tuple[str, ...]
    other_rate_N: npt.NDArray[np.float64] | None  # another model's solve rate, NaN where it never saw the prompt
    other_category_N: npt.NDArray[np.int32] | None


def texts_of(outcomes: OutcomeSet) -> Texts | None:
    """The texts of a set, None where they are not at hand."""
    path = recorded(OTHER_MODEL)
    if path is None:
        return None
    columns = _parquet(path, ("prompt", "k_of_128"))
    if outcomes.name == ADARFT:
        order = _adarft_order(len(columns["prompt"]))[: outcomes.num_prompts]
        prompts = tuple(columns["prompt"][place] for place in order)
        return Texts(prompts=prompts, other_rate_N=None, other_category_N=None)
    trajectories = recorded(TRAJECTORIES)
    # The set with categories of its own is the case of them without columns.
    if trajectories is None or outcomes.kind != "over time" or outcomes.feed not in FEEDS:
        return None
    prompts = tuple(json.loads(line)["prompt"] for line in trajectories.read_text(encoding="utf-8").splitlines())
    solved = dict(zip(columns["prompt"], columns["k_of_128"], strict=True))
    return Texts(
        prompts=prompts,
        other_rate_N=np.array([float(solved.get(prompt, np.nan)) for prompt in prompts]) / 128.0,
        other_category_N=_other_model_categories(prompts),
    )


def outcome_sets(*, quick: bool, feeds: int) -> Iterator[OutcomeSet]:
    """All sets that are there; `feeds` random draws of the sparse feed, as one prompt in ten tells little by itself."""
    yield from _trajectory_sets(quick=quick, feeds=feeds)
    yield from _paired_sets()
    yield from _static_sets(quick=quick)


def _trajectory_sets(*, quick: bool, feeds: int) -> Iterator[OutcomeSet]:
    path = recorded(TRAJECTORIES)
    if path is None:
        return
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    num_visits = QUICK_VISITS if quick else NUM_VISITS
    passes_RN = np.array([row["successes"][:num_visits] for row in rows], dtype=np.int64).T
    category_N = np.zeros(len(rows), dtype=np.int32)
    judged_RN = np.ones(passes_RN.shape, dtype=bool)
    judged_RN[0] = False  # before the first visit everybody says the same

    def episode(revealed_RN: Bools, category_N: npt.NDArray[np.int32] = category_N) -> Episode:
        return Episode(
            category_N=category_N,
            version_R=np.rint(VERSIONS_PER_VISIT * np.arange(num_visits)).astype(np.int64),
            passes_RN=passes_RN,
            scored_RN=np.full(passes_RN.shape, STATIC_GROUP, dtype=np.int64),
            revealed_RN=revealed_RN,
            judged_RN=judged_RN,
        )

    def named(feed: str, episodes: Sequence[Episode]) -> OutcomeSet:
        return OutcomeSet(
            name="rlvr trajectories", feed=feed, kind="over time", episodes=tuple(episodes), same_prompts=True
        )

    everything = np.ones(passes_RN.shape, dtype=bool)
    sparse = [_random_feed(passes_RN.shape, seed) for seed in range(feeds)]
    yield named(FEEDS[0], [episode(everything)])
    yield named(FEEDS[1], [episode(revealed_RN) for revealed_RN in sparse])
    yield named(FEEDS[2], [episode(_chosen_feed(episode(everything), seed)) for seed in range(feeds)])
    other_N = _other_model_categories([row["prompt"] for row in rows])
    if other_N is not None:
        yield named(f"{FEEDS[1]}, other model's", [episode(revealed_RN, other_N) for revealed_RN in sparse])


def _random_feed(shape: tuple[int, ...], seed: int) -> Bools:
    """A tenth of the prompts at each visit, the same number each time."""
    rng = np.random.default_rng([seed, 1])
    num_visits, num_prompts = shape
    order_RN = np.argsort(rng.random((num_visits, num_prompts)), axis=1)
    revealed_RN = np.zeros(shape, dtype=bool)
    np.put_along_axis(revealed_RN, order_RN[:, : round(SPARSE_SHARE * num_prompts)], True, axis=1)
    return revealed_RN


def _chosen_feed(full: Episode, seed: int) -> Bools:
    """A tenth of the prompts at each visit: nine parts of those most likely informative, one part uniform."""
    rng = np.random.default_rng([seed, 2])
    chooser: Estimator = build_estimator(CHOOSER, {})
    chooser.resize(full.category_N)
    size = round(SPARSE_SHARE * full.num_prompts)
    num_uniform = round(UNIFORM_SHARE * size)
    revealed_RN = np.zeros(full.passes_RN.shape, dtype=bool)
    for place, version in enumerate(full.version_R):
        chooser.advance(int(version))
        beliefs = chooser.beliefs()
        wanted_N = informative_probability(beliefs.mean_N, beliefs.variance_N, STATIC_GROUP)
        wanted_N[rng.permutation(full.num_prompts)[:num_uniform]] = 2.0
        ties_N = rng.random(full.num_prompts)
        rows_B = np.lexsort((ties_N, -wanted_N))[:size]
        revealed_RN[place, rows_B] = True
        chooser.observe(full.revealed(place, rows_B))
    return revealed_RN


def _other_model_categories(prompts: Sequence[str]) -> npt.NDArray[np.int32] | None:
    """Category by another model's solve rate of the same text, in equal parts; the last one is "never seen"."""
    path = recorded(OTHER_MODEL)
    if path is None:
        return None
    columns = _parquet(path, ("prompt", "k_of_128"))
    solved = dict(zip(columns["prompt"], columns["k_of_128"], strict=True))
    rate_N = np.array([float(solved.get(prompt, np.nan)) for prompt in prompts])
    known_N = np.isfinite(rate_N)
    edges = np.quantile(rate_N[known_N], np.arange(1, OTHER_MODEL_CATEGORIES) / OTHER_MODEL_CATEGORIES)
    category_N = np.searchsorted(edges, rate_N).astype(np.int32)
    category_N[~known_N] = OTHER_MODEL_CATEGORIES
    return category_N


def _paired_sets() -> Iterator[OutcomeSet]:
    path = recorded("reasoning_gym_rl_transfer.csv.gz")
    if path is not None:
        runs: dict[str, dict[str, tuple[str, int, int]]] = {}
        for row in _csv(path):
            question = f"{row['task']}/{row['idx']}/{row['question_sha1_10']}"
            runs.setdefault(row["run"], {})[question] = (row["task"], int(row["k"]), int(row["n"]))
        episodes = [
            _transfer(runs[f"inter_original_to_{target}"], runs[f"inter_{source}_to_{target}"], seed)
            for seed, (source, target) in enumerate(TRANSFERS)
        ]
        yield OutcomeSet(
            name="reasoning gym transfers", feed="before, then after", kind="paired", episodes=tuple(episodes)
        )
    path = recorded("gsm8k_test_openai_4models.csv")
    if path is not None:
        names = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
        passes_SN = np.array([[int(row[name]) for row in _csv(path)] for name in names])
        episode = _stages(passes_SN, np.ones_like(passes_SN), np.zeros(passes_SN.shape[1], np.int32), STAGE_VERSIONS, 0)
        yield OutcomeSet(name="gsm8k, four models", feed="model after model", kind="paired", episodes=(episode,))


def _transfer(
    before: Mapping[str, tuple[str, int, int]], after: Mapping[str, tuple[str, int, int]], seed: int
) -> Episode:
    """The same questions before and after training on other tasks; the task is the category."""
    both = [question for question in before if question in after]
    passes_SN = np.array([[stage[question][1] for question in both] for stage in (before, after)])
    scored_SN = np.array([[stage[question][2] for question in both] for stage in (before, after)])
    return _stages(passes_SN, scored_SN, _codes([before[question][0] for question in both]), TRAINED_VERSION, seed)


def _stages(
    passes_SN: Ints, scored_SN: Ints, category_N: npt.NDArray[np.int32], versions_apart: int, seed: int
) -> Episode:
    """Stages S, each revealed in REVEAL_STEPS parts; from the second on, groups are judged before they are revealed."""
    rng = np.random.default_rng([seed, 3])
    num_stages, num_prompts = passes_SN.shape
    part_SN = np.array([rng.permutation(num_prompts) * REVEAL_STEPS // num_prompts for _ in range(num_stages)])
    revealed_RN = (part_SN[:, None, :] == np.arange(REVEAL_STEPS)[None, :, None]).reshape(-1, num_prompts)
    stage_R = np.repeat(np.arange(num_stages), REVEAL_STEPS)
    return Episode(
        category_N=category_N,
        version_R=stage_R * versions_apart,
        passes_RN=passes_SN[stage_R],
        scored_RN=scored_SN[stage_R],
        revealed_RN=revealed_RN,
        judged_RN=revealed_RN & (stage_R > 0)[:, None],
    )


def _static_sets(*, quick: bool) -> Iterator[OutcomeSet]:
    readers: tuple[tuple[str, str, int, Callable[[Path], Sequence[_Counts]]], ...] = (
        (ADARFT, OTHER_MODEL, 8, _read_other_model),
        ("humaneval, 100 rollouts", "humaneval_codegen16b_n100.csv", 8, _read_humaneval),
        ("smollm2, 32 rollouts", "smollm2_135m_samples.jsonl", 8, _read_families),
        ("cruxeval, 10 rollouts", "cruxeval_codellama7b_n10.csv", 2, _read_cruxeval),
        ("math100, 8 rollouts", "math100_qwen25math_n8.jsonl", 2, _read_levels),
        ("reasoning gym, 3 rollouts", "reasoning_gym_zero_shot.csv.gz", 1, _read_zero_shot),
    )
    for name, file, group_size, read in readers:
        path = recorded(file)
        if path is not None:
            episodes = [_static(counts, group_size, seed, quick) for seed, counts in enumerate(read(path))]
            yield OutcomeSet(name=name, feed="half at a time", kind="static", episodes=tuple(episodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Passes among so many rollouts of each prompt, all by one model."""

    category_N: npt.NDArray[np.int32]
    passes_N: Ints
    num_rollouts: int


def _static(counts: _Counts, group_size: int, seed: int, quick: bool) -> Episode:
    """Groups drawn from a prompt's rollouts without replacement; half of the prompts are revealed in each round."""
    rng = np.random.default_rng([seed, 4])
    kept = slice(0, QUICK_STATIC_PROMPTS if quick else None)
    category_N, left_N = counts.category_N[kept], counts.passes_N[kept].copy()
    num_rounds = min(STATIC_ROUNDS, counts.num_rollouts // group_size)
    passes_RN = np.empty((num_rounds, left_N.size), dtype=np.int64)
    for place in range(num_rounds):
        rollouts = counts.num_rollouts - place * group_size
        passes_RN[place] = rng.hypergeometric(left_N, rollouts - left_N, group_size)
        left_N -= passes_RN[place]
    judged_RN = np.ones(passes_RN.shape, dtype=bool)
    judged_RN[0] = False
    return Episode(
        category_N=category_N,
        version_R=np.zeros(num_rounds, dtype=np.int64),
        passes_RN=passes_RN,
        scored_RN=np.full(passes_RN.shape, group_size, dtype=np.int64),
        revealed_RN=rng.random(passes_RN.shape) < STATIC_SHARE,
        judged_RN=judged_RN,
    )


def _read_other_model(path: Path) -> list[_Counts]:
    passes_N = np.asarray(_parquet(path, ("k_of_128",))["k_of_128"], dtype=np.int64)
    order = _adarft_order(passes_N.size)
    return [_Counts(category_N=np.zeros(order.size, np.int32), passes_N=passes_N[order], num_rollouts=128)]


def _adarft_order(size: int) -> Ints:
    """The file is ordered by its splits."""
    return np.random.default_rng(5).permutation(size)


def _read_humaneval(path: Path) -> list[_Counts]:
    passes_N = np.array([int(row["k"]) for row in _csv(path)])
    return [_Counts(category_N=np.zeros(passes_N.size, np.int32), passes_N=passes_N, num_rollouts=100)]


def _read_families(path: Path) -> list[_Counts]:
    return [_json_counts(path, category="family")]


def _read_levels(path: Path) -> list[_Counts]:
    return [_json_counts(path, category="level")]


def _read_cruxeval(path: Path) -> list[_Counts]:
    rows = list(_csv(path))
    passes_N = np.array([int(row["k"]) for row in rows])
    return [_Counts(category_N=_codes([row["task"] for row in rows]), passes_N=passes_N, num_rollouts=10)]


def _read_zero_shot(path: Path) -> list[_Counts]:
    """One episode for each model that answered three times."""
    by_model: dict[str, list[dict[str, str]]] = {}
    for row in _csv(path):
        if row["n"] == "3":
            by_model.setdefault(row["model"], []).append(row)
    return [
        _Counts(
            category_N=_codes([row["task"] for row in rows]),
            passes_N=np.array([int(row["k"]) for row in rows]),
            num_rollouts=3,
        )
        for rows in by_model.values()
    ]


def _json_counts(path: Path, *, category: str) -> _Counts:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return _Counts(
        category_N=_codes([row[category] for row in rows]),
        passes_N=np.array([row["k"] for row in rows], dtype=np.int64),
        num_rollouts=rows[0]["n"],
    )


def _codes(names: Sequence[str]) -> npt.NDArray[np.int32]:
    return np.unique(np.asarray(names), return_inverse=True)[1].astype(np.int32)


def _csv(path: Path) -> Iterator[dict[str, str]]:
    whole = path.read_bytes()
    text = (gzip.decompress(whole) if path.suffix == ".gz" else whole).decode("utf-8")
    yield from csv.DictReader(text.splitlines())


def _parquet(path: Path, columns: Sequence[str]) -> Mapping[str, list[Any]]:
    table: Mapping[str, list[Any]] = pyarrow.parquet.read_table(path, columns=list(columns)).to_pydict()
    return table
