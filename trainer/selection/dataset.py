"""Drawn batches as a data loader reads them: a data set of tickets, and a sampler of positions in a trainer's own rows.

Trainers without a hook for samplers take the data set: item i is the ticket at place i mod size of batch i div size.
Those that keep their own rows take the sampler.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.errors import InvalidRequest
from trainer.selection.draws import Draws


class SelectionDataset:
    """Items are mappings with `ticket`, `prompt` (its key), `content`, `answer`, `category`, `weight`, `group_size`.

    num_batches: how many batches the trainer will read at most. start: index of the first, `resume_from` of a restore.
    A batch is drawn when its first item is asked for, and items must be asked for in order: a loader that shuffles or
    reads in worker processes would draw batches nobody trains on, and is refused.
    """

    def __init__(self, draws: Draws, num_batches: int, *, start: int = 0) -> None:
        if num_batches < 1 or start < 0:
            raise InvalidRequest(f"num_batches must be >= 1 and start >= 0, got {num_batches} and {start}")
        if not draws.contents:
            raise InvalidRequest("these draws leave contents out: make them with contents=True")
        self._draws = draws
        self._num_batches = num_batches
        self._start = start
        self._newest = -1

    def __len__(self) -> int:
        return self._num_batches * self._draws.size

    def __getitem__(self, item: int) -> Mapping[str, Any]:
        """Raises InvalidRequest when asked from a loader's worker or out of order, ShortBatch for a batch not whole."""
        if not 0 <= item < len(self):
            raise IndexError(f"item {item} of {len(self)}")
        refuse_workers()
        place, position = divmod(item, self._draws.size)
        if place > self._newest + 1:
            raise InvalidRequest(
                f"item {item} lies in batch {place}, and batch {self._newest + 1} was not read yet: the loader skips "
                "or shuffles; set shuffle=False, and after a restore begin at its resume_from instead of skipping"
            )
        self._newest = max(self._newest, place)
        ticket = self._draws[self._start + place].tickets[position]
        return {
            "ticket": ticket.ticket,
            "prompt": ticket.prompt,
            "content": ticket.content,
            "answer": ticket.answer,
            "category": ticket.category,
            "weight": ticket.weight,
            "group_size": ticket.group_size,
        }


class SelectionSampler:
    """Positions in the trainer's own rows, batch after batch: what a data loader takes as its sampler.

    rows: the position of each prompt's row, by its key. Each prompt of a batch is repeated `group_size` times in a row,
    and the whole batch `repeats` times, for trainers that reuse generated groups over several updates. It goes on over
    epochs: each iteration begins behind the last batch that was drawn.
    """

    def __init__(
        self, draws: Draws, rows: Mapping[str, int], *, num_batches: int, repeats: int = 1, start: int = 0
    ) -> None:
        if num_batches < 1 or repeats < 1 or start < 0:
            raise InvalidRequest(
                f"num_batches and repeats must be >= 1 and start >= 0, got {num_batches}, {repeats} and {start}"
            )
        self._draws = draws
        self._rows = rows
        self._num_batches = num_batches
        self._repeats = repeats
        self.next_index = start

    def __len__(self) -> int:
        return self._num_batches * self._draws.size * self._draws.group_size * self._repeats

    def __iter__(self) -> Iterator[int]:
        """Raises ShortBatch for a batch that is not whole, InvalidRequest for a prompt the trainer has no row of."""
        for _ in range(self._num_batches):
            refuse_workers()
            index = self.next_index
            batch = self._draws[index]
            self.next_index = index + 1
            positions = [row for ticket in batch.tickets for row in [self._row(ticket.prompt)] * self._draws.group_size]
            for _ in range(self._repeats):
                yield from positions

    def _row(self, prompt: str) -> int:
        row = self._rows.get(prompt)
        if row is None:
            raise InvalidRequest(
                f"run {self._draws.run!r} drew prompt {prompt!r}, and this trainer's data has no such row: give the "
                "pool the prompts of this data set only, or import with mode='replace'"
            )
        return row


def refuse_workers() -> None:
    """Raises InvalidRequest inside a worker process of torch's data loader: several would read batches far ahead."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and torch_data.get_worker_info() is not None:
        raise InvalidRequest(
            "a data loader's worker process asks for drawn prompts: set num_workers=0 (dataloader_num_workers=0), as "
            "workers draw batches long before the rewards they should follow"
        )
