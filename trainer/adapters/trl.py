"""TRL's GRPOTrainer on selected prompts: it draws from a run, reports every group, and resumes with TRL's checkpoints.

A training script makes `SelectedGRPOTrainer` where it made `GRPOTrainer`, and says with a `Selection` which run it
draws from. Three things of TRL are replaced: the two samplers, and the method that has all ranks' rewards in hand.
Nothing of generation, advantages or loss is touched.

Every rank asks for the same batch index and gets the same tickets; before rewards are used the ranks compare what they
hold, and stop if it differs. Rank 0 alone reports.
"""

import hashlib
import json
import logging
import math
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from api.schemas import Batch, Ticket
from trainer.client import Client, Policy
from trainer.errors import InvalidRequest, RanksDisagree, ReportsRefused
from trainer.options import RunOptions
from trainer.reports import group
from trainer.selection.dataset import SelectionSampler
from trainer.selection.draws import Draws
from trainer.selection.ranks import refuse_differences
from trainer.training.progress import Laps

KEY_COLUMN = "midband_prompt"
EXPECTED_REJECTIONS = frozenset({"stale"})  # what a run with `max_lag` refuses as it should

log = logging.getLogger("midband")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which run a trainer draws from, and what of its data set the service is told.

    run, pool: made on first use. policy: a preset, or a preset with parts overridden. options: of the run, beside its
    group size. outcome: the reward function, by name, that says in [0, 1] what was right; by default the first one. The
    weighted sum that TRL trains on goes along as the reward. answer, category: columns of the data set. eval_size: the
    most held-out prompts in one evaluation; by default all.
    """

    client: Client
    run: str
    pool: str
    policy: Policy = "midband"
    options: RunOptions = field(default_factory=RunOptions)
    outcome: str | None = None
    answer: str | None = "answer"
    category: str | None = None
    eval_size: int | None = None


class SelectedGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """`GRPOTrainer` that takes its prompts from a midband run. All of its arguments, and `selection`.

    Raises InvalidRequest for settings under which selection would go wrong in silence.
    """

    train_dataset: Any
    eval_dataset: Any

    def __init__(self, *args: Any, selection: Selection, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _refuse_settings(self.args, self.train_dataset, self.eval_dataset)
        if selection.options.get("weights", "none") != "none":
            raise InvalidRequest("weights: TRL has no place to apply them; leave the run's weights at 'none'")
        self._selection = selection
        self._outcome = _place_of_outcome(selection.outcome, self.reward_func_names)
        self.args.ignore_data_skip = True  # the run knows where it stands; skipping would ask for past batches anew
        self.train_dataset, train_rows = _with_keys(self.train_dataset, selection)
        heldout_rows: dict[str, int] = {}
        if self.eval_dataset is not None:
            self.eval_dataset, heldout_rows = _with_keys(self.eval_dataset, selection)
        if self.accelerator.is_main_process:
            _import(selection, self.train_dataset, "train", train_rows)
            if self.eval_dataset is not None:
                _import(selection, self.eval_dataset, "heldout", heldout_rows)
            selection.client.create_run(
                selection.run,
                pool=selection.pool,
                policy=selection.policy,
                **{**selection.options, "group_size": self.num_generations},
            )
        self.accelerator.wait_for_everyone()
        self._heldout = _HeldoutDraws(selection, heldout_rows)
        self._draws = Draws(
            client=selection.client,
            run=selection.run,
            size=self.args.generation_batch_size // self.num_generations,
            group_size=self.num_generations,
            policy_version=lambda: int(self.state.global_step),
        )
        repeats = self.num_iterations * self.args.steps_per_generation
        self._sampler = SelectionSampler(
            self._draws,
            train_rows,
            num_batches=max(1, len(self.train_dataset) // self._draws.size),
            repeats=repeats,
        )
        self._next_generated = 0  # index of the batch whose completions come next
        self._untold: list[str] = []  # tickets generated since the last step
        self._laps, self._mixed = Laps(), False  # of the step under way
        self._resumed_from: str | None = None  # until the first step after a resume
        self.add_callback(_Follow(self))

    def _get_train_sampler(self, dataset: Any = None) -> SelectionSampler:
        return self._sampler

    def _get_eval_sampler(self, eval_dataset: Any) -> list[int]:
        world = self.accelerator.num_processes
        return self._heldout.sampler(
            step=int(self.state.global_step),
            group_size=self.num_generations_eval,
            divisor=self.args.per_device_eval_batch_size * world,
        )

    def _load_rng_state(self, checkpoint: str | None) -> None:
        self._resumed_from = checkpoint
        super()._load_rng_state(checkpoint)

    def _calculate_rewards(
        self,
        inputs: list[Mapping[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[Any],
    ) -> Any:
        self._mixed |= "generation" in self._laps.seconds  # passes over the batch before lie in between
        self._laps.end("generation")
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._laps.end("scoring")
        training = self.model.training
        tickets, digest, group_size = self._generated(len(rewards)) if training else self._evaluated(len(rewards))
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        local = [
            (row[KEY_COLUMN], len(ids), bool(len(ids)) and ids[-1] not in ends)
            for row, ids in zip(inputs, completion_ids_list, strict=True)
        ]
        gathered = gather_object(local)
        refuse_differences(gather_object([digest]), what=f"the batch of run {self._selection.run!r}")
        _refuse_other_prompts([key for key, _, _ in gathered], tickets, group_size)
        if self.accelerator.is_main_process:
            self._report(tickets, group_size, rewards.tolist(), gathered)
        if training:
            self._untold += [ticket.ticket for ticket in tickets if ticket.purpose != "heldout"]
        self._laps.end("idle")  # for other ranks and for the service
        return rewards

    def _generated(self, num_rows: int) -> tuple[list[Ticket], str, int]:
        """The tickets of the train batch whose completions have just been scored: batches come in order."""
        batch = self._draws[self._next_generated]
        self._next_generated += 1
        if num_rows != batch.returned * self.num_generations:
            raise RanksDisagree(
                f"batch {batch.index} has {batch.returned} groups of {self.num_generations}, and {num_rows} rewards "
                "came back: the loader cut or padded it"
            )
        return batch.tickets, batch.digest, self.num_generations

    def _evaluated(self, num_rows: int) -> tuple[list[Ticket], str, int]:
        return (
            self._heldout.next(num_rows // self.num_generations_eval),
            self._heldout.digest,
            self.num_generations_eval,
        )

    def _report(
        self,
        tickets: Sequence[Ticket],
        group_size: int,
        rewards: list[list[float]],
        gathered: Sequence[tuple[str, int, bool]],
    ) -> None:
        """Sends whole groups, in the order of tickets. Raises ReportsRefused for what the service does not take."""
        weights = self.reward_weights.tolist()
        groups = []
        for place, ticket in enumerate(tickets):
            rows = range(place * group_size, (place + 1) * group_size)
            scores = [rewards[row] for row in rows]
            groups.append(
                group(
                    ticket,
                    [row[self._outcome] for row in scores],
                    rewards=[_total(row, weights) for row in scores],
                    tokens=[gathered[row][1] for row in rows],
                    statuses=["truncated" if gathered[row][2] else None for row in rows],
                    named_rewards=[dict(zip(self.reward_func_names, row, strict=True)) for row in scores],
                )
            )
        answer = self._selection.client.report(self._selection.run, groups, policy_version=int(self.state.global_step))
        codes = Counter(rejection.code for rejection in answer.rejected)
        if codes.keys() - EXPECTED_REJECTIONS:
            first = next(r for r in answer.rejected if r.code not in EXPECTED_REJECTIONS)
            raise ReportsRefused(
                f"run {self._selection.run!r} refused {dict(codes)}, first {first.ticket}: {first.detail}"
            )
        if codes:
            log.warning("run %s refused %s rollouts of groups too old to count", self._selection.run, codes.total())


class _Follow(TrainerCallback):  # type: ignore[misc]
    """Steps, checkpoints and restores of a run, at the moments that TRL has them."""

    def __init__(self, trainer: SelectedGRPOTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer, selection = self._trainer, self._trainer._selection
        if state.global_step:
            restore_id = [uuid.uuid4().hex]
            broadcast_object_list(restore_id)  # one restore, asked for by every rank
            answer = selection.client.restore(selection.run, state.global_step, restore_id=restore_id[0])
            start = answer.resume_from
        else:
            counts = selection.client.run(selection.run).tickets
            trainer.accelerator.wait_for_everyone()  # no rank draws before all have looked
            if counts.open + counts.reported + counts.void:
                raise InvalidRequest(
                    f"run {selection.run!r} has tickets already and this training starts at step 0: give it a run of "
                    "its own, or resume from a checkpoint (resume_from_checkpoint)"
                )
            start = 0
        trainer._draws.forget()
        trainer._sampler.next_index = trainer._next_generated = start
        trainer._untold.clear()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Takes the random state of the checkpoint up again: making the loader has drawn from it since."""
        trainer = self._trainer
        trainer._laps, trainer._mixed = Laps(), False
        if trainer._resumed_from is not None:
            trainer._load_rng_state(trainer._resumed_from)
            trainer._resumed_from = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer, selection = self._trainer, self._trainer._selection
        trained, trainer._untold = trainer._untold, []
        trainer._laps.end("update")
        # Of a step that generates more than once only the sum would be right, and the contract has no place for that.
        seconds = {} if trainer._mixed else {f"{name}_s": value for name, value in trainer._laps.seconds.items()}
        if not state.is_world_process_zero:
            return
        selection.client.step(
            selection.run,
            state.global_step,
            policy_version=state.global_step,
            trained=trained,
            weights_applied=False,
            costs={"accelerators": trainer.accelerator.num_processes, **seconds},
        )
        if control.should_save:  # before TRL writes its file: a file without a checkpoint could not be resumed
            selection.client.checkpoint(selection.run, state.global_step)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:  # also for a save that was asked for after the step; the same step is no change
            selection = self._trainer._selection
            selection.client.checkpoint(selection.run, state.global_step)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Voids what was drawn ahead and never rolled out, so that no ticket stays open."""
        trainer, selection = self._trainer, self._trainer._selection
        ahead = range(trainer._next_generated, trainer._sampler.next_index)
        groups = [group(ticket, void="never_started") for index in ahead for ticket in trainer._draws[index].tickets]
        if groups and state.is_world_process_zero:
            selection.client.report(selection.run, groups, policy_version=state.global_step)


class _HeldoutDraws:
    """Held-out batches: one an evaluation, handed out in the pieces that the evaluation loop takes."""

    def __init__(self, selection: Selection, rows: Mapping[str, int]) -> None:
        self._selection = selection
        self._rows = rows
        self._times: Counter[int] = Counter()  # evaluations at a step
        self._waiting: list[Ticket] = []
        self.digest = ""

    def sampler(self, *, step: int, group_size: int, divisor: int) -> list[int]:
        """Positions of the rows of a new uniform draw, each `group_size` times. Raises InvalidRequest if none fits."""
        batch: Batch = self._selection.client.draw(
            self._selection.run,
            step,
            min(self._selection.eval_size or len(self._rows), len(self._rows)),
            step,
            purpose="heldout",
            group_size=group_size,
            divisor=divisor,
            refill=self._times[step],
        )
        if not batch.tickets:
            raise InvalidRequest(
                f"an evaluation of {len(self._rows)} held-out prompts with {group_size} completions each cannot be cut "
                f"into whole batches of {divisor}: use a smaller per_device_eval_batch_size or more prompts"
            )
        self._times[step] += 1
        self._waiting, self.digest = list(batch.tickets), batch.digest
        return [self._rows[ticket.prompt] for ticket in batch.tickets for _ in range(group_size)]

    def next(self, num_tickets: int) -> list[Ticket]:
        taken, self._waiting = self._waiting[:num_tickets], self._waiting[num_tickets:]
        return taken


def prompt_key(prompt: object, answer: object) -> str:
    """The name of a prompt in the pool: a hash of its text or messages and its answer, alike in every process."""
    canonical = json.dumps([prompt, answer], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _with_keys(rows: Any, selection: Selection) -> tuple[Any, dict[str, int]]:
    """The data set with a column of keys, and the position of each key's first row."""
    answers = rows[selection.answer] if selection.answer in rows.column_names else [None] * len(rows)
    keys = [prompt_key(prompt, answer) for prompt, answer in zip(rows["prompt"], answers, strict=True)]
    positions: dict[str, int] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, position)
    return rows.add_column(KEY_COLUMN, keys), positions


