"""The kernel panel: the GPU work at the end of the chain, with its footprint, occupancy limits and other runs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.labels import describe_share_of_peak
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_bandwidth, format_share, format_value
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, hang_text, wrap_text
from torchprof_tui.ui.common.text_charts import build_strip_chart
from torchprof_tui.ui.explorer.panels.panel import FIRST_KEYS, Panel, format_title, shorten_event_name

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.kernel.footprint import Footprint
    from torchprof_tui.analysis.kernel.kernel_summary import KernelInstances, KernelSummary
    from torchprof_tui.analysis.kernel.memory_transfer import Transfer
    from torchprof_tui.ui.explorer.background_queries import TraceChecked
    from torchprof_tui.ui.explorer.event_reading import ChainRead


BAR_CELLS = 10
LABEL_CELLS = 11
STRIP_CELLS = 60
MAX_TAIL_WAVES = 99  # waves above which the last one does not matter

COLLECTIVE_NOTE = "It transfers, and waits for other ranks: how many SMs it fills says nothing about its speed."


def format_kernel(
    summary: KernelSummary,
    palette: Palette,
    width: int,
    is_low: bool = False,
    is_collective: bool = False,
    has_name: bool = True,
    bound: str = "",
) -> Lines:
    """Format everything below the title in one column of `width` cells; the full name is last, if `has_name`.

    `is_low`: in a panel of a few lines, the occupancy and what limits it come first. `is_collective`: it transfers and
    waits for other ranks, so idle SMs and a low occupancy are no faults. `bound`: by memory or by compute, as the
    roofline has it.
    """
    footprint = summary.footprint
    lines: Lines = []
    full_name: Lines = []
    if footprint is not None:
        full_name = _format_row("name", clean(footprint.kernel.name), palette, width) if has_name else []
        meaning = _format_row("is", clean(footprint.kernel.summary), palette, width) if footprint.kernel.known else []
        by = f" · by {clean(footprint.launched_by)}" if footprint.launched_by else ""
        rows = (("launch", _format_launch(footprint), by), ("takes", _format_resources(footprint), ""))
        launch = [line for name, text, end in rows if text for line in _format_row(name, text + end, palette, width)]
        occupancy = _format_occupancy(footprint, palette, width)
        if bound and not is_collective:
            meaning = _format_row("bound", bound, palette, width, strong=True) + meaning
        lines = occupancy[:2] + meaning + launch + occupancy[2:] if is_low else meaning + launch + occupancy
        if is_collective:
            lines = meaning + launch + (_format_row("waits", summary.wait, palette, width) if summary.wait else [])
        for note in (COLLECTIVE_NOTE,) if is_collective else footprint.notes:
            lines += _format_row("note", note, palette, width)
    if summary.transfer is not None:
        lines += _format_transfer(summary.transfer, palette, width)
    return lines + _format_instances(summary.instances, palette, width) + full_name


def format_kernel_brief(summary: KernelSummary, palette: Palette, width: int, bound: str = "") -> Lines:
    """Format the footprint in a line or two, for a chain panel too narrow for two columns."""
    footprint = summary.footprint
    if footprint is None:
        return _format_transfer(summary.transfer, palette, width) if summary.transfer is not None else []
    parts = [_format_launch(footprint), _format_resources(footprint)]
    theory = footprint.occupancy
    if theory is not None and theory.fraction is not None:
        parts.append(f"occupancy {_format_percent(theory.fraction)}, limited by {theory.limits_text}")
    if bound and not bound.startswith(("…", "unknown")):
        parts.append(f"bound: {bound}")
    return _format_row("kernel", " · ".join(part for part in parts if part) + " (k: all of it)", palette, width)


def _format_launch(footprint: Footprint) -> str:
    parts = []
    if footprint.grid:
        parts.append(
            f"grid {_format_shape(footprint.grid)} = {footprint.block_count:,} blocks"
            if footprint.block_count != 1
            else "grid of 1 block"
        )
    if footprint.block:
        parts.append(f"block {_format_shape(footprint.block)} = {footprint.threads_per_block:,} threads")
    return " · ".join(parts)


def _format_resources(footprint: Footprint) -> str:
    parts = []
    if footprint.registers is not None:
        parts.append(f"{footprint.registers} registers a thread")
    if footprint.shared_memory is not None:
        parts.append(f"{format_value(footprint.shared_memory, 'bytes')} shared memory a block")
    elif footprint.dynamic_shared_memory:
        parts.append(f"{format_value(footprint.dynamic_shared_memory, 'bytes')} dynamic shared memory a block")
    return " · ".join(parts)


def _format_occupancy(footprint: Footprint, palette: Palette, width: int) -> Lines:
    theory = footprint.occupancy
    if theory is None:
        return []
    lines: Lines = []
    if theory.fraction is not None:
        warps = footprint.device.max_warps if footprint.device else None
        active = f"{theory.active_warps} of {warps} warps" if warps else f"{theory.active_warps} warps"
        blocks = f"{theory.active_blocks} block{'' if theory.active_blocks == 1 else 's'}"
        lines.append(
            [
                (f"{'occupancy':<{LABEL_CELLS}}", palette.muted),
                (_draw_bar(theory.fraction), palette.bar),
                (f" {_format_percent(theory.fraction)}", palette.strong),
                (f"  {blocks}, {active} per SM", palette.text),
            ]
        )
        lines += _format_row("limited by", theory.limits_text, palette, width, strong=True)
    known = {name: limit for name, limit in theory.limits.items() if limit is not None}
    largest = max(known.values(), default=1) or 1
    for name, limit in known.items():
        sign = "◀" if name in theory.limited_by else " "
        runs: list[TextRun] = [
            (f"  {name.replace('_', ' '):<14}", palette.muted),
            (_draw_bar(limit / largest), palette.bar if name in theory.limited_by else palette.muted),
            (f" {limit:>3} block{' fits' if limit == 1 else 's fit'} {sign}", palette.text),
        ]
        lines.append(runs)
    if theory.waves is not None and theory.waves >= 1:  # else the limit says it, and a note how many SMs stay idle
        tail = f", the last one {format_share(theory.last_wave_fill or 0)} full"
        waves = f"{theory.waves:.2f} waves{tail if 1 < theory.waves <= MAX_TAIL_WAVES else ''}"
        lines += _format_row("grid", waves, palette, width)
    for change in footprint.changes:
        text = f"{change.parameter.replace('_', ' ')} {change.before} → {change.after}: "
        text += f"{change.active_blocks} blocks per SM, {_format_percent(change.occupancy)}"
        lines += _format_row("what if", text, palette, width)
    if footprint.reported.occupancy is not None:
        lines += _format_row("reported", f"est. achieved occupancy {footprint.reported.occupancy:g} %", palette, width)
    return lines


def _format_transfer(transfer: Transfer, palette: Palette, width: int) -> Lines:
    parts = []
    if transfer.source and transfer.target:
        parts.append(f"{transfer.source} → {transfer.target}")
    if transfer.bytes is not None:
        parts.append(format_value(transfer.bytes, "bytes"))
    if transfer.pinned is not None:
        parts.append(
            "pinned host memory" if transfer.pinned else "pageable host memory: copied through a buffer, the CPU waits"
        )
    lines = _format_row("moves", " · ".join(parts) or "not recorded", palette, width)
    if transfer.bandwidth is not None:
        speed = (format_bandwidth(transfer.bandwidth), describe_share_of_peak(transfer))
        lines += _format_row("speed", ", ".join(filter(None, speed)), palette, width)
    return lines


def _format_instances(instances: KernelInstances, palette: Palette, width: int) -> Lines:
    """Format the durations of all runs of this kernel, and the position of this one among them in time."""
    durations, same_shape = instances.statistics, instances.same_shape_statistics
    if durations.count < 2:
        return _format_row("runs", "the only one of this name", palette, width)
    text = (
        f"{durations.count:,} of this name · median {format_duration(durations.median)}"
        f" · mean {format_duration(durations.mean)}"
        f" · p5 {format_duration(durations.p5)} · p95 {format_duration(durations.p95)}"
    )
    lines = _format_row("runs", text, palette, width)
    if same_shape.count != durations.count:
        text = f"{same_shape.count:,} of the same grid and block · median {format_duration(same_shape.median)}"
        lines += _format_row("", text, palette, width)
    index = instances.selected_index
    glyphs, column = build_strip_chart(instances.duration, index, min(width - LABEL_CELLS, STRIP_CELLS))
    lines.append(
        [
            (f"{'in time':<{LABEL_CELLS}}", palette.muted),
            (glyphs[:column], palette.bar),
            (glyphs[column], palette.active),
            (glyphs[column + 1 :], palette.bar),
        ]
    )
    pointer = f"{' ' * column}▲ this one, {format_duration(int(instances.duration[index]))}"
    return [*lines, [(" " * LABEL_CELLS + pointer, palette.muted)]]


def _format_row(label: str, text: str, palette: Palette, width: int, strong: bool = False) -> Lines:
    style = palette.strong if strong else palette.text
    return hang_text(label, LABEL_CELLS, text, max(width - LABEL_CELLS, 8), palette, style)


def _draw_bar(share: float) -> str:
    full = min(max(round(share * BAR_CELLS), 1 if share > 0 else 0), BAR_CELLS)
    return "█" * full + "░" * (BAR_CELLS - full)


def _format_percent(share: float) -> str:
    """Format a fraction with three digits: occupancies are fractions of about 64 warps, and 12.5 % is not 12 %."""
    return f"{100 * share:.3g} %"


def _format_shape(shape: tuple[int, int, int]) -> str:
    return "×".join(f"{size:,}" for size in shape)


LOW_PANEL_HEIGHT = 8  # panel height below which the occupancy comes before the launch


class KernelPanel(Panel):
    """Show the kernel that the selected event leads to."""

    NAME = "kernel"

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self._event = -1
        self._kernel: KernelSummary | None = None
        self._chain: Chain | None = None

    def update(self) -> None:
        event = self.context.view_state.selected
        if event != self._event:
            self._event = event
            self._kernel, self._chain = None, None
            self.refresh_content()

    def on_chain_read(self, message: ChainRead) -> None:
        if message.chain.event == self._event:
            self._chain, self._kernel = message.chain, message.kernel
            self.refresh_content(top=False)

    def on_trace_checked(self, message: TraceChecked) -> None:
        self.refresh_content(top=False)

    def list_next_keys(self) -> list[tuple[str, str]]:
        if self._event < 0:
            return FIRST_KEYS
        if self._kernel is None:
            return [("enter", "longest kernel")] * (self._longest_kernel >= 0) + [("t", "all kernels")]
        is_selected = self._kernel.event == self._event
        return [("[", "launch") if is_selected else ("]", "GPU work"), ("l", "chain"), ("t", "its row"), ("f", "fit")]

    def enter(self) -> str | None:
        if self._event < 0:
            return "no kernel to go to: no event is selected: select a kernel, or an op"
        if self._chain is not None and self._kernel is None:
            if self._longest_kernel < 0:
                return "no kernel to go to: the trace has none"
            self.context.view_state.select(self._longest_kernel)
        return None

    @cached_property
    def _longest_kernel(self) -> int:
        """The kernel of the trace that ran longest, for events that lead to none; -1 in a trace without kernels."""
        kernels = np.flatnonzero(self._trace.kind == Kind.KERNEL)
        return int(kernels[np.argmax(self._trace.duration[kernels])]) if len(kernels) else -1

    def content(self, width: int) -> Lines:
        palette = self.palette
        if self._event < 0:
            return wrap_text(
                "No kernel is selected: → takes the next one, t lists all. An op shows its longest kernel.",
                width,
                palette.muted,
            )
        if self._chain is None:
            return [[("…", palette.muted)]]
        if self._kernel is None:
            name = clean(self._trace.event(self._event).name)
            way = "enter goes to the longest kernel, t lists all" if self._longest_kernel >= 0 else "it has no kernels"
            return wrap_text(f"{name} launched no GPU work in this trace: {way}.", width, palette.muted)
        head = format_title(self._trace, self._trace.event(self._kernel.event), self.palette, width)
        if self._kernel.event != self._event and len(self._chain.work) > 1:
            name = shorten_event_name(self._trace.event(self._event))
            text = f"the longest of {len(self._chain.work):,} pieces of GPU work that {name} launched:"
            head += wrap_text(text, width, palette.muted)
        is_low = self.size.height < LOW_PANEL_HEIGHT
        is_collective = int(self._trace.kind[self._kernel.event]) == Kind.COLLECTIVE
        is_named = self._kernel.event == self._event and self.context.is_shown("details")  # in full, beside this panel
        bound = self.context.queries.describe_limit(self._kernel.event)
        return head + format_kernel(self._kernel, palette, width, is_low, is_collective, not is_named, bound)
