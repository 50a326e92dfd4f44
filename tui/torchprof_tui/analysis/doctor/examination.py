"""The trace doctor: report what a file lost, what was repaired, what is odd though valid, what was not recorded."""

from __future__ import annotations

from torchprof_tui.analysis.doctor.graph_remarks import find_graph_remarks
from torchprof_tui.analysis.doctor.missing_recordings import find_missing_recordings
from torchprof_tui.analysis.doctor.oddities import find_oddities
from torchprof_tui.analysis.doctor.private_metadata_remarks import find_private_metadata
from torchprof_tui.analysis.doctor.read_problems import find_read_problems
from torchprof_tui.analysis.doctor.remark import Diagnosis, Section
from torchprof_tui.analysis.doctor.validator_rules import find_rule_violations
from torchprof_tui.trace.model.trace import Trace


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
