import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from api.schemas import AuditInfo
from tests.trainer.replay.factories import make_audit, make_result, make_rounds
from trainer.replay.figures import json_lines, table, write_json_lines
from trainer.replay.result import ReplayResult

KEYS = {"benchmark", "case", "metric", "value", "unit", "reference", "ratio", "n", "seeds", "interval", "setting"}
NO_AUDIT: AuditInfo = make_audit(
    pass_rate={name: {"estimate": None, "interval": None} for name in ("uniform", "selected", "reweighted")},
    verdict=None,
)


def shown(*results: ReplayResult, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(table(results))
    return capture.get()


def test_figures_are_hand_worked() -> None:
    # Two rounds: 3 of 4 groups, then 1 of 2; groups of 8; audit groups 1 and 3.
    rounds = make_rounds(
        2,
        groups_R=np.array([4, 2]),
        rollouts_R=np.array([32, 16]),
        informative_R=np.array([3, 1]),
        never_seen_R=np.array([5, 2]),
        audit_groups_R=np.array([1, 3]),
        log_loss_R=np.array([0.2, 0.6]),
        brier_R=np.array([0.1, 0.5]),
    )
    result = make_result(rounds=rounds)
    assert (result.num_groups, result.num_rollouts, result.num_informative, result.never_seen) == (6, 48, 4, 2)
    assert result.informative_share == pytest.approx(4 / 6)
    assert result.informative_per_100_rollouts == pytest.approx(100 * 4 / 48)
    assert result.log_loss == pytest.approx((0.2 + 3 * 0.6) / 4)
    assert result.brier == pytest.approx((0.1 + 3 * 0.5) / 4)
    assert math.isnan(result.settled_share)


def test_the_settled_share_leaves_the_first_five_rounds_out() -> None:
    rounds = make_rounds(7, informative_R=np.array([1, 2, 3, 4, 5, 9, 7]))
    assert make_result(rounds=rounds).settled_share == pytest.approx(16 / 20)


def test_rounds_without_an_audit_count_for_nothing() -> None:
    rounds = make_rounds(
        2, audit_groups_R=np.array([0, 2]), log_loss_R=np.array([np.nan, 0.4]), brier_R=np.array([np.nan, 0.1])
    )
    assert make_result(rounds=rounds).log_loss == pytest.approx(0.4)
    rounds = make_rounds(1, audit_groups_R=np.array([0]), log_loss_R=np.array([np.nan]), brier_R=np.array([np.nan]))
    assert math.isnan(make_result(rounds=rounds).log_loss)


def test_json_lines_speak_the_language_of_the_benchmarks(tmp_path: Path) -> None:
    results = [make_result("midband", rounds=make_rounds(informative_R=np.full(8, 9))), make_result("uniform")]
    file = write_json_lines(results, tmp_path / "new" / "replay.jsonl")
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert all(set(line) == KEYS for line in lines)
    assert {line["case"] for line in lines} == {"uniform", "midband"}
    by_name = {(line["case"], line["metric"]): line for line in lines}
    share = by_name["midband", "informative_share"]
    assert (share["value"], share["n"], share["seeds"]) == (0.9, 20, 1)
    assert share["reference"] == {"name": "uniform", "value": 0.5}
    assert share["ratio"] == pytest.approx(1.8)
    assert by_name["midband", "pass_rate_uniform"]["interval"] == [0.2, 0.3]
    assert {"set", "feed", "policy"} <= set(share["setting"])
    assert by_name["uniform", "log_loss"]["ratio"] == 1.0


def test_what_is_not_known_is_null_and_never_a_number() -> None:
    result = make_result(rounds=make_rounds(1, never_seen_R=np.array([0])), audit=NO_AUDIT, resumed=True)
    by_name = {line["metric"]: line for line in json_lines([result])}
    assert by_name["wall"]["value"] is None
    assert by_name["informative_share_settled"]["value"] is None
    assert by_name["pass_rate_uniform"]["value"] is None
    assert (by_name["never_seen"]["value"], by_name["never_seen"]["ratio"]) == (0, None)
    json.dumps(list(by_name.values()), allow_nan=False)


def test_the_first_policy_is_the_reference_where_none_is_uniform() -> None:
    lines = json_lines([make_result("midband"), make_result("midband:power=2")])
    assert {line["reference"]["name"] for line in lines} == {"midband"}


def test_the_table_fits_a_terminal_and_names_every_policy() -> None:
    text = shown(make_result("uniform"), make_result("midband"), width=80)
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        "uniform",
        "midband",
        "50.0%",
        "6.25",
        "0.250 [0.200, 0.300]",
        "level 0.95",
        "record.jsonl: 20 prompts",
    ):
        assert words in text


def test_the_table_shows_a_dash_for_what_is_not_known() -> None:
    assert "–" in shown(make_result(rounds=make_rounds(1), audit=NO_AUDIT, resumed=True))


def test_a_policy_named_like_markup_is_shown_as_it_is() -> None:
    assert "midband:estimator=[bold]" in shown(make_result("midband:estimator=[bold]"))
