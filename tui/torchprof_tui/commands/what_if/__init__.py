"""Declare the options of `torchprof-tui what-if`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import AsJson, JoinedRank, NoCache, TraceOptions, Traces, option


class WhatIfOptions(TraceOptions):
    description = (
        "Predict how long a step would take with some changes: its dependency graph is replayed with other times, one "
        "step after the other. The error of the unchanged replay comes first. Several ranks are replayed together."
    )
    epilog = """\
scenarios (several --set hold together):
  class=gemm*0.5          kernels of a class take half their time
  op=aten::mm*0.5         an op: its CPU time and the GPU work that it launches
  kernel=TEXT*0           GPU work of this name, or whose name contains the text, takes no time
  event=ROW*0.5           one event of the trace, with what it calls and launches
  cpu=0.5  gpu=0.5  copies=0  collectives=0.5  dataloader=0
  sync=0                  no call waits for the GPU: no .item(), no synchronize
  launch=graph            one launch of a CUDA graph between two blocking calls
  compile                 small kernels that follow each other are merged, and most dispatch is gone
  optimizer=fused         one launch updates all parameters
  collectives=overlapped  nothing but communication waits for communication
  rank=2*0.5  late-rank=0 one of several ranks is faster; the others do not wait for the late one
  pattern=ID              what `check` found is mended
"""

    trace: Traces
    no_cache: NoCache = False
    rank: JoinedRank = None
    set: tuple[str, ...] = option("a change, as below; may be given several times", "SCENARIO", default=())
    step: int | None = option("number of the step (default: the one of median duration)", "N", default=None)
    json: AsJson = False
