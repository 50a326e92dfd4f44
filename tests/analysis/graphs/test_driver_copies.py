"""A decode recorded on an H200 with torch 2.11 and CUDA 13, whose graph holds the driver's kernel for small copies.

`memcpy32_post` takes the place of the copy engine in a replay: it must join the `Memcpy DtoD` of a capture and of an
eager run, or the two orders differ and nothing of the graph is known.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.paths import FIXTURES, SAMPLES
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps, build_captured_ops
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace

GRAPH = SAMPLES / "generate_graph.pt.trace.json.gz"
CAPTURES = {
    "the capture": FIXTURES / "serving" / "generate_graph_capture.json.gz",
    "an eager run": SAMPLES / "generate_eager.pt.trace.json.gz",
}


def join(path: Path) -> tuple[Trace, CapturedOps]:
    trace = load_trace(str(GRAPH), cache=False)
    ops = build_captured_ops(trace, (load_trace(str(path), cache=False),))
    return trace, ops


@pytest.mark.parametrize("source", CAPTURES)
def test_every_kernel_and_copy_of_the_replays_has_an_op(source: str) -> None:
    _, ops = join(CAPTURES[source])
    assert ops.matched_count == len(ops.replays.work) == 1_128


def test_capture_and_eager_run_give_the_same_ops() -> None:
    counts = []
    for path in CAPTURES.values():
        trace, ops = join(path)
        found = [(ops.find_op(trace, event), trace.event(event).name) for event in ops.replays.work.tolist()]
        counts.append(Counter((op.op_name, name) for op, name in found if op is not None))
    assert counts[0] == counts[1]
    assert sum(count for (op, name), count in counts[0].items() if "memcpy32" in name and op == "aten::copy_") > 0
