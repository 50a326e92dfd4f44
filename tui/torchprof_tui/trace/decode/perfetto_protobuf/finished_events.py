"""Complete the columns of a Perfetto trace, once all of its packets are known."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.decode.perfetto_protobuf.event_codes import TRACK_MARK
from torchprof_tui.trace.decode.perfetto_protobuf.slice_pairs import pair_by_order
from torchprof_tui.trace.model.raw_events import RawEvents, SparseArg
from torchprof_tui.trace.perfetto_protobuf.packet_entries import PROFILER_CATEGORY, PROFILER_PID
from torchprof_tui.trace.perfetto_protobuf.track_table import ResolvedTracks


def name_tracks(events: RawEvents, resolved: ResolvedTracks) -> None:
    """Replace the numbers of tracks by pids and tids; events of CUPTI's overhead get their category."""
    codes: dict[tuple[str, str], int] = {}
    names = [_find_ids(pid, tid, resolved) for pid, tid in events.tracks]
    new_code = np.array([codes.setdefault(name, len(codes)) for name in names], np.int32)
    events.tracks = list(codes)
    if len(new_code):
        events.track = new_code[events.track]
    profiler = [code for name, code in codes.items() if name[0] == PROFILER_PID]
    if profiler and "" in events.categories:
        rows = np.isin(events.track, profiler) & (events.category == events.categories.index(""))
        rows &= np.isin(events.phase, [ord(phase) for phase in "BEi"])
        if rows.any():
            if PROFILER_CATEGORY not in events.categories:
                events.categories.append(PROFILER_CATEGORY)
            events.category[rows] = events.categories.index(PROFILER_CATEGORY)


def _find_ids(pid: str, tid: str, resolved: ResolvedTracks) -> tuple[str, str]:
    """Find the pid and tid of a track; of points of counters, which have no tid, only the pid."""
    if not pid.startswith(TRACK_MARK):
        return pid, tid
    ids = resolved.find_ids(int(pid.removeprefix(TRACK_MARK)))
    return ids if tid else (ids[0], "")


def drop_paired_ends(events: RawEvents) -> Bool | None:
    """Make complete events of the begins and ends that `pair_by_order` finds, and drop the ends.

    Returns bool[entries before]: those that are kept; None where nothing was dropped.
    """
    pairs = pair_by_order(events.phase, events.time, events.track)
    if pairs is None:
        return None
    begin, end = pairs
    events.duration[begin] = events.time[end] - events.time[begin]
    events.phase[begin] = ord("X")
    kept = np.ones(len(events), np.bool_)
    kept[end] = False
    index = np.cumsum(kept, dtype=np.int64) - 1
    for column in ("phase", "time", "duration", "name", "category", "track", "correlation", "id"):
        setattr(events, column, getattr(events, column)[kept])
    for name, arg in events.args.items():
        chosen = kept[arg.entries]
        events.args[name] = SparseArg(index[arg.entries[chosen]].astype(np.int32), arg.values[chosen])
    events.counters.entry = index[events.counters.entry].astype(np.int32)
    return kept
