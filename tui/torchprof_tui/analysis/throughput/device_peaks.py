"""Peaks of a device that a kernel is compared with: memory bandwidth, rate by data type, size of its last-level cache.

Cache sizes: the vendors' data sheets and white papers -- NVIDIA: V100, T4, RTX 2080 Ti (Turing white paper), A100, A30,
A10/A40/A6000/RTX 3090 (GA102 white paper), L4, L40(S) and RTX 4090 (Ada white paper), H100/H200/H20 (Hopper white
paper), B200, RTX 5090 (Blackwell white paper). AMD: MI210, MI250(X), MI300X and MI325X (their 256 MB Infinity Cache).

Dense (no sparsity), at the boost clock, with matrix cores where the device has them for the type, and with fp32
accumulation where consumer cards have a lower rate for it. In TFLOP/s (int8: TOP/s). Sources: the vendors' data sheets
and architecture white papers -- NVIDIA: Tesla P100, V100, V100S, T4, A100, A30, A10, A40, RTX A6000, L4, L40, L40S,
H100 (SXM, PCIe, NVL), H200 (SXM, NVL), H20, HGX B200, DGX Station (V100); Turing, GA102, Ada, Blackwell RTX white
papers. AMD: MI210, MI250, MI250X, MI300X, MI325X. Unknown devices and types have no peak: nothing is guessed.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.memory_transfer import find_memory_bandwidth
from torchprof_tui.trace.core.records import record

_Rates = dict[str, float]

_H100_SXM: _Rates = {"fp64": 67, "fp32": 67, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9}
_H100_NVL: _Rates = {"fp64": 60, "fp32": 60, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8": 1670.5, "int8": 1670.5}
_MI300X: _Rates = {
    "fp64": 163.4,
    "fp32": 163.4,
    "tf32": 653.7,
    "fp16": 1307.4,
    "bf16": 1307.4,
    "fp8": 2614.9,
    "int8": 2614.9,
}

_PEAKS: tuple[tuple[str, _Rates], ...] = (
    (r"P100-SXM", {"fp64": 5.3, "fp32": 10.6, "fp16": 21.2}),
    (r"P100-PCIE", {"fp64": 4.7, "fp32": 9.3, "fp16": 18.7}),
    (r"V100S", {"fp64": 8.2, "fp32": 16.4, "fp16": 130}),
    (r"V100-(SXM|DGXS)", {"fp64": 7.8, "fp32": 15.7, "fp16": 125}),
    (r"V100-PCIE", {"fp64": 7.0, "fp32": 14, "fp16": 112}),
    (r"RTX 2080 Ti", {"fp32": 13.4, "fp16": 53.8, "int8": 215.2}),
    (r"\bT4\b", {"fp32": 8.1, "fp16": 65, "int8": 130}),
    (r"A100", {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}),
    (r"\bA10\b", {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "bf16": 125, "int8": 250}),
    (r"\bA30\b", {"fp64": 10.3, "fp32": 10.3, "tf32": 82, "fp16": 165, "bf16": 165, "int8": 330}),
    (r"\bA40\b", {"fp32": 37.4, "tf32": 74.8, "fp16": 149.7, "bf16": 149.7, "int8": 299.3}),
    (r"\bA6000\b", {"fp32": 38.7, "tf32": 77.4, "fp16": 154.8, "bf16": 154.8, "int8": 309.7}),
    (r"\bL4\b", {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "fp8": 242.5, "int8": 242.5}),
    (r"\bL40S\b", {"fp32": 91.6, "tf32": 183, "fp16": 362.05, "bf16": 362.05, "fp8": 733, "int8": 733}),
    (r"\bL40\b", {"fp32": 90.5, "tf32": 90.5, "fp16": 181.05, "bf16": 181.05, "fp8": 362, "int8": 362}),
    (r"H100 PCIe", {"fp64": 51, "fp32": 51, "tf32": 378, "fp16": 756, "bf16": 756, "fp8": 1513, "int8": 1513}),
    (r"H100 NVL|H200 NVL", _H100_NVL),
    (r"H100.*HBM3|H200|GH200", _H100_SXM),
    (r"\bH20\b", {"fp32": 44, "tf32": 74, "fp16": 148, "bf16": 148, "fp8": 296, "int8": 296}),
    (r"\bB200\b", {"fp64": 37, "fp32": 75, "tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500, "int8": 4500}),
    # 3584 cores at 1.78 GHz; tensor cores as the other GA10x: twice the fp32 rate for fp16 with fp32 accumulation.
    (r"RTX 3060(?! Ti| Laptop)", {"fp32": 12.7, "tf32": 12.7, "fp16": 25.5, "bf16": 25.5, "int8": 102}),
    (r"RTX 3090(?! Ti)", {"fp32": 35.6, "tf32": 35.6, "fp16": 71, "bf16": 71, "int8": 284}),
    (r"RTX 4090(?! D)", {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3, "int8": 660.6}),
    (r"RTX 5090(?! D)", {"fp32": 104.8, "tf32": 104.8, "fp16": 209.5, "bf16": 209.5, "fp8": 419, "int8": 838}),
    (r"MI210", {"fp64": 45.3, "fp32": 45.3, "fp16": 181, "bf16": 181, "int8": 181}),
    # Per die: a trace lists each of the two dies as a device.
    (r"MI250X", {"fp64": 47.9, "fp32": 47.9, "fp16": 191.5, "bf16": 191.5, "int8": 191.5}),
    (r"MI250", {"fp64": 45.3, "fp32": 45.3, "fp16": 181, "bf16": 181, "int8": 181}),
    (r"MI300X|MI325X", _MI300X),
)
"""By device name; the first match wins."""

_SHORT_TYPES = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "signed char": "int8",
}
"""C++ type of a tensor as the profiler writes it -> short name."""


def short_type(name: str) -> str | None:
    """Shorten the name of a data type: "c10::BFloat16" -> "bf16"; None for types without matrix products."""
    return _SHORT_TYPES.get(name)


def peak_tflops(device: str, dtype: str) -> float | None:
    """Return the TFLOP/s that a device of this name reaches at most for a data type; None where unknown."""
    for pattern, rates in _PEAKS:
        if re.search(pattern, device):
            return rates.get(dtype)
    return None


DTYPES = ("", "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")  # data types of products; "" for unknown

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


@record
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
