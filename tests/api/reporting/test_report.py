"""The report: filled from the record, what is missing named, every form the same, nothing in it markup but ours."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from api.reporting.text import escaped
from tests.api.cost_cases import COSTS, make_pool, play
from tests.api.harness import Http, Json, group, in_process, prompts, refused

EVIL = '<script src="https://evil.example/x.js">|`*_[x](y)'


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    with in_process(f"sqlite:///{tmp_path_factory.mktemp('report')}/midband.db") as http:
        make_pool(http)
        facts = {
            "model": "m-1b", "driver": "550.1", "max_prompt_tokens": "512", "max_new_tokens": "1024", "python": "3.12",
            "midband": "1", "accelerator": "4 × H1",
        }  # fmt: skip
        play(http, "full", [1, 2, 4], costs={**COSTS, "energy_j": 3.6e6, "environment": facts}, max_lag=3)
        http.run("bare", group_size=4)
        http.pool([{**row, "category": EVIL} for row in prompts(4)], "evil")
        http.run("evil", "evil", group_size=4)
        for index in range(3):
            batch = http.draw(index, 2, index, "evil")
            http.report(*(group(t, [1.0, 0.0, 0.0, 1.0]) for t in batch["tickets"]), run="evil")
            step = {"step": index, "policy_version": index, "costs": {"update_s": 1.0, "environment": {EVIL: EVIL}}}
            http.post("/v1/runs/evil/steps", step)
        yield http


def form(http: Http, run: str, name: str) -> str:
    response = http.send("GET", f"/v1/runs/{run}/report", params={"format": name})
    assert response.is_success, response.text
    return response.text


def items(http: Http, run: str) -> dict[str, Json]:
    return {item["item"]: item for item in http.get(f"/v1/runs/{run}/report", format="json")["checklist"]}


def test_the_checklist_is_filled_from_the_record(http: Http) -> None:
    found = items(http, "full")

    assert found["hardware and software"]["value"].startswith("4 accelerators, accelerator 4 × H1, driver 550.1")
    assert found["hardware and software"]["missing"] is None
    assert found["unit of throughput"]["value"] == f"informative groups per accelerator-hour: {6 / (120 / 3600):.4g}"
    assert found["staleness bound"]["value"] == "max_lag 3"
    assert found["energy"]["value"] == "3 kWh"
    assert found["peak memory"]["value"] == "accelerator 1.00 GiB"
    assert found["phase"]["value"] == "training: generation, update, idle"
    assert "answers of 10 tokens on average" in found["workload"]["value"]
    assert "50.0 %" in found["quality evidence"]["value"]


def test_what_is_missing_is_named_with_its_remedy_and_never_guessed(http: Http) -> None:
    found = items(http, "bare")

    for name in ("baseline", "phase", "unit of throughput", "spread over seeds", "hardware and software",
                 "quality evidence", "peak memory", "energy"):  # fmt: skip
        assert found[name]["value"] is None, name
        assert found[name]["missing"], name
    assert "tokens" in found["workload"]["missing"]
    for said in (form(http, "bare", "md"), form(http, "bare", "html")):
        assert "missing" in said
        assert not re.search(r"\b(None|nan|inf)\b", said)


def test_one_run_never_has_a_spread_or_a_baseline_of_its_own_unless_it_is_uniform(http: Http) -> None:
    assert items(http, "full")["spread over seeds"]["value"] is None
    assert items(http, "full")["baseline"]["value"] is None
    http.run("plain", group_size=4, policy={"preset": "uniform"})
    assert items(http, "plain")["baseline"]["value"] == "the run draws uniformly: it is one"


def test_every_form_has_the_same_tables(http: Http) -> None:
    page, text = form(http, "full", "html"), form(http, "full", "md")
    cells = [cell.replace("&#x27;", "'") for cell in re.findall(r"<td>([^<]*)</td>", page)]
    assert len(cells) > 100
    for cell in cells:
        assert escaped(cell.replace("&amp;", "&")) in text, cell


def test_markdown_is_the_default_and_other_forms_say_what_they_are(http: Http) -> None:
    path = "/v1/runs/full/report"
    assert http.send("GET", path).text == form(http, "full", "md")
    kinds = {
        name: http.send("GET", path, params={"format": name}).headers["content-type"] for name in ("md", "json", "html")
    }
    assert kinds == {
        "md": "text/markdown; charset=utf-8", "json": "application/json", "html": "text/html; charset=utf-8",
    }  # fmt: skip
    refused(http.send("GET", path, params={"format": "pdf"}), 422, "invalid_request", "format")


def test_markdown_tables_have_as_many_cells_in_every_row(http: Http) -> None:
    for run in ("full", "bare", "evil"):
        width = None
        for line in form(http, run, "md").splitlines():
            bars = len(re.findall(r"(?<!\\)\|", line))
            width = (width or bars) if line.startswith("|") else None
            assert not line.startswith("|") or bars == width, line


class Page(HTMLParser):
    """What a browser would build of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("run", ["full", "bare", "evil"])
def test_the_page_is_whole_and_loads_nothing(http: Http, run: str) -> None:
    response = http.send("GET", f"/v1/runs/{run}/report", params={"format": "html"})
    page = Page(response.text)

    assert page.open == []
    assert not page.tags & {"script", "img", "link", "iframe", "object", "a", "image", "use"}
    assert not {name for name, _ in page.attributes} & {"src", "href", "onload", "style"}
    assert "http" not in response.text.replace("&quot;https://evil.example", "")
    policy = response.headers["content-security-policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    if run == "full":
        assert response.text.count("<svg") == 5
        assert response.text.count("<figcaption>") == 5


def test_names_of_callers_are_no_markup(http: Http) -> None:
    assert "<script" not in form(http, "evil", "html")
    assert "<script" not in form(http, "evil", "md").replace("\\<script", "")
    assert "&lt;script" in form(http, "evil", "html")


def test_a_reader_finds_the_three_answers_first(http: Http) -> None:
    text = form(http, "full", "md")
    short = text.split("## ")[1]
    for word in (
        "Selected: 3 batches from 12 prompts",
        "Cost: 480 generated tokens in 48 rollouts",
        "Held-out quality: pass",
        "Bought: ",
        "Whether to believe the numbers: ",
        "Whether the trainer's own curve can be read as quality",
        "Missing from this report",
    ):
        assert word in short
