"""A pool of Ray actors on a local cluster: what it makes is what one engine makes, also when workers are killed."""

import importlib.util
import os
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.schemas import Ticket
from tests.trainer.factories import make_ticket
from trainer.errors import InvalidRequest, MidbandError
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not tested: pip install 'midband[ray]'"),
    pytest.mark.filterwarnings("ignore"),  # of Ray and what it imports
]

WORKERS = 2


class Letters(RolloutEngine):
    """Counts what it is asked for in files of `folder`; gives outcomes by ticket and number alone.

    The prompt `fatal` kills its process at every try, `once` at the first one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.weights = folder, "at start"
        self.note(f"made-{os.getpid()}")

    def note(self, name: str) -> None:
        (self.folder / f"{name}-{time.monotonic_ns()}").touch()

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        return self.generate_part(tickets, [range(t.group_size) for t in tickets], policy_version=policy_version)

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        self.note(f"asked-{len(tickets)}")
        for ticket in tickets:
            if ticket.prompt == "unknown":
                raise InvalidRequest("no prompt 'unknown'")
            if ticket.prompt == "fatal" or (ticket.prompt == "once" and not list(self.folder.glob("died-*"))):
                self.note(f"died-{os.getpid()}")
                os.kill(os.getpid(), signal.SIGKILL)
        return [
            RolloutGroup(
                ticket=ticket,
                start=span.start,
                rollouts=tuple(
                    Rollout(outcome=float((len(ticket.prompt) + n) % 3 == 0), text=f"{self.weights}, {policy_version}")
                    for n in span
                ),
            )
            for ticket, span in zip(tickets, spans, strict=True)
        ]

    def load(self, folder: Path, *, policy_version: int) -> None:
        self.weights = f"{(folder / 'weights').read_text()} {policy_version}"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Any]:
    from trainer.rollout.ray import RayEngine

    with RayEngine(partial(Letters, tmp_path), workers=WORKERS) as engine:
        yield engine


def tickets_of(count: int, **others: int) -> list[Ticket]:
    """Prompts of different lengths and groups of different sizes; `others` by name at their places."""
    tickets = [make_ticket("p" * (n + 1), group_size=1 + n % 4) for n in range(count)]
    for prompt, place in others.items():
        tickets[place] = make_ticket(prompt, group_size=3)
    return tickets


def notes(folder: Path, kind: str) -> list[str]:
    return [path.name.split("-")[1] for path in folder.glob(f"{kind}-*")]


def test_it_gives_what_one_engine_gives_from_small_pieces(pool: Any, tmp_path: Path) -> None:
    tickets = tickets_of(21)
    (tmp_path / "one").mkdir()
    expected = Letters(tmp_path / "one").generate(tickets, policy_version=3)
    assert pool.generate(tickets, policy_version=3) == expected
    assert pool.generate([], policy_version=3) == []
    until_s = time.monotonic() + 120
    while len(set(notes(tmp_path, "made"))) < WORKERS and time.monotonic() < until_s:
        time.sleep(0.1)  # one may begin while the other does it all
    assert len(set(notes(tmp_path, "made"))) == WORKERS
    assert max(map(int, notes(tmp_path, "asked"))) == 3  # a quarter of a worker's share


def test_waves_are_spread_too(pool: Any, tmp_path: Path) -> None:
    tickets = tickets_of(5)
    spans = [range(n % 3, 3 + n % 3) for n in range(5)]
    (tmp_path / "one").mkdir()
    expected = Letters(tmp_path / "one").generate_part(tickets, spans, policy_version=0)
    assert pool.generate_part(tickets, spans, policy_version=0) == expected


def test_the_tickets_of_a_killed_worker_are_made_by_another(pool: Any, tmp_path: Path) -> None:
    tickets = tickets_of(16, once=2)
    groups = pool.generate(tickets, policy_version=0)
    assert len(notes(tmp_path, "died")) == 1
    assert [group.ticket for group in groups] == tickets
    assert [len(group.rollouts) for group in groups] == [ticket.group_size for ticket in tickets]
    assert {rollout.status for group in groups for rollout in group.rollouts} == {"ok"}
    # A new worker stands in for the dead one.
    pool.generate(tickets_of(16), policy_version=0)
    assert len(set(notes(tmp_path, "made"))) in (WORKERS, WORKERS + 1)


def test_a_worker_that_is_killed_from_outside_is_no_loss(pool: Any, tmp_path: Path) -> None:
    pool.generate(tickets_of(8), policy_version=0)
    for process in set(notes(tmp_path, "made")):
        os.kill(int(process), signal.SIGKILL)
    (tmp_path / "one").mkdir()
    expected = Letters(tmp_path / "one").generate(tickets_of(8), policy_version=1)
    assert pool.generate(tickets_of(8), policy_version=1) == expected


def test_tickets_that_kill_every_worker_are_errors_and_the_others_are_made(pool: Any, tmp_path: Path) -> None:
    tickets = tickets_of(8, fatal=1)
    groups = pool.generate(tickets, policy_version=0)
    status = [{rollout.status for rollout in group.rollouts} for group in groups]
    assert status == [{"error"} if ticket.prompt == "fatal" else {"ok"} for ticket in tickets]
    assert len(groups[1].rollouts) == 3
    assert len(notes(tmp_path, "died")) == 3


def test_what_an_engine_refuses_is_raised_and_the_pool_goes_on(pool: Any) -> None:
    with pytest.raises(InvalidRequest, match="no prompt 'unknown'"):
        pool.generate(tickets_of(8, unknown=3), policy_version=0)
    assert len(pool.generate(tickets_of(8), policy_version=0)) == 8


def test_weights_reach_every_worker_and_those_that_begin_anew(pool: Any, tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("folder")
    pool.load(tmp_path, policy_version=5)
    groups = pool.generate(tickets_of(16, once=2), policy_version=5)
    assert {rollout.text for group in groups for rollout in group.rollouts} == {"folder 5, 5"}


def test_more_workers_than_the_cluster_has_room_for_are_refused() -> None:
    from trainer.rollout.ray import RayEngine

    with pytest.raises(MidbandError, match=r"3 workers need 3 CPU of Ray, and its cluster has 2: ask for fewer"):
        RayEngine(partial(Letters, Path()), workers=3)
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        RayEngine(partial(Letters, Path()), workers=0)


def test_an_engine_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    from trainer.rollout.ray import RayEngine

    with (
        RayEngine(partial(Letters, tmp_path / "nowhere"), workers=1) as engine,
        pytest.raises(MidbandError, match=r"could not make its engine(?s:.)*nowhere"),
    ):
        engine.generate(tickets_of(1), policy_version=0)


def make_torch_engine() -> RolloutEngine:
    from tests.trainer.tiny import grade, make_model, make_tokenizer
    from trainer.rollout.torch import TorchEngine

    return TorchEngine(make_model().eval(), make_tokenizer(), grade, max_new_tokens=3)


def test_a_models_rollouts_are_those_of_one_engine_in_this_process() -> None:
    pytest.importorskip("torch", reason="the engine needs the trainer extra")
    from trainer.rollout.ray import RayEngine

    tickets = [
        make_ticket(f"p{n}", ticket=f"r:0:train:0:0:{n}", content=f"{n} digit", answer="digit", group_size=4)
        for n in range(12)
    ]
    alone = make_torch_engine().generate(tickets, policy_version=0)
    with RayEngine(make_torch_engine, workers=WORKERS) as engine:
        spread = engine.generate(tickets, policy_version=0)
    assert [group.ticket for group in spread] == [group.ticket for group in alone]
    for one, other in zip(alone, spread, strict=True):
        assert [r.completion_ids for r in other.rollouts] == [r.completion_ids for r in one.rollouts]
        assert [r.outcome for r in other.rollouts] == [r.outcome for r in one.rollouts]
