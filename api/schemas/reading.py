"""What is read of a run: audit and costs on the wire."""

from typing import Literal

from pydantic import Field

from api.schemas.base import Answer
from api.schemas.runs import ClaimInfo


class Estimate(Answer):
    """`interval` holds at every look; `asymptotic` for long runs only, and is null in short ones."""

    estimate: float | None
    interval: tuple[float, float] | None
    asymptotic: tuple[float, float] | None = None


class Streams(Answer):
    """The three curves: the uniform one tells the truth about the pool, the selected one does not."""

    uniform: Estimate
    selected: Estimate
    reweighted: Estimate


class Shift(Answer):
    """The selected stream minus the pool, by what the pool's mean was estimated from."""

    against_uniform: Estimate
    against_reweighted: Estimate


class Contrast(Answer):
    """Re-weighted minus uniform, in the whole pool or a part of it. `detected`: the draws do not keep to their recorded
    chances, or groups go missing by their outcomes; it is wrong with probability `alpha` at most, and all of them
    together with 1 − level.
    """

    quantity: Literal["pass_rate", "degenerate"]
    where: str
    alpha: float
    num_draws: int
    estimate: float
    interval: tuple[float, float]
    asymptotic: tuple[float, float] | None
    adjusted: float
    log_e_value: float
    detected: bool
    detected_at: int | None


class Block(Answer):
    """A fixed block of draws; the intervals of all blocks hold together."""

    block: int
    draws: tuple[int, int]
    num_draws: int
    level: float
    pass_rate: Streams
    degenerate: Streams


class Ratio(Answer):
    low: float
    high: float
    pool: float
    selected: float
    ratio: float


class SelectionRatio(Answer):
    """Share of the tickets over share of the pool: 1 is as often as uniform draws."""

    category: dict[str, float | None] = Field(default={})
    difficulty: list[float | None] = Field(default=[])
    length: list[Ratio] = Field(default=[])
    features: dict[str, list[Ratio]] = Field(default={})


class Mix(Answer):
    """One kind of ticket, issued, reported and trained on; `trained` is null while no step names its tickets."""

    kind: str
    issued: int
    open: int
    reported: int
    trained: int | None
    void: dict[str, int]
    issued_share: float
    reported_share: float | None
    trained_share: float | None


class Quota(Answer):
    """One category with a quota. `held`: within the tolerance; null while nothing was trained on."""

    category: str
    quota: float
    issued: int
    trained: int
    issued_share: float | None
    trained_share: float | None
    drawn_at: float | None
    held: bool | None
    reason: str | None


class Quotas(Answer):
    """Quotas are of what is trained on. `counted`: how that is known."""

    tolerance: float
    counted: Literal["named by steps", "informative groups"]
    categories: list[Quota]


class AuditInfo(Answer):
    """`speaks_of` says which draws and prompts it is about. `finding`: what the verdict comes to."""

    draws: tuple[int, int] | None
    level: float
    pass_rate: Streams
    degenerate: Streams
    selection_ratio: SelectionRatio
    claim: ClaimInfo
    claim_realised: ClaimInfo
    verdict: str | None
    warnings: list[str]
    regressions: dict[str, object] | None = None
    speaks_of: str = ""
    finding: Literal["none", "bias", "too_little"] | None = None
    shift: dict[str, Shift] = Field(default={})
    contrasts: list[Contrast] = Field(default=[])
    blocks: list[Block] = Field(default=[])
    num_blocks: int = 0
    coverage: dict[str, int] | None = None
    induced_weight: list[dict[str, float | None]] = Field(default=[])
    second_moment: float | None = None
    inverse_yield: float | None = None
    calibration: dict[str, object] | None = None
    mix: dict[str, list[Mix]] = Field(default={})
    quotas: Quotas | None = None
    response: dict[str, list[dict[str, object]]] = Field(default={})
    never_back: dict[str, object] | None = None
    quarantined: list[dict[str, object]] = Field(default=[])
