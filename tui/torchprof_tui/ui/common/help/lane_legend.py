"""How to read the lanes: their symbols, and the kinds of events by colour."""

from __future__ import annotations

from torchprof_tui.trace.model.event_kind import Kind

LANE_SYMBOLS = (
    ("▏aten::mm", "a bar: one event; ▏ is where it begins"),
    ("█▉ ▍", "events too narrow for a name; the width of ▍ is their share of the cell"),
    ("░ ▒ ▓", "a cell that stands for many events, by how busy it is: under ⅓, under ⅔, more"),
    ("▶aten::mm ◆", "▶ the selected event; ◆ what belongs to its chain, or is evidence of a pattern"),
    ("╰┄┄▏", "the link from a launch to the GPU work that it started; ▶ ▼ at an edge: it goes on there"),
    ("‹dispatch›", "why the GPU was idle: what the CPU did meanwhile"),
    ("● at a lane", "the evidence of the cheatsheet's entry lies on it; red: a problem of 0.5 % of the time or more"),
    ("[▂▃▁]", "on the overview: the part of the trace on screen"),
    ("▼", "on the ruler: where w and s zoom"),
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
