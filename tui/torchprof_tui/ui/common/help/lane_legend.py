"""How to read the lanes: their symbols, and the kinds of events by colour."""

from __future__ import annotations

from torchprof_tui.trace.model.event_kind import Kind

LANE_SYMBOLS = (
    ("▏aten::mm", "a bar is one event; ▏ marks its start"),
    ("█▉ ▍", "an event too narrow for a name; the width of ▍ is its share of the cell"),
    ("░ ▒ ▓", "a cell with many events; it is busy for under ⅓, under ⅔, or more of its time"),
    ("▶aten::mm ◆", "▶ the selected event; ◆ an event of its chain, or evidence of a finding"),
    ("╰┄┄▏", "the link from a launch to its GPU work; ▶ ▼ at an edge: it continues off screen"),
    ("‹dispatch›", "why the GPU was idle: what the CPU did during the gap"),
    ("● at a lane", "the lane has evidence of the cheatsheet's finding; red: a problem of 0.5 % of the time or more"),
    ("[▂▃▁]", "on the overview: the part of the trace on screen"),
    ("▼", "on the ruler: the time at which w and s zoom"),
    ("▾ ▸ ▴", "a lane or rank unfolded, folded; a lane pinned"),
)

KINDS_SHOWN = (
    Kind.STEP,
    Kind.ANNOTATION,
    Kind.PYTHON,
    Kind.OP,
    Kind.RUNTIME,
    Kind.KERNEL,
    Kind.COPY,
    Kind.MEMSET,
    Kind.COLLECTIVE,
    Kind.SYNC,
    Kind.GPU_ANNOTATION,
    Kind.OVERHEAD,
)
