"""What the user may name as a trace, looked at before anything is started for it."""

from __future__ import annotations

import os
import stat

SAMPLE = "sample:"


def resolve(spec: str) -> str:
    """The path that is meant: `sample:NAME` is one of ours, `~` the home folder. Raises TraceError."""
    if not spec.startswith(SAMPLE) or os.path.exists(spec):
        return os.path.expanduser(spec)
    from sample_traces import find

    try:
        return str(find(spec.removeprefix(SAMPLE)).path)
    except LookupError as error:
        from tui.trace.source import TraceError

        raise TraceError(str(error.args[0])) from error


def check(spec: str) -> None:
    """Raise TraceError at once where a look at the file is enough: nothing there, a folder, an empty file."""
    if spec == "-":
        return
    try:
        found = os.stat(spec)
        if stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode):
            return  # opening it here would take from what the loader is to read
        if stat.S_ISREG(found.st_mode) and found.st_size > 0 and os.access(spec, os.R_OK):
            return
    except (OSError, ValueError):
        pass
    from tui.trace.source import open_source  # which has the words; an import that only failures pay for

    open_source(spec).close()
