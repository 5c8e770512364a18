"""What a training run is asked to do: a TOML file, checked, as frozen values.

`midband train` reads one; the demo and the tests build the same values in Python. Every default is here and nowhere
else. Knows no tensors, no service and no files but the one it reads. docs/training.md has the settings as a table.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from api.schemas import MAX_GROUP_SIZE, Name, PolicyRequest, RolloutStoreRequest
from trainer.errors import InvalidRequest
from trainer.finished.keeping import SHARED, Rule
from trainer.reports import in_words

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
AtLeast1 = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """A table of the file: unknown keys are a mistake, and said so."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PoolSettings(Settings):
    """Where the prompts come from: a pool of the service, filled first if a source is given."""

    name: Name
    file: Path | None = None  # JSONL, JSON, CSV or Parquet, imported before the first step
    learner: Literal["mild", "wasteful"] | None = None  # digit puzzles made for the small learner
    num_train: AtLeast1 = 4_096  # prompts of `learner`
    num_heldout: AtLeast1 = 512
    seed: Annotated[int, Field(ge=0)] = 0  # of `learner`; of its own, so that runs of other seeds share a pool

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.file is not None and self.learner is not None:
            raise ValueError("give either `file` or `learner`, or neither for a pool that the service has already")
        return self


class RunSettings(Settings):
    """How prompts are selected: what the run on the service is made with."""

    name: Name
    policy: PolicyRequest = PolicyRequest()
    audit_share: Share = 0.1
    weights: Literal["none", "horvitz_thompson", "clipped"] = "none"
    max_weight: Positive = 10.0
    review_share: Share = 0.05
    # The run keeps what probes generate, and groups begin with it; left out: every rollout of a group is made for it.
    rollout_store: RolloutStoreRequest | None = None

    @field_validator("policy", mode="before")
    @classmethod
    def _preset_by_name(cls, value: object) -> object:
        """`policy = "uniform"` is short for `policy = {preset = "uniform"}`."""
        return {"preset": value} if isinstance(value, str) else value


class LoraSettings(Settings):
    """Low-rank adapters in place of the weights themselves (arXiv 2106.09685); needs the extra `lora`."""

    rank: AtLeast1 = 16
    alpha: Positive = 32.0  # adapters count alpha / rank times
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: list[str] | Literal["all-linear"] = "all-linear"  # names of the layers that get one


class ModelSettings(Settings):
    """What is trained and how it answers."""

    path: Path | None = None  # a folder in transformers' format; left out: the small learner that is shipped
    max_new_tokens: AtLeast1 = 16
    temperature: Positive = 1.0
    grader: Literal["exact", "numeric", "choice"] = "exact"
    generation_batch: AtLeast1 = 512  # rollouts generated at once, by the torch engine
    engine: Literal["torch", "vllm"] = "torch"  # what samples; vllm has a copy of the weights that follows each step
    device: str | None = None  # as torch names it; left out: the first accelerator, or the CPU if there is none
    # `bfloat16`: matrix products in it, by autocast; weights that are trained and the optimizer stay in float32.
    precision: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False  # activations are computed again in the backward pass: less memory, more time
    lora: LoraSettings | None = None


class BatchSettings(Settings):
    """What one step draws."""

    size: AtLeast1 = 64  # tickets, the K of every mean
    group_size: Annotated[int, Field(ge=2, le=MAX_GROUP_SIZE)] = 8  # rollouts of each


class KeepSettings(Settings):
    """Which finished rollouts are trained on; `trainer.finished` has the rules."""

    rule: Rule = "all"
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.5  # of each group, for rules that keep one
    threshold: Share = 0.8  # of `vcrl`
    memory: AtLeast1 = 64  # past groups that `popo` holds
    max_lag: AtLeast1 = 4  # versions of the policy that a past group of `popo` may be behind

    @model_validator(mode="after")
    def _has_no_idle_part(self) -> Self:
        used = {"vcrl": {"threshold"}, "popo": {"memory", "max_lag"}}.get(self.rule, set())
        used |= {"share"} if self.rule in SHARED else set()
        given = sorted(self.model_fields_set - used - {"rule"})
        if given:
            raise ValueError(f"{given[0]} has no effect with rule {self.rule!r}: leave it out")
        return self


class LossSettings(Settings):
    """What is minimised; `trainer.advantages` and `trainer.loss` have the formulas."""

    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    aggregation: Literal["per_prompt", "per_sequence", "per_token"] = "per_prompt"
    constant_length: AtLeast1 | None = None  # tokens to divide by in place of an answer's own length
    clip_low: Share = 0.2
    clip_high: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.2
    kl_coefficient: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # against the weights at the start
    # `cancelled`: a batch is divided by all its groups. `kept`: by its informative ones, as where others are dropped
    # and drawn anew, which multiplies the step by 1/yield.
    inverse_yield: Literal["cancelled", "kept"] = "cancelled"
    # Bound of the ratio of trainer's to sampler's probability of a token, by which its loss is multiplied; left out:
    # the sampler is taken at its word.
    importance_cap: Positive | None = None
    keep: KeepSettings = KeepSettings()

    @field_validator("keep", mode="before")
    @classmethod
    def _rule_by_name(cls, value: object) -> object:
        """`keep = "pods"` is short for `keep = {rule = "pods"}`."""
        return {"rule": value} if isinstance(value, str) else value


