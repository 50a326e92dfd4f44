"""Find the section of the program in which the GPU's idle time of one cause changed between two recordings.

A section is what the program marks with an annotation on its main thread, such as "forward" or "Optimizer.step": idle
time counts to all that are open there at that moment, whichever thread launches. So time that autograd's thread takes
belongs to "backward".
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine.host_code_time import find_main_thread
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import I64, sorted_unique

MIN_SHARE = 0.5
"""Share of the part's change that a section must have to be named: with less, the change is not of one place."""

NESTED_SHARE = 0.9
"""Share of the largest change that a section inside that one must have to be named in its place."""

MAX_NAMES = 500
"""Annotations of more names than these are not sections of a step but numbered items."""


def find_changed_section(a: SideAnalysis, b: SideAnalysis, cause: IdleCause) -> str | None:
    """Find the section with most of the change of a cause's idle time; None where no section has most of it.

    Sections inside each other have about the same change: of those with nearly the largest one the innermost is
    returned, which is that with the least idle time.
    """
    total_a, of_a = _measure_sections(a, cause)
    total_b, of_b = _measure_sections(b, cause)
    change = total_b - total_a
    if not change:
        return None
    shares = {name: (of_b.get(name, 0.0) - of_a.get(name, 0.0)) / change for name in (*of_a, *of_b)}
    largest = max(shares.values(), default=0.0)
    candidates = [name for name, share in shares.items() if share >= max(MIN_SHARE, NESTED_SHARE * largest)]
    return min(candidates, key=lambda name: (max(of_a.get(name, 0.0), of_b.get(name, 0.0)), name), default=None)


def measure_gaps_in_section(view: ScopeView, cause: IdleCause, section: str | None) -> I64:
    """Measure the idle time of a cause in each gap of a view, or only in sections of this name, ns: int64[gaps]."""
    gaps = view.gaps
    time: I64 = gaps.time[:, cause]
    if section is None:
        return time
    sections, time = _find_sections(view), np.zeros_like(time)
    for device in sorted_unique(gaps.device).tolist():
        inside = view.gap_finder.list_cause_intervals(gaps, cause, device) & sections.get(section, NO_INTERVALS)
        of_device = gaps.device == device
        time[of_device] = inside.measure_before(gaps.end[of_device]) - inside.measure_before(gaps.start[of_device])
    return time


def _measure_sections(side: SideAnalysis, cause: IdleCause) -> tuple[float, dict[str, float]]:
    """Measure the idle time of a cause a step and device, ns: in all, and by name of the section."""
    view, gaps = side.view, side.view.gaps
    devices = sorted_unique(gaps.device).tolist()
    unit = side.side.step_count * max(len(devices), 1)
    idle = [view.gap_finder.list_cause_intervals(gaps, cause, device) for device in devices]
    return sum(each.total for each in idle) / unit, {
        name: sum((each & intervals).total for each in idle) / unit for name, intervals in _find_sections(view).items()
    }


def _find_sections(view: ScopeView) -> dict[str, Intervals]:
    """Find when the main thread was in annotations: name -> intervals; none where there are too many names."""
    main = find_main_thread(view)
    if main is None:
        return {}
    ranges = view.select_in_scope(view.tables.annotations)
    ranges = ranges.select((ranges.row >= main.first) & (ranges.row < main.last))
    names = sorted_unique(ranges.name).tolist()
    if len(names) > MAX_NAMES:
        return {}
    sections = {}
    for name in names:
        of_name = ranges.select(ranges.name == name)
        sections[view.trace.names[name]] = union(of_name.start, of_name.end)
    return sections
