"""Declare the source of Nsight Systems; pyproject.toml names it as an entry point."""

from __future__ import annotations

from torchprof_tui.trace.core.extensions import SourceExtension

NO_TABLE = "not in the export"  # a kind of events that was not recorded
WHOLE_GRAPHS = "graphs without kernels"  # a replay was recorded as one piece of GPU work
UNREAD_TABLE = "table not shown"  # events that have no lane here

SQLITE_MAGIC = b"SQLite format 3\0"


SOURCE = SourceExtension(
    label="Nsight Systems report",
    suffixes=(".sqlite",),
    recognizes=lambda head: head.startswith(SQLITE_MAGIC),  # only opening it tells whether it is an export
    open="torchprof_nsight.nsight_source:open_nsight_export",
    problems={
        NO_TABLE: ("the report of Nsight Systems was recorded without these events", ""),
        WHOLE_GRAPHS: ("replayed CUDA graphs of which the kernels were not recorded: each is one event", ""),
        UNREAD_TABLE: ("events of a table that Nsight Systems exports and no lane here shows", ""),
    },
)
