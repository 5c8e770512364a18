"""What a report says of a run, as JSON-ready values: everything from the record, and what is missing by its name.

The route calls `run_report` in a worker thread; `sections` makes a document of it. Pure; nothing is guessed.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from api import measuring
from api.audits import blocks, counts, shifts, streams
from api.version import installed_version
from selector.audit.accounts import accounts
from selector.audit.auditing import audit_run, claim_realised
from selector.audit.feature_parts import Parts
from selector.batches.drawing import claim_of
from selector.heldout.curves import curve
from selector.heldout.looks import held_out_looks
from selector.run.state import RunState

# Facts of the environment by which two runs can be told to be comparable.
FACTS = ("accelerator", "driver", "model", "max_prompt_tokens", "max_new_tokens", "python", "midband")
SECONDS_OF_AN_HOUR = 3600.0


def run_report(state: RunState, features: Mapping[str, Parts] | None = None) -> dict[str, Any]:
    """features: parts of the pool, as `accounts` takes them."""
    costs, said = measuring.costs(state), measuring.quality_of(state)
    looks, _ = held_out_looks(state)
    audit, counted, lengths = audit_run(state), accounts(state, features), measuring.answer_lengths(state)
    found: dict[str, Any] = {
        "run": state.run,
        "midband": installed_version(),
        "completed": state.completed,
        "workload": {
            "pool": state.pool.name,
            "revision": state.pool.revision,
            "train_prompts": int(state.pool.frame_N.sum()),
            "heldout_prompts": int(state.pool.heldout_N.sum()),
            "train_draws": state.train_draws,
            "answer_tokens": lengths,
        },
        "configuration": {**measuring.setup(state), "claim": claim_of(state.config).to_dict()},
        "claim_realised": claim_realised(state, audit).to_dict(),
        "selection": {
            "verdict": audit.verdict,
            "finding": audit.finding,
            "warnings": [*audit.warnings, *counted.warnings],
            "difficulty": list(audit.selection_ratio.difficulty),
            "category": dict(audit.selection_ratio.category),
            "pass_rate": streams(audit.pass_rate),
            "degenerate": streams(audit.degenerate),
            "draws": audit.draws,
            "blocks": blocks(audit),
            "shift": shifts(audit),
            "contrasts": [asdict(contrast) for contrast in audit.contrasts],
            "length": [asdict(ratio) for ratio in counted.length],
            "features": {name: [asdict(ratio) for ratio in ratios] for name, ratios in counted.features.items()},
            "effective_sample_size": audit.effective_sample_size,
            "largest_weight": audit.largest_weight,
            **counts(counted),
        },
        "quality": measuring.quality_info(said),
        "quality_warnings": list(said.warnings),
        "curve": [measuring.point(p) for p in curve(looks).points],
        "costs": costs,
        "diagnosis": measuring.diagnosis_info(state),
    }
    found["checklist"] = checklist(found)
    found["missing"] = [f"{item['item']} ({item['missing']})" for item in found["checklist"] if item["missing"]]
    return found


def checklist(found: Mapping[str, Any]) -> list[dict[str, str | None]]:
    """The minimum that a figure of cost or speed has to come with; `missing` says what to send where it does not."""
    costs, config, work = found["costs"], found["configuration"], found["workload"]
    environment = costs["environment"]
    phases = [name.replace("_", " ") for name, seconds in costs["seconds"].items() if seconds > 0]
    rate = useful_per_hour(costs)
    told = [f"{name} {' → '.join(environment[name])}" for name in FACTS if name in environment]
    told += [
        f"{name} {' → '.join(map(_gibibytes if name.endswith('_bytes') else str, values))}"
        for name, values in sorted(environment.items())
        if name not in FACTS
    ]
    untold = [name for name in FACTS if name not in environment]
    count = costs["accelerators"]
    lengths = work["answer_tokens"]
    overall = found["quality"]["overall"]
    is_uniform = config["preset"] == "uniform"
    workload = (
        f"pool {work['pool']}, revision {work['revision']}: {work['train_prompts']} prompts to train on, "
        f"{work['heldout_prompts']} held out; groups of {config['group_size']}"
    )
    if lengths is not None:
        workload += (
            f"; answers of {lengths['mean']:.0f} tokens on average, median {lengths['median']:.0f}, "
            f"p90 {lengths['p90']:.0f}, longest {lengths['max']:.0f}"
        )
    return [
        _item(
            "baseline",
            "the run draws uniformly: it is one" if is_uniform else None,
            "one run has none: compare it with uniform runs of equal seeds, `midband compare` or POST /v1/comparisons",
        ),
        _item(
            "phase", f"training: {', '.join(phases)}" if phases else None, "seconds by phase: send `costs` with steps"
        ),
        _item(
            "unit of throughput",
            f"informative groups per accelerator-hour: {rate:.4g}" if rate is not None else None,
            "send `accelerators` and seconds with every step: accelerator-hours are known only as far as all told them",
        ),
        _item(
            "aggregation statistic",
            "sums over the whole run, work that was lost or rejected included; looks at the held-out split left out",
            None,
        ),
        _item("spread over seeds", None, "one run has none: compare runs that differ in `seed` alone"),
        _item(
            "hardware and software",
            ", ".join([*([f"{count:g} accelerators"] if count else []), *told]) or None,
            "send " + ", ".join([*(["`accelerators`"] if not count else []), *untold]) + " with `costs`"
            if untold or not count
            else None,
        ),
        _item(
            "workload", workload, None if lengths is not None else "answer lengths: report rollouts with their `tokens`"
        ),
        _item(
            "staleness bound",
            f"max_lag {config['max_lag']}" if config["max_lag"] is not None else "none was set: any lag was accepted",
            None,
        ),
        _item(
            "lever",
            f"policy {config['preset']}, weights {config['weights']}, audit share {config['audit_share']:g}, "
            f"claim {config['claim']['type']}",
            None,
        ),
        _item(
            "quality evidence",
            f"held-out pass rate {percent(overall['estimate'])} ({percent(overall['interval'][0])} to "
            f"{percent(overall['interval'][1])}) on {overall['prompts']} prompts at the last of {len(found['curve'])} "
            "looks"
            if overall is not None and overall["estimate"] is not None
            else None,
            "draw with purpose heldout every so many steps, and report it",
        ),
        _item(
            "peak memory",
            ", ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in sorted(costs["peak_memory_bytes"].items()))
            or None,
            "send `peak_memory_bytes` with `costs`",
        ),
        _item(
            "energy",
            None if not costs["spent"]["energy_j"] else f"{costs['spent']['energy_j'] / 3.6e6:.4g} kWh",
            "send `energy_j` with every step",
        ),
    ]


def useful_per_hour(costs: Mapping[str, Any]) -> float | None:
    """Informative groups for each accelerator-hour."""
    cost = costs["per_informative_group"]["accelerator_s"]
    return SECONDS_OF_AN_HOUR / cost if cost else None


def _gibibytes(value: str) -> str:
    return f"{int(value) / 2**30:.4g} GiB" if value.isdigit() else value


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _item(item: str, value: str | None, missing: str | None) -> dict[str, str | None]:
    """An item with a value may still miss a part; the remedy of one that has none of its parts is always said."""
    partial = item in ("hardware and software", "workload")
    return {"item": item, "value": value, "missing": missing if value is None or partial else None}
