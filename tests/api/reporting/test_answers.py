"""What a report says first: what selection bought, and whether to believe the numbers, worked out by hand."""

from typing import Any

import pytest

from api.reporting.answers import answers
from api.reporting.text import markdown
from tests.api.cost_cases import make_pool, play
from tests.api.harness import in_process


def said(**changes: Any) -> dict[str, Any]:
    """Content of a report, as far as the first part reads it."""
    stream = {"estimate": 0.25, "interval": [0.2, 0.3]}
    selection: dict[str, Any] = {
        "difficulty": [None, 0.5, 2.0, None],
        "degenerate": {"uniform": {"estimate": 0.75, "interval": [0.7, 0.8]}, "selected": stream},
        "verdict": None,
        "warnings": [
            "a note",
            "no verdict: 3 of 9 (33.3%) audit tickets are missing; report every one of them in full",
        ],
        "contrasts": [{"detected": False}],
        "response": {"purpose": [{"ended": 90, "came_back": 80}, {"ended": 10, "came_back": 10}]},
        "calibration": {"overall": {"central": 0.87, "central_error": 0.01}},
    } | changes
    return {
        "configuration": {"preset": "midband", "audit_share": 0.1, "claim": {"type": changes.get("claim", "modified")}},
        "workload": {"train_draws": 3, "train_prompts": 12},
        "selection": selection,
        "costs": {
            "spent": {"tokens": 1000, "rollouts": 40, "accelerator_s": 7200.0},
            "informative": {"groups": 4, "judged": 10},
            "per_informative_group": {"tokens": 250.0},
        },
        "curve": [],
        "quality": {"verdict": "too little data"},
        "missing": [],
    }


def lines(**changes: Any) -> dict[str, str]:
    blocks = [str(block) for block in answers(said(**changes)).blocks]
    return dict(block.partition(": ")[::2] for block in blocks if ": " in block)


def test_what_selection_bought_is_the_ratio_of_informative_shares_by_hand() -> None:
    bought = lines()["Bought"]
    assert "75.0 % of the groups in the selected stream were informative" in bought
    assert "25.0 % (20.0 % to 30.0 %) of groups drawn uniformly" in bought
    assert "3.00 (2.50 to 3.75) times" in bought
    nothing = {"estimate": None, "interval": None}
    assert lines(degenerate={"uniform": nothing, "selected": nothing})["Bought"].startswith("not known")
    sure = {"estimate": 1.0, "interval": [0.9, 1.0]}
    assert "times" not in lines(degenerate={"uniform": sure, "selected": sure})["Bought"]


def test_uniform_draws_bought_nothing_and_favoured_nobody() -> None:
    found = lines(claim="exact")
    assert found["Bought"].startswith("nothing")
    assert found["Selected"].endswith("All prompts were drawn alike.")
    assert "10 to 20 % least, 0.5 times" in lines()["Selected"]
    assert "20 to 30 % were drawn most, 2 times" in lines()["Selected"]


def test_a_verdict_that_is_withheld_says_why() -> None:
    line = lines()["Whether it can be read as the pool's"]
    assert line == "no verdict: 3 of 9 (33.3%) audit tickets are missing; report every one of them in full."
    assert lines(warnings=[])["Whether it can be read as the pool's"] == "no verdict."
    assert lines(verdict="bias found")["Whether it can be read as the pool's"] == "bias found."


def test_whether_to_believe_it_is_chances_response_and_predictions() -> None:
    line = lines()["Whether to believe the numbers"]
    assert line == (
        "nothing contradicts the chances recorded for the draws; 10.0 % of the tickets that ended brought no score; "
        "87.0 % ± 2.0 % of the groups came within the central 90 % of what was predicted."
    )
    alarm = {"detected": True, "quantity": "pass_rate", "where": "overall", "estimate": 0.2, "interval": [0.1, 0.3]}
    found = lines(contrasts=[alarm], response={"purpose": [{"ended": 5, "came_back": 5}]})
    line = found["Whether to believe the numbers"]
    assert line.startswith("no: the draws contradict the chances recorded for them (pass rate overall by +0.200")
    assert "every ticket that ended brought a score" in line
    assert "could not be looked at" in lines(contrasts=[])["Whether to believe the numbers"]


@pytest.mark.parametrize("preset", ["midband", "uniform"])
def test_a_whole_run_has_all_of_them(tmp_path: Any, preset: str) -> None:
    with in_process(f"sqlite:///{tmp_path}/midband.db") as http:
        make_pool(http)
        play(http, "r", [1, 2, 4], policy={"preset": preset})
        text = markdown(http.get("/v1/runs/r/report", format="json"))
    short = text.split("## ")[1]
    for start in ("Selected", "Cost", "Held-out quality", "Bought", "Whether to believe the numbers"):
        assert f"\n{start}: " in short
