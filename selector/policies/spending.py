"""Presets after methods that draw prompts alike and choose how many rollouts each gets: budgets, waves, refill.

`policies` puts them beside those of `presets`. Values only; docs/presets.md says what each leaves out of its method.
"""

from dataclasses import replace

from selector.config import BudgetConfig, PolicyConfig
from selector.policies.presets import UNIFORM, Preset
from selector.refill import RefillConfig
from selector.waves import WaveConfig

SPENDING: dict[str, Preset] = {
    preset.config.preset: preset
    for preset in (
        Preset(
            config=PolicyConfig(
                preset="knapsack",
                estimator="last_mean",
                estimator_options={"prior_successes": 0.1, "prior_failures": 0.1},
                utility="uniform",
                power=1.0,
                floor=1.0,
                budget=BudgetConfig(rule="knapsack", low=2, high=128),
            ),
            source="Knapsack RL, arXiv 2509.25849, by the belief after each prompt's last group",
            sentence="Draws every prompt alike, and gives more rollouts to those of which another one is more likely "
            "to make the group informative, by what such a group is worth.",
        ),
        Preset(
            config=PolicyConfig(
                preset="duet",
                estimator="discounted_beta",
                estimator_options={
                    "discount": 1.0,
                    "process_noise": 0.0,
                    "prior_successes": 1.0,
                    "prior_failures": 1.0,
                },
                utility="uniform",
                power=1.0,
                floor=1.0,
                budget=BudgetConfig(rule="neyman", low=2, high=32),
            ),
            source="DUET, arXiv 2605.08441: its allocation, by the spread of outcomes in place of its gradient signal",
            sentence="Draws every prompt alike, and gives rollouts in proportion to the standard deviation of the "
            "outcomes, by all groups so far.",
        ),
        Preset(
            config=replace(UNIFORM, preset="speed", wave=WaveConfig(rule="screen", first=4)),
            source="SPEED-RL, arXiv 2506.09016, with 4 + 20 rollouts as in its scripts",
            sentence="Rolls out four answers to prompts drawn alike and the other twenty where the four differ.",
            group_size=24,
        ),
        Preset(
            config=replace(
                UNIFORM, preset="pilot-commit", wave=WaveConfig(rule="pilot", first=16, low=0.125, high=0.75)
            ),
            source="Pilot-Commit, arXiv 2605.26606, after secondary sources; what is deferred comes back by chance",
            sentence="Rolls out 16 pilots, skips above three quarters right, defers below an eighth, and commits 48 "
            "more to the rest.",
            group_size=64,
        ),
        Preset(
            config=replace(UNIFORM, preset="ar3po", wave=WaveConfig(rule="until_success", first=4, step=4)),
            source="AR3PO, arXiv 2509.25808; the sizes of waves and groups are ours, stored answers are not reused",
            sentence="Rolls out four answers at a time to each prompt until one is right.",
            group_size=16,
        ),
        Preset(
            config=replace(UNIFORM, preset="reinforce-ada", wave=WaveConfig(rule="balanced", first=8, step=8, keep=4)),
            source="Reinforce-Ada, arXiv 2510.04996, its balanced exit; what of a group is kept is the trainer's",
            sentence="Rolls out eight answers at a time until two are right and two are wrong, 32 at most.",
            group_size=32,
        ),
        Preset(
            config=replace(
                UNIFORM, preset="reinforce-ada-positive", wave=WaveConfig(rule="until_success", first=8, step=8)
            ),
            source="Reinforce-Ada, arXiv 2510.04996, its positive exit",
            sentence="Rolls out eight answers at a time until one is right, 32 at most.",
            group_size=32,
        ),
        Preset(
            config=replace(UNIFORM, preset="aero", wave=WaveConfig(rule="rescue", first=8, step=2, ceiling=0.0)),
            source="AERO, arXiv 2602.14338, its rescue; sizes are ours, and no prior makes up advantages",
            sentence="Rolls out eight answers and, where none is right, two more at a time until one is.",
            group_size=16,
        ),
        Preset(
            config=replace(UNIFORM, preset="dapo", refill=RefillConfig()),
            source="DAPO, arXiv 2503.14476, with the bounds of verl's recipe",
            sentence="Draws prompts alike, drops groups that are all right or all wrong, and draws again until the "
            "batch is full, ten times at most.",
            group_size=16,
        ),
    )
}
