"""A kernel's footprint in lines of text: what it takes of the GPU, what limits it, how its runs spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share, format_value
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.strip_chart import build_strip_chart
from torchprof_tui.ui.common.text_panel import Lines, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.kernel.duration_distribution import KernelInstances
    from torchprof_tui.analysis.kernel.footprint import Footprint
    from torchprof_tui.analysis.kernel.kernel_summary import KernelSummary
    from torchprof_tui.analysis.kernel.memory_transfer import Transfer

BAR_CELLS = 10
LABEL_CELLS = 11
STRIP_CELLS = 60
_RESOURCE_LABELS = {"shared_memory": "shared memory"}


def format_kernel(facts: KernelSummary, palette: Palette, width: int) -> Lines:
    """Everything, in one column of `width` cells. A name that needs more than a line stands in full at the end."""
    found = facts.footprint
    lines: Lines = []
    full: Lines = []
    if found is not None:
        name = clean(found.kernel.name)
        if cell_len(name) <= width:
            lines.append([(name, palette.strong)])
        else:
            lines.append([(truncate(shorten(name), width), palette.strong)])
            full = _format_row("name", name, palette, width)
        if found.kernel.known:
            lines += _format_row("is", clean(found.kernel.summary), palette, width)
        lines += _format_launch_rows(found, palette, width) + _format_occupancy(found, palette, width)
        for note in found.notes:
            lines += _format_row("note", note, palette, width)
    if facts.transfer is not None:
        lines += _format_transfer(facts.transfer, palette, width)
    return lines + _format_instances(facts.instances, palette, width) + full


def format_kernel_brief(facts: KernelSummary, palette: Palette, width: int) -> Lines:
    """The footprint in a line or two, below a chain that has no room beside it."""
    found = facts.footprint
    if found is None:
        return _format_transfer(facts.transfer, palette, width) if facts.transfer is not None else []
    parts = [_format_launch(found), _format_resources(found)]
    theory = found.occupancy
    if theory is not None and theory.fraction is not None:
        parts.append(f"occupancy {_format_percent(theory.fraction)}, limited by {_format_limits(theory.limited_by)}")
    return _format_row("kernel", " · ".join(part for part in parts if part) + " (k: all of it)", palette, width)


def _format_launch_rows(found: Footprint, palette: Palette, width: int) -> Lines:
    launched = f" · by {clean(found.launched_by)}" if found.launched_by else ""
    lines: Lines = []
    if _format_launch(found):
        lines += _format_row("launch", _format_launch(found) + launched, palette, width)
    if _format_resources(found):
        lines += _format_row("takes", _format_resources(found), palette, width)
    return lines


def _format_launch(found: Footprint) -> str:
    parts = []
    if found.grid:
        parts.append(
            f"grid {_format_shape(found.grid)} = {found.block_count:,} blocks"
            if found.block_count != 1
            else "grid of 1 block"
        )
    if found.block:
        parts.append(f"block {_format_shape(found.block)} = {found.threads_per_block:,} threads")
    return " · ".join(parts)


def _format_resources(found: Footprint) -> str:
    parts = []
    if found.registers is not None:
        parts.append(f"{found.registers} registers a thread")
    if found.shared_memory is not None:
        parts.append(f"{format_value(found.shared_memory, 'bytes')} shared memory a block")
    elif found.dynamic_shared_memory:
        parts.append(f"{format_value(found.dynamic_shared_memory, 'bytes')} dynamic shared memory a block")
    return " · ".join(parts)


def _format_occupancy(found: Footprint, palette: Palette, width: int) -> Lines:
    theory = found.occupancy
    if theory is None:
        return []
    lines: Lines = []
    if theory.fraction is not None:
        warps = found.device.max_warps if found.device else None
        of = f"{theory.active_warps} of {warps} warps" if warps else f"{theory.active_warps} warps"
        blocks = f"{theory.active_blocks} block{'' if theory.active_blocks == 1 else 's'}"
        lines.append(
            [
                (f"{'occupancy':<{LABEL_CELLS}}", palette.muted),
                (_draw_bar(theory.fraction), palette.accent),
                (f" {_format_percent(theory.fraction)}", palette.strong),
                (f"  {blocks}, {of} per SM", palette.text),
            ]
        )
        lines += _format_row("limited by", _format_limits(theory.limited_by), palette, width, strong=True)
    known = {name: limit for name, limit in theory.limits.items() if limit is not None}
    most = max(known.values(), default=1) or 1
    for name, limit in known.items():
        sign = "◀" if name in theory.limited_by else " "
        runs: list[TextRun] = [
            (f"  {_RESOURCE_LABELS.get(name, name):<14}", palette.muted),
            (_draw_bar(limit / most), palette.accent if name in theory.limited_by else palette.muted),
            (f" {limit:>3} block{' fits' if limit == 1 else 's fit'} {sign}", palette.text),
        ]
        lines.append(runs)
    parts = []
    if theory.waves is not None:
        parts.append(f"{theory.waves:.2f} waves")
    if theory.idle_sms and found.device and found.device.sms:
        parts.append(f"{theory.idle_sms} of {found.device.sms} SMs idle")
    if parts:
        lines += _format_row("grid", " · ".join(parts), palette, width)
    for change in found.changes:
        text = f"{change.parameter.replace('_', ' ')} {change.before} → {change.after}: "
        text += f"{change.active_blocks} blocks per SM, {_format_percent(change.occupancy)}"
        lines += _format_row("what if", text, palette, width)
    if found.reported.occupancy is not None:
        lines += _format_row("trace says", f"est. achieved occupancy {found.reported.occupancy:g} %", palette, width)
    return lines


def _format_transfer(found: Transfer, palette: Palette, width: int) -> Lines:
    parts = []
    if found.source and found.target:
        parts.append(f"{found.source} → {found.target}")
    if found.bytes is not None:
        parts.append(format_value(found.bytes, "bytes"))
    if found.pinned is not None:
        parts.append("pinned host memory" if found.pinned else "pageable host memory: a staged copy that waits")
    lines = _format_row("moves", " · ".join(parts) or "not recorded", palette, width)
    if found.bandwidth is not None:
        text = f"{found.bandwidth:.3g} GB/s"
        if found.peak_bandwidth and found.share_of_peak is not None:
            text += f", {format_share(found.share_of_peak)} of {found.peak_bandwidth:g} GB/s ({found.peak_source})"
        lines += _format_row("speed", text, palette, width)
    return lines


def _format_instances(found: KernelInstances, palette: Palette, width: int) -> Lines:
    """How long all runs of this kernel took, and where this one stands among them."""
    spread = found.statistics
    if spread.count < 2:
        return _format_row("runs", "the only one of this name", palette, width)
    text = (
        f"{spread.count:,} of this name · median {format_duration(spread.median)} · mean {format_duration(spread.mean)}"
        f" · p5 {format_duration(spread.p5)} · p95 {format_duration(spread.p95)}"
    )
    lines = _format_row("runs", text, palette, width)
    if found.same_shape_statistics.count != spread.count:
        same = f"{found.same_shape_statistics.count:,} of the same grid and block · median {format_duration(found.same_shape_statistics.median)}"
        lines += _format_row("", same, palette, width)
    glyphs, mine = build_strip_chart(found.duration, found.selected_index, min(width - LABEL_CELLS, STRIP_CELLS))
    lines.append(
        [
            (f"{'in time':<{LABEL_CELLS}}", palette.muted),
            (glyphs[:mine], palette.accent),
            (glyphs[mine], palette.active),
            (glyphs[mine + 1 :], palette.accent),
        ]
    )
    place = f"{' ' * mine}▲ this one, {format_duration(int(found.duration[found.selected_index]))}"
    return [*lines, [(" " * LABEL_CELLS + place, palette.muted)]]


def _format_row(label: str, text: str, palette: Palette, width: int, strong: bool = False) -> Lines:
    wrapped = wrap_text(text, max(width - LABEL_CELLS, 8), palette.strong if strong else palette.text)
    out: Lines = [[(f"{label:<{LABEL_CELLS}}", palette.muted), *wrapped[0]]]
    out.extend([(" " * LABEL_CELLS, palette.text), *runs] for runs in wrapped[1:])
    return out


def _draw_bar(share: float) -> str:
    full = min(max(round(share * BAR_CELLS), 1 if share > 0 else 0), BAR_CELLS)
    return "█" * full + "░" * (BAR_CELLS - full)


def _format_percent(share: float) -> str:
    """Occupancies are fractions of 64 warps or so: 12.5 % is not 12 %."""
    return f"{100 * share:.3g} %"


def _format_limits(names: tuple[str, ...]) -> str:
    return " and ".join(_RESOURCE_LABELS.get(name, name) for name in names) or "nothing"


def _format_shape(shape: tuple[int, int, int]) -> str:
    return "×".join(f"{size:,}" for size in shape)
