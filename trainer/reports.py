"""From what a trainer has in its hands to what goes on the wire: groups of outcomes as `GroupReport`s.

NaN is what graders and tensors use for "no score", so it becomes null, the contract's word for it. An infinity is
a bug in a reward function: it is refused here, naming ticket and rollout, before anything is sent.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsFloat

from pydantic import ValidationError

from api.schemas import GroupReport, Ticket, VoidName
from trainer.errors import InvalidRequest

Number = SupportsFloat | None  # Python numbers and bools, numpy scalars, one-element tensors; None: no score
Status = Literal["ok", "unscored", "error", "truncated"]

SCORES = ("outcome", "reward", "seconds")  # fields of a rollout in which NaN means "none"


def group(
    ticket: Ticket | str,
    outcomes: Iterable[Number] = (),
    *,
    rewards: Iterable[Number] | None = None,
    tokens: Iterable[int | None] | None = None,
    seconds: Iterable[Number] | None = None,
    statuses: Iterable[Status | None] | None = None,
    named_rewards: Iterable[Mapping[str, Number] | None] | None = None,
    completions: Iterable[Mapping[str, object] | None] | None = None,
    final: bool = True,
    start: int | None = None,
    void: VoidName | None = None,
    policy_version: int | Sequence[int] | None = None,
    attempt: int | None = None,
) -> GroupReport:
    """The rollouts of one ticket, in order: rollout 0 first.

    `outcomes` in [0, 1] say what was right and drive the pass rate; `rewards` are what the trainer optimises, where
    they differ. None or NaN: no score, which is never a 0. The other lists have one entry a rollout each. `final`
    closes the ticket with what is here, also when that is less than the group size; a wave is sent with `final` False
    and `start`, the number of its first rollout in the group. `void` ends it without a group. `completions` say what a
    probe's rollouts generated, as `text`, `token_ids` and `logprobs`, for a run with a rollout store. Of a ticket with
    `prior_rollouts` either the others are handed in, or a whole group that was made without those.
    Raises InvalidRequest for an infinity, an outcome outside [0, 1], lists of different lengths, or too many rollouts.
    """
    name = ticket.ticket if isinstance(ticket, Ticket) else ticket
    if not name:
        raise InvalidRequest(
            "this ticket has no id: it was drawn in this process while the service was away, and is not reported"
        )
    rollouts: list[dict[str, object]] = [
        {"outcome": value} for value in _scores(list(outcomes), "outcome", name, start or 0)
    ]
    if start is not None:
        rollouts = [{"n": n, **one} for n, one in enumerate(rollouts, start)]
    end = (start or 0) + len(rollouts)
    if isinstance(ticket, Ticket) and end > ticket.group_size:
        raise InvalidRequest(
            f"ticket {name} is for {ticket.group_size} rollouts, got {end}: leave the others out, or draw "
            "with a larger group_size"
        )
    columns: dict[str, Iterable[object] | None] = {
        "reward": rewards, "tokens": tokens, "seconds": seconds, "status": statuses, "rewards": named_rewards,
        "completion": completions,
    }  # fmt: skip
    for field, values in columns.items():
        if values is not None:
            column = list(values)
            _add_column(rollouts, field, _scores(column, field, name, start or 0) if field in SCORES else column, name)
    if named_rewards is not None:
        rollouts = [_clean(rollout, f"ticket {name}, rollout {n}") for n, rollout in enumerate(rollouts, start or 0)]
    body: dict[str, object] = {"ticket": name, "final": final, "rollouts": rollouts}
    optional = {"void": void, "policy_version": policy_version, "attempt": attempt}
    return _validated(body | {field: value for field, value in optional.items() if value is not None})


def as_group(value: GroupReport | Mapping[str, object]) -> GroupReport:
    """One group of a report, from a mapping with the contract's field names; NaN scores become null.

    Raises InvalidRequest, naming the ticket and the rollout, for what the contract does not allow.
    """
    if isinstance(value, GroupReport):
        return value
    ticket = value.get("ticket")
    rollouts = value.get("rollouts", ())
    if not isinstance(rollouts, Sequence):
        raise InvalidRequest(f"ticket {ticket}: rollouts must be a list, got {type(rollouts).__name__}")
    cleaned = [
        _clean(rollout, f"ticket {ticket}, rollout {place}") if isinstance(rollout, Mapping) else rollout
        for place, rollout in enumerate(rollouts)
    ]
    return _validated({**value, "rollouts": cleaned})


def in_words(error: ValidationError) -> str:
    """The first complaints of a schema, one line each, naming the field and the value."""
    lines = []
    for problem in error.errors(include_url=False)[:5]:
        place = ".".join(str(step) for step in problem["loc"]) or "value"
        got = "" if problem["type"] == "missing" else f", got {problem['input']!r:.80}"
        lines.append(f"{place}: {problem['msg']}{got}")
    more = error.error_count() - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")


def _add_column(rollouts: list[dict[str, object]], field: str, values: Sequence[object], ticket: str) -> None:
    if len(values) != len(rollouts):
        raise InvalidRequest(f"ticket {ticket}: {len(rollouts)} outcomes but {len(values)} values of {field}")
    for rollout, value in zip(rollouts, values, strict=True):
        # A reward of None is said in so many words: left out, it would default to the outcome.
        if value is not None or field == "reward":
            rollout[field] = value


def _validated(body: Mapping[str, object]) -> GroupReport:
    try:
        return GroupReport.model_validate(body)
    except ValidationError as error:
        raise InvalidRequest(f"ticket {body.get('ticket')}: {in_words(error)}") from error


def _scores(values: list[Any], field: str, ticket: str, start: int) -> list[float | None]:
    """A column of scores, each a finite number or None. A step of a trainer has thousands, so the usual is quick."""
    if all(type(value) is float for value in values) and math.isfinite(math.fsum(map(abs, values))):
        return values
    return [_score(value, f"ticket {ticket}, rollout {n}: {field}") for n, value in enumerate(values, start)]


def _clean(rollout: Mapping[str, object], place: str) -> dict[str, object]:
    """A rollout whose scores are finite numbers or None."""
    cleaned = dict(rollout)
    for field in SCORES:
        if field in cleaned:
            cleaned[field] = _score(cleaned[field], f"{place}: {field}")
    if isinstance(named := cleaned.get("rewards"), Mapping):
        cleaned["rewards"] = {name: _score(value, f"{place}: reward {name!r}") for name, value in named.items()}
    return cleaned


def _score(value: object, place: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, float):  # most are, and a report has thousands
        value = _as_float(value, place)
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return None
    raise InvalidRequest(f"{place} is {value}: an infinite score is a bug in a grader; send None for no score")


def _as_float(value: object, place: str) -> float:
    # A text is none, also one that float() would read.
    if isinstance(value, SupportsFloat):
        return float(value)
    raise InvalidRequest(f"{place} must be a number or None, got {value!r:.80}")
