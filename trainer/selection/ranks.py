"""Whether all processes of a trainer hold the same batch: the check that no trainer makes by itself.

With different batches on different ranks a run goes on without an error: half of the prompts are never rolled out, and
a group that spans ranks is normalised over two prompts.
"""

from collections.abc import Sequence

from trainer.errors import RanksDisagree


def refuse_differences(digests: Sequence[str], *, what: str) -> None:
    """digests: one a rank, in the order of ranks. Raises RanksDisagree naming the ranks that differ from rank 0."""
    others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if others:
        raise RanksDisagree(
            f"{what} is not the same on all ranks: {others} of {len(digests)} differ from rank 0; give every rank the "
            "same run, size and group size, and let none of them read ahead"
        )
