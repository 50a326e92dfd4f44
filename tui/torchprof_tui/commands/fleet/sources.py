"""List the traces that the user named: local folders and patterns, folders on ssh hosts, buckets, mixed."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Sequence, Set

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.readable import read_begin
from torchprof_tui.trace.loading.resolve import resolve_path
from torchprof_tui.trace.sources.listing import list_remote_traces
from torchprof_tui.trace.specs.address import LOCAL_TRACE_SUFFIXES, ListedTrace, is_key_averages_file, is_remote
from torchprof_tui.trace.specs.local_recordings import list_local_traces
from torchprof_tui.trace.specs.rank_files import NO_TRACE_IN_FOLDER, NotRanksError, expand_spec
from torchprof_tui.trace.specs.rank_names import rank_in_name

_MAX_OTHER_BYTES = 1 << 20
"""Bytes of a file beside the traces that are read to tell whether it is JSON of another kind."""


def list_sources(names: Sequence[str], connections: contextlib.ExitStack) -> tuple[list[ListedTrace], list[str]]:
    """List the traces, each once; also returns one line for each name that there are none of. Raises UsageError."""
    expanded = [resolve_path(name) for name in names]
    if "-" in expanded:
        raise UsageError("-: a fleet is files; stdin is one trace")
    remote = [name for name in expanded if is_remote(name)]
    listings = {listing.name: listing for listing in list_remote_traces(remote, connections)} if remote else {}
    found: dict[str, ListedTrace] = {}
    lost = []
    for name in expanded:
        if name in listings:
            lost += [listings[name].error] if listings[name].error else []
            traces: Sequence[ListedTrace] = listings[name].traces
        elif os.path.isdir(name):
            traces = list_local_traces(name)
            unreadable = list(_explain_unreadable(name, {trace.spec for trace in traces}))
            lost += unreadable if traces or unreadable else [f"{name}: {NO_TRACE_IN_FOLDER}"]
        else:
            traces = [ListedTrace(path, None, 0.0) for path in _expand_pattern(name)]
        for trace in traces:
            found.setdefault(trace.spec, trace)
    return list(found.values()), lost


def _explain_unreadable(folder: str, listed: Set[str]) -> Iterator[str]:
    """Yield a line for each file that is named as the trace of a rank, and is none."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if path in listed or not name.endswith(LOCAL_TRACE_SUFFIXES) or name.startswith(".") or os.path.isdir(path):
            continue
        if rank_in_name(name) is not None and not is_key_averages_file(name):
            reason = _find_reason(path)
            if reason:
                yield f"{path}: {reason}"


def _find_reason(path: str) -> str:
    """Say why a file is no trace; "" for JSON of another kind, such as a manifest."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "not a file"
        begin = read_begin(path, _MAX_OTHER_BYTES)
    except OSError as error:
        return error.strerror or str(error)
    if not begin:
        return "the file is empty"
    try:
        json.loads(begin)
    except (ValueError, RecursionError):
        return "not a trace, or one that is damaged from its begin on"
    return ""


def _expand_pattern(name: str) -> list[str]:
    try:
        return expand_spec(name)
    except NotRanksError as error:
        raise UsageError(str(error)) from error
