"""What the user may name as a trace, looked at before anything is started for it."""

from __future__ import annotations

import os
import stat

from tui.trace.remote import is_url, remote

SAMPLE = "sample:"
FILE_URL = "file://"


def resolve(spec: str) -> str:
    """The path that is meant: `sample:NAME` is one of ours, `~` the home folder. Raises TraceError."""
    if spec.startswith(FILE_URL):
        from urllib.parse import unquote

        return unquote(spec.removeprefix(FILE_URL))
    if not spec.startswith(SAMPLE) or os.path.exists(spec):
        return os.path.expanduser(spec)
    from sample_traces import find

    try:
        return str(find(spec.removeprefix(SAMPLE)).path)
    except LookupError as error:
        from tui.trace.source import TraceError

        raise TraceError(str(error.args[0])) from error


def check(spec: str) -> None:
    """Raise TraceError at once where a look here is enough: no such file, a folder, an empty file, no fsspec."""
    if spec == "-":
        return
    if is_url(spec):
        from tui.trace.urls import check_url

        check_url(spec)
        return
    try:
        there = remote(spec)
    except ValueError as error:
        from tui.trace.source import TraceError

        raise TraceError(str(error)) from error
    if there is not None:
        return  # connecting takes its time, which the loader has
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
