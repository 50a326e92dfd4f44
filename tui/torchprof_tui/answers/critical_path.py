"""The answer of `critical-path`: what limits a step."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath as FoundPath
from torchprof_tui.analysis.rank_path.joined_path import list_rank_changes
from torchprof_tui.answers.losses import Problem, build_losses
from torchprof_tui.answers.record import Answer, Record, about, fill
from torchprof_tui.trace.model.trace import Trace


class PathSegment(Record, frozen=True, kw_only=True):
    """Time of one kind on the path."""

    kind: Annotated[
        str,
        about(
            'dispatch, launch, host code, "kernel: gemm", collective, "waiting for rank 2", GPU queue, unattributed, …'
        ),
    ]
    us: Annotated[float, about("on the path; all kinds sum to duration_us")]
    share: Annotated[float, about("of duration_us")]
    count: Annotated[int, about("pieces of the path", "")]


class RankShare(Record, frozen=True, kw_only=True):
    """Time of one rank on the path of all."""

    rank: Annotated[int, about("number of the rank")]
    us: Annotated[float, about("on the path; all ranks sum to duration_us")]
    share: Annotated[float, about("of duration_us")]
    count: Annotated[int, about("stretches of the path", "")]


class PathRankChange(Record, frozen=True, kw_only=True):
    """A place where the path goes on with another rank: one that had waited for it in a collective."""

    at_ns: Annotated[int, about("from the trace's first event")]
    before: Annotated[int, about("number of the rank until then: the last one to come", "")]
    after: Annotated[int, about("number of the rank from then on: the one that had waited", "")]
    name: Annotated[str | None, about("the collective, as recorded")]


class PathEvent(Record, frozen=True, kw_only=True):
    """An event on the path."""

    name: Annotated[str, about("as recorded")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("as recorded, with what it calls")]
    on_path_ns: Annotated[int, about("of its own time on the path")]
    lane: Annotated[str, about("thread or stream")]
    rank: Annotated[int | None, about("number of its rank; null where the file names none")]


class OffPath(Record, frozen=True, kw_only=True):
    """GPU work of one name that is not on the path."""

    name: Annotated[str, about("as recorded")]
    count: Annotated[int, about("pieces of work off the path")]
    us: Annotated[float, about("their time")]
    slack_us: Annotated[float, about("how much later each of them could end without a longer step: the least of them")]


class CriticalPath(Answer, frozen=True, kw_only=True, tag="torchprof-tui/critical-path/2"):
    """What limits a step, of several ranks of all of them: then it begins on one rank and ends on the last one."""

    step: Annotated[str | None, about("name of the step; null: a range, or the whole recording")]
    start_ns: Annotated[int, about("of the step on its CPU thread, or of the range, from the trace's first event")]
    begin_ns: Annotated[
        int, about("where duration_us and the path begin: at start_ns, or when all launched before it has ended")
    ]
    step_us: Annotated[float, about("the step on its CPU thread, or the range")]
    duration_us: Annotated[float, about("from begin_ns until the last GPU work that it launched has ended")]
    replay_us: Annotated[float, about("the duration that the unchanged dependency graph predicts")]
    replay_error: Annotated[
        float, about("(replay_us - duration_us) / duration_us: below 0 where waits are unexplained")
    ]
    inferred: Annotated[int, about("dependencies on the path that were inferred from order and times, not recorded")]
    missing: Annotated[list[str], about("where the graph lacks dependencies; [] while that is under 5 % of the step")]
    advice: Annotated[str | None, about("what to record to have them; null for nothing")]
    segments: Annotated[list[PathSegment], about("the path by kind, longest first")]
    ranks: Annotated[list[RankShare], about("the path of all ranks by rank, longest first; [] for one rank")]
    rank_changes: Annotated[list[PathRankChange], about("where the path of all ranks changes rank; [] for one rank")]
    events: Annotated[list[PathEvent], about("events with most time on the path, as many as --top")]
    off_path: Annotated[list[OffPath], about("GPU work off the path by name, most time first, as many as --top")]
    partial: Annotated[list[Problem], about("what was lost of the whole trace; [] for nothing")]


def build_critical_path(trace: Trace, path: FoundPath, top: int, rank: int | None) -> CriticalPath:
    """Build the document of a critical path; `rank`: number of the rank whose trace it is, None for all ranks."""
    window, ranks = path.window, trace.merged_ranks
    events = []
    for each in path.find_longest(top):
        event = trace.event(each.event)
        events.append(
            fill(
                PathEvent,
                event,
                on_path_ns=each.time,
                lane=event.lane.label,
                rank=rank if ranks is None else ranks.rank_of_event(each.event).number,
            )
        )
    return fill(
        CriticalPath,
        path,
        step=None if window.step is None else window.step.name,
        start_ns=window.start,
        begin_ns=window.begin,
        step_us=((window.end if window.is_range else window.cpu_end) - window.start) / 1000,
        replay_us=path.replayed / 1000,
        missing=list(path.missing),
        advice=path.advice or None,
        segments=[fill(PathSegment, each, kind=each.label, us=each.time / 1000) for each in path.shares],
        ranks=[fill(RankShare, each, us=each.time / 1000) for each in path.rank_shares],
        rank_changes=[
            fill(PathRankChange, each, at_ns=each.time, name=trace.event(each.event).name if each.event >= 0 else None)
            for each in list_rank_changes(path)
        ]
        if path.rank_shares
        else [],
        events=events,
        off_path=[
            fill(OffPath, each, name=trace.names[each.name], us=each.time / 1000)
            for each in path.sum_off_path(trace, top)
        ],
        partial=build_losses(trace),
    )
