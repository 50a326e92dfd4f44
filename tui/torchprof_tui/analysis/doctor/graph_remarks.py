"""Report replayed kernels whose op is unknown, and captures that could not be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torchprof_tui.analysis.doctor.remark import Remark, Section
from torchprof_tui.analysis.graphs.captured_ops import REASON_TEXT, get_captured_ops
from torchprof_tui.analysis.graphs.replay_join import Reason
from torchprof_tui.trace.model.trace import Trace

_CAPTURE_ACTION = "record the capture as well, or the same model without the graph, and name that trace with --capture"
_THREADS_REASON = REASON_TEXT[Reason.NO_OPS_OF_THREAD]
_THREADS_ACTION = "record the capture again with the ops of all threads: torchprof-tui run --capture"


def find_graph_remarks(trace: Trace) -> Iterator[Remark]:
    """Report on the replays of graphs, over all ranks; nothing for a trace without any. Opens the captures."""
    unknown: Counter[str] = Counter()
    first_event = -1
    problems: list[str] = []
    for rank in trace.all_ranks:
        ops = get_captured_ops(rank.trace)
        if ops is None:
            continue
        unknown.update({REASON_TEXT[reason]: count for reason, count in ops.count_reasons().items()})
        if first_event < 0 and ops.first_unmatched >= 0:
            first_event = rank.first + ops.first_unmatched
        if rank.trace.captures is not None:
            problems += rank.trace.captures.problems
    if problems:
        yield Remark(
            Section.ODD,
            "capture",
            len(problems),
            "a trace of a graph's capture could not be used; the rest of the trace is complete",
            problems[0],
            "name another one with --capture",
        )
    if unknown:
        yield Remark(
            Section.MISSING,
            "ops of replays",
            unknown.total(),
            "kernels of graph replays whose op, shapes and lines are unknown",
            next(reason for reason, _ in unknown.most_common(1)),
            _THREADS_ACTION if unknown.most_common(1)[0][0] == _THREADS_REASON else _CAPTURE_ACTION,
            first_event,
        )
