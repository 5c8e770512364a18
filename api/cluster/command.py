"""`midband serve --ray`: what can be refused is refused before Ray is asked for anything.

Called by the command. Knows no Ray: that is `api.cluster.ray`, imported once everything else is there.
"""

import logging

from sqlalchemy import make_url

from api.errors import StartRefused
from api.process import begin_process
from api.serve import listen, prepare_database
from api.settings import Settings, shown_url

logger = logging.getLogger("midband")


def serve_on_ray(settings: Settings, *, replicas: int) -> None:
    """Serves until it is told to stop. Raises StartRefused when it cannot start."""
    begin_process(settings)
    if not make_url(settings.database_url).drivername.startswith("postgres"):
        raise StartRefused(
            f"{shown_url(settings.database_url)} has one server, and on Ray there are several processes: give a "
            "PostgreSQL database with --database-url or MIDBAND_DATABASE_URL, or serve without --ray"
        )
    try:
        from api.cluster import ray
    except ModuleNotFoundError as error:
        raise StartRefused(f"serving on Ray needs {error.name}: pip install 'midband[ray]'") from error
    prepare_database(settings)
    with listen(settings) as listener:  # whether the port is free; a real one in place of 0
        port = int(listener.getsockname()[1])
    ray.serve(settings.model_copy(update={"port": port}), replicas=replicas)


def where_things_run() -> list[str]:
    """What a Ray cluster has of ours, in lines. Raises StartRefused where there is no cluster."""
    try:
        from api.cluster import ray
    except ModuleNotFoundError as error:
        raise StartRefused(f"looking at a Ray cluster needs {error.name}: pip install 'midband[ray]'") from error
    return ray.where_things_run()
