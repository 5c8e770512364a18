"""Replay results made of hand-written rounds, and records made up of pass rates that drift."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from api.schemas import AuditInfo
from tests.trainer.factories import CLAIM
from trainer.replay.arms import PolicyArm
from trainer.replay.result import ReplayResult, Rounds


def make_audit(**changed: Any) -> AuditInfo:
    streams = {name: {"estimate": 0.25, "interval": (0.2, 0.3)} for name in ("uniform", "selected", "reweighted")}
    values: dict[str, Any] = {
        "draws": (0, 1), "level": 0.95, "pass_rate": streams, "degenerate": streams, "selection_ratio": {},
        "claim": CLAIM, "claim_realised": CLAIM, "verdict": "Selection kept the whole pool in view.", "warnings": [],
    }  # fmt: skip
    return AuditInfo.model_validate({**values, **changed})


def make_rounds(num_rounds: int = 8, **changed: Any) -> Rounds:
    """Rounds of 10 groups of 8, of which 5 were informative."""
    ones = np.ones(num_rounds, dtype=np.int64)
    values: dict[str, Any] = {
        "groups_R": 10 * ones,
        "rollouts_R": 80 * ones,
        "informative_R": 5 * ones,
        "never_seen_R": np.maximum(20 - 3 * np.arange(1, num_rounds + 1), 0),
        "selected_R": np.full(num_rounds, 0.5),
        "reweighted_R": np.full(num_rounds, 0.3),
        "weights_R": np.ones(num_rounds),
        "pool_R": np.full(num_rounds, 0.3),
        "audit_groups_R": ones,
        "log_loss_R": np.full(num_rounds, 0.6),
        "brier_R": np.full(num_rounds, 0.2),
    }
    return Rounds(**{**values, **changed})


def make_result(policy: str = "midband", **changed: Any) -> ReplayResult:
    values: dict[str, Any] = {
        "arm": PolicyArm.parse(policy),
        "run": f"run-{policy}",
        "pool": "pool",
        "record": "record.jsonl",
        "num_prompts": 20,
        "batch_size": 10,
        "group_size": 8,
        "seed": 0,
        "audit_share": 0.1,
        "rounds": make_rounds(),
        "stopped": None,
        "audit": make_audit(),
        "wall_s": 1.5,
        "resumed": False,
    }
    return ReplayResult(**{**values, **changed})


def drifting_rows(num_prompts: int, *, visits: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a record in which most prompts nearly never or nearly always pass, and all get easier."""
    rng = np.random.default_rng(seed)
    logit_VN = rng.normal(-1, 3, num_prompts) + np.linspace(0, 1, visits)[:, None]
    p_VN = (1 / (1 + np.exp(-logit_VN))).round(4)
    return [
        {"key": f"p{n:03d}", "category": "ab"[n % 2], "content": f"prompt {n}", "p": p_VN[:, n].tolist()}
        for n in range(num_prompts)
    ]


def write_record(rows: Iterable[dict[str, Any]], path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
