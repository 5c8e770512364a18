"""What the service says of quality and its cost: costs, curve, diagnosis, comparisons; over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.cost_cases import COSTS, make_pool, play
from tests.api.harness import Http, Json, answered, group, in_process, refused
from tests.api.key_cases import made_key

R = "/v1/runs/r"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    """Three runs a configuration, with equal seeds; `blind` was never looked at and tells no cost."""
    with in_process(f"sqlite:///{tmp_path_factory.mktemp('costs')}/midband.db") as http:
        make_pool(http)
        play(http, "r", [1, 2, 4, 3, 6])
        for seed in range(3):
            play(http, f"u{seed}", [1, 2, 3, 4], seed=seed, policy={"preset": "uniform"})
            play(http, f"m{seed}", [1, 4, 5, 6 + (seed == 2)], seed=seed)
        http.run("blind", group_size=4)
        http.report(group(http.draw(0, 1, run="blind")["tickets"][0], [1.0] * 4), run="blind")
        yield http


def compared(http: Http, *runs: list[str], target: float = 0.5, **options: Any) -> Json:
    return http.post("/v1/comparisons", {"runs": runs, "quality": {"metric": "pass_rate", "target": target}, **options})


def test_costs_balance_and_name_what_a_useful_group_cost(http: Http) -> None:
    costs = http.get(f"{R}/costs")

    assert sum(costs["tokens"].values()) == 5 * (16 + 16) * 10
    assert costs["tokens"]["heldout"] == 5 * 16 * 10
    assert sum(costs["rollouts"].values()) == http.info()["rollouts"]["reported"]
    assert costs["seconds"] == {
        "generation": 30.0, "scoring": 0.0, "update": 15.0, "weight_sync": 0.0, "idle": 5.0, "environment": 0.0,
    }  # fmt: skip
    assert costs["spent"] == {"tokens": 800, "rollouts": 80, "accelerator_s": 200.0, "energy_j": None}
    assert costs["informative"] == {"groups": 10, "judged": 20, "share": 0.5}
    assert costs["per_informative_group"] == {"tokens": 80, "rollouts": 8, "accelerator_s": 20, "energy_j": None}
    assert costs["accelerators"] == 4
    assert costs["peak_memory_bytes"] == {"accelerator": 2**30}
    assert costs["environment"] == {"model": ["m-1b"], "accelerator": ["4 × H1"]}


def test_a_curve_has_each_look_at_the_cost_before_it_and_the_first_passage_between_two(http: Http) -> None:
    found = http.get(f"{R}/curve", q=0.4)

    assert [point["spent"]["tokens"] for point in found["points"]] == [0, 160, 320, 480, 640]
    assert [point["spent"]["accelerator_s"] for point in found["points"]] == [0, 40, 80, 120, 160]
    assert [point["estimate"] for point in found["points"]] == [0.125, 0.25, 0.5, 0.375, 0.75]
    assert [point["smoothed"] for point in found["points"]] == pytest.approx([0.125, 0.25, 0.4375, 0.4375, 0.75])
    assert found["units"] == ["tokens", "rollouts", "accelerator_s"]
    passage = found["passage"]
    assert (passage["reached"], passage["after_index"], passage["by_index"]) == (True, 1, 2)
    assert passage["cost"]["tokens"] == [160, 320]
    assert found["quality"]["finding"] == "too_little"
    assert set(found["quality"]["category"]) == {"a", "b"}


def test_without_q_there_is_no_passage_and_a_target_never_reached_has_no_upper_end(http: Http) -> None:
    assert http.get(f"{R}/curve")["passage"] is None
    never = http.get(f"{R}/curve", q=1)["passage"]
    assert not never["reached"]
    assert never["cost"]["tokens"] == [640, None]
    for q in ("2", "nan", "-1", "half"):
        refused(http.send("GET", f"{R}/curve", params={"q": q}), 422, "invalid_request", "q")


def test_a_run_without_looks_says_what_to_do(http: Http) -> None:
    found = http.get("/v1/runs/blind/curve", q=0.5)
    assert found["points"] == []
    assert not found["passage"]["reached"]
    assert any("purpose heldout" in warning for warning in found["warnings"])
    assert http.get("/v1/runs/blind/costs")["spent"]["accelerator_s"] is None


def test_a_diagnosis_has_its_bounds_and_what_is_missing(http: Http) -> None:
    found = http.get(f"{R}/diagnosis")

    assert found["binding"] == "low_signal"
    savings = {remedy["remedy"]: remedy["saving"] for remedy in found["remedies"]}
    assert savings["perfect selection"] == pytest.approx(0.5 * 0.9)
    assert savings["perfect overlap of generation and update"] == pytest.approx(1 - 0.6)
    assert all(remedy["formula"] for remedy in found["remedies"])
    assert [part.split(":")[0] for part in found["missing"]] == ["memory"]
    assert http.get("/v1/runs/blind/diagnosis")["binding"] is None


def test_configurations_are_compared_over_seeds(http: Http) -> None:
    found = compared(http, ["u0", "u1", "u2"], ["m0", "m1", "m2"], names=["uniform", "midband"])
    uniform, midband = found["configurations"]

    assert found["grid"] == [0, 1, 2, 3]
    assert (uniform["reached"], uniform["median_cost"]) == (3, 480)
    assert (midband["reached"], midband["median_cost"]) == (3, 160)
    assert found["matched_cost"] == 480
    (contrast,) = found["contrasts"]
    assert contrast["cost_ratio"]["estimate"] == pytest.approx(1 / 3)
    assert contrast["quality"]["estimate"] == pytest.approx((0.25 + 0.25 + 0.375) / 3)
    assert contrast["quality"]["interval"][0] < contrast["quality"]["estimate"] < contrast["quality"]["interval"][1]
    assert [run["setup"]["preset"] for run in uniform["runs"]] == ["uniform"] * 3
    assert [band["runs"] for band in midband["band"]] == [3] * 4
    assert any("3 seeds" in warning for warning in found["warnings"])


def test_runs_that_never_get_there_are_counted_as_such(http: Http) -> None:
    found = compared(http, ["u0", "u1", "u2"], ["m0", "m1", "m2"], target=0.8)
    assert [arm["reached"] for arm in found["configurations"]] == [0, 1]
    assert [arm["median_cost"] for arm in found["configurations"]] == [None, None]
    assert (found["contrasts"][0]["first"], found["contrasts"][0]["neither"]) == (1, 2)
    assert "none is dropped" in found["never_reached"]


def test_a_control_stands_beside_its_configuration(http: Http) -> None:
    found = compared(http, ["m0"], ["m1"], names=["a", "b"], controls=[["u0"], []])
    assert [(arm["name"], arm["control_of"]) for arm in found["configurations"]] == [
        ("a", None), ("control of a", "a"), ("b", None),
    ]  # fmt: skip
    assert [(c["arm"], c["against"]) for c in found["contrasts"]] == [("control of a", "a"), ("b", "a")]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"runs": []}, "runs"),
        ({"runs": [[]]}, "runs"),
        ({"runs": [["r"], ["r"]]}, "more than once: r"),
        ({"names": ["one", "two"]}, "2 names"),
        ({"controls": [[], []]}, "2 controls"),
        ({"unit": "energy_j"}, "energy_j"),
        ({"unit": "hours"}, "unit"),
        ({"quality": {"metric": "loss", "target": 0.5}}, "metric"),
        ({"quality": {"metric": "pass_rate", "target": 2}}, "target"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_cannot_be_compared_is_named(http: Http, change: Json, word: str) -> None:
    body = {"runs": [["r"]], "quality": {"metric": "pass_rate", "target": 0.5}}
    refused(http.send("POST", "/v1/comparisons", body | change), 422, "invalid_request", word)


def test_names_that_stand_for_two_arms_are_refused(http: Http) -> None:
    body = {
        "runs": [["r"], ["u0"]],
        "quality": {"target": 0.5},
        "names": ["a", "control of a"],
        "controls": [["m0"], []],
    }
    refused(http.send("POST", "/v1/comparisons", body), 422, "invalid_request", "names")


def test_a_run_that_is_not_there_is_named(http: Http) -> None:
    body = {"runs": [["r"], ["none"]], "quality": {"target": 0.5}}
    refused(http.send("POST", "/v1/comparisons", body), 404, "unknown_run", "none")


def test_a_step_is_the_same_wherever_it_is_sent_again_from(http: Http) -> None:
    body = {"step": 0, "policy_version": 1, "costs": COSTS}
    elsewhere = {**body, "costs": {**COSTS, "environment": {"model": "m-1b", "driver": "9"}}}
    before = http.get(f"{R}/costs")
    assert http.post(f"{R}/steps", elsewhere)["state"] == "duplicate"
    other = {**body, "costs": {**COSTS, "generation_s": 7.0}}
    refused(http.send("POST", f"{R}/steps", other), 409, "step_conflict", "costs")
    assert http.get(f"{R}/costs") == before


@pytest.mark.parametrize(
    "environment", [{"": "x"}, {"a": ""}, {"a": "x" * 301}, {"a": 1}, {f"n{i}": "x" for i in range(65)}]
)
def test_an_environment_is_few_short_words(http: Http, environment: Json) -> None:
    body = {"step": 99, "policy_version": 1, "costs": {"environment": environment}}
    refused(http.send("POST", f"{R}/steps", body), 422, "invalid_request", "environment")


def test_a_key_compares_the_runs_it_reaches_and_no_others(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.keyring.KEYS_LIVE_S", 0.0)
    url = f"sqlite:///{tmp_path}/midband.db"
    with in_process(url) as anybody:
        make_pool(anybody)
        play(anybody, "mine", [1, 2])
        play(anybody, "theirs", [1, 2])
        http = anybody.holding(made_key(url, "read", runs=["mine"]))
        quality = {"metric": "pass_rate", "target": 0.5}
        assert answered(http.send("POST", "/v1/comparisons", {"runs": [["mine"]], "quality": quality}))
        for body in (
            {"runs": [["mine"], ["theirs"]], "quality": quality},
            {"runs": [["mine"]], "controls": [["theirs"]], "quality": quality},
            {"runs": [["mine"], ["none"]], "quality": quality},
        ):
            refused(http.send("POST", "/v1/comparisons", body), 404, "unknown_run")
        without = anybody.holding(made_key(url, "draw"))
        for path in ("curve", "diagnosis", "report"):
            refused(without.send("GET", f"/v1/runs/mine/{path}"), 403, "missing_scope")
        refused(without.send("POST", "/v1/comparisons", {"runs": [["mine"]], "quality": quality}), 403, "missing_scope")


def test_nothing_is_changed_by_looking(http: Http) -> None:
    before = http.events()
    http.get(f"{R}/curve", q=0.5)
    http.get(f"{R}/diagnosis")
    http.send("GET", f"{R}/report")
    compared(http, ["r"], ["u0"])
    assert http.events() == before


def test_a_run_that_comes_back_from_the_database_says_the_same(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/midband.db"
    paths = [f"{R}/costs", f"{R}/curve?q=0.4", f"{R}/diagnosis", f"{R}/report?format=json"]
    with in_process(url) as http:
        make_pool(http)
        play(http, "r", [1, 3, 2])
        before = [http.send("GET", path).content for path in paths]
    with in_process(url) as http:
        assert [http.send("GET", path).content for path in paths] == before
