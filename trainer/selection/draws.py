"""A run's batches in the order of their indices: whole ones or an error, kept so that asking again costs nothing.

The data set and the sampler of this package and the adapters ask here. It holds no position of its own: which index
comes next is the caller's business, as only the caller knows what it has trained on.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from api.schemas import Batch
from trainer.client import Client
from trainer.errors import InvalidRequest, ShortBatch

KEPT = 8  # batches in memory: the one trained on, and those a loader reads ahead


@dataclass(slots=True, kw_only=True)
class Draws:
    """Batches of `size` tickets for `group_size` rollouts each.

    policy_version: gives the version of the weights that will generate, at the time of the draw. Every process of a
    trainer may hold one of these: the same index is the same batch for all of them.
    """

    client: Client
    run: str
    size: int
    group_size: int
    policy_version: Callable[[], int]
    contents: bool = False  # fetch each ticket's content and answer
    _kept: OrderedDict[int, Batch] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        if self.size < 1 or self.group_size < 1:
            raise InvalidRequest(f"size and group_size must be >= 1, got {self.size} and {self.group_size}")

    def __getitem__(self, index: int) -> Batch:
        """The train batch with this index, of exactly `size` tickets.

        Places that selection leaves empty are filled from prompts at rest. Raises ShortBatch where even these do not
        suffice, with the service's reason: a loader that is handed a short list repeats or shifts rows in silence.
        """
        if index in self._kept:
            return self._kept[index]
        batch = self.client.draw(
            self.run,
            index,
            self.size,
            self.policy_version(),
            group_size=self.group_size,
            short="fill",
            include=["content", "answer"] if self.contents else [],
        )
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

    def forget(self) -> None:
        """Drops what is kept: after a restore the same index may be another batch."""
        self._kept.clear()
