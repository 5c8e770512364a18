"""The benchmark of the audit says what it has to, in its quick form."""

import json
import subprocess
import sys


def test_a_quick_run_times_copies_and_audits_and_says_how_soon_a_fault_is_found() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.audit", "--quick", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = [json.loads(line) for line in done.stdout.splitlines()]

    timed = {figure["case"] for figure in figures if figure["metric"] == "processor time"}
    assert timed == {
        f"{name}: {part}"
        for name in ("audit", "report")
        for part in ("the copy, in the run's turn", "computed beside it")
    } | {"curve: computed beside it"}
    found = [figure for figure in figures if figure["metric"].startswith("draws until found")]
    assert [figure["setting"]["shift"] for figure in found] == [0.15, 0.05]
    assert all(figure["value"] < 400 for figure in found)
    assert all(figure["benchmark"] == "audit" for figure in figures)
