"""The ops that were captured for the kernels of replays, joined once for a trace and kept with it.

`mark_kernels("name")` and `mark_kernels({...})` tag the nodes of a graph while it is captured; the exported trace has
the fields of the annotation in the args of each kernel with that `graph node id` (docs: torch.cuda.graph_annotations).
The chain of a replayed kernel is that in the trace of its capture: Python frames, ops, the call that became a node.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor_or_self
from torchprof_tui.analysis.dispatch.chain import ChainFinder, Hop, HopRole
from torchprof_tui.analysis.dispatch.source_line import SourceLine, SourceLineFinder
from torchprof_tui.analysis.graphs.node_matching import Doubt
from torchprof_tui.analysis.graphs.replay_join import (
    Join,
    Reason,
    Replays,
    find_graph_launches,
    find_replays,
    join_replays,
)
from torchprof_tui.analysis.search.name_search import OP_LABELS, EventLabels
from torchprof_tui.trace.core.arrays import I32, I64, U8
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

_LABEL_KEYS = ("module_fqn", "name", "str")  # fields that name what a node belongs to, the most precise first


@record
class NodeAnnotations:
    """`index` int32[W]: into `texts` for each piece of replayed work; 0 stands for none."""

    index: I32
    texts: tuple[str, ...]


def read_node_annotations(trace: Trace, replays: Replays) -> NodeAnnotations:
    """Read the annotation of each graph node from one of its kernels. Only traces with graph node ids have any."""
    index = np.zeros(len(replays.work), np.int32)
    column = trace.args.get("graph_node")
    if column is None:
        return NodeAnnotations(index, ("",))
    node = column.values_at(replays.work, 0).astype(np.int64)
    nodes, first, inverse = np.unique(node, return_index=True, return_inverse=True)
    texts = {"": 0}
    text_of_node = np.zeros(len(nodes), np.int32)
    with contextlib.suppress(OSError, LookupError):  # the file is gone or has changed
        for position, entry in read_entries(trace, replays.work[first]):
            if nodes[position] > 0:
                args = entry.get("args")
                labels = [args.get(key) for key in _LABEL_KEYS] if isinstance(args, dict) else []
                text = next((label for label in labels if isinstance(label, str) and label), "")
                text_of_node[position] = texts.setdefault(text, len(texts))
    return NodeAnnotations(text_of_node[inverse].astype(np.int32), tuple(texts))


class OpSource(TextEnum):
    """Where the op of a replayed kernel is known from; the values are part of the command line's JSON."""

    CAPTURE = "capture"
    EAGER = "eager"
    ANNOTATIONS = "annotations"
    NONE = "none"


REASON_TEXT = {
    Reason.NO_CAPTURE: "no trace of its capture was found; name one with --capture, or put it into capture_traces/ "
    "beside the trace",
    Reason.OTHER_KERNELS: "no capture has these kernels in this order",
    Reason.NOT_IN_CAPTURE: "the capture has no such kernel at this place",
    Reason.SEVERAL_STREAMS: "several streams ran at once, and the capture does not name its kernels",
    Reason.TOO_MANY: "too many different replays: this one was not compared",
    Reason.SEVERAL_CAPTURES: "several captures fit equally well; name one with --capture",
    Reason.NO_OPS_OF_THREAD: "the ops of the thread that captured it were not recorded: profile_all_threads=True "
    "(torchprof-tui run sets it)",
}
"""Why a kernel has no op, for people."""

DOUBT_TEXT = {
    Doubt.OTHER_GRID: "the kernel's grid was another one there: its shapes may differ",
    Doubt.OTHER_NAME: "another kernel of the same kind was used there: its shapes may differ",
    Doubt.OTHER_CAPTURE: "another capture fits as well: its shapes may differ",
    Doubt.OTHER_CALL: "the same kernels occur several times there: it may be another of those calls",
}
"""Why the shapes of an op may be others, for people."""


@record
class CapturedOp:
    """The op of one replayed kernel. `trace`: that of the capture, None where only an annotation is known.

    `launch`, `op`: rows of that trace, -1 for none. `doubt`: why its shapes may be others. `annotation`: of the node in
    the trace itself, "" for none.
    """

    source: OpSource
    trace: Trace | None
    launch: int
    op: int
    doubt: Doubt
    annotation: str

    @property
    def op_name(self) -> str:
        """Name of the captured op, else of the call."""
        if self.trace is None:
            return self.annotation
        return self.trace.event(self.op if self.op >= 0 else self.launch).name


