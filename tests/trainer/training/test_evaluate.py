"""Held-out pass rates and their intervals: by hand, against Wilson's plain form, and what they cover."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

import midband
from api.schemas import Ticket
from tests.trainer.factories import make_ticket
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup
from trainer.training.config import EvaluationSettings
from trainer.training.evaluate import Evaluation, PassRate, evaluate, strata
from trainer.training.progress import Progress

Z = 1.959963984540054


def wilson(passes: int, trials: int) -> tuple[float, float]:
    """As textbooks have it."""
    p = passes / trials
    middle = (passes + Z**2 / 2) / (trials + Z**2)
    spread = Z * math.sqrt(trials) / (trials + Z**2) * math.sqrt(p * (1 - p) + Z**2 / (4 * trials))
    return max(0.0, middle - spread), min(1.0, middle + spread)


@pytest.mark.parametrize(("passes", "trials"), [(1, 4), (5, 10), (99, 100), (0, 7), (7, 7), (0, 1)])
def test_one_rollout_a_prompt_gives_the_plain_wilson_interval(passes: int, trials: int) -> None:
    rate = PassRate.of([[1.0]] * passes + [[0.0]] * (trials - passes))
    assert (rate.low, rate.high) == pytest.approx(wilson(passes, trials), abs=1e-12)
    assert (rate.estimate, rate.num_prompts, rate.num_rollouts) == (passes / trials, trials, trials)


def test_rollouts_that_agree_within_prompts_are_worth_no_more_than_prompts() -> None:
    # Four of ten prompts always pass, the others never: eighty rollouts say no more than ten.
    rate = PassRate.of([[1.0] * 8] * 4 + [[0.0] * 8] * 6)
    assert (rate.low, rate.high) == pytest.approx(wilson(4, 10))


def test_rollouts_of_prompts_that_are_alike_are_worth_as_many() -> None:
    # Every prompt passes half of the time: twenty prompts of four are eighty trials, and never more.
    rate = PassRate.of([[1.0, 0.0, 1.0, 0.0]] * 20)
    assert (rate.low, rate.high) == pytest.approx(wilson(40, 80))


def test_the_effective_number_by_hand() -> None:
    # Means 1, ½, 0, 0: p̂ = 3/8, s² = (25 + 1 + 9 + 9) / 64 / 4 = 11/64, n_eff = 4 · (15/64) / (11/64) = 60/11.
    rate = PassRate.of([[1, 1], [1, 0], [0, 0], [0, 0]])
    n, p = 60 / 11, 3 / 8
    middle, spread = p + Z**2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    assert rate.estimate == p
    assert rate.low == pytest.approx((middle - spread) / (1 + Z**2 / n))
    assert rate.high == pytest.approx((middle + spread) / (1 + Z**2 / n))


def test_prompts_count_alike_however_many_rollouts_were_scored() -> None:
    rate = PassRate.of([[1.0], [0.0, 0.0, 0.0], []])
    assert (rate.estimate, rate.num_prompts, rate.num_rollouts) == (0.5, 2, 4)


def test_nothing_scored_is_no_estimate() -> None:
    rate = PassRate.of([[], []])
    assert (rate.estimate, rate.low, rate.high, rate.num_prompts) == (None, 0.0, 1.0, 0)


def test_the_interval_holds_its_estimate_and_stays_in_range() -> None:
    rng = random.Random(1)
    for _ in range(500):
        outcomes = [[rng.choice([0.0, 1.0, rng.random()]) for _ in range(rng.randint(1, 4))] for _ in range(5)]
        rate = PassRate.of(outcomes)
        assert rate.estimate is not None
        assert 0 <= rate.low <= rate.estimate <= rate.high <= 1


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    # Prompts of very different pass rates, four rollouts of each: what holds for independent trials would not do here.
    rng = random.Random(2)
    trials, covered, naive = 1_500, 0, 0
    for _ in range(trials):
        rates = [rng.betavariate(0.3, 0.5) for _ in range(60)]  # mean 3/8
        outcomes = [[float(rng.random() < p) for _ in range(4)] for p in rates]
        rate = PassRate.of(outcomes)
        covered += rate.low <= 3 / 8 <= rate.high
        low, high = wilson(int(sum(map(sum, outcomes))), 240)
        naive += low <= 3 / 8 <= high
    error = math.sqrt(0.95 * 0.05 / trials)
    assert abs(covered / trials - 0.95) < 4 * error + 0.01  # Wilson's interval is an approximation
    assert naive / trials < 0.9


class Coin(RolloutEngine):
    """Passes by the prompt's number; one rollout of `p9` is never scored, one of `p8` is an error."""

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        return [
            RolloutGroup(ticket=ticket, rollouts=tuple(self._rollout(ticket, g) for g in range(ticket.group_size)))
            for ticket in tickets
        ]

    def _rollout(self, ticket: Ticket, g: int) -> Rollout:
        assert ticket.purpose == "heldout"
        assert (ticket.content, ticket.answer) == (f"question {ticket.prompt}", "1")
        if ticket.prompt == "p9" and g == 0:
            return Rollout(outcome=None, status="unscored", tokens=5)
        if ticket.prompt == "p8" and g == 0:
            return Rollout(outcome=1.0, status="error", tokens=5)
        return Rollout(outcome=float(int(ticket.prompt[1:]) < 4), tokens=5)


