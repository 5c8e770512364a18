"""What a GPU needs of the trainer, tried on a CPU: bfloat16, recomputed activations, a capped ratio, adapters."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from tests.trainer.tiny import make_config, make_groups, make_model, make_policy, run, same_state, told  # noqa: E402
from trainer.errors import MissingExtra  # noqa: E402
from trainer.policy import Policy  # noqa: E402
from trainer.rollout.base import Rollout, RolloutGroup  # noqa: E402
from trainer.tokens import Tokens, log_probabilities  # noqa: E402

NO_CLIP = {"optimizer": {"max_grad_norm": math.inf, "microbatch": 6}}


def updated(tmp_path: Path, groups: list[RolloutGroup] | None = None, **tables: Any) -> tuple[Policy, dict[str, float]]:
    config = make_config(tmp_path, **{**NO_CLIP, **tables})
    policy, engine = make_policy(config)
    figures = policy.update(groups or make_groups(config, policy, engine), step=0)
    return policy, figures


def gradients(policy: Policy) -> Any:
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters.values()])


def sampled_with_error(tmp_path: Path, error: float) -> list[RolloutGroup]:
    """Groups whose sampler said `error` less than the trainer finds, for every token."""
    config = make_config(tmp_path)
    groups = make_groups(config, *make_policy(config))
    return [
        replace(
            group,
            rollouts=tuple(replace(one, logprobs=[logp - error for logp in one.logprobs]) for one in group.rollouts),
        )
        for group in groups
    ]


@pytest.mark.parametrize(
    ("ratio", "cap", "factor"),
    # The loss of a token is min(ratio, cap) times the on-policy one: the clip is about the trainer's own probabilities.
    [(1.5, 2.0, 1.5), (4.0, 2.0, 2.0), (0.25, 2.0, 0.25), (1.0, 2.0, 1.0)],
)
def test_a_token_counts_by_the_ratio_of_trainer_to_sampler_up_to_the_cap(
    tmp_path: Path, ratio: float, cap: float, factor: float
) -> None:
    exact, _ = updated(tmp_path)
    groups = sampled_with_error(tmp_path, math.log(ratio))
    corrected, figures = updated(tmp_path, groups, loss={"importance_cap": cap})
    assert torch.allclose(gradients(corrected), factor * gradients(exact), rtol=1e-3, atol=1e-7)
    assert figures["importance"] == pytest.approx(factor, rel=1e-4)
    assert figures["capped"] == float(ratio > cap)


def test_without_a_cap_the_sampler_is_taken_at_its_word(tmp_path: Path) -> None:
    groups = sampled_with_error(tmp_path, math.log(1.1))
    plain, figures = updated(tmp_path, groups)
    exact, _ = updated(tmp_path)
    assert torch.allclose(gradients(plain), 1.1 * gradients(exact), rtol=1e-3, atol=1e-7), "ρ itself, within the clip"
    assert "importance" not in figures


def test_recomputed_activations_change_nothing_but_memory(tmp_path: Path) -> None:
    plain, _ = updated(tmp_path)
    recomputed, _ = updated(tmp_path, model={"gradient_checkpointing": True})
    assert recomputed.model.is_gradient_checkpointing
    assert torch.allclose(gradients(recomputed), gradients(plain), rtol=1e-4, atol=1e-8)


def test_bfloat16_is_for_products_only_and_weights_stay_in_float32(tmp_path: Path) -> None:
    plain, before = updated(tmp_path)
    mixed, figures = updated(tmp_path, model={"precision": "bfloat16"})
    assert {one.dtype for one in mixed.parameters.values()} == {torch.float32}
    assert {state["exp_avg"].dtype for state in mixed.optimizer.state.values()} == {torch.float32}
    cosine = torch.nn.functional.cosine_similarity(gradients(mixed), gradients(plain), dim=0)
    assert 0.98 < float(cosine) < 1 - 1e-7
    assert figures["log_ratio"] > 10 * before["log_ratio"], "eight bits of mantissa show in the log-probabilities"


def test_a_run_in_bfloat16_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "model": {"precision": "bfloat16", "gradient_checkpointing": True}, "loss": {"importance_cap": 2.0}
    }  # fmt: skip
    whole_config = make_config(tmp_path / "whole", **tables, stop={"steps": 6})
    _, whole = run(whole_config)
    run(make_config(tmp_path / "parts", **tables, stop={"steps": 3}))
    parts_config = make_config(tmp_path / "parts", **tables, stop={"steps": 6})
    _, parts = run(parts_config)
    assert same_state(whole, parts)
    assert [one for one in told(whole_config) if one["kind"] == "step"] == [
        one for one in told(parts_config) if one["kind"] == "step"
    ]


def test_what_an_environment_said_is_read_and_not_learned(tmp_path: Path) -> None:
    model = make_model()
    one = Rollout(outcome=1.0, prompt_ids=[5, 6], completion_ids=[7, 8, 9], logprobs=[-1.0, 0.0, -1.0])
    told_between = replace(one, written=[True, False, True])
    plain, masked = (Tokens.of([rollout], torch.device("cpu")) for rollout in (one, told_between))
    assert plain.mask_BT.tolist() == [[True, True, True]]
    assert masked.mask_BT.tolist() == [[True, False, True]]
    assert torch.equal(plain.ids, masked.ids)
    assert torch.equal(
        log_probabilities(model, plain, temperature=1.0), log_probabilities(model, masked, temperature=1.0)
    )


def test_adapters_without_peft_are_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"pip install 'midband\[lora\]'"):
        make_policy(make_config(tmp_path, model={"lora": {"rank": 2}}))


LORA = {"model": {"lora": {"rank": 2, "alpha": 4.0}}}


def test_adapters_alone_are_trained_and_kept(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="adapters need the lora extra")
    config = make_config(tmp_path / "a", **LORA)
    policy, engine = make_policy(config)
    base = {name: value.clone() for name, value in policy.model.named_parameters() if name not in policy.parameters}
    assert all("lora" in name for name in policy.parameters)
    assert base
    policy.update(make_groups(config, policy, engine), step=0)
    after = dict(policy.model.named_parameters())
    assert all(torch.equal(after[name], value) for name, value in base.items())
    policy.save(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    other, _ = make_policy(config)
    assert not same_weights(other, policy)
    other.load(tmp_path)
    assert same_weights(other, policy)
    assert same_state(other, policy)
    alone = peft.PeftModel.from_pretrained(make_model(), tmp_path)
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(alone(ids).logits, policy.model(ids).logits)


def test_a_run_with_adapters_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="adapters need the lora extra")
    _, whole = run(make_config(tmp_path / "whole", **LORA, stop={"steps": 6}))
    run(make_config(tmp_path / "parts", **LORA, stop={"steps": 3}))
    _, parts = run(make_config(tmp_path / "parts", **LORA, stop={"steps": 6}))
    assert same_state(whole, parts)


def same_weights(one: Policy, other: Policy) -> bool:
    return all(torch.equal(one.parameters[name], other.parameters[name]) for name in one.parameters)
