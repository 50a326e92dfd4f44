"""A threshold of the patterns: a number with its unit and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that a pattern is decided by, with its unit and the reason for its value."""

    name: str
    value: float
    unit: str
    reason: str
