"""One module a command: `add_arguments(parser)`, and `run(options)` which returns the exit status."""

from __future__ import annotations


class UsageError(Exception):
    """The call or the input is wrong: one line for stderr, exit status 2."""
