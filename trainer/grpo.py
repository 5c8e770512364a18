"""GRPO on prompts that the service selects: the reference loop, read from top to bottom.

A step draws K tickets, rolls them out and reports them, more of them where the run fills its batches up, updates the
weights and says what that cost: `Training.step`.
Where rollouts run ahead, the batch was begun some steps before: `rollout.ahead`.
`policy` has the update, `advantages` and `loss` its formulas, and what surrounds a run is in `training/`. Nothing here
selects prompts. Randomness is keyed by seed and step and no generator's state is carried on, so a run that was resumed
from a checkpoint equals one that never stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from api.schemas import Batch
from trainer.client import Client
from trainer.errors import InvalidRequest, MidbandError
from trainer.loss import yield_factor
from trainer.policy import Policy, reward_of
from trainer.priors import prior_rollouts
from trainer.rollout.ahead import Ahead, by_age
from trainer.rollout.base import RolloutEngine
from trainer.rollout.waves import RolledOut, hand_in, roll_out
from trainer.training.checkpoints import Checkpoints, begin
from trainer.training.config import StopSettings, TrainConfig
from trainer.training.evaluate import Evaluation, StratumOf, evaluate, strata
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
    at = saved.progress()
    stopped = None if at is None else _reached(config.stop, at)
    if at is None or stopped is None:
        at = begin(config, client, policy, metrics)
        engine.sync(policy_version=at.step)
        stratum_of = stratum_of or strata(client, config.pool.name, config.evaluation.stratum)
        training = Training(config, client, policy, engine, metrics, at, stratum_of, watch, ahead)
        training.look_and_keep()
        while (stopped := _reached(config.stop, training.at) or training.step()) is None:
            training.look_and_keep()
        training.look_and_keep(last=True)
        training.hand_in_what_is_left()
        at = saved.progress() or training.at
    client.complete(config.run.name)
    evaluations = [Evaluation.from_json(line) for line in metrics.lines("evaluation")]
    return Result(run=config.run.name, progress=at, stopped=stopped, evaluations=evaluations)


class Training:
    """A run under way: what it needs at hand, and how far it is."""

    def __init__(
        self,
        config: TrainConfig,
        client: Client,
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

    def step(self) -> str | None:
        """One batch and one update; returns what the service says when it has nothing to draw."""
        index = self.at.step  # updates made, so also the version of the weights
        laps = Laps()
        drawn = self._draw(laps, self.config.batch.size) if self.ahead is None else self._take(self.ahead, laps)
        if isinstance(drawn, str):
            return drawn
        groups, answers, trained, factor, stale = drawn.groups, drawn.answers, drawn.kept, 1.0, drawn.stale
        while (standing := drawn.standing) is not None:
            kept = set(standing.kept)
            trained, factor = [group for group in groups if group.ticket.ticket in kept], standing.factor
            more = standing.size and self._draw(laps, standing.size, standing.refill)
            if not isinstance(more, RolledOut):
                break
            drawn, groups, answers = more, groups + more.groups, answers + more.answers
        trained = trained or groups  # of which nothing can be learned then; the step is made all the same
        judged = {a.ticket: a.informative for a in answers if a.informative is not None}
        divides_by_informative = self.config.loss.inverse_yield == "kept"
        if divides_by_informative:
            counted = [judged[group.ticket.ticket] for group in trained if group.ticket.ticket in judged]
            factor *= yield_factor(sum(counted), len(counted))
        # Where every group was too old there is nothing to learn from, and the weights stay.
        figures = self.policy.update(trained, step=index, factor=factor) if trained else {}
        laps.end("update")
        self.engine.sync(policy_version=index + 1)
        laps.end("weight_sync")
        costs = step_costs(groups + stale, laps)
        engine = self.engine if self.ahead is None else self.ahead.engine
        held = self.meters.costs() | ({"environment_s": in_them} if (in_them := engine.environment_s()) else {})
        self.client.step(
            self.run,
            index,
            policy_version=index + 1,
            # Degenerate groups are trained on as well: their term of the mean is 0, and the mean counts them.
            trained=[group.ticket.ticket for group in trained if any(reward_of(r) is not None for r in group.rollouts)],
            # A sum that is divided by the informative groups, or that leaves rollouts out, is not the weighted mean
            # that the run's claim speaks of.
            weights_applied=not divides_by_informative
            and self.config.loss.keep.rule == "all"
            and self.config.asynchrony.rule == "drop"
            and all(group.ticket.weight is not None for group in groups),
            costs=costs | held | {"environment": environment_of(self.config)},
        )
        self.at = self.at.after(groups + stale)
        line = step_line(self.at, groups + stale, list(judged.values())) | figures
        if self.ahead is not None:
            lags = [index - group.version for group in groups if group.version is not None]
            line |= {"lag": sum(lags) / max(len(lags), 1), "stale": len(stale)}
        self._record(line | {"seconds": costs, "measured": held})
        return None

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
        if self.kept_at != step and (last or step % self.config.checkpoints.every == 0):
            self.kept_at = step
            Checkpoints(self.config.output).write(self.client, self.run, self.policy, self.at, self.metrics)

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
