"""The error of a question about data that was not recorded."""

from __future__ import annotations


class NotRecordedError(Exception):
    """The trace lacks the requested data; the text says how to record it."""
