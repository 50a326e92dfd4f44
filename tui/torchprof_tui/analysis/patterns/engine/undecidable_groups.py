"""Group undecidable patterns by what they lack: a trace without a GPU has the same reason for dozens of them."""

from __future__ import annotations

from collections.abc import Iterable

from torchprof_tui.analysis.patterns.engine.missing_data import NO_CALLS, NO_GPU, NO_MEMORY
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State

NEEDS_GPU = "needs GPU activity"

_COUNTED = {NEEDS_GPU: "GPU activity", NO_MEMORY: "the records of profile_memory=True"}
"""Reasons of many patterns, which are counted, and what each of them needs."""


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
    """Describe one group: "reason: id, id"; those that many have by their number. As recorded: `clean` it."""
    if reason in _COUNTED:
        return f"{len(ids)} pattern{'s need' if len(ids) != 1 else ' needs'} {_COUNTED[reason]}"
    return f"{reason}: {', '.join(ids)}"
