"""The table of docs/presets.md, from the presets themselves: `python -m tests.selector.preset_table` writes it anew.

A test compares the page with it.
"""

from dataclasses import MISSING, fields
from pathlib import Path

from selector.config import PolicyConfig, RunConfig
from selector.drawing import claim_of
from selector.policies import PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "presets.md"
ELSEWHERE = ("controller", "design", "candidates")  # parts with a word or a column of their own
BEGIN, END = "<!-- presets -->", "<!-- end of presets -->"


def table() -> str:
    """One row a preset: name, source, estimator, utility, design, claim."""
    lines = ["| preset | source | estimator | utility | design | claim |", "|---|---|---|---|---|---|"]
    for name, preset in PRESETS.items():
        config = preset.config
        claim = claim_of(RunConfig(pool="", policy=config)).type
        cells = (f"`{name}`", preset.source, _estimator(config), _utility(config), _design(config), str(claim))
        lines.append("| " + " | ".join(cells) + " |")
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


def write() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write()
