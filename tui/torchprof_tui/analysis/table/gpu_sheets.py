"""Build sheets of the GPU work: kernels, copies and fills, collectives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from torchprof_tui.analysis.collectives.communication_records import compute_message_bytes
from torchprof_tui.analysis.kernel.duration_distribution import compute_duration_statistics
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.table.sheets import (
    CALLS_FIELD,
    NAME_FIELD,
    Field,
    Sheet,
    Unit,
    compute_extremes,
    group_events,
    ratio,
)
from torchprof_tui.analysis.table.totals import WorkTotals
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import ReportChunks, read_entries

_TIME_FIELDS = (
    Field("total", "total", Unit.NS),
    Field("share", "%", Unit.SHARE),
    Field("avg", "avg", Unit.NS),
    Field("median", "median", Unit.NS),
    Field("min", "min", Unit.NS),
    Field("max", "max", Unit.NS),
)
_BYTE_FIELDS = (
    Field("bytes", "bytes", Unit.BYTES),
    Field("gb_s", "GB/s", Unit.GB_S),
    Field("max_gb_s", "best", Unit.GB_S),
)


def build_kernels_sheet(trace: Trace, event_mask: Bool | None = None) -> Sheet:
    """Build the sheet of kernels and collectives by name, with their class. `event_mask` bool[n] restricts it."""
    events = _select_events(trace, (Kind.KERNEL, Kind.COLLECTIVE), event_mask)
    name_ids, row = np.unique(trace.name[events], return_inverse=True)
    names = [trace.names[name_id] for name_id in name_ids.tolist()]
    decoded = [decode_kernel_name(name) for name in names]
    texts = {"name": names, "class": [kernel.kernel_class.label for kernel in decoded]}
    return _build_sheet("Kernels", trace, events, row, texts, (NAME_FIELD, Field("class", "class", Unit.TEXT)))


def build_copies_sheet(trace: Trace, event_mask: Bool | None = None) -> Sheet:
    """Build the sheet of copies and fills by name, with bytes and GB/s (overall, and of the fastest single one)."""
    events = _select_events(trace, (Kind.COPY, Kind.MEMSET), event_mask)
    name_ids, row = np.unique(trace.name[events], return_inverse=True)
    sizes = trace.args.get("bytes")
    moved = (
        np.zeros(len(events), np.int64) if sizes is None else np.maximum(sizes.values_at(events, 0).astype(np.int64), 0)
    )
    texts = {"name": [trace.names[name_id] for name_id in name_ids.tolist()]}
    return _build_sheet("Copies", trace, events, row, texts, (NAME_FIELD,), moved)


def build_collectives_sheet(trace: Trace, event_mask: Bool | None = None, report: ReportChunks | None = None) -> Sheet:
    """Build the sheet of collectives by operation, type and group where recorded, else by kernel.

    Bytes are those of the larger message; GB/s are bytes over the kernel's time, including its wait for other ranks.
    The args are read from the file: raises OSError, LookupError where it is gone or changed.
    """
    events = _select_events(trace, (Kind.COLLECTIVE,), event_mask)
    moved = np.zeros(len(events), np.int64)
    keys: dict[tuple[str, str, str], int] = {}
    row = np.zeros(len(events), np.int64)
    for index, entry in read_entries(trace, events, report):
        entry_args = entry.get("args")
        args = entry_args if isinstance(entry_args, dict) else {}
        name = str(args.get("Collective name") or trace.names[trace.name[events[index]]])
        key = (name, str(args.get("dtype") or ""), _format_group(args))
        row[index] = keys.setdefault(key, len(keys))
        moved[index] = compute_message_bytes(args)
    fields = (NAME_FIELD, Field("dtype", "type", Unit.TEXT), Field("group", "group", Unit.TEXT))
    texts = {field.key: [key[column] for key in keys] for column, field in enumerate(fields)}
    return _build_sheet("Collectives", trace, events, row, texts, fields, moved)


def _format_group(args: dict[str, Any]) -> str:
    name = str(args.get("Process Group Description") or args.get("Process Group Name") or "")
    size = args.get("Group size")
    return f"{name} × {size}" if name and isinstance(size, int) else name or (str(size) if size is not None else "")


def _select_events(trace: Trace, kinds: tuple[Kind, ...], event_mask: Bool | None) -> I32:
    is_wanted = np.zeros(256, np.bool_)
    is_wanted[[int(kind) for kind in kinds]] = True
    mask = is_wanted[trace.kind]
    return np.flatnonzero(mask if event_mask is None else mask & event_mask).astype(np.int32)


def _build_sheet(
    title: str,
    trace: Trace,
    events: I32,
    row: I64,
    texts: dict[str, list[str]],
    fields: tuple[Field, ...],
    moved: I64 | None = None,
) -> Sheet:
    row_count = len(texts["name"])
    duration = np.asarray(trace.duration[events])
    members, first, sums = group_events(row, row_count, events)
    total = sums(duration)
    least, greatest = compute_extremes(row, row_count, duration)
    medians = [
        compute_duration_statistics(trace.duration[members[begin:end]]).median
        for begin, end in pairwise(first.tolist())
    ]
    columns: dict[str, list[str] | I64 | F64] = {
        **texts,
        "calls": np.diff(first),
        "total": total,
        "share": ratio(total, int(total.sum())),
        "avg": ratio(total, np.diff(first)),
        "median": np.array(medians, np.float64),
        "min": least,
        "max": greatest,
    }
    fields = (*fields, CALLS_FIELD, *_TIME_FIELDS)
    if moved is not None:
        has_bytes = moved > 0
        best_rate = np.zeros(row_count)
        np.maximum.at(best_rate, row[has_bytes], np.nan_to_num(ratio(moved[has_bytes], duration[has_bytes])))
        total_bytes, timed_duration = sums(moved), sums(np.where(has_bytes, duration, 0))
        fields = (*fields, *_BYTE_FIELDS)
        columns |= {
            "bytes": np.where(total_bytes > 0, total_bytes, np.nan),
            "gb_s": ratio(total_bytes, timed_duration),  # bytes per ns = GB per second
            "max_gb_s": np.where(best_rate > 0, best_rate, np.nan),
        }
    moved_bytes = int(moved.sum()) if moved is not None and moved.any() else None
    sums_of_all = WorkTotals(len(events), int(total.sum()), moved_bytes)
    return Sheet(
        title, fields, dict(columns), members, first, sums=sums_of_all, gpu_mask=np.ones(len(first) - 1, np.bool_)
    )
