"""What the API shows of an audit, in the contract's names.

The route and the report call it, in worker threads, with a copy of the run. Pure; it reads and never changes it.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from api.regressions import regressions_info
from api.stages import quarantined_info
from selector.audit.accounts import Accounts, accounts
from selector.audit.auditing import audit_run, claim_realised
from selector.audit.feature_parts import Parts
from selector.audit.values import Audit, Curves, Estimate
from selector.batches.drawing import claim_of
from selector.run.state import RunState

STREAMS = ("uniform", "selected", "reweighted")
QUANTITIES = ("pass_rate", "degenerate")
SPEAKS_OF = (
    "train draws of the current configuration and branch, from its first to the last before any that still has an open "
    "ticket; prompts of the train split neither absent nor quarantined at each draw"
)


def audit_info(state: RunState, level: float, features: Mapping[str, Parts] | None = None) -> dict[str, Any]:
    """features: parts of the pool, as `accounts` takes them."""
    found, counted = audit_run(state, level), accounts(state, features)
    return {
        "run": state.run,
        "branch": state.branch,
        "config_hash": state.config_hash,
        "draws": found.draws,
        "num_draws": found.num_draws,
        "speaks_of": SPEAKS_OF,
        "level": found.level,
        **{name: streams(getattr(found, name)) for name in QUANTITIES},
        "shift": shifts(found),
        "contrasts": [asdict(contrast) for contrast in found.contrasts],
        "blocks": blocks(found),
        "num_blocks": found.num_blocks,
        "selection_ratio": {
            "category": dict(found.selection_ratio.category),
            "difficulty": list(found.selection_ratio.difficulty),
            "length": [asdict(ratio) for ratio in counted.length],
            "features": {name: [asdict(ratio) for ratio in ratios] for name, ratios in counted.features.items()},
        },
        **counts(counted),
        "effective_sample_size": found.effective_sample_size,
        "largest_weight": found.largest_weight,
        "claim": claim_of(state.config).to_dict(),
        "claim_realised": claim_realised(state, found).to_dict(),
        "finding": found.finding,
        "verdict": found.verdict,
        "warnings": [*found.warnings, *counted.warnings],
        "regressions": regressions_info(state),
        **quarantined_info(state),
    }


def counts(counted: Accounts) -> dict[str, Any]:
    """What the audit counts beside its estimates."""
    return {
        "coverage": asdict(counted.coverage),
        "induced_weight": [asdict(point) for point in counted.induced],
        "second_moment": counted.second_moment,
        "inverse_yield": counted.inverse_yield,
        "calibration": asdict(counted.calibration),
        "mix": {
            "category": [asdict(mix) for mix in counted.mix_category],
            "length": [asdict(mix) for mix in counted.mix_length],
        },
        "quotas": None if counted.held is None else asdict(counted.held),
        "response": {name: [asdict(one) for one in values] for name, values in counted.response.items()},
        "never_back": {
            **asdict(counted.never_back),
            "listed": [
                {"prompt": key, "tickets": tickets, "tokens": tokens}
                for key, tickets, tokens in counted.never_back.listed
            ],
        },
    }


def blocks(found: Audit) -> list[dict[str, Any]]:
    """The latest of the fixed blocks of draws."""
    return [
        {
            "block": block.number,
            "draws": block.draws,
            "num_draws": block.num_draws,
            "level": block.level,
            **{name: streams(getattr(block, name)) for name in QUANTITIES},
        }
        for block in found.blocks
    ]


def streams(curves: Curves) -> dict[str, Any]:
    return {name: _estimate(getattr(curves, name)) for name in STREAMS}


def shifts(found: Audit) -> dict[str, Any]:
    """Selected minus pool, by quantity and by what the pool's mean was estimated from."""
    return {
        name: {
            "against_uniform": _estimate(shift.against_uniform),
            "against_reweighted": _estimate(shift.against_reweighted),
        }
        for name, shift in (("pass_rate", found.pass_rate_shift), ("degenerate", found.degenerate_shift))
    }


def _estimate(value: Estimate) -> dict[str, Any]:
    return {"estimate": value.estimate, "interval": value.interval, "asymptotic": value.asymptotic}
