"""Measure memory copies and fills: size, bandwidth, and share of the peak bandwidth where it is known."""

from __future__ import annotations

import re
from typing import Any

from torchprof_tui.analysis.kernel.footprint import find_device, read_args_if_readable, read_column
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_MEMORY_BANDWIDTHS = (
    (r"V100S", 1134),
    (r"V100", 900),
    (r"P100-PCIE-12GB", 549),
    (r"P100", 732),
    (r"\bT4\b", 320),
    (r"A100.*80GB PCIe", 1935),
    (r"A100.*80GB", 2039),
    (r"A100.*40GB", 1555),
    (r"\bA10G?\b", 600),
    (r"\bA30\b", 933),
    (r"\bA40\b", 696),
    (r"\bA6000\b", 768),
    (r"RTX 6000 Ada", 960),
    (r"\bL4\b", 300),
    (r"\bL40S?\b", 864),
    (r"H100 NVL", 3938),
    (r"H100 PCIe", 2039),
    (r"H100.*HBM3", 3352),
    (r"H200", 4800),
    (r"\bH20\b", 4000),
    (r"\bB200\b", 8000),
    (r"RTX 2080 Ti", 616),
    (r"RTX 3060(?! Ti)", 360),
    (r"RTX 3070(?! Ti)", 448),
    (r"RTX 3090 Ti", 1008),
    (r"RTX 3090", 936),
    (r"RTX 4070(?! Ti| SUPER)", 504),
    (r"RTX 4080(?! SUPER)", 717),
    (r"RTX 4090(?! D)", 1008),
    (r"RTX 5080", 960),
    (r"RTX 5090", 1792),
    (r"MI210", 1638),
    (r"MI250", 1638),  # of one of its two dies: traces describe each as a device
    (r"MI300X", 5300),
    (r"MI325X", 6000),
)
"""Device memory bandwidth in GB/s (10^9 bytes), by device name, from the vendors' data sheets. First match wins."""

_PCIE_GENERATIONS = (
    (r"V100|P100|\bT4\b|RTX 20", 3),
    (r"A100|\bA10G?\b|\bA[34]0\b|A6000|\bL4\b|L40|RTX (6000 Ada|30|40)|MI2[15]0", 4),
    (r"H100|H200|RTX 50|MI3\d\d", 5),
)
"""PCI Express generation of the card's x16 interface, from the same data sheets. The slot may be slower."""

_PCIE_BANDWIDTHS: dict[float, float] = {3: 15.75, 4: 31.5, 5: 63.0}
"""GB/s per direction over 16 lanes, after line coding: 8, 16, 32 GT/s x 16 x 128/130 / 8 (PCI-SIG)."""


@record
class Transfer:
    """A copy or fill. Bandwidths in GB/s (10^9 bytes per second); None if unknown."""

    event: int
    source: str | None  # "host", "device", "peer device"; None for a fill
    target: str | None
    bytes: int | None
    duration: int  # ns
    bandwidth: float | None  # bytes / duration
    reported_bandwidth: float | None
    pinned: bool | None  # the host memory; None if none is involved or the name does not say
    peak_bandwidth: float | None
    peak_source: str | None  # what limits it
    share_of_peak: float | None  # a copy inside the device counts twice: read and write

    def as_dict(self) -> dict[str, Any]:
        """Convert to the object of `chain --json`."""
        return {
            "source": self.source,
            "target": self.target,
            "bytes": self.bytes,
            "bandwidth_gb_s": self.bandwidth,
            "reported_bandwidth_gb_s": self.reported_bandwidth,
            "pinned": self.pinned,
            "peak_gb_s": self.peak_bandwidth,
            "peak_of": self.peak_source,
            "share_of_peak": self.share_of_peak,
        }


def measure_transfer(trace: Trace, event: int) -> Transfer | None:
    """Measure a copy or fill; None for any other event. Raises IndexError outside the trace."""
    view = trace.event(event)
    if view.kind not in (Kind.COPY, Kind.MEMSET):
        return None
    name = decode_kernel_name(view.name)
    source, _, target = (name.direction or "").partition(" to ")
    size = read_column(trace, "bytes", event)
    bandwidth = size / view.duration if size is not None and view.duration > 0 else None
    device = find_device(trace, event)
    peak, peak_source = _find_peak_bandwidth(device.name if device else "", source, target)
    traffic = 2 if source == target == "device" else 1
    host_memory = dict(name.details).get("host memory")
    reported = read_args_if_readable(trace, event).get("memory bandwidth (GB/s)")
    if isinstance(reported, bool) or not isinstance(reported, (int, float)):
        reported = None
    return Transfer(
        event=event,
        source=source or None,
        target=target or ("device" if view.kind is Kind.MEMSET else None),
        bytes=size,
        duration=view.duration,
        bandwidth=bandwidth,
        reported_bandwidth=None if reported is None else float(reported),
        pinned=None if host_memory is None else host_memory == "pinned",
        peak_bandwidth=peak,
        peak_source=peak_source,
        share_of_peak=traffic * bandwidth / peak if bandwidth is not None and peak else None,
    )


def find_memory_bandwidth(device: str) -> float | None:
    """Find the bandwidth of a device's memory in GB/s by the device's name; None where unknown."""
    return _match_device_name(_MEMORY_BANDWIDTHS, device)


def find_pcie_bandwidth(device: str) -> float | None:
    """Find the bandwidth of a device's PCI Express interface, GB/s in one direction; None if unknown."""
    generation = _match_device_name(_PCIE_GENERATIONS, device)
    return None if generation is None else _PCIE_BANDWIDTHS[generation]


def _find_peak_bandwidth(device: str, source: str, target: str) -> tuple[float | None, str | None]:
    """Find (the peak GB/s of a copy, what limits it). The link of a peer copy is not in the trace: (None, None)."""
    if "peer" in source or "peer" in target:
        return None, None
    if "host" in (source, target):
        generation = _match_device_name(_PCIE_GENERATIONS, device)
        limit = None if generation is None else f"PCIe {generation:.1f} x16, one direction"
        return find_pcie_bandwidth(device), limit
    bandwidth = find_memory_bandwidth(device)
    return bandwidth, None if bandwidth is None else "device memory"


def _match_device_name(table: tuple[tuple[str, float], ...], device: str) -> float | None:
    return next((float(value) for pattern, value in table if re.search(pattern, device)), None)
