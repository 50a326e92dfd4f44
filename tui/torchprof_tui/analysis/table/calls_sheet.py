"""Build the profiler's table of a trace, or of one step, as the command line and the Python API show it."""

from __future__ import annotations

from torchprof_tui.analysis.table.event_scope import step_mask
from torchprof_tui.analysis.table.flops import sum_row_flops
from torchprof_tui.analysis.table.not_recorded import NotRecordedError
from torchprof_tui.analysis.table.outside_ops import add_outside_ops
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.serving_columns import add_serving_columns
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.analysis.table.table_sheet import build_table_sheet
from torchprof_tui.analysis.table.trace_profile import Profile
from torchprof_tui.trace.core.arrays import Bool


def build_calls_sheet(profile: Profile, group_by: GroupBy, event_mask: Bool | None, with_flops: bool) -> Sheet:
    """Build the table over all events or those of a mask (bool[n]). Raises NotRecordedError, OSError, LookupError."""
    table, calls = profile.build_table(group_by, event_mask), profile.calls
    sheet = build_table_sheet(table, calls, sum_row_flops(table, calls, profile.flops()) if with_flops else None)
    sheet = add_serving_columns(sheet, group_by, profile.trace, event_mask)
    if event_mask is not None:
        return sheet
    return add_outside_ops(
        sheet, profile.trace, "T in the app shows the frames", "record with --with-stack to see the code"
    )


def find_step_mask(profile: Profile, number: int) -> Bool:
    """Select the events that the step of this number did and launched: bool[n]. Raises NotRecordedError."""
    steps = profile.trace.steps
    for step in steps:
        if step.number == number:
            return step_mask(profile.trace, step, profile.request_times)
    known = f"it has {steps[0].number} to {steps[-1].number}" if steps else "it has none"
    raise NotRecordedError(f"no step {number} in this trace ({known})")
