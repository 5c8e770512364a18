"""A made-up learner whose pass rates are known at every moment, for the loop that a recorded trajectory leaves open.

`simulate` trains it on what a policy draws. The log-odds of a prompt are

    own + skill[category] + ability − difficulty,

and a group that is not all alike raises its own prompt by a·x, its category's skill by b·x and everybody's ability by
c·x, x = p(1−p)·weight·(1 + noise·z), z standard normal, p the pass rate at the draw. So a prompt teaches most where its
outcomes vary, and what it teaches reaches others through b and c; held-out prompts learn by these alone. What a group
teaches does not depend on how many rollouts it has, so methods of large groups pay for what counts for nothing here.
Regressions are drawn from the seed before the run: at some steps a category's skill drops, whatever was trained.

Axes: N prompts, H held-out prompts, C categories, K groups of one step.
"""

from dataclasses import dataclass, field

import numpy as np

NUM_CATEGORIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What the learner is made of. Nobody measured these: they were set so that a uniform draw brings the held-out pass
    rate from 0.45 to 0.57 or so in 300 steps, and results are to be read together with those at half and double.
    """

    num_prompts: int = 5_000
    num_heldout: int = 500
    hopeless: float = 0.4  # share of prompts with log-odds in HOPELESS at the start
    mastered: float = 0.3  # share in MASTERED; the others are in BETWEEN
    own: float = 0.5  # a, log-odds a group at x = 1
    category: float = 0.04  # b
    everyone: float = 0.002  # c
    noise: float = 0.5
    num_regressions: int = 10
    regression: float = 0.5  # log-odds that a category loses each time


HOPELESS = (-10.0, -6.0)
BETWEEN = (-4.0, 4.0)
MASTERED = (4.5, 7.0)
CATEGORY_SD = 0.5  # log-odds by which categories differ at the start
LABEL_ABILITY, LABEL_SD = 1.0, 1.0  # log-odds
LABEL_ROLLOUTS = 128  # of a prompt; as many as AdaRFT (arXiv 2504.05520) takes


@dataclass(slots=True)
class Learner:
    """One learner; `seed` decides prompts, noise and regressions, so that all arms of a seed meet the same."""

    constants: Constants
    seed: int
    num_steps: int
    category_N: np.ndarray = field(init=False)
    own_N: np.ndarray = field(init=False)
    difficulty_N: np.ndarray = field(init=False)
    category_H: np.ndarray = field(init=False)
    difficulty_H: np.ndarray = field(init=False)
    skill_C: np.ndarray = field(init=False)
    ability: float = field(init=False, default=0.0)
    regressions: list[tuple[int, int]] = field(init=False)  # (step, category)

    def __post_init__(self) -> None:
        constants, rng = self.constants, np.random.default_rng([self.seed, 0])
        self.category_N, self.difficulty_N = self._prompts(constants.num_prompts, rng)
        self.category_H, self.difficulty_H = self._prompts(constants.num_heldout, rng)
        self.own_N = np.zeros(constants.num_prompts)
        self.skill_C = rng.normal(0.0, CATEGORY_SD, NUM_CATEGORIES)
        steps = rng.integers(1, self.num_steps, constants.num_regressions)
        categories = rng.integers(0, NUM_CATEGORIES, constants.num_regressions)
        self.regressions = list(zip(steps.tolist(), categories.tolist(), strict=True))

    def _prompts(self, num: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Categories and difficulties; the shares are exact."""
        kind = np.repeat([0, 1, 2], [round(self.constants.hopeless * num), 0, round(self.constants.mastered * num)])
        kind = rng.permutation(np.concatenate([kind, np.ones(num - len(kind), int)]))
        low, high = np.array([HOPELESS, BETWEEN, MASTERED]).T
        return rng.integers(0, NUM_CATEGORIES, num), -rng.uniform(low[kind], high[kind])

    def pass_rate(self) -> np.ndarray:
        """(N,) chance that a rollout of each prompt passes now."""
        return _sigmoid(self.own_N + self.skill_C[self.category_N] + self.ability - self.difficulty_N)

    def label(self) -> np.ndarray:
        """(N,) static difficulty: the share that another model failed, which is a little better, knows other categories
        and finds other prompts hard by LABEL_SD.
        """
        rng = np.random.default_rng([self.seed, 3])
        skill_C = LABEL_ABILITY + rng.normal(0.0, CATEGORY_SD, NUM_CATEGORIES)
        noise_N = rng.normal(0.0, LABEL_SD, len(self.difficulty_N))
        p_N = _sigmoid(skill_C[self.category_N] + noise_N - self.difficulty_N)
        return np.asarray(1.0 - rng.binomial(LABEL_ROLLOUTS, p_N) / LABEL_ROLLOUTS)

    def heldout_pass_rate(self) -> float:
        """Mean over the held-out prompts."""
        return float(_sigmoid(self.skill_C[self.category_H] + self.ability - self.difficulty_H).mean())

    def roll_out(self, step: int, row_K: np.ndarray, group_size: int | np.ndarray, refill: int = 0) -> np.ndarray:
        """(K, G) outcomes of a group of each row, G the largest group; behind a smaller one its first stands again."""
        rng = np.random.default_rng([self.seed, 1, step, refill])
        p_K = self.pass_rate()[row_K]
        size_K1 = np.broadcast_to(group_size, len(row_K))[:, None]
        place_G = np.arange(int(np.max(group_size, initial=0)))
        outcome_KG = rng.random((len(row_K), len(place_G))) < p_K[:, None]
        return np.asarray(np.where(place_G < size_K1, outcome_KG, outcome_KG[:, :1]))

    def learn(self, step: int, row_K: np.ndarray, weight_K: np.ndarray) -> None:
        """One update on informative groups of these rows, all of them of the policy as it is; then what regresses."""
        rng = np.random.default_rng([self.seed, 2, step])
        constants, p_K = self.constants, self.pass_rate()[row_K]
        noise_K = 1.0 + constants.noise * rng.standard_normal(len(row_K))
        x_K = p_K * (1.0 - p_K) * weight_K * noise_K
        np.add.at(self.own_N, row_K, constants.own * x_K)
        np.add.at(self.skill_C, self.category_N[row_K], constants.category * x_K)
        self.ability += constants.everyone * float(x_K.sum())
        for when, category in self.regressions:
            if when == step:
                self.skill_C[category] -= constants.regression


def _sigmoid(logit: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-logit)))
