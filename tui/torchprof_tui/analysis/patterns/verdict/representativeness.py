"""Find why a recording does not represent the program: not warmed up, or slowed by the profiler."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.verdict.diagnosis import Evidence


def find_recording_fault(evidence: Evidence) -> str:
    """Say why the numbers of this scope are not those of the program, "" if they are."""
    cold = evidence.idle(IdleCause.COLD_CALL)
    if cold >= thresholds.COLD_SHARE.value:
        return f"not warmed up: cold calls take {format_percent(cold)} of the time"
    for pattern_id in ("not-warmed-up", "profiler-inflation"):
        if finding := evidence.fired.get(pattern_id):
            return f"{finding.pattern.title[0].lower()}{finding.pattern.title[1:]}"
    return ""
