"""GRPO on prompts that the service selects: the reference loop, read from top to bottom.

A step draws K tickets, rolls them out and reports them, more of them where the run fills its batches up, updates the
weights and says what that cost: `Training.step`.
Where rollouts run ahead, the batch was begun some steps before: `rollout.ahead`.
`policy` has the update, `advantages` and `loss` its formulas, and what surrounds a run is in `training/`. Nothing here
selects prompts. Randomness is keyed by seed and step and no generator's state is carried on, so a run that was resumed
from a checkpoint equals one that never stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from api.schemas import Batch, GroupAnswer
from trainer.client import Client
from trainer.errors import InvalidRequest, MidbandError, ServiceUnavailable
from trainer.loss import yield_factor
from trainer.policy import Policy, reward_of
from trainer.priors import prior_rollouts
from trainer.rollout.ahead import Ahead, by_age
from trainer.rollout.base import RolloutEngine, RolloutGroup
from trainer.rollout.waves import RolledOut, hand_in, roll_out
from trainer.training.checkpoints import Checkpoints, begin
from trainer.training.config import StopSettings, TrainConfig
from trainer.training.evaluate import Evaluation, StratumOf, evaluate, strata
from trainer.training.lasting import Away, LastingClient
from trainer.training.meters import Meters
from trainer.training.metrics import Line, Metrics
from trainer.training.progress import Laps, Progress, environment_of, step_costs, step_line

Watch = Callable[[Line], None]  # is called with every line of the metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a training run ended."""

    run: str
    progress: Progress
    stopped: str  # `steps`, `tokens`, or the service's reason for having nothing to draw
    evaluations: Sequence[Evaluation]  # of the whole run, those from before it was resumed too
    away: Away  # what absences of the service have left behind


def train(
    config: TrainConfig,
    client: Client,
    policy: Policy,
    engine: RolloutEngine,
    *,
    stratum_of: StratumOf | None = None,
    watch: Watch | None = None,
    ahead: Ahead | None = None,
) -> Result:
    """Train until `config.stop`, or go on with what is in `config.output`. The pool must be on the service.

    `policy` comes with the weights of the start, also when it goes on from others; `engine` generates with the very
    weights that `policy` changes, or takes them at each `sync`. `stratum_of` overrides what evaluations are split by;
    `ahead` is what generates training batches where `asynchrony.depth` is above 0. Raises InvalidRequest for a
    configuration that does not fit what is there, MidbandError when the service or the numbers refuse.
    """
    if (config.asynchrony.depth > 0) != (ahead is not None):
        raise InvalidRequest(
            f"asynchrony.depth is {config.asynchrony.depth}: give `ahead` where it is above 0 and only there"
        )
    saved, metrics = Checkpoints(config.output), Metrics(config.output / "metrics.jsonl")
    with LastingClient(config, client) as lasting:
        at = saved.progress()
        stopped = None if at is None else _reached(config.stop, at)
        if at is None or stopped is None:
            at = begin(config, lasting, policy, metrics)
            lasting.copy_prompts()
            engine.sync(policy_version=at.step)
            stratum_of = stratum_of or strata(client, config.pool.name, config.evaluation.stratum)
            training = Training(config, lasting, policy, engine, metrics, at, stratum_of, watch, ahead)
            training.look_and_keep()
            while (stopped := _reached(config.stop, training.at) or training.step()) is None:
                training.look_and_keep()
            training.look_and_keep(last=True)
            training.hand_in_what_is_left()
            at = (None if training.overdue else saved.progress()) or training.at
        away = lasting.finish(config.run.name)
    evaluations = [Evaluation.from_json(line) for line in metrics.lines("evaluation")]
    return Result(run=config.run.name, progress=at, stopped=stopped, evaluations=evaluations, away=away)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """What a step has to learn from."""

    groups: list[RolloutGroup]  # of all that was drawn, but for the stale ones
    answers: list[GroupAnswer]  # what the service says of each
    trained: list[RolloutGroup]  # those that the update is made of
    stale: list[RolloutGroup]  # paid for, too old to be trained on
    factor: float  # of the loss

    @property
    def judged(self) -> dict[str, bool]:
        """Whether a ticket's group was informative, for those that the service could tell of."""
        return {answer.ticket: answer.informative for answer in self.answers if answer.informative is not None}