def _import(selection: Selection, rows: Any, split: str, positions: Mapping[str, int]) -> None:
    """Puts the rows into the pool. Raises InvalidRequest, naming the first, for rows that the pool does not take."""
    selection.client.create_pool(selection.pool)
    wanted = []
    for key, position in positions.items():
        row = rows[position]
        entry = {"key": key, "content": row["prompt"], "split": split}
        if selection.answer in rows.column_names and row[selection.answer] is not None:
            entry["answer"] = str(row[selection.answer])
        if selection.category is not None:
            entry["category"] = str(row[selection.category])
        wanted.append(entry)
    report = selection.client.put_prompts(selection.pool, wanted)
    if report.rejected:
        first = report.errors[0]
        raise InvalidRequest(
            f"pool {selection.pool!r} does not take {report.rejected} of {report.received} {split} prompts; row "
            f"{first.row}: {first.detail}"
        )


def _refuse_settings(args: GRPOConfig, train: Any, heldout: Any) -> None:
    if args.dataloader_num_workers:
        raise InvalidRequest(
            f"dataloader_num_workers={args.dataloader_num_workers}: set it to 0, as workers draw batches long before "
            "the rewards they should follow"
        )
    if args.accelerator_config.dispatch_batches or args.accelerator_config.split_batches:
        raise InvalidRequest(
            "accelerator_config: dispatch_batches and split_batches must be off, as every rank asks for its own batch"
        )
    for name, rows in (("train_dataset", train), ("eval_dataset", heldout)):
        if rows is not None and not hasattr(rows, "add_column"):
            raise InvalidRequest(
                f"{name} must be a map-style datasets.Dataset, got {type(rows).__name__}: the service chooses the "
                "order, so the rows must be reachable by position"
            )
    if train is not None and not hasattr(train, "__len__"):
        raise InvalidRequest("train_dataset is a stream: load it as a map-style datasets.Dataset")


def _place_of_outcome(name: str | None, names: Sequence[str]) -> int:
    if name is None:
        return 0
    if name not in names:
        raise InvalidRequest(f"no reward function is named {name!r}; there are {list(names)}")
    return list(names).index(name)


def _refuse_other_prompts(keys: Sequence[str], tickets: Sequence[Ticket], group_size: int) -> None:
    """Raises RanksDisagree if a row that was rolled out is not the prompt that its ticket names."""
    wanted = [ticket.prompt for ticket in tickets for _ in range(group_size)]
    wrong = next((place for place, (key, want) in enumerate(zip(keys, wanted, strict=True)) if key != want), None)
    if wrong is not None:
        raise RanksDisagree(
            f"row {wrong} of the generated batch is not the prompt of ticket {tickets[wrong // group_size].ticket}: "
            "the loader's rows have shifted"
        )


def _total(scores: Sequence[float], weights: Sequence[float]) -> float:
    """The sum TRL trains on: functions without an opinion count nothing, NaN where none has one."""
    scored = [weight * score for score, weight in zip(scores, weights, strict=True) if not math.isnan(score)]
    return math.fsum(scored) if scored else math.nan
