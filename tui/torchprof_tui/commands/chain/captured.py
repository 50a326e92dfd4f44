"""Build the JSON of a replayed kernel's op in the capture."""

from __future__ import annotations

from torchprof_tui.analysis.graphs.captured_chain import CapturedChain
from torchprof_tui.analysis.graphs.captured_ops import OpSource
from torchprof_tui.commands.chain.records import CapturedRecord, HopRecord, LineSourceRecord


def build_captured(captured: CapturedChain | str | None) -> CapturedRecord | None:
    """Build the JSON of a captured chain, or of the reason why there is none; None for work of no replay.

    Times in ns, starts from the first event of the capture.
    """
    if captured is None:
        return None
    if isinstance(captured, str):
        return CapturedRecord(source=OpSource.NONE, reason=captured)
    op = captured.op
    return CapturedRecord(
        source=op.source,
        trace=None if op.trace is None else op.trace.label,
        op=op.op_name,
        annotation=op.annotation or None,
        input_shapes=captured.input_dims,
        input_types=captured.input_types,
        note=captured.doubt,
        chain=[
            HopRecord(
                role=hop.role,
                name=hop.name,
                start_ns=hop.start,
                duration_ns=hop.duration,
                self_ns=hop.self_duration,
            )
            for hop in captured.hops
        ],
        line=captured.line.location if captured.line is not None else None,
        line_source=LineSourceRecord(**captured.line.as_dict()) if captured.line is not None else None,
    )