class Training:
    """A run under way: what it needs at hand, and how far it is."""

    def __init__(
        self,
        config: TrainConfig,
        client: LastingClient,
        policy: Policy,
        engine: RolloutEngine,
        metrics: Metrics,
        at: Progress,
        stratum_of: StratumOf,
        watch: Watch | None,
        ahead: Ahead | None,
    ) -> None:
        self.config, self.client, self.policy, self.engine = config, client, policy, engine
        self.metrics, self.at, self.stratum_of, self.watch = metrics, at, stratum_of, watch
        self.run, self.ahead, self.meters = config.run.name, ahead, Meters()
        self.looked_at, self.kept_at = at.step or None, at.step  # at the very start there is a checkpoint and no look
        self.overdue = False  # a checkpoint that the service was not there for

    def step(self) -> str | None:
        """One batch and one update; returns what the service says when it has nothing to draw."""
        index = self.at.step  # updates made, so also the version of the weights
        laps = Laps()

        # Draw, roll out, report.
        drawn = self._draw(laps, self.config.batch.size) if self.ahead is None else self._take(self.ahead, laps)
        if isinstance(drawn, str):
            return drawn
        batch = self._filled_up(drawn, laps)

        # Update, and hand the new weights to the sampler. Where every group was too old the weights stay as they are.
        figures = self.policy.update(batch.trained, step=index, factor=batch.factor) if batch.trained else {}
        laps.end("update")
        self.engine.sync(policy_version=index + 1)
        laps.end("weight_sync")

        # Tell the service what the step used and what it cost.
        costs, held = step_costs(batch.groups + batch.stale, laps), self._held()
        self.client.step(
            self.run,
            index,
            policy_version=index + 1,
            # Degenerate groups are trained on as well: their term of the mean is 0, and the mean counts them.
            trained=[g.ticket.ticket for g in batch.trained if any(reward_of(r) is not None for r in g.rollouts)],
            weights_applied=self._weights_applied(batch),
            costs=costs | held | {"environment": environment_of(self.config)},
        )

        # Write it down.
        self.at = self.at.after(batch.groups + batch.stale)
        line = step_line(self.at, batch.groups + batch.stale, list(batch.judged.values())) | figures
        if self.ahead is not None:
            lags = [index - group.version for group in batch.groups if group.version is not None]
            line |= {"lag": sum(lags) / max(len(lags), 1), "stale": len(batch.stale)}
        self._record(line | {"seconds": costs, "measured": held})
        return None

    def _filled_up(self, drawn: RolledOut, laps: Laps) -> StepBatch:
        """This batch, with what is drawn in addition where the run's policy fills it up with informative groups."""
        groups, answers, trained, factor, stale = drawn.groups, drawn.answers, drawn.kept, 1.0, drawn.stale
        while (standing := drawn.standing) is not None:
            kept = set(standing.kept)
            trained, factor = [group for group in groups if group.ticket.ticket in kept], standing.factor
            more = standing.size and self._draw(laps, standing.size, standing.refill)
            if not isinstance(more, RolledOut):
                break
            drawn, groups, answers = more, groups + more.groups, answers + more.answers
        # Where none is kept, nothing can be learned from any of them; the step is made all the same.
        batch = StepBatch(groups=groups, answers=answers, trained=trained or groups, stale=stale, factor=factor)
        if self.config.loss.inverse_yield == "cancelled":
            return batch
        judged = batch.judged
        counted = [judged[group.ticket.ticket] for group in batch.trained if group.ticket.ticket in judged]
        return replace(batch, factor=factor * yield_factor(sum(counted), len(counted)))

    def _weights_applied(self, batch: StepBatch) -> bool:
        """Whether the update is the weighted mean that the run's claim speaks of. A sum that is divided by the
        informative groups is not, nor one that leaves rollouts out or counts older ones less.
        """
        return (
            self.config.loss.inverse_yield == "cancelled"
            and self.config.loss.keep.rule == "all"
            and self.config.asynchrony.rule == "drop"
            and all(group.ticket.weight is not None for group in batch.groups)
        )

    def _held(self) -> dict[str, Any]:
        """Energy, peaks of memory, and what environments took of the time, for the step's costs."""
        engine = self.engine if self.ahead is None else self.ahead.engine
        in_them = engine.environment_s()
        return self.meters.costs() | ({"environment_s": in_them} if in_them else {})

    def _take(self, ahead: Ahead, laps: Laps) -> RolledOut | str:
        """This step's batch of those that run ahead, once more of them are begun; what is too old ends as stale."""
        index, settings, last = self.at.step, self.config.asynchrony, self.config.stop.steps
        for place in range(index + len(ahead), index + settings.depth + 1):
            if last is None or place < last:
                ahead.begin(self._batch(place, self.config.batch.size), version=index)
        laps.end("draw")
        begun = ahead.next()
        laps.end("waiting")
        if not begun.batch.tickets:
            return begun.batch.reason or "no tickets"
        young, old = by_age(begun.groups.result(), now=index, bound=settings.bound)
        done = hand_in(self.client, self.run, young, old, branch=self.at.branch)
        laps.end("report")
        self._refuse(done)
        return done

    def _draw(self, laps: Laps, size: int, refill: int | None = None) -> RolledOut | str:
        """Tickets of this step drawn, rolled out and reported; what the service says when it has nothing to draw."""
        index, branch = self.at.step, self.at.branch
        batch = self._batch(index, size, refill)
        laps.end("draw")
        if not batch.tickets:
            return batch.reason or "no tickets"
        store = self.config.run.rollout_store
        priors = (
            prior_rollouts(self.client, self.run, batch.tickets, version=index, max_lag=store.max_lag or 0)
            if store is not None
            else None
        )
        laps.end("draw")
        done = roll_out(
            self.client, self.run, self.engine, batch.tickets, policy_version=index, branch=branch, lap=laps.end,
            priors=priors,
        )  # fmt: skip
        self._refuse(done)
        return done

    def _batch(self, index: int, size: int, refill: int | None = None) -> Batch:
        return self.client.draw(
            self.run, index, size, self.at.step, refill=refill or 0, include=["content", "answer"],
            branch=self.at.branch,
        )  # fmt: skip

    def _refuse(self, done: RolledOut) -> None:
        for refused in done.rejected:
            raise MidbandError(
                f"run {self.run}, batch {self.at.step}: {refused.ticket}: {refused.detail} ({refused.code})"
            )

    def hand_in_what_is_left(self) -> None:
        """Batches that ran ahead of the last step are paid for and not trained on: surplus. A later restore to the
        last checkpoint draws them again."""
        while self.ahead is not None and len(self.ahead):
            groups = self.ahead.next().groups.result()
            hand_in(self.client, self.run, [], groups, branch=self.at.branch, void="surplus")

    def look_and_keep(self, *, last: bool = False) -> None:
        """Held-out pass rate and checkpoint, in this order, as far as they are due; after the last step both are."""
        step, settings = self.at.step, self.config.evaluation
        if self.looked_at != step and (last or step % settings.every == 0):
            self.looked_at = step
            found = evaluate(self.client, self.run, self.engine, settings, at=self.at, stratum_of=self.stratum_of)
            if found is not None:
                self._record(found.to_json())
        is_due = last or step % self.config.checkpoints.every == 0 or (self.overdue and not self.client.is_away)
        if self.kept_at != step and is_due:
            self._keep(Checkpoints(self.config.output))

    def _keep(self, saved: Checkpoints) -> None:
        """A checkpoint; while the service is away the weights alone, and the checkpoint once it is back."""
        try:
            saved.write(self.client, self.run, self.policy, self.at, self.metrics)
        except ServiceUnavailable:
            if self.config.when_away.then == "stop":
                raise
            self.overdue = True
            saved.write_weights(self.policy)
        else:
            self.kept_at, self.overdue = self.at.step, False

    def _record(self, line: Line) -> None:
        self.metrics.append(line)
        if self.watch is not None:
            self.watch(line)


def _reached(stop: StopSettings, at: Progress) -> str | None:
    """Which end has been reached, if any."""
    if stop.steps is not None and at.step >= stop.steps:
        return "steps"
    if stop.tokens is not None and at.tokens >= stop.tokens:
        return "tokens"
    return None
