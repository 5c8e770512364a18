"""A run's batches in the order of their indices: whole ones or an error, kept so that asking again costs nothing.

The data set and the sampler of this package and the adapters ask here. It holds no position of its own: which index
comes next is the caller's business, as only the caller knows what it has trained on.

When the service is away the client has waited for its patience before anything is noticed here. Then it is an error, or
where that was asked for a uniform draw from one's own copy of the prompts, said once and counted in `num_away`.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from api.schemas import Batch
from trainer.bodies import Row
from trainer.client import Client
from trainer.errors import InvalidRequest, ServiceUnavailable, ShortBatch
from trainer.selection.away import train_rows, uniform_batch

KEPT = 8  # batches in memory: the one trained on, and those a loader reads ahead

logger = logging.getLogger("midband")


@dataclass(slots=True, kw_only=True)
class Draws:
    """Batches of `size` tickets for `group_size` rollouts each.

    policy_version: gives the version of the weights that will generate, at the time of the draw. Every process of a
    trainer may hold one of these: the same index is the same batch for all of them.

    when_away: what becomes of a draw that the service did not answer within the client's patience. `stop` raises
    ServiceUnavailable. `uniform` draws from `own_prompts`, rows with the contract's fields as they were imported; its
    tickets have no id and are not to be reported: `trainer.reports.group` refuses them. Draw by draw the service is
    asked first, so a short `patience_s` of the client keeps the steps going.
    """

    client: Client
    run: str
    size: int
    group_size: int
    policy_version: Callable[[], int]
    contents: bool = False  # fetch each ticket's content and answer
    when_away: Literal["stop", "uniform"] = "stop"
    own_prompts: Sequence[Row] = ()
    num_away: int = 0  # batches that no run drew
    _kept: OrderedDict[int, Batch] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        if self.size < 1 or self.group_size < 1:
            raise InvalidRequest(f"size and group_size must be >= 1, got {self.size} and {self.group_size}")
        if (self.when_away == "uniform") != bool(self.own_prompts):
            raise InvalidRequest(
                "when_away='uniform' draws from own_prompts, and nothing else does: give both, or neither"
            )
        self.own_prompts = train_rows(self.own_prompts)

    def __getitem__(self, index: int) -> Batch:
        """The train batch with this index, of exactly `size` tickets.

        Places that selection leaves empty are filled from prompts at rest. Raises ShortBatch where even these do not
        suffice, with the service's reason: a loader that is handed a short list repeats or shifts rows in silence.
        """
        if index in self._kept:
            return self._kept[index]
        version = self.policy_version()
        try:
            batch = self.client.draw(
                self.run,
                index,
                self.size,
                version,
                group_size=self.group_size,
                short="fill",
                include=["content", "answer"] if self.contents else [],
            )
        except ServiceUnavailable as error:
            if self.when_away == "stop":
                raise
            batch = self._drawn_here(index, version, error)
        if batch.returned != self.size:
            raise ShortBatch(
                f"run {self.run!r}, batch {index}: {batch.returned} of {self.size} tickets ({batch.reason}): "
                f"{batch.frame} prompts can be drawn and {batch.blocked} of them are in flight; use smaller batches or "
                "add prompts",
                reason=batch.reason,
            )
        self._kept[index] = batch
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return batch

    def _drawn_here(self, index: int, version: int, error: ServiceUnavailable) -> Batch:
        if not self.num_away:
            logger.warning(
                "run %s: %s; batch %d, and others while that lasts, are drawn uniformly from this process's own %d "
                "prompts and never reported",
                self.run, error, index, len(self.own_prompts),
            )  # fmt: skip
        self.num_away += 1
        return uniform_batch(
            self.own_prompts,
            run=self.run,
            index=index,
            size=self.size,
            group_size=self.group_size,
            policy_version=version,
            contents=self.contents,
        )

    def forget(self) -> None:
        """Drops what is kept: after a restore the same index may be another batch."""
        self._kept.clear()
