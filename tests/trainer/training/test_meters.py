"""Energy and memory: read where somebody counts them, left out where nobody does."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.training.meters import Meters


class NVMLError(Exception):
    """As in pynvml."""


def nvml(millijoules: list[list[int]], **changed: Any) -> SimpleNamespace:
    """A driver of two devices; each reading of all devices takes the next pair of counts."""
    readings = iter(value for pair in millijoules for value in pair)
    module = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda place: place,
        nvmlDeviceGetTotalEnergyConsumption=lambda device: next(readings),
    )
    return SimpleNamespace(**{**vars(module), **changed})


def fail(*_: Any) -> Any:
    raise NVMLError


def test_energy_is_what_all_devices_drew_since_the_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = nvml([[1_000, 5_000], [3_000, 5_500], [3_000, 6_000]])
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    meters = Meters()
    assert [meters.costs()["energy_j"] for _ in range(2)] == [pytest.approx(2.5), pytest.approx(0.5)]


@pytest.mark.parametrize(
    "driver",
    [None, nvml([], nvmlInit=fail), nvml([], nvmlDeviceGetTotalEnergyConsumption=fail)],
    ids=["not installed", "no driver", "devices that do not count"],
)
def test_without_a_reading_there_is_no_energy_and_no_error(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    meters = Meters()
    assert set(meters.costs()) == {"peak_memory_bytes"}


def test_the_peak_of_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    peak = Meters().costs()["peak_memory_bytes"]["host"]
    assert 10 * 2**20 < peak < 2**44


def test_accelerators_peaks_are_by_device_and_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    reset: list[int] = []
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        max_memory_allocated=lambda place: 100 + place,
        reset_peak_memory_stats=reset.append,
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    peaks = Meters().costs()["peak_memory_bytes"]
    assert (peaks["cuda:0"], peaks["cuda:1"], reset) == (100, 101, [0, 1])


def test_a_trainings_energy_and_peak_of_memory_are_in_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="training needs the trainer extra")
    from tests.trainer.tiny import make_config, run, service

    # A reading at the start and one a step: 500 J and then 250 J.
    monkeypatch.setitem(sys.modules, "pynvml", nvml([[0, 0], [200_000, 300_000], [300_000, 450_000]]))
    run(make_config(tmp_path, stop={"steps": 2}, evaluation={"every": 100}))
    with service(tmp_path) as client:
        costs = client.costs("tiny")
    assert costs.spent["energy_j"] == pytest.approx(750.0)
    assert costs.peak_memory_bytes["host"] > 10**7
