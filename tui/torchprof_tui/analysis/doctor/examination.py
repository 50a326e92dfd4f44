"""All that the doctor says, worst first."""

from __future__ import annotations

from torchprof_tui.analysis.doctor.missing_recordings import find_missing_recordings
from torchprof_tui.analysis.doctor.oddities import find_oddities
from torchprof_tui.analysis.doctor.read_problems import find_read_problems
from torchprof_tui.analysis.doctor.remark import Diagnosis, Section
from torchprof_tui.trace.model.trace import Trace


def diagnose_trace(trace: Trace) -> Diagnosis:
    """Look through a trace: a few passes over its columns (50 ms for a million events), and one chunk of its text."""
    remarks = [*find_read_problems(trace), *find_oddities(trace), *find_missing_recordings(trace)]
    order = list(Section)
    return Diagnosis(sorted(remarks, key=lambda remark: (order.index(remark.section), -remark.count)))
