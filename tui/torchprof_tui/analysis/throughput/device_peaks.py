"""Peaks of a device that a kernel is compared with: memory bandwidth, rate by data type, size of its last-level cache.

Cache sizes: the vendors' data sheets and white papers -- NVIDIA: V100, T4, RTX 2080 Ti (Turing white paper), A100, A30,
A10/A40/A6000/RTX 3090 (GA102 white paper), L4, L40(S) and RTX 4090 (Ada white paper), H100/H200/H20 (Hopper white
paper), B200, RTX 5090 (Blackwell white paper). AMD: MI210, MI250(X), MI300X and MI325X (their 256 MB Infinity Cache).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchprof_tui.analysis.kernel.memory_transfer import find_memory_bandwidth
from torchprof_tui.analysis.throughput.peak_rates import peak_tflops

DTYPES = ("", "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
"""Data types of products; "" for unknown."""

_MB = 1_000_000
_CACHE_SIZES = (
    (r"V100", 6),
    (r"\bT4\b", 4),
    (r"RTX 2080 Ti", 5.5),
    (r"A100", 40),
    (r"\bA30\b", 24),
    (r"\bA10G?\b|\bA40\b|\bA6000\b|RTX 3090", 6),
    (r"RTX 3060(?! Ti)", 3),
    (r"\bL4\b", 48),
    (r"\bL40S?\b", 96),
    (r"RTX 4090", 72),
    (r"H20\b", 60),
    (r"H100|H200|GH200", 50),
    (r"\bB200\b", 126),
    (r"RTX 5090", 96),
    (r"MI210|MI250", 8),
    (r"MI300X|MI325X", 256),
)
"""Device name -> MB of the last cache before the device's memory. First match wins."""


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """Peaks of one device; None where no data sheet is known. `bandwidth` in GB/s, `cache` in bytes."""

    name: str
    bandwidth: float | None
    cache: float | None

    def tflops(self, dtype: str) -> float | None:
        """Return the peak rate for a data type in TFLOP/s."""
        return peak_tflops(self.name, dtype)


def find_peaks(device_name: str) -> DevicePeaks:
    """Find the peaks of a device by its name, as the trace gives it."""
    cache = next((size for pattern, size in _CACHE_SIZES if re.search(pattern, device_name)), None)
    return DevicePeaks(device_name, find_memory_bandwidth(device_name), None if cache is None else cache * _MB)
