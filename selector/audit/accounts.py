"""What the audit counts beside its estimates: exposure, weights, calibration, mixes and response, with what to beware.

`api` calls `accounts` with a copy of a run. Pure; it reads the state and never changes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from selector.audit import exposure, mixes
from selector.audit.exposure import Counts, Coverage, Ratio
from selector.audit.feature_parts import Parts, feature_parts
from selector.audit.forecasts import Calibration, calibration, wrong_width
from selector.audit.issued import issued_tickets
from selector.audit.mixes import Mix, NeverBack, Response
from selector.audit.quota_report import Held, held_quotas, warnings_of
from selector.run.state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """All of them speak of the train tickets of the current segment that were not lost."""

    coverage: Coverage
    length: tuple[Ratio, ...]
    features: Mapping[str, tuple[Ratio, ...]]
    induced: tuple[Counts, ...]
    second_moment: float | None
    inverse_yield: float | None
    calibration: Calibration
    mix_category: tuple[Mix, ...]
    mix_length: tuple[Mix, ...]
    response: Mapping[str, tuple[Response, ...]]
    never_back: NeverBack
    held: Held | None  # None without quotas
    warnings: tuple[str, ...]


def accounts(state: RunState, features: Mapping[str, Parts] | None = None) -> Accounts:
    """features: parts of the pool by its numbers; by default by those that the run holds, as the pool is now."""
    if features is None:
        features = feature_parts(state.pool.features, state.pool.frame_N)
    issued, trained = issued_tickets(state), mixes.trained_tickets(state)
    categories, lengths = mixes.category_kinds(state, issued), mixes.length_kinds(issued)
    mix_category, mix_length = (mixes.mixes(issued, kinds, trained) for kinds in (categories, lengths))
    moment, stuck = exposure.second_moment(issued, state.config.advantage), mixes.never_back(state, issued)
    held, predictions = held_quotas(state, issued, trained), calibration(state, issued)
    warnings = [
        *mixes.departures("category", mix_category, but=state.config.policy.quotas or {}),
        *warnings_of(held),
        *mixes.departures("length", mix_length),
        *wrong_width(predictions),
    ]
    if moment is not None and moment > 1 and state.config.weights == "horvitz_thompson":
        warnings.append(
            f"the weighted gradient's second moment is {moment:.2f} times that of uniform draws, as predicted: the "
            "weights cost more variance than the selection saves; a flatter utility or a higher floor helps"
        )
    if stuck.prompts:
        warnings.append(
            f"{stuck.prompts} prompts were drawn {mixes.MIN_ENDED} times or more and never came back in time, "
            f"{stuck.tickets} tickets and {stuck.tokens} tokens: raise max_lag or the deadline, or quarantine them"
        )
    return Accounts(
        coverage=exposure.coverage(state, issued),
        length=exposure.length_ratio(state, issued),
        features=exposure.feature_ratios(state, issued, features),
        induced=exposure.induced(issued),
        second_moment=moment,
        inverse_yield=exposure.inverse_yield(issued),
        calibration=predictions,
        mix_category=mix_category,
        mix_length=mix_length,
        response={
            "purpose": mixes.responses(issued, (("train", "audit"), issued.audit_M.astype("int64"))),
            "difficulty": mixes.responses(issued, mixes.difficulty_kinds(issued)),
            "length": mixes.responses(issued, lengths),
            "category": mixes.responses(issued, categories),
        },
        never_back=stuck,
        held=held,
        warnings=tuple(warnings),
    )
