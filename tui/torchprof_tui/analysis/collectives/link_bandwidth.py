"""Bandwidth between the GPUs of one host, by device name: NVLink, Infinity Fabric, else PCI Express."""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.memory_transfer import find_pcie_bandwidth

_DIRECT_LINKS = (
    # NVIDIA's data sheets state both directions together; here is one: H100 900 / 2.
    (r"GB[23]00|\bB[23]00\b", 900),  # NVLink 5
    (r"H800", 200),
    (r"H100|H200|\bH20\b", 450),  # NVLink 4
    (r"A800", 200),
    (r"A100", 300),  # NVLink 3
    (r"V100", 150),  # NVLink 2
    (r"P100", 80),  # NVLink 1
    # AMD's data sheets: seven links to the other GPUs of a platform, 128 GB/s each in both directions.
    (r"MI3(00X|25X)", 448),
    (r"MI35[05]X", 538),
)
"""GB/s (10^9 bytes per second) in one direction of one GPU, from the vendors' data sheets. First match wins."""

_CARD = re.compile(r"PCI|H\d00 NVL")
"""Cards, which have no direct link, or a bridge to one other card only."""

_BEYOND_THE_HOST = re.compile(r"GB[23]00")
"""Devices whose direct link also joins hosts."""


def find_link_bandwidth(device_name: str, group_size: int, devices_of_host: int) -> float | None:
    """Find the bandwidth at which the GPUs of a group can exchange data: GB/s in one direction.

    None where it cannot be known: an unknown device, or a group of more ranks than the host has devices, whose data
    crosses a network. `devices_of_host`: 0 if unknown.
    """
    if devices_of_host and group_size > devices_of_host and not _BEYOND_THE_HOST.search(device_name):
        return None
    for pattern, bandwidth in _DIRECT_LINKS:
        if re.search(pattern, device_name) and not _CARD.search(device_name):
            return float(bandwidth)
    return find_pcie_bandwidth(device_name)
