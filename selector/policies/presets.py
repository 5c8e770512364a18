"""Named policies with every part spelt out: what a run gets when it names a preset and overrides nothing.

Here those that choose prompts by what is known of their pass rates, and the controls; `curricula` has those that steer
by a schedule, `spending` those that choose how many rollouts a prompt gets. `policies` puts all of them together for
`api`. Values only.
"""

from dataclasses import dataclass, replace

from selector.config import ControllerConfig, PolicyConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A policy configuration with where it comes from and one sentence on when to use it."""

    config: PolicyConfig
    source: str
    sentence: str
    group_size: int = 8  # of a run that names none


UNIFORM = PolicyConfig(preset="uniform", estimator="mixture", utility="uniform", power=1.0, floor=1.0)
MIDBAND = PolicyConfig(preset="midband", estimator="mixture", utility="informative", power=4.0, floor=0.05)

PRESETS: dict[str, Preset] = {
    preset.config.preset: preset
    for preset in (
        Preset(
            config=UNIFORM,
            source="simple random sampling without replacement",
            sentence="Draws every prompt alike and only measures: the arm to compare any selection with.",
        ),
        Preset(
            config=MIDBAND,
            source="midband",
            sentence="Draws prompts whose groups are likely to be informative; a twentieth of the places is for all.",
        ),
        Preset(
            config=PolicyConfig(
                preset="band",
                estimator="mixture",
                utility="band",
                power=1.0,
                floor=0.05,
                low=0.2,
                high=0.8,
            ),
            source="Bae et al., arXiv 2504.03380; PRIME",
            sentence="Draws prompts by the chance that the share passed of their group lies between 0.2 and 0.8, where "
            "the method rolls out first and drops the others.",
        ),
        Preset(
            config=PolicyConfig(
                preset="mopps",
                estimator="discounted_beta",
                estimator_options={
                    "discount": 1.0,
                    "process_noise": 0.0,
                    "prior_successes": 1.0,
                    "prior_failures": 1.0,
                },
                utility="target",
                power=1.0,
                floor=0.0,
                target=0.5,
                reads="draw",
                design="top",
                candidates=16.0,
            ),
            source="MoPPS, arXiv 2507.04632, with the settings of its MATH scripts",
            sentence="Draws a pass rate from each posterior and takes those nearest to one half among 16 times as many "
            "prompts as there are places.",
        ),
        Preset(
            config=PolicyConfig(
                preset="lilo",
                estimator="discounted_beta",
                # The last group alone: p̂(1−p̂) in the same order, and never tried before all.
                estimator_options={
                    "discount": 0.0,
                    "process_noise": 0.0,
                    "prior_successes": 0.1,
                    "prior_failures": 0.1,
                },
                utility="variance",
                power=1.0,
                floor=0.0,
                reads="mean",
                design="top",
                candidates=4.0,
            ),
            source="LILO, arXiv 2502.12272",
            sentence="Takes the prompts of most varied outcomes in their last group, among four times as many as there "
            "are places, where the method rolls out a probe of each.",
        ),
        Preset(
            config=PolicyConfig(
                preset="kgps",
                estimator="kalman_logit",
                utility="variance",
                power=1.0,
                floor=0.0,
                design="top",
            ),
            source="KGPS, arXiv 2607.27610, rebuilt from its abstract",
            sentence="Takes the prompts whose outcomes are expected to vary most under a filter of their log-odds.",
        ),
        Preset(
            config=PolicyConfig(
                preset="dps",
                estimator="hmm",
                estimator_options={"discount": 0.7},
                # E[p(1−p)] of this belief rises with the chance of the state "partial" and with nothing else.
                utility="variance",
                power=1.0,
                floor=0.0,
                design="top",
                candidates=32.0,
            ),
            source="DPS, arXiv 2603.10887, with the settings of its MATH 7B script",
            sentence="Takes the prompts most likely to be partly solved at their next visit, by a chain of three "
            "states, among 32 times as many as there are places.",
        ),
        Preset(
            config=PolicyConfig(
                preset="bots",
                estimator="beta_with_reference",
                utility="target",
                power=1.0,
                floor=0.0,
                target=0.5,
                reads="draw",
                design="top",
            ),
            source="BOTS, arXiv 2510.26374",
            sentence="Draws a pass rate from each belief and takes those nearest to one half; what the pool shows "
            "of the policy's ability stands in for two reference models.",
        ),
        Preset(
            config=PolicyConfig(
                preset="pcl",
                estimator="value",
                estimator_options={"own_share": 0.0},
                utility="target",
                power=1.0,
                floor=0.0,
                target=0.5,
                reads="mean",
                design="top",
                candidates=4.0,
            ),
            source="PCL, arXiv 2510.01135: a reconstruction, as no code and no number of candidates could be found",
            sentence="Takes the prompts whose pushed value is nearest to one half among four times as many as there "
            "are places; the trainer trains the value network and pushes `value` as a signal.",
        ),
        Preset(
            config=PolicyConfig(
                preset="sec",
                estimator="category",
                utility="advantage",
                power=1.0,
                floor=0.05,
            ),
            source="SEC, arXiv 2505.14970, in proportion where the method takes a softmax of unpublished temperature",
            sentence="Draws categories by the size of the advantages expected in them, prompts of one category alike.",
        ),
        Preset(
            config=PolicyConfig(
                preset="pools",
                estimator="last_mean",
                # The least prior there is. Under it a quarter of up to 80 rollouts reads as 0.262 or less.
                estimator_options={"prior_successes": 0.1, "prior_failures": 0.1},
                utility="pools",
                power=1.0,
                floor=0.01,
                low=0.262,
                high=0.75,
            ),
            source="prime-rl, orchestrator/curriculum, without replacement where it draws with",
            sentence="Draws prompts of which a quarter to three quarters of the last group passed five times as often "
            "as the others.",
        ),
        Preset(
            config=PolicyConfig(
                preset="greso",
                estimator="streak",
                utility="keep",
                power=1.0,
                floor=0.01,
                design="bernoulli",
                easy_keep=0.5,
                hard_keep=0.5,
                controller=ControllerConfig(name="greso"),
            ),
            source="GRESO, arXiv 2506.02177, without the dynamic sampling behind it",
            sentence="Walks through the prompts in random order and skips one with a chance that grows with every "
            "group in a row in which it was all right or all wrong.",
        ),
        Preset(
            config=replace(UNIFORM, preset="random-equal-rollouts"),
            source="equal-work control",
            sentence="Spends the rollouts of another run on prompts drawn alike: what its selection has to beat.",
        ),
        Preset(
            config=replace(MIDBAND, preset="shuffled-scores", reads="shuffled"),
            source="equal-work control",
            sentence="Draws as unevenly as midband, by beliefs dealt out at random: what its scores have to beat.",
        ),
        Preset(
            config=replace(UNIFORM, preset="random-equal-informative"),
            source="equal-work control",
            sentence="Draws prompts alike until as many groups were informative as in another run: what its "
            "selection has to beat beyond a larger step.",
        ),
    )
}
