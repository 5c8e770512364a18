"""The service on Ray: Ray Serve is the edge that speaks HTTP, and each run has an actor that Ray begins anew.

`api.cluster.command` calls it. An actor's process holds the ordinary app with one run; its state comes from the
database, and the run's lease with its token is what keeps a forgotten one from writing. Actors are detached: they stay
when an edge's replica goes, and end with the command.
"""

import asyncio
import logging
import os
import signal
import threading
from contextlib import AsyncExitStack
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve as ray_serve
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError

from api.app import create_app
from api.cluster.forwarding import Answer, Call, Gone, OneName, answer_of
from api.errors import StartRefused
from api.process import begin_process
from api.serve import warming
from api.settings import Settings, shown_url

NAMESPACE = "midband"  # of our actors; those of probers too
APPLICATION = "midband"
RUN = "run "  # and its name: an actor's
AT_ONCE = 4_096  # calls of one replica or actor; a run refuses more than that itself
STOP_S = 60.0  # for an actor to finish what is under way and store its snapshot
ASK_S = 10.0  # for an actor to say where it is

logger = logging.getLogger("midband")

Place = dict[str, Any]  # name, node, pid, devices


class RunActor:
    """One run. Its process may be killed at any moment."""

    async def __init__(self, settings: Settings, run: str) -> None:  # type: ignore[misc]  # Ray awaits it
        begin_process(settings)
        warming().start()
        self._run, self._app, self._stack = run, create_app(settings), AsyncExitStack()
        await self._stack.enter_async_context(self._app.router.lifespan_context(self._app))

    async def answer(self, call: Call) -> Answer:
        return await answer_of(self._app, call)

    async def where(self) -> list[Place]:
        return [{"name": self._run, **here()}]

    async def stop(self) -> None:
        """Gives the lease back and stores a snapshot."""
        await self._stack.aclose()


def serve(settings: Settings, *, replicas: int) -> None:
    """Serves until SIGINT or SIGTERM. Raises StartRefused where the cluster serves something already."""
    stopping = threading.Event()
    ray.init(namespace=NAMESPACE, include_dashboard=False, configure_logging=False)
    try:
        if ray_serve.status().proxies:
            raise StartRefused(
                "Ray Serve runs on this cluster already, on a port of its own: end it with `serve shutdown`, or take "
                "another cluster with RAY_ADDRESS"
            )
        for number in (signal.SIGINT, signal.SIGTERM):  # Ray has set its own
            signal.signal(number, lambda *_: stopping.set())
        _stop_actors()  # of a command that was killed: their settings may be other ones
        try:
            ray_serve.start(http_options={"host": settings.host, "port": settings.port})
            ray_serve.run(_edge(settings, replicas), name=APPLICATION, route_prefix="/")
            logger.info("database %s", shown_url(settings.database_url))
            logger.info("serving on Ray, %d replicas, at %s", replicas, settings.address)
            stopping.wait()
        finally:
            ray_serve.shutdown()
            _stop_actors()
    finally:
        ray.shutdown()


def _edge(settings: Settings, replicas: int) -> Any:
    def build() -> OneName:
        return OneName(edge(settings))

    deployment = ray_serve.deployment(
        name="edge",
        num_replicas=replicas,
        max_ongoing_requests=AT_ONCE,
        ray_actor_options={"num_cpus": 0},
        logging_config={"enable_access_log": False, "log_level": settings.log_level.upper()},
    )
    return deployment(ray_serve.ingress(build)()).bind()


