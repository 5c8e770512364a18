"""Signals: numbers about prompts that only the trainer can compute, as it pushed them, each at a policy version.

`RunEngine` asks what a push adds, the fold puts it into the run's columns, and the estimator reads those by name. Knows
rows and names; what a name means is the estimator's to say. Axes: N rows of the pool, S names, E numbers of one push.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from predictors.base import NEVER, Column, IntArray
from predictors.names import RATES
from selector.run.events import SignalsReceived

MAX_NAMES = 16
"""Names in one run: each takes 16 bytes for every row of the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedNumbers:
    """One push: numbers by name for some prompts; row None where the pool has no such prompt."""

    policy_version: int
    keys: Sequence[str]
    rows: Sequence[int | None]
    numbers: Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedSignal:
    """A number, or all of a prompt where `name` is None, that does not count, and why."""

    key: str
    name: str | None
    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsDecision:
    """What a push adds; counts are of numbers."""

    event: SignalsReceived | None
    duplicate: int
    late: int
    rejected: list[RefusedSignal]


@dataclass(slots=True)
class Signals:
    """The newest number of each row under each name."""

    columns: dict[str, Column] = field(default_factory=dict)
    num_rows: int = 0

    def grow(self, num_rows: int) -> None:
        """Rows beyond the old ones have no numbers."""
        self.columns = {name: _grown(column, num_rows) for name, column in self.columns.items()}
        self.num_rows = num_rows

    def put(self, event: SignalsReceived) -> None:
        """Take the numbers of an event, which are newer than what is here."""
        name_E, row_E = np.asarray(event.name, np.int64), np.asarray(event.row, np.int64)
        value_E = np.asarray(event.value, np.float64)
        for place, name in enumerate(event.names):
            of_name = name_E == place
            column = self.columns.setdefault(name, _empty(self.num_rows))
            column.value_N[row_E[of_name]] = value_E[of_name]
            _versions(column)[row_E[of_name]] = event.policy_version

    def state(self) -> dict[str, np.ndarray]:
        """Everything as arrays; nothing while nothing was pushed."""
        if not self.columns:
            return {}
        return {
            "signal_names": np.frombuffer(json.dumps(list(self.columns)).encode(), np.uint8).copy(),
            "signal_value_SN": np.stack([column.value_N for column in self.columns.values()]),
            "signal_version_SN": np.stack([_versions(column) for column in self.columns.values()]),
        }

    @classmethod
    def from_state(cls, saved: Mapping[str, np.ndarray]) -> Self:
        """From a state that may hold other things too; without signals where it has none."""
        if "signal_names" not in saved:
            return cls()
        names = json.loads(saved["signal_names"].tobytes())
        columns = zip(names, saved["signal_value_SN"], saved["signal_version_SN"], strict=True)
        return cls(columns={name: Column(value_N=value_N, version_N=version_N) for name, value_N, version_N in columns})


def decide_signals(signals: Signals, pushed: PushedNumbers, *, run_version: int) -> SignalsDecision:
    """Which numbers count. Per row and name: a newer version replaces an older one; of one version the first stands,
    equal again is a duplicate; one older than what is known came late.
    """
    if pushed.policy_version > run_version + 1:
        detail = (
            f"policy_version {pushed.policy_version} is more than 1 above the run's {run_version}; "
            "name it in a draw or a step first"
        )
        return SignalsDecision(
            event=None,
            duplicate=0,
            late=0,
            rejected=[_refused(key, None, "bad_policy_version", detail) for key in pushed.keys],
        )
    draft = _Draft(signals, pushed.policy_version)
    for key, row, numbers in zip(pushed.keys, pushed.rows, pushed.numbers, strict=True):
        if row is None:
            draft.rejected.append(_refused(key, None, "unknown_prompt", "the run's pool has no prompt of this key"))
            continue
        for name, value in numbers.items():
            draft.take(key, row, name, float(value))
    return draft.decision()


class _Draft:
    """A push, number by number."""

    def __init__(self, signals: Signals, version: int) -> None:
        self.rejected: list[RefusedSignal] = []
        self._signals, self._version = signals, version
        self._duplicate = self._late = 0
        self._names: dict[str, int] = {}
        self._name: list[int] = []
        self._row: list[int] = []
        self._value: list[float] = []

    def take(self, key: str, row: int, name: str, value: float) -> None:
        column = self._signals.columns.get(name)
        if name in RATES and not 0.0 <= value <= 1.0:
            self.rejected.append(_refused(key, name, "bad_value", f"{name} is a pass rate in [0, 1], got {value}"))
        elif column is None and name not in self._names and self._is_full():
            detail = f"the run has {MAX_NAMES} names of signals already, {sorted(self._signals.columns)[:3]} among them"
            self.rejected.append(_refused(key, name, "too_many_names", detail))
        elif column is None or (known := int(_versions(column)[row])) < self._version:
            self._name.append(self._names.setdefault(name, len(self._names)))
            self._row.append(row)
            self._value.append(value)
        elif known > self._version:
            self._late += 1
        elif column.value_N[row] == value:
            self._duplicate += 1
        else:
            detail = f"{name} at version {known} was {column.value_N[row]}, now {value}; the first stands"
            self.rejected.append(_refused(key, name, "signal_conflict", detail))

    def decision(self) -> SignalsDecision:
        event = SignalsReceived(
            policy_version=self._version, names=list(self._names), name=self._name, row=self._row, value=self._value
        )
        return SignalsDecision(
            event=event if self._row else None, duplicate=self._duplicate, late=self._late, rejected=self.rejected
        )

    def _is_full(self) -> bool:
        return len(self._signals.columns) + len(set(self._names) - set(self._signals.columns)) >= MAX_NAMES


def _refused(key: str, name: str | None, code: str, detail: str) -> RefusedSignal:
    return RefusedSignal(key=key, name=name, code=code, detail=detail)


def _empty(num_rows: int) -> Column:
    return Column(value_N=np.full(num_rows, np.nan), version_N=np.full(num_rows, NEVER, np.int64))


def _grown(column: Column, num_rows: int) -> Column:
    longer, size = _empty(num_rows), len(column.value_N)
    longer.value_N[:size] = column.value_N
    _versions(longer)[:size] = _versions(column)
    return longer


def _versions(column: Column) -> IntArray:
    """A signal's versions, which it always has."""
    if column.version_N is None:
        raise TypeError("a signal's column has versions")
    return column.version_N
