"""Rollouts from a record: what a model once scored on each prompt, or the pass rates it is meant to have.

The replay compares policies with it, at no cost of a model. The record does not learn: its pass rates move with the
number of groups drawn, whatever prompts they were drawn for. So it can say how many informative groups a policy finds,
and nothing about what training on them would do.

The clock: group number c (from 0) is at visit ⌊c/N⌋, N prompts, as if the pool were gone through evenly. It ends where
the shortest record ends, and never ends if every pass rate is constant.

Axes: V visits, N prompts, G rollouts of one prompt.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from api.schemas import Ticket
from trainer.errors import InvalidRecord, InvalidRequest
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup

COMMON_FIELDS = frozenset({"key", "prompt_id", "content", "prompt", "answer", "category", "meta"})
COUNT_FIELDS = frozenset({"group_size", "visits", "successes"})
KNOWN_FIELDS = COMMON_FIELDS | COUNT_FIELDS | {"p"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedOutcomes:
    """A record, cut at the end of its shortest row."""

    name: str  # of the file, for people
    digest: str  # SHA-256 over prompts and numbers: the same record, the same digest
    prompts: tuple[Mapping[str, object], ...]  # (N,) as the service imports them
    row_of: Mapping[str, int]  # key -> place in the arrays
    pass_rate_VN: NDArray[np.float64]  # (V, N) in [0, 1]; V = 1 if constant
    successes_VN: NDArray[np.int64] | None  # (V, N) in 0..G; None: outcomes are drawn from the pass rates
    group_size: int | None  # G of the record; None: any
    num_visits: int | None  # None: constant, without end

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read JSON lines, one prompt each: `{"key", "group_size": 8, "successes": [k, ...]}` or `{"key", "p"}`.

        `p` is a number or one number a visit. `prompt_id` is another name for `key`, `prompt` for `content`;
        `content`, `answer`, `category` and `meta` go into the pool. Raises InvalidRecord naming file and line.
        """
        path = Path(path)
        rows: list[tuple[str, object]] = []
        try:
            with path.open(encoding="utf-8") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        rows.append((f"{path.name}, line {number}", _json(line, f"{path}, line {number}")))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRecord(f"{path} cannot be read: {error}") from error
        return cls._from(rows, str(path.name))

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, object]], *, name: str = "record") -> Self:
        """The same from rows in memory; raises InvalidRecord naming the row, counted from 0."""
        return cls._from([(f"{name}, row {place}", row) for place, row in enumerate(rows)], name)

    @property
    def num_prompts(self) -> int:
        return len(self.prompts)

    @property
    def num_groups(self) -> int | None:
        """Groups that the clock holds in all; None: no end."""
        return None if self.num_visits is None else self.num_visits * self.num_prompts

    def visit(self, num_drawn: int) -> int:
        """The visit at which the clock stands after so many groups."""
        return num_drawn // self.num_prompts

    def pass_rates(self, num_drawn: int) -> NDArray[np.float64]:
        """(N,) pass rates at the clock after so many groups; as measured, where the record holds counts."""
        place = 0 if self.num_visits is None else min(self.visit(num_drawn), self.num_visits - 1)
        pass_rate_N: NDArray[np.float64] = self.pass_rate_VN[place]
        return pass_rate_N

    @classmethod
    def _from(cls, placed_rows: Sequence[tuple[str, object]], name: str) -> Self:
        if not placed_rows:
            raise InvalidRecord(f"{name} holds no prompts: it needs one JSON object a line")
        rows = [_Row.read(row, place) for place, row in placed_rows]
        _same_kind(rows)
        row_of: dict[str, int] = {}
        for n, row in enumerate(rows):
            if row.key in row_of:
                raise InvalidRecord(f"{row.place}: key {row.key!r} stands in {rows[row_of[row.key]].place} already")
            row_of[row.key] = n
        lengths = [len(row.numbers) for row in rows if row.num_visits is not None]
        num_visits = min(lengths) if lengths else None
        numbers_VN = np.array([_cut(row, num_visits) for row in rows], dtype=np.float64).T
        group_size = rows[0].group_size
        prompts = tuple(row.prompt for row in rows)
        digest = hashlib.sha256(json.dumps(prompts, sort_keys=True).encode())
        digest.update(f"{group_size} {num_visits}".encode() + numbers_VN.tobytes())
        return cls(
            name=name,
            digest=digest.hexdigest(),
            prompts=prompts,
            row_of=row_of,
            pass_rate_VN=numbers_VN if group_size is None else numbers_VN / group_size,
            successes_VN=None if group_size is None else numbers_VN.astype(np.int64),
            group_size=group_size,
            num_visits=num_visits,
        )


