"""Find how the program of a side runs: eager, compiled, replaying graphs; and whether its set-up was recorded."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.practices import GRAPH_LAUNCH_REGEX
from torchprof_tui.analysis.patterns.rules.host_code import measure_cpu_work
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration, format_part
from torchprof_tui.trace.model.event_kind import Kind

_INDUCTOR_KERNEL = re.compile(r"triton_(poi|per|red|tem|mm|for|unk)_")
"""Kernels that Inductor wrote: pointwise, reductions, templates. Triton kernels written by hand have other names."""

_CAPTURE_REGEX = r"(cuda|hip)(StreamEndCapture|GraphInstantiate)"


@record
class Execution:
    """How the compared steps run. `replays`: launches of graphs a step; `in_graphs`: their GPU work, of all `work`."""

    is_compiled: bool
    replays: float
    in_graphs: float
    work: float

    @property
    def modes(self) -> tuple[bool, bool]:
        """Whether code is compiled, and whether graphs are replayed."""
        return self.is_compiled, self.replays > 0

    @property
    def text(self) -> str:
        """How it runs, such as "torch.compile, CUDA graphs (2 replays a step: 841 of 2,503 kernels)"."""
        words = ["torch.compile"] if self.is_compiled else []
        if self.replays:
            replays = f"{self.replays:.3g} replay{'s' if self.replays != 1 else ''}"
            words.append(f"CUDA graphs ({replays} a step: {self.in_graphs:,.0f} of {self.work:,.0f} kernels)")
        return ", ".join(words) or "eager"


def find_execution(side: SideAnalysis) -> Execution:
    """Find how the compared steps of a side run."""
    launch = side.launches
    in_graphs = launch[is_in(launch, side.checker.tables.practices.graph_launches.row)]
    names = side.trace.names
    is_compiled = side.checker.tables.practices.uses_compile or any(
        _INDUCTOR_KERNEL.match(names[number]) for number in sorted_unique(side.view.work.events.name).tolist()
    )
    count = side.side.step_count
    return Execution(is_compiled, len(sorted_unique(in_graphs)) / count, len(in_graphs) / count, side.work_per_step)


@record
class SetUp:
    """The set-up of a program in what is compared, until `end` (ns). `share`: of the time; `signs`: what shows it."""

    end: int
    share: str
    signs: str


def find_set_up(side: SideAnalysis) -> SetUp | None:
    """Find the set-up of the program in a recording without steps; None where it is less than a quarter of it.

    Signs are what a program does once and first: ops that compute on the CPU before any GPU work, as weights are
    initialised, and graphs that are captured before the first is replayed, with the runs that warm up for them. What
    lies in a step is done in each: a batch that is prepared on the CPU is no set-up.
    """
    view = side.view
    if side.side.steps or not len(view.work):
        return None
    first, last = side.span
    time, ends, signs = 0, [], []
    cpu_work = view.compute_once(measure_cpu_work)
    if cpu_work.is_setup:
        early = cpu_work.ops.select(cpu_work.ops.start < int(side.checker.tables.work.events.start.min()))
        time = union(early.start, early.end).measure_between(first, last)
        ends.append(int(early.end.max()))
        signs.append(f"{cpu_work.text} on the CPU before any GPU work")
    replays = view.match_names(GRAPH_LAUNCH_REGEX, Kind.RUNTIME)
    captures = view.match_names(_CAPTURE_REGEX, Kind.RUNTIME)
    captures = captures.select(captures.start < (replays.start.min() if len(replays) else np.iinfo(np.int64).max))
    if len(captures):
        ends.append(int(captures.end.max()))
        time = ends[-1] - first
        signs.append(f"{'then ' if signs else ''}a graph is captured")
    if time < thresholds.COLD_SHARE.value * (last - first):
        return None
    return SetUp(max(ends), format_part(time, last - first), ", ".join(signs))


def describe_set_up(a: SideAnalysis, b: SideAnalysis) -> str:
    """Describe what set-up in the recording means for the comparison and what to do; "" without any."""
    found = {name: setup for name, setup in (("A", find_set_up(a)), ("B", find_set_up(b))) if setup is not None}
    if not found:
        return ""
    whose = "both recordings cover" if len(found) == 2 else f"{next(iter(found))}'s recording covers"
    shares = ", ".join(setup.share for setup in found.values())
    begins = " and ".join(f"{name} from {format_duration(setup.end)} on" for name, setup in found.items())
    return f"not comparable: {whose} set-up ({shares}); record after it, or compare {begins} (--range)"
