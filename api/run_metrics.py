"""What Prometheus is shown of runs: read from the states in memory when somebody asks, and kept nowhere.

`create_app` registers the collector, and the route calls it in a worker thread. Shown are the runs that this server
writes and has in memory, at most MAX_RUNS of them, those written last; a run's name is the only label that a caller
chose. States change while they are read: a figure may be one event older than the next, and none is decided by.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.informative import informative_counts, informing_reported
from selector.run.columns import Columns
from selector.run.state import RunState
from selector.types import Purpose, TicketState

MAX_RUNS = 50  # with labels of their own; a server that has had more in memory shows those written last
RECENT_TICKETS = 1_024  # over which lag and log loss are averaged
LEAST_CHANCE = (
    1e-6  # to which predictions are cut, so that one that was sure and wrong costs 14 nats and not infinitely many
)


class Standing(NamedTuple):
    """One run of this server: its state in memory, None while another server writes it or nobody asked for it."""

    run: str
    state: RunState | None
    waiting: int  # commands in its queue
    unsaved: int  # events in its log since the last snapshot
    saved_at: float | None  # unix seconds of that snapshot; None where this process has made none
    written_at: float  # unix seconds of the last commit by this process, 0 before the first


class RunMetrics(Collector):
    """Figures of the runs that `standings` yields."""

    def __init__(self, standings: Callable[[], Iterable[Standing]]) -> None:
        self._standings = standings

    def describe(self) -> list[Metric]:
        """Names alone, so that registering asks no run."""
        return list(_families().values())

    def collect(self) -> Iterator[Metric]:
        families, now = _families(), time.time()
        found = sorted(self._standings(), key=lambda standing: standing.written_at, reverse=True)
        owned = [standing for standing in found if standing.state is not None]
        families["midband_runs_in_memory"].add_metric((), len(owned))
        families["midband_commands_waiting"].add_metric((), sum(standing.waiting for standing in found))
        for standing in owned[:MAX_RUNS]:
            assert standing.state is not None
            _add(families, standing, standing.state, now)
        yield from families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    return {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in _FAMILIES.items()}


# Gauges, though most of them only grow: a restore takes some back, and a token changes its source.
_FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "midband_runs_in_memory": ("Runs that this server writes and has in memory.", ()),
    "midband_commands_waiting": ("Commands in the queues of all runs.", ()),
    "midband_run_commands_waiting": ("Commands in the run's queue.", ("run",)),
    "midband_run_tickets": ("Tickets by state.", ("run", "state")),
    "midband_run_groups": (
        "Groups of the purposes train, audit and probe that were reported, by whether their scores differed.",
        ("run", "informative"),
    ),
    "midband_run_predicted_yield": ("Share of the last train batch that was predicted to be informative.", ("run",)),
    "midband_run_rollouts": ("Rollouts that came back, by what became of them.", ("run", "status")),
    "midband_run_tokens": ("Tokens by what they were spent on.", ("run", "source")),
    "midband_run_policy_version": ("The largest policy version that a draw or step named.", ("run",)),
    "midband_run_train_draws": ("Train draws of the branch.", ("run",)),
    "midband_run_lag_draws": (
        f"Train draws between a group's own and its end, mean of the last {RECENT_TICKETS} that were reported.",
        ("run",),
    ),
    "midband_run_belief_log_loss": (
        f"Log loss in nats a rollout of the pass rates predicted at the draw, over the last {RECENT_TICKETS} groups "
        "that beliefs saw.",
        ("run",),
    ),
    "midband_run_alarms": ("Whether the run has raised this alarm.", ("run", "alarm")),
    "midband_run_quarantined": ("Prompts that the run itself took out.", ("run",)),
    "midband_run_events": ("Events in the run's log.", ("run",)),
    "midband_run_events_since_snapshot": ("Events that the next start has to replay.", ("run",)),
    "midband_run_snapshot_age_seconds": ("Since this process stored the run's last snapshot.", ("run",)),
}
ALARMS = ("no_usable_groups", "pool_all_deferred", "pool_all_mastered", "pool_no_signal")


def _add(families: dict[str, GaugeMetricFamily], standing: Standing, state: RunState, now: float) -> None:
    def add(name: str, value: float | None, *labels: str) -> None:
        if value is not None:
            families[f"midband_run_{name}"].add_metric((standing.run, *labels), value)

    table = state.book.tickets
    by_state = np.bincount(table["state"], minlength=len(TicketState))
    groups = informative_counts(state)
    add("commands_waiting", standing.waiting)
    for code in TicketState:
        add("tickets", int(by_state[code]), code.name.lower())
    add("groups", groups["groups"], "true")
    add("groups", groups["reported_groups"] - groups["groups"], "false")
    add("predicted_yield", _predicted_yield(state))
    for status, count in list(state.ledger.statuses.items()):
        add("rollouts", count, status)
    for source, count in list(state.ledger.tokens.items()):
        add("tokens", count, source.value)
    add("policy_version", state.policy_version)
    add("train_draws", state.train_draws)
    add("lag_draws", _lag_draws(table))
    add("belief_log_loss", belief_log_loss(state))
    for alarm in ALARMS:
        add("alarms", float(alarm in state.alarms), alarm)
    add("quarantined", int(np.count_nonzero(state.quarantined_N)))
    add("events", state.seq)
    add("events_since_snapshot", standing.unsaved)
    add("snapshot_age_seconds", None if standing.saved_at is None else max(0.0, now - standing.saved_at))


def _predicted_yield(state: RunState) -> float | None:
    for batch in reversed(list(state.batches)):
        if batch.alive and batch.event.purpose == Purpose.TRAIN and len(batch.event.informative_K):
            return float(np.mean(batch.event.informative_K))
    return None


def _recent(table: Columns, wanted: np.ndarray) -> np.ndarray:
    """Those of the wanted tickets that ended last, at most RECENT_TICKETS of them."""
    found = np.flatnonzero(wanted)
    if len(found) <= RECENT_TICKETS:
        return found
    last = np.argpartition(table["ended_seq"][found], -RECENT_TICKETS)[-RECENT_TICKETS:]
    return found[last]


def _lag_draws(table: Columns) -> float | None:
    recent = _recent(table, table["state"] == TicketState.REPORTED)
    return float(np.mean(table["draws_between"][recent])) if len(recent) else None


def belief_log_loss(state: RunState) -> float | None:
    """−Σ (k·log p + (n−k)·log(1−p)) / Σ n over recent groups; p as predicted when each was drawn. None without any.

    k: sum of the outcomes, cut to [0, n], of the n rollouts that were scored. Each group is judged by the belief from
    before it was seen, so this is a loss out of sample; the entropy of the true pass rates is the least that it can be.
    """
    table = state.book.tickets
    recent = _recent(table, informing_reported(state) & (table["scored"] > 0))
    if not len(recent):
        return None
    batches = state.batches
    predicted = [
        batches[batch].event.pass_rate_K[position]
        for batch, position in zip(table["batch"][recent].tolist(), table["position"][recent].tolist(), strict=True)
    ]
    p = np.clip(np.asarray(predicted, np.float64), LEAST_CHANCE, 1 - LEAST_CHANCE)
    n = table["scored"][recent].astype(np.float64)
    k = np.clip(table["passes"][recent], 0.0, n)
    return float(-np.sum(k * np.log(p) + (n - k) * np.log1p(-p)) / np.sum(n))
