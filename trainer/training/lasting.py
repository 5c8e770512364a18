"""A client for a training that outlives its service: what is asked and said while nobody answers, and once they do.

`trainer.grpo` makes one of whatever client it is given, and its loop calls it as any other. Every call is tried again
for a stated time. Then, by `when_away.then`, it is an error, or training goes on: batches are drawn uniformly from a
copy of the prompts that was made at the start, and what there is to say is kept. From then on the service is asked once
a step, until it answers; it is then told all of it in the old order, and draws the next batch as if it had never been
away. What it never hears of is in `away.jsonl`: groups drawn here, as no run drew their prompts, and those whose
report came too late or not at all.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from api import schemas
from api.schemas import Batch, GroupAnswer, GroupReport, ReportAnswer, StepAnswer
from trainer.advantages import TOLERANCE
from trainer.bodies import Row
from trainer.client import Client
from trainer.errors import InvalidRequest, ServiceUnavailable
from trainer.options import DrawOptions, StepOptions
from trainer.reports import as_group
from trainer.selection.away import drawn_here, named, train_rows, uniform_batch
from trainer.training.config import TrainConfig

PAGE = 1_000  # prompts asked for at once
COUNTED = ("ok", "truncated")

logger = logging.getLogger("midband")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """What an absence of the service has left behind."""

    batches: int = 0  # drawn here
    late: int = 0  # groups that the service drew and heard of only when it was back
    unreported: Sequence[str] = ()  # tickets that the service drew and never took a report of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unsent:
    """A call that waits for the service; of a report, the groups too."""

    send: Callable[[Client], object]
    groups: Sequence[GroupReport] = ()


class LastingClient(Client):
    """`client` with the patience and the choice of a configuration. Leaving it as a context manager closes nothing."""

    def __init__(self, config: TrainConfig, client: Client) -> None:
        settings = config.when_away
        self._patient, self._once = client.waiting(settings.patience_s), client.waiting(0.0)
        self._connection = self._patient._connection  # of the calls that are made at the start alone
        self._lasts = settings.then == "uniform"
        self._group_size, self._file = config.batch.group_size, config.output / "away.jsonl"
        self._pool, self._rows = config.pool.name, list[Row]()
        self._unsent: deque[_Unsent] = deque()
        self._here: set[int] = set()  # indices of batches drawn here
        self._prompts: dict[str, str] = {}  # of their tickets that are not done yet
        self._late, self._unreported = 0, list[str]()
        self.is_away = False  # the last call was not answered

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._give_up()

    def copy_prompts(self) -> Self:
        """Fetch what batches are drawn from while the service is away, where they are. Raises InvalidRequest if the
        pool has nothing to train on.
        """
        if self._lasts:
            self._rows = train_rows(list(_train_prompts(self._patient, self._pool)))
            if not self._rows:
                raise InvalidRequest(f"when_away is 'uniform', and pool {self._pool!r} has no prompt to be drawn")
        return self

    @property
    def left_behind(self) -> Away:
        return Away(batches=len(self._here), late=self._late, unreported=tuple(self._unreported))

    def draw(self, run: str, index: int, size: int, policy_version: int, **options: Unpack[DrawOptions]) -> Batch:
        """The service's batch; while it is away one of one's own, or none where that would not be a training batch."""
        is_first_of_step = options.get("purpose", "train") == "train" and not options.get("refill")
        if is_first_of_step or not self.is_away:
            try:
                if self.is_away:
                    self._catch_up()
                return self._ask(lambda client: client.draw(run, index, size, policy_version, **options))
            except ServiceUnavailable:
                if not self._lasts:
                    raise
        size = min(size, len(self._rows)) if is_first_of_step else 0
        batch = uniform_batch(
            self._rows, run=run, index=index, size=size, group_size=self._group_size, policy_version=policy_version,
            contents=True,
        )  # fmt: skip
        if size:
            batch = named(batch)
            self._here.add(index)
            self._prompts |= {ticket.ticket: ticket.prompt for ticket in batch.tickets}
        return batch

    def report(
        self,
        run: str,
        groups: Iterable[GroupReport | Mapping[str, object]],
        *,
        policy_version: int | None = None,
        branch: int | None = None,
    ) -> ReportAnswer:
        """The service's answer; without one, what can be said of these groups here. A batch's groups come together:
        either the service drew all of them or none.
        """
        told = [as_group(group) for group in groups]
        if drawn_here(told[0].ticket):
            self._note(told)
            return _judged_here(told)

        def send(client: Client, groups: Sequence[GroupReport] = told) -> ReportAnswer:
            return client.report(run, groups, policy_version=policy_version, branch=branch)

        if not self.is_away:
            try:
                return self._ask(send)
            except ServiceUnavailable:
                if not self._lasts:
                    raise
        # Nobody will say how a wave goes on: groups end with what they have.
        ended = [group.model_copy(update={"final": group.void is None}) for group in told]
        self._unsent.append(_Unsent(send=lambda client: send(client, ended), groups=ended))
        return _judged_here(told)

    def step(self, run: str, step: int, *, policy_version: int, **options: Unpack[StepOptions]) -> StepAnswer:
        """Recorded now or when the service is back. A step on a batch drawn here names no tickets and no weights."""
        if step in self._here:
            options |= {"trained": [], "weights_applied": False}

        def send(client: Client) -> StepAnswer:
            return client.step(run, step, policy_version=policy_version, **options)

        if not self.is_away:
            try:
                return self._ask(send)
            except ServiceUnavailable:
                if not self._lasts:
                    raise
        self._unsent.append(_Unsent(send=send))
        return StepAnswer(step=step, branch=0, state="recorded", rejected=[])

    def checkpoint(self, run: str, step: int) -> schemas.CheckpointInfo:
        """Raises ServiceUnavailable, at once while the service is known to be away."""
        if self.is_away:
            raise ServiceUnavailable(f"run {run!r}, step {step}: the service is away and makes no checkpoint")
        return self._ask(lambda client: client.checkpoint(run, step))

    def finish(self, run: str) -> Away:
        """Say what is left to be said, with all the patience there is, and end the run; returns what stays unsaid."""
        self.is_away = False
        try:
            self._catch_up()
            self._ask(lambda client: client.complete(run))
        except ServiceUnavailable:
            if not self._lasts:
                raise
        self._give_up()
        return self.left_behind

    def _ask(self, call: Callable[[Client], T]) -> T:
        """The answer of the service. While it is away it is asked once and not waited for."""
        try:
            answer = call(self._once if self.is_away else self._patient)
        except ServiceUnavailable as error:
            if self._lasts and not self.is_away:
                logger.warning(
                    "%s; until it is back, batches are drawn uniformly from a copy of %d prompts, and never reported",
                    error,
                    len(self._rows),
                )
            self.is_away = True
            raise
        if self.is_away:
            logger.warning("the service is back; %d batches were drawn without it so far", len(self._here))
        self.is_away = False
        return answer

    def _catch_up(self) -> None:
        """Everything that was not said, in its order. Reports that come too late for the service are named."""
        while self._unsent:
            unsent = self._unsent[0]
            answer = self._ask(unsent.send)
            self._unsent.popleft()
            if isinstance(answer, ReportAnswer):
                refused = {rejection.ticket for rejection in answer.rejected}
                self._late += len(unsent.groups) - len(refused)
                self._lose([group for group in unsent.groups if group.ticket in refused])

    def _give_up(self) -> None:
        while self._unsent:
            self._lose(self._unsent.popleft().groups)

    def _lose(self, groups: Sequence[GroupReport]) -> None:
        if groups:
            self._unreported += [group.ticket for group in groups]
            logger.warning("the service never heard of %s", ", ".join(group.ticket for group in groups))
            self._note(groups)

    def _note(self, groups: Sequence[GroupReport]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            for group in groups:
                line = {"ticket": group.ticket, "prompt": self._prompts.pop(group.ticket, None), **_summed_up(group)}
                file.write(json.dumps(line) + "\n")


def _summed_up(group: GroupReport) -> dict[str, Any]:
    scores = _scores(group)
    return {
        "rollouts": len(
            {rollout.n if rollout.n is not None else place for place, rollout in enumerate(group.rollouts)}
        ),
        "scored": len(scores),
        "passes": sum(outcome for outcome, _ in scores),
        "tokens": sum(rollout.tokens or 0 for rollout in group.rollouts),
    }


def _scores(group: GroupReport) -> list[tuple[float, float]]:
    """Outcome and reward of each rollout that counts; the fragments of one count once."""
    by_rollout: dict[int, tuple[float, float]] = {}
    for place, rollout in enumerate(group.rollouts):
        if rollout.outcome is not None and rollout.status in COUNTED:
            reward = rollout.outcome if rollout.reward is None else rollout.reward
            by_rollout[place if rollout.n is None else rollout.n] = (rollout.outcome, reward)
    return list(by_rollout.values())


def _judged_here(groups: Sequence[GroupReport]) -> ReportAnswer:
    """What a service would say of groups that end with these rollouts, as far as the rollouts themselves say it."""
    answers = []
    for group in groups:
        scores = _scores(group)
        rewards = [reward for _, reward in scores]
        answers.append(
            GroupAnswer(
                ticket=group.ticket, attempt=None, state=None, scored=len(scores),
                passes=sum(outcome for outcome, _ in scores),
                informative=max(rewards) - min(rewards) > TOLERANCE if rewards else None, next="stop", more=0,
            )
        )  # fmt: skip
    return ReportAnswer(applied=0, duplicate=0, late=0, rejected=[], groups=answers)


def _train_prompts(client: Client, pool: str) -> Iterable[Row]:
    """The pool's prompts that can be trained on, as rows of the contract."""
    cursor: str | None = None
    while True:
        page = client.prompts(pool, split="train", limit=PAGE, cursor=cursor)
        for prompt in page["items"]:
            if not (prompt["absent"] or prompt["quarantined"]):
                yield {name: prompt[name] for name in ("key", "content", "answer", "category")}
        cursor = page["next_cursor"]
        if cursor is None:
            return
