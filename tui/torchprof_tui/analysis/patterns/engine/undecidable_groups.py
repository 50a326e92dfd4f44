"""Group undecidable patterns by what they lack: a trace without a GPU has the same reason for dozens of them."""

from __future__ import annotations

from collections.abc import Iterable

from torchprof_tui.analysis.patterns.engine.missing_data import NO_CALLS, NO_GPU
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State

NEEDS_GPU = "needs GPU activity"


def group_undecidable(findings: Iterable[Finding]) -> list[tuple[str, list[str]]]:
    """Group the undecidable findings: (reason, pattern ids) in order of the reason.

    Without GPU activity there are no runtime calls that launch it either: both reasons are one group.
    """
    undecidable = [finding for finding in findings if finding.state is State.CANNOT_TELL]
    is_cpu_only = any(finding.answer.reason == NO_GPU for finding in undecidable)
    groups: dict[str, list[str]] = {}
    for finding in undecidable:
        reason = finding.answer.reason
        if is_cpu_only and reason in (NO_GPU, NO_CALLS):
            reason = NEEDS_GPU
        groups.setdefault(reason, []).append(finding.id)
    return sorted(groups.items())


def describe_group(reason: str, ids: list[str]) -> str:
    """Describe one group: "reason: id, id"; those that need a GPU, dozens, by their number. As recorded: `clean` it."""
    if reason == NEEDS_GPU:
        return f"{len(ids)} pattern{'s need' if len(ids) != 1 else ' needs'} GPU activity"
    return f"{reason}: {', '.join(ids)}"
