"""The outcomes of a run as a record that `midband replay` reads: every prompt with the groups it was given.

Made from the service's log over its API, for a run that drew uniformly: there, how often a prompt was drawn says
nothing of how difficult it is, so leaving out those that were drawn too rarely for the record distorts nothing.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.bodies import JsonObject
from trainer.client import Client

PAGE = 1_000
KEPT_FIELDS = ("key", "content", "answer", "category")
COUNTED_STATUSES = (0, 3)  # of a rollout in the log: scored, and scored though it was cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A record of `num_prompts` prompts with `visits` groups each, and how much of the run it holds."""

    file: Path
    num_prompts: int
    visits: int
    num_reported: int

    @property
    def num_groups(self) -> int:
        return self.num_prompts * self.visits


def record(client: Client, run: str, file: Path) -> Recording:
    """Write the record; every prompt has as many groups in it as keep the most of them. Existing files are replaced."""
    info = client.run(run)
    group_size = int(str(info.config["group_size"]))
    passes = passes_by_row(client.events(run), group_size)
    visits = most_kept([len(one) for one in passes.values()])
    rows = [
        {
            **{field: prompt[field] for field in KEPT_FIELDS if prompt.get(field) is not None},
            "group_size": group_size,
            "successes": spread(passes[prompt["row"]], visits),
        }
        for prompt in _prompts(client, info.pool)
        if len(passes.get(prompt["row"], ())) >= visits
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Recording(
        file=file,
        num_prompts=len(rows),
        visits=visits,
        num_reported=sum(len(one) for one in passes.values()),
    )


def passes_by_row(events: Iterable[JsonObject], group_size: int) -> Mapping[int, Sequence[int]]:
    """Row of the pool -> how many rollouts of each of its complete groups passed, in the order of the draws.

    A batch that was drawn again after a restore counts once, as it was the last time.
    """
    places: list[
        tuple[int, int, int] | None
    ] = []  # by ordinal of the ticket: index, position, row; None: not trained on
    passes: dict[tuple[int, int, int], int] = {}
    for event in events:
        if event["kind"] == "batch_drawn":
            places += _places(event["event"])
        elif event["kind"] == "rollouts_reported":
            for group in event["event"]["groups"]:
                place, scored = places[group["ticket"]], list(_scored(group))
                if place is not None and len(scored) == group_size:
                    passes[place] = round(sum(scored))
    by_row: defaultdict[int, list[int]] = defaultdict(list)
    for (_, _, row), count in sorted(passes.items()):
        by_row[row].append(count)
    return by_row


def most_kept(num_groups: Iterable[int]) -> int:
    """The number of visits v that keeps the most groups, v times the prompts that have at least v.

    At least 2 if any prompt has them, as one visit is no history; else 1.
    """
    prompts_with = Counter(num_groups)
    most, at_least = (0, 1), 0
    for visits in sorted(prompts_with, reverse=True):
        at_least += prompts_with[visits]
        if visits >= 2:
            most = max(most, (visits * at_least, visits))
    return most[1]


def spread(groups: Sequence[int], visits: int) -> list[int]:
    """So many of the groups, spread evenly over all of them, so that each record spans the whole run."""
    return [groups[place * len(groups) // visits] for place in range(visits)]


def _places(drawn: Mapping[str, Any]) -> list[tuple[int, int, int] | None]:
    if drawn["purpose"] != "train":
        return [None] * len(drawn["row_K"])
    return [(drawn["index"], position, row) for position, row in enumerate(drawn["row_K"])]


def _scored(group: Mapping[str, Any]) -> Iterator[float]:
    for outcome, status in zip(group["outcome"], group["status"], strict=True):
        if outcome is not None and status in COUNTED_STATUSES:
            yield outcome


def _prompts(client: Client, pool: str) -> Iterator[JsonObject]:
    """All of the train split, in the pool's order."""
    cursor: str | None = None
    while True:
        page = client.prompts(pool, split="train", sort="row", limit=PAGE, cursor=cursor)
        yield from page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return
