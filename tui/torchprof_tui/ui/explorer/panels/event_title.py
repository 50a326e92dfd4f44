"""Describe one event in a few words: its short name, and its share of the step."""

from __future__ import annotations

from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Event, Trace
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.text_panel import Lines


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
