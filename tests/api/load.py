"""A load to shake a service with: callers that train several runs at once and are never in order, and what must hold
afterwards. Tests that kill or pause servers use it.

Each caller draws every batch of every run, so all ask for the same ones; reports the rollouts of its own tickets one by
one or in bulk, shuffled, some of them again, and some of the other callers' too; and voids a few tickets. What a
rollout scored follows from its name, so it is the same whoever reports it.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from sqlalchemy import text

from api.schemas import Batch
from tests.api.harness import FLAT_BETA, Http, Json, everything, in_process, prompts, stored
from trainer.client import Client
from trainer.retry import Backoff

RUNS = ("r0", "r1", "r2")
CALLERS = 8
POOL_SIZE = 200
BATCH_SIZE = 4
GROUP_SIZE = 4
TOKENS = 10  # of every rollout
LARGEST_REPORT = 8
AGAIN = 0.2  # share of rollouts that are sent once more, and of other callers' that are sent too
VOIDED = 0.1  # share of tickets that come to nothing

Rollout = tuple[str, int]  # ticket, number


class Load:
    """Callers of one service, or of several that share a database; caller i begins at `urls[i mod their number]`."""

    def __init__(self, urls: Sequence[str], *, timeout_s: float, seed: int = 1) -> None:
        self._urls, self._timeout_s, self._seed = urls, timeout_s, seed
        self._lock = threading.Lock()
        self._last_index = 0  # that any caller has begun; in the end all callers have done it
        self._finishing = threading.Event()
        self._pool = ThreadPoolExecutor(CALLERS)
        self._callers: list[Future[None]] = []
        self.digests: dict[tuple[str, int], str] = {}
        self.prompts: dict[str, dict[str, str]] = {run: {} for run in RUNS}  # of each ticket
        self.acknowledged: dict[str, set[Rollout]] = {run: set() for run in RUNS}
        self.voided: dict[str, set[str]] = {run: set() for run in RUNS}

    def prepare(self, http: Http) -> None:
        """The pool and the runs."""
        http.pool(prompts(POOL_SIZE))
        for run in RUNS:
            http.run(run, policy=FLAT_BETA, group_size=GROUP_SIZE)

    def start(self) -> None:
        self._callers = [self._pool.submit(self._train, me) for me in range(CALLERS)]

    @property
    def num_acknowledged(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def raise_failure(self) -> None:
        """Raises what ended a caller before its time."""
        for caller in self._callers:
            if caller.done():
                caller.result()

    def finish(self) -> None:
        """Lets every caller do what any of them has begun. Raises what went wrong in one."""
        self._finishing.set()
        for caller in self._callers:
            caller.result()
        self._pool.shutdown()

    def _train(self, me: int) -> None:
        rng = np.random.default_rng((self._seed, me))
        backoff = Backoff(patience_s=120.0, first_s=0.02, longest_s=0.2)
        with Client(self._urls[me % len(self._urls)], timeout_s=self._timeout_s, backoff=backoff) as client:
            index = 0
            while self._goes_on(index):
                for run in rng.permutation(RUNS).tolist():
                    batch = client.draw(run, index, BATCH_SIZE, index)
                    self._note(run, batch)
                    self._report(client, run, batch, me, rng)
                    client.step(run, index, policy_version=index)
                index += 1

    def _goes_on(self, index: int) -> bool:
        with self._lock:
            if self._finishing.is_set() and index > self._last_index:
                return False
            self._last_index = max(index, self._last_index)
            return True

    def _note(self, run: str, batch: Batch) -> None:
        with self._lock:
            assert self.digests.setdefault((run, batch.index), batch.digest) == batch.digest
            self.prompts[run] |= {ticket.ticket: ticket.prompt for ticket in batch.tickets}

    def _report(self, client: Client, run: str, batch: Batch, me: int, rng: np.random.Generator) -> None:
        names = [ticket.ticket for ticket in batch.tickets]
        own = {name for name in names if int(_chance(name, "caller") * CALLERS) == me}
        for name in filter(comes_to_nothing, own):
            for _ in range(1 + int(rng.random() < AGAIN)):
                client.report(run, [{"ticket": name, "void": "surplus"}])
            with self._lock:
                self.voided[run].add(name)
        sent = [name for name in names if not comes_to_nothing(name) and (name in own or rng.random() < AGAIN)]
        rollouts = [(name, n) for name in sent for n in range(GROUP_SIZE)]
        rollouts += [rollout for rollout in rollouts if rng.random() < AGAIN]
        order = [rollouts[place] for place in rng.permutation(len(rollouts))]
        while order:
            size = int(rng.integers(1, LARGEST_REPORT + 1))
            part, order = set(order[:size]), order[size:]
            answer = client.report(run, _groups(part))
            assert not answer.rejected, answer.rejected
            assert answer.applied + answer.duplicate == len(part)
            with self._lock:
                self.acknowledged[run] |= part


def check_while_running(http: Http, acknowledged: int) -> None:
    """After a server came back: nothing that was acknowledged before is missing, and sums balance."""
    reported = 0
    for run in RUNS:
        info = http.info(run)
        tokens, rollouts = sum(info["tokens"].values()), info["rollouts"]["reported"]
        assert tokens == TOKENS * rollouts
        reported += rollouts
    assert reported >= acknowledged


def check_afterwards(http: Http, load: Load) -> None:
    """Every acknowledged report counts once, every ticket ended once, and the sums balance."""
    for run in RUNS:
        info, tickets, log = http.info(run), http.tickets(run), http.events(run)
        names = [ticket["ticket"] for ticket in tickets]
        assert sorted(names) == sorted(load.prompts[run])
        void = {name for name in names if comes_to_nothing(name)}
        assert load.voided[run] == void
        assert {ticket["ticket"]: ticket["state"] for ticket in tickets} == {
            name: "void" if name in void else "reported" for name in names
        }
        assert {ticket["attempt"] for ticket in tickets} == {1}
        assert load.acknowledged[run] == {(name, n) for name in set(names) - void for n in range(GROUP_SIZE)}
        assert info["tickets"] == {"open": 0, "reported": len(names) - len(void), "void": len(void)}
        count = len(load.acknowledged[run])
        assert (info["rollouts"]["reported"], info["rollouts"]["scored"]) == (count, count)
        assert sum(info["tokens"].values()) == TOKENS * count
        assert sum(http.get(f"/v1/runs/{run}/costs")["rollouts"].values()) == count
        _check_log(log, num_tickets=len(names), num_rollouts=count)
        _check_beliefs(http.beliefs(run), load.prompts[run], load.acknowledged[run])


def check_replay(database_url: str, live: dict[str, tuple[Any, ...]]) -> None:
    """A new service has the same, from its snapshots and from the log alone. No server may run."""
    for without_snapshots in (False, True):
        if without_snapshots:
            with stored(database_url) as connection:
                connection.execute(text("DELETE FROM snapshots"))
        with in_process(database_url) as http:
            assert all_of(http) == live


def all_of(http: Http) -> dict[str, tuple[Any, ...]]:
    """All that can be read of every run."""
    return {run: everything(http, run) for run in RUNS}


def comes_to_nothing(ticket: str) -> bool:
    return _chance(ticket, "void") < VOIDED


def _check_log(log: list[Json], *, num_tickets: int, num_rollouts: int) -> None:
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    evidence = [g for event in log if event["kind"] == "rollouts_reported" for g in event["event"]["groups"]]
    counted = Counter((g["ticket"], g["attempt"], n) for g in evidence for n in g["n"])
    assert set(counted.values()) <= {1}
    assert len(counted) == num_rollouts
    ended = Counter((g["ticket"], g["attempt"]) for g in evidence if g["closing"] is not None)
    assert set(ended.values()) == {1}
    assert len(ended) == num_tickets


def _check_beliefs(beliefs: dict[str, Json], prompts_of: dict[str, str], rollouts: set[Rollout]) -> None:
    scored, passes = Counter[str](), Counter[str]()
    for name, n in rollouts:
        scored[prompts_of[name]] += 1
        passes[prompts_of[name]] += int(_outcome(name, n))
    for key, belief in beliefs.items():
        assert np.isclose(belief["pass_rate"], (1 + passes[key]) / (2 + scored[key]), rtol=1e-12)


def _groups(rollouts: set[Rollout]) -> list[Json]:
    groups: dict[str, list[Json]] = {}
    for name, n in sorted(rollouts, key=lambda rollout: _chance(*rollout)):
        groups.setdefault(name, []).append({"n": n, "outcome": _outcome(name, n), "tokens": TOKENS})
    return [{"ticket": name, "rollouts": rows} for name, rows in groups.items()]


def _outcome(ticket: str, n: int) -> float:
    return float(_chance(ticket, n) < 0.4)


def _chance(*parts: object) -> float:
    """A number in [0, 1) that follows from a name."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:6], "little") / 2**48
