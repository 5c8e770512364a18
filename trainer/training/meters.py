"""What a step drew and held: energy of the accelerators, where NVIDIA's library says it, and memory at its peak.

`trainer.grpo` asks once a step and puts both into the step's costs. Nothing is guessed: what cannot be read is left
out. NVML is used where the package `nvidia-ml-py` is installed and a driver answers; nothing needs it.
"""

import resource
import sys
from importlib import import_module
from typing import Any

MILLIJOULE = 1e-3
RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1_024  # bytes in a unit of ru_maxrss


class Meters:
    """Energy since the last reading, of every device NVML sees, and this process's peak of memory so far."""

    def __init__(self) -> None:
        self._nvml, self._devices = _nvml()
        self._energy_j = self._read_energy_j()

    def costs(self) -> dict[str, Any]:
        """Fields of a step's costs: `energy_j` since the last call, `peak_memory_bytes` by place."""
        found: dict[str, Any] = {
            "peak_memory_bytes": {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RUSAGE_UNIT}
            | _peaks_of_accelerators()
        }
        now_j, before_j = self._read_energy_j(), self._energy_j
        if now_j is not None and before_j is not None:
            found["energy_j"] = max(0.0, now_j - before_j)
        self._energy_j = now_j
        return found

    def _read_energy_j(self) -> float | None:
        """Joules since the driver was loaded, over all devices; None where one does not count them."""
        if not self._devices:
            return None
        try:
            counts = [self._nvml.nvmlDeviceGetTotalEnergyConsumption(device) for device in self._devices]
        except self._nvml.NVMLError:
            return None
        return float(sum(counts)) * MILLIJOULE


def _nvml() -> tuple[Any, list[Any]]:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None, []
    try:
        nvml.nvmlInit()
        return nvml, [nvml.nvmlDeviceGetHandleByIndex(place) for place in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:  # installed, and no driver to speak to
        return nvml, []


def _peaks_of_accelerators() -> dict[str, int]:
    """Bytes that torch held at most since the last call, by device. Asked only where torch is there already."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_available():
        return {}
    peaks = {f"cuda:{place}": int(cuda.max_memory_allocated(place)) for place in range(cuda.device_count())}
    for place in range(cuda.device_count()):
        cuda.reset_peak_memory_stats(place)
    return peaks
