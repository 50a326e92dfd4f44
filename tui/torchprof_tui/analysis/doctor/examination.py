"""All that the doctor says, worst first."""

from __future__ import annotations

from torchprof_tui.analysis.doctor.missing_recordings import not_recorded
from torchprof_tui.analysis.doctor.oddities import odd_though_valid
from torchprof_tui.analysis.doctor.read_problems import found_while_reading
from torchprof_tui.analysis.doctor.remark import Diagnosis, Section
from torchprof_tui.trace.model.trace import Trace


def examined(trace: Trace) -> Diagnosis:
    """Look through a trace: a few passes over its columns (50 ms for a million events), and one chunk of its text."""
    remarks = [*found_while_reading(trace), *odd_though_valid(trace), *not_recorded(trace)]
    order = list(Section)
    return Diagnosis(sorted(remarks, key=lambda remark: (order.index(remark.section), -remark.count)))
