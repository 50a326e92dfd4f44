"""Print what limits a step: `torchprof-tui critical-path`."""

from __future__ import annotations

import argparse
import sys

from torchprof_tui.analysis.critical_path.critical_path import find_critical_path
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.json_document import print_document
from torchprof_tui.commands.common.load import load_specs, select_rank
from torchprof_tui.commands.common.time_range import parse_time_range
from torchprof_tui.commands.critical_path.document import build_document
from torchprof_tui.commands.critical_path.text import print_path


def run(options: argparse.Namespace) -> int:
    time_range = None if options.range is None else parse_time_range(options.range)
    trace, rank = select_rank(load_specs(options.trace, cache=not options.no_cache).trace, options.rank)
    try:
        path = find_critical_path(trace, options.step, time_range)
    except WindowError as error:
        raise UsageError(f"{trace.label}: {error}") from error
    if rank is not None and options.rank is None:
        print(f"{rank.label}; another: --rank N", file=sys.stderr)
    if options.json:
        print_document(build_document(trace, path, options.top, trace.rank if rank is None else rank.number))
        return 0
    print_path(trace, path, options.top)
    return 0
