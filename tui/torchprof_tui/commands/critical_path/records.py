"""The records of `critical-path --json`."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.commands.common.json_document import Document, Record, about
from torchprof_tui.commands.common.partial_input import ProblemRecord


class SegmentRecord(Record, frozen=True, kw_only=True):
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


class RankShareRecord(Record, frozen=True, kw_only=True):
    """Time of one rank on the path of all."""

    rank: Annotated[int, about("number of the rank")]
    us: Annotated[float, about("on the path; all ranks sum to duration_us")]
    share: Annotated[float, about("of duration_us")]
    count: Annotated[int, about("stretches of the path", "")]


class RankChangeRecord(Record, frozen=True, kw_only=True):
    """A place where the path goes on with another rank: one that had waited for it in a collective."""

    at_ns: Annotated[int, about("from the trace's first event")]
    before: Annotated[int, about("number of the rank until then: the last one to come", "")]
    after: Annotated[int, about("number of the rank from then on: the one that had waited", "")]
    name: Annotated[str | None, about("the collective, as recorded")]


class PathEventRecord(Record, frozen=True, kw_only=True):
    """An event on the path."""

    name: Annotated[str, about("as recorded")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("as recorded, with what it calls")]
    on_path_ns: Annotated[int, about("of its own time on the path")]
    lane: Annotated[str, about("thread or stream")]
    rank: Annotated[int | None, about("number of its rank; null where the file names none")]


class OffPathRecord(Record, frozen=True, kw_only=True):
    """GPU work of one name that is not on the path."""

    name: Annotated[str, about("as recorded")]
    count: Annotated[int, about("pieces of work off the path")]
    us: Annotated[float, about("their time")]
    slack_us: Annotated[float, about("how much later each of them could end without a longer step: the least of them")]


class CriticalPathDocument(Document, frozen=True, kw_only=True, tag="torchprof-tui/critical-path/1"):
    """What limits a step, of several ranks of all of them: then it begins on one rank and ends on the last one."""

    step: Annotated[str | None, about("name of the step; null: a range, or the whole recording")]
    start_ns: Annotated[int, about("of the step or the range, from the trace's first event")]
    step_us: Annotated[float, about("the step on its CPU thread, or the range")]
    duration_us: Annotated[float, about("from its start until the last GPU work that it launched has ended")]
    replay_us: Annotated[float, about("the duration that the unchanged dependency graph predicts")]
    replay_error: Annotated[
        float, about("(replay_us - duration_us) / duration_us: below 0 where waits are unexplained")
    ]
    inferred: Annotated[int, about("dependencies on the path that were inferred from order and times, not recorded")]
    missing: Annotated[list[str], about("where the graph lacks dependencies; [] while that is under 5 % of the step")]
    advice: Annotated[str | None, about("what to record to have them; null for nothing")]
    segments: Annotated[list[SegmentRecord], about("the path by kind, longest first")]
    ranks: Annotated[list[RankShareRecord], about("the path of all ranks by rank, longest first; [] for one rank")]
    rank_changes: Annotated[list[RankChangeRecord], about("where the path of all ranks changes rank; [] for one rank")]
    events: Annotated[list[PathEventRecord], about("events with most time on the path, as many as --top")]
    off_path: Annotated[list[OffPathRecord], about("GPU work off the path by name, most time first, as many as --top")]
    partial: Annotated[list[ProblemRecord], about("what was lost of the whole trace; [] for nothing")]
