"""Informative groups of earlier steps with their rollouts, for a trainer that learns from them again.

`trainer.policy` asks it under `keep = "popo"`. Which group is taken is decided in `trainer.finished.replay` by names
alone; this holds what the names stand for, and keeps it with a checkpoint. Knows no tensors.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from api.schemas import Ticket
from trainer.finished.replay import Memory, Past, Replayed, fill_places
from trainer.rollout.base import Rollout, RolloutGroup

FILE = "past_groups.json"


class PastGroups:
    """The latest informative groups, `size` of them at most."""

    def __init__(self, size: int, max_lag: int) -> None:
        self.memory, self.max_lag = Memory(size=size), max_lag
        self.held: dict[str, RolloutGroup] = {}

    def fill(
        self, groups: Sequence[RolloutGroup], informative: Sequence[bool], *, version: int
    ) -> tuple[list[RolloutGroup], list[Replayed]]:
        """The batch with past groups in place of degenerate ones, and which those are. This batch's own informative
        groups are held from here on; `version` is that of the weights that made them.
        """
        replayed = fill_places(informative, self.memory, version=version, max_lag=self.max_lag)
        filled = list(groups)
        for one in replayed:
            filled[one.place] = self.held[one.ticket]
        self._hold(
            (Past(ticket=group.ticket.ticket, behaviour_version=version), group)
            for group, differs in zip(groups, informative, strict=True)
            if differs
        )
        return filled, replayed

    def _hold(self, groups: Iterable[tuple[Past, RolloutGroup]]) -> None:
        added = list(groups)
        self.memory = self.memory.after(past for past, _ in added)
        known = self.held | {past.ticket: group for past, group in added}
        self.held = {past.ticket: known[past.ticket] for past in self.memory.groups}

    def save(self, folder: Path) -> None:
        """Write everything into a checkpoint's folder."""
        lines = [
            {
                "behaviour_version": past.behaviour_version,
                "ticket": (group := self.held[past.ticket]).ticket.model_dump(mode="json"),
                "rollouts": [asdict(rollout) for rollout in group.rollouts],
            }
            for past in self.memory.groups
        ]
        (folder / FILE).write_text(json.dumps(lines), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Read it again, to the bit."""
        self.memory, self.held = Memory(size=self.memory.size), {}
        for line in json.loads((folder / FILE).read_text(encoding="utf-8")):
            ticket = Ticket.model_validate(line["ticket"])
            group = RolloutGroup(ticket=ticket, rollouts=tuple(Rollout(**values) for values in line["rollouts"]))
            self._hold([(Past(ticket=ticket.ticket, behaviour_version=line["behaviour_version"]), group)])