class OptimizerSettings(Settings):
    """AdamW, on a learning rate that rises for the first steps and then stays."""

    learning_rate: Positive = 1e-6
    warmup_steps: Annotated[int, Field(ge=0)] = 5
    betas: tuple[Share, Share] = (0.9, 0.99)
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0  # inf: no clipping
    passes: AtLeast1 = 1  # updates on each batch; from the second on, the clip has something to hold
    microbatch: AtLeast1 = 128  # rollouts in one forward and backward pass; changes memory and speed, not the loss


class EvaluationSettings(Settings):
    """Held-out pass rates: drawn with the purpose `heldout`, which no belief ever reads."""

    every: AtLeast1 = 25  # steps; also before the first and after the last
    size: AtLeast1 = 256  # prompts, or all of the split if it has fewer
    group_size: Annotated[int, Field(ge=2, le=MAX_GROUP_SIZE)] = 4  # rollouts of each; the service counts none alone
    # What the result is split by: a name in the `meta` of the prompts; left out: their category.
    stratum: str | None = None


class CheckpointSettings(Settings):
    every: AtLeast1 = 25  # steps; also before the first and after the last


class AsynchronySettings(Settings):
    """Rollouts that run ahead of the updates, on weights of their own; `trainer.rollout.ahead` has the schedule."""

    depth: Annotated[int, Field(ge=0, le=64)] = 0  # batches begun before the one trained on; 0: one after the other
    max_lag: Annotated[int, Field(ge=0)] | None = None  # versions a group may be behind; left out: `depth`
    # Groups behind by more are dropped. Those behind by less count in full, or with `down_weight` `decay`^lag times.
    rule: Literal["drop", "down_weight"] = "drop"
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.8

    @property
    def bound(self) -> int:
        return self.depth if self.max_lag is None else self.max_lag

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if self.bound < self.depth:
            raise ValueError(
                f"max_lag {self.max_lag} is below depth {self.depth}: every group would come too late to be trained on"
            )
        if self.rule == "drop" and "decay" in self.model_fields_set:
            raise ValueError("decay has no effect with rule 'drop': leave it out")
        return self


class AwaySettings(Settings):
    """What becomes of training while the service does not answer; `trainer.training.lasting` does it."""

    patience_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0  # how long a call is tried again
    # And then: `stop` ends the run with an error. `uniform` draws uniformly from a copy of the prompts, which no run
    # and no audit ever hears of, until the service is back.
    then: Literal["stop", "uniform"] = "stop"


class StopSettings(Settings):
    """When to stop: at whichever comes first."""

    steps: AtLeast1 | None = None
    tokens: AtLeast1 | None = None  # generated for training batches; the step that passes it is the last

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.steps is None and self.tokens is None:
            raise ValueError("give `steps`, `tokens` or both: the run would not end")
        return self


class TrainConfig(Settings):
    """A whole run. Two runs of equal configurations on one machine are equal to the bit."""

    output: Path  # folder of checkpoints and figures; a run that is there already is gone on with
    server: str | None = None  # URL of a service; left out: one in this process, with its database in `output`
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    pool: PoolSettings
    run: RunSettings
    model: ModelSettings = ModelSettings()
    batch: BatchSettings = BatchSettings()
    loss: LossSettings = LossSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    asynchrony: AsynchronySettings = AsynchronySettings()
    when_away: AwaySettings = AwaySettings()
    log_to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()  # beside metrics.jsonl; each must be installed
    stop: StopSettings

    @field_validator("when_away", mode="before")
    @classmethod
    def _away_by_name(cls, value: object) -> object:
        """`when_away = "uniform"` is short for `when_away = {then = "uniform"}`."""
        return {"then": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _engine_can_follow(self) -> Self:
        """vLLM holds whole weights and takes them as they are: no adapters, and a device of its own choice."""
        if self.model.engine == "vllm":
            plain = ModelSettings()
            for name in ("lora", "device"):
                if getattr(self.model, name) != getattr(plain, name):
                    raise ValueError(f"model.{name} needs model.engine 'torch': leave it out")
        return self

    @model_validator(mode="after")
    def _groups_begin_when_they_are_drawn(self) -> Self:
        if self.run.rollout_store is not None and self.asynchrony.depth:
            raise ValueError("run.rollout_store needs asynchrony.depth 0: what runs ahead is generated whole")
        return self

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read a TOML file; paths in it are taken from its folder. Raises InvalidRequest naming file and key."""
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidRequest(f"{file} cannot be read as TOML: {error}") from error
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            raise InvalidRequest(f"{file}: {in_words(error)}") from error
        return config._with_paths_from(file.parent)

    def _with_paths_from(self, folder: Path) -> Self:
        pool = self.pool.model_copy(update={"file": self.pool.file and folder / self.pool.file})
        model = self.model.model_copy(update={"path": self.model.path and folder / self.model.path})
        return self.model_copy(update={"output": folder / self.output, "pool": pool, "model": model})
