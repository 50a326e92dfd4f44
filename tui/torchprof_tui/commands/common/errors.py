"""Define the error of a wrong call."""

from __future__ import annotations


class UsageError(Exception):
    """The call or the input is wrong: one line for stderr, exit status 2."""
