"""Use the captures that a user named for the replays of a trace."""

from __future__ import annotations

import argparse
from dataclasses import replace

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.loading.resolve import resolve_path
from torchprof_tui.trace.model.trace import Trace


def use_captures(trace: Trace, options: argparse.Namespace) -> Trace:
    """Return the trace with the captures of `--capture`, if any were named. Raises TraceError where one cannot be read.

    Without the option captures are looked for beside the trace, once a replayed kernel is asked about. Of several ranks
    each gets those of its own rank.
    """
    if not getattr(options, "capture", None):
        return trace
    if trace.merged_ranks is None:
        return _use_captures_of_rank(trace, trace.label, options)
    ranks = tuple(
        replace(rank, trace=_use_captures_of_rank(rank.trace, rank.file, options)) for rank in trace.merged_ranks.all
    )
    return replace(trace, merged_ranks=replace(trace.merged_ranks, all=ranks))


def _use_captures_of_rank(trace: Trace, spec: str, options: argparse.Namespace) -> Trace:
    named = [resolve_path(name) for name in options.capture]
    captures = CaptureFiles(spec, named, cache=not options.no_cache)
    captures.open_traces(trace)
    if captures.problems:
        raise TraceError(f"--capture: {captures.problems[0]}")
    return replace(trace, captures=captures)
