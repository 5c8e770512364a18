"""A pool's profile: figures by hand, the same from the real service, and going on after an end in the middle."""

import io
import json
import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import midband
from api.schemas import Ticket
from tests.trainer.probing.test_prober import TOKENS, Scripted
from trainer.client import Client
from trainer.errors import Conflict, InvalidRequest
from trainer.probing.command import _duration, show
from trainer.probing.picture import profile_picture
from trainer.probing.profile import Group, figures, profile_pool, yields_by_size
from trainer.rollout.base import Rollout, RolloutGroup

NUM_PROMPTS = 90


def a_group(*outcomes: float, category: str | None = "a") -> Group:
    return Group(category=category, outcomes=outcomes, tokens=10 * len(outcomes), rollouts=len(outcomes), seconds=1.0)


def test_a_yield_by_hand() -> None:
    # Of the six pairs of 1, 1, 0, 0 four differ; of the single group of four, one.
    assert yields_by_size([a_group(1, 1, 0, 0)], 4) == {2: pytest.approx(4 / 6), 4: 1.0}


def test_a_yield_is_that_of_all_subsets() -> None:
    rng = np.random.default_rng(3)
    groups = [a_group(*(rng.random(6) < p).astype(float).tolist()) for p in (0.1, 0.5, 0.9)]
    found = yields_by_size(groups, 3)
    for size in (2, 3, 4):
        by_hand = np.mean([[len(set(part)) > 1 for part in combinations(g.outcomes, size)] for g in groups])
        assert found[size] == pytest.approx(by_hand)
    assert set(found) == {2, 3, 4}


def test_yields_are_unbiased_for_smaller_groups() -> None:
    rng, p = np.random.default_rng(5), 0.15
    groups = [a_group(*(rng.random(8) < p).astype(float).tolist()) for _ in range(4000)]
    truth = 1 - p**2 - (1 - p) ** 2
    # The variance of one prompt's chance is at most 1/4.
    assert yields_by_size(groups, 8)[2] == pytest.approx(truth, abs=4 * 0.5 / math.sqrt(4000))


def test_graded_outcomes_tell_no_yield_by_size() -> None:
    assert yields_by_size([a_group(0.5, 1.0)], 2) == {}


def test_the_figures_by_hand() -> None:
    groups = [a_group(1, 1), a_group(0, 0), a_group(1, 0, category="b"), a_group(category="b")]
    found = figures("p", "r", 10, 2, groups)
    assert (found.probed, found.scored) == (4, 3)
    assert (found.all_wrong, found.all_right, found.informative) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert found.histogram_B == [1, 1, 1]
    assert found.pass_rate.estimate == pytest.approx(0.5)
    assert found.tokens_per_rollout == 10
    assert (found.epoch_rollouts, found.epoch_tokens) == (20, 200)
    assert found.tokens_per_informative == pytest.approx(60)
    assert [(one.name, one.prompts, one.pass_rate, one.informative) for one in found.categories] == [
        ("a", 2, 0.5, 0.0),
        ("b", 1, 0.5, 1.0),
    ]


def test_where_nothing_teaches_an_informative_group_costs_without_end() -> None:
    assert figures("p", "r", 1, 2, [a_group(1, 1)]).tokens_per_informative == math.inf


def shown(groups: list[Group], *, prompts: int, group_size: int) -> str:
    text = io.StringIO()
    show(figures("p", "r", prompts, group_size, groups), Console(file=text, width=200))
    return text.getvalue()


def test_a_profile_says_in_words_what_it_means() -> None:
    hard = [a_group(0, 0)] * 7 + [a_group(1, 0, category="b")] + [a_group(1, 1)] * 2
    text = shown(hard, prompts=40, group_size=2)
    assert "Pool p: 10 of 40 prompts, drawn evenly, 2 rollouts each" in text
    assert "10.0 % (1.8 – 40.4)" in text  # Wilson's interval of one in ten
    assert "Drawn evenly, 10% of the groups of 2 are." in text
    assert "Most prompts are too hard: never right in 2 rollouts." in text
    assert "would bring 10.0 times as many" in text
    easy = shown([a_group(1, 1)] * 3, prompts=3, group_size=2)
    assert "Pool p: all 3 prompts, 2 rollouts each" in easy
    assert "Most prompts are mastered: always right in 2 rollouts." in easy
    assert "inf" not in easy.replace("informative", ""), "no infinite number of tokens"
    assert "times as many" not in easy


