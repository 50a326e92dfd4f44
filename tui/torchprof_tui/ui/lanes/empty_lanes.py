"""Text shown instead of the lanes where a trace has no lane: why, and what to do about it."""

from __future__ import annotations

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean


def no_events_text(trace: Trace) -> str:
    """Explain why a trace has nothing to draw, from the counts of its entries."""
    counts = trace.counts
    lines = ["This trace has nothing to draw.", ""]
    if not counts.events:
        lines.append("Its traceEvents list is empty.")
    else:
        lines.append(f"The file has {counts.events:,} entries:")
        if counts.metadata:
            lines.append(f"  {counts.metadata:,} name processes and threads")
        if counts.flows:
            lines.append(f"  {counts.flows:,} connect events")
        lines += [f"  {count:,} were left out: {clean(reason)}" for reason, count in counts.not_drawn.items()]
    lines += [
        "",
        "A profiler that was stopped before its active steps records nothing: with schedule(wait, warmup, active)",
        "call prof.step() at least wait + warmup + active times, and export from on_trace_ready.",
        "",
        "q quits.",
    ]
    return "\n".join(lines)
