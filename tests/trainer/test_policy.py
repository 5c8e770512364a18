"""The update of the weights: its gradient against a slow one, what is left out of it, and how it is kept."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from tests.trainer.tiny import make_config, make_groups, make_model, make_model_of_places, make_policy, same_state  # noqa: E402
from trainer.errors import InvalidRequest, MidbandError  # noqa: E402
from trainer.policy import Policy, reward_of  # noqa: E402
from trainer.rollout.base import Rollout, RolloutGroup  # noqa: E402

UNCLIPPED: dict[str, Any] = {"max_grad_norm": math.inf}


def gradients(policy: Policy) -> Any:
    """All gradients as one vector, in float64."""
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters.values()]).double()


def slow_gradient(policy: Policy, groups: list[RolloutGroup]) -> Any:
    """Of the loss per prompt with GRPO's advantages, every rollout by itself and without padding."""
    policy.model.zero_grad()
    for group in groups:
        rewards = [rollout.outcome or 0.0 for rollout in group.rollouts]
        mean = sum(rewards) / len(rewards)
        std = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
        for rollout, reward in zip(group.rollouts, rewards, strict=True):
            ids = torch.tensor([[*rollout.prompt_ids, *rollout.completion_ids]])
            logits = policy.model(ids).logits[0] / policy.config.model.temperature
            logp = torch.log_softmax(logits.double(), dim=-1)
            first = len(rollout.prompt_ids)
            chosen = torch.stack([logp[first + t - 1, token] for t, token in enumerate(rollout.completion_ids)])
            ratio = (chosen - torch.tensor(rollout.logprobs).double()).exp()
            weight = (group.ticket.weight or 1.0) / (len(groups) * len(group.rollouts))
            (-weight * (reward - mean) / (std + 1e-4) * ratio.mean()).backward()
    return gradients(policy)


def close(one: Any, other: Any, relative: float = 1e-5) -> bool:
    return bool((one - other).norm() <= relative * other.norm())


@pytest.mark.parametrize("make", [make_model, make_model_of_places])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_gradient_is_the_slow_one(tmp_path: Path, temperature: float, make: Callable[[], Any]) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED, model={"temperature": temperature})
    policy, engine = make_policy(config, model=make())
    groups = make_groups(config, policy, engine)
    slow = slow_gradient(policy, groups)
    figures = policy.update(groups, step=0)
    assert close(gradients(policy), slow)
    assert figures["gradient_norm"] == pytest.approx(float(slow.norm()), rel=1e-5)
    # The sampler and the trainer see the same probabilities.
    assert figures["log_ratio"] < 1e-6


def test_groups_of_different_sizes_each_count_as_one_prompt(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine, group_sizes=[2, 3, 7, 4, 5, 2])
    assert [len(group.rollouts) for group in groups] == [2, 3, 7, 4, 5, 2]
    slow = slow_gradient(policy, groups)
    policy.update(groups, step=0)
    assert close(gradients(policy), slow)


def test_neither_the_size_of_the_pieces_nor_leaving_out_degenerate_groups_changes_the_gradient(tmp_path: Path) -> None:
    found = []
    for size in (1, 5, 1_000):
        config = make_config(tmp_path, optimizer={**UNCLIPPED, "microbatch": size})
        policy, engine = make_policy(config)
        policy.update(make_groups(config, policy, engine), step=0)
        found.append(gradients(policy))
    assert close(found[0], found[2])
    assert close(found[1], found[2])


