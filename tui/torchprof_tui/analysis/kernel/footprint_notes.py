"""A footprint's oddities in plain words: why a reported 0 %, when low is fine, what a small grid leaves idle."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from torchprof_tui.analysis.kernel.names.model import KernelClass

if TYPE_CHECKING:
    from torchprof_tui.analysis.kernel.footprint import Footprint

DEFAULT_SHARED_MEMORY = 48 * 1024
"""A block may use more only by opting in; the estimate that Kineto writes does not know about the opt-in."""

LOW_OCCUPANCY = 0.5
"""Occupancy below which people start to worry: half of the warps is enough for most kernels to hide latency."""

LOW_BY_DESIGN_CLASSES = (KernelClass.GEMM, KernelClass.ATTENTION, KernelClass.CONV)
"""Their tiles live in registers and shared memory and their pipelines hide latency inside the block."""

NOTABLE_TAIL_WASTE = 0.2
"""Share of all block slots left empty by the last wave from which on it is worth a word."""


def build_notes(footprint: Footprint) -> tuple[str, ...]:
    """Sentences, the most telling first; none where nothing is odd."""
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


def _explain_reported_zero(found: Footprint) -> str | None:
    """Kineto writes min(resident blocks, grid / SMs) x threads / max threads, in whole percent."""
    if found.reported.occupancy != 0:
        return None
    if found.shared_memory is not None and found.shared_memory > DEFAULT_SHARED_MEMORY:
        size = found.shared_memory / 1024
        return (
            f"The trace says 0 % because its estimate allows a block at most 48 KB of shared memory, and this one uses "
            f"{size:.0f} KB by opting in: trust the computed occupancy."
        )
    if found.blocks_per_sm is not None and found.blocks_per_sm < 1:
        return (
            f"The trace says 0 % because the grid is tiny: {found.block_count} "
            f"{'block' if found.block_count == 1 else 'blocks'} over all SMs round to nothing. "
            "It says nothing about how the kernel is written."
        )
    return None


def _explain_low_occupancy(found: Footprint) -> str | None:
    theory = found.occupancy.fraction if found.occupancy else None
    if theory is None or not 0 < theory < LOW_OCCUPANCY or found.kernel.kernel_class not in LOW_BY_DESIGN_CLASSES:
        return None
    if found.kernel.tensor_core is False:
        return None
    what = found.kernel.kernel_class.label
    what = {"gemm": "matrix product", "conv": "convolution"}.get(what, what)
    return (
        f"Low occupancy is by design in {'an' if what[0] in 'aeiou' else 'a'} {what} kernel: large tiles in registers "
        "and shared memory, and a pipeline that hides latency inside the block."
    )


def _explain_small_grid(found: Footprint) -> str | None:
    sms = found.device.sms if found.device else None
    idle = found.occupancy.idle_sms if found.occupancy else None
    if not idle or sms is None:
        return None
    unit = "compute unit" if found.device and found.device.vendor == "AMD" else "SM"
    return f"The grid has {found.block_count} of the {sms} blocks that would give each {unit} one: {idle} {unit}s stay idle."


def _explain_tail(found: Footprint) -> str | None:
    theory = found.occupancy
    if theory is None or theory.waves is None or theory.tail_waste is None or theory.waves <= 1:
        return None
    if theory.tail_waste < NOTABLE_TAIL_WASTE:
        return None
    started = ceil(theory.waves)
    return (
        f"{theory.waves:.2f} waves take as long as {started}: "
        f"the last one leaves {theory.tail_waste:.0%} of all slots empty."
    )


def _explain_missing_data(found: Footprint) -> list[str]:
    """What the trace does not carry, said rather than invented."""
    if found.device is None:
        return ["The trace does not describe this GPU: occupancy cannot be computed."]
    if found.device.vendor == "AMD":
        unknown = "ROCm traces carry no registers and no static shared memory"
        most = found.occupancy.active_blocks_bound if found.occupancy else None
        if most is None:
            return [f"{unknown}: occupancy cannot be computed."]
        return [f"{unknown}: occupancy cannot be computed, at most {most} workgroups fit a compute unit by their size."]
    if found.block is None:
        return ["The trace has no launch shape for this kernel."]
    if found.device.capability_limits is None:
        name = ".".join(map(str, found.device.capability or ())) or "unknown"
        return [f"Compute capability {name} is not in the table: its limits are not known here."]
    if found.registers is None or found.shared_memory is None:
        return ["The trace lacks registers or shared memory for this kernel."]
    if found.agrees_with_kineto is False:
        return [
            f"Kineto's own calculation says {found.reported.active_blocks} blocks per SM: "
            "it may know limits that no trace carries, such as barriers."
        ]
    return []
