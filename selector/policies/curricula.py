"""Presets after methods that steer by difficulty, staleness or a schedule.

`policies` puts them beside those of `presets`. Values only; docs/presets.md says what each leaves out of its method.
"""

from selector.config import ControllerConfig, PolicyConfig
from selector.policies.presets import Preset

# The last group alone, and never tried at one half. The least prior there is.
LAST_GROUP = {"prior_successes": 0.1, "prior_failures": 0.1}

CURRICULA: dict[str, Preset] = {
    preset.config.preset: preset
    for preset in (
        Preset(
            config=PolicyConfig(
                preset="adarft",
                estimator="mixture",
                utility="difficulty",
                power=1.0,
                floor=0.0,
                target=0.0,
                design="top",
                feature="difficulty",
                controller=ControllerConfig(name="adarft"),
            ),
            source="AdaRFT, arXiv 2504.05520",
            sentence="Takes the prompts whose given difficulty is nearest to a target that rises while more than half "
            "passes and falls while less does.",
        ),
        Preset(
            config=PolicyConfig(
                preset="vcrl",
                estimator="discounted_beta",
                estimator_options={
                    "discount": 0.9,
                    "process_noise": 0.0,
                    "prior_successes": 1.0,
                    "prior_failures": 1.0,
                },
                utility="band",
                power=1.0,
                floor=0.05,
                low=0.082,
                high=0.918,
                controller=ControllerConfig(name="vcrl"),
            ),
            source="VCRL, arXiv 2509.19803, by the chance that it would keep a group, with a momentum of 0.9",
            sentence="Draws prompts by the chance that the variance of their group reaches a threshold, 0.3 of the "
            "largest for 20 draws and 0.8 from then on.",
        ),
        Preset(
            config=PolicyConfig(
                preset="plr",
                estimator="last_mean",
                estimator_options=LAST_GROUP,
                utility="staleness",
                power=10.0,
                floor=0.01,
                reads="mean",
                staleness=0.1,
            ),
            source="Prioritized Level Replay, arXiv 2010.03934, at temperature 0.1 and staleness 0.1",
            sentence="Draws prompts by the rank of their advantages in their last group; a tenth goes to those that "
            "were not drawn for long.",
        ),
        Preset(
            config=PolicyConfig(
                preset="sfl",
                estimator="last_mean",
                estimator_options=LAST_GROUP,
                utility="variance",
                power=1.0,
                floor=0.5,
                reads="mean",
                design="top",
            ),
            source="SFL, arXiv 2408.15099, by the last group in place of a probe",
            sentence="Takes half of a batch from the prompts of most varied outcomes in their last group, and draws "
            "the other half alike.",
        ),
        Preset(
            config=PolicyConfig(
                preset="dots",
                estimator="mixture",
                utility="target",
                power=1.0,
                floor=0.0,
                target=0.5,
                reads="mean",
                design="top",
            ),
            source="DOTS, arXiv 2506.05316, on our estimates in place of attention to a reference set",
            sentence="Takes the prompts whose predicted pass rate is nearest to one half, as its softmax at "
            "temperature 0.001 does all but surely.",
        ),
        Preset(
            config=PolicyConfig(
                preset="vip",
                estimator="mixture",
                utility="variance",
                power=0.5,
                floor=0.05,
            ),
            source="VIP, arXiv 2602.01601, by draws of whole groups where it varies their size",
            sentence="Spends rollouts on prompts in proportion to the standard deviation of their outcomes, in "
            "expectation over draws.",
        ),
        Preset(
            config=PolicyConfig(
                preset="insight",
                estimator="discounted_beta",
                estimator_options={
                    "discount": 1.0,
                    "process_noise": 0.0,
                    "prior_successes": 1.0,
                    "prior_failures": 1.0,
                },
                utility="insight",
                power=1.0,
                floor=0.0,
                design="top",
                candidates=16.0,
            ),
            source="InSight, arXiv 2603.01907, with MoPPS's posterior and candidates, and 4m(1-m) as its weight",
            sentence="Takes prompts of middling difficulty of which the next rollout tells most, among 16 times as "
            "many as there are places.",
        ),
        Preset(
            config=PolicyConfig(
                preset="prompt-replay",
                estimator="last_mean",
                estimator_options=LAST_GROUP,
                utility="prompt_replay",
                power=1.0,
                floor=0.25,
                low=0.25,
                high=0.75,
                reads="mean",
                design="top",
            ),
            source="Prompt Replay, arXiv 2603.21177",
            sentence="Fills up to three quarters of a batch with tried prompts nearest to one half, each after a "
            "pause of ten draws and at most fifteen times more, and draws the others alike.",
        ),
    )
}
