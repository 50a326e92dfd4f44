"""The one exception of the API, and the errors of lower layers that become it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchprof_tui.analysis.compare.step_selection import ComparisonError
from torchprof_tui.analysis.table.event_scope import NotRecordedError
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError, UnreadableFileError, format_error
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.loading.errors import LoadError

_ERRORS_FOR_USERS = (
    ComparisonError,
    NotRecordedError,
    OutputError,
    LoadError,
    ConnectionLostError,
    UnreadableFileError,
)
"""Their text is one line that says what is wrong."""


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise TraceError in place of errors about the input: files that are gone, data that was not recorded, …"""
    try:
        yield
    except TraceError as error:
        error.args = (clean(str(error)),)  # names of files and events may hold control characters
        raise
    except _ERRORS_FOR_USERS as error:
        raise TraceError(clean(str(error))) from error
    except (OSError, LookupError) as error:
        raise TraceError(clean(format_error(error))) from error
