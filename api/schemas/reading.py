"""What is read of a run: audit and costs on the wire."""

from pydantic import Field

from api.schemas.base import Answer
from api.schemas.runs import ClaimInfo


class Estimate(Answer):
    estimate: float | None
    interval: tuple[float, float] | None


class Streams(Answer):
    """The three curves: the uniform one tells the truth about the pool, the selected one does not."""

    uniform: Estimate
    selected: Estimate
    reweighted: Estimate


class AuditInfo(Answer):
    draws: tuple[int, int] | None
    level: float
    pass_rate: Streams
    degenerate: Streams
    selection_ratio: dict[str, object]
    claim: ClaimInfo
    claim_realised: ClaimInfo
    verdict: str | None
    warnings: list[str]
    regressions: dict[str, object] | None = None
    quarantined: list[dict[str, object]] = Field(default=[])