@record(slots=False)
class CapturedOps:
    """The W pieces of work of all replays, and what was captured for each.

    `join.capture` int32[W]: index into `captures`, their number for the trace itself (which is not kept here: a cycle
    would keep its mapped columns until a collection), -1 for none. `join.launch` int32[W]: the captured call, `op`
    int32[W]: the innermost op around it; rows of that capture's trace, -1 for none. `join.reason` uint8[W]: a `Reason`,
    MATCHED for work with a launch or an annotation. `reason` uint8[W]: the same, but NO_OPS_OF_THREAD where the launch
    is known and its op is not, because no op of its thread was recorded.
    """

    replays: Replays
    captures: tuple[Trace, ...]
    join: Join
    op: I32
    reason: U8
    annotations: NodeAnnotations
    _order: I64
    _sorted_work: I32

    def find_index(self, event: int) -> int:
        """Find the index of an event in the columns, -1 if it is no work of a replay."""
        index = int(np.searchsorted(self._sorted_work, np.int32(event)))
        if index == len(self._sorted_work) or self._sorted_work[index] != event:
            return -1
        return int(self._order[index])

    def find_op(self, trace: Trace, event: int) -> CapturedOp | None:
        """Find the op of an event of `trace`; None where it has none or is no work of a replay."""
        index = self.find_index(event)
        if index < 0 or self.join.reason[index] != Reason.MATCHED:
            return None
        capture = int(self.join.capture[index])
        annotation = self.annotations.texts[int(self.annotations.index[index])]
        if capture < 0:
            return CapturedOp(OpSource.ANNOTATIONS, None, -1, -1, Doubt.NONE, annotation)
        source = OpSource.EAGER if self.join.is_eager[index] else OpSource.CAPTURE
        launch, doubt = int(self.join.launch[index]), Doubt(int(self.join.doubt[index]))
        return CapturedOp(source, self.source_trace(trace, capture), launch, int(self.op[index]), doubt, annotation)

    def source_trace(self, trace: Trace, capture: int) -> Trace:
        """Return the trace that an index in `join.capture` stands for."""
        return self.captures[capture] if capture < len(self.captures) else trace

    def label_events(self, trace: Trace) -> EventLabels:
        """Label the replayed work of `trace` with the names of its captured ops."""
        texts: dict[str, int] = {}
        label = np.full(len(self.op), -1, np.int32)
        for capture in range(len(self.captures) + 1):
            chosen = np.flatnonzero((self.join.capture == capture) & (self.op >= 0))
            source = self.source_trace(trace, capture)
            names, inverse = np.unique(source.name[self.op[chosen]], return_inverse=True)
            numbers = [texts.setdefault(source.names[name], len(texts)) for name in names.tolist()]
            label[chosen] = np.array(numbers, np.int32)[inverse]
        known = np.flatnonzero(label >= 0)
        return EventLabels(self.replays.work[known], label[known], list(texts))

    def find_reason(self, event: int) -> str:
        """Say why a replayed kernel has no op; "" where it has one, or is no work of a replay."""
        index = self.find_index(event)
        return "" if index < 0 else REASON_TEXT.get(Reason(int(self.reason[index])), "")

    @property
    def source(self) -> OpSource:
        """The source of most ops."""
        matched = self.join.reason == Reason.MATCHED
        if not matched.any():
            return OpSource.NONE
        from_capture = matched & (self.join.capture >= 0)
        if 2 * np.count_nonzero(from_capture) < np.count_nonzero(matched):
            return OpSource.ANNOTATIONS
        return OpSource.EAGER if self.join.is_eager[from_capture].mean() > 0.5 else OpSource.CAPTURE

    @property
    def matched_count(self) -> int:
        """Pieces of replayed work whose op is known."""
        return int(np.count_nonzero(self.reason == Reason.MATCHED))

    @property
    def first_unmatched(self) -> int:
        """The first event without an op, in the order of the columns; -1 for none."""
        unmatched = np.flatnonzero(self.reason != Reason.MATCHED)
        return int(self.replays.work[unmatched[0]]) if len(unmatched) else -1

    def count_reasons(self) -> dict[Reason, int]:
        """Count the pieces of work without an op by reason, most first."""
        counts = Counter(self.reason[self.reason != Reason.MATCHED].tolist())
        return {Reason(reason): count for reason, count in counts.most_common()}

    def count_doubts(self) -> dict[Doubt, int]:
        """Count the pieces of work with an op whose shapes are uncertain, by the cause, most first."""
        counts = Counter(self.join.doubt[self.join.doubt != Doubt.NONE].tolist())
        return {Doubt(doubt): count for doubt, count in counts.most_common()}


