"""Which estimator a run begins with that names none: it reads the features of a pool that has some."""

from collections.abc import Iterator

import numpy as np
import pytest

from api.db import features
from tests.api.harness import Http, Json, group, in_process, refused

FEATURED = [{"key": f"p{n:03}", "content": f"{n}", "features": {"x": n / 120}} for n in range(120)]
BARE = [{"key": f"p{n:03}", "content": f"{n}"} for n in range(120)]


@pytest.fixture
def http(sqlite_url: str) -> Iterator[Http]:
    with in_process(sqlite_url) as http:
        yield http


def estimator_of(answer: Json) -> str:
    return str(answer["config"]["policy"]["estimator"])


def means(http: Http, run: str) -> dict[str, tuple[float, float]]:
    """Key -> pass rate and how sure that is."""
    return {key: (belief["pass_rate"], belief["pass_rate_sd"]) for key, belief in http.beliefs(run).items()}


def play(http: Http, first: int, last: int, run: str = "r") -> None:
    """Batches of 20 that score as the number in their keys says."""
    for index in range(first, last):
        batch = http.draw(index, 20, index, run)
        passes = {t["prompt"]: round(8 * int(t["prompt"][1:]) / 120) for t in batch["tickets"]}
        http.report(*(group(t, [float(n < passes[t["prompt"]]) for n in range(8)]) for t in batch["tickets"]), run=run)


@pytest.mark.parametrize(
    ("policy", "with_features", "without"),
    [
        ({}, "features", "mixture"),
        ({"preset": "uniform"}, "features", "mixture"),
        ({"estimator_options": {"memory_groups": 900.0}}, "features", "mixture"),
        ({"estimator": "mixture"}, "mixture", "mixture"),
        ({"estimator": "features"}, "features", "features"),
        ({"preset": "mopps"}, "discounted_beta", "discounted_beta"),
    ],
)
def test_a_preset_of_the_mixture_reads_the_features_of_a_pool_unless_it_is_named(
    http: Http, policy: Json, with_features: str, without: str
) -> None:
    http.pool(FEATURED)
    http.pool(BARE, "q")
    assert estimator_of(http.run(policy=policy)) == with_features
    assert estimator_of(http.info()) == with_features
    assert estimator_of(http.run("s", "q", policy=policy)) == without


def test_features_are_left_alone_where_holding_them_takes_much_memory(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.pool(FEATURED)
    monkeypatch.setattr(features, "FEW_BYTES", 100)
    assert estimator_of(http.run()) == "mixture"


def test_a_run_keeps_the_estimator_that_it_began_with_whatever_becomes_of_the_pool(http: Http) -> None:
    http.pool(BARE)
    first = http.run()
    play(http, 0, 2)
    http.put(FEATURED)

    again = http.send("POST", "/v1/runs", {"name": "r", "pool": "p"})
    assert (again.status_code, again.json()) == (200, first)
    assert estimator_of(http.info()) == "mixture"
    assert estimator_of(http.run("s")) == "features"


def test_a_later_policy_that_names_no_estimator_keeps_the_default_as_it_was(http: Http) -> None:
    http.pool(FEATURED)
    http.run()
    http.run("m", policy={"estimator": "mixture"})
    for run, kept in (("r", "features"), ("m", "mixture")):
        http.post(f"/v1/runs/{run}/config", {"policy": {"preset": "midband", "floor": 0.2}})
        assert (http.info(run)["config"]["policy"]["floor"], estimator_of(http.info(run))) == (0.2, kept)
        other = {"policy": {"preset": "mopps"}}
        refused(http.send("POST", f"/v1/runs/{run}/config", other), 409, "estimator_fixed", kept)
    changed = {"policy": {"estimator": "mixture"}}
    refused(http.send("POST", "/v1/runs/r/config", changed), 409, "estimator_fixed", "features")


def test_a_run_that_starts_from_another_has_its_default_estimator(http: Http) -> None:
    http.pool(BARE)
    http.run("bare")
    play(http, 0, 3, "bare")
    http.put(FEATURED)
    http.run("told")
    play(http, 0, 3, "told")

    for source, estimator in (("bare", "mixture"), ("told", "features")):
        begun = http.run(f"from-{source}", start_from={"run": source, "discount": 1.0})
        assert estimator_of(begun) == estimator
        now, then = (means(http, run) for run in (f"from-{source}", source))
        assert now == then


def test_beliefs_of_prompts_never_tried_follow_the_features_and_are_the_same_after_a_restart(sqlite_url: str) -> None:
    with in_process(sqlite_url) as http:
        http.pool(FEATURED)
        http.run()
        play(http, 0, 5)
        before = http.beliefs()
    untried = [key for key, belief in before.items() if belief["source"] == "prior"]
    believed = [before[key]["pass_rate"] for key in untried]
    assert len(untried) > 20
    assert np.corrcoef(believed, [int(key[1:]) for key in untried])[0, 1] > 0.8
    with in_process(sqlite_url) as http:
        assert http.beliefs() == before
        play(http, 5, 6)
        after = http.beliefs()
    with in_process(sqlite_url) as http:
        assert http.beliefs() == after
