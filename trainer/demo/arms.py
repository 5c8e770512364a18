"""The demo's trainings, all at the same time: a process each, with one thread, against one service.

`train_arms` runs them and hands on what they tell. An arm is `trainer.grpo.train` and nothing beside it but a look at
the beliefs; it goes on from its last checkpoint if its folder has one. torch is loaded in the arms' processes only.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from trainer.client import Client
from trainer.errors import MidbandError
from trainer.training.config import TrainConfig
from trainer.training.metrics import Line

# Read by the numeric libraries when they are loaded. Two threads that spin beside other load are slower than one.
ONE_THREAD: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}

Watch = Callable[[str, Line], None]  # is called with an arm's name and each line of its metrics


def train_arms(configs: Sequence[TrainConfig], train_keys: Collection[str], watch: Watch) -> None:
    """Train every arm to its end; when this returns or raises, none of their processes is left.

    `train_keys`: the prompts whose beliefs are kept. Call it from the main thread, as only that may say who hears
    Ctrl-C. Raises what an arm refused, or MidbandError if one died.
    """
    context = get_context("spawn")  # a fork would copy the threads' locks of this process
    processes: dict[str, SpawnProcess] = {}
    hears: dict[Connection, str] = {}
    try:
        with _interrupts_for_this_process_only():
            for config in configs:
                name = config.run.name
                hear, tell = context.Pipe(duplex=False)
                process = context.Process(target=_train, args=(config, train_keys, tell), name=name, daemon=True)
                process.start()
                tell.close()  # the arm has its own: this end hears the last of it when that closes
                processes[name], hears[hear] = process, name
        _listen(hears, watch)
        for name, process in processes.items():
            process.join()
            if process.exitcode != 0:
                raise MidbandError(f"arm {name} ended with status {process.exitcode}; what it said stands above")
    finally:
        for process in processes.values():
            process.terminate()
            process.join()


def _listen(hears: dict[Connection, str], watch: Watch) -> None:
    """Hands on what the arms tell until the last has ended, or raises the first error among it."""
    while hears:
        for hear in wait(list(hears)):
            assert isinstance(hear, Connection)
            try:
                told = hear.recv()
            except EOFError:
                del hears[hear]
                hear.close()
                continue
            if isinstance(told, MidbandError):
                raise told
            watch(hears[hear], told)


def _train(config: TrainConfig, train_keys: Collection[str], tell: Connection) -> None:
    """The life of an arm's process."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    from trainer.demo.beliefs import BeliefHistogram
    from trainer.training.command import begin_with

    with tell, Client(str(config.server)) as client:

        def watch(line: Line) -> None:
            if line["kind"] == "evaluation":
                columns = client.beliefs(config.run.name)
                found = BeliefHistogram.of(columns, train_keys, step=line["step"], tokens=line["tokens"])
                found.write(config.output)
            tell.send(line)

        try:
            policy, engine = begin_with(config)
            from trainer.grpo import train

            train(config, client, policy, engine, watch=watch)
        except MidbandError as error:
            tell.send(error)


@contextmanager
def _interrupts_for_this_process_only() -> Iterator[None]:
    """Processes started meanwhile ignore Ctrl-C, as a signal that is ignored stays so: this one ends them instead."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
