"""Explain notable values of a footprint: a reported 0 %, low occupancy by design, idle SMs, missing data."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from torchprof_tui.analysis.kernel.names.model import KernelClass

if TYPE_CHECKING:
    from torchprof_tui.analysis.kernel.footprint import Footprint

DEFAULT_SHARED_MEMORY = 48 * 1024
"""Bytes per block without opt-in. Kineto's estimate ignores the opt-in."""

LOW_OCCUPANCY = 0.5
"""Occupancy below which an explanation helps: half of the warps is enough for most kernels to hide latency."""

LOW_BY_DESIGN_CLASSES = (KernelClass.GEMM, KernelClass.ATTENTION, KernelClass.CONV)
"""Their tiles are in registers and shared memory, and their pipelines hide latency inside the block."""

NOTABLE_TAIL_WASTE = 0.2
"""Minimum share of block slots left empty by the last wave for a note."""


NOTABLE_CONCURRENT_SHARE = 0.1
"""Share of the duration with another kernel on the device, from which idle SMs are not reported: the other kernel may
have them, often on purpose (20 SMs for the exchange of tokens, 112 for a matrix product)."""


def build_notes(footprint: Footprint) -> tuple[str, ...]:
    """Build the notes on a footprint, most important first; () if nothing is notable."""
    return tuple(
        note
        for note in (
            _explain_reported_zero(footprint),
            _explain_low_occupancy(footprint),
            _explain_small_grid(footprint),
            _explain_tail(footprint),
            *_explain_missing_data(footprint),
        )
        if note
    )


def _explain_reported_zero(footprint: Footprint) -> str | None:
    """Explain 0%: Kineto writes min(resident blocks, grid / SMs) x threads / max threads, in whole percent."""
    if footprint.reported.occupancy != 0:
        return None
    if footprint.shared_memory is not None and footprint.shared_memory > DEFAULT_SHARED_MEMORY:
        size = footprint.shared_memory / 1024
        return (
            "The trace reports 0 % because its estimate allows a block at most 48 KiB of shared memory, and this one "
            "uses "
            f"{size:.0f} KiB: use the computed occupancy."
        )
    if footprint.blocks_per_sm is not None and footprint.blocks_per_sm < 1:
        return (
            f"The trace reports 0 % because the grid is tiny: {footprint.block_count} "
            f"{'block' if footprint.block_count == 1 else 'blocks'} over all SMs round to 0. It is "
            "no measure of the kernel's quality."
        )
    return None


def _explain_low_occupancy(footprint: Footprint) -> str | None:
    fraction = footprint.occupancy.fraction if footprint.occupancy else None
    if fraction is None or not 0 < fraction < LOW_OCCUPANCY:
        return None
    if footprint.kernel.kernel_class not in LOW_BY_DESIGN_CLASSES:
        return None
    if footprint.kernel.tensor_core is False:
        return None
    label = footprint.kernel.kernel_class.label
    label = {"gemm": "matrix product", "conv": "convolution"}.get(label, label)
    return (
        f"Low occupancy is intended in {'an' if label[0] in 'aeiou' else 'a'} {label} kernel: "
        "large tiles in registers and shared memory, with a pipeline inside the block that hides latency."
    )


def _explain_small_grid(footprint: Footprint) -> str | None:
    sms = footprint.device.sms if footprint.device else None
    idle = footprint.occupancy.idle_sms if footprint.occupancy else None
    if not idle or sms is None or footprint.concurrent_share >= NOTABLE_CONCURRENT_SHARE:
        return None
    unit = "compute unit" if footprint.device and footprint.device.vendor == "AMD" else "SM"
    blocks = footprint.block_count
    return f"The grid has {blocks} of the {sms} blocks that would give each {unit} one: {idle} {unit}s stay idle."


def _explain_tail(footprint: Footprint) -> str | None:
    occupancy = footprint.occupancy
    if occupancy is None or occupancy.waves is None or occupancy.tail_waste is None or occupancy.waves <= 1:
        return None
    if occupancy.tail_waste < NOTABLE_TAIL_WASTE:
        return None
    started_waves = ceil(occupancy.waves)
    return (
        f"{occupancy.waves:.2f} waves take as long as {started_waves}: the last one is "
        f"{occupancy.last_wave_fill:.0%} full, and {occupancy.tail_waste:.0%} of all slots stay empty."
    )


def _explain_missing_data(footprint: Footprint) -> list[str]:
    """Explain which data the trace lacks, instead of guessing it."""
    if footprint.device is None:
        return ["The trace does not describe this GPU: occupancy cannot be computed."]
    if footprint.device.vendor == "AMD":
        missing = "ROCm traces contain no registers and no static shared memory"
        max_blocks = footprint.occupancy.active_blocks_bound if footprint.occupancy else None
        if max_blocks is None:
            return [f"{missing}: occupancy cannot be computed."]
        return [
            f"{missing}: occupancy cannot be computed, "
            f"at most {max_blocks} workgroups fit a compute unit by their size."
        ]
    if footprint.block is None:
        return ["The trace has no launch shape for this kernel."]
    if footprint.device.capability_limits is None:
        capability = ".".join(map(str, footprint.device.capability or ())) or "unknown"
        return [f"Compute capability {capability} is unknown to this version: its limits are not in the table."]
    if footprint.registers is None or footprint.shared_memory is None:
        return ["The trace lacks registers or shared memory for this kernel."]
    if footprint.agrees_with_kineto is False:
        return [
            f"Kineto computed {footprint.reported.active_blocks} blocks per SM: "
            "it may use limits that are not in the trace, such as barriers."
        ]
    return []