def build_captured_ops(trace: Trace, captures: Sequence[Trace]) -> CapturedOps:
    """Join all replays of a trace with these captures, and with those in the trace itself."""
    replays = find_replays(trace)
    annotations = read_node_annotations(trace, replays)
    sources = (*captures, trace)
    join = join_replays(trace, replays, sources, own_index=len(captures))
    is_annotated = annotations.index > 0
    join.reason[is_annotated] = Reason.MATCHED
    op = np.full(len(replays.work), -1, np.int32)
    reason = join.reason.copy()
    for index, source in enumerate(sources):
        chosen = np.flatnonzero(join.capture == index)
        if len(chosen):
            is_op = source.kind == Kind.OP
            launch = join.launch[chosen]
            op[chosen] = find_nearest_ancestor_or_self(source.parent, is_op)[launch]
            is_op_lane = np.bincount(source.lane[is_op], minlength=len(source.lanes)) > 0
            has_none = ~is_op_lane[source.lane[launch]] & ~is_annotated[chosen]
            reason[chosen[has_none]] = Reason.NO_OPS_OF_THREAD
    order = np.argsort(replays.work, kind="stable")
    return CapturedOps(replays, tuple(captures), join, op, reason, annotations, order, replays.work[order])


_LOCK = threading.RLock()
_KEY = "captured ops"


def get_captured_ops(trace: Trace) -> CapturedOps | None:
    """Return the captured ops of a trace, None where it has no replays. The first call opens the captures.

    Blocks for as long as that takes: call it in a thread where a screen waits. The answer is kept with the trace.
    """
    with _LOCK:
        if _KEY not in trace.derived:
            answer = None
            if len(find_graph_launches(trace)):
                captures = () if trace.captures is None else trace.captures.open_traces(trace)
                answer = build_captured_ops(trace, captures)
            trace.derived[_KEY] = answer
            if answer is not None:
                trace.derived[OP_LABELS] = answer.label_events(trace)
        kept = trace.derived[_KEY]
        assert kept is None or isinstance(kept, CapturedOps)
        return kept


def is_ready(trace: Trace) -> bool:
    """Tell whether `get_captured_ops` answers at once."""
    return _KEY in trace.derived


SOURCE_TEXT = {
    OpSource.CAPTURE: "in the capture",
    OpSource.EAGER: "in the eager run",
    OpSource.ANNOTATIONS: "in the annotation of the graph node",
}
"""Where the op of a replayed kernel was found."""


@record
class CapturedChain:
    """The op of a replayed kernel with its chain in the capture, outermost hop first; [] for an annotation alone.

    `hops` are rows of `op.trace`. `line`: the line of the program that was captured. `input_dims`, `input_types`: of
    the op, [] where they are not recorded.
    """

    op: CapturedOp
    hops: tuple[Hop, ...]
    line: SourceLine | None
    input_dims: list[Any]
    input_types: list[Any]

    @property
    def doubt(self) -> str:
        """Why the shapes may be others in the replay, "" for no reason."""
        return DOUBT_TEXT.get(self.op.doubt, "")


def find_captured_chain(trace: Trace, event: int) -> CapturedChain | str | None:
    """Find the captured chain of a replayed kernel, or the reason why there is none; None for all other events.

    The first call for a trace opens its captures, which blocks.
    """
    if Kind(int(trace.kind[event])) not in GPU_WORK:
        return None
    ops = get_captured_ops(trace)
    if ops is None or ops.find_index(event) < 0:
        return None
    op = ops.find_op(trace, event)
    if op is None:
        return ops.find_reason(event)
    if op.trace is None:
        return CapturedChain(op, (), None, [], [])
    chain = ChainFinder(op.trace).find_chain(op.launch)
    hops = tuple(hop for hop in chain.hops if hop.role is not HopRole.GPU)
    args: dict[str, Any] = {}
    if op.op >= 0:
        with contextlib.suppress(OSError, LookupError):  # its file can no longer be read
            args = op.trace.event(op.op).read_args()
    dims, types = args.get("Input Dims"), args.get("Input type")
    return CapturedChain(
        op,
        hops,
        SourceLineFinder(op.trace).find_line(op.launch),
        dims if isinstance(dims, list) else [],
        types if isinstance(types, list) else [],
    )
