"""A batch drawn uniformly from the caller's own copy of the prompts, for steps at which the service does not answer.

`draws` asks here, and only when its user said so. Such a batch is marked wherever it can be: its tickets have no id,
so they cannot be reported, its reason is `service_away`, and its claim says that no run drew it. The service never
learns of it: its audit and its costs leave out what was spent on it.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np

from api.schemas import Batch, ClaimInfo, Predicted, Ticket
from trainer.bodies import Row
from trainer.errors import InvalidRequest, ShortBatch

REASON = "service_away"
BRANCH = "away"  # stands in the ids of such tickets where a run's branch would; a trainer keys its samples by ids
CLAIM = ClaimInfo(
    type="empirical", objective="uniform over the caller's copy", conditions=["not drawn by a run: nothing is reported"]
)


def train_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that may be trained on, in the order of their keys, so that processes agree whatever order they have.

    Raises InvalidRequest for a row without a key and for keys that stand twice.
    """
    wanted = {str(row["key"]): row for row in rows if "key" in row and row.get("split", "train") == "train"}
    held = [row for row in rows if row.get("split", "train") != "train"]
    if len(wanted) + len(held) != len(rows):
        raise InvalidRequest("every row of one's own prompts needs a `key`, and none twice: those that the pool has")
    return [wanted[key] for key in sorted(wanted)]


def uniform_batch(
    rows: Sequence[Row], *, run: str, index: int, size: int, group_size: int, policy_version: int, contents: bool
) -> Batch:
    """`size` different prompts, each as likely as any: the same for every process that has the same rows.

    Keyed by run and index. rows: as `train_rows` gives them. Raises ShortBatch if there are fewer than `size`.
    """
    if size > len(rows):
        raise ShortBatch(f"run {run!r}, batch {index}: {len(rows)} prompts of one's own, {size} wanted", reason=REASON)
    seed = hashlib.blake2b(f"{run}:{index}".encode(), digest_size=16).digest()
    rng = np.random.Generator(np.random.Philox(key=int.from_bytes(seed, "little")))
    drawn = [rows[place] for place in rng.choice(len(rows), size, replace=False).tolist()]
    return Batch(
        run=run, branch=0, purpose="train", index=index, refill=0, requested=size, returned=size, reason=REASON,
        claim=CLAIM, predicted_yield=None, policy_version=policy_version,
        digest=hashlib.sha256("\n".join(str(row["key"]) for row in drawn).encode()).hexdigest(),
        frame=len(rows), eligible=len(rows), blocked=0,
        tickets=[_ticket(row, size / len(rows), group_size, contents) for row in drawn],
    )  # fmt: skip


def named(batch: Batch) -> Batch:
    """The batch with ids for its tickets, for a trainer that reports none of them: `drawn_here` knows these."""
    tickets = [
        ticket.model_copy(update={"ticket": f"{batch.run}:{BRANCH}:train:{batch.index}:{batch.refill}:{place}"})
        for place, ticket in enumerate(batch.tickets)
    ]
    return batch.model_copy(update={"tickets": tickets})


def drawn_here(ticket: str) -> bool:
    """Whether this id is of a ticket that no run drew."""
    return ticket.split(":")[1:2] == [BRANCH]


def _ticket(row: Mapping[str, object], probability: float, group_size: int, contents: bool) -> Ticket:
    # Of these prompts nothing is known here: a half, as uncertain as a pass rate can be.
    category, answer = row.get("category"), row.get("answer")
    return Ticket(
        ticket="", prompt=str(row["key"]), purpose="train", group_size=group_size, first_wave=group_size,
        inclusion_probability=probability, weight=1.0,
        predicted=Predicted(pass_rate=0.5, pass_rate_sd=math.sqrt(1 / 12), informative=0.0),
        category=None if category is None else str(category),
        content=row.get("content") if contents else None,
        answer=None if answer is None or not contents else str(answer),
    )  # fmt: skip
