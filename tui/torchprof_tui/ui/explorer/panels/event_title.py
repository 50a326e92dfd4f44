"""Describe one event in a few words: its short name, its share of the step, and the op that was captured for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Event, Trace
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.chain import Hop
    from torchprof_tui.analysis.graphs.captured_chain import CapturedChain


def shorten_event_name(event: Event) -> str:
    """Return the cleaned name as it stands on the lanes: decoded for a kernel, else its distinctive part."""
    return shorten_name_of_kind(event.name, event.kind)


def shorten_name_of_kind(name: str, kind: Kind) -> str:
    """Return the cleaned short name of an event of this kind."""
    if kind in GPU_WORK:
        decoded = decode_kernel_name(name)
        if decoded.known and decoded.display:
            return clean(decoded.display)
    return shorten(clean(name))


def describe_share(trace: Trace, event: Event) -> str:
    """Describe the share of the step that an event starts in; of the trace where it starts in none."""
    for step in trace.rank_of_event(event.index).steps:
        if step.start <= event.start < step.start + step.duration and step.event != event.index:
            return f"{format_share(event.duration / step.duration)} of step #{step.number}"
    start, end = trace.span
    return f"{format_share(event.duration / (end - start))} of the trace" if end > start else ""


def format_title(trace: Trace, event: Event, palette: Palette, width: int) -> Lines:
    """Format the short name, the duration and its share on one line; the full name stands elsewhere."""
    time = f"  {format_duration(event.duration)} · {describe_share(trace, event)}"
    name = truncate(shorten_event_name(event), max(width - cell_len(time), 12))
    return [[(name, palette.strong), (time, palette.text)]]


MAX_HOPS = 8
"""Innermost hops of the capture that are listed; the others are counted."""

KIND_OF_ROLE = {"python": Kind.PYTHON, "op": Kind.OP, "launch": Kind.RUNTIME, "step": Kind.STEP}


def format_captured(captured: CapturedChain | str | None, palette: Palette, width: int) -> Lines:
    """Format the op, its shapes and its innermost callers in the capture, or why they are unknown."""
    if captured is None:
        return []
    if isinstance(captured, str):
        return wrap_text(f"captured op unknown: {captured}", width, palette.warning)
    lines = wrap_text(f"from the capture: {describe_captured(captured)}", width, palette.heading)
    hidden = len(captured.hops) - MAX_HOPS
    if hidden > 0:
        lines.append([(f"  {hidden} outer {'call' if hidden == 1 else 'calls'}", palette.muted)])
    for depth, hop in enumerate(captured.hops[-MAX_HOPS:]):
        lines.append(_format_hop(hop, depth, palette, width))
    if captured.doubt:
        lines += wrap_text(captured.doubt, width, palette.warning)
    return lines


def describe_captured(captured: CapturedChain) -> str:
    """Describe a captured op in one line: name, input shapes, file."""
    shapes = f" {captured.input_dims}" if captured.input_dims else ""
    file = "" if captured.op.trace is None else f" · {os.path.basename(captured.op.trace.label)}"
    annotation = captured.op.annotation if captured.op.trace is not None else ""
    note = f" · {clean(annotation)}" if annotation else ""
    return f"{clean(captured.op.op_name)}{clean(shapes)}{note}{clean(file)}"


def _format_hop(hop: Hop, depth: int, palette: Palette, width: int) -> list[TextRun]:
    kind = KIND_OF_ROLE.get(hop.role.value, Kind.ANNOTATION)
    name = truncate(shorten(clean(hop.name)), max(width - depth - 2, 8))
    return [("▌ ", palette.ink(kind)), (" " * depth + name, palette.text)]
