"""The table of docs/presets.md, from the presets themselves: `python -m tests.selector.preset_table` writes it anew.

A test compares the page with it.
"""

from dataclasses import MISSING, asdict, fields
from pathlib import Path

from selector.batches.drawing import claim_of
from selector.config import PolicyConfig, RunConfig
from selector.policies import PRESETS, Preset

PAGE = Path(__file__).parents[2] / "docs" / "presets.md"
ELSEWHERE = (
    "controller",
    "design",
    "candidates",
    "wave",
    "budget",
    "refill",
)  # parts with a word or a column of their own
BEGIN, END = "<!-- presets -->", "<!-- end of presets -->"


def table() -> str:
    """One row a preset: name, source, estimator, utility, design, rollouts, claim."""
    lines = ["| preset | source | estimator | utility | design | rollouts | claim |", "|---|---|---|---|---|---|---|"]
    for name, preset in PRESETS.items():
        config = preset.config
        claim = claim_of(RunConfig(pool="", policy=config, group_size=preset.group_size)).type
        parts = (_estimator(config), _utility(config), _design(config), _rollouts(preset))
        lines.append("| " + " | ".join((f"`{name}`", preset.source, *parts, str(claim))) + " |")
    return "\n".join(lines)


def _estimator(config: PolicyConfig) -> str:
    options = ", ".join(f"{name} {value:g}" for name, value in config.estimator_options.items())
    return f"`{config.estimator}`" + (f": {options}" if options else "")


def _utility(config: PolicyConfig) -> str:
    parts = [f"`{config.utility}`"]
    if config.power != 1.0:
        parts.append(f"power {config.power:g}")
    for part in fields(config):
        value = getattr(config, part.name)
        if part.name not in ELSEWHERE and part.default is not MISSING and value != part.default:
            parts.append(f"{part.name} {value:g}" if isinstance(value, float) else f"{part.name} {value}")
    if config.controller is not None:
        parts.append(f"controller `{config.controller.name}`")
    return ", ".join(parts)


def _design(config: PolicyConfig) -> str:
    if config.utility == "uniform":
        return "alike"
    candidates = "" if config.candidates is None else f" of {config.candidates:g} times the places"
    return f"{config.design}{candidates}, floor {config.floor:g}"


def _rollouts(preset: Preset) -> str:
    config = preset.config
    if config.budget is not None:
        return f"{config.budget.low} to {config.budget.high} by `{config.budget.rule}`, {preset.group_size} on average"
    if config.refill is not None:
        return f"{preset.group_size}, refilled in {config.refill.rounds} draws at most"
    if config.wave is None:
        return str(preset.group_size)
    numbers = {name: value for name, value in asdict(config.wave).items() if name != "rule" and value is not None}
    words = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
    return f"{preset.group_size} at most, `{config.wave.rule}`: {words}"


def write() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write()
