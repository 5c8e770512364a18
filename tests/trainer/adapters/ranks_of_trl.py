"""One process of a training run over several: started by torch's launcher from `test_trl`, never by itself.

Arguments: the service's URL, a folder, and whether rank 1 is to hold another batch than rank 0.
"""

import sys
from pathlib import Path

from tests.trainer.adapters.test_trl import make_trainer
from trainer.client import Client


def main(url: str, folder: str, differs: str) -> None:
    with Client(url) as client:
        trainer = make_trainer(
            client,
            Path(folder),
            per_device_train_batch_size=6,
            generation_batch_size=12,  # three groups of four over two ranks: one of them spans both
            per_device_eval_batch_size=6,
            max_steps=3,
            eval_strategy="steps",
            eval_steps=3,
        )
        if differs == "differs" and trainer.accelerator.process_index == 1:
            trainer._next_generated = 0
            trainer._draws.policy_version = lambda: 0
            other = Client(url)
            trainer._draws.client = other
            trainer._draws.run = "other"
            other.create_run("other", pool="pool-tiny", group_size=4, seed=99)
        trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
