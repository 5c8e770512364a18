"""What `loss.keep` does to an update: its gradient against a slow one, and what else it changes."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from tests.trainer.tiny import make_config, make_groups, make_policy, run, service  # noqa: E402
from trainer.errors import InvalidRequest  # noqa: E402
from trainer.finished.duplicate import duplicate_informative  # noqa: E402
from trainer.policy import Policy, is_informative  # noqa: E402
from trainer.rollout.base import Rollout, RolloutGroup  # noqa: E402
from trainer.training.checkpoints import begin  # noqa: E402
from trainer.training.config import KeepSettings  # noqa: E402
from trainer.training.metrics import Metrics  # noqa: E402

UNCLIPPED: dict[str, Any] = {"max_grad_norm": math.inf}


def gradients(policy: Policy) -> Any:
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters.values()]).double()


def with_rewards(groups: list[RolloutGroup], rewards: list[list[float]]) -> list[RolloutGroup]:
    return [
        replace(
            group,
            rollouts=tuple(
                replace(rollout, outcome=value) for rollout, value in zip(group.rollouts, values, strict=True)
            ),
        )
        for group, values in zip(groups, rewards, strict=True)
    ]


def cut(rollout: Rollout, length: int) -> Rollout:
    return replace(rollout, completion_ids=rollout.completion_ids[:length], logprobs=rollout.logprobs[:length])


def slow_gradient(policy: Policy, groups: list[RolloutGroup], terms: list[dict[int, float]], size: int) -> Any:
    """Of Σ over groups of weight/size · Σ over rollouts of their coefficient · the mean of the ratio over tokens."""
    policy.model.zero_grad()
    for group, coefficients in zip(groups, terms, strict=True):
        for place, coefficient in coefficients.items():
            rollout = group.rollouts[place]
            logits = policy.model(torch.tensor([[*rollout.prompt_ids, *rollout.completion_ids]])).logits[0]
            logp = torch.log_softmax(logits.double(), dim=-1)
            first = len(rollout.prompt_ids)
            chosen = torch.stack([logp[first + t - 1, token] for t, token in enumerate(rollout.completion_ids)])
            ratio = (chosen - torch.tensor(rollout.logprobs).double()).exp()
            (-(group.ticket.weight or 1.0) / size * coefficient * ratio.mean()).backward()
    return gradients(policy)


def close(one: Any, other: Any) -> bool:
    return bool((one - other).norm() <= 1e-5 * other.norm())


def standardised(values: list[float]) -> list[float]:
    deviation = float(np.std(values, ddof=1)) + 1e-4
    return [(value - float(np.mean(values))) / deviation for value in values]


# Rewards of two groups of four, and by rule the coefficient of each rollout that is kept.
REWARDS = [[1.0, 0.0, 0.25, 0.0], [1.0, 1.0, 1.0, 0.0]]
PAIR = standardised([1.0, 0.0])
FIRST, SECOND = standardised(REWARDS[0]), standardised(REWARDS[1])
TERMS: dict[str, list[dict[int, float]]] = {
    # The largest and the smallest, compared with each other; a mean over two.
    "pods": [{0: PAIR[0] / 2, 1: PAIR[1] / 2}, {2: PAIR[0] / 2, 3: PAIR[1] / 2}],
    # The largest |A| of the group, 0.6875 and 0.3125 of reward, 0.75 and 0.25; a mean over two.
    "cppo": [{0: FIRST[0] / 2, 1: FIRST[1] / 2}, {3: SECOND[3] / 2, 0: SECOND[0] / 2}],
    # Variances 4·q(1 − q): 0.859 and 0.75.
    "vcrl": [{g: FIRST[g] / 4 for g in range(4)}, {}],
}


@pytest.mark.parametrize("rule", TERMS)
def test_the_gradient_of_what_is_kept_is_the_slow_one(tmp_path: Path, rule: str) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED, loss={"keep": rule})
    policy, engine = make_policy(config)
    groups = with_rewards(make_groups(config, policy, engine, size=2), REWARDS)
    slow = slow_gradient(policy, groups, TERMS[rule], size=2)

    policy.update(groups, step=0)

    assert close(gradients(policy), slow)


def test_the_shortest_are_compared_with_each_other_and_the_others_stay_in_the_mean(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED, loss={"keep": {"rule": "gfpo-short", "share": 0.75}})
    policy, engine = make_policy(config)
    lengths = [[(k + g) % 3 + 1 for g in range(4)] for k in range(6)]
    groups = [
        replace(
            group, rollouts=tuple(cut(rollout, length) for rollout, length in zip(group.rollouts, row, strict=True))
        )
        for group, row in zip(make_groups(config, policy, engine), lengths, strict=True)
    ]
    terms = []
    for group, row in zip(groups, lengths, strict=True):
        kept = sorted(np.argsort(row, kind="stable")[:3].tolist())
        values = [group.rollouts[place].outcome or 0.0 for place in kept]
        differs = max(values) > min(values)
        terms.append({p: a / 4 for p, a in zip(kept, standardised(values), strict=True)} if differs else {})
    slow = slow_gradient(policy, groups, terms, size=6)

    policy.update(groups, step=0)

    assert close(gradients(policy), slow)


def test_informative_groups_stand_in_for_degenerate_ones_with_their_own_weights(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED, loss={"keep": "duplicate"})
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    source = duplicate_informative(
        np.array([is_informative(group) for group in groups]), np.random.default_rng([config.seed, 5])
    )
    assert source is not None
    assert source.tolist() != list(range(6))
    policy.update(groups, step=5)
    filled = gradients(policy)
    plain, _ = make_policy(make_config(tmp_path, optimizer=UNCLIPPED))
    plain.update([groups[place] for place in source.tolist()], step=5)

    assert torch.equal(filled, gradients(plain))


def test_where_too_few_groups_are_informative_to_copy_the_weights_stay(tmp_path: Path) -> None:
    config = make_config(tmp_path, loss={"keep": "duplicate"})
    policy, engine = make_policy(config)
    groups = with_rewards(make_groups(config, policy, engine, size=3), [[1.0] * 4, [0.0] * 4, [1.0, 0.0, 0.0, 0.0]])
    policy.update(make_groups(config, policy, engine), step=0)
    before = {name: parameter.detach().clone() for name, parameter in policy.parameters.items()}

    figures = policy.update(groups, step=1)

    assert all(torch.equal(parameter, before[name]) for name, parameter in policy.parameters.items())
    assert figures["gradient_norm"] == 0.0
    assert set(figures) == set(policy.update(make_groups(config, policy, engine), step=2))


def test_a_run_that_keeps_a_part_says_that_no_weights_were_applied(tmp_path: Path) -> None:
    config = make_config(tmp_path, stop={"steps": 2}, loss={"keep": "pods"})
    run(config)

    with service(tmp_path) as client:
        events = [line for line in client.events("tiny") if line["kind"] == "step_recorded"]
    assert [line["event"]["weights_applied"] for line in events] == [False, False]


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        ({"rule": "all", "share": 0.5}, "share has no effect with rule 'all': leave it out"),
        ({"rule": "pods", "memory": 8}, "memory has no effect with rule 'pods'"),
        ({"rule": "pods", "threshold": 0.5}, "threshold has no effect with rule 'pods'"),
        ({"rule": "pods", "share": 0.0}, "greater than 0"),
        ("best", "'pods'"),
    ],
)
def test_a_part_that_cannot_be_or_changes_nothing_is_refused(tmp_path: Path, keep: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_config(tmp_path, loss={"keep": keep})


def test_a_rule_by_its_name_is_short_for_a_table(tmp_path: Path) -> None:
    assert make_config(tmp_path, loss={"keep": "pods"}).loss.keep == KeepSettings(rule="pods")


def test_a_run_from_before_there_was_the_part_goes_on_and_one_that_changes_it_does_not(tmp_path: Path) -> None:
    config = make_config(tmp_path, stop={"steps": 1})
    run(config)
    assert '"keep"' not in (tmp_path / "config.json").read_text(encoding="utf-8")
    changed = make_config(tmp_path, stop={"steps": 2}, loss={"keep": "pods"})
    with service(tmp_path) as client, pytest.raises(InvalidRequest, match=r"loss\.keep\.rule: None then, 'pods' now"):
        begin(changed, client, make_policy(changed)[0], Metrics(tmp_path / "metrics.jsonl"))
