"""Named policies with every part spelt out: what a run gets when it names a preset and overrides nothing.

Read by `api` to list and resolve presets. Values only.
"""

from dataclasses import dataclass

from selector.config import PolicyConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A policy configuration with where it comes from and one sentence on when to use it."""

    config: PolicyConfig
    source: str
    sentence: str


PRESETS: dict[str, Preset] = {
    preset.config.preset: preset
    for preset in (
        Preset(
            config=PolicyConfig(
                preset="uniform",
                estimator="kalman_arcsine",
                utility="uniform",
                power=1.0,
                floor=1.0,
            ),
            source="simple random sampling without replacement",
            sentence="Draws every prompt alike and only measures: the arm to compare any selection with.",
        ),
        Preset(
            config=PolicyConfig(
                preset="midband",
                estimator="kalman_arcsine",
                utility="informative",
                power=4.0,
                floor=0.05,
            ),
            source="midband",
            sentence="Draws prompts whose groups are likely to be informative; a twentieth of the places is for all.",
        ),
    )
}
