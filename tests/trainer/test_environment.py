"""What a training process can tell of what it runs on, without importing anything heavy."""

import platform
from pathlib import Path

from trainer.environment import LONGEST, environment, read_environment

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC: 12\n"


def nvidia(folder: Path, *models: str) -> Path:
    """A folder as NVIDIA's driver shows one on Linux."""
    (folder / "version").write_text(VERSION)
    for place, model in enumerate(models):
        device = folder / "gpus" / f"0000:{place:02}:00.0"
        device.mkdir(parents=True)
        (device / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 42\nGPU UUID: \t GPU-1\n")
    return folder


def test_devices_are_counted_by_model_and_the_driver_has_its_version(tmp_path: Path) -> None:
    found = read_environment(nvidia(tmp_path, "NVIDIA A", "NVIDIA B", "NVIDIA A"))

    assert found["accelerator"] == "2 × NVIDIA A, 1 × NVIDIA B"
    assert found["driver"] == "550.54.15"
    assert found["python"] == platform.python_version()


def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    found = read_environment(tmp_path / "nowhere")
    assert "accelerator" not in found
    assert "driver" not in found
    assert all(0 < len(value) <= LONGEST for value in found.values())
    (tmp_path / "version").write_text("something else")
    assert "driver" not in read_environment(tmp_path)


def test_a_long_fact_is_cut_to_what_the_contract_takes(tmp_path: Path) -> None:
    assert len(read_environment(nvidia(tmp_path, "M" * 1_000))["accelerator"]) == LONGEST


def test_it_is_the_same_each_time() -> None:
    assert environment() == environment()
