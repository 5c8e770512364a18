"""Learning again from groups of earlier steps: whose places they take, by which weights, and that they are kept."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from tests.trainer.test_keep import close, gradients, slow_gradient, standardised, with_rewards  # noqa: E402
from tests.trainer.tiny import (  # noqa: E402
    Killed,
    killed_in,
    make_config,
    make_groups,
    make_policy,
    run,
    same_state,
    told,
)
from trainer.loss import policy_loss  # noqa: E402
from trainer.past_groups import PastGroups  # noqa: E402
from trainer.rollout.base import RolloutGroup  # noqa: E402

UNCLIPPED: dict[str, Any] = {"max_grad_norm": math.inf}
MIXED, ALIKE = [1.0, 0.0, 0.25, 0.0], [1.0] * 4


def named(groups: list[RolloutGroup], step: int) -> list[RolloutGroup]:
    """The same with tickets of another step."""
    return [
        replace(group, ticket=group.ticket.model_copy(update={"ticket": f"r:0:train:{step}:0:{k}"}))
        for k, group in enumerate(groups)
    ]


def test_a_past_group_is_trained_on_by_the_weights_that_made_it(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer={**UNCLIPPED, "microbatch": 3}, loss={"keep": "popo"})
    policy, engine = make_policy(config)
    first = with_rewards(make_groups(config, policy, engine, size=2), [MIXED, ALIKE])
    figures = policy.update(first, step=0)
    assert (figures["replayed"], figures["replay_lag"]) == (0.0, 0.0)
    fresh = with_rewards(make_groups(config, policy, engine, size=2), [ALIKE, MIXED[::-1]])
    terms = [{g: a / 4 for g, a in enumerate(standardised(values))} for values in (MIXED, MIXED[::-1])]
    # The ratio is against the log-probabilities that each rollout was sampled with.
    slow = slow_gradient(policy, [first[0], fresh[1]], terms, size=2)
    pretended = slow_gradient(policy, [replace_logprobs(policy, first[0]), fresh[1]], terms, size=2)

    figures = policy.update(named(fresh, 1), step=1)

    assert close(gradients(policy), slow)
    assert not close(gradients(policy), pretended)
    assert (figures["replayed"], figures["replay_lag"]) == (1.0, 1.0)


def replace_logprobs(policy: Any, group: RolloutGroup) -> RolloutGroup:
    """The group as if the weights of now had made it."""
    rollouts = list(group.rollouts)
    policy._importance(rollouts, [0] * len(rollouts), {0})
    return replace(group, rollouts=tuple(rollouts))


def test_the_clip_is_about_the_weights_at_the_start_of_the_update_and_not_those_that_sampled() -> None:
    now, old = torch.log(torch.tensor([[0.5, 0.5]])), torch.log(torch.tensor([[0.5, 0.1]]))
    mask, one = torch.ones(1, 2, dtype=torch.bool), torch.ones(1)
    bounds = {"clip_low": 0.2, "clip_high": 0.2}

    # Token 0 by the importance of 3, at a ratio of 1; token 1 held at 1.2 by its ratio of 5, times 2.
    importance = torch.tensor([[3.0, 2.0]])
    decoupled = policy_loss(now, old, mask, one, one, **bounds, importance_BT=importance)
    assert float(decoupled.total) == pytest.approx(-(3.0 * 1.0 + 2.0 * 1.2))
    kl: dict[str, Any] = {"reference_BT": now + 0.5, "kl_coefficient": 0.3, **bounds}
    plain, weighted = (policy_loss(now, old, mask, one * 0, one, **kl, importance_BT=v) for v in (None, importance))
    assert float(plain.total) == float(weighted.total) > 0
    behind = policy_loss(now, old, mask & torch.tensor([[True, False]]), one, one, **bounds,
                         importance_BT=torch.tensor([[3.0, math.inf]]))  # fmt: skip
    assert float(behind.total) == -3.0


def test_groups_that_are_too_old_or_too_many_are_let_go(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine, size=2)
    past = PastGroups(size=3, max_lag=2)
    for step in range(3):
        past.fill(named(groups, step), [True, True], version=step)
    assert list(past.held) == ["r:0:train:1:0:1", "r:0:train:2:0:0", "r:0:train:2:0:1"]

    filled, replayed = past.fill(named(groups, 4), [False, False], version=4)
    assert [group.ticket.ticket for group in filled] == ["r:0:train:2:0:1", "r:0:train:2:0:0"]
    assert [one.lag for one in replayed] == [2, 2]
    filled, replayed = past.fill(named(groups, 5), [False, True], version=5)
    assert (replayed, filled[0].ticket.ticket) == ([], "r:0:train:5:0:0")


def test_what_is_held_is_kept_with_a_checkpoint_to_the_bit(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    policy, engine = make_policy(config)
    past, again = PastGroups(size=5, max_lag=2), PastGroups(size=5, max_lag=2)
    past.fill(make_groups(config, policy, engine, size=3), [True, False, True], version=7)

    past.save(tmp_path)
    again.load(tmp_path)

    assert again.memory == past.memory
    assert [group.ticket for group in again.held.values()] == [group.ticket for group in past.held.values()]
    for one, other in zip(past.held.values(), again.held.values(), strict=True):
        assert [list(r.logprobs) for r in one.rollouts] == [list(r.logprobs) for r in other.rollouts]
        assert [list(r.completion_ids) for r in one.rollouts] == [list(r.completion_ids) for r in other.rollouts]


def test_a_run_that_was_stopped_between_checkpoints_replays_what_it_would_have(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"loss": {"keep": "popo"}, "stop": {"steps": 6}, "checkpoints": {"every": 2}}
    whole, stopped = (make_config(tmp_path / name, **changes) for name in ("whole", "stopped"))
    _, policy = run(whole)
    with pytest.raises(Killed):
        run(stopped, watch=killed_in(4))
    _, resumed = run(stopped)

    assert told(stopped) == told(whole)
    assert same_state(policy, resumed)
    assert sum(line["replayed"] for line in told(whole) if line["kind"] == "step") > 0
