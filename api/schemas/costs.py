"""What quality cost, on the wire: costs, curve, diagnosis, comparisons."""

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.base import Answer, Name, Request, Share

MAX_ARMS = 64  # configurations in one comparison
MAX_SEEDS = 64  # runs of one configuration

Label = Annotated[str, Field(min_length=1, max_length=100)]
Seeds = Annotated[list[Name], Field(min_length=1, max_length=MAX_SEEDS)]
Unit = Literal["tokens", "rollouts", "accelerator_s", "energy_j"]


class CostsInfo(Answer):
    """Where everything went. None: some step kept it to itself, or none told it."""

    tokens: dict[str, int]
    rollouts: dict[str, int]
    seconds: dict[str, float]
    rollout_seconds: dict[str, float] = Field(default_factory=dict)  # by source, as rollouts say; no time on the clock
    environment_seconds: dict[str, float] = Field(default_factory=dict)
    spent: dict[str, float | None] = Field(default_factory=dict)
    accelerators: float | None = None
    peak_memory_bytes: dict[str, int] = Field(default_factory=dict)
    informative: dict[str, float | None] = Field(default_factory=dict)
    per_informative_group: dict[str, float | None] = Field(default_factory=dict)
    environment: dict[str, list[str]] = Field(default_factory=dict)
    steps: int = 0


class CurveInfo(Answer):
    """Held-out quality against the cost of training, and where it first passes `q`."""

    run: str
    metric: Literal["pass_rate"]
    units: list[str]
    points: list[dict[str, object]]
    passage: dict[str, object] | None
    quality: dict[str, object]
    warnings: list[str]


class DiagnosisInfo(Answer):
    run: str
    binding: Literal["idle", "low_signal", "memory", "environment"] | None
    statement: str
    shares: dict[str, float | None]
    remedies: list[dict[str, object]]
    missing: list[str]


class QualityTarget(Request):
    """Which quality has to be reached."""

    metric: Literal["pass_rate"] = "pass_rate"
    target: Share


class ComparisonRequest(Request):
    """Runs by configuration, the seeds of each in a list; the others are measured against the first.

    `controls`: equal-work runs beside each configuration, an empty list where there are none. `unit`: in what cost.
    """

    runs: Annotated[list[Seeds], Field(min_length=1, max_length=MAX_ARMS)]
    quality: QualityTarget
    names: Annotated[list[Label], Field(max_length=MAX_ARMS)] | None = None
    controls: Annotated[list[Annotated[list[Name], Field(max_length=MAX_SEEDS)]], Field(max_length=MAX_ARMS)] | None = (
        None
    )
    unit: Unit = "tokens"


class ComparisonInfo(Answer):
    quality: dict[str, object]
    unit: str
    units: list[str]
    grid: list[int]
    matched_cost: float | None
    configurations: list[dict[str, object]]
    contrasts: list[dict[str, object]]
    never_reached: str
    warnings: list[str]
