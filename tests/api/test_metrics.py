"""What /metrics says: figures that agree with the API's own, labels that no caller can multiply, and the dashboard."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from api.app import create_app
from api.metrics import Metrics
from api.run_metrics import MAX_RUNS, RunMetrics, Standing, belief_log_loss
from api.settings import Settings
from tests.api.harness import FLAT_BETA, Http, group, held_out, in_process, prompts, stored

DOCS = Path(__file__).resolve().parents[2] / "docs"
MIXED = [1.0, 0.0] * 4
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def http(sqlite_url: str) -> Iterator[Http]:
    with in_process(sqlite_url) as http:
        yield http


def scraped(http: Http) -> Series:
    """Value of each series by name and labels."""
    answer = http.send("GET", "/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float:
    return series[f"midband_{name}", frozenset(labels.items())]


def test_figures_of_a_run_are_those_that_the_api_gives(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool([*prompts(12), *held_out(4)])
        http.run(policy=FLAT_BETA)
        first = http.draw(0, 4)
        http.report(*(group(ticket, MIXED) for ticket in first["tickets"][:2]))
        http.report(group(first["tickets"][2], [1.0] * 8))
        looks = http.draw(0, 2, purpose="heldout")
        http.report(*(group(ticket, MIXED) for ticket in looks["tickets"]))
        last = http.draw(1, 4, 3)

        series, info = scraped(http), http.info()

    for state, count in info["tickets"].items():
        assert value(series, "run_tickets", run="r", state=state) == count
    for status, count in info["rollouts"].items():
        if status != "issued":
            assert value(series, "run_rollouts", run="r", status=status) == count
    for source, count in info["tokens"].items():
        assert value(series, "run_tokens", run="r", source=source) == count
    assert value(series, "run_groups", run="r", informative="true") == info["informative"]["groups"] == 2
    assert value(series, "run_groups", run="r", informative="false") == 1
    assert value(series, "run_predicted_yield", run="r") == pytest.approx(last["predicted_yield"])
    assert value(series, "run_policy_version", run="r") == 3
    assert value(series, "run_train_draws", run="r") == 2
    assert value(series, "run_commands_waiting", run="r") == 0
    assert value(series, "run_events_since_snapshot", run="r") == 6  # three draws and three reports
    assert value(series, "runs_in_memory") == 1
    # Every prompt was predicted to pass half the time, so each rollout cost ln 2, whatever came of it.
    assert value(series, "run_belief_log_loss", run="r") == pytest.approx(math.log(2))


def test_lag_is_the_mean_of_draws_between_a_group_and_its_end(http: Http) -> None:
    http.pool(prompts(12))
    http.run()
    first, second = http.draw(0, 1), http.draw(1, 1)
    http.report(group(first["tickets"][0], MIXED))  # one draw later
    http.report(group(second["tickets"][0], MIXED))  # none
    series, tickets = scraped(http), http.tickets()
    assert value(series, "run_lag_draws", run="r") == 0.5
    assert sorted(ticket["draws_between"] for ticket in tickets) == [0, 1]


def test_an_alarm_is_a_series_that_becomes_1(http: Http) -> None:
    http.pool(prompts(4))
    http.run()
    for index in range(20):
        batch = http.draw(index, 1)
        if index == 0:
            assert value(scraped(http), "run_alarms", run="r", alarm="no_usable_groups") == 0
        http.report(*({"ticket": ticket["ticket"], "void": "stale"} for ticket in batch["tickets"]))
    raised = {alarm["alarm"] for alarm in http.info()["alarms"]}
    series = scraped(http)
    assert "no_usable_groups" in raised
    assert all(value(series, "run_alarms", run="r", alarm=alarm) == 1 for alarm in raised)


def test_requests_are_counted_and_timed_by_route_and_never_by_what_callers_chose(http: Http) -> None:
    http.pool(prompts(4))
    http.run()
    http.draw(0, 1)
    for path in ("/v1/runs/none", "/nothing/at/all", "/v1/pools/p/prompts/p001", "/v1/pools/p/prompts/none"):
        http.send("GET", path)
    http.send("BREW", "/v1/runs")

    series = scraped(http)

    draws = {"method": "POST", "route": "/v1/runs/{run}/batches"}
    assert value(series, "requests_total", **draws, status="200") == 1
    assert value(series, "request_seconds_count", **draws) == 1
    assert value(series, "requests_total", method="GET", route="/v1/runs/{run}", status="404") == 1
    assert value(series, "requests_total", method="GET", route="other", status="404") == 1
    prompt = {"method": "GET", "route": "/v1/pools/{pool}/prompts/{key:path}"}
    assert value(series, "requests_total", **prompt, status="200") == 1
    assert value(series, "requests_total", **prompt, status="404") == 1
    assert value(series, "requests_in_progress") == 1  # this one
    assert {"BREW", "none"} & {label for _, labels in series for _, label in labels} == set()


def test_an_error_of_the_database_is_counted_by_kind(tmp_path: Path) -> None:
    metrics = Metrics()
    with stored(f"sqlite:///{tmp_path}/midband.db") as connection:
        metrics.watch(connection.engine)
        with pytest.raises(DBAPIError):
            connection.execute(text("SELECT * FROM nowhere"))
    assert metrics.registry.get_sample_value("midband_database_errors_total", {"kind": "OperationalError"}) == 1


def test_a_server_with_many_runs_shows_those_written_last(sqlite_url: str) -> None:
    with in_process(sqlite_url) as http:
        http.pool(prompts(4))
        http.run()
        http.draw(0, 1)
        service = http.client._transport._app.state.service  # type: ignore[attr-defined]
        state = service.standings()[0].state
    names = [f"r{i:03}" for i in range(MAX_RUNS + 10)]
    collector = RunMetrics(lambda: [Standing(name, state, 1, 0, None, float(i)) for i, name in enumerate(names)])
    found = {family.name: family for family in collector.collect()}
    shown = {sample.labels["run"] for sample in found["midband_run_events"].samples}
    assert shown == set(names[10:])
    assert found["midband_runs_in_memory"].samples[0].value == len(names)
    assert found["midband_commands_waiting"].samples[0].value == len(names)
    assert not found["midband_run_snapshot_age_seconds"].samples
    assert state is not None
    assert belief_log_loss(state) is None


def test_metrics_can_be_read_before_there_is_any_run(http: Http) -> None:
    series = scraped(http)
    assert value(series, "runs_in_memory") == 0
    assert not [name for name, _ in series if name.startswith("midband_run_")]


def test_the_dashboard_names_only_metrics_and_labels_that_exist(sqlite_url: str) -> None:
    dashboard = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    with in_process(sqlite_url) as http:
        app_metrics = create_app(Settings(database_url=sqlite_url)).state.metrics
        families = {family.name for family in app_metrics.registry.collect()}
        known = {name for name, _ in scraped(http)} | {f.name for f in RunMetrics(list).describe()}
    known |= {f"{family}{ending}" for family in families for ending in ("_total", "_bucket", "_count", "_sum")}
    named = {name for text in asked for name in re.findall(r"\b(?:midband|process)_[a-z_]+", text)}
    assert named
    assert named - known == set()
    # And the other way round: what is measured of runs is shown.
    assert {f.name for f in RunMetrics(list).describe()} - named == set()
    labels = {
        label
        for text in asked
        for inside in re.findall(r"\{([^}]*)\}", text)
        for label in re.findall(r"(\w+)\s*=", inside)
    }
    assert labels <= {"run", "route", "method", "status", "state", "informative", "source", "alarm", "kind"}
