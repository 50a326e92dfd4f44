"""The trace doctor: report what a file lost, what was repaired, what is odd though valid, what was not recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import orjson

from torchprof_tui.analysis.completeness.private_metadata import (
    PrivateKind,
    PrivateValue,
    find_private_values,
)
from torchprof_tui.analysis.doctor.missing_recordings import find_missing_recordings
from torchprof_tui.analysis.doctor.oddities import find_oddities
from torchprof_tui.analysis.doctor.read_problems import find_read_problems
from torchprof_tui.analysis.doctor.remark import Diagnosis, Remark, Section
from torchprof_tui.analysis.doctor.validator_rules import find_rule_violations
from torchprof_tui.analysis.graphs.captured_ops import REASON_TEXT, get_captured_ops
from torchprof_tui.analysis.graphs.replay_join import Reason
from torchprof_tui.trace.core.errors import TraceChangedError
from torchprof_tui.trace.core.problems import excerpt
from torchprof_tui.trace.model.trace import Trace

_MAX_READ_BYTES = 4 << 20
"""Larger values of a file (samples, stack tables) are searched when they are copied, not for a remark."""

_MEANINGS = {
    PrivateKind.ENVIRONMENT: "the file holds environment variables of the process, which often contain tokens",
    PrivateKind.SECRET: "the metadata of the file holds what looks like a password or token",
}
_KINDS = {PrivateKind.ENVIRONMENT: "environment variables", PrivateKind.SECRET: "secrets"}
_ACTION = "before you share the file: torchprof-tui export leaves this out, and so does slice"


def find_private_metadata(trace: Trace) -> Iterator[Remark]:
    """Find environment variables and secrets in the metadata of all ranks: one remark of each kind, on keys only."""
    found = [(rank.label_prefix(": "), value) for rank in trace.all_ranks for value in _find_values(rank.trace)]
    for kind in PrivateKind:
        of_kind = [(owner, value) for owner, value in found if value.kind is kind]
        if of_kind:
            owner, first = of_kind[0]
            more = f" and {len(of_kind) - 1} more" if len(of_kind) > 1 else ""
            count = sum(value.count for _, value in of_kind)
            example = excerpt(f"{owner}{first.path}{more}")
            yield Remark(Section.ODD, _KINDS[kind], count, _MEANINGS[kind], example, _ACTION)


def _find_values(trace: Trace) -> Iterator[PrivateValue]:
    yield from find_private_values(trace.header)
    if trace.large_keys is None:
        return
    for key, (_, size, _) in trace.large_keys.spans.items():
        if size <= _MAX_READ_BYTES:
            try:
                yield from find_private_values({key: orjson.loads(trace.large_keys.read_text(key))})
            except (OSError, ValueError, TraceChangedError):  # reported where the value is used
                continue


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


def diagnose_trace(trace: Trace) -> Diagnosis:
    """Collect all remarks on a trace, most severe first.

    Costs a few passes over the columns (50 ms for a million events) and reads one chunk of the text, more where there
    are collectives; opens the captures of a trace that replays graphs.
    """
    remarks = [
        *find_read_problems(trace),
        *find_private_metadata(trace),
        *find_oddities(trace),
        *find_rule_violations(trace),
        *find_missing_recordings(trace),
        *find_graph_remarks(trace),
    ]
    order = list(Section)
    return Diagnosis(sorted(remarks, key=lambda remark: (order.index(remark.section), -remark.count)))
