"""The rollout store of a run, as far as the log decides it: which rollouts of probes are held, and whom each was given.

The fold changes it, `groups.priors` picks from it, `api` keeps the contents of what is held and of nothing else. A
value: every change makes another. Knows ordinals and sizes; nothing of what a rollout says.

Axes: H rollouts held, oldest first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

NOBODY = -1  # not given to a train ticket yet
MAX_BODY_BYTES = 2**20
"""Content of one rollout; a longer one counts, and is not kept."""

COLUMNS: dict[str, type[np.generic]] = {
    "serial": np.int64,  # counts all that the run ever held, from 1
    "ticket": np.int64,  # ordinal of the probe
    "attempt": np.int32,
    "n": np.int32,
    "version": np.int64,  # of the weights that made it
    "size": np.int64,  # bytes of its content
    "given": np.int64,  # ordinal of the train ticket that begins with it, or NOBODY
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStoreConfig:
    """Bounds of the store. Raises ValueError naming a value that is out of range."""

    max_rollouts: int = 10_000
    max_bytes: int = 64 * 2**20
    max_lag: int = 0  # versions that the run may be ahead of a rollout; 0: made by the weights of now

    def __post_init__(self) -> None:
        for name, least in (("max_rollouts", 1), ("max_bytes", 1), ("max_lag", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"rollout_store.{name} must be >= {least}, got {getattr(self, name)}")


def _columns() -> dict[str, np.ndarray]:
    return {name: np.zeros(0, dtype) for name, dtype in COLUMNS.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """What is held, in columns of COLUMNS, (H,) each."""

    columns: Mapping[str, np.ndarray] = field(default_factory=_columns)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["serial"])

    @property
    def serials(self) -> tuple[int, int]:
        """The first and the last that are held; of an empty store none is between them."""
        serial_H = self["serial"]
        return (int(serial_H[0]), int(serial_H[-1])) if len(serial_H) else (1, 0)

    def with_more(self, added: Mapping[str, np.ndarray]) -> Self:
        """With these at the end."""
        joined = {name: np.concatenate([self[name], added[name]]).astype(dtype) for name, dtype in COLUMNS.items()}
        return replace(self, columns=joined)

    def within(self, bounds: RolloutStoreConfig, version: int) -> Self:
        """What the bounds leave, for a run that is at this version.

        Whatever leaves is the oldest: as many as are too many or too large together, and then those in a row that are
        too old. One that is too old and stands behind one that is not waits for its turn; it is given to nobody.
        """
        total_H = np.cumsum(self["size"][::-1])[::-1]  # of each and all that came after it
        beyond = max(len(self) - bounds.max_rollouts, int(np.count_nonzero(total_H > bounds.max_bytes)))
        fresh = np.flatnonzero(version - self["version"][beyond:] <= bounds.max_lag)
        first = beyond + int(fresh[0]) if len(fresh) else len(self)
        if not first:
            return self
        return replace(self, columns={name: column[first:] for name, column in self.columns.items()})

    def given_to(self, places: np.ndarray, tickets: np.ndarray) -> Self:
        """With those at these places given to these tickets."""
        given_H = self["given"].copy()
        given_H[places] = tickets
        return replace(self, columns={**self.columns, "given": given_H})

    def places_of(self, rollouts: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
        """Where these rollouts are, as (ticket, attempt, n); those that are not held are left out."""
        wanted = set(rollouts)
        places = np.flatnonzero(np.isin(self["ticket"], [ticket for ticket, _, _ in wanted]))
        names = zip(*(self[name][places].tolist() for name in ("ticket", "attempt", "n")), strict=True)
        found = dict(zip(names, places.tolist(), strict=True))
        return {name: place for name, place in found.items() if name in wanted}

    def state(self) -> dict[str, np.ndarray]:
        return {f"held.{name}": column.copy() for name, column in self.columns.items()}

    @classmethod
    def from_state(cls, saved: Mapping[str, np.ndarray]) -> Self:
        """Empty where there was none."""
        if "held.serial" not in saved:
            return cls()
        return cls(columns={name: np.array(saved[f"held.{name}"], dtype) for name, dtype in COLUMNS.items()})