def rows(split: str = "heldout") -> list[dict[str, Any]]:
    return [
        {
            "key": f"p{n}", "content": f"question p{n}", "answer": "1", "category": "even" if n % 2 == 0 else "odd",
            "split": split, "meta": {"level": "low" if n < 6 else "high"} if n != 5 else {},
        }
        for n in range(10)
    ]  # fmt: skip


def test_an_evaluation_on_the_service() -> None:
    settings = EvaluationSettings(size=100, group_size=3)
    at = Progress(step=7, tokens=1_234)
    with midband.in_process() as client:
        client.create_pool("p")
        client.put_prompts("p", [*rows(), {"key": "t", "content": "to train on", "answer": "1"}])
        client.create_run("r", pool="p")
        found = evaluate(client, "r", Coin(), settings, at=at, stratum_of=strata(client, "p", None))
        again = evaluate(client, "r", Coin(), settings, at=at, stratum_of=strata(client, "p", "level"))
        info, costs, beliefs = client.run("r"), client.costs("r"), client.beliefs("r")
    assert found is not None
    assert again is not None
    assert (found.step, found.tokens) == (7, 1_234)
    assert found.overall == again.overall
    assert (found.overall.estimate, found.overall.num_prompts, found.overall.num_rollouts) == (0.4, 10, 28)
    assert {name: rate.estimate for name, rate in found.strata.items()} == {"even": 0.4, "odd": 0.4}
    assert {name: (rate.estimate, rate.num_prompts) for name, rate in again.strata.items()} == {
        "high": (0, 4), "low": (0.8, 5), "other": (0, 1),
    }  # fmt: skip
    assert info.rollouts.reported == 30  # the second look was the same draw: nothing counts twice
    assert costs.tokens["heldout"] == 150
    assert set(beliefs["n_eff"]) == {0.0}
    assert Evaluation.from_json(found.to_json()) == found


def test_a_pool_that_holds_nothing_out_has_no_evaluation() -> None:
    with midband.in_process() as client:
        client.create_pool("p")
        client.put_prompts("p", rows("train"))
        client.create_run("r", pool="p")
        settings, at = EvaluationSettings(), Progress()
        assert evaluate(client, "r", Coin(), settings, at=at, stratum_of=strata(client, "p", None)) is None


def test_a_prompt_without_a_category_has_a_stratum_all_the_same() -> None:
    with midband.in_process() as client:
        assert strata(client, "p", None)(make_ticket("a")) == "other"
        assert strata(client, "p", None)(make_ticket("a", category="sums")) == "sums"