def test_degenerate_groups_stay_in_the_mean(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    informative = [group for k, group in enumerate(groups) if k % 3]
    policy.update(groups, step=0)
    all_of_them = gradients(policy)
    policy, engine = make_policy(config)
    policy.update(informative, step=0)
    assert close(all_of_them * len(groups), gradients(policy) * len(informative))


def test_degenerate_groups_are_not_worked_through_without_a_kl_term(tmp_path: Path) -> None:
    seen = []
    for kl_coefficient in (0.0, 0.1):
        config = make_config(tmp_path, loss={"kl_coefficient": kl_coefficient}, optimizer={"microbatch": 1_000})
        policy, engine = make_policy(config)
        groups = make_groups(config, policy, engine)
        policy.model.register_forward_hook(
            lambda module, given, kwargs, answer: seen.append(len(kwargs["input_ids"])), with_kwargs=True
        )
        policy.update(groups, step=0)
    # A rollout whose reward is its group's mean has no advantage either.
    rewards = [[reward_of(rollout) for rollout in group.rollouts] for group in groups]
    taught = sum(r != pytest.approx(sum(row) / 4) for row in rewards for r in row)  # type: ignore[arg-type]
    assert seen == [taught, 24]
    assert taught < 17


def test_a_batch_that_teaches_nothing_moves_the_weights_by_momentum_alone(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    degenerate = [groups[0], groups[3]]
    before = policy.model.lm_head.weight.detach().clone()
    policy.update(degenerate, step=0)
    assert torch.equal(policy.model.lm_head.weight, before)
    policy.update(groups, step=1)
    between = policy.model.lm_head.weight.detach().clone()
    figures = policy.update(degenerate, step=2)
    assert not torch.equal(policy.model.lm_head.weight, between)
    assert (figures["loss"], figures["gradient_norm"]) == (0, 0)


def test_a_factor_multiplies_the_gradient(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    policy.update(groups, step=0)
    plain = gradients(policy)
    policy, engine = make_policy(config)
    policy.update(groups, step=0, factor=3.0)
    assert close(gradients(policy), 3 * plain)


def test_a_rollout_that_was_not_scored_counts_nowhere(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    spoilt = replace(groups[1].rollouts[0], outcome=1.0, status="error")
    with_error = [*groups[:1], replace(groups[1], rollouts=(spoilt, *groups[1].rollouts[1:])), *groups[2:]]
    without = [*groups[:1], replace(groups[1], rollouts=groups[1].rollouts[1:]), *groups[2:]]
    policy.update(with_error, step=0)
    found = gradients(policy)
    policy, _ = make_policy(config)
    policy.update(without, step=0)
    assert torch.equal(found, gradients(policy))


def test_a_group_that_never_came_back_stays_in_the_mean(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer=UNCLIPPED)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine, size=2)
    policy.update([groups[1]], step=0)
    alone = gradients(policy)
    policy, _ = make_policy(config)
    policy.update([replace(groups[0], rollouts=()), groups[1]], step=0)
    assert close(gradients(policy), alone / 2)
    policy.update([replace(group, rollouts=()) for group in groups], step=1)


def test_the_reward_is_the_outcome_unless_another_is_given_and_nothing_for_errors() -> None:
    assert reward_of(Rollout(outcome=1.0)) == 1.0
    assert reward_of(Rollout(outcome=1.0, reward=0.25, status="truncated")) == 0.25
    assert reward_of(Rollout(outcome=None, reward=0.25)) is None
    assert reward_of(Rollout(outcome=1.0, status="error")) is None


def test_gradients_are_cut_to_their_largest_norm(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer={"max_grad_norm": 1e-3})
    policy, engine = make_policy(config)
    figures = policy.update(make_groups(config, policy, engine), step=0)
    assert figures["gradient_norm"] > 1e-2
    assert float(gradients(policy).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_the_learning_rate_rises_and_stays(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer={"learning_rate": 0.01, "warmup_steps": 3})
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    rates = [policy.update(groups, step=step)["learning_rate"] for step in range(5)]
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])


def test_further_passes_move_away_from_the_sampler_until_the_clip_holds(tmp_path: Path) -> None:
    config = make_config(tmp_path, optimizer={"passes": 4, "learning_rate": 0.02, "warmup_steps": 0})
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    figures = policy.update(groups, step=0)
    assert figures["log_ratio"] < 1e-6  # of the first pass
    assert 0 < figures["clipped"] < 1  # of the last


def test_the_divergence_is_measured_from_the_weights_of_the_start(tmp_path: Path) -> None:
    config = make_config(tmp_path, loss={"kl_coefficient": 0.05}, optimizer={"warmup_steps": 0})
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    first, *_, last = [policy.update(groups, step=step)["kl"] for step in range(5)]
    assert first == pytest.approx(0, abs=1e-9)
    assert last > 1e-4


def test_dropout_is_keyed_by_seed_and_step(tmp_path: Path) -> None:
    found = []
    for step, shift in ((0, 0), (0, 7), (1, 0)):
        config = make_config(tmp_path, optimizer={**UNCLIPPED, "warmup_steps": 0})
        policy, engine = make_policy(config, attention_dropout=0.5)
        groups = make_groups(config, policy, engine)
        torch.manual_seed(shift)
        state = torch.random.get_rng_state()
        policy.update(groups, step=step)
        assert torch.equal(torch.random.get_rng_state(), state)
        found.append(gradients(policy))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("tied", [False, True])
def test_what_is_saved_goes_on_to_the_bit_and_loads_as_any_model(tmp_path: Path, tied: bool) -> None:
    config = make_config(tmp_path)
    policy, engine = make_policy(config, tie_word_embeddings=tied)
    groups = make_groups(config, policy, engine)
    policy.save(make_folder(tmp_path / "new"))  # before any update there is no state of the optimizer
    policy.update(groups, step=0)
    policy.save(make_folder(tmp_path / "one"))
    policy.update(groups, step=1)
    other, _ = make_policy(config, tie_word_embeddings=tied, seed=5)
    other.load(tmp_path / "one")
    other.update(groups, step=1)
    assert same_state(policy, other)
    other.load(tmp_path / "new")
    assert not other.optimizer.state
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    other.load(tmp_path / "one")
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, dict(other.model.named_parameters())[name])
    assert AutoTokenizer.from_pretrained(tmp_path / "one")("7 digit").input_ids == policy.tokenizer("7 digit").input_ids


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_gradient_that_is_no_number_stops_the_run_before_it_reaches_the_weights(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    worst = replace(groups[1].rollouts[0], logprobs=[-1e30] * len(groups[1].rollouts[0].logprobs))
    groups[1] = replace(groups[1], rollouts=(worst, *groups[1].rollouts[1:]))
    before = policy.model.lm_head.weight.detach().clone()
    with pytest.raises(MidbandError, match="lower learning rate"):
        policy.update(groups, step=0)
    assert torch.equal(policy.model.lm_head.weight, before)


def test_rollouts_without_log_probabilities_are_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    policy, engine = make_policy(config)
    groups = make_groups(config, policy, engine)
    bare = replace(groups[0].rollouts[2], logprobs=())
    groups[0] = replace(groups[0], rollouts=(*groups[0].rollouts[:2], bare, *groups[0].rollouts[3:]))
    with pytest.raises(MidbandError, match=r"r:0:train:0:0:0, rollout 2: .* engine that gives one for each"):
        policy.update(groups, step=0)


def test_a_folder_without_a_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"empty holds no model in transformers' format: it has no config\.json"):
        Policy.at_start(make_config(tmp_path, model={"path": tmp_path / "empty"}))
