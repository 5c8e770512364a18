"""What an import drags in. The import contracts judge what is written; a fresh process shows what really happens."""

import pytest

from tests.architecture.fresh import packages_loaded_by

HEAVY = {"ray", "torch", "transformers", "trl", "verl", "vllm"}
SERVICE = {"alembic", "fastapi", "prometheus_client", "sqlalchemy", "starlette", "uvicorn"}


@pytest.mark.parametrize("module", ["midband", "trainer", "trainer.client", "api.schemas", "selector.engine"])
def test_importing_it_loads_no_heavy_library(module: str) -> None:
    assert not packages_loaded_by(f"import {module}") & HEAVY


def test_the_client_loads_nothing_of_the_service_but_its_schemas() -> None:
    loaded = packages_loaded_by("import trainer.client")
    assert not loaded & (SERVICE | {"predictors", "selector"})


def test_the_wire_contract_loads_pydantic_and_nothing_else_of_weight() -> None:
    loaded = packages_loaded_by("import api.schemas")
    assert "pydantic" in loaded
    assert not loaded & (SERVICE | {"httpx", "numpy", "predictors", "selector", "trainer"})


def test_the_engine_loads_no_edge_of_the_program() -> None:
    loaded = packages_loaded_by("import selector.engine")
    assert not loaded & (SERVICE | {"api", "httpx", "orjson", "pydantic", "trainer"})