def test_categories_of_few_prompts_do_not_lead_by_chance() -> None:
    groups = [a_group(1, 0, category="few")] + [a_group(1, 0, category="many")] * 8 + [a_group(0, 0, category="many")]
    text = shown(groups, prompts=10, group_size=2)
    assert text.index("many") < text.index("few")


@pytest.mark.parametrize(("seconds", "words"), [(90.0, "90 s"), (600.0, "10 min"), (18_489.0, "5.1 h")])
def test_times_are_in_units_that_can_be_read(seconds: float, words: str) -> None:
    assert _duration(seconds) == words


def test_groups_without_any_score_are_no_profile() -> None:
    with pytest.raises(InvalidRequest, match="of 1 groups none has a score"):
        figures("p", "r", 1, 2, [a_group()])


# Against the service


@pytest.fixture
def client() -> Iterator[Client]:
    with midband.in_process() as client:
        client.create_pool("p")
        rows = [
            {"key": f"p{n}", "content": f"prompt {n}", "answer": "a", "category": "abc"[n % 3]}
            for n in range(NUM_PROMPTS)
        ]
        client.put_prompts("p", [*rows, {"key": "h", "content": "held out", "split": "heldout"}])
        yield client


def test_every_prompt_is_probed_once(client: Client) -> None:
    engine = Scripted()
    heard: list[tuple[int, int]] = []
    found = profile_pool(
        client, "p", "r", engine, policy_version=0, group_size=4, watch=lambda done, of: heard.append((done, of))
    )
    assert sorted(engine.seen) == sorted(f"p{n}" for n in range(NUM_PROMPTS))
    assert (found.prompts, found.probed, found.scored) == (NUM_PROMPTS,) * 3
    assert (found.all_wrong, found.all_right, found.informative) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert found.yields == pytest.approx({2: 2 / 9, 4: 1 / 3})
    assert found.tokens_per_rollout == TOKENS
    assert heard == [(0, 90), (64, 90), (90, 90)]
    assert client.costs("r").tokens["probe"] == TOKENS * 4 * NUM_PROMPTS


def test_some_prompts_are_drawn_evenly_and_speak_for_the_pool(client: Client) -> None:
    found = profile_pool(client, "p", "r", Scripted(), policy_version=0, group_size=4, prompts=20)
    assert (found.prompts, found.probed) == (NUM_PROMPTS, 20)
    assert found.epoch_rollouts == 4 * NUM_PROMPTS


def test_a_profile_goes_on_where_it_ended(client: Client) -> None:
    first, second, third = Scripted(fail_at=1), Scripted(), Scripted()
    with pytest.raises(KeyboardInterrupt):
        profile_pool(client, "p", "r", first, policy_version=0, group_size=4)
    found = profile_pool(client, "p", "r", second, policy_version=0, group_size=4)
    assert len(first.seen) == 64
    assert len(second.seen) == 26
    assert not set(first.seen) & set(second.seen)
    assert profile_pool(client, "p", "r", third, policy_version=0, group_size=4) == found
    assert third.seen == []


def test_what_failed_is_tried_again_by_the_next_call(client: Client) -> None:
    class Failing(Scripted):
        def generate_part(
            self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
        ) -> list[RolloutGroup]:
            groups = super().generate_part(tickets, spans, policy_version=policy_version)
            failed = Rollout(outcome=None, status="error")
            return [
                RolloutGroup(ticket=g.ticket, rollouts=(failed,) * 4) if g.ticket.prompt == "p7" else g for g in groups
            ]

    assert profile_pool(client, "p", "r", Failing(), policy_version=0, group_size=4).scored == NUM_PROMPTS - 1
    again = Scripted()
    assert profile_pool(client, "p", "r", again, policy_version=0, group_size=4).scored == NUM_PROMPTS
    assert again.seen == ["p7"]


def test_another_group_size_needs_another_run(client: Client) -> None:
    profile_pool(client, "p", "r", Scripted(), policy_version=0, group_size=4)
    with pytest.raises(Conflict, match="group_size"):
        profile_pool(client, "p", "r", Scripted(), policy_version=0, group_size=6)


def test_a_pool_without_prompts_has_no_profile(client: Client) -> None:
    client.create_pool("empty")
    with pytest.raises(InvalidRequest, match="no prompt that can be probed: pool_empty"):
        profile_pool(client, "empty", "r", Scripted(), policy_version=0, group_size=4)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra page")
    found = figures("p", "r", 10, 2, [a_group(1, 1), a_group(0, 0), a_group(1, 0)])
    path = profile_picture(found, tmp_path / "deep" / "p.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert json.dumps(found.yields)
