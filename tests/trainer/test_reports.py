import math

import numpy as np
import pytest

from tests.trainer.factories import Script, make_client, make_ticket, ok
from trainer.errors import InvalidRequest
from trainer.reports import as_group, group

ANSWER = {"applied": 0, "duplicate": 0, "late": 0, "rejected": [], "groups": []}


def sent_groups(*groups: object) -> list[dict[str, object]]:
    """What a report puts on the wire."""
    network = Script(ok(ANSWER))
    make_client(network).report("r", groups)  # type: ignore[arg-type]
    sent: list[dict[str, object]] = network.sent()["groups"]
    return sent


def test_outcomes_become_a_group_that_closes_its_ticket() -> None:
    assert sent_groups(group(make_ticket("a", group_size=2), [1, 0])) == [
        {"ticket": "t-a", "final": True, "rollouts": [{"outcome": 1.0}, {"outcome": 0.0}]}
    ]


def test_no_score_goes_out_as_null_whatever_it_is_called() -> None:
    scores = [None, math.nan, np.float32("nan"), 1.0]
    (sent,) = sent_groups(group("t", scores, rewards=[math.nan, 0.5, None, 1]))
    assert sent["rollouts"] == [
        {"outcome": None, "reward": None},
        {"outcome": None, "reward": 0.5},
        {"outcome": None, "reward": None},
        {"outcome": 1.0, "reward": 1.0},
    ]


def test_mappings_are_cleaned_like_groups() -> None:
    rollout = {"n": 0, "outcome": math.nan, "reward": math.nan, "seconds": math.nan, "rewards": {"format": math.nan}}
    (sent,) = sent_groups({"ticket": "t", "rollouts": [rollout]})
    expected = {"n": 0, "outcome": None, "reward": None, "seconds": None, "rewards": {"format": None}}
    assert sent == {"ticket": "t", "rollouts": [expected]}
    assert math.isnan(rollout["outcome"])  # type: ignore[arg-type]


def test_every_column_lands_on_its_rollout() -> None:
    made = group(
        "t",
        np.array([1.0, 0.0]),
        rewards=np.array([0.9, -0.1]),
        tokens=np.array([3, 4]),
        seconds=[0.5, None],
        statuses=[None, "truncated"],
        named_rewards=[{"format": 1}, None],
        final=False,
        policy_version=[3, 4],
        attempt=2,
    )
    assert made.model_dump(exclude_unset=True) == {
        "ticket": "t",
        "final": False,
        "policy_version": [3, 4],
        "attempt": 2,
        "rollouts": [
            {"outcome": 1.0, "reward": 0.9, "tokens": 3, "seconds": 0.5, "rewards": {"format": 1.0}},
            {"outcome": 0.0, "reward": -0.1, "tokens": 4, "status": "truncated"},
        ],
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"outcomes": [1, 0, math.inf]}, "ticket t-a, rollout 2: outcome is inf"),
        ({"outcomes": [1], "rewards": [-math.inf]}, "ticket t-a, rollout 0: reward is -inf"),
        ({"outcomes": [1], "named_rewards": [{"format": math.inf}]}, "ticket t-a, rollout 0: reward 'format' is inf"),
        ({"outcomes": [0, 1.5]}, r"ticket t-a: rollouts.1.outcome: .*got 1.5"),
        ({"outcomes": ["yes"]}, "ticket t-a, rollout 0: outcome must be a number or None, got 'yes'"),
        ({"outcomes": ["1"]}, "ticket t-a, rollout 0: outcome must be a number or None, got '1'"),
        ({"outcomes": [1, 0], "tokens": [5]}, "ticket t-a: 2 outcomes but 1 values of tokens"),
        ({"outcomes": [1] * 9}, "ticket t-a is for 8 rollouts, got 9"),
        ({"outcomes": [1], "tokens": [-1]}, "ticket t-a: rollouts.0.tokens"),
        ({"final": False}, "a group needs rollouts"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(values: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        group(make_ticket("a"), **values)  # type: ignore[arg-type]


def test_nothing_is_sent_when_one_group_cannot_be() -> None:
    network = Script(ok(ANSWER))
    with pytest.raises(InvalidRequest, match="ticket u, rollout 1"):
        make_client(network).report(
            "r", [group("t", [1]), {"ticket": "u", "rollouts": [{"outcome": 1}, {"outcome": math.inf}]}]
        )
    assert network.requests == []


def test_a_mapping_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"ticket t: rollouts.0.sucess"):
        as_group({"ticket": "t", "rollouts": [{"outcome": 1, "sucess": 1}]})
    with pytest.raises(InvalidRequest, match="rollouts must be a list"):
        as_group({"ticket": "t", "rollouts": 3})


def test_an_empty_report_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="groups"):
        sent_groups()
