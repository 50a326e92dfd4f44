"""Print a dispatch chain and a kernel footprint as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from torchprof_tui.analysis.dispatch.chain import Chain, Hop, HopRole
from torchprof_tui.analysis.dispatch.source_line import SourceLine
from torchprof_tui.analysis.dispatch.step_rows import StepRows
from torchprof_tui.analysis.graphs.captured_ops import SOURCE_TEXT, CapturedChain
from torchprof_tui.analysis.kernel.footprint import Footprint, compute_footprint
from torchprof_tui.analysis.kernel.memory_transfer import Transfer, measure_transfer
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.kernel.occupancy import LIMIT_NAMES, Occupancy, OccupancyChange
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.navigation import find_graph_neighbours
from torchprof_tui.ui.common.labels import describe_kind, describe_share_of_peak
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_bandwidth, format_share, format_value
from torchprof_tui.ui.common.step_table import build_step_table

MAX_LISTED_WORK = 8  # pieces of GPU work listed if the event launched several

NAME_CELLS = 76
MAX_INDENT = 24  # hops are indented up to this depth: Python stacks are dozens of frames deep

_BAR_CELLS = 20
_PAGEABLE = (
    "• The host memory is pageable: copies of pinned memory (pin_memory=True) are faster, and the CPU does not wait."
)


def print_chain(
    trace: Trace,
    chain: Chain,
    line: SourceLine | None,
    nth: int,
    event_count: int,
    captured: CapturedChain | str | None = None,
) -> None:
    """Print the chain on stdout: coloured and as wide as the terminal, or plain into a pipe."""
    console = create_console(pipe_width=120)
    event = trace.event(chain.event)
    title = Text(truncate(clean(event.name), NAME_CELLS), style="bold")
    title.append(
        f"  --nth {nth} of {event_count:,}" if event_count > 1 else "  the only one of this name", style="default"
    )
    title.append(f", at {format_duration(event.start)}")
    parts: list[RenderableType] = [title, Text(), _hop_table(chain.hops, chain.event)]
    facts = [*_source_lines(line), *_timing_lines(trace, chain)]
    parts += [Text(), *facts] if facts else []
    found = find_graph_neighbours(trace, chain.hops[-1].event)
    for label, events in (("waits for", found.waits_for), ("waited for by", found.waited_for_by)):
        names = ", ".join(truncate(clean(trace.event(event).name), NAME_CELLS) for event in events.tolist())
        parts += [Text(f"graph edge: {label} {names}")] if names else []
    parts += _captured_parts(captured)
    if len(chain.work) > 1:
        heading = f"All GPU work that it launched: {len(chain.work):,} pieces, {format_duration(chain.work.total)}"
        parts += [Text(), Text(heading, style="bold"), _work_table(trace, chain)]
    if chain.work:
        work = chain.work[0].event
        resources, moved = compute_footprint(trace, work), measure_transfer(trace, work)
        if resources is not None:
            parts += [Text(), *_footprint_parts(resources)]
        if moved is not None:
            parts += [Text(), *_transfer_lines(moved)]
    console.print(Group(*parts))


def _create_table(*sides: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for side in sides:
        heading, _, justify = side.partition(":")
        table.add_column(heading, justify="right" if justify else "left", no_wrap=True)
    return table


def _captured_parts(captured: CapturedChain | str | None) -> list[RenderableType]:
    if captured is None:
        return []
    if isinstance(captured, str):
        return [Text(), Text(f"The op of this replayed kernel is unknown: {captured}.")]
    title = Text("From the capture: ", style="bold").append(truncate(clean(captured.op.op_name), NAME_CELLS))
    parts: list[RenderableType] = [Text(), title]
    if captured.op.trace is not None:
        parts.append(Text(f"  {SOURCE_TEXT[captured.op.source]} {clean(captured.op.trace.label)}", style="dim"))
        parts.append(_hop_table(captured.hops, captured.op.op))
    if captured.op.annotation and captured.op.trace is not None:
        parts.append(Text(f"annotation: {truncate(clean(captured.op.annotation), NAME_CELLS)}"))
    if captured.input_dims:
        parts.append(Text(f"input shapes: {clean(str(captured.input_dims))}"))
    parts += [Text(f"• {captured.doubt}")] if captured.doubt else []
    return [*parts, *_source_lines(captured.line)]


def _hop_table(hops: Sequence[Hop], selected: int) -> Table:
    table = _create_table("", "", "total:r", "self:r", "starts after:r")
    for depth, hop in enumerate(hops):
        indent = min(2 * depth, MAX_INDENT)
        name = clean(hop.name)
        room = NAME_CELLS - indent - 2
        name = name if len(name) <= room else truncate(shorten(name), room)
        line = Text(" " * indent)
        line.append("⇢ " if hop.role is HopRole.GPU and depth else "└ " if depth else "", style="dim")
        table.add_row(
            Text(hop.role.value, style="dim"),
            line.append(name, style="bold" if hop.event == selected else "default"),
            format_duration(hop.duration),
            format_duration(hop.self_duration),
            f"+{format_duration(hop.offset)}" if depth else "",
        )
    return table


def _source_lines(line: SourceLine | None) -> list[Text]:
    """Name the line of the program, with its whole path, or the annotation or module that is known instead."""
    if line is None:
        return []
    text = f"{describe_kind(line)}: {truncate(clean(line.text), NAME_CELLS)}"
    if line.library:
        text += f", through {truncate(clean(line.library), NAME_CELLS)}"
    path = clean(line.location or "")
    return [Text(text), *([Text(f"  {path}", style="dim")] if path else [])]


def _timing_lines(trace: Trace, found: Chain) -> list[Text]:
    """Describe launch latency and queue delay, the forward or backward partner, and what is missing."""
    lines = []
    if found.launch_latency is not None and found.queue_delay is not None:
        latency, delay = format_duration(found.launch_latency), format_duration(found.queue_delay)
        lines.append(f"launch latency {latency}: from the start of the call to the start of the GPU work")
        queue = "from the end of the call to the start of the GPU work; the stream was idle during this time"
        if found.queue_delay < 0:
            queue = "the GPU work started before the call returned"
        elif found.held_up:
            share = format_share(found.held_up / found.queue_delay) if found.queue_delay else "0 %"
            queue = f"from the end of the call to the start of the GPU work; {share} of this time the stream was busy, "
            queue += f"last with {_event_name(trace, found.held_up_by)}"
        lines.append(f"queue delay {delay}: {queue}")
    if trace.event(found.event).kind not in (Kind.STEP, Kind.ANNOTATION, Kind.PYTHON):  # these contain many launches
        if found.forward_op >= 0:
            lines.append(f"it is part of the backward of {_event_name(trace, found.forward_op)}")
        if found.backward_node >= 0:
            lines.append(f"its backward is {_event_name(trace, found.backward_node)}")
    if found.note:
        lines.append(found.note)
    return [Text(line) for line in lines]


def _event_name(trace: Trace, event: int) -> str:
    return truncate(shorten(clean(trace.event(event).name)), 48)


def _work_table(trace: Trace, found: Chain) -> Table:
    work = found.work
    table = _create_table("", "GPU time:r", "share:r")
    for piece in work[:MAX_LISTED_WORK]:
        known = decode_kernel_name(trace.event(piece.event).name)
        name = known.display if known.known else shorten(clean(known.name))
        table.add_row(truncate(clean(name), NAME_CELLS), format_duration(piece.duration), format_share(piece.share))
    if len(work) > MAX_LISTED_WORK:
        rest = int(work.durations[MAX_LISTED_WORK:].sum())
        share = format_share(rest / work.total) if work.total else ""
        table.add_row(Text(f"and {len(work) - MAX_LISTED_WORK:,} more", style="dim"), format_duration(rest), share)
    return table


def _footprint_parts(found: Footprint) -> list[RenderableType]:
    title = Text("Footprint of ", style="bold")
    title.append(truncate(clean(found.kernel.display or found.kernel.name), NAME_CELLS))
    parts: list[RenderableType] = [title]
    if found.kernel.known:
        parts.append(Text(clean(found.kernel.summary), style="dim"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    if found.device is not None and found.device.name:
        table.add_row("device", clean(found.device.name))
    if found.grid and found.block:
        blocks, threads = found.block_count, found.threads_per_block
        grid, block = "×".join(map(str, found.grid)), "×".join(map(str, found.block))
        table.add_row("grid", f"{grid} = {blocks:,} blocks of {block} = {threads:,} threads")
    if found.registers is not None:
        table.add_row("registers", f"{found.registers} a thread")
    shared = found.shared_memory if found.shared_memory is not None else found.dynamic_shared_memory
    if shared is not None:
        part = ", its dynamic part" if found.shared_memory is None else ""
        table.add_row("shared memory", f"{format_value(shared, 'bytes')} a block{part}")
    if found.occupancy is not None:
        for label, value in _occupancy_rows(found.occupancy):
            table.add_row(label, value)
        if found.reported.occupancy is not None:
            table.add_row("reported", f"{found.reported.occupancy:g} % (est. achieved occupancy)")
        for number, change in enumerate(found.changes):
            table.add_row("" if number else "what if", _format_change(change))
    return [*parts, table, *(Text(f"• {note}") for note in found.notes)]


def _occupancy_rows(theory: Occupancy) -> Iterator[tuple[str, str]]:
    if theory.fraction is not None:
        share = theory.fraction
        bar = "█" * round(_BAR_CELLS * share) + "░" * (_BAR_CELLS - round(_BAR_CELLS * share))
        warps = f"{theory.active_warps} of {theory.max_warps} warps an SM"
        yield "occupancy", f"{bar} {format_share(share)}: {warps}, in {_format_block_count(theory.active_blocks or 0)}"
        yield "limited by", theory.limits_text
    limits = [(name, limit) for name in LIMIT_NAMES if (limit := theory.limits.get(name)) is not None]
    if limits:
        yield "blocks that fit", ", ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in limits)
    if theory.waves is not None and theory.waves >= 1:
        tail = f", the last one {format_share(theory.last_wave_fill or 0)} full" if theory.waves > 1 else ""
        waves = f"{theory.waves:.2f}" if theory.waves < 100 else f"{theory.waves:,.0f}"
        yield "waves", f"{waves}{tail if ceil(theory.waves) < 100 else ''}"


def _format_change(change: OccupancyChange) -> str:
    what = {
        "registers": f"{change.after} registers a thread instead of {change.before}",
        "shared_memory": f"{format_value(change.after, 'bytes')} of shared memory a block "
        f"instead of {format_value(change.before, 'bytes')}",
        "block": f"blocks of {change.after} threads instead of {change.before}",
    }[change.parameter]
    return f"{what}: {_format_block_count(change.active_blocks)}, {format_share(change.occupancy)}"


def _format_block_count(count: int) -> str:
    return f"{count} block{'' if count == 1 else 's'}"


def _transfer_lines(found: Transfer) -> list[Text]:
    between = " to ".join(part for part in (found.source, found.target) if part)
    title = Text("Transfer", style="bold").append(f" {between}" if found.source else f", a fill of the {between}")
    lines = []
    if found.bytes is not None:
        rate = f": {format_bandwidth(found.bandwidth)}" if found.bandwidth is not None else ""
        lines.append(f"{format_value(found.bytes, 'bytes')} in {format_duration(found.duration)}{rate}")
    if comparison := describe_share_of_peak(found):
        lines.append(comparison)
    if found.pinned is False:
        lines.append(_PAGEABLE)
    return [title, *map(Text, lines)]


def print_step_rows(trace: Trace, found: StepRows, nth: int, of: int) -> None:
    """Print the distribution of each time, then one row per step, on stdout."""
    console = create_console(pipe_width=160)
    name = truncate(clean(trace.event(found.rows[found.selected].event).name), 60)
    console.print(Text(f"{name}  --nth {nth} of {of:,}: {len(found.rows):,} steps", style="bold"))
    table = build_step_table(found)
    for line in table.notes:
        console.print(Text(line))
    printed = ConsoleTable("", *(f">{title}" if number else title for title, number in table.columns))
    for row in table.rows:
        printed.add_cells(*row)
    console.print(printed)
