"""The time of a scope by cause: a tree of parts, and which patterns may explain some of it.

Panels import this module before the modules that check: it imports none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE, COPIES, EXPOSED, OUTSIDE = "compute", "copies", "exposed_communication", "outside"

GENERAL_PATTERN_IDS = frozenset(["overhead-bound", "first-step-wide", "not-warmed-up"])
"""Patterns that describe a whole scope: each part of it would be theirs, so they keep what no other explains."""

UNSPECIFIC_PATTERN_IDS = frozenset(
    ["call-count", "cold-call", "dead-window", "cost-in-children", "one-off-gap", "profiler-inflation"]
)
"""Patterns that restate that time is lost; others name why."""


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of a scope: `time` in ns, summed over the devices. `parts` lie inside it and sum to it at most.

    `id`: a cause, a class of GPU work, or the id of a pattern.
    """

    id: str
    label: str
    time: int
    parts: tuple[TimePart, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeTree:
    """The time of a scope by cause. `parts` sum to `total`: the scope's length times `device_count`, ns."""

    parts: tuple[TimePart, ...]
    total: int
    device_count: int

    def share(self, part: TimePart) -> float:
        """Return a part's share of the scope, 0..1."""
        return part.time / self.total if self.total else 0.0

    def find(self, part_id: str) -> TimePart | None:
        return next((part for part in self.parts if part.id == part_id), None)
