"""Build the JSON of a replayed kernel's op in the capture."""

from __future__ import annotations

from typing import Any

from torchprof_tui.analysis.graphs.captured_chain import CapturedChain


def captured_as_json(captured: CapturedChain | str | None) -> dict[str, Any] | None:
    """Build the JSON of a captured chain, or of the reason why there is none; None for work of no replay.

    Times in ns, starts from the first event of the capture.
    """
    if captured is None:
        return None
    if isinstance(captured, str):
        return {"source": "none", "reason": captured}
    op = captured.op
    return {
        "source": op.source.value,
        "trace": None if op.trace is None else op.trace.label,
        "op": op.op_name,
        "annotation": op.annotation or None,
        "input_shapes": captured.input_dims,
        "input_types": captured.input_types,
        "note": captured.doubt,
        "chain": [
            {
                "role": hop.role.value,
                "name": hop.name,
                "start_ns": hop.start,
                "duration_ns": hop.duration,
                "self_ns": hop.self_duration,
            }
            for hop in captured.hops
        ],
        "line": captured.line.location if captured.line is not None else None,
        "line_source": captured.line.as_dict() if captured.line is not None else None,
    }
