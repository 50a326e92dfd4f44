"""Label a problem with the parts of the time in which it lies, so that no reader adds the same time twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.verdict.own_time import find_own_times
from torchprof_tui.analysis.patterns.verdict.tree_model import GENERAL_PATTERN_IDS
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree

_SUMS = {
    "overhead-bound": "the sum of the idle time that the CPU causes",
    "idle-gap": f"the sum of all gaps of {format_duration(thresholds.IDLE_MIN.value)} or more",
}
"""What the time of patterns that describe a whole scope adds up."""

_MIN_LISTED_SHARE = 0.0005
"""Share of the scope below which a part is not listed: it would read 0.0 %."""

_WHOLE_RATIO = 0.9
"""Between this part of its time at stake and the inverse of it, a pattern's own time is not set apart from that.

Less is its own where others explain the rest; more where a change saves a part of what the evidence takes."""


def describe_own_time(finding: Finding, tree: TimeTree | None) -> str:
    """Describe in which parts of the tree a pattern's time lies that no other explains: "dispatch 14 %, launch 7 %".

    `tree`: of a scope with GPU work. "" where it is None or no time is at stake. As recorded: `clean` it.
    """
    if tree is None or not finding.answer.at_stake or not tree.total:
        return ""
    if finding.id in GENERAL_PATTERN_IDS:
        return _SUMS.get(finding.id, "the sum of several causes")
    own = find_own_times(tree, [finding.id]).get(finding.id)
    parts = [
        f"{_shorten_label(part.label)} {format_share(tree.share(part))}"
        for part in (own.within if own is not None else ())
        if tree.share(part) >= _MIN_LISTED_SHARE
    ]
    if own is None or not parts:
        return "counted in other entries, or the GPU was busy"
    kinds = [
        *([f"mean of {tree.device_count} GPUs"] if tree.device_count > 1 else []),
        *(["its own"] if own.share < _WHOLE_RATIO * finding.share else []),
        *(["part of"] if own.share * _WHOLE_RATIO > finding.share else []),
    ]
    return f"{', '.join(kinds)}: {', '.join(parts)}" if kinds else ", ".join(parts)


def _shorten_label(label: str) -> str:
    """Shorten the label of a part of the tree: "idle: dispatch" is "dispatch"."""
    return label.removeprefix("idle: ").partition(",")[0]
