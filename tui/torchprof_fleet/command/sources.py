"""List the traces that the user named: local folders and patterns, folders on ssh hosts, buckets, mixed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from torchprof_fleet.analysis.fleet import LeftOut
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.loading.resolve import resolve_path
from torchprof_tui.trace.sources.listing import list_remote_traces
from torchprof_tui.trace.specs.address import ListedTrace, is_remote
from torchprof_tui.trace.specs.rank_files import (
    NO_TRACE_IN_FOLDER,
    NotRanksError,
    expand_spec,
    explain_unreadable_ranks,
    list_local_traces,
)


def list_sources(names: Sequence[str], connections: contextlib.ExitStack) -> tuple[list[ListedTrace], list[LeftOut]]:
    """List the traces, each once; also returns the names that there are none of. Raises UsageError without traces."""
    expanded = [resolve_path(name) for name in names]
    if "-" in expanded:
        raise UsageError("-: a fleet is files; stdin is one trace")
    remote = [name for name in expanded if is_remote(name)]
    listings = {listing.name: listing for listing in list_remote_traces(remote, connections)} if remote else {}
    found: dict[str, ListedTrace] = {}
    lost: list[LeftOut] = []
    for name in expanded:
        if name in listings:
            lost += [LeftOut.from_line(name, listings[name].error)] if listings[name].error else []
            traces: Sequence[ListedTrace] = listings[name].traces
        elif os.path.isdir(name):
            traces = list_local_traces(name)
            reasons = explain_unreadable_ranks(name, {trace.spec for trace in traces})
            unreadable = [LeftOut(os.path.join(name, file), reason) for file, reason in reasons]
            lost += unreadable if traces or unreadable else [LeftOut(name, NO_TRACE_IN_FOLDER)]
        else:
            try:
                traces = [ListedTrace(path, None, 0.0) for path in expand_spec(name)]
            except NotRanksError as error:
                raise UsageError(str(error)) from error
        for trace in traces:
            found.setdefault(trace.spec, trace)
    if not found:
        raise UsageError(lost[0].line if lost else "no traces")
    return list(found.values()), lost
