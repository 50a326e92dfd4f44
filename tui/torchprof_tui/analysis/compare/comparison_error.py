"""The error of two recordings that cannot be compared as asked."""

from __future__ import annotations


class ComparisonError(ValueError):
    """Nothing can be compared as asked: one line that says what can. Names from files are as recorded."""