class RecordedEngine(RolloutEngine):
    """Plays a record back. Its clock counts the groups it gave.

    Randomness is keyed by (seed, prompt, visit, how often it was drawn in this visit) and by nothing else: two
    policies that draw the same prompt for the same time in a visit see the same outcomes.
    """

    def __init__(self, record: RecordedOutcomes, *, seed: int = 0) -> None:
        self.record = record
        self.num_drawn = 0
        self._seed = seed
        self._visit = 0
        self._draws_in_visit: dict[int, int] = {}
        self._begun: dict[str, NDArray[np.bool_]] = {}  # by ticket: outcomes of the groups begun last

    @property
    def num_left(self) -> int | None:
        """Groups until the record ends; None: no end."""
        total = self.record.num_groups
        return None if total is None else total - self.num_drawn

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        """Groups by the clock, whatever the policy version. Refuses before the first group, or gives all of them."""
        self._begin(tickets)
        return [self._part(ticket, range(ticket.group_size), self._group(ticket)) for ticket in tickets]

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        """Waves of the same groups; the clock counts a group when it is begun."""
        new = [ticket for ticket, span in zip(tickets, spans, strict=True) if span.start == 0]
        if new:
            self._begin(new)
            self._begun = {ticket.ticket: self._group(ticket) for ticket in new}
        for ticket in tickets:
            if ticket.ticket not in self._begun:
                raise InvalidRequest(f"ticket {ticket.ticket}: its first wave is not among those asked for last")
        return [self._part(t, span, self._begun[t.ticket]) for t, span in zip(tickets, spans, strict=True)]

    def _begin(self, tickets: Sequence[Ticket]) -> None:
        """Raises InvalidRequest for a ticket that the record cannot answer, or more than it has groups left for."""
        if self.num_left is not None and len(tickets) > self.num_left:
            raise InvalidRequest(
                f"{self.record.name} has {self.num_left} groups left, got {len(tickets)} tickets: draw no more than "
                "that, or start over with a new engine"
            )
        for ticket in tickets:
            if ticket.prompt not in self.record.row_of:
                raise InvalidRequest(
                    f"{self.record.name} has no prompt {ticket.prompt!r}: replay on a pool made of it alone"
                )
            if self.record.group_size is not None and ticket.group_size > self.record.group_size:
                raise InvalidRequest(
                    f"{self.record.name} holds groups of {self.record.group_size} rollouts, ticket {ticket.ticket} "
                    f"asks for {ticket.group_size}: make the run with group_size={self.record.group_size} "
                    "and no budget above it"
                )

    def _group(self, ticket: Ticket) -> NDArray[np.bool_]:
        """Which rollouts of the ticket's whole group pass; moves the clock."""
        visit = self.record.visit(self.num_drawn)
        if visit != self._visit:
            self._visit = visit
            self._draws_in_visit.clear()
        row = self.record.row_of[ticket.prompt]
        draw = self._draws_in_visit.get(row, 0)
        self._draws_in_visit[row] = draw + 1
        rng = _generator(self._seed, ticket.prompt, visit, draw)
        if self.record.successes_VN is None:
            passed: NDArray[np.bool_] = rng.random(ticket.group_size) < self.record.pass_rates(self.num_drawn)[row]
        else:
            assert self.record.group_size is not None
            # Some of a recorded group are a simple random sample of it.
            order = rng.permutation(self.record.group_size)[: ticket.group_size]
            passed = order < self.record.successes_VN[visit, row]
        self.num_drawn += 1
        return passed

    def _part(self, ticket: Ticket, span: range, passed: NDArray[np.bool_]) -> RolloutGroup:
        rollouts = tuple(Rollout(outcome=float(passed[n])) for n in span)
        return RolloutGroup(ticket=ticket, rollouts=rollouts, start=span.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One row of a record, checked."""

    place: str
    key: str
    prompt: Mapping[str, object]
    numbers: tuple[float, ...]
    num_visits: int | None  # None: one number for ever
    group_size: int | None  # None: the numbers are pass rates

    @classmethod
    def read(cls, row: object, place: str) -> "_Row":
        if not isinstance(row, Mapping):
            raise InvalidRecord(f"{place}: expected a JSON object, got {row!r:.80}")
        unknown = sorted(set(row) - KNOWN_FIELDS)
        if unknown:
            raise InvalidRecord(f"{place}: unknown fields {unknown}; known: {sorted(KNOWN_FIELDS)}, others into `meta`")
        if ("p" in row) == ("successes" in row):
            raise InvalidRecord(f"{place}: needs either `successes` or `p`")
        key = _one_of(row, "key", "prompt_id", place)
        if not isinstance(key, str) or not key:
            raise InvalidRecord(f"{place}: needs a `key` (or `prompt_id`) that is a text, got {key!r:.80}")
        optional = {
            "content": _one_of(row, "content", "prompt", place),
            "answer": row.get("answer"),
            "category": row.get("category"),
            "meta": row.get("meta"),
        }
        prompt = {"key": key} | {field: value for field, value in optional.items() if value is not None}
        if "p" in row:
            return cls(place=place, key=key, prompt=prompt, **_pass_rates(row, place))
        return cls(place=place, key=key, prompt=prompt, **_successes(row, place))


def _pass_rates(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    if extra := sorted(COUNT_FIELDS & set(row)):
        raise InvalidRecord(f"{place}: {extra} belong to `successes`, this row has `p`")
    constant = not isinstance(row["p"], list)
    numbers = [row["p"]] if constant else row["p"]
    if not numbers:
        raise InvalidRecord(f"{place}: `p` is an empty list")
    for visit, p in enumerate(numbers):
        if isinstance(p, bool) or not isinstance(p, int | float) or not math.isfinite(p) or not 0 <= p <= 1:
            raise InvalidRecord(f"{place}: `p` at visit {visit} must be a number in [0, 1], got {p!r:.80}")
    return {"numbers": tuple(numbers), "num_visits": None if constant else len(numbers), "group_size": None}


def _successes(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    size, counts = row.get("group_size"), row["successes"]
    if size is None or not _is_count(size) or size < 1:
        raise InvalidRecord(f"{place}: `group_size` must be a whole number >= 1, got {size!r:.80}")
    if not isinstance(counts, list) or not counts:
        raise InvalidRecord(f"{place}: `successes` must be a list with one count a visit, got {counts!r:.80}")
    for visit, k in enumerate(counts):
        if not _is_count(k) or not 0 <= k <= size:
            raise InvalidRecord(
                f"{place}: `successes` at visit {visit} must be a whole number in 0..{size}, got {k!r:.80}"
            )
    if row.get("visits", len(counts)) != len(counts):
        raise InvalidRecord(f"{place}: `visits` says {row['visits']!r:.80}, `successes` has {len(counts)}")
    return {"numbers": tuple(counts), "num_visits": len(counts), "group_size": size}


def _same_kind(rows: Sequence[_Row]) -> None:
    """Refuses a record that mixes counts with pass rates, or group sizes: the clock and the draws would differ."""
    first = rows[0]
    for row in rows:
        if row.group_size != first.group_size:
            raise InvalidRecord(
                f"{row.place}: {_kind(row)}, but {first.place}: {_kind(first)}; one record is of one kind"
            )


def _kind(row: _Row) -> str:
    return "`p`" if row.group_size is None else f"`successes` of groups of {row.group_size}"


def _cut(row: _Row, num_visits: int | None) -> list[float]:
    if num_visits is None:
        return list(row.numbers)
    return list(row.numbers[:num_visits]) if row.num_visits is not None else [row.numbers[0]] * num_visits


def _one_of(row: Mapping[str, Any], name: str, other: str, place: str) -> Any:
    if name in row and other in row:
        raise InvalidRecord(f"{place}: `{name}` and `{other}` are the same field; give one of them")
    return row.get(name, row.get(other))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _json(line: str, place: str) -> object:
    try:
        value: object = json.loads(line)
    except ValueError as error:
        raise InvalidRecord(f"{place}: not a JSON object: {error}") from error
    return value


def _generator(seed: int, key: str, visit: int, draw: int) -> np.random.Generator:
    """A stream of its own for each (seed, key, visit, draw): the first two are Philox's key, the others its counter."""
    digest = hashlib.blake2b(f"{seed}\0{key}".encode(), digest_size=16).digest()
    return np.random.Generator(
        np.random.Philox(key=np.frombuffer(digest, dtype="<u8"), counter=np.array([0, 0, draw, visit], dtype=np.uint64))
    )
