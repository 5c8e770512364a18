"""Held-out pass rates: a uniform draw of the held-out split, rolled out by the engine, reported and summed up.

`trainer.grpo` calls it every so many steps. The service records what it cost, and no belief or controller reads it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean
from typing import Any, Self

from api.schemas import Ticket
from trainer.client import Client
from trainer.errors import MidbandError
from trainer.rollout.base import RolloutEngine, RolloutGroup
from trainer.training.config import EvaluationSettings
from trainer.training.progress import Progress

LEVEL = 0.95
PAGE = 1_000  # prompts asked for at once
UNSORTED = "other"  # the stratum of prompts that name none

StratumOf = Callable[[Ticket], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """A pass rate over prompts that count alike, with a 95 % interval for prompts of the same kind."""

    estimate: float | None  # None: nothing was scored
    low: float
    high: float
    num_prompts: int
    num_rollouts: int  # scored ones

    @classmethod
    def of(cls, outcomes: Sequence[Sequence[float]], *, level: float = LEVEL) -> Self:
        """From the outcomes in [0, 1] of each prompt's scored rollouts; a prompt without any does not count.

        The estimate p̂ is the mean over the n prompts of their means x. Rollouts of one prompt are alike, so they are
        worth fewer independent ones: n_eff = n · p̂ (1 − p̂) / s², s² = Σ (x − p̂)² / n, which lies between n and the
        number of rollouts m (it is cut at m, where chance makes it larger, and is n where p̂ is 0 or 1). The interval
        is Wilson's with n_eff trials:

            (p̂ + z²/2n ± z · sqrt(p̂ (1 − p̂) / n + z²/4n²)) / (1 + z²/n)

        With one rollout of 0 or 1 for each prompt it is the plain Wilson interval. It speaks of prompts like these,
        not of these alone, and of the weights as they are, not of another training run.
        """
        means = [fmean(one) for one in outcomes if one]
        num_rollouts = sum(len(one) for one in outcomes)
        if not means:
            return cls(estimate=None, low=0.0, high=1.0, num_prompts=0, num_rollouts=0)
        estimate = fmean(means)
        n = _effective_number(means, estimate, num_rollouts)
        z = NormalDist().inv_cdf((1 + level) / 2)
        middle = estimate + z**2 / (2 * n)
        spread = z * math.sqrt(estimate * (1 - estimate) / n + z**2 / (4 * n**2))
        # Rounding must not leave an exact 0 or 1 outside its own interval.
        low = min(estimate, max(0.0, (middle - spread) / (1 + z**2 / n)))
        high = max(estimate, min(1.0, (middle + spread) / (1 + z**2 / n)))
        return cls(estimate=estimate, low=low, high=high, num_prompts=len(means), num_rollouts=num_rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One look at the held-out split."""

    step: int  # updates made before it
    tokens: int  # generated for training before it
    overall: PassRate
    strata: Mapping[str, PassRate]

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "evaluation", "step": self.step, "tokens": self.tokens, "overall": asdict(self.overall),
            "strata": {name: asdict(rate) for name, rate in self.strata.items()},
        }  # fmt: skip

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        strata = {name: PassRate(**rate) for name, rate in line["strata"].items()}
        return cls(step=line["step"], tokens=line["tokens"], overall=PassRate(**line["overall"]), strata=strata)


def evaluate(
    client: Client,
    run: str,
    engine: RolloutEngine,
    settings: EvaluationSettings,
    *,
    at: Progress,
    stratum_of: StratumOf,
) -> Evaluation | None:
    """The held-out pass rate as the weights are now; the index of the draw is the step. None: nothing is held out."""
    batch = client.draw(
        run,
        at.step,
        settings.size,
        policy_version=at.step,
        purpose="heldout",
        group_size=settings.group_size,
        include=["content", "answer"],
        branch=at.branch,
    )
    if not batch.tickets:
        return None
    groups = engine.generate(batch.tickets, policy_version=at.step)
    answer = client.report(run, [group.report() for group in groups], policy_version=at.step, branch=at.branch)
    for refused in answer.rejected:
        raise MidbandError(f"run {run}, evaluation {at.step}: {refused.ticket}: {refused.detail} ({refused.code})")
    by_stratum: dict[str, list[list[float]]] = {}
    for group in groups:
        by_stratum.setdefault(stratum_of(group.ticket), []).append(_scored(group))
    return Evaluation(
        step=at.step,
        tokens=at.tokens,
        overall=PassRate.of([one for outcomes in by_stratum.values() for one in outcomes]),
        strata={name: PassRate.of(by_stratum[name]) for name in sorted(by_stratum)},
    )


def strata(client: Client, pool: str, name: str | None) -> StratumOf:
    """What an evaluation is split by: the category of a prompt, or what its `meta` has under `name`.

    Tickets do not carry `meta`, so that of the held-out split is asked for here.
    """
    if name is None:
        return lambda ticket: ticket.category or UNSORTED
    known = dict(_values(client, pool, name))
    return lambda ticket: known.get(ticket.prompt, UNSORTED)


def _values(client: Client, pool: str, name: str) -> Iterator[tuple[str, str]]:
    """Key of each held-out prompt, and what its `meta` has under this name."""
    cursor: str | None = None
    while True:
        page = client.prompts(pool, split="heldout", limit=PAGE, cursor=cursor)
        for prompt in page["items"]:
            yield prompt["key"], str((prompt["meta"] or {}).get(name, UNSORTED))
        cursor = page["next_cursor"]
        if cursor is None:
            return


def _scored(group: RolloutGroup) -> list[float]:
    counted = [rollout.outcome for rollout in group.rollouts if rollout.status in ("ok", "truncated")]
    return [outcome for outcome in counted if outcome is not None]


def _effective_number(means: Sequence[float], estimate: float, num_rollouts: int) -> float:
    """Independent trials that these prompts are worth, between their number and that of their rollouts."""
    variance = fmean((mean - estimate) ** 2 for mean in means)
    single = estimate * (1 - estimate)  # never below the variance, as the means are in [0, 1]
    if single <= 0:
        return len(means)
    return min(float(num_rollouts), len(means) * single / variance) if variance > 0 else float(num_rollouts)