def edge(settings: Settings) -> FastAPI:
    """The app of one replica: it begins the actor of a run with the first call for it."""
    begin_process(settings)
    actors: dict[str, Any] = {}
    kind = ray.remote(RunActor)

    def actor_of(run: str) -> Any:
        return kind.options(
            name=RUN + run,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_task_retries=0,  # what may be sent twice is known here
            max_concurrency=AT_ONCE,
            num_cpus=0,  # it waits for its database most of the time
            scheduling_strategy="SPREAD",
        ).remote(settings, run)

    async def send_on(call: Call) -> Answer:
        try:
            actor = actors.get(call.run)
            if actor is None:
                actor = actors[call.run] = await asyncio.to_thread(actor_of, call.run)
            answer: Answer = await actor.answer.remote(call)
            return answer
        except RayActorError as error:
            if isinstance(error, ActorDiedError):  # for good: as when it was ended by hand. Else Ray begins it anew
                actors.pop(call.run, None)
            logger.info("run %s: no answer from its actor: %s", call.run, (str(error).splitlines() or [""])[0])
            raise Gone from error

    return create_app(settings, send_on=send_on)


def here() -> Place:
    """Where this process runs, in plain values."""
    context = ray.get_runtime_context()
    ids = context.get_accelerator_ids()
    return {
        "node": context.get_node_id(),
        "pid": os.getpid(),
        "devices": [f"{kind} {number}" for kind, numbers in ids.items() for number in numbers],
    }


def where_things_run() -> list[str]:
    """Nodes, the edge, runs and the workers of probers, a line each. Raises StartRefused where there is no cluster."""
    try:
        ray.init("auto", include_dashboard=False, log_to_driver=False, configure_logging=False)
    except ConnectionError as error:
        raise StartRefused(
            "no Ray cluster is found: begin one with `midband serve --ray` or `ray start --head` on this machine, or "
            "name one with RAY_ADDRESS"
        ) from error
    try:
        nodes = {node["NodeID"]: node for node in ray.nodes()}
        address = {name: str(node["NodeManagerAddress"]) for name, node in nodes.items()}
        lines = ["nodes"]
        for name, node in nodes.items():
            has = ", ".join(f"{node['Resources'].get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
            lines.append(f"  {address[name]}  {has}" if node["Alive"] else f"  {address[name]}  dead")
        lines.append("edge")
        deployments = [d for a in ray_serve.status().applications.values() for d in a.deployments.items()]
        for name, found in deployments:
            states = ", ".join(f"{count} {state.lower()}" for state, count in found.replica_states.items())
            lines.append(f"  {name}: {states}")
        for title, prefix in (("runs", RUN), ("workers", "workers ")):
            lines.append(title)
            for name in sorted(_names(prefix)):
                lines += [f"  {_shown(place, address)}" for place in _places(name)]
        return lines
    finally:
        ray.shutdown()


def _names(prefix: str) -> list[str]:
    known = ray.util.list_named_actors(all_namespaces=True)
    return [one["name"] for one in known if one["namespace"] == NAMESPACE and one["name"].startswith(prefix)]


def _places(name: str) -> list[Place]:
    """What a named actor says; that it says nothing, if so."""
    try:
        found: list[Place] = ray.get(ray.get_actor(name, namespace=NAMESPACE).where.remote(), timeout=ASK_S)
        return found
    except (GetTimeoutError, RayActorError, ValueError) as error:
        return [{"name": f"{name}: {type(error).__name__}", "node": None, "pid": None, "devices": []}]


def _shown(place: Place, address: dict[str, str]) -> str:
    if place["node"] is None:
        return f"{place['name']}: no answer"
    where = address.get(place["node"], place["node"])
    return f"{place['name']}  {where}  process {place['pid']}  {', '.join(place['devices']) or 'CPU'}"


def _stop_actors() -> None:
    """Ends the runs' actors in good order, those that do not answer without it."""
    actors = [ray.get_actor(name, namespace=NAMESPACE) for name in _names(RUN)]
    try:
        ray.get([actor.stop.remote() for actor in actors], timeout=STOP_S)
    except (GetTimeoutError, RayActorError) as error:
        logger.warning("an actor did not end in good order: %s", (str(error).splitlines() or [""])[0])
    for actor in actors:
        ray.kill(actor)
