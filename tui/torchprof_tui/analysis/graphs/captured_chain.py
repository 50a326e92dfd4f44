"""The chain of a replayed kernel in the trace of its capture: Python frames, ops, the call that became a graph node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchprof_tui.analysis.dispatch.chain import ChainFinder, Hop, HopRole
from torchprof_tui.analysis.dispatch.source_line import SourceLine, SourceLineFinder
from torchprof_tui.analysis.graphs.captured_ops import DOUBT_TEXT, CapturedOp, OpSource, get_captured_ops
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace

SOURCE_TEXT = {
    OpSource.CAPTURE: "in the capture",
    OpSource.EAGER: "in the eager run",
    OpSource.ANNOTATIONS: "in the annotation of the graph node",
}
"""Where the op of a replayed kernel was found."""


@dataclass(frozen=True, slots=True)
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
    return ops.find_reason(event) if op is None else _build_chain(op)


def _build_chain(op: CapturedOp) -> CapturedChain:
    if op.trace is None:
        return CapturedChain(op, (), None, [], [])
    chain = ChainFinder(op.trace).find_chain(op.launch)
    hops = tuple(hop for hop in chain.hops if hop.role is not HopRole.GPU)
    args = _read_args(op.trace, op.op)
    dims, types = args.get("Input Dims"), args.get("Input type")
    return CapturedChain(
        op,
        hops,
        SourceLineFinder(op.trace).find_line(op.launch),
        dims if isinstance(dims, list) else [],
        types if isinstance(types, list) else [],
    )


def _read_args(trace: Trace, event: int) -> dict[str, Any]:
    """Read the args of an op; {} for none, and where its file can no longer be read."""
    if event < 0:
        return {}
    try:
        return trace.event(event).read_args()
    except (OSError, LookupError):
        return {}
