"""TRL's GRPO on the same batch: advantages, loss and gradient agree within 1e-5.

TRL generates the batch, scores it and computes its loss in a training step of its own; what went into that loss is
then given to ours. TRL comes with the `trl` extra; without it these tests are skipped, and say so.
"""

import copy
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from tests.trainer.factories import make_ticket  # noqa: E402
from tests.trainer.tiny import make_config, make_model, make_tokenizer  # noqa: E402
from trainer.policy import Policy  # noqa: E402
from trainer.rollout.base import Rollout, RolloutGroup  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of TRL and what it imports
]

PROMPTS = ("1 letter", "22 digit", "3", "44444 letter", "5 never", "66 digit")
GROUP_SIZE = 4
MAX_TOKENS = 5
WITHIN = 1e-5
TEMPERATURE, CLIP_LOW, CLIP_HIGH = 0.9, 0.2, 0.3
SHIFT = 0.3  # sd of what is put on the sampler's log-probabilities, so that the clip has something to hold
MOVED = 0.05  # sd of what is put on the weights, so that they differ from the reference


def score(ids: list[int]) -> float:
    """A reward from token ids: different within most groups, alike in some."""
    return float(ids[0] % 3 == 0) + 0.25 * (len(ids) == MAX_TOKENS)


@pytest.fixture(scope="module")
def trl() -> Any:
    return pytest.importorskip("trl", reason="TRL's loss is not compared with ours: pip install 'midband[trl]'")


def step_of_trl(trl: Any, folder: Path, **options: Any) -> dict[str, Any]:
    """One training step of TRL: the weights before it, what went into its loss, that loss, and its gradient.

    Its reference is the model it was made with. The weights are moved away from that, or a KL term would be nothing.
    """
    datasets = pytest.importorskip("datasets", reason="TRL needs datasets: pip install 'midband[trl]'")
    found: dict[str, Any] = {}

    class Watched(trl.GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
            with torch.no_grad():
                logp = self._get_per_token_logps_and_entropies(model, ids, attended, inputs["completion_ids"].shape[1])[
                    0
                ]
            noise = torch.randn(logp.shape, generator=torch.Generator().manual_seed(1))
            inputs["old_per_token_logps"] = logp + SHIFT * noise
            loss = super()._compute_loss(model, inputs)
            parameters = dict(model.named_parameters())
            gradient = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
            found.update(inputs=inputs, loss=loss.detach(), gradient=dict(zip(parameters, gradient, strict=True)))
            return loss

    make_model().save_pretrained(folder / "model")
    trainer = Watched(
        model=str(folder / "model"),
        reward_funcs=lambda completion_ids, **_: [score(ids) for ids in completion_ids],
        args=trl.GRPOConfig(
            output_dir=str(folder / "trl"),
            per_device_train_batch_size=len(PROMPTS) * GROUP_SIZE,
            num_generations=GROUP_SIZE,
            max_completion_length=MAX_TOKENS,
            max_steps=1,
            epsilon=CLIP_LOW,
            epsilon_high=CLIP_HIGH,
            temperature=TEMPERATURE,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            seed=5,
            **options,
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": list(PROMPTS)}),
        processing_class=make_tokenizer(),
    )
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(MOVED * torch.randn(parameter.shape, generator=generator))
    found["weights"] = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    return found


def as_groups(inputs: dict[str, Any]) -> list[RolloutGroup]:
    """TRL's shuffled rows as our groups, a row's advantage in TRL kept as its rollout's `seconds`."""
    rows: dict[tuple[int, ...], list[Rollout]] = {}
    for b in range(len(inputs["advantages"])):
        prompt = inputs["prompt_ids"][b][inputs["prompt_mask"][b].bool()].tolist()
        kept = inputs["completion_mask"][b].bool()
        ids = inputs["completion_ids"][b][kept].tolist()
        rows.setdefault(tuple(prompt), []).append(
            Rollout(
                outcome=0.0,
                reward=score(ids),
                prompt_ids=prompt,
                completion_ids=ids,
                logprobs=inputs["old_per_token_logps"][b][kept].tolist(),
                seconds=float(inputs["advantages"][b]),
            )
        )
    return [
        RolloutGroup(ticket=make_ticket(f"p{k}", group_size=GROUP_SIZE), rollouts=tuple(rollouts))
        for k, rollouts in enumerate(rows.values())
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"loss_type": "grpo"}, {"aggregation": "per_prompt"}),
        ({"loss_type": "grpo"}, {"aggregation": "per_sequence"}),
        ({"loss_type": "dapo"}, {"aggregation": "per_token"}),
        ({"loss_type": "grpo", "beta": 0.1}, {"aggregation": "per_prompt", "kl_coefficient": 0.1}),
        (
            {"loss_type": "dr_grpo", "scale_rewards": "none"},
            {"aggregation": "per_prompt", "advantage": "dr_grpo", "constant_length": MAX_TOKENS},
        ),
    ],
    ids=str,
)
def test_advantages_loss_and_gradient_are_those_of_trl(
    tmp_path: Path, trl: Any, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    found = step_of_trl(trl, tmp_path, **theirs)
    config = make_config(
        tmp_path,
        model={"temperature": TEMPERATURE},
        batch={"group_size": GROUP_SIZE},
        loss={"clip_low": CLIP_LOW, "clip_high": CLIP_HIGH, **ours},
        optimizer={"max_grad_norm": math.inf, "microbatch": 7},
    )
    policy = Policy(make_model(), make_tokenizer(), config)
    policy.model.load_state_dict(found["weights"])
    groups = as_groups(found["inputs"])
    assert sorted(len(group.rollouts) for group in groups) == [GROUP_SIZE] * len(PROMPTS)

    rollouts, _, advantage_B = policy._scored(groups)
    theirs_B = torch.tensor([rollout.seconds for rollout in rollouts])
    assert (advantage_B.float() - theirs_B).abs().max() < WITHIN
    assert 0 < int((advantage_B == 0).sum()) < len(rollouts)

    figures = policy.update(groups, step=0)
    assert figures["loss"] == pytest.approx(float(found["loss"]), abs=WITHIN)
    assert abs(figures["loss"]) > 100 * WITHIN
    assert figures["clipped"] > 0
    assert (figures["kl"] > 0.001) == ("beta" in theirs)
    for name, parameter in policy.parameters.items():
        assert (parameter.grad - found["gradient"][name]).abs().max() < WITHIN, name
