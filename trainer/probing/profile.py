"""A pool's profile: one group of every prompt before training, and what it says of training on that pool.

`midband profile` calls it. The groups are whole ones and drawn uniformly, so shares speak of the pool without bias; the
run remembers what was reported, and the same call goes on from there. Axes: N prompts, B bins, S group sizes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from api.schemas import Batch, Ticket
from trainer.client import Client
from trainer.errors import InvalidRequest, NotFound
from trainer.rollout.base import RolloutEngine
from trainer.training.evaluate import PassRate

INDEX = 0  # of the one batch
MOST_ROLLOUTS = 2**23  # of a batch, by the contract
PART = 64  # tickets between two reports
MOST_BINS = 21  # of the histogram; with up to 20 rollouts of a prompt, one for each number of right ones
GROUP_SIZES = (2, 4, 8, 16, 32, 64)
PAGE = 10_000
RETRIED = ("error", "lost", "expired", "too_few")  # tickets that came to nothing and may be tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What came back for one prompt."""

    category: str | None
    outcomes: tuple[float, ...]  # of scored rollouts
    tokens: int  # of all
    rollouts: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryProfile:
    """One category of the pool."""

    name: str
    prompts: int
    pass_rate: float
    informative: float  # share of its groups

    @property
    def informative_rate(self) -> PassRate:
        return _rate(self.informative, self.prompts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The figures. Shares are of prompts with a score."""

    pool: str
    run: str
    prompts: int  # of the pool's train split
    probed: int
    scored: int
    group_size: int
    pass_rate: PassRate
    all_wrong: float
    all_right: float
    histogram_B: list[int]  # prompts by the share passed, rounded to the nearest of 0, 1/(B−1), ..., 1
    yields: dict[int, float]  # by group size, up to the profile's own; empty where outcomes are not just 0 and 1
    informative: float
    tokens_per_rollout: float
    seconds_per_rollout: float
    categories: list[CategoryProfile] = field(default_factory=list)

    @property
    def informative_rate(self) -> PassRate:
        """`informative` with an interval for prompts of the same kind."""
        return _rate(self.informative, self.scored)

    @property
    def epoch_rollouts(self) -> int:
        """One group of every prompt."""
        return self.prompts * self.group_size

    @property
    def epoch_tokens(self) -> float:
        return self.epoch_rollouts * self.tokens_per_rollout

    @property
    def tokens_per_informative(self) -> float:
        """Generated for each group that teaches something, when prompts are drawn evenly; infinite if none does."""
        return self.group_size * self.tokens_per_rollout / self.informative if self.informative else math.inf


def profile_pool(
    client: Client,
    pool: str,
    run: str,
    engine: RolloutEngine,
    *,
    policy_version: int,
    group_size: int,
    prompts: int | None = None,
    watch: Callable[[int, int], None] = lambda done, of: None,
) -> Profile:
    """Probes every prompt of the train split, or `prompts` of them drawn uniformly, and sums up what came back.

    `watch` is told after each report how many tickets are done. Raises InvalidRequest where nothing can be probed, and
    Conflict where a run of this name was made for something else.
    """
    client.create_run(run, pool=pool, group_size=group_size, audit_share=0.0)
    batch = _drawn(client, run, policy_version, group_size, prompts)
    if not batch.tickets:
        raise InvalidRequest(f"pool {pool!r} has no prompt that can be probed: {batch.reason}")
    waiting = _waiting(client, run)
    todo = [(ticket, waiting[ticket.ticket]) for ticket in batch.tickets if ticket.ticket in waiting]
    done = len(batch.tickets) - len(todo)
    watch(done, len(batch.tickets))
    for start in range(0, len(todo), PART):
        part = todo[start : start + PART]
        groups = engine.generate([ticket for ticket, _ in part], policy_version=policy_version)
        reports = [
            group.report().model_copy(update={"attempt": attempt})
            for group, (_, attempt) in zip(groups, part, strict=True)
        ]
        client.report(run, reports, policy_version=policy_version, branch=batch.branch)
        done += len(part)
        watch(done, len(batch.tickets))
    return figures(pool, run, batch.frame, group_size, list(_groups(client, run, batch.tickets)))


def figures(pool: str, run: str, num_prompts: int, group_size: int, groups: Sequence[Group]) -> Profile:
    """The profile of these groups. Raises InvalidRequest if none of them has a score."""
    scored = [group for group in groups if group.outcomes]
    if not scored:
        raise InvalidRequest(
            f"run {run!r}: of {len(groups)} groups none has a score; look at the grader and the engine"
        )
    rollouts = sum(group.rollouts for group in groups)
    shares = [fmean(group.outcomes) for group in scored]
    histogram_B = [0] * min(group_size + 1, MOST_BINS)
    for share in shares:
        histogram_B[round(share * (len(histogram_B) - 1))] += 1
    names = sorted({group.category for group in scored if group.category is not None})
    return Profile(
        pool=pool,
        run=run,
        prompts=num_prompts,
        probed=len(groups),
        scored=len(scored),
        group_size=group_size,
        pass_rate=PassRate.of([group.outcomes for group in scored]),
        all_wrong=fmean(share == 0.0 for share in shares),
        all_right=fmean(share == 1.0 for share in shares),
        histogram_B=histogram_B,
        yields=yields_by_size(scored, group_size),
        informative=fmean(_differs(group) for group in scored),
        tokens_per_rollout=sum(group.tokens for group in groups) / max(rollouts, 1),
        seconds_per_rollout=sum(group.seconds for group in groups) / max(rollouts, 1),
        categories=[_category(name, [group for group in scored if group.category == name]) for name in names],
    )


def yields_by_size(groups: Sequence[Group], group_size: int) -> dict[int, float]:
    """Share of groups of g rollouts that would be informative: mean of 1 − [C(k, g) + C(n−k, g)] / C(n, g).

    That is the chance that g of a prompt's n rollouts, taken at random, are not all alike, and so unbiased for any g up
    to the fewest scored rollouts of a group; larger g are left out. Empty for outcomes other than 0 and 1.
    """
    if any(outcome not in (0.0, 1.0) for group in groups for outcome in group.outcomes):
        return {}
    fewest = min(len(group.outcomes) for group in groups)
    sizes = sorted({size for size in (*GROUP_SIZES, group_size) if 2 <= size <= fewest})
    return {size: fmean(_chance_to_differ(group.outcomes, size) for group in groups) for size in sizes}


def _chance_to_differ(outcomes: Sequence[float], size: int) -> float:
    n, k = len(outcomes), round(sum(outcomes))
    return 1.0 - (math.comb(k, size) + math.comb(n - k, size)) / math.comb(n, size)


def _category(name: str, groups: Sequence[Group]) -> CategoryProfile:
    return CategoryProfile(
        name=name,
        prompts=len(groups),
        pass_rate=fmean(fmean(group.outcomes) for group in groups),
        informative=fmean(_differs(group) for group in groups),
    )


def _rate(share: float, num_groups: int) -> PassRate:
    differ = round(share * num_groups)
    return PassRate.of([[1.0]] * differ + [[0.0]] * (num_groups - differ))


def _differs(group: Group) -> bool:
    return max(group.outcomes) > min(group.outcomes)


def _drawn(client: Client, run: str, policy_version: int, group_size: int, prompts: int | None) -> Batch:
    """The run's one batch: each prompt once. Asked for again it is the same, whatever the pool has become."""
    try:
        size = client.batch(run, INDEX, purpose="probe").requested
    except NotFound:
        states = client.run(run).states
        size = sum(states[name] for name in ("new", "active", "mastered", "deferred"))
        size = max(1, min(size, prompts or size, MOST_ROLLOUTS // group_size))
    # With repeats allowed a probe batch is a plain uniform draw of whole groups; none is repeated at this size.
    return client.draw(
        run,
        INDEX,
        size,
        policy_version,
        group_size=group_size,
        purpose="probe",
        allow_repeat=True,
        include=["content", "answer"],
    )


def _waiting(client: Client, run: str) -> dict[str, int]:
    """The attempt that each ticket waits for; those that are reported are left out."""
    found: dict[str, int] = {}
    cursor: str | None = None
    while True:
        page = client.tickets(run, batch=INDEX, purpose="probe", limit=PAGE, cursor=cursor)
        for item in page.items:
            if item.state == "open":
                found[item.ticket] = item.attempt
            elif item.state == "void" and item.reason in RETRIED:
                found[item.ticket] = item.attempt + 1
        cursor = page.next_cursor
        if cursor is None:
            return found


def _groups(client: Client, run: str, tickets: Sequence[Ticket]) -> Iterator[Group]:
    """What the run's log holds of these tickets, which are its first; of several attempts, the last."""
    held: dict[int, dict[str, Any]] = {}
    for event in client.events(run):
        for group in event["event"]["groups"] if event["kind"] == "rollouts_reported" else ():
            if group["ticket"] not in held or group["reopens"]:
                held[group["ticket"]] = {"outcomes": [], "tokens": 0, "rollouts": 0, "seconds": 0.0}
            one = held[group["ticket"]]
            scored = zip(group["outcome"], group["status"], strict=True)
            one["outcomes"] += [outcome for outcome, status in scored if outcome is not None and status in (0, 3)]
            one["tokens"] += sum(group["tokens"])
            one["rollouts"] += len(group["n"])
            one["seconds"] += sum(group["seconds"])
    for place, ticket in enumerate(tickets):
        if place in held:
            one = held[place]
            yield Group(
                category=ticket.category,
                outcomes=tuple(one["outcomes"]),
                tokens=one["tokens"],
                rollouts=one["rollouts"],
                seconds=one["seconds"],
            )
