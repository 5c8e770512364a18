"""The small learner trained by TRL's GRPOTrainer on prompts that midband selects: some minutes on one CPU core.

pip install 'midband[trl]', then python docs/examples/train_with_trl.py [midband|uniform]
"""

import sys
from typing import Any

import datasets
import trl

import midband
from trainer.adapters.trl import SelectedGRPOTrainer, Selection
from trainer.graders.exact import exact
from trainer.learner.model import load_learner
from trainer.learner.tasks import pool_rows

GROUP_SIZE = 8


def right(completions: list[str], answer: list[str], **_: Any) -> list[float | None]:
    return [exact(text, want) for text, want in zip(completions, answer, strict=True)]


def rows_of(split: str) -> datasets.Dataset:
    rows = [r for r in pool_rows("mild", num_train=16_384, num_heldout=512, seed=0) if r["split"] == split]
    return datasets.Dataset.from_dict({
        "prompt": [row["content"] for row in rows],
        "answer": [row["answer"] for row in rows],
        "category": [row["category"] for row in rows],
    })  # fmt: skip


def main(policy: str = "midband", steps: int = 120) -> list[float]:
    """Trains, says what it took, and gives the held-out rewards along the way."""
    model, tokenizer = load_learner()
    with midband.in_process() as client:  # or midband.Client("http://your-server:8765")
        trainer = SelectedGRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=right,
            train_dataset=rows_of("train"),
            eval_dataset=rows_of("heldout"),
            selection=Selection(client=client, run=f"trl-{policy}", pool="mild", policy=policy, category="category"),
            args=trl.GRPOConfig(
                output_dir=f"midband-trl/{policy}",
                per_device_train_batch_size=64 * GROUP_SIZE,
                per_device_eval_batch_size=512,
                num_generations=GROUP_SIZE,
                num_generations_eval=2,
                max_completion_length=8,
                max_steps=steps,
                learning_rate=1e-4,
                lr_scheduler_type="constant",
                eval_strategy="steps",
                eval_steps=steps // 3,
                eval_on_start=True,
                logging_steps=20,
                save_strategy="no",
                report_to="none",
                bf16=False,
                use_cpu=True,
                gradient_checkpointing=False,
            ),
        )
        trainer.train()
        told = client.run(f"trl-{policy}")
        print("informative groups:", told.informative)  # noqa: T201
        print("tokens:", client.costs(f"trl-{policy}").tokens)  # noqa: T201
        return [entry["eval_reward"] for entry in trainer.state.log_history if "eval_reward" in entry]


if __name__ == "__main__":
    main(*sys.argv[1:2])
