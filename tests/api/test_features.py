"""Features of a pool, from an import to the beliefs of a run, at every revision."""

from collections.abc import Iterator

import numpy as np
import pytest
from sqlalchemy import Engine, select, update

from api.db.features import read_features
from api.db.models import pool_deltas
from api.db.pools import get_pool, set_quarantine
from api.db.session import create_database, read, write
from api.errors import DamagedData
from predictors.columns import MAX_VECTOR, projected
from tests.api.harness import Http, Json, group, in_process
from tests.api.import_cases import columns, make_pool, put

TOLD = {"preset": "midband", "estimator": "features"}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with one empty pool `p`."""
    engine = create_database(database_url)
    make_pool(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def http(sqlite_url: str) -> Iterator[Http]:
    with in_process(sqlite_url) as http:
        yield http


def row(key: str, features: object = None, **fields: object) -> Json:
    return {"key": key, "content": key, **({} if features is None else {"features": features}), **fields}


def told_of(engine: Engine, revision: int | None = None) -> dict[str, dict[str, object]]:
    """Key -> name -> number or list, of those that are there, at a revision of pool p."""
    pool = columns(engine, revision)
    with read(engine) as connection:
        found = read_features(connection, get_pool(connection, "p").id, pool.revision, len(pool))
    return {
        key: {name: values[place].tolist() for name, values in found.items() if not np.isnan(values[place]).any()}
        for place, key in enumerate(pool.keys)
    }


def test_numbers_and_vectors_are_there_at_every_revision(engine: Engine) -> None:
    put(engine, [row("a", {"x": 1.5, "v": [1, 2]}), row("b"), row("c", {"x": -2})])
    put(engine, [row("d", {"y": 7}), row("a", {"x": 3})])
    set_quarantine(engine, "p", ["c"], "odd", lift=False, at=0.0)

    assert told_of(engine, 1) == {"a": {"x": 1.5, "v": [1.0, 2.0]}, "b": {}, "c": {"x": -2.0}}
    assert told_of(engine) == {"a": {"x": 3.0}, "b": {}, "c": {"x": -2.0}, "d": {"y": 7.0}}


def test_a_bare_vector_has_a_name_and_a_long_one_is_projected(engine: Engine) -> None:
    vector = np.random.default_rng(0).normal(size=4 * MAX_VECTOR)
    put(engine, [row("a", vector.tolist()), row("b", (2 * vector).tolist())])

    found = told_of(engine)
    np.testing.assert_allclose(np.asarray(found["a"]["features"]), projected(vector[None])[0], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(found["b"]["features"]), 2 * projected(vector[None])[0], rtol=1e-5)
    assert np.linalg.norm(np.asarray(found["a"]["features"])) == pytest.approx(np.linalg.norm(vector), rel=0.3)


def test_a_pool_that_is_replaced_may_change_lengths(engine: Engine) -> None:
    put(engine, [row("a", {"v": [1, 2]}), row("b", {"v": [3, 4]})])
    put(engine, [row("a", {"v": [5, 6, 7]})], replace=True)

    assert told_of(engine) == {"a": {"v": [5.0, 6.0, 7.0]}, "b": {}}
    assert told_of(engine, 1)["b"] == {"v": [3.0, 4.0]}


def test_a_pool_without_features_stores_nothing_more(engine: Engine) -> None:
    put(engine, [row("a"), row("b", category="x")])
    put(engine, [row("a", category="y")])

    with read(engine) as connection:
        assert connection.execute(select(pool_deltas.c.part)).scalars().all() == [0, 0]
    assert told_of(engine) == {"a": {}, "b": {}}


def test_damaged_features_are_refused_and_the_pool_itself_is_read(engine: Engine) -> None:
    put(engine, [row("a", {"x": 1.0})])
    with write(engine) as connection:
        connection.execute(update(pool_deltas).where(pool_deltas.c.part < 0).values(payload=b"no"))

    with pytest.raises(DamagedData, match="features of a pool fail their checksum"):
        told_of(engine)
    assert columns(engine).keys == ["a"]


def rounds(http: Http, rate: dict[str, float], start: int, stop: int) -> None:
    """Batches of 20 that score as their prompts do, as nearly as 8 rollouts can."""
    for index in range(start, stop):
        batch = http.draw(index, 20, index)
        outcomes = {t["prompt"]: round(8 * rate[t["prompt"]]) for t in batch["tickets"]}
        http.report(*(group(t, [float(n < outcomes[t["prompt"]]) for n in range(8)]) for t in batch["tickets"]))


def test_a_run_sorts_prompts_never_tried_by_features_of_its_pool_and_after_a_restart(sqlite_url: str) -> None:
    rng = np.random.default_rng(1)
    rate = {f"p{i:03}": float(x) for i, x in enumerate(rng.random(300))}
    pool = [row(key, {"x": x, "noise": float(rng.random())}) for key, x in rate.items()]
    with in_process(sqlite_url) as http:
        http.pool(pool)
        http.run(policy=TOLD)
        rounds(http, rate, 0, 7)
        before = http.beliefs()
    untried = [key for key in rate if before[key]["source"] == "prior"]
    assert len(untried) > 100
    believed = [before[key]["pass_rate"] for key in untried]
    assert np.corrcoef(believed, [rate[key] for key in untried])[0, 1] > 0.9

    with in_process(sqlite_url) as http:
        assert http.beliefs() == before
        http.pool([row("late", {"x": 0.97, "noise": 0.5}), row("bare")])
        after = http.beliefs()
        assert after["late"]["pass_rate"] > 0.75
        assert {key: after[key]["pass_rate"] for key in before} == {key: b["pass_rate"] for key, b in before.items()}
        rounds(http, {**rate, "late": 1.0, "bare": 0.5}, 7, 9)
        end = http.beliefs()
    with in_process(sqlite_url) as http:
        assert http.beliefs() == end


def test_a_signal_counts_in_place_of_a_feature_of_its_name(http: Http) -> None:
    http.pool([row("a", {"value": 0.2}), row("b", {"value": 0.2})])
    http.run(policy={"preset": "pcl"})
    http.post("/v1/runs/r/signals", {"policy_version": 0, "features": {"b": {"value": 0.9}}})

    beliefs = http.beliefs()
    assert beliefs["b"]["pass_rate"] == pytest.approx(0.9)


def test_the_audit_reads_features_of_the_pool_whatever_the_estimator(http: Http) -> None:
    """Six prompts of each value, drawn alike; later rows are sorted into the parts of the run's beginning."""
    pool = [row(f"p{i:03}", {"x": float(i // 6), "v": [i, -i]}) for i in range(30)]
    http.pool([*pool, row("h", {"x": 99.0}, split="heldout")])
    http.run(policy={"preset": "uniform"})
    batch = http.draw(0, 30)
    http.report(*(group(t, [1.0, 0.0] * 4) for t in batch["tickets"]))
    found = http.get("/v1/runs/r/audit")["selection_ratio"]["features"]
    assert list(found) == ["v[0]", "v[1]", "x"]
    assert [(part["low"], part["ratio"]) for part in found["x"]] == [(float(x), 1.0) for x in range(5)]
    assert len(found["v[0]"]) == 5

    http.put([row("new", {"x": 40.0}), row("low", {"x": -40.0})])
    http.draw(1, 4)
    later = http.get("/v1/runs/r/audit")["selection_ratio"]["features"]["x"]
    assert [part["low"] for part in later] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [round(part["pool"] * 32) for part in later] == [7, 6, 6, 6, 7]
    assert "| x |" in http.send("GET", "/v1/runs/r/report").text


def test_only_the_first_numbers_are_held_for_an_audit(engine: Engine) -> None:
    put(engine, [row("a", {f"x{i:02}": i for i in range(30)}), row("b", {"w": [1, 2, 3], "x00": 5})])
    pool = columns(engine)
    with read(engine) as connection:
        found = read_features(connection, get_pool(connection, "p").id, pool.revision, len(pool), numbers=2)
    assert {name: values.shape for name, values in found.items()} == {"w": (2, 2), "x00": (2,)}
    assert found["x00"].tolist() == [0.0, 5.0]
