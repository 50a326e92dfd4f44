"""Build the JSON document of `critical-path --json`."""

from __future__ import annotations

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath
from torchprof_tui.analysis.rank_path.joined_path import list_rank_changes
from torchprof_tui.commands.common.partial_input import build_partial
from torchprof_tui.commands.critical_path.records import (
    CriticalPathDocument,
    OffPathRecord,
    PathEventRecord,
    RankChangeRecord,
    RankShareRecord,
    SegmentRecord,
)
from torchprof_tui.trace.model.trace import Trace

_NS_PER_US = 1000


def build_document(trace: Trace, path: CriticalPath, top: int, rank: int | None) -> CriticalPathDocument:
    """Build the document of a critical path; `rank`: number of the rank whose trace it is, None for all ranks."""
    window, ranks = path.window, trace.merged_ranks
    events = []
    for each in path.find_longest(top):
        event = trace.event(each.event)
        events.append(
            PathEventRecord(
                name=event.name,
                start_ns=event.start,
                duration_ns=event.duration,
                on_path_ns=each.time,
                lane=event.lane.label,
                rank=rank if ranks is None else ranks.rank_of_event(each.event).number,
            )
        )
    return CriticalPathDocument(
        step=None if window.step is None else window.step.name,
        start_ns=window.start,
        step_us=((window.end if window.is_range else window.cpu_end) - window.start) / _NS_PER_US,
        duration_us=path.duration / _NS_PER_US,
        replay_us=path.replayed / _NS_PER_US,
        replay_error=path.replay_error,
        inferred=path.inferred,
        missing=list(path.missing),
        advice=path.advice or None,
        segments=[
            SegmentRecord(kind=each.label, us=each.time / _NS_PER_US, share=each.share, count=each.count)
            for each in path.shares
        ],
        ranks=[
            RankShareRecord(rank=each.rank, us=each.time / _NS_PER_US, share=each.share, count=each.count)
            for each in path.rank_shares
        ],
        rank_changes=[
            RankChangeRecord(
                at_ns=each.time,
                before=each.before,
                after=each.after,
                name=trace.event(each.event).name if each.event >= 0 else None,
            )
            for each in list_rank_changes(path)
        ]
        if path.rank_shares
        else [],
        events=events,
        off_path=[
            OffPathRecord(
                name=trace.names[each.name],
                count=each.count,
                us=each.time / _NS_PER_US,
                slack_us=each.slack / _NS_PER_US,
            )
            for each in path.sum_off_path(trace, top)
        ],
        partial=build_partial(trace),
    )
