"""What the demo does: all of its sizes, the pool's file, the configuration of each arm.

Sizes are here and nowhere else. They are chosen for two CPU cores and a few minutes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from api.schemas import PolicyRequest
from trainer import learner
from trainer.errors import InvalidRequest
from trainer.learner.tasks import PoolName, pool_rows
from trainer.training.config import (
    BatchSettings,
    CheckpointSettings,
    EvaluationSettings,
    ModelSettings,
    OptimizerSettings,
    PoolSettings,
    RunSettings,
    StopSettings,
    TrainConfig,
)

POOL = "demo"
POOL_FILE, DEMO_FILE = "pool.jsonl", "demo.json"
DIGEST_LENGTH = 16  # hexadecimal digits: enough to tell demos apart
START = Path(learner.__file__).with_name("weights") / "model.safetensors"  # what both arms begin with
STRATUM = "stratum"  # the name in the prompts' `meta` that says how difficult the learner finds them at the start
POLICIES: Mapping[str, PolicyRequest] = {
    "uniform": PolicyRequest(preset="uniform"),
    "midband": PolicyRequest(preset="midband"),
}
UNIFORM, MIDBAND = POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything; tests ask for less."""

    pool: PoolName = "wasteful"  # most of its prompts teach nothing at first
    pool_seed: int = 0  # of its own, so that another seed of the demo trains on the same prompts
    num_train: int = 16_384  # so many that most are drawn once or twice
    num_heldout: int = 1_024
    tokens: int = 700_000  # generated for training by each arm: the step that passes it is the last
    batch_size: int = 64  # groups of a step
    group_size: int = 8  # rollouts of a group
    max_new_tokens: int = 8
    learning_rate: float = 1e-4
    audit_share: float = 0.1  # of each batch
    look_every: int = 25  # steps between two looks at the held-out split, each with a checkpoint
    looked_at: int = 1_024  # held-out prompts of a look
    look_group_size: int = 2  # rollouts of each


def open_folder(out_dir: Path, sizes: Sizes, *, seed: int) -> Path:
    """Write the pool as a file, for the service to import, and beside it what the demo in this folder is made of.

    -> the pool's file. Raises InvalidRequest, before anything is written, if the folder holds another demo: what that
    trained is never mixed with this one.
    """
    rows = pool_rows(sizes.pool, num_train=sizes.num_train, num_heldout=sizes.num_heldout, seed=sizes.pool_seed)
    pool = "".join(json.dumps(row) + "\n" for row in rows).encode()
    made_of = {**asdict(sizes), "seed": seed, "prompts": _digest(pool), "weights": _digest(START.read_bytes())}
    file = out_dir / DEMO_FILE
    there = json.loads(file.read_text(encoding="utf-8")) if file.exists() else made_of
    if changed := [name for name in there | made_of if there.get(name) != made_of.get(name)]:
        differences = "; ".join(f"{name} was {there.get(name)!r}, is {made_of.get(name)!r}" for name in changed)
        raise InvalidRequest(
            f"{out_dir} holds another demo ({differences}): give this one a folder of its own with --out-dir, or "
            "delete that folder"
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / POOL_FILE).write_bytes(pool)
    file.write_text(json.dumps(made_of, indent=1) + "\n", encoding="utf-8")
    return out_dir / POOL_FILE


def train_keys(file: Path) -> frozenset[str]:
    """The keys of the pool's prompts that are trained on."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return frozenset(row["key"] for row in rows if row["split"] == "train")


def arm_config(name: str, out_dir: Path, sizes: Sizes, *, server: str, seed: int) -> TrainConfig:
    """How an arm trains. Arms differ in their policy and in nothing else; their runs are called as they are."""
    return TrainConfig(
        output=out_dir / name,
        server=server,
        seed=seed,
        pool=PoolSettings(name=POOL),
        run=RunSettings(name=name, policy=POLICIES[name], audit_share=sizes.audit_share),
        model=ModelSettings(max_new_tokens=sizes.max_new_tokens),
        batch=BatchSettings(size=sizes.batch_size, group_size=sizes.group_size),
        optimizer=OptimizerSettings(learning_rate=sizes.learning_rate),
        evaluation=EvaluationSettings(
            every=sizes.look_every, size=sizes.looked_at, group_size=sizes.look_group_size, stratum=STRATUM
        ),
        checkpoints=CheckpointSettings(every=sizes.look_every),
        stop=StopSettings(tokens=sizes.tokens),
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGEST_LENGTH]
